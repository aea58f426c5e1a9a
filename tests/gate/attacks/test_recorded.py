"""Whatever bytes a tenant sends: the daemon hears nothing before the decision, and what it hears is what was judged.

A gate of its own stands before a daemon that keeps every byte. What passes is held against the decision of the pure
policy, so that between the judge and the daemon nothing is added, doubled or lost, however the bytes came in.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import intruder
import rig
from corpus.changes import CHANGES, changed, fitted
from dockerclient import ID, NVIDIA, inspected
from fuzz.targets import STEPS, check_harmless
from gpugrant_gate.wire import framing, heads
from gpugrant_gate.wire.faults import Truncated

pytestmark = [pytest.mark.req("R1", "R4", "R5", "R45"), pytest.mark.timeout(300)]

RUN = (
    "import sys; from pathlib import Path; from gpugrant_gate.main import run_trial; root = Path(sys.argv[1]); "
    "sys.exit(run_trial(listen=root / 'l.sock', upstream=root / 'd.sock', name='a', grants=sys.argv[2:], root=root))"
)
FACTS = re.compile(
    r"/version|/v[0-9.]+/(?:info|containers/[^/]+/json|exec/[^/]+/json|volumes/[^/]+|networks/[^/]+|images/.+/json"
    r"|events\?filters=[^&]+|containers/json\?all=1)"
)
"""What the gate itself asks."""
MARK = b"Server: recorder\r\n"
"""In each answer of the daemon's, so that it is told from the gate's own."""


@dataclass(slots=True)
class Recorder:
    """A daemon that keeps every request whole, and answers in one word."""

    cdi: Path
    requests: list[tuple[str, str, bytes]] = field(default_factory=list)
    """Method, target, body: of all but what the gate itself may have asked."""
    questions: int = 0
    """Of the gate's own, or in the same words."""
    odd: list[bytes] = field(default_factory=list)
    """Bytes that are no whole request of the gate's."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def hear(self, method: str, target: str, headers: dict[str, str], body: bytes) -> bytes:
        own = method == "GET" and FACTS.fullmatch(target) and "user-agent" not in headers
        with self.lock:
            if own:
                self.questions += 1
            else:
                self.requests.append((method, target, body))
        if "upgrade" in headers:
            return b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n%b\r\n" % MARK
        status, said = self._answer(target)
        text = json.dumps(said).encode()
        head = b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n" % (status, MARK, len(text))
        return head if method == "HEAD" else head + text

    def _answer(self, target: str) -> tuple[bytes, Any]:
        path = re.sub(r"^/v[0-9.]+", "", target).partition("?")[0]
        if path == "/version":
            return b"200 OK", {"Version": "28.5.2", "ApiVersion": "1.51"}
        if path == "/info":
            security = ["name=seccomp,profile=builtin"]
            return b"200 OK", {
                "CDISpecDirs": [str(self.cdi)], "DefaultRuntime": "runc", "SecurityOptions": security,
            }  # fmt: skip
        if re.fullmatch(r"/containers/[^/]+/json", path):
            return b"200 OK", inspected()
        if re.fullmatch(r"/exec/[^/]+/json", path):
            return b"200 OK", {"ContainerID": ID, "ProcessConfig": {"privileged": False}}
        if path.startswith(("/volumes/", "/networks/", "/images/")):
            return b"404 Not Found", {"message": "not here"}
        return b"200 OK", {"Id": ID}


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        recorder = self.server.recorder
        while lines := list(self._head()):
            try:
                read = heads.parse_request(b"".join(lines))
                body = self._body(read.framing)
            except Truncated:
                return  # the upload of a client that went away
            except ValueError:
                recorder.odd.append(b"".join(lines))
                return
            headers = dict(read.headers)
            self.wfile.write(recorder.hear(read.method, read.target, headers, body))
            if "upgrade" in headers:
                while self.rfile.read1(65536):
                    pass
                return
            if headers.get("connection") == "close":
                return

    def _head(self) -> Iterator[bytes]:
        while line := self.rfile.readline():
            yield line
            if line == b"\r\n":
                return

    def _body(self, frame: framing.Framing) -> bytes:
        decoder = framing.decoder(frame)
        body = b""
        while not decoder.done:
            piece = self.rfile.read1(65536)
            body += decoder.feed(piece)
            if not piece:
                decoder.eof()
        return body


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 128
    recorder: Recorder


@dataclass(slots=True)
class Pair:
    """A gate and the daemon behind it."""

    gate: Path
    recorder: Recorder

    def send(self, pieces: list[bytes]) -> tuple[bytes, list[tuple[str, str, bytes]]]:
        """The gate's answer to these bytes, and what the daemon heard of them."""
        self.recorder.requests.clear()
        self.recorder.questions = 0
        self.recorder.odd.clear()
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(intruder.HANG)
            sock.connect(str(self.gate))
            answer = b""
            try:
                for number, piece in enumerate(pieces):
                    if number:
                        time.sleep(0.001)
                    sock.sendall(piece)
                sock.shutdown(socket.SHUT_WR)
                while said := sock.recv(65536):
                    answer += said
            except (BrokenPipeError, ConnectionResetError):
                pass
        return answer, [*self.recorder.requests]


