"""System calls that Python has no names for: opening without links, mounts by descriptor, namespaces of a thread.

Linux 5.6 or newer (openat2(2), open_tree(2), move_mount(2)); their numbers are the same on every architecture. No kept
library offers them. All raise OSError.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

_OPEN_TREE, _MOVE_MOUNT, _OPENAT2 = 428, 429, 437
_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_AT_RECURSIVE = 0x8000
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH = 0x4
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_CLONE_FS, _CLONE_NEWNS = 0x200, 0x20000
_MNT_DETACH, _UMOUNT_NOFOLLOW = 0x2, 0x8
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000

_libc = ctypes.CDLL(None, use_errno=True)
_Argument = ctypes.c_long | ctypes.c_char_p | ctypes.c_size_t


def open_beneath(path: str) -> int:
    """A descriptor (O_PATH) of what lies at the absolute `path`, by way of no link of any kind."""
    with _Descriptor(os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as root:
        resolve = _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS | _RESOLVE_BENEATH
        how = struct.pack("QQQ", os.O_PATH | os.O_CLOEXEC, 0, resolve)
        name = os.fsencode(path.lstrip("/"))
        return _call(_OPENAT2, root, name, how, ctypes.c_size_t(len(how)))


def clone_mount(descriptor: int) -> int:
    """The open object as a mount that is nowhere yet, with what is mounted below it; gone when closed."""
    flags = _OPEN_TREE_CLONE | _AT_EMPTY_PATH | _AT_RECURSIVE | os.O_CLOEXEC
    return _call(_OPEN_TREE, descriptor, b"", flags)


def attach_mount(mount: int, place: Path) -> None:
    """Puts such a mount on top of what is at `place`; nothing that is mounted in it later leaves it or comes in."""
    _call(_MOVE_MOUNT, mount, b"", _AT_FDCWD, os.fsencode(place), _MOVE_MOUNT_F_EMPTY_PATH)
    flags = ctypes.c_ulong(_MS_REC | _MS_PRIVATE)
    _checked(_libc.mount(None, os.fsencode(place), None, flags, None))


def detach_mount(place: Path) -> None:
    """Takes the upmost mount away from `place`; who has it goes on."""
    _checked(_libc.umount2(os.fsencode(place), _MNT_DETACH | _UMOUNT_NOFOLLOW))


def enter_mounts_of(pid: int) -> None:
    """From now on this thread, and no other one, sees the mounts of that process. It can't go back: let it end."""
    with _Descriptor(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)) as namespace:
        _checked(_libc.unshare(_CLONE_FS))
        _checked(_libc.setns(namespace, _CLONE_NEWNS))


class _Descriptor:
    """Closes it in the end."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __enter__(self) -> int:
        return self._number

    def __exit__(self, *_: object) -> None:
        os.close(self._number)


def _call(number: int, *arguments: int | bytes | ctypes.c_size_t) -> int:
    given = [_argument(argument) for argument in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *given))


def _argument(value: int | bytes | ctypes.c_size_t) -> _Argument:
    if isinstance(value, bytes):
        return ctypes.c_char_p(value)
    return ctypes.c_long(value) if isinstance(value, int) else value


def _checked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer
