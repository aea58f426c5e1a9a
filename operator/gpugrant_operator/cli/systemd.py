"""systemctl, for the commands that write units."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpugrant_operator.repos import Refused

BOOTED = Path("/run/systemd/system")
"""sd_booted(3)."""

WITHIN = 120.0
"""Seconds: a stop of an instance waits for its parts; else systemctl answers in tens of milliseconds."""


def call(program: str, *words: str) -> str:
    """What systemctl prints; raises Refused."""
    try:
        done = subprocess.run(
            [program, *words], capture_output=True, text=True, check=False, timeout=WITHIN, errors="replace"
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        raise Refused(f"systemctl {words[0]} does not end: look at systemctl status") from error
    if done.returncode != 0:
        raise Refused(f"systemctl {words[0]} failed: {' '.join(done.stderr.split())[:300] or done.returncode}")
    return done.stdout