@contextmanager
def _pair(*grants: str) -> Iterator[Pair]:
    root = rig.short_folder()
    recorder = Recorder(root / "etc/cdi")
    recorder.cdi.mkdir(parents=True)
    (root / "machine").mkdir()
    with _Server(str(root / "d.sock"), _Handler) as server:
        server.recorder = recorder
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        command = [sys.executable, "-P", "-c", RUN, str(root), *grants]
        with (root / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log, env=os.environ) as run:
            try:
                rig.wait_for(lambda: (root / "l.sock").exists())
                pair = Pair(root / "l.sock", recorder)
                rig.wait_for(lambda: b"200 OK" in pair.send([intruder.raw("GET", "/_ping")])[0])
                yield pair
                assert run.poll() is None
                assert b"Traceback" not in (root / "log").read_bytes()
                assert b"session failed" not in (root / "log").read_bytes()
            finally:
                run.terminate()
                server.shutdown()
                thread.join()
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def granted() -> Iterator[Pair]:
    with _pair(NVIDIA) as pair:
        yield pair


@pytest.fixture(scope="module")
def bare() -> Iterator[Pair]:
    with _pair() as pair:
        yield pair


SEEDS = [step for step in dict.fromkeys(STEPS) if len(step) < 20_000] + [
    intruder.create(intruder.cdi(NVIDIA)),
    intruder.create(intruder.host(Devices=[
        {"PathOnHost": NVIDIA, "PathInContainer": NVIDIA, "CgroupPermissions": "rwm"},
    ])),
    intruder.raw("POST", "/containers/c/restart?t=1"),
    intruder.raw("POST", "/images/load", b"x" * 600, "Content-Type: application/x-tar", close=False),
    intruder.lines("POST /build HTTP/1.1", "Host: d", "Transfer-Encoding: chunked", body=intruder.chunked(b"ab", b"c")),
]  # fmt: skip
MALFORMED = re.compile(rb"HTTP/1.1 (?:400|431|505) (?:(?!HTTP/1).)*\[wire\.(?:(?!HTTP/1).)*\Z", re.DOTALL)
"""Which of several faults is named may hang on how much has come."""
QUICK = settings(
    max_examples=250,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
BYTES = st.builds(
    lambda seed, changes, fit: fitted(changed(seed, changes)) if fit else changed(seed, changes),
    st.sampled_from(SEEDS),
    CHANGES | st.just([]),
    st.booleans(),
)


def check_heard(pair: Pair, answer: bytes, heard: list[tuple[str, str, bytes]], names: tuple[str, ...]) -> None:
    """What reached the daemon was admitted: as many requests as answers that are its own, and none with power."""
    assert pair.recorder.odd == []
    assert not answer or intruder.STATUS.match(answer), answer
    restarts = sum(
        re.sub(r"/stop(\?.*)?$", "/start", one[1]) == two[1] for one, two in pairwise(heard) if "/stop" in one[1]
    )
    passed = len(heard) - restarts
    assert passed <= answer.count(MARK) <= passed + pair.recorder.questions, (heard, answer)
    for method, target, body in heard:
        assert re.match(r"/v[0-9]+\.[0-9]+/|/_ping", target), (method, target)
        if method == "POST" and body.startswith(b"{"):
            check_harmless(json.loads(body), names)


@QUICK
@given(data=BYTES)
def test_the_daemon_hears_only_what_passed(granted: Pair, data: bytes) -> None:
    check_heard(granted, *granted.send([data]), (NVIDIA,))


@QUICK
@given(data=BYTES)
def test_without_a_grant_it_hears_of_no_device(bare: Pair, data: bytes) -> None:
    answer, heard = bare.send([data])
    check_heard(bare, answer, heard, ())
    assert not any(b"DeviceIDs" in body for _, target, body in heard if "containers/create" in target)


@QUICK
@given(data=BYTES, cuts=st.lists(st.integers(0, 2**16), min_size=1, max_size=4))
def test_cuts_change_nothing(granted: Pair, data: bytes, cuts: list[int]) -> None:
    places = sorted(cut % (len(data) + 1) for cut in cuts)
    pieces = [data[begin:end] for begin, end in zip([0, *places], [*places, len(data)], strict=True)]
    whole, heard = granted.send([data])
    cut, heard_in_pieces = granted.send([piece for piece in pieces if piece] or [b""])
    assert heard_in_pieces == heard
    assert MALFORMED.sub(b"", cut) == MALFORMED.sub(b"", whole)


@pytest.mark.parametrize("steps", [[seed] for seed in SEEDS[-5:]])
def test_what_should_pass_is_heard(granted: Pair, steps: list[bytes]) -> None:
    """The laws above are not empty."""
    _, heard = granted.send(steps)
    assert heard


def test_an_unfinished_request_is_never_heard(granted: Pair) -> None:
    """Every beginning of a request that would pass."""
    data = intruder.create(intruder.cdi(NVIDIA))
    for end in range(len(data)):
        _, heard = granted.send([data[:end]])
        assert heard == [], data[:end]


def test_one_more_grant_never_refuses_what_passed(granted: Pair, bare: Pair) -> None:
    for seed in SEEDS:
        without, with_it = bare.send([seed]), granted.send([seed])
        if intruder.statuses(without[0]) and all(status < 400 for status in intruder.statuses(without[0])):
            assert with_it == without
