"""The stand-in image has a shell and nothing of a GPU."""

from __future__ import annotations

import io
import tarfile

from gpugrant_hack import image


def members() -> dict[str, tarfile.TarInfo]:
    with tarfile.open(
        fileobj=io.BytesIO(image.archive(b"\x7fELF busybox", {"lib/x-linux-gnu/libc.so.6": b"libc"}))
    ) as tar:
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
    first, second = (image.archive(b"busybox", {"lib64/ld-linux-x.so.2": b"loader"}) for _ in range(2))

    assert first == second


def test_the_c_library_is_the_machine_s(tmp_path):
    for name in ("usr/lib/x-linux-gnu/libc.so.6", "usr/lib/x-linux-gnu/libz.so.1", "usr/lib64/ld-linux-x.so.2"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "lib").symlink_to("usr/lib")
    (tmp_path / "lib64").symlink_to("usr/lib64")

    assert image.c_library(tmp_path) == {
        "lib/x-linux-gnu/libc.so.6": b"usr/lib/x-linux-gnu/libc.so.6",
        "lib64/ld-linux-x.so.2": b"usr/lib64/ld-linux-x.so.2",
    }
