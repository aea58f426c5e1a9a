"""NVML in a child, nvidia-smi where there is none: whose library answers, and what a broken one costs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kinds
import nvml
from gpugrant_operator.node.observed import ToolRun
from gpugrant_operator.node.sources import tools
from gpugrant_operator.node.tree import Tree
from machines import Machine

CARD = kinds.told("0000:17:00.0", 3, 1, mib=23034, serial="0123")
ROW = f"0, {kinds.uuid(7)}, NVIDIA L4, 580.1, 23034, 00000000:17:00.0, [N/A], 0123, None"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "tree", tmp_path / "root")
    made.tree.mkdir()
    return made


def ask(machine: Machine, limit: float = 5.0) -> ToolRun | None:
    return tools.ask(Tree(machine.tree), {"GPUGRANT_HARDWARE": str(machine.tree)}, limit)


def test_nvml_tells_all_that_it_knows(machine: Machine) -> None:
    parts = (nvml.Instance(2, 1, "MIG-2"), nvml.Instance(1, 0, "MIG-1"))
    mig = kinds.told("0000:65:00.0", 0, 2, mig=1, instances=parts)
    nvml.put(machine.tree, [CARD, mig], driver="580.95.05")
    run = ask(machine)
    assert run is not None
    assert run.answer is not None
    first, second = run.answer.cards
    assert run.source == "NVML"
    assert (first.index, first.minor, first.uuid, first.address) == (0, 3, kinds.uuid(1), "0000:17:00.0")
    assert (first.name, first.driver_version, first.serial) == ("NVIDIA L4", "580.95.05", "0123")
    assert (first.memory_bytes, first.mig_mode, first.trouble) == (23034 * 1024 * 1024, None, None)
    assert (second.mig_mode, second.serial) == ("enabled", None)
    assert [(one.gi, one.ci, one.uuid) for one in second.instances] == [(2, 1, "MIG-2"), (1, 0, "MIG-1")]


def test_nvidia_smi_is_asked_where_there_is_no_nvml(machine: Machine) -> None:
    machine.script("usr/bin/nvidia-smi", f'echo "{ROW}"')
    run = ask(machine)
    assert run is not None
    assert run.answer is not None
    assert (run.source, run.answer.cards[0].uuid) == ("nvidia-smi", kinds.uuid(7))


def test_without_both_there_is_nothing_to_ask(machine: Machine) -> None:
    assert ask(machine) is None


@pytest.mark.parametrize(
    ("init", "said"),
    [
        (nvml.DRIVER_NOT_LOADED, "NVML says: Driver Not Loaded"),
        (nvml.VERSION_MISMATCH, "NVML says: Driver/library version mismatch"),
    ],
)
def test_why_nvml_gives_nothing_is_said_in_its_own_words(machine: Machine, init: int, said: str) -> None:
    nvml.put(machine.tree, [], init=init)
    run = ask(machine)
    assert run is not None
    assert (run.answer, run.failure, run.timed_out) == (None, said, False)


def test_a_library_that_is_none_leaves_nvidia_smi_and_a_note(machine: Machine) -> None:
    machine.write(nvml.LIBRARY, "no library\n")
    machine.script("usr/bin/nvidia-smi", f'echo "{ROW}"')
    run = ask(machine)
    assert run is not None
    assert run.answer is not None
    assert run.answer.cards[0].uuid == kinds.uuid(7)
    (note,) = run.notes
    assert "libnvidia-ml.so.1" in note


def test_a_driver_that_hangs_is_waited_for_once(machine: Machine) -> None:
    """nvidia-smi would hang as well: it is not asked."""
    nvml.put(machine.tree, [], init=nvml.HANGS)
    machine.script("usr/bin/nvidia-smi", "touch $GPUGRANT_HARDWARE/asked; sleep 600")
    began = time.monotonic()
    run = ask(machine, limit=0.5)
    assert run is not None
    assert (run.timed_out, run.failure) == (True, "NVML did not answer in 0.5 s and was stopped")
    assert time.monotonic() - began < 20
    assert not (machine.tree / "asked").exists()


def test_a_getter_that_the_library_lacks_costs_its_value_alone(machine: Machine, tmp_path: Path) -> None:
    """An old driver's library: the real binding then raises instead of ending the program."""
    nvml.put(machine.tree, [CARD])
    library = machine.tree / nvml.LIBRARY
    data = library.read_bytes()
    assert data.count(b"nvmlDeviceGetSerial\0")
    library.unlink()
    library.write_bytes(data.replace(b"nvmlDeviceGetSerial\0", b"nvmlDeviceXxxSerial\0"))
    run = ask(machine)
    assert run is not None
    assert run.answer is not None
    assert (run.answer.cards[0].serial, run.answer.cards[0].trouble) == (None, None)
    assert run.answer.cards[0].uuid == kinds.uuid(1)


def test_no_other_machines_library_ever_answers(machine: Machine, tmp_path: Path) -> None:
    """The loader would find one by its bare name: what was named is loaded, or nothing."""
    elsewhere = tmp_path / "elsewhere"
    nvml.put(elsewhere, [CARD])
    environ = {
        "LD_LIBRARY_PATH": str((elsewhere / nvml.LIBRARY).parent),
        "GPUGRANT_HARDWARE": str(elsewhere),
        "PATH": os.environ["PATH"],
    }
    machine.write(nvml.LIBRARY, "no library\n")
    program = Path(tools.__file__).parents[1] / "nvml.py"
    command = [sys.executable, "-I", str(program), str(machine.tree / nvml.LIBRARY)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert '"cards": []' in done.stdout
    assert "GPU-" not in done.stdout


def test_a_library_that_floods_is_stopped(machine: Machine, tmp_path: Path) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    source = tmp_path / "flood.c"
    source.write_text(
        '#include <stdio.h>\n__attribute__((constructor)) void f(void) { for (;;) puts("noise noise"); }\n'
    )
    target = machine.tree / nvml.LIBRARY
    target.parent.mkdir(parents=True)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(target), str(source)], check=True)
    run = ask(machine, limit=30.0)
    assert run is not None
    assert run.answer is None
    assert "wrote more than" in (run.failure or "")
