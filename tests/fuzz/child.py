"""The fuzzer's process: atheris with one target, started by run.py."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["gpugrant_crds", "gpugrant_gate"]):
    from fuzz import targets


def main() -> None:
    _, name, folder, *options = sys.argv
    check, seeds = targets.TARGETS[name]
    for number, seed in enumerate(dict.fromkeys(seeds)):
        (Path(folder) / str(number)).write_bytes(seed)
    atheris.Setup([sys.argv[0], *options], check)
    atheris.Fuzz()


main()
