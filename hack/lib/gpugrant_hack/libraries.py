"""Client libraries that the tests speak to a gate with: exact versions, checked by hash, brought into the cache.

A set is a folder of locks below tests/clients/libraries; another lock is another entry of the cache. No program of a
package is run on the way, and no address is written down: each client asks the registry that it is set up with.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from gpugrant_hack import cache
from gpugrant_hack.environment import AUTHORITIES
from gpugrant_hack.say import Trouble, note
from gpugrant_hack.tools import Tools

LOCKS = Path("tests/clients/libraries")
WITHIN = 300.0
"""Seconds for one set; they take 1 to 10."""


def bring(tools: Tools, checkout: Path, name: str) -> Path:
    """The folder with one set of libraries: `python` (for PYTHONPATH), `node` (with node_modules) or `java` (jars).
    Raises Trouble when the set can't be had here."""
    fill = SETS.get(name)
    if fill is None:
        raise Trouble(f"no set of libraries {name!r}: it is one of {', '.join(SETS)}")
    locks = checkout / LOCKS / name

    def build(into: Path) -> None:
        note(f"bringing client libraries ({name}) into {tools.store}: tests speak with them (once)")
        try:
            fill(tools, locks, into)
        except Trouble as trouble:
            raise Trouble(f"the client libraries ({name}) can't be brought, as {trouble}") from trouble

    return cache.entry(tools.store, f"libraries-{name}-{_state(locks)}", build)


def _state(locks: Path) -> str:
    files = sorted(path for path in locks.iterdir() if path.is_file())
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


def _python(tools: Tools, locks: Path, into: Path) -> None:
    uv = str(locks.parents[3] / ".venv/bin/uv")
    lock = str(locks / "requirements.txt")
    _call(tools, [uv, "pip", "install", "-q", "--target", str(into), "--require-hashes", "-r", lock], into)


def _node(tools: Tools, locks: Path, into: Path) -> None:
    for file in ("package.json", "package-lock.json"):
        shutil.copy(locks / file, into)
    _call(tools, ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"], into)


def _java(tools: Tools, locks: Path, into: Path) -> None:
    options = ["-q", "-B", "--strict-checksums", "-f", str(locks / "pom.xml"), f"-DoutputDirectory={into}"]
    _call(tools, ["mvn", *options, "-DincludeScope=runtime", "dependency:copy-dependencies"], into)
    lines = (locks / "jars.sha256").read_text().splitlines()
    wanted = {name: digest for digest, name in map(str.split, lines)}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in into.iterdir()}
    if differ := sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)):
        raise Trouble(f"what came is not what {locks / 'jars.sha256'} says: {', '.join(differ)}")


SETS: Mapping[str, Callable[[Tools, Path, Path], None]] = {"python": _python, "node": _node, "java": _java}


def _call(tools: Tools, command: list[str], folder: Path) -> None:
    program = shutil.which(command[0], path=tools.search)
    if program is None:
        raise Trouble(f"{command[0]} is not on this machine")
    environ = {**({"SSL_CERT_FILE": str(AUTHORITIES)} if AUTHORITIES.exists() else {}), **os.environ}
    command = [program, *command[1:]]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=WITHIN
        )
    except subprocess.TimeoutExpired as error:
        raise Trouble(f"{program} did not end in {WITHIN:.0f} s") from error
    if done.returncode:
        lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise Trouble(f"{program} failed ({(lines or ['it said nothing'])[0]})")
