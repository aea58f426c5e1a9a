"""The commands behind the scripts in hack/: arguments and environment are read here and nowhere deeper."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from gpugrant_hack import cache, daemons, environment
from gpugrant_hack.places import Root
from gpugrant_hack.say import Trouble, note, result
from gpugrant_hack.tools import Tools

CHECKOUT = Path(__file__).resolve().parents[3]


def main(words: list[str]) -> int:
    """Runs one command; 0 done, 1 refused or failed with one sentence on stderr, 2 wrong usage."""
    name, *arguments = words or [""]
    command = COMMANDS.get(name)
    if command is None:
        note(f"no command {name!r}: one of {', '.join(COMMANDS)}")
        return 2
    try:
        return command(arguments)
    except Trouble as trouble:
        note(str(trouble))
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _tools(environ: Mapping[str, str] = os.environ) -> Tools:
    return Tools(cache.folder(environ), environ.get("PATH") or os.defpath)


def _parser(script: str, text: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(f"hack/{script}", description=text, allow_abbrev=False)
    parser.add_argument(
        "--root",
        type=lambda text: Path(text).absolute(),
        default=CHECKOUT / ".gpugrant",
        metavar="DIR",
        help="all that is started lies below it (default: .gpugrant in the checkout)",
    )
    return parser


def daemon(words: list[str]) -> int:
    """hack/daemon: one more sealed daemon; its socket on stdout."""
    parser = _parser("daemon", "Starts a sealed Docker daemon below the root and prints its socket.")
    parser.add_argument("name", metavar="NAME", help="a new name gets a new repo id, a known one keeps its own")
    parser.add_argument("--data-root", type=Path, metavar="DIR", help="the daemon's data (default: below the root)")
    given = parser.parse_args(words)
    choice = os.environ.get("GPUGRANT_ENGINE", "")
    started = daemons.start(
        _tools(), Root(given.root), given.name, engine_choice=choice, data_root=given.data_root
    )
    result(str(started.socket))
    return 0


def setup(words: list[str]) -> int:
    """hack/setup, when something changed."""
    parser = argparse.ArgumentParser("hack/setup", description="Makes or refreshes .venv from requirements/.")
    parser.parse_args(words)
    environment.refresh(_tools(), CHECKOUT)
    return 0


def update_locks(words: list[str]) -> int:
    """hack/update-locks: writes requirements/; a changed pyproject.toml changes as little as it can."""
    parser = argparse.ArgumentParser("hack/update-locks", description="Writes requirements/{run,dev}.txt.")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    given = parser.parse_args(words)
    environment.lock(_tools(), CHECKOUT, ["--upgrade"] if given.upgrade else [])
    return 0


COMMANDS: Mapping[str, Callable[[list[str]], int]] = {
    "daemon": daemon,
    "setup": setup,
    "update-locks": update_locks,
}
