"""Names: what a daemon's CDI library reads, minus what makes it crash; repos; nearness; object names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_crds import names

GOOD = [
    "nvidia.com/gpu=all",
    "nvidia.com/gpu=0",
    "nvidia.com/gpu=0:1",
    "nvidia.com/gpu=GPU-08b3c2e8-cb7b-ea3f-7711-a042c580b3e8",
    "rediacc.io/dri=renderD128",
    "rediacc.io/amd=gpu0",
    "vendor_1.example/a.class-x_y=a.b_c-d:e",
    "Vendor/Class=x",
]

BAD = {
    "empty": ("", "vendor/class=name"),
    "a path": ("/dev/dri/renderD128", "vendor/class=name"),
    "no device": ("nvidia.com/gpu=", "vendor/class=name"),
    "no class": ("nvidia.com=all", "vendor/class=name"),
    "no vendor": ("/gpu=all", "vendor/class=name"),
    "no equals sign": ("nvidia.com/gpu", "vendor/class=name"),
    "a vendor of one letter": ("a/gpu=all", "vendor of one letter"),
    "a class of one letter": ("nvidia.com/g=all", "class of one letter"),
    "a vendor that starts with a digit": ("3dfx/gpu=all", "must start with a letter"),
    "a class that ends with a dot": ("nvidia.com/gpu.=all", "must end with a letter or digit"),
    "a colon in a class": ("nvidia.com/g:u=all", "must not contain ':'"),
    "a second slash": ("nvidia.com/gpu/x=all", "must not contain '/'"),
    "a second equals sign": ("nvidia.com/gpu=a=b", "must not contain '='"),
    "a device that starts with a dash": ("nvidia.com/gpu=-a", "must start with a letter or digit"),
    "a device that ends with a colon": ("nvidia.com/gpu=a:", "must end with a letter or digit"),
    "a final newline": ("nvidia.com/gpu=all\n", r"must not contain '\n'"),
    "a full-width digit": ("nvidia.com/gpu=１", "must start with a letter or digit"),
    "a name of 600 characters": ("nvidia.com/gpu=" + "a" * 600, "at most 512"),
}


@pytest.mark.req("R3", "R17")
@pytest.mark.parametrize("text", GOOD)
def test_reads_a_qualified_name(text: str) -> None:
    """A name is read into its three parts and written as it was."""
    assert str(names.parse_device(text)) == text
    assert names.is_qualified(text)


@pytest.mark.req("R3")
@pytest.mark.parametrize(("text", "said"), BAD.values(), ids=BAD.keys())
def test_refuses_what_is_no_name(text: str, said: str) -> None:
    """One clause says what is wrong with it."""
    with pytest.raises(names.InvalidName, match=re.escape(said)):
        names.parse_device(text)
    assert not names.is_qualified(text)


@given(st.text(alphabet="aZ0_.-:/=\n", max_size=14))
def test_pattern_and_parser_agree(text: str) -> None:
    """The pattern that stands in the CRD admits exactly what the parser reads."""
    assert names.is_qualified(text) == (re.fullmatch(names.DEVICE_NAME, text, re.ASCII) is not None)


@pytest.mark.req("R22")
@pytest.mark.parametrize(
    ("text", "repo", "machine"),
    [
        ("gpu-a", "gpu-a", None),
        ("gpu-a@wsl-gpu", "gpu-a", "wsl-gpu"),
        ("My_Repo.1@m.example", "My_Repo.1", "m.example"),
    ],
)
def test_repo_references(text: str, repo: str, machine: str | None) -> None:
    """`repo[@machine]`, and back."""
    ref = names.parse_repo_ref(text)

    assert (ref.repo, ref.machine, str(ref)) == (repo, machine, text)


@pytest.mark.parametrize("text", ["", "@m", "a@", "a@b@c", "../a", ".a", "a/b", "a@UPPER", "a" * 64, "a\n"])
def test_refuses_bad_repo_references(text: str) -> None:
    """No path, no leading dot, no empty part: a repo's name is a file's name."""
    with pytest.raises(names.InvalidName):
        names.parse_repo_ref(text)


@pytest.mark.req("R8")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nvidia.com/gpu=al", "; did you mean nvidia.com/gpu=all?"),
        ("NVIDIA.com/gpu=ALL", "; did you mean nvidia.com/gpu=all"),
        ("rediacc.io/dri=renderD129", "; did you mean rediacc.io/dri=renderD128?"),
        ("zzz", "; there is nvidia.com/gpu=all, rediacc.io/dri=renderD128"),
    ],
)
def test_names_the_nearest(name: str, said: str) -> None:
    """The nearest names; a short list whole where none is near."""
    assert names.did_you_mean(name, ["rediacc.io/dri=renderD128", "nvidia.com/gpu=all"]).startswith(said)


def test_nothing_is_near_nothing() -> None:
    """An empty list gives no hint."""
    assert names.did_you_mean("x", []) == ""


@given(st.tuples(st.sampled_from(["a", "a-b", "A"]), st.sampled_from(["m", "b-m"]), st.sampled_from(GOOD)))
def test_grant_object_names_are_dns_names(parts: tuple[str, str, str]) -> None:
    """A Kubernetes name, the same for the same three, at most 63 characters."""
    name = names.grant_object_name(*parts)

    assert re.fullmatch(names.DNS_SUBDOMAIN, name)
    assert len(name) <= 63
    assert name == names.grant_object_name(*parts)


def test_grant_object_names_differ_where_slugs_do_not() -> None:
    """Names whose readable parts are alike don't share an object."""
    assert len({names.grant_object_name(repo, "m", "nvidia.com/gpu=all") for repo in ("a-b", "a.b", "a_b", "A-b")}) == 4
