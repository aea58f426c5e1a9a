"""`gpugrant store backup|restore|verify`: a moment of the store in one file, and back, whatever happened since."""

from __future__ import annotations

import asyncio
import contextlib
import io
import tarfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from gpugrant_crds import schema
from gpugrant_operator.apiserver.objects.resources import NAMESPACES, catalog
from gpugrant_operator.apiserver.registry import Options
from gpugrant_operator.apiserver.settings import Settings
from gpugrant_operator.apiserver.store import backup, manifests, restore
from gpugrant_operator.apiserver.store.disk import Disk
from gpugrant_operator.apiserver.store.journal import JOURNAL, SNAPSHOT, Contents, Record, line, snapshot
from gpugrant_operator.cli.gpugrant import cli
from storestand import Opened, namespace, opened

GRANTS = "/apis/gpu.rediacc.io/v1alpha1/namespaces/default/repogpugrants"


def grant(name: str, repo: str = "r") -> dict[str, Any]:
    return {
        "apiVersion": "gpu.rediacc.io/v1alpha1",
        "kind": "RepoGpuGrant",
        "metadata": {"name": name},
        "spec": {"machine": "m1", "repo": repo, "device": "nvidia.com/gpu=all"},
    }


@pytest.fixture
def bare(settings: Settings) -> Settings:
    """With our own kinds only, as the commands have them."""
    return replace(settings, crds=schema.crds(), admission=False)


def store(root: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["store", *words, "--root", str(root)])


async def put(api: Opened, *names: str) -> None:
    grants = api.store.catalog.by_plural("repogpugrants")
    assert grants is not None
    if api.store.get(NAMESPACES, "", "default") is None:
        await api.registry.create(NAMESPACES, "", namespace(), Options())
    for name in names:
        await api.registry.create(grants, "default", grant(name), Options())


async def names_of(settings: Settings) -> dict[str, int]:
    """The grants of a store as the next server would find them, with their versions; every manifest is in place."""
    async with opened(settings, Disk()) as api:
        await api.sync.scan()
        await api.store.settled()
        assert api.sync.problems == {}
        grants = api.store.catalog.by_plural("repogpugrants")
        assert grants is not None
        found = {
            obj["metadata"]["name"]: int(obj["metadata"]["resourceVersion"]) for obj in api.store.head_list(grants)
        }
        folder = settings.layout.manifests / "objects/repogpugrants/default"
        assert {path.stem for path in folder.glob("*.yaml")} == set(found)
    return found


@pytest.mark.req("D1")
async def test_what_is_restored_is_what_was_backed_up_under_versions_that_nobody_saw(bare: Settings) -> None:
    file = bare.root / "b.tar"
    async with opened(bare, Disk()) as api:
        await put(api, "a", "b", "c")
    commented = bare.layout.manifests / "objects/repogpugrants/default/c.yaml"
    commented.write_bytes(b"# why c has it\n" + commented.read_bytes())
    async with opened(bare, Disk()) as api:
        await api.sync.scan()
        assert store(bare.root, "backup", str(file)).exit_code == 0
        uids = {obj["metadata"]["uid"] for obj in api.store.head_list(NAMESPACES)}
        grants = api.store.catalog.by_plural("repogpugrants")
        assert grants is not None
        await api.registry.delete(grants, "default", "b", {}, Options())
        await put(api, "d")
        seen = api.store.version
    commented.write_text("garbage: [")
    assert file.stat().st_mode & 0o777 == 0o600
    done = store(bare.root, "restore", str(file))
    assert done.exit_code == 0, done.output
    assert store(bare.root, "verify").exit_code == 0
    found = await names_of(bare)
    assert set(found) == {"a", "b", "c"}
    assert min(found.values()) > seen
    assert commented.read_text().startswith("# why c has it\n")
    async with opened(bare, Disk()) as api:
        assert {obj["metadata"]["uid"] for obj in api.store.head_list(NAMESPACES)} == uids
    (kept,) = bare.layout.state.glob("replaced-*")
    assert str(kept) in done.output
    assert (kept / "objects/repogpugrants/default/c.yaml").read_text() == "garbage: ["
    assert (kept / "objects/repogpugrants/default/d.yaml").exists()
    assert {SNAPSHOT, JOURNAL} <= {path.name for path in kept.iterdir()}


async def test_a_restored_store_is_the_same_after_a_second_restore_and_its_versions_rise(bare: Settings) -> None:
    file = bare.root / "b.tar"
    async with opened(bare, Disk()) as api:
        await put(api, "a")
    store(bare.root, "backup", str(file))
    before: dict[str, int] = {}
    for _ in range(3):
        assert store(bare.root, "restore", str(file)).exit_code == 0
        found = await names_of(bare)
        assert set(found) == {"a"}
        assert found["a"] > before.get("a", 0)
        before = found
    assert len(list(bare.layout.state.glob("replaced-*"))) == 3


@pytest.mark.parametrize("lost", ["all", "snapshot.jsonl", "a damaged journal", "an empty machine"])
async def test_a_backup_replaces_a_store_that_cannot_be_opened(bare: Settings, tmp_path: Path, lost: str) -> None:
    file = tmp_path / "b.tar"
    async with opened(bare, Disk()) as api:
        await put(api, "a", "b")
        seen = api.store.version
    assert store(bare.root, "backup", str(file)).exit_code == 0
    state = bare.layout.store
    if lost == "a damaged journal":
        data = (state / JOURNAL).read_bytes()
        (state / JOURNAL).write_bytes(b"x" * 30 + b"\n" + data)
        verified = store(bare.root, "verify")
        assert (verified.exit_code, "gpugrant store restore FILE" in verified.output) == (1, True)
        assert "damaged" in store(bare.root, "backup", str(tmp_path / "other.tar")).output
    elif lost == "an empty machine":
        bare = replace(bare, root=tmp_path / "other")
    else:
        for path in state.iterdir():
            if lost in ("all", path.name):
                path.unlink()
    assert store(bare.root, "restore", str(file)).exit_code == 0
    found = await names_of(bare)
    assert set(found) == {"a", "b"}
    assert min(found.values()) > seen


@pytest.mark.real
async def test_beside_a_running_server_a_backup_is_whole_and_a_restore_is_refused(
    serve: Any, bare: Settings, tmp_path: Path
) -> None:
    file, made = tmp_path / "b.tar", []
    async with serve(crds=bare.crds, admission=False, compact_bytes=20_000) as api:
        stop = asyncio.Event()

        async def write() -> None:
            number = 0
            while not stop.is_set():
                answer = await api.client.post(GRANTS, grant(f"g{number}"))
                assert answer.code == 201, answer.body
                made.append(f"g{number}")
                number += 1

        writing = asyncio.create_task(write())
        for _ in range(12):
            before = list(made)
            done = await asyncio.to_thread(store, bare.root, "backup", str(file))
            assert done.exit_code == 0, done.output
            found = backup.unpack(file.read_bytes(), catalog(bare.crds)).contents
            held = {key[2] for key in found.records if key[0].startswith("repogpugrants")}
            assert set(before) <= held
            # of one writer, who waits for each answer, a moment has all writes up to one of them
            assert held == {f"g{number}" for number in range(len(held))}
        refused = await asyncio.to_thread(store, bare.root, "restore", str(file))
        assert (refused.exit_code, "stop it first (gpugrant down)" in refused.output) == (1, True)
        stop.set()
        await writing
        assert (await asyncio.to_thread(store, bare.root, "verify")).exit_code == 0
        versions = (await api.client.get(GRANTS)).body["metadata"]["resourceVersion"]
    assert store(bare.root, "restore", str(file)).exit_code == 0
    async with (
        serve(crds=bare.crds, admission=False) as api,
        api.client.watch(f"{GRANTS}?watch=1&resourceVersion={versions}") as lines,
    ):
        told = await lines.next()
        assert (told["type"], told["object"]["code"]) == ("ERROR", 410)
        assert len((await api.client.get(GRANTS)).body["items"]) == len(held)
        old = {**grant("g0"), "metadata": {"name": "g0", "resourceVersion": versions}}
        assert (await api.client.put(f"{GRANTS}/g0", old)).code == 409


