"""Paths and queries that Go, and Python's own parsers, read in more than one way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_gate.policy import target
from gpugrant_gate.policy.target import Target, TargetRefused

CREATE = ("containers", "create")

TAKEN = {
    "a version": ("/v1.45/containers/create", Target("1.45", CREATE, ())),
    "no version": ("/containers/create", Target("", CREATE, ())),
    "a version that does not exist": ("/v1.999/containers/create", Target("1.999", CREATE, ())),
    "encoded letters": ("/v1.45/%63ontainers/creat%65", Target("1.45", CREATE, ())),
    "an encoded version": ("/%76%31.45/containers/create", Target("1.45", CREATE, ())),
    "an image name with raw slashes": (
        "/images/docker.io/library/x/push",
        Target("", ("images", "docker.io", "library", "x", "push"), ()),
    ),
    "an image name with an encoded slash": (
        "/v1.45/images/library%2Fx:1/json",
        Target("1.45", ("images", "library", "x:1", "json"), ()),
    ),
    "a query": ("/info?a=b&c=d+e%26", Target("", ("info",), (("a", "b"), ("c", "d e&")))),
    "a query with empty pieces": ("/info?&a=&&b", Target("", ("info",), (("a", ""), ("b", "")))),
    "an encoded semicolon": ("/info?a=%3B", Target("", ("info",), (("a", ";"),))),
    "an equals sign in a value": ("/info?a=b=c", Target("", ("info",), (("a", "b=c"),))),
    "an encoded key": ("/info?%61=1", Target("", ("info",), (("a", "1"),))),
    "a version in the middle is a segment": ("/info/v1.45", Target("", ("info", "v1.45"), ())),
}


@pytest.mark.parametrize(("text", "parsed"), TAKEN.values(), ids=TAKEN.keys())
def test_takes(text: str, parsed: Target) -> None:
    assert target.parse(text) == parsed


REFUSED = {
    "two slashes": "//containers/create",
    "two slashes inside": "/v1.45//containers/create",
    "a dot": "/./containers/create",
    "two dots": "/x/../containers/create",
    "an encoded dot": "/%2e/containers/create",
    "encoded dots": "/x/%2e%2E/containers/create",
    "dots with an encoded slash": "/..%2fcontainers/create",
    "an encoded slash": "/v1.45/containers%2Fcreate",
    "an encoded slash behind the version": "/v1.45%2Fcontainers%2Fcreate",
    "dots in an image's name": "/images/a%2F..%2Fb/json",
    "two slashes in an image's name": "/images/a%2F%2Fb/json",
    "a trailing slash": "/containers/create/",
    "the root": "/",
    "a version alone": "/v1.45",
    "a star": "*",
    "absolute form": "http://evil:1/v1.45/containers/create",
    "absolute form in capitals": "HTTP://evil/containers/create",
    "opaque form": "foo:/v1.45/containers/create",
    "no leading slash": "containers/create",
    "a fragment": "/containers/create#frag",
    "a fragment in the query": "/info?x#frag",
    "a backslash": "/containers\\create",
    "an encoded backslash": "/containers%5Ccreate",
    "an encoded NUL": "/containers/create%00",
    "an encoded newline": "/containers/create%0a",
    "a newline": "/containers/create\n",
    "a blank": "/containers/create /x",
    "a tab": "/containers/create\t",
    "a letter that is not ASCII": "/container\u017f/create",
    "a bad escape": "/containers/cre%zzate",
    "half an escape": "/containers/create%4",
    "an escape that is not UTF-8": "/containers/%ff",
    "an overlong escape": "/containers/%c0%ae",
    "a surrogate": "/containers/%ed%a0%80",
    "nothing": "",
    "a semicolon in the query": "/info?a=1;b=2",
    "a NUL in the query": "/info?a=%00",
    "an empty key": "/info?=1",
    "a key that is not ASCII": "/info?%c5%bf=1",
    "a bad escape in the query": "/info?a=%",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
def test_refuses(text: str) -> None:
    with pytest.raises(TargetRefused):
        target.parse(text)


@pytest.mark.parametrize(
    "text", ["/V1.45/info", "/v1.45x/info", "/v1,45/info", "/v1/info", "/v1.45.0/info", "/v.../info", "/v1.4567/info"]
)
def test_what_is_no_version_is_a_segment_and_no_route(text: str) -> None:
    assert target.parse(text).version == ""
    assert target.parse(text).segments[0] != "info"


NAMES = st.text(st.characters(min_codepoint=0x20, exclude_categories=["C", "Z"], exclude_characters="/\\"), min_size=1)
SEGMENTS = st.lists(NAMES.filter(lambda text: text not in (".", "..")), min_size=1, max_size=5)
KEYS = st.text("abcdefgh-_", min_size=1)
VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(st.sampled_from(["", "1.24", "1.45", "1.999"]), SEGMENTS, st.lists(st.tuples(KEYS, VALUES)))
def test_reads_back_what_it_built(version: str, segments: list[str], query: list[tuple[str, str]]) -> None:
    built = target.build(version, ["containers", *segments], query)
    assert target.parse(built) == Target(version, ("containers", *segments), tuple(query))


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        parsed = target.parse(f"/{text}")
    except TargetRefused:
        return
    assert target.parse(target.build(parsed.version, parsed.segments, parsed.query)) == parsed
