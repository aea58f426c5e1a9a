"""Lines reach their place whole, whatever the place does, and never keep the gate waiting."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpugrant_gate.net.outlet import AppendedFile, Outlet, Stream


class Time:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def line(number: int, size: int = 100) -> bytes:
    return json.dumps({"n": number, "fill": "x" * size}).encode() + b"\n"


def numbers(data: bytes) -> list[int]:
    """Fails when a line is torn."""
    return [json.loads(text)["n"] for text in data.splitlines()]


def test_a_file_is_made_and_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for number in range(2):
        outlet = Outlet(AppendedFile(path), Time())
        outlet.put(line(number))
        outlet.close()
    assert numbers(path.read_bytes()) == [0, 1]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("how", ["renamed", "removed"])
def test_a_file_that_was_put_aside_is_opened_anew(tmp_path: Path, how: str) -> None:
    path, aside = tmp_path / "audit.log", tmp_path / "audit.log.1"
    outlet = Outlet(AppendedFile(path), Time())
    outlet.put(line(0))
    path.rename(aside) if how == "renamed" else path.unlink()
    outlet.put(line(1))
    assert numbers(path.read_bytes()) == [1]
    assert how == "removed" or numbers(aside.read_bytes()) == [0]
    outlet.close()


def test_a_file_that_was_cut_goes_on_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    outlet = Outlet(AppendedFile(path), Time())
    outlet.put(line(0))
    os.truncate(path, 0)
    outlet.put(line(1))
    assert numbers(path.read_bytes()) == [1]
    outlet.close()


FULL = """
import resource, sys, json
from pathlib import Path
from gpugrant_gate.net.outlet import AppendedFile, Outlet
now = [0.0]
outlet = Outlet(AppendedFile(Path(sys.argv[1])), lambda: now[0])
line = lambda number: json.dumps({"n": number, "fill": "x" * 100}).encode() + b"\\n"
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
outlet.put(b"".join(map(line, range(20))))
assert outlet.waiting and "can't be written" in outlet.trouble, outlet.trouble
for number in range(20, 20000):
    outlet.put(line(number))
assert outlet.lost > 0
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
now[0] += 10
outlet.flush()
assert (outlet.waiting, outlet.trouble) == (False, ""), outlet.trouble
print(outlet.lost)
"""


def test_a_full_disk_costs_the_last_lines_and_tears_none(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    done = subprocess.run([sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kept = numbers(path.read_bytes())
    assert kept == list(range(len(kept)))
    assert len(kept) + int(done.stdout) == 20_000


@pytest.mark.parametrize("what", ["folder", "nowhere", "fifo"])
def test_a_place_that_can_not_be_written_is_named(tmp_path: Path, what: str) -> None:
    path = tmp_path / "audit.log"
    if what == "folder":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    else:
        path = tmp_path / "none/audit.log"
    outlet = Outlet(AppendedFile(path), Time())
    outlet.put(line(0))
    assert str(path) in outlet.trouble
    outlet.close()
    assert outlet.lost == 1


def test_several_processes_append_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"

    def write(first: int) -> None:
        outlet = Outlet(AppendedFile(path), Time())
        for number in range(first, first + 200):
            outlet.put(line(number, size=3000))
        while outlet.waiting:
            outlet.flush()
        outlet.close()

    threads = [threading.Thread(target=write, args=(first,)) for first in (0, 1000, 2000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = numbers(path.read_bytes())
    assert sorted(found) == [*range(200), *range(1000, 1200), *range(2000, 2200)]


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_a_reader_that_is_too_slow_loses_lines_and_stops_nobody(kind: str) -> None:
    if kind == "pipe":
        reading, writing = os.pipe()
    else:
        ours, theirs = socket.socketpair()
        reading, writing = ours.detach(), theirs.detach()
    outlet = Outlet(Stream(writing, "standard error"), Time())
    os.close(writing)
    for number in range(20_000):
        outlet.put(line(number))
    assert outlet.lost > 0
    assert "standard error is not read" in outlet.trouble
    os.set_blocking(reading, False)
    data = b""
    while outlet.waiting:
        data += os.read(reading, 1 << 20)
        outlet.flush()
    outlet.close()
    while piece := os.read(reading, 1 << 20):
        data += piece
    os.close(reading)
    kept = numbers(data)
    assert len(kept) + outlet.lost == 20_000
    assert kept == sorted(kept)


def test_a_pipe_without_a_reader_is_no_end() -> None:
    reading, writing = os.pipe()
    outlet = Outlet(Stream(writing, "standard error"), Time())
    os.close(reading)
    outlet.put(line(0))
    assert "broken pipe" in outlet.trouble
    outlet.close()
    os.close(writing)


def test_a_file_that_a_shell_redirected_to_is_written_after_what_others_wrote(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb", buffering=0) as file:
        file.write(line(0))
        outlet = Outlet(Stream(file.fileno(), "standard error"), Time())
        outlet.put(line(1))
        file.write(line(2))
        outlet.put(line(3))
        outlet.close()
    assert numbers((tmp_path / "log").read_bytes()) == [0, 1, 2, 3]


def test_what_is_said_after_the_end_goes_to_no_other_file(tmp_path: Path) -> None:
    said, other = tmp_path / "said", tmp_path / "other"
    with said.open("wb") as file:
        outlet = Outlet(Stream(file.fileno(), "standard error"), Time())
    outlet.put(b"before\n")
    outlet.close()
    with other.open("wb"):  # it has the number that the outlet had
        outlet.put(b"after\n")
        outlet.close()
    assert said.read_bytes() == b"before\n"
    assert other.read_bytes() == b""
    assert outlet.lost == 1
