"""The real supervisor over stand-in parts. python supervisor.py ROOT HARDWARE VERSION."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import structlog

from gpugrant_operator.supervisor import main, parts

PART = Path(__file__).with_name("part.py")


async def claim() -> None:
    """The machine is there when the file is."""
    if not (Path(sys.argv[1]) / "machine").exists():
        raise main.ClaimFailed("the machine is not there")


def stand_in(name: str, root: Path, hardware: str, version: str) -> parts.Part:
    signature = (str(PART), name, "--root", str(root))
    return parts.Part(
        name=name,
        argv=(sys.executable, *signature, "--hardware", hardware),
        signature=signature,
        environ={parts.VERSION_VARIABLE: version},
        after="apiserver" if name == "operator" else None,
    )


def run() -> int:
    root, hardware, version = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    settings = main.Settings(
        root=root,
        hardware=Path(hardware),
        version=version,
        parts=tuple(stand_in(name, root, hardware, version) for name in parts.NAMES),
        claim=claim,
        environ=os.environ,
        clock=lambda: datetime.now(UTC),
        patience=3.0,
    )
    return main.run(settings, structlog.get_logger())


sys.exit(run())
