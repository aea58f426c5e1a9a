"""The project's own .venv: made by uv from the locked versions with their hashes, and refreshed in place."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from gpugrant_hack import cache
from gpugrant_hack.say import Trouble, note
from gpugrant_hack.tools import Tools

AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
"""Those that the machine trusts, on Debian."""
LOCKS = ("run", "dev")
EDITABLE = ("editables",)
"""What an editable installation of the project is built with, beside its build system."""


def refresh(tools: Tools, checkout: Path) -> None:
    """Makes `.venv` hold exactly what requirements/dev.txt says, and the project as it lies. Raises Trouble."""
    with cache.locked(tools.store / "environment.lock"):
        uv = _uv(tools, checkout)
        python = checkout / ".venv/bin/python"
        if not _runs(python):
            note(f"making .venv with {sys.executable}")
            _call([*uv, "venv", "-q", "--clear", "--python", sys.executable, str(checkout / ".venv")], checkout)
        lock = str(checkout / "requirements/dev.txt")
        target = ["--python", str(python), "-q"]
        _call([*uv, "pip", "install", *target, "--require-hashes", "-r", lock], checkout)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as own:
            own.write(f"-e {checkout}\n")
            own.flush()
            # One call, so that the project never drops out of the environment in between.
            _call([*uv, "pip", "sync", *target, "--no-build-isolation", lock, own.name], checkout)


def lock(tools: Tools, checkout: Path, extra: list[str]) -> None:
    """Writes requirements/*.txt anew: for every platform, with hashes, without an address of any index."""
    uv = _uv(tools, checkout)
    project = tomllib.loads((checkout / "pyproject.toml").read_text())
    build = "\n".join([*project["build-system"]["requires"], *EDITABLE])
    for name in LOCKS:
        # One environment has both, so what runs is resolved once: dev.txt is constrained by run.txt.
        dev = ["--group", "dev", "-", "-c", "requirements/run.txt"] if name == "dev" else []
        command = [
            *(*uv, "pip", "compile", "-q", "pyproject.toml", *dev, "--universal", "--generate-hashes"),
            *("--python-version", project["project"]["requires-python"].removeprefix(">=")),
            *("--no-emit-index-url", "--no-emit-find-links", "--no-annotate"),
            *("--custom-compile-command", "hack/update-locks", *extra, "-o", f"requirements/{name}.txt"),
        ]
        _call(command, checkout, text=build)


def _uv(tools: Tools, checkout: Path) -> list[str]:
    """How uv is called here: from PATH, as a module of this Python, else brought into the cache."""
    for command in (["uv"], [sys.executable, "-m", "uv"]):
        if shutil.which(command[0], path=tools.search) and _runs(*command):
            return command
    folder = cache.entry(tools.store, "uv", lambda into: _install_uv(tools, checkout, into))
    return [str(folder / "bin/uv")]


def _install_uv(tools: Tools, checkout: Path, into: Path) -> None:
    note(f"bringing uv into {tools.store}: this machine has none (25 MB, once)")
    pip = [sys.executable, "-m", "pip"]
    if not _runs(*pip):
        pip = [sys.executable, str(tools.pip() / "pip")]
    authorities = tools.certificates()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as pinned:
        pinned.write("".join(_stanza((checkout / "requirements/dev.txt").read_text(), "uv")))
        pinned.flush()
        options = ["--quiet", "--no-input", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
        if authorities:
            options += ["--cert", str(authorities)]
        command = [*pip, "install", *options, "--target", str(into), "-r", pinned.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise Trouble(f"uv can't be brought ({said}): connect this machine to its package index once, or install uv")


def _stanza(lock_text: str, name: str) -> Iterator[str]:
    """The lines of one package in a lock file, its hashes included."""
    inside = False
    for line in lock_text.splitlines(keepends=True):
        if not line.startswith((" ", "#")):
            inside = re.match(r"[A-Za-z0-9._-]+", line.strip() or "-")[0] == name  # type: ignore[index]  # never None
        if inside:
            yield line


def _runs(program: Path | str, *words: str) -> bool:
    try:
        done = subprocess.run([str(program), *words, "--version"], capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _call(command: list[str], cwd: Path, text: str | None = None) -> None:
    environ = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    if AUTHORITIES.exists():
        # uv's own would not know the authority of a company's proxy.
        environ.setdefault("SSL_CERT_FILE", str(AUTHORITIES))
    done = subprocess.run(command, cwd=cwd, input=text, capture_output=True, text=True, check=False, env=environ)
    if done.returncode:
        sys.stderr.write(done.stderr)
        raise Trouble(f"{' '.join(command[:3])} failed as said above: mend it and run the script again")
