"""What a gate's process asks of the kernel and the C library."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

STREAM = """
import resource, sys
from gpugrant_gate.net import process

def relay():
    for _ in range(300):
        pieces = [bytes(bytearray(300_000)) for _ in range(4)]

if sys.argv[1:]:
    process.keep_freed_memory()
relay()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
relay()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(*words: str) -> int:
    """Pages that are faulted in while pieces of a stream come and go."""
    done = subprocess.run([sys.executable, "-c", STREAM, *words], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="this C library has no mallopt(3)")
def test_the_pieces_of_a_stream_use_the_same_memory_again() -> None:
    assert faults("keep") < 1000
