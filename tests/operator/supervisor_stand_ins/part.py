"""A small real part: holds the lock, answers on the control socket, ends at SIGTERM.

python part.py NAME --root ROOT [--hardware DIR]. It dies at once while ROOT/broken-NAME exists, and never answers
while ROOT/mute-NAME exists.
"""

from __future__ import annotations

import fcntl
import json
import os
import socketserver
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from gpugrant_crds.layout import Layout


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"ok": True, "message": "well", "since": "2026-03-01T12:00:00Z"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        return


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


def main() -> None:
    name, root = sys.argv[1], Path(sys.argv[3])
    layout = Layout(root)
    if (root / f"broken-{name}").exists():
        sys.exit(7)
    with layout.lock(name).open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock.truncate(0)
        lock.write(json.dumps({"pid": os.getpid(), "since": "2026-03-01T12:00:00Z"}))
        lock.flush()
        with (root / f"environ-{name}").open("w") as file:
            json.dump(dict(os.environ), file)
        if (root / f"mute-{name}").exists():
            os.read(os.pipe()[0], 1)
        layout.control(name).unlink(missing_ok=True)
        with Server(str(layout.control(name)), Handler) as server:
            server.serve_forever()


main()
