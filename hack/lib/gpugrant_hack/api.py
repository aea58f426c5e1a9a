"""A few calls to a Docker daemon over its Unix socket, without a client program."""

import http.client
import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlencode


class Unix(http.client.HTTPConnection):
    """An HTTP connection over a Unix socket; the timeout is in seconds."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connects; raises OSError when nobody listens."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def get(path: Path, url: str, timeout: float = 5.0) -> Any | None:
    """The JSON or text that is answered with 200; None for everything else."""
    connection = Unix(path, timeout)
    try:
        connection.request("GET", url)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            return None
        return json.loads(body) if "json" in answer.headers.get("Content-Type", "") else body.decode()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def answers(path: Path) -> bool:
    """Whether a daemon is ready."""
    return get(path, "/_ping") is not None


def import_image(path: Path, layer: bytes, *, repo: str, tag: str, changes: list[str]) -> str:
    """Makes an image of one layer; the daemon's complaint, empty when it is done."""
    query = urlencode([("fromSrc", "-"), ("repo", repo), ("tag", tag), *(("changes", item) for item in changes)])
    connection = Unix(path, timeout=120)
    try:
        headers = {"Content-Type": "application/x-tar"}
        connection.request("POST", f"/images/create?{query}", layer, headers)
        answer = connection.getresponse()
        body = answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return str(error)
    finally:
        connection.close()
    return body.strip() if answer.status != 200 or '"error"' in body else ""
