"""A small real HTTP server on a Unix socket that says of itself what a fit Docker daemon says, and has containers."""

from __future__ import annotations

import contextlib
import json
import re
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from gpugrant_crds import cdi
from gpugrant_operator.node import folder


@dataclass
class Daemon:
    """What it answers."""

    socket: Path
    cdi: Path
    containers: dict[str, Any] = field(default_factory=dict)
    """By id: the inspect answer."""
    says: dict[str, Any] = field(default_factory=dict)
    """What it says of itself otherwise than a fit one."""

    def runs(self, container: str, name: str, device: str) -> None:
        """A container that runs with a CDI device."""
        self.containers[container] = {
            "Id": container,
            "Name": f"/{name}",
            "State": {"Running": True, "Status": "running"},
            "HostConfig": {"DeviceRequests": [{"Driver": "cdi", "Count": 0, "DeviceIDs": [device]}]},
        }

    def devices(self) -> tuple[str, ...]:
        """The names in the CDI folder, as Docker lists them since 28.2."""
        return cdi.merge(folder.parse(folder.read(self.cdi))).names

    def answer(self, path: str) -> Any:
        path = re.sub(r"^/v[0-9.]+", "", path).partition("?")[0]
        if path == "/version":
            return {"Version": "28.5.2", "ApiVersion": "1.51", "MinAPIVersion": "1.24", **self.says}
        if path == "/info":
            return {
                "ServerVersion": "28.5.2",
                "CDISpecDirs": [str(self.cdi)],
                "DiscoveredDevices": [{"Source": "cdi", "ID": name} for name in self.devices()],
                "DefaultRuntime": "runc",
                "SecurityOptions": ["name=seccomp,profile=builtin"],
                "DockerRootDir": "/nonexistent",
                **self.says,
            }
        if path == "/containers/json":
            return [{"Id": found} for found in self.containers]
        return self.containers.get(path.split("/")[2] if path.startswith("/containers/") else "")


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


@contextlib.contextmanager
def serving(socket: Path, cdi: Path) -> Iterator[Daemon]:
    daemon = Daemon(socket, cdi)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path.partition("?")[0].endswith("/events"):
                self.stream()
                return
            found = daemon.answer(self.path)
            body = json.dumps({"message": "not here"} if found is None else found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def stream(self) -> None:
            """An answer without an end, until the client goes."""
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                self.rfile.read(1)
            self.close_connection = True

        def address_string(self) -> str:
            return "unix"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            return

    with _Server(str(socket), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield daemon
        finally:
            server.shutdown()
            thread.join()
