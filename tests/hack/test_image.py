"""The stand-in image has a shell and nothing of a GPU."""

from __future__ import annotations

import io
import tarfile

from gpugrant_hack import image


def members() -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(image.archive(b"\x7fELF busybox"))) as tar:
        return {member.name: member for member in tar.getmembers()}


def test_it_has_a_shell_and_no_nvidia_smi():
    found = members()

    assert found["bin/sh"].linkname == "busybox"
    assert found["bin/busybox"].mode == 0o755
    assert not [name for name in found if "nvidia" in name]


def test_it_brings_no_device_node():
    kinds = {member.type for member in members().values()}

    assert kinds == {tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE}


def test_equal_input_gives_equal_bytes():
    assert image.archive(b"busybox") == image.archive(b"busybox")