async def test_a_restore_that_is_cut_is_all_or_nothing_and_can_be_done_again(bare: Settings, tmp_path: Path) -> None:
    class CutError(Exception):
        pass

    class CutDisk(Disk):
        steps = 0
        cut_at = -1

        def _step(self) -> None:
            if self.steps == self.cut_at:
                raise CutError
            self.steps += 1

        def write_temporary(self, folder: Path, data: bytes | Iterable[bytes]) -> Path:
            self._step()
            return super().write_temporary(folder, data)

        def rename(self, source: Path, target: Path) -> None:
            self._step()
            super().rename(source, target)

        def unlink(self, path: Path) -> None:
            self._step()
            super().unlink(path)

        def append(self, descriptor: int, data: bytes) -> None:
            self._step()
            super().append(descriptor, data)

    file = tmp_path / "b.tar"
    async with opened(bare, Disk()) as api:
        await put(api, "a", "b")
    store(bare.root, "backup", str(file))
    found = backup.unpack(file.read_bytes(), catalog(bare.crds))
    for cut_at in range(40):
        here = replace(bare, root=tmp_path / str(cut_at))
        async with opened(here, Disk()) as api:
            await put(api, "b", "x", "y")
        disk = CutDisk()
        disk.cut_at = cut_at
        place = restore.Place(here.layout.store, here.layout.manifests, here.layout.state / "replaced")
        with contextlib.suppress(CutError):
            restore.restore(found, place, catalog(bare.crds), disk)
        assert set(await names_of(here)) in ({"a", "b"}, {"b", "x", "y"})
        assert store(here.root, "restore", str(file)).exit_code == 0
        assert set(await names_of(here)) == {"a", "b"}
        if disk.steps < cut_at:
            return
    raise AssertionError("the restore has more steps than were cut")


async def _packed(settings: Settings) -> bytes:
    async with opened(settings, Disk()) as api:
        await put(api, "a", "b")
        machines = api.store.catalog.by_plural("gpumachines")
        assert machines is not None
        machine = {"apiVersion": machines.api_version, "kind": "GpuMachine", "metadata": {"name": "m"}, "spec": {}}
        await api.registry.create(machines, "", machine, Options())
    assert store(settings.root, "backup", str(settings.root / "b.tar")).exit_code == 0
    return (settings.root / "b.tar").read_bytes()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param(lambda data: b"", "no tar file", id="empty"),
        pytest.param(lambda data: b"garbage" * 100, "no tar file", id="garbage"),
        pytest.param(lambda data: data.replace(b"nvidia.com", b"nvidia.org"), "is damaged", id="a changed object"),
        pytest.param(lambda data: data.replace(b'{"format":1,"s', b'{"format":7,"s'), "damaged", id="the index"),
        pytest.param(
            lambda data: _without(data, "manifests/objects/gpumachines/_cluster/m.yaml"), "missing", id="a part"
        ),
        pytest.param(lambda data: _without(data, "index"), "no backup", id="another tar"),
    ],
)
async def test_a_file_that_is_no_whole_backup_changes_nothing(
    bare: Settings, tmp_path: Path, change: Any, told: str
) -> None:
    file = tmp_path / "bad.tar"
    file.write_bytes(change(await _packed(bare)))
    before = {path: path.read_bytes() for path in bare.layout.state.rglob("*.*") if path.is_file()}
    done = store(bare.root, "restore", str(file))
    assert (done.exit_code, told in done.output) == (1, True), done.output
    assert {path: path.read_bytes() for path in bare.layout.state.rglob("*.*") if path.is_file()} == before


def _without(data: bytes, name: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(data)) as old, tarfile.open(fileobj=packed, mode="w") as new:
        for member in old.getmembers():
            if member.name != name:
                new.addfile(member, old.extractfile(member))
    return packed.getvalue()


@given(data=st.data())
@hypothesis_settings(max_examples=60, deadline=None)
def test_any_damage_of_a_backup_is_told_or_harmless(data: st.DataObject) -> None:
    records = {("namespaces", "", "n"): Record(("namespaces", "", "n"), {**namespace("n")}, 7)}
    kinds = catalog(schema.crds())
    good = backup.pack(Contents("id", "now", 9, records), Path("/nowhere"), kinds, "now")
    at = data.draw(st.integers(0, len(good) - 1))
    bad = good[:at] + data.draw(st.binary(max_size=3)) + good[at + data.draw(st.integers(0, 600)) :]
    try:
        found = backup.unpack(bad, kinds)
    except backup.BadBackup:
        return
    assert found.contents.version == 9
    assert list(found.contents.records) == [("namespaces", "", "n")]


async def test_verify_names_each_fault_and_what_to_do(bare: Settings) -> None:
    assert "there is no store here" in store(bare.root, "verify").output
    async with opened(bare, Disk()) as api:
        await put(api, "a", "b", "c", "d")
    sound = store(bare.root, "verify")
    assert (sound.exit_code, "is sound: 5 objects" in sound.output) == (0, True), sound.output
    folder = bare.layout.manifests / "objects/repogpugrants/default"
    (folder / "a.yaml").write_text("a: [")
    (folder / "b.yaml").unlink()
    (folder / "c.yaml").write_text((folder / "c.yaml").read_text().replace("repo: r", "repo: s"))
    (folder / "z.yml").write_text("x")
    (folder / ".tmp-1").write_text("x")
    told = store(bare.root, "verify")
    assert told.exit_code == 1
    assert [line.partition(": ")[0].rpartition("/")[2] for line in told.output.splitlines() if line[0] == "/"] == [
        ".tmp-1",
        "a.yaml",
        "c.yaml",
        "z.yml",
        "b.yaml",
    ]
    assert told.output.count("\n  do: ") == 5


async def test_verify_reads_only_and_a_torn_end_is_no_fault(bare: Settings) -> None:
    async with opened(bare, Disk()) as api:
        await put(api, "a")
    journal = bare.layout.store / JOURNAL
    with journal.open("ab") as end:
        end.write(b"1234")
    before = journal.read_bytes()
    told = store(bare.root, "verify")
    assert (told.exit_code, "4 bytes was never acknowledged" in told.output) == (0, True), told.output
    assert journal.read_bytes() == before


async def test_a_format_of_the_future_is_refused_by_all(bare: Settings) -> None:
    async with opened(bare, Disk()) as api:
        await put(api, "a")
    (bare.layout.store / SNAPSHOT).write_bytes(line({"format": 2, "whatever": True}))
    for words in (("verify",), ("backup", str(bare.root / "x.tar"))):
        told = store(bare.root, *words)
        assert told.exit_code == 1
        assert "has format 2, and this version reads 1" in told.output
        assert "use the version that wrote it" in told.output


async def test_names_as_long_as_kubernetes_has_them_are_stored_backed_up_and_restored(bare: Settings) -> None:
    long = ".".join(["n" * 60] * 4) + ".nnnnnnnnn"
    assert len(long) == 253
    async with opened(bare, Disk()) as api:
        await put(api, long[:229], long[:230], long[:231], long)
        assert api.store.late == {}
    async with opened(bare, Disk()) as api:
        await api.sync.scan()
        assert api.sync.problems == {}
        grants = api.store.catalog.by_plural("repogpugrants")
        assert grants is not None
        path = manifests.place(bare.layout.manifests, grants, (grants.id, "default", long))
        text = path.read_text()
        path.write_text("a: [")
        await api.sync.scan()
        assert list(api.sync.problems) == [path]
        path.write_text("# a comment\n" + text)
        await api.sync.scan()
        assert api.sync.problems == {}
    assert store(bare.root, "backup", str(bare.root / "b.tar")).exit_code == 0
    path.unlink()
    assert store(bare.root, "restore", str(bare.root / "b.tar")).exit_code == 0
    assert path.exists()
    assert store(bare.root, "verify").exit_code == 0


async def test_verify_names_faults_of_objects(bare: Settings) -> None:
    async with opened(bare, Disk()) as api:
        await put(api, "a", "b", "c")
        contents = api.store.contents()
    records = {key[2]: record for key, record in contents.records.items()}
    lost = records.pop("default")
    spec = {**records["a"].obj["spec"], "device": 7}  # type: ignore[index]
    records["a"] = replace(records["a"], obj={**(records["a"].obj or {}), "spec": spec})
    twin = {**(records["c"].obj or {})["metadata"], "uid": (records["b"].obj or {})["metadata"]["uid"]}
    records["c"] = replace(records["c"], obj={**(records["c"].obj or {}), "metadata": twin})
    odd = Record(("gadgets.example.com", "", "g"), {"metadata": {"name": "g"}}, 3)
    contents.records = {record.key: record for record in (*records.values(), odd)}
    (bare.layout.store / JOURNAL).unlink()
    (bare.layout.store / SNAPSHOT).write_bytes(b"".join(snapshot(contents, 9)))
    told = store(bare.root, "verify")
    assert told.exit_code == 1
    for said in (
        "spec.device: Invalid value",
        "it has the uid of repogpugrants.gpu.rediacc.io/default/b",
        "this version serves no such kind",
        "its namespace default is not stored",
    ):
        assert said in told.output, told.output
    assert lost.file is not None
