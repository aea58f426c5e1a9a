"""Detection of large machines, and what an hour of polling costs: seconds and CPU.

    python tests/bench/node/detection.py [--repeat 5]

The trees are made in a temporary folder: 64 partitions of eight AMD cards behind 66 KFD nodes, eight NVIDIA cards,
and a CDI folder of 2,000 devices. Run it as root: device nodes are made. What this machine itself costs to poll is
measured as well, since its sysfs is a real one.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import kinds
from gpugrant_crds import fingerprint as summed
from gpugrant_crds.atoms import Hardware
from gpugrant_gate.life.fingerprint import Fingerprint
from gpugrant_operator.node import cards, fingerprint, folder, gather
from gpugrant_operator.node.gather import Limits
from gpugrant_operator.node.tree import Tree
from machines import Machine

DEVICES = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    with tempfile.TemporaryDirectory() as scratch:
        for kind in ("bare-server", "amd-mi300x-cpx", "nvidia-eight"):
            machine = Machine(Path(scratch) / kind / "tree", Path(scratch) / kind / "root")
            kinds.KINDS[kind](machine)
            _print(f"detection of {kind}", lambda machine=machine: _detect(machine), repeat)  # type: ignore[misc]
            _print(f"setup of {kind}, nothing changed", lambda machine=machine: machine.setup(), repeat)  # type: ignore[misc]
            _poll(kind, machine.tree, repeat)
        _poll("this machine", Path("/"), repeat)
        _specs(Path(scratch) / "cdi", repeat)


def _detect(machine: Machine) -> None:
    seen = gather.gather(Tree(machine.tree), {"GPUGRANT_HARDWARE": str(machine.tree)}, Limits(), lambda _line: None)
    cards.join(seen)


def _poll(name: str, tree: Path, repeat: int) -> None:
    polls = int(3600 / summed.EVERY)
    spent = _cpu(lambda: [fingerprint.take(Tree(tree)) for _ in range(repeat)]) / repeat
    gate = _cpu(lambda: asyncio.run(_asked(tree, repeat))) / repeat
    print(
        f"{'an hour of polling ' + name:45} {gate * polls:8.3f} s CPU in the gate ({spent * polls:.3f} by the detector)"
    )


async def _asked(tree: Path, times: int) -> None:
    for number in range(times):
        await Fingerprint(tree, time.monotonic).current(str(number))


def _specs(cdi: Path, repeat: int) -> None:
    cdi.mkdir()
    lines = ["cdiVersion: 0.5.0", "kind: bench.example/gpu", "devices:"]
    for number in range(DEVICES):
        lines += [f"- name: gpu{number}", "  containerEdits:", f"    deviceNodes: [{{path: /dev/dri/renderD{number}}}]"]
    (cdi / "bench.yaml").write_text("\n".join(lines) + "\n")
    hardware = Hardware({f"dri/renderD{number}": f"gpu/pci:{number}" for number in range(DEVICES)})
    _print(
        f"a CDI folder of {DEVICES} devices",
        lambda: folder.describe(cdi, folder.read(cdi), {}, lambda _path: True, hardware),
        repeat,
    )


def _print(name: str, call: Callable[[], object], repeat: int) -> None:
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    print(f"{name:45} {statistics.median(times):8.3f} s, at most {max(times):.3f} s")


def _cpu(call: Callable[[], object]) -> float:
    """Seconds of this process, in user and system."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    call()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
