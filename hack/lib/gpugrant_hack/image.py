"""The stand-in image ubuntu:24.04: a static busybox with the links that a trial needs, made here, from no registry.

It has a shell and no nvidia-smi: that comes only by the spec of a granted device. The machine's C library is in it, so
that the machine's own nvidia-smi runs there.
"""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from gpugrant_hack import api
from gpugrant_hack.say import Trouble
from gpugrant_hack.tools import Tools

NAME = "ubuntu:24.04"
CHANGES = ('CMD ["sh"]', "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
APPLETS = """
sh ash [ awk basename cat chmod chown cp cut date dd dirname echo env expr false find grep head hostname id kill ls
mkdir mknod mkfifo mount mv nc ps printf pwd readlink rm rmdir sed sleep sort stat sync tail tar tee test touch tr
true tty umount uname uniq wc which xargs yes
"""
FOLDERS = ("bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "usr", "usr/bin", "usr/lib", "var")
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "etc/group": "root:x:0:\nvideo:x:44:\nrender:x:105:\n",
    "etc/os-release": 'NAME="stand-in for ubuntu:24.04 (busybox)"\nID=stand-in\n',
}
LIBRARIES = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1")
LIBRARY_FOLDERS = ("lib/*-linux-gnu", "lib64", "lib")


def c_library(machine: Path = Path("/")) -> dict[str, bytes]:
    """Path to content of the machine's loader and C library; what is not there is left out."""
    patterns = ["lib64/ld-linux-*.so.*", "lib/ld-linux-*.so.*"]
    patterns += [f"{folder}/{name}" for folder in LIBRARY_FOLDERS for name in LIBRARIES]
    found = sorted({path for pattern in patterns for path in machine.glob(pattern) if path.is_file()})
    return {str(path.relative_to(machine)): path.read_bytes() for path in found}


def archive(busybox: bytes, libraries: Mapping[str, bytes]) -> bytes:
    """The image's only layer as a tar archive; equal bytes for equal input."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for folder in FOLDERS:
            _add(tar, folder, tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755)
        _add(tar, "bin/busybox", tarfile.REGTYPE, 0o755, busybox)
        for applet in APPLETS.split():
            _add(tar, f"bin/{applet}", tarfile.SYMTYPE, 0o777, link="busybox")
        for name, content in libraries.items():
            _add(tar, name, tarfile.REGTYPE, 0o755, content)
        for name, text in FILES.items():
            _add(tar, name, tarfile.REGTYPE, 0o644, text.encode())
    return out.getvalue()


def _add(tar: tarfile.TarFile, name: str, kind: bytes, mode: int, content: bytes = b"", link: str = "") -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.size, member.linkname = kind, mode, len(content), link
    tar.addfile(member, io.BytesIO(content))


def load_if_missing(tools: Tools, socket: Path) -> None:
    """Puts the image into a daemon through its raw socket, unless it has one of that name. Raises Trouble."""
    if api.get(socket, f"/images/{NAME}/json") is not None:
        return
    repo, _, tag = NAME.partition(":")
    layer = archive(tools.busybox().read_bytes(), c_library())
    if complaint := api.import_image(socket, layer, repo=repo, tag=tag, changes=list(CHANGES)):
        raise Trouble(f"the image {NAME} does not load: {complaint}")
