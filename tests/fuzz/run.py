"""hack/fuzz: throws bytes at one reader of the gate, guided by the branches that they reach (atheris, libFuzzer).

Atheris is no dependency of anything else: it is brought into the cache when it is first wanted.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
LOCK = HERE / "requirements.txt"
NAMES = ("head", "frames", "body", "path", "request", "answer", "tar", "repo-file", "snapshot")
LONGEST = 16 * 1024
"""Bytes of an input: what is larger only repeats."""


def main(words: list[str]) -> int:
    """0: nothing was found; 1: a crasher, or what is needed can't be had; 2: wrong usage."""
    parser = argparse.ArgumentParser("hack/fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("target", choices=NAMES)
    parser.add_argument("file", nargs="?", type=Path, help="only this input again, without fuzzing")
    parser.add_argument("--seconds", type=int, default=60, metavar="N", help="how long (default: 60)")
    given = parser.parse_args(words)
    if given.file is not None and not given.file.is_file():
        parser.error(f"there is no file {given.file}")
    if given.seconds < 1:
        parser.error("--seconds must be at least 1")
    try:
        library = _bring()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"atheris can't be brought: {error}", file=sys.stderr)
        return 1
    return _fuzz(given.target, given.file, given.seconds, library)


def _bring() -> Path:
    """The folder with atheris, by its lock's hash; an entry is built aside and renamed into place."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpugrant"
    cache = Path(os.environ.get("GPUGRANT_CACHE") or base)
    entry = cache / f"fuzz-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}"
    if not entry.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as aside:
            made = Path(aside) / "made"
            uv = Path(sys.executable).with_name("uv")
            command = [uv, "pip", "install", "-q", "--python", sys.executable, "--target", made, "--require-hashes"]
            subprocess.run([*map(str, command), "-r", str(LOCK)], check=True)
            if not entry.is_dir():
                made.rename(entry)
    return entry


def _fuzz(name: str, file: Path | None, seconds: int, library: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        kept = f"{Path.cwd()}/"
        places = [str(library), str(CHECKOUT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
        environ = os.environ | {"PYTHONPATH": ":".join(places), "PYTHONDONTWRITEBYTECODE": "1"}
        options = [f"-max_total_time={seconds}", f"-max_len={LONGEST}", f"-artifact_prefix={kept}", "-timeout=10"]
        what = [str(file)] if file is not None else [*options, "-print_final_stats=1", folder]
        command = [sys.executable, str(HERE / "child.py"), name, folder, *what]
        running = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert running.stdout is not None
        said = _relayed(running)
    if running.returncode == 0:
        print(
            f"{name}: nothing found; {_figures(said)}" if file is None else f"{name}: {file} is taken as it should be"
        )
        return 0
    found = re.search(r"written to (\S+)", said)
    again = found[1] if found else file
    if again is None:
        print(f"{name}: the fuzzer itself failed, see above", file=sys.stderr)
        return 1
    print(f"{name}: the law is broken, see above; again with: hack/fuzz {name} {again}")
    return 1


def _relayed(running: subprocess.Popen[str]) -> str:
    """All that the fuzzer says, shown as it comes but for its progress."""
    lines = []
    for line in running.stdout or ():
        lines.append(line)
        if not line.startswith(("#", "stat::", "INFO:", "\tNEW_FUNC")):
            print(line, end="", flush=True)
    running.wait()
    return "".join(lines)


def _figures(said: str) -> str:
    runs = re.search(r"stat::number_of_executed_units: *(\d+)", said)
    pace = re.search(r"stat::average_exec_per_sec: *(\d+)", said)
    branches = re.search(r"(?s:.*)cov: (\d+)", said)
    count, rate, reached = (found[1] if found else "0" for found in (runs, pace, branches))
    return f"{count} inputs, {rate} a second, {reached} branches"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
