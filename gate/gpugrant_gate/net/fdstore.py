"""Whoever keeps the listening sockets while no gate runs: systemd or our supervisor, by the same protocol.

sd_notify(3): FDSTORE=1 with FDNAME and the descriptor beside it, FDSTOREREMOVE=1; sd_listen_fds(3): what was kept, from
descriptor 3 on.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping
from pathlib import Path

from gpugrant_crds import keptsockets
from gpugrant_crds.keptsockets import Place
from gpugrant_gate.net.audit import log
from gpugrant_gate.net.listener import Found, Listener

_FIRST = 3
"""SD_LISTEN_FDS_START."""
_FDS_MAX = 4096
_TIMEOUT = 1.0
"""Seconds for one message; who keeps sockets reads them in microseconds."""

NOTIFY_SOCKET = "NOTIFY_SOCKET"


class Store:
    """The keeper at a notification socket; none where the address is empty."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._kept: dict[str, Listener] = {}

    def keep(self, opened: Listener) -> None:
        """Hands it a copy of the socket. What can't be kept is served all the same."""
        name = name_of(opened)
        if name and self._send(f"FDSTORE=1\nFDNAME={name}", [opened.sock.fileno()]):
            self._kept[name] = opened

    def forget(self, opened: Listener) -> None:
        self._kept.pop(name_of(opened), None)
        self._send(f"FDSTOREREMOVE=1\nFDNAME={name_of(opened)}")

    def has(self, opened: Listener) -> bool:
        """Whether it is kept, so that the next gate serves it again."""
        return name_of(opened) in self._kept

    def keep_all_again(self) -> None:
        """Another keeper may listen at the address by now."""
        for opened in list(self._kept.values()):
            self.keep(opened)

    def say_ready(self) -> None:
        """This process is the gate from now on."""
        self._send(f"READY=1\nMAINPID={os.getpid()}")

    def _send(self, text: str, fds: list[int] | None = None) -> bool:
        if not self.address:
            return False
        # sd_notify(3): a name that begins with @ is an abstract one
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.settimeout(_TIMEOUT)
            try:
                sock.connect(address)
                if fds:
                    socket.send_fds(sock, [text.encode()], fds)
                else:
                    sock.send(text.encode())
            except OSError as error:
                log.warning("sockets not kept", address=self.address, error=(error.strerror or str(error)).lower())
                return False
        return True


def name_of(opened: Listener) -> str:
    """The FDNAME of a socket; empty when its path is too long for one."""
    return keptsockets.name(Place(opened.path, *opened.inode))


def found(environ: MutableMapping[str, str], pid: int) -> list[Found]:
    """The sockets that were handed to this process, taken out of its environment: children have none."""
    told, count, names = (environ.pop(f"LISTEN_{word}", "") for word in ("PID", "FDS", "FDNAMES"))
    if told != str(pid) or not count.isdecimal() or int(count) > _FDS_MAX:
        return []
    texts = [*names.split(":"), *[""] * int(count)]
    listed = [_found(_FIRST + number, texts[number]) for number in range(int(count))]
    return [one for one in listed if one is not None]


def _found(fd: int, name: str) -> Found | None:
    """What the name says, or for a socket that systemd made itself (socket activation) what the socket says."""
    try:
        os.set_inheritable(fd, False)
        place = keptsockets.parse(name)
        if place is not None:
            return Found(fd, place.path, (place.device, place.inode))
        with socket.socket(fileno=os.dup(fd)) as sock:
            return Found(fd, Path(sock.getsockname())) if sock.family == socket.AF_UNIX else None
    except (OSError, ValueError, TypeError):
        return None
