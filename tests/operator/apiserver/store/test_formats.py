"""State that an earlier version wrote opens; kinds that this one does not know are kept for the one that does."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpugrant_crds import schema
from gpugrant_operator.apiserver.registry import Options
from gpugrant_operator.apiserver.settings import Settings
from gpugrant_operator.apiserver.store.disk import Disk
from gpugrant_operator.apiserver.store.journal import SNAPSHOT, parse_line
from storestand import Opened, opened

FORMATS = Path(__file__).with_name("formats")
"""A folder a format: `state` and `manifests` as a server of that format left them when it was killed."""


@pytest.fixture
def old(settings: Settings) -> Settings:
    """A store that a server of the first format left."""
    shutil.copytree(FORMATS / "1", settings.layout.state)
    return replace(settings, crds=schema.crds(), admission=False)


def grants(api: Opened) -> dict[str, Any]:
    resource = api.store.catalog.by_plural("repogpugrants")
    assert resource is not None
    return {obj["metadata"]["name"]: obj for obj in api.store.head_list(resource)}


@pytest.mark.req("D1")
async def test_what_the_first_format_holds_is_all_there(old: Settings) -> None:
    texts = {path: path.read_bytes() for path in old.layout.manifests.rglob("*.yaml")}
    for _ in range(2):  # as it was, and as this version keeps it
        async with opened(replace(old, compact_bytes=1), Disk()) as api:
            await api.sync.scan()
            assert api.sync.problems == {}
            assert set(grants(api)) == {"a", "b"}
            assert grants(api)["a"]["status"]["acceptedAt"] == "2026-11-30T00:00:01Z"
            assert api.store.store_id == "5b0b8f0e-6f0c-4b0e-9a53-6a2f3f1c7d10"
            assert api.store.version >= 8
            resource = api.store.catalog.by_plural("repogpugrants")
            assert resource is not None
            patch = {"status": {"observedGeneration": 1}}
            merge = "application/merge-patch+json"
            await api.registry.patch(resource, "default", "b", merge, patch, Options(), status=True)
    assert {path: path.read_bytes() for path in old.layout.manifests.rglob("*.yaml")} == texts


async def test_an_object_of_another_version_of_its_kind_is_served_at_this_one(old: Settings) -> None:
    def moved(crd: Any) -> Any:
        (version,) = crd["spec"]["versions"]
        return {**crd, "spec": {**crd["spec"], "versions": [{**version, "name": "v1beta1"}]}}

    newer = replace(old, crds=tuple(moved(crd) for crd in schema.crds()))
    async with opened(newer, Disk()) as api:
        await api.sync.scan()
        assert api.sync.problems == {}
        assert {obj["apiVersion"] for obj in grants(api).values()} == {"gpu.rediacc.io/v1beta1"}
        resource = api.store.catalog.by_plural("repogpugrants")
        assert resource is not None
        patch = {"metadata": {"labels": {"a": "b"}}}
        await api.registry.patch(resource, "default", "a", "application/merge-patch+json", patch, Options())
    assert "v1beta1" in (old.layout.manifests / "objects/repogpugrants/default/a.yaml").read_text()
    async with opened(newer, Disk()) as api:
        await api.sync.scan()
        assert api.sync.problems == {}
        assert grants(api)["a"]["metadata"]["labels"] == {"a": "b"}


async def test_a_field_that_the_schema_no_longer_has_goes_with_the_next_write(old: Settings) -> None:
    def without(crd: Any) -> Any:
        if crd["spec"]["names"]["plural"] != "repogpugrants":
            return crd
        (version,) = crd["spec"]["versions"]
        whole = version["schema"]["openAPIV3Schema"]
        status = whole["properties"]["status"]
        fields = {name: part for name, part in status["properties"].items() if name != "acceptedAt"}
        properties = {**whole["properties"], "status": {**status, "properties": fields}}
        changed = {**version, "schema": {"openAPIV3Schema": {**whole, "properties": properties}}}
        return {**crd, "spec": {**crd["spec"], "versions": [changed]}}

    async with opened(replace(old, crds=tuple(without(crd) for crd in schema.crds())), Disk()) as api:
        resource = api.store.catalog.by_plural("repogpugrants")
        assert resource is not None
        patch = {"status": {"observedGeneration": 2}}
        merge = "application/merge-patch+json"
        await api.registry.patch(resource, "default", "a", merge, patch, Options(), status=True)
        assert "acceptedAt" not in grants(api)["a"]["status"]


async def test_objects_of_kinds_that_are_not_served_are_kept(old: Settings) -> None:
    machines = tuple(crd for crd in schema.crds() if crd["spec"]["names"]["plural"] == "gpumachines")
    async with opened(replace(old, crds=machines, compact_bytes=1), Disk()) as api:
        machine = api.store.catalog.by_plural("gpumachines")
        assert machine is not None
        for number in range(20):
            patch = {"metadata": {"labels": {"a": str(number)}}}
            await api.registry.patch(machine, "", "m1", "application/merge-patch+json", patch, Options())
    head = parse_line((old.layout.store / SNAPSHOT).read_bytes().partition(b"\n")[0])
    assert head is not None
    assert head["rv"] > 8  # all went over into a new one
    async with opened(old, Disk()) as api:
        await api.sync.scan()
        assert set(grants(api)) == {"a", "b"}
