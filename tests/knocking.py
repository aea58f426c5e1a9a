"""Clients that connect again and again, each for one request, and count what becomes of it."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from pathlib import Path
from typing import Self

REQUEST = b"GET /version HTTP/1.1\r\nHost: d\r\nConnection: close\r\n\r\n"
PATIENCE = 60.0
"""Seconds for an answer: a gate that starts takes some on a machine under load."""
PAUSE = 0.003
"""Seconds between two requests of one client."""


class Knocking:
    """Some clients of one socket, while the context is open."""

    def __init__(self, path: Path, clients: int = 4) -> None:
        self.refused: list[str] = []
        """Every connect(2) that failed."""
        self.cut = 0
        """Connections that ended without an answer: whoever had accepted them was killed."""
        self.answered = 0
        self._path = str(path)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(clients)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Returns when the last one has its answer."""
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        # beside the loop: the daemon that answers may live in it
        await asyncio.to_thread(self.stop)

    def more(self, count: int = 20) -> bool:
        """Whether so many were answered since the last time that this was so."""
        if self.answered < count:
            return False
        self.answered = 0
        return True

    def _run(self) -> None:
        while not self._over.is_set():
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(PATIENCE)
                try:
                    client.connect(self._path)
                except OSError as error:
                    self.refused.append(repr(error))
                    continue
                try:
                    client.sendall(REQUEST)
                    answer = client.recv(65536)
                except OSError:
                    answer = b""
            if answer.startswith(b"HTTP/1.1 200"):
                self.answered += 1
            else:
                self.cut += 1
            time.sleep(PAUSE)
