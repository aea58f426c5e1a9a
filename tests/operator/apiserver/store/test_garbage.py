"""Any bytes anywhere in the manifests folder: no error of the server, and no object goes or becomes another one."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from gpugrant_crds import schema
from gpugrant_operator.apiserver.objects.resources import NAMESPACES
from gpugrant_operator.apiserver.registry import Options
from gpugrant_operator.apiserver.settings import Settings
from gpugrant_operator.apiserver.store.disk import Disk
from storestand import Opened, namespace, opened

NAMES = ("a", "b", "c")


def grant(name: str) -> dict[str, Any]:
    spec = {"machine": "m1", "repo": "r", "device": "nvidia.com/gpu=all"}
    return {
        "apiVersion": "gpu.rediacc.io/v1alpha1",
        "kind": "RepoGpuGrant",
        "metadata": {"name": name},
        "spec": spec,
    }


SOUND = b"""apiVersion: gpu.rediacc.io/v1alpha1
kind: RepoGpuGrant
metadata:
  name: a
spec:
  machine: m1
  repo: r
  device: nvidia.com/gpu=all
"""

SPLICED = st.builds(
    lambda at, gone, new: SOUND[:at] + new + SOUND[at + gone :],
    st.integers(0, len(SOUND)),
    st.integers(0, 60),
    st.binary(max_size=8)
    | st.sampled_from([b"\xef\xbb\xbf", b"\0", b"&a [*a]", b"---\n", b"!!python/object:x ", b"~"]),
)
BYTES = st.binary(max_size=80) | SPLICED
PART = st.binary(min_size=1, max_size=12).filter(lambda part: part not in (b".", b"..") and not {0, 47} & set(part))
FOLDER = st.sampled_from([b"objects/repogpugrants/default", b"objects/repogpugrants/_cluster", b"objects", b""]) | PART
NAME = st.sampled_from([b"a.yaml", b"b.yaml", b"new.yaml", b"A.yaml", b"\xff.yaml", b"a~/b.yaml"]) | st.builds(
    lambda part, end: part + end, PART, st.sampled_from([b".yaml", b".yml", b".json", b""])
)


def uids(api: Opened) -> dict[str, str]:
    grants = api.store.catalog.by_plural("repogpugrants")
    assert grants is not None
    return {obj["metadata"]["name"]: obj["metadata"]["uid"] for obj in api.store.head_list(grants)}


async def thrown(root: Path, files: list[tuple[bytes, bytes, bytes]]) -> None:
    here = Settings(root=root, crds=schema.crds(), admission=False)
    async with opened(here, Disk()) as api:
        grants = api.store.catalog.by_plural("repogpugrants")
        assert grants is not None
        await api.registry.create(NAMESPACES, "", namespace(), Options())
        for name in NAMES:
            await api.registry.create(grants, "default", grant(name), Options())
        before = uids(api)
        for folder, name, data in files:
            path = Path(os.fsdecode(os.path.join(os.fsencode(here.layout.manifests), folder, name)))  # noqa: PTH118
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            except OSError:
                continue  # a file where a folder must be, or the other way round
        await api.sync.scan()
        await api.sync.take_paths([path for path in here.layout.manifests.rglob("*") if not path.is_dir()])
        assert uids(api).items() >= before.items()
        assert not api.store.failure
        assert isinstance(api.sync.message.encode("utf-8", "surrogateescape"), bytes)
        await api.registry.patch(grants, "default", "c", MERGE, {"metadata": {"labels": {"v": "1"}}}, Options())
    async with opened(here, Disk()) as api:
        await api.sync.scan()
        assert uids(api).items() >= before.items()


MERGE = "application/merge-patch+json"


@pytest.mark.req("D1")
@given(st.lists(st.tuples(FOLDER, NAME, BYTES), min_size=1, max_size=6))
@hypothesis_settings(max_examples=60, deadline=None)
def test_garbage_takes_nothing_away(files: list[tuple[bytes, bytes, bytes]]) -> None:
    with tempfile.TemporaryDirectory(prefix="gpugrant-garbage-") as root:
        asyncio.run(thrown(Path(root), files))
