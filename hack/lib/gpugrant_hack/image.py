"""The stand-in image ubuntu:24.04: a static busybox with the links that a trial needs, made here, from no registry.

It has a shell and no nvidia-smi: that comes only by the spec of a granted device.
"""

import io
import tarfile
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


def archive(busybox: bytes) -> bytes:
    """The image's only layer as a tar archive; equal bytes for equal input."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for folder in FOLDERS:
            _add(tar, folder, tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755)
        _add(tar, "bin/busybox", tarfile.REGTYPE, 0o755, busybox)
        for applet in APPLETS.split():
            _add(tar, f"bin/{applet}", tarfile.SYMTYPE, 0o777, link="busybox")
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
    layer = archive(tools.busybox().read_bytes())
    if complaint := api.import_image(socket, layer, repo=repo, tag=tag, changes=list(CHANGES)):
        raise Trouble(f"the image {NAME} does not load: {complaint}")
