"""An image with this machine's Python in it: what a tenant brings along to make any system call that it likes."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import sysconfig
import tarfile
from functools import cache
from pathlib import Path

IMAGE = "workshop:1"
PYTHON = "/usr/local/bin/python"
_LEFT_OUT = frozenset(
    {"test", "idlelib", "lib2to3", "ensurepip", "site-packages", "tkinter", "turtledemo", "__pycache__", "pydoc_data",
     "unittest", "distutils", "asyncio", "multiprocessing", "lib-dynload", "email", "xml", "sqlite3"}
)  # fmt: skip
_EXTENSIONS = ("_ctypes", "_struct", "_socket", "fcntl", "select", "math", "array")


@cache
def image() -> bytes:
    """A tar for `docker import`."""
    made = io.BytesIO()
    program = Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    dynamic = [found for name in _EXTENSIONS for found in (library / "lib-dynload").glob(f"{name}.*.so")]
    with tarfile.open(fileobj=made, mode="w") as tar:
        _add(tar, program, PYTHON)
        for file in sorted({path for binary in (program, *dynamic) for path in _libraries(binary)}):
            _add(tar, Path(file).resolve(), file)
        for source in sorted(library.rglob("*.py")):
            inside = source.relative_to(library)
            if not _LEFT_OUT & set(inside.parts):
                _add(tar, source, f"{library}/{inside}")
        for extension in dynamic:
            _add(tar, extension, f"{library}/lib-dynload/{extension.name}")
        for folder in ("tmp", "proc", "sys", "dev", "etc"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
            tar.addfile(entry)
    return made.getvalue()


def command(script: str, *words: str) -> list[str]:
    """What runs the script in a container of the image; see `environment`."""
    return [PYTHON, "-S", "-c", script, *words]


def environment() -> list[str]:
    """Where this Python looks for its library."""
    return [f"PYTHONHOME={sys.base_prefix}"]


def _add(tar: tarfile.TarFile, file: Path, name: str) -> None:
    data = file.read_bytes()
    entry = tarfile.TarInfo(name.lstrip("/"))
    entry.size, entry.mode = len(data), 0o755
    tar.addfile(entry, io.BytesIO(data))


def _libraries(binary: Path) -> list[str]:
    """The shared libraries that a program needs, its loader included."""
    said = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=True).stdout
    return re.findall(r"(/\S+) \(0x", said)
