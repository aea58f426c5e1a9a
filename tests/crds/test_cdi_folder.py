from __future__ import annotations

import pytest

from gpugrant_crds import cdi
from gpugrant_crds.cdi import Problem, ProblemReason, Spec


def spec(filename: str, kind: str, *names: str) -> Spec | Problem:
    devices = "".join(f"- name: {name}\n  containerEdits: {{env: [A=b]}}\n" for name in names)
    return cdi.read_spec(f'cdiVersion: "0.5.0"\nkind: {kind}\ndevices:\n{devices}', filename)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("nvidia.yaml", True),
        ("nvidia.json", True),
        (".yaml", True),
        ("nvidia.yml", False),
        ("nvidia.YAML", False),
        ("nvidia.yaml.tmp", False),
        (".rediacc-x.tmp", False),
        ("README", False),
    ],
)
def test_which_files_are_specs(name: str, read: bool) -> None:
    assert cdi.is_spec_file(name) is read


@pytest.mark.req("R8")
def test_all_names_of_all_files_in_natural_order() -> None:
    devices = cdi.merge(
        {
            "b.yaml": spec("b.yaml", "rediacc.io/amd", "gpu10", "gpu2", "all"),
            "a.yaml": spec("a.yaml", "nvidia.com/gpu", '"0"', "all"),
        }
    )
    assert list(devices.names.items()) == [
        ("nvidia.com/gpu=0", "a.yaml"),
        ("nvidia.com/gpu=all", "a.yaml"),
        ("rediacc.io/amd=all", "b.yaml"),
        ("rediacc.io/amd=gpu2", "b.yaml"),
        ("rediacc.io/amd=gpu10", "b.yaml"),
    ]
    assert devices.problems == ()


def test_a_name_in_two_files_is_gone_and_the_others_stay() -> None:
    devices = cdi.merge(
        {
            "nvidia.json": spec("nvidia.json", "nvidia.com/gpu", '"0"', '"1"'),
            "nvidia.yaml": spec("nvidia.yaml", "nvidia.com/gpu", '"0"', "all"),
        }
    )
    assert list(devices.names) == ["nvidia.com/gpu=1", "nvidia.com/gpu=all"]
    assert devices.conflicts == (cdi.Conflict("nvidia.com/gpu=0", ("nvidia.json", "nvidia.yaml")),)
    assert devices.unusable["nvidia.com/gpu=0"].reason is ProblemReason.SPEC_CONFLICT
    assert [problem.reason for problem in devices.problems] == [ProblemReason.SPEC_CONFLICT]
    assert "nvidia.json and nvidia.yaml" in devices.problems[0].message


def test_a_broken_file_is_a_problem_and_the_others_count() -> None:
    devices = cdi.merge(
        {"a.yaml": cdi.read_spec("]", "a.yaml"), "b.yaml": spec("b.yaml", "rediacc.io/dri", "renderD128")}
    )
    assert list(devices.names) == ["rediacc.io/dri=renderD128"]
    assert [problem.filename for problem in devices.problems] == ["a.yaml"]


def test_no_name_of_a_file_in_doubt_can_be_granted() -> None:
    devices = cdi.merge({"a.yaml": spec("a.yaml", "vendor.com/dev", "08", "d")})
    assert devices.names == {}
    assert list(devices.unusable) == ["vendor.com/dev=8", "vendor.com/dev=d"]
    assert [problem.reason for problem in devices.problems] == [ProblemReason.AMBIGUOUS_SPEC]


def test_an_empty_folder_offers_nothing() -> None:
    assert cdi.merge({}) == cdi.Devices({}, {}, (), ())
