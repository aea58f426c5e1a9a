"""Load on one side: h2load for small requests, plain sockets for streams, so that the load itself costs little."""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from programs import Programs
from stand import Side, Stand, cpu

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Small:
    """A run of small requests; times in milliseconds, CPU in microseconds a request."""

    rate: float
    p50: float
    p99: float
    cpu: float
    daemon_cpu: float


def small(stand: Stand, side: Side, target: str, count: int, connections: int) -> Small:
    """`count` GETs of `target` as fast as they go; fails where one is not answered 2xx."""
    before, daemon_before = side.cpu(), cpu([stand.daemon_pid])
    rate, times = h2load(stand.programs, side.socket, target, count, connections)
    return Small(
        rate,
        quantile(times, 0.5),
        quantile(times, 0.99),
        (side.cpu() - before) / count * MILLION,
        (cpu([stand.daemon_pid]) - daemon_before) / count * MILLION,
    )


def h2load(found: Programs, path: Path, target: str, count: int, connections: int) -> tuple[float, list[float]]:
    """Requests a second, and each one's milliseconds."""
    with tempfile.NamedTemporaryFile("r") as log:
        words = ["--h1", "-n", count, "-c", connections, "-t", 1, "-B", f"unix:{path}", f"--log-file={log.name}"]
        command = [found.h2load, *map(str, words), f"http://docker{target}"]
        done = subprocess.run(command, env=found.environ, capture_output=True, text=True, check=True)
        if f"{count} succeeded" not in done.stdout or f"{count} 2xx" not in done.stdout:
            raise SystemExit(f"h2load did not succeed on {path}:\n{done.stdout}")
        times = [int(line.split("\t")[2]) / 1000 for line in log]
    return float(done.stdout.partition("finished in")[2].split(",")[1].split()[0]), times


def quantile(times: Sequence[float], part: float) -> float:
    ordered = sorted(times)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def request(path: Path, head: str) -> socket.socket:
    """A connection on which this head was sent."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(path))
    sock.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n")
    return sock


def download(path: Path, target: str) -> float:
    """Bytes a second of an answer that is read and thrown away."""
    buffer = bytearray(1024 * 1024)
    began, size = time.perf_counter(), 0
    with request(path, f"GET {target} HTTP/1.1\nHost: docker\nConnection: close") as sock:
        while count := sock.recv_into(buffer):
            size += count
            if size == count and b" 200 " not in buffer[:20]:
                raise SystemExit(f"{target}: {bytes(buffer[:count])!r}")
    return size / (time.perf_counter() - began)


def save(path: Path, target: str, file: Path) -> None:
    """An answer without its frames, in a file."""
    from intruder import Unix

    connection = Unix(path)
    connection.request("GET", target)
    answer = connection.getresponse()
    with file.open("wb") as out:
        while piece := answer.read(1024 * 1024):
            out.write(piece)
    connection.close()


def upload(path: Path, target: str, file: Path) -> float:
    """Bytes a second of a file that is sent in chunks, as docker load does, until its answer is there."""
    began, size = time.perf_counter(), file.stat().st_size
    head = f"POST {target} HTTP/1.1\nHost: docker\nConnection: close\nContent-Type: application/x-tar\n"
    with request(path, head + "Transfer-Encoding: chunked") as sock, file.open("rb") as source:
        offset = 0
        while offset < size:
            length = min(1024 * 1024, size - offset)
            sock.sendall(b"%x\r\n" % length)
            end = offset + length
            while offset < end:
                offset += os.sendfile(sock.fileno(), source.fileno(), offset, end - offset)
            sock.sendall(b"\r\n")
        sock.sendall(b"0\r\n\r\n")
        said = b""
        while piece := sock.recv(65536):
            said += piece
        if b" 200 " not in said[:20]:
            raise SystemExit(f"{target}: {said[:300]!r}")
    return size / (time.perf_counter() - began)


@contextmanager
def sampled(look: Callable[[], float]) -> Iterator[list[float]]:
    """What `look` says every tenth of a second while the block runs."""
    seen = [look()]
    over = threading.Event()

    def run() -> None:
        while not over.wait(0.1):
            seen.append(look())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def paced(path: Path, target: str, seconds: float, every: float = 0.002) -> list[float]:
    """Milliseconds of one client's requests, one each `every` seconds on one connection."""
    times = []
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            sock.sendall(f"GET {target} HTTP/1.1\r\nHost: docker\r\n\r\n".encode())
            said = sock.recv(65536)
            if b" 200 " not in said[:20]:
                raise SystemExit(f"{target}: {said!r}")
            times.append((time.perf_counter() - began) * 1000)
            time.sleep(max(every - (time.perf_counter() - began), 0))
    return times
