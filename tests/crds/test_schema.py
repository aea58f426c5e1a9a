"""The CRDs: generated, structural, and what the files in `crds/` hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpugrant_crds import schema
from gpugrant_crds.v1alpha1 import GpuMachineStatus, RepoGpuGrantStatus

FOLDER = Path(__file__).parents[2] / "crds"
CRDS = {crd["spec"]["names"]["kind"]: crd for crd in schema.crds()}


def version(kind: str) -> dict[str, Any]:
    found = CRDS[kind]["spec"]["versions"][0]
    assert isinstance(found, dict)
    return found


def nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    """All schemas of a schema."""
    children = [*node.get("properties", {}).values(), *([node["items"]] if "items" in node else [])]
    return [node, *(found for child in children for found in nodes(child))]


@pytest.mark.req("D3")
def test_files_are_what_the_models_give() -> None:
    """`hack/update-crds` was run after the last change of a model."""
    assert {path.name: path.read_text() for path in FOLDER.glob("*.yaml")} == schema.manifests()


@pytest.mark.parametrize("kind", CRDS)
def test_structural(kind: str) -> None:
    """Each schema has a type and none of the keywords that a structural schema may not have."""
    for node in nodes(version(kind)["schema"]["openAPIV3Schema"]):
        assert node["type"] in {"object", "array", "string", "integer", "boolean"}
        assert not {"$ref", "anyOf", "oneOf", "allOf", "title", "const", "additionalProperties"} & node.keys()


@pytest.mark.parametrize("kind", CRDS)
def test_specs_have_no_defaults(kind: str) -> None:
    """A default in a spec is a drift for GitOps tools."""
    spec = version(kind)["schema"]["openAPIV3Schema"]["properties"]["spec"]

    assert not any("default" in node for node in nodes(spec))


@pytest.mark.parametrize("kind", CRDS)
def test_fresh_objects_are_not_current(kind: str) -> None:
    """kstatus: an object that nobody has looked at says so by observedGeneration -1."""
    assert version(kind)["schema"]["openAPIV3Schema"]["properties"]["status"]["default"] == {"observedGeneration": -1}
    assert (GpuMachineStatus().observed_generation, RepoGpuGrantStatus().observed_generation) == (-1, -1)


@pytest.mark.req("D13", "D12")
def test_columns() -> None:
    """What `kubectl get` shows, in this order."""

    def columns(kind: str, priority: int) -> list[str]:
        return [c["name"] for c in version(kind)["additionalPrinterColumns"] if c.get("priority", 0) == priority]

    assert columns("GpuMachine", 0) == [
        "Platform",
        "Model",
        "GPUs",
        "Driver",
        "Devices",
        "Grants",
        "Ready",
        "Inventory",
    ]
    assert columns("GpuMachine", 1) == ["Node", "Epoch", "Reason"]
    assert columns("RepoGpuGrant", 0) == ["Repo", "Machine", "Device", "Exclusive", "Ready", "Reason", "Age"]


def test_names() -> None:
    """Scope, short names and category as design 3 says."""
    shown = {
        kind: (crd["spec"]["scope"], crd["spec"]["names"]["shortNames"], crd["spec"]["names"]["categories"])
        for kind, crd in CRDS.items()
    }
    assert shown == {"GpuMachine": ("Cluster", ["gm"], ["gpu"]), "RepoGpuGrant": ("Namespaced", ["rgg"], ["gpu"])}


@pytest.mark.parametrize("name", schema.manifests())
def test_small_enough_for_client_side_apply(name: str) -> None:
    """The last-applied annotation holds at most 262,144 bytes."""
    text = schema.manifests()[name]

    assert len(text) < 100_000
    assert yaml.safe_load(text)["kind"] == "CustomResourceDefinition"
