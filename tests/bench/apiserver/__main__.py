"""Our API server against Kubernetes' own with an etcd, in one run: python tests/bench/apiserver [--count N].

Needs what `hack/tools kube-apiserver`, `etcd` and `kubectl` bring. Both sides run in turn, and a ratio is theirs over
ours, so that more than 1 means faster than the real one. Exits 0 in any case: what else the machine does is in it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import apiservers
import rig
from gpugrant_crds import schema

GRANTS = "/apis/gpu.rediacc.io/v1alpha1/namespaces/default/repogpugrants"
START_WITHIN = 1.0
MEMORY_WITHIN = 120 * 2**20
APPLY_AT_LEAST = 0.8
"""Design 12: seconds, bytes with 5,000 objects, and the part of the real one's rate."""


@dataclass(frozen=True, slots=True)
class Sides:
    real: apiservers.ApiServer
    ours: apiservers.ApiServer

    def __iter__(self) -> Iterator[apiservers.ApiServer]:
        yield from (self.real, self.ours)


def main() -> None:
    parser = argparse.ArgumentParser("tests/bench/apiserver", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="manifests of one apply (default: 1000)")
    parser.add_argument("--objects", type=int, default=5000, help="grants of the list (default: 5000)")
    parser.add_argument("--connections", type=int, default=8, help="clients that write at once (default: 8)")
    parser.add_argument("--watchers", type=int, default=200, help="watches of one change (default: 200)")
    parser.add_argument("--rounds", type=int, default=3, help="of each side (default: 3)")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the servers end with it
    crds = schema.crds()
    with contextlib.ExitStack() as stack:
        started = time.monotonic()
        real = stack.enter_context(apiservers.kubernetes(crds))
        between = time.monotonic()
        ours = stack.enter_context(apiservers.ours(crds))
        took = time.monotonic() - between
        sides = Sides(real, ours)
        _say("start", "s", between - started, took)
        applied = _rounds(sides, given.rounds, lambda side, _: _apply(side, given.count))
        _say(f"kubectl apply of {given.count}", "s", *applied)
        made = _rounds(sides, 1, lambda side, _: _create(side, given.objects - given.count, given.connections))
        _say(f"{given.objects - given.count} creates, {given.connections} connections", "s", *made)
        listed = _rounds(sides, given.rounds, lambda side, _: _timed(lambda: side.ask("GET", GRANTS)))
        _say(f"list of {given.objects}", "s", *listed)
        seen = _rounds(sides, given.rounds, lambda side, turn: _watched(side, given.watchers, turn))
        _say(f"one change at {given.watchers} watchers", "s", *seen)
        memory = [side.memory() for side in sides]
        _say("memory", "MB", *(size / 2**20 for size in memory))
    _verdict(f"apply at least {APPLY_AT_LEAST} of the real one's rate", applied[0] / applied[1] >= APPLY_AT_LEAST)
    _verdict(f"start within {START_WITHIN:.0f} s", took <= START_WITHIN)
    _verdict(f"memory within {MEMORY_WITHIN / 2**20:.0f} MB", memory[1] <= MEMORY_WITHIN)


def _say(what: str, unit: str, real: float, ours: float) -> None:
    sys.stdout.write(f"{what:44} real {real:9.3f} {unit}   ours {ours:9.3f} {unit}   ratio {real / ours:6.2f}\n")
    sys.stdout.flush()


def _verdict(what: str, reached: bool) -> None:
    sys.stdout.write(f"{what}: {'reached' if reached else 'NOT REACHED'}\n")


def _rounds(sides: Sides, count: int, run: Callable[[apiservers.ApiServer, int], float]) -> tuple[float, float]:
    """The medians of the real one's seconds and of ours, in turn."""
    pairs = [tuple(run(side, turn) for side in sides) for turn in range(count)]
    return median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)


def _timed(run: Callable[[], object]) -> float:
    began = time.monotonic()
    run()
    return time.monotonic() - began


def _grant(name: str) -> dict[str, Any]:
    spec = {"machine": "m", "repo": "r", "device": f"nvidia.com/gpu={name}"}
    return {"apiVersion": "gpu.rediacc.io/v1alpha1", "kind": "RepoGpuGrant", "metadata": {"name": name}, "spec": spec}


def _apply(side: apiservers.ApiServer, count: int) -> float:
    """The same kubectl makes them all, on a server that has none of them."""
    kubectl = subprocess.run([str(rig.HACK / "tools"), "kubectl"], check=True, stdout=subprocess.PIPE, text=True)
    with tempfile.TemporaryDirectory(prefix="gg-bench-") as folder:
        file = Path(folder) / "grants.json"
        items = [_grant(f"a{index}") for index in range(count)]
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        base = [kubectl.stdout.strip(), "--kubeconfig", str(side.kubeconfig), "--cache-dir", folder]
        side.ask("DELETE", GRANTS)
        return _timed(lambda: subprocess.run([*base, "apply", "-f", file], check=True, stdout=subprocess.DEVNULL))


def _create(side: apiservers.ApiServer, count: int, connections: int) -> float:
    def writes(number: int) -> None:
        connection = side.connect()
        with contextlib.closing(connection):
            for index in range(number, count, connections):
                headers = {"Authorization": f"Bearer {side.token}", "Content-Type": "application/json"}
                connection.request("POST", GRANTS, json.dumps(_grant(f"c{index}")), headers)
                answer = connection.getresponse()
                answer.read()
                if answer.status != 201:
                    raise RuntimeError(f"{side.name} answers a create with {answer.status}")

    return _timed(lambda: _all(writes, connections))


def _watched(side: apiservers.ApiServer, watchers: int, turn: int) -> float:
    """Seconds from a change to its last watcher."""
    version = side.ask("GET", f"{GRANTS}?limit=1").body["metadata"]["resourceVersion"]
    ready, seen = threading.Semaphore(0), threading.Semaphore(0)

    def watches(_: int) -> None:
        connection = side.connect()
        with contextlib.closing(connection):
            path = f"{GRANTS}?watch=true&resourceVersion={version}&timeoutSeconds=120"
            connection.request("GET", path, headers={"Authorization": f"Bearer {side.token}"})
            answer = connection.getresponse()
            ready.release()
            answer.readline()
            seen.release()

    threads = [threading.Thread(target=watches, args=(number,), daemon=True) for number in range(watchers)]
    for thread in threads:
        thread.start()
    for _ in threads:
        ready.acquire(timeout=60)
    began = time.monotonic()
    side.create(GRANTS, _grant(f"w{turn}"))
    for _ in threads:
        seen.acquire(timeout=60)
    took = time.monotonic() - began
    for thread in threads:
        thread.join(10)
    return took


def _all(run: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
