"""Small requests through the gate against the daemon's own socket: requests a second, latency, and their ratios.

    python tests/bench/gate/small_requests.py --direct DAEMON_SOCK --through GATE_SOCK [--target /_ping]

h2load is used where it is installed; else a client of this file's own, which is slower than what it measures and so
makes the ratio look better than it is: it says which one it was.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import statistics
import subprocess
import time
from pathlib import Path

import uvloop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--direct", type=Path, required=True)
    parser.add_argument("--through", type=Path, required=True)
    parser.add_argument("--target", default="/_ping")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--connections", type=int, default=32)
    given = parser.parse_args()
    measure = _h2load if shutil.which("h2load") else _own
    print(f"{given.requests} x GET {given.target}, {given.connections} connections, by {measure.__name__.strip('_')}")
    rates = {}
    for name, path in (("direct", given.direct), ("through", given.through)):
        rates[name], said = measure(path, given.target, given.requests, given.connections)
        print(f"{name:8} {rates[name]:10.0f} requests/s   {said}")
    print(f"ratio    {rates['through'] / rates['direct']:10.2f}")


def _h2load(path: Path, target: str, count: int, connections: int) -> tuple[float, str]:
    command = ["h2load", "--h1", "-n", str(count), "-c", str(connections), "-t", "1", "-B", f"unix:{path}"]
    said = subprocess.run([*command, f"http://d{target}"], capture_output=True, text=True, check=True).stdout
    rate = re.search(r"([0-9.]+) req/s", said)
    latency = re.search(r"time for request: *(.*)", said)
    if rate is None or latency is None or f"{count} succeeded" not in said:
        raise SystemExit(f"h2load did not succeed:\n{said}")
    return float(rate[1]), "min, max, mean, deviation: " + " ".join(latency[1].split()[:4])


def _own(path: Path, target: str, count: int, connections: int) -> tuple[float, str]:
    return uvloop.run(_all(path, target, count // connections, connections))


async def _all(path: Path, target: str, each: int, connections: int) -> tuple[float, str]:
    began = time.perf_counter()
    seen = await asyncio.gather(*(_one(path, target, each) for _ in range(connections)))
    took = time.perf_counter() - began
    times = sorted(moment for one in seen for moment in one)
    p50, p99 = statistics.median(times), times[len(times) * 99 // 100]
    return len(times) / took, f"p50 {p50 * 1000:.2f} ms, p99 {p99 * 1000:.2f} ms"


async def _one(path: Path, target: str, count: int) -> list[float]:
    reader, writer = await asyncio.open_unix_connection(str(path))
    request = f"GET {target} HTTP/1.1\r\nHost: d\r\n\r\n".encode()
    times = []
    for _ in range(count):
        began = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *([0-9]+)", head)
        if b" 200 " not in head.partition(b"\r\n")[0] or length is None:
            raise SystemExit(f"an answer of another kind: {head!r}")
        await reader.readexactly(int(length[1]))
        times.append(time.perf_counter() - began)
    writer.close()
    return times


if __name__ == "__main__":
    main()
