"""Durability: power is cut at every single step of the medium, with and without losing what was not synced.

After the reopening every acknowledged write is there, an unacknowledged one is whole or absent, and the manifests say
what the objects say.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gpugrant_operator.apiserver.objects.resources import NAMESPACES
from gpugrant_operator.apiserver.objects.status import ApiError, Obj
from gpugrant_operator.apiserver.registry import Options
from gpugrant_operator.apiserver.settings import Settings
from gpugrant_operator.apiserver.store import manifests
from gpugrant_operator.apiserver.store.disk import TEMPORARY, Disk
from gpugrant_operator.apiserver.store.journal import JOURNAL
from gpugrant_operator.apiserver.store.store import Store
from storestand import Opened, namespace, opened

MERGE = "application/merge-patch+json"


class PowerCutError(Exception):
    """The machine is off."""


@dataclass
class FragileDisk(Disk):
    """A real disk whose power is cut at one step.

    `torn`: half of the step's bytes have arrived. `forgetful`: what was not synced is lost at the cut.
    """

    cut_at: int = -1
    torn: bool = False
    forgetful: bool = False
    steps: int = 0
    dead: bool = False
    _undo: dict[Path, list[Callable[[], None]]] = field(default_factory=dict)
    _synced: dict[int, int] = field(default_factory=dict)

    def _step(self, half: Callable[[], None] | None = None) -> None:
        if self.dead:
            raise PowerCutError
        if self.steps == self.cut_at:
            if self.torn and half is not None:
                half()
            self.dead = True
            if self.forgetful:
                self._forget()
            raise PowerCutError
        self.steps += 1

    def _forget(self) -> None:
        for descriptor, size in self._synced.items():
            os.ftruncate(descriptor, size)
        for undos in self._undo.values():
            for undo in reversed(undos):
                undo()

    def make_dir(self, path: Path) -> None:
        self._step()
        super().make_dir(path)

    def write_temporary(self, folder: Path, data: bytes | Iterable[bytes]) -> Path:
        data = data if isinstance(data, bytes) else b"".join(data)
        self._step(lambda: (folder / f"{TEMPORARY}torn").write_bytes(data[: len(data) // 2]) and None)
        return super().write_temporary(folder, data)

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        old = target.read_bytes() if target.exists() else None
        super().rename(source, target)
        self._undo.setdefault(target.parent, []).append(lambda: _put_back(target, old))

    def unlink(self, path: Path) -> None:
        self._step()
        old = path.read_bytes() if path.exists() else None
        super().unlink(path)
        self._undo.setdefault(path.parent, []).append(lambda: _put_back(path, old))

    def sync_dir(self, folder: Path) -> None:
        self._step()
        super().sync_dir(folder)
        self._undo.pop(folder, None)

    def append(self, descriptor: int, data: bytes) -> None:
        self._synced.setdefault(descriptor, os.fstat(descriptor).st_size)
        self._step(lambda: os.write(descriptor, data[: len(data) // 2]) and None)
        super().append(descriptor, data)

    def sync(self, descriptor: int) -> None:
        self._step()
        super().sync(descriptor)
        self._synced[descriptor] = os.fstat(descriptor).st_size

    def truncate(self, descriptor: int, size: int) -> None:
        self._step()
        super().truncate(descriptor, size)
        self._synced[descriptor] = size


def _put_back(path: Path, data: bytes | None) -> None:
    if data is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(data)


@dataclass
class Ledger:
    """What was acknowledged, and the one write that was under way."""

    acknowledged: dict[str, Obj | None] = field(default_factory=dict)
    attempted: tuple[str, Obj | None] | None = None


Step = tuple[str, str, dict[str, Any]]

WORK: tuple[Step, ...] = (
    ("create", "a", {"size": 1}),
    ("create", "b", {"size": 2}),
    ("status", "a", {"observedGeneration": 1}),
    ("patch", "a", {"spec": {"size": 3}}),
    ("delete", "b", {}),
    ("create", "b", {"size": 4}),
    ("patch", "b", {"metadata": {"finalizers": ["example.com/hold"]}}),
    ("delete", "b", {}),
    ("patch", "b", {"metadata": {"finalizers": None}}),
    ("patch", "a", {"spec": {"size": 5}}),
)


async def work(api: Opened, make_widget: Any, ledger: Ledger) -> None:
    """The steps one after the other; each is acknowledged when its await returns."""
    widgets = api.store.catalog.by_plural("widgets")
    assert widgets is not None
    if api.store.get(NAMESPACES, "", "default") is None:
        await api.registry.create(NAMESPACES, "", namespace(), Options())
    for verb, name, value in WORK:
        before = api.store.head(widgets, "default", name)
        ledger.attempted = (name, _expected(verb, before, value))
        if verb == "create":
            body = make_widget(name, **value)
            done = await api.registry.create(widgets, "default", body, Options())
        elif verb == "delete":
            done = await api.registry.delete(widgets, "default", name, {}, Options())
        else:
            patch = {"status": value} if verb == "status" else value
            done = await api.registry.patch(widgets, "default", name, MERGE, patch, Options(), status=verb == "status")
        ledger.acknowledged[name] = None if done.removed else done.obj
        ledger.attempted = None


def _expected(verb: str, before: Obj | None, value: dict[str, Any]) -> Obj | None:
    """Only what the comparison looks at; None: gone."""
    if verb == "create":
        return {"spec": value, "status": {"observedGeneration": -1}, "metadata": {}}
    assert before is not None
    metadata = before["metadata"]
    if verb == "delete":
        return {**before, "metadata": {**metadata, "deletionTimestamp": "?"}} if metadata.get("finalizers") else None
    if metadata.get("deletionTimestamp") and value.get("metadata") == {"finalizers": None}:
        return None
    if verb == "status":
        return {**before, "status": value}
    return {**before, "spec": {**before["spec"], **value.get("spec", {})}}


def _same(found: Obj | None, wanted: Obj | None) -> bool:
    if found is None or wanted is None:
        return found is wanted
    marked = bool(found["metadata"].get("deletionTimestamp")) == bool(wanted["metadata"].get("deletionTimestamp"))
    return marked and found["spec"]["size"] == wanted["spec"]["size"] and found["status"] == wanted["status"]


async def check(settings: Settings, ledger: Ledger) -> None:
    """Opens the store as the next process would, and compares."""
    async with opened(settings, Disk()) as api:
        widgets = api.store.catalog.by_plural("widgets")
        assert widgets is not None
        await api.sync.scan()
        await api.store.settled()
        for name in ("a", "b"):
            found = api.store.head(widgets, "default", name)
            wanted = [ledger.acknowledged.get(name)]
            if ledger.attempted is not None and ledger.attempted[0] == name:
                wanted.append(ledger.attempted[1])
            assert any(_same(found, candidate) for candidate in wanted), (name, found, wanted)
            path = settings.layout.manifests / f"objects/widgets/default/{name}.yaml"
            if found is None or found["metadata"].get("deletionTimestamp"):
                assert not path.exists()
            else:
                assert path.read_bytes() == manifests.dump(manifests.desired(found))
            acknowledged = ledger.acknowledged.get(name)
            if found is not None and acknowledged is not None:
                assert int(found["metadata"]["resourceVersion"]) >= int(acknowledged["metadata"]["resourceVersion"])
        # The store takes writes again, and versions go on rising.
        top = api.store.version
        made = await api.registry.create(NAMESPACES, "", namespace("n"), Options())
        assert int(made.obj["metadata"]["resourceVersion"]) > top
        assert api.sync.problems == {}


async def steps_of(settings: Settings, make_widget: Any) -> int:
    disk = FragileDisk()
    async with opened(settings, disk) as api:
        await work(api, make_widget, Ledger())
    return disk.steps


@pytest.mark.req("D1")
@pytest.mark.parametrize("compact_bytes", [10**9, 1], ids=["journal", "snapshot after each batch"])
@pytest.mark.parametrize(
    ("torn", "forgetful"),
    [
        pytest.param(False, False, id="all bytes arrived"),
        pytest.param(True, False, id="half of the last bytes arrived"),
        pytest.param(False, True, id="what was not synced is lost"),
    ],
)
async def test_power_may_fail_at_every_step(
    settings: Settings, tmp_path: Path, make_widget: Any, torn: bool, forgetful: bool, compact_bytes: int
) -> None:
    base = replace(settings, compact_bytes=compact_bytes)
    steps = await steps_of(replace(base, root=tmp_path / "count"), make_widget)
    assert steps > 50
    for cut_at in range(steps):
        here = replace(base, root=tmp_path / str(cut_at))
        ledger = Ledger()
        disk = FragileDisk(cut_at=cut_at, torn=torn, forgetful=forgetful)
        try:
            async with asyncio.timeout(10), opened(here, disk) as api:
                working = asyncio.create_task(work(api, make_widget, ledger))
                await asyncio.wait({working, api.running}, return_when=asyncio.FIRST_COMPLETED)
                working.cancel()
                await asyncio.wait({working})
        except PowerCutError:
            pass
        await check(here, ledger)


@dataclass
class FullDisk(Disk):
    """A disk that is full (or fails to sync) while `broken` names the operation."""

    broken: str = ""
    code: int = errno.ENOSPC

    def _maybe(self, name: str) -> None:
        if name in self.broken.split():
            code = errno.EIO if name == "sync" else self.code
            raise OSError(code, os.strerror(code))

    def write_temporary(self, folder: Path, data: bytes | Iterable[bytes]) -> Path:
        self._maybe("write")
        return super().write_temporary(folder, data)

    def append(self, descriptor: int, data: bytes) -> None:
        if "append" in self.broken.split():
            os.write(descriptor, data[:10])
        self._maybe("append")
        super().append(descriptor, data)

    def sync(self, descriptor: int) -> None:
        self._maybe("sync")
        super().sync(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        self._maybe("truncate")
        super().truncate(descriptor, size)

    def rename(self, source: Path, target: Path) -> None:
        if target.suffix == ".yaml":
            self._maybe("rename")
        super().rename(source, target)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("broken", ["write", "append"])
async def test_a_disk_that_takes_no_writes_refuses_and_recovers(
    settings: Settings, make_widget: Any, broken: str, code: int
) -> None:
    disk = FullDisk(code=code)
    async with opened(settings, disk) as api:
        widgets = api.store.catalog.by_plural("widgets")
        assert widgets is not None
        await api.registry.create(NAMESPACES, "", namespace(), Options())
        await api.registry.create(widgets, "default", make_widget("a"), Options())
        disk.broken = broken
        with pytest.raises(ApiError, match=os.strerror(code)) as refused:
            await api.registry.patch(widgets, "default", "a", MERGE, {"spec": {"size": 9}}, Options())
        assert (refused.value.code, refused.value.reason) == (507, "InsufficientStorage")
        assert api.store.head(widgets, "default", "a") == _obj(api.store, "a")
        assert _obj(api.store, "a")["spec"]["size"] == 3
        disk.broken = ""
        await api.registry.patch(widgets, "default", "a", MERGE, {"spec": {"size": 4}}, Options())
        assert api.store.failure == ""
        assert not list(settings.layout.manifests.rglob(f"{TEMPORARY}*"))
    async with opened(settings, Disk()) as api:
        assert _obj(api.store, "a")["spec"]["size"] == 4


def _obj(store: Store, name: str) -> Obj:
    widgets = store.catalog.by_plural("widgets")
    assert widgets is not None
    stored = store.get(widgets, "default", name)
    assert stored is not None
    return stored.obj


@pytest.mark.parametrize("broken", ["sync", "append truncate", "sync write", "append truncate write"])
async def test_a_log_whose_end_is_unknown_is_replaced_before_anything_more_is_written(
    settings: Settings, eventually: Any, broken: str
) -> None:
    disk = FullDisk()
    async with opened(settings, disk, probe=0.05) as api:
        await api.registry.create(NAMESPACES, "", namespace(), Options())
        disk.broken = broken
        with pytest.raises(ApiError) as refused:
            await api.registry.create(NAMESPACES, "", namespace("x"), Options())
        assert refused.value.code == 507
        if "write" in broken.split():  # a probe can't mend it as long as the medium takes nothing
            with pytest.raises(ApiError, match="the change is not stored"):
                await api.registry.create(NAMESPACES, "", namespace("y"), Options())
        assert api.store.get(NAMESPACES, "", "default") is not None
        version = api.store.version
        disk.broken = ""
        await eventually(lambda: not api.store.failure)
        made = await api.registry.create(NAMESPACES, "", namespace("z"), Options())
        assert int(made.obj["metadata"]["resourceVersion"]) > version
    async with opened(settings, Disk()) as api:
        names = {obj["metadata"]["name"] for obj in api.store.head_list(NAMESPACES)}
        assert names == {"default", "z"}
        assert not list(settings.layout.state.rglob(f"{TEMPORARY}*"))


async def test_what_was_not_foreseen_ends_one_batch_and_not_the_store(settings: Settings, eventually: Any) -> None:
    class OddDisk(Disk):
        odd = False

        def append(self, descriptor: int, data: bytes) -> None:
            if self.odd:
                raise RuntimeError("odd")
            super().append(descriptor, data)

    disk = OddDisk()
    async with opened(settings, disk, probe=0.05) as api:
        await api.registry.create(NAMESPACES, "", namespace(), Options())
        disk.odd = True
        with pytest.raises(ApiError, match="RuntimeError: odd"):
            await api.registry.create(NAMESPACES, "", namespace("x"), Options())
        disk.odd = False
        await eventually(lambda: not api.store.failure)
        await api.registry.create(NAMESPACES, "", namespace("y"), Options())
        assert {obj["metadata"]["name"] for obj in api.store.head_list(NAMESPACES)} == {"default", "y"}


async def test_a_text_that_is_none_is_refused_and_leaves_the_store_whole(settings: Settings) -> None:
    async with opened(settings, Disk()) as api:
        body = namespace()
        body["metadata"]["annotations"] = {"a": "\udcff"}
        with pytest.raises(ApiError) as refused:
            await api.registry.create(NAMESPACES, "", body, Options())
        assert refused.value.code == 400
        await api.registry.create(NAMESPACES, "", namespace(), Options())


async def test_a_late_manifest_outlives_a_journal_that_is_replaced(
    settings: Settings, make_widget: Any, eventually: Any
) -> None:
    disk = FullDisk()
    async with opened(settings, disk, probe=0.05) as api:
        widgets = api.store.catalog.by_plural("widgets")
        assert widgets is not None
        await api.registry.create(NAMESPACES, "", namespace(), Options())
        disk.broken = "rename"
        await api.registry.create(widgets, "default", make_widget("a"), Options())
        disk.broken = "rename sync"
        with pytest.raises(ApiError):
            await api.registry.create(NAMESPACES, "", namespace("x"), Options())
        disk.broken = "rename"
        await eventually(lambda: not api.store.failure)
        assert list(api.store.late) == [(widgets.id, "default", "a")]
    async with opened(settings, Disk()) as api:
        await api.sync.scan()
        path = settings.layout.manifests / "objects/widgets/default/a.yaml"
        assert path.read_bytes() == manifests.dump(manifests.desired(_obj(api.store, "a")))


async def test_a_manifest_that_could_not_be_put_in_place_follows(settings: Settings, make_widget: Any) -> None:
    disk = FullDisk()
    async with opened(settings, disk) as api:
        widgets = api.store.catalog.by_plural("widgets")
        assert widgets is not None
        await api.registry.create(NAMESPACES, "", namespace(), Options())
        disk.broken = "rename"
        await api.registry.create(widgets, "default", make_widget("a"), Options())
        path = settings.layout.manifests / "objects/widgets/default/a.yaml"
        assert not path.exists()
        await api.sync.scan()
        assert _obj(api.store, "a")["spec"]["size"] == 3
        disk.broken = ""
        await api.sync.scan()
        assert path.read_bytes() == manifests.dump(manifests.desired(_obj(api.store, "a")))
        assert api.store.late == {}


async def test_a_late_manifest_follows_after_a_restart_too(settings: Settings, make_widget: Any) -> None:
    disk = FullDisk(broken="rename")
    async with opened(settings, disk) as api:
        widgets = api.store.catalog.by_plural("widgets")
        assert widgets is not None
        await api.registry.create(NAMESPACES, "", namespace(), Options())
        await api.registry.create(widgets, "default", make_widget("a"), Options())
        await api.registry.create(widgets, "default", make_widget("b"), Options())
    async with opened(settings, Disk()) as api:
        for name in ("a", "b"):
            path = settings.layout.manifests / f"objects/widgets/default/{name}.yaml"
            assert path.read_bytes() == manifests.dump(manifests.desired(_obj(api.store, name)))


async def test_readers_see_a_change_only_when_it_is_durable(settings: Settings, make_widget: Any) -> None:
    async with opened(settings, Disk()) as api:
        widgets = api.store.catalog.by_plural("widgets")
        assert widgets is not None
        await api.registry.create(NAMESPACES, "", namespace(), Options())
        seen: list[str] = []
        api.store.history.subscribe(lambda event: seen.append(event.key[2]))
        task = asyncio.create_task(api.registry.create(widgets, "default", make_widget("a"), Options()))
        await asyncio.sleep(0)
        assert api.store.head(widgets, "default", "a") is not None
        assert api.store.get(widgets, "default", "a") is None
        assert seen == []
        await task
        assert api.store.get(widgets, "default", "a") is not None
        assert seen == ["a"]
        assert b'"a"' in (settings.layout.store / JOURNAL).read_bytes()


async def test_the_snapshot_keeps_the_journal_short(settings: Settings, make_widget: Any) -> None:
    small = replace(settings, compact_bytes=20_000)
    async with opened(small, Disk()) as api:
        widgets = api.store.catalog.by_plural("widgets")
        assert widgets is not None
        await api.registry.create(NAMESPACES, "", namespace(), Options())
        await api.registry.create(widgets, "default", make_widget("a"), Options())
        for number in range(200):
            status = {"status": {"observedGeneration": number}}
            await api.registry.patch(widgets, "default", "a", MERGE, status, Options(), status=True)
        assert (settings.layout.store / JOURNAL).stat().st_size < 25_000
        version = api.store.version
    async with opened(small, Disk()) as api:
        assert _obj(api.store, "a")["status"]["observedGeneration"] == 199
        assert api.store.version == version


async def test_a_restoring_of_manifests_that_is_cut_deletes_nothing(
    settings: Settings, tmp_path: Path, make_widget: Any
) -> None:
    for cut_at in range(40):
        here = replace(settings, root=tmp_path / str(cut_at))
        paths = [here.layout.manifests / f"objects/widgets/default/{name}.yaml" for name in ("a", "b")]
        async with opened(here, Disk()) as api:
            widgets = api.store.catalog.by_plural("widgets")
            assert widgets is not None
            await api.registry.create(NAMESPACES, "", namespace(), Options())
            for name in ("a", "b"):
                await api.registry.create(widgets, "default", make_widget(name), Options())
        shutil.rmtree(here.layout.manifests)
        disk = FragileDisk(cut_at=cut_at, forgetful=True)
        with contextlib.suppress(PowerCutError):
            async with opened(here, disk) as api:
                await api.sync.scan()
        async with opened(here, Disk()) as api:
            await api.sync.scan()
            assert [_obj(api.store, name)["spec"]["size"] for name in ("a", "b")] == [3, 3]
            assert all(path.exists() for path in paths)
            assert api.sync.problems == {}
        if not disk.dead:
            return
    raise AssertionError("the restoring has more steps than were cut")
