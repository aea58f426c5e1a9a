"""Becomes another program that finds sockets where systemd would put them (sd_listen_fds(3)).

python handing.py FD,FD,… PROGRAM ARGUMENT… A program of its own, since only a process knows its number, and only before
it is another program can its descriptors be moved.
"""

from __future__ import annotations

import fcntl
import os
import sys

_FIRST = 3
"""SD_LISTEN_FDS_START."""


def main(argv: list[str]) -> None:
    given = [int(fd) for fd in argv[0].split(",")]
    # above all places that are to be filled, so that none is written over before it has been moved
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST + len(given)) for fd in given]
    for fd in given:
        os.set_inheritable(fd, False)
    for place, fd in enumerate(copies, _FIRST):
        os.dup2(fd, place)
    environ = {**os.environ, "LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(given))}
    os.execve(argv[1], argv[1:], environ)  # noqa: S606  (the caller's own list)


if __name__ == "__main__":
    main(sys.argv[1:])
