"""What a process of the gate needs of the kernel: to die with its parent, a name, and enough descriptors."""

from __future__ import annotations

import ctypes
import os
import resource
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_PIECE_MAX = 4 * 1024 * 1024
"""Bytes: what is read, taken apart and written at once is smaller."""
_KEPT = 4 * _PIECE_MAX


def die_with(parent: int) -> bool:
    """Has the kernel kill this process when its parent ends (prctl(2)); False when the parent is gone already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    return os.getppid() == parent


def rename(name: str) -> None:
    """Gives the process a name of at most 15 characters (prctl(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NAME)")


def keep_freed_memory() -> None:
    """Has the allocator use again what a stream's pieces leave (mallopt(3)).

    glibc by itself gives it back to the kernel, and every page is faulted in anew with the next piece. Another library
    has no such call.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _PIECE_MAX)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)


def raise_descriptor_limit() -> None:
    """The soft limit is 1024 for the sake of select(2), which nothing here uses on descriptors of that size."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
