"""A medium that is full or limited: writes are refused with a Status, reads go on, and it mends itself."""

from __future__ import annotations

import contextlib
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpugrant_operator.apiserver.store import manifests
from gpugrant_operator.apiserver.store.disk import TEMPORARY
from gpugrant_operator.apiserver.store.journal import JOURNAL

WIDGETS = "/apis/test.example.com/v1/namespaces/default/widgets"
SIZE = 1 << 20


@pytest.fixture
def small(settings: Any) -> Iterator[Path]:
    """The state of a server on a filesystem of its own, of one MiB."""
    folder: Path = settings.layout.state
    folder.mkdir(parents=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "gpugrant-test", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no mount here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """All room but a few pages is taken, then all of it."""
    ballast = folder / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as written:
        while written.write(b"x" * 4096):
            pass
    assert shutil.disk_usage(folder).free == 0
    yield
    ballast.unlink()


@contextmanager
def limited(folder: Path) -> Iterator[None]:
    """No file of this process grows beyond what the journal has, and a bit: the next line is cut in its middle."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((folder / "state" / JOURNAL).stat().st_size + 100, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


Trouble = Callable[[Path], AbstractContextManager[None]]


@pytest.mark.real
@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        pytest.param(full, "No space left on device", id="full"),
        pytest.param(limited, "File too large", id="a limit of the file's size"),
    ],
)
async def test_writes_are_refused_and_work_again_without_a_restart(
    serve: Any, small: Path, make_widget: Any, eventually: Any, trouble: Trouble, told: str
) -> None:
    async with serve() as api:
        assert (await api.client.post(WIDGETS, make_widget("a", size=3))).code == 201
        with trouble(small):
            for answer in (
                await api.client.post(WIDGETS, make_widget("b")),
                await api.client.merge(f"{WIDGETS}/a", {"spec": {"size": 4}}),
            ):
                assert (answer.code, answer.body["kind"], answer.body["reason"]) == (
                    507,
                    "Status",
                    "InsufficientStorage",
                )
                assert told in answer.message
            names = [item["metadata"]["name"] for item in (await api.client.get(WIDGETS)).body["items"]]
            assert names == ["a"]
            assert (await api.client.get(f"{WIDGETS}/a")).body["spec"]["size"] == 3
            assert api.server.why_not_ready()
        await eventually(lambda: not api.server.why_not_ready(), 30)
        assert (await api.client.post(WIDGETS, make_widget("c"))).code == 201
        assert (await api.client.merge(f"{WIDGETS}/a", {"spec": {"size": 5}})).code == 200
        assert not list(small.rglob(f"{TEMPORARY}*"))
    async with serve() as api:
        items = (await api.client.get(WIDGETS)).body["items"]
        assert [(item["metadata"]["name"], item["spec"]["size"]) for item in items] == [("a", 5), ("c", 3)]
        folder = small / "manifests" / manifests.OBJECTS / "widgets/default"
        assert {path.name for path in folder.iterdir()} == {"a.yaml", "c.yaml"}


@pytest.mark.real
async def test_a_server_starts_and_is_read_on_a_full_medium(serve: Any, small: Path, make_widget: Any) -> None:
    async with serve() as api:
        assert (await api.client.post(WIDGETS, make_widget("a"))).code == 201
    with full(small):
        async with serve() as api:
            assert (await api.client.get(f"{WIDGETS}/a")).code == 200
            assert (await api.client.post(WIDGETS, make_widget("b"))).code == 507
    async with serve() as api:
        assert (await api.client.post(WIDGETS, make_widget("b"))).code == 201
