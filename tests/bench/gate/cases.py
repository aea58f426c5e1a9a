"""What is measured, a function each, in interleaved rounds: other work on the machine hits all sides alike."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import load
from load import median
from stand import Stand

import intruder

IMAGE = "ubuntu:24.04"
BIG = "bench-big:1"


@dataclass(frozen=True, slots=True)
class Options:
    rounds: int
    requests: int
    """Of one run of small ones."""
    megabytes: int
    """Of the image that is loaded and saved."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of design 12."""

    what: str
    value: float
    target: float
    unit: str = ""
    at_least: bool = False

    @property
    def reached(self) -> bool:
        return self.value >= self.target if self.at_least else self.value <= self.target

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        said = "reached" if self.reached else "NOT REACHED"
        return f"{said:12} {self.what:62} {self.value:8.2f} {self.unit:12} (target {sign} {self.target:g})"


def at_least(what: str, value: float, target: float, unit: str = "") -> Verdict:
    return Verdict(what, value, target, unit, at_least=True)


def small(stand: Stand, options: Options) -> list[Verdict]:
    """/_ping and /containers/json, 32 connections."""
    verdicts = []
    for target in ("/_ping", "/containers/json"):
        runs = _rounds(stand, options, target, 32, "direct", "haproxy", "haproxy-1", "ours")
        _table(f"GET {target}, 32 connections", runs)
        verdicts.append(at_least(f"GET {target}: requests/s", _ratio(runs, "ours", "haproxy"), 0.9, "x HAProxy"))
    return verdicts


def latency(stand: Stand, options: Options) -> list[Verdict]:
    """/_ping, 8 connections: what is added to the daemon's own time."""
    runs = _rounds(stand, options, "/_ping", 8, "direct", "haproxy", "ours")
    _table("GET /_ping, 8 connections", runs)
    added50 = median([ours.p50 - own.p50 for ours, own in zip(runs["ours"], runs["direct"], strict=True)])
    added99 = median([ours.p99 - own.p99 for ours, own in zip(runs["ours"], runs["direct"], strict=True)])
    theirs = median([run.p50 - own.p50 for run, own in zip(runs["haproxy"], runs["direct"], strict=True)])
    most = max(theirs, 0.19)
    return [
        Verdict(f"GET /_ping: added p50 (HAProxy adds {theirs:.2f} ms)", added50, round(most, 2), "ms"),
        Verdict("GET /_ping: added p99", added99, 1.0, "ms"),
    ]


def many(stand: Stand, options: Options) -> list[Verdict]:
    """/_ping, 200 connections."""
    runs = _rounds(stand, options, "/_ping", 200, "direct", "haproxy", "ours")
    _table("GET /_ping, 200 connections", runs)
    return [at_least("GET /_ping, 200 connections: requests/s", _ratio(runs, "ours", "haproxy"), 0.9, "x HAProxy")]


def cycle(stand: Stand, options: Options) -> list[Verdict]:
    """create, start, wait, remove: one container after the other."""
    times: dict[str, list[float]] = {}
    for _ in range(2 * options.rounds):
        for side in stand.some("direct", "haproxy", "ours"):
            times.setdefault(side.name, []).append(_one_container(side.socket))
    print("\ncreate, start, wait, remove (ms)")
    for name, found in times.items():
        print(f"  {name:10} p50 {median(found):8.1f}   p99 {load.quantile(found, 0.99):8.1f}")
    ratio = median(times["haproxy"]) / median(times["ours"])
    return [at_least("create, start, wait, remove: speed", ratio, 0.9, "x HAProxy")]


def _one_container(path: Path) -> float:
    began = time.perf_counter()
    body = {"Image": IMAGE, "Cmd": ["true"], "HostConfig": {"NetworkMode": "none"}}
    status, made = intruder.ask(path, "POST", "/containers/create", body)
    assert status == 201, made
    name = made["Id"]
    for method, target, wanted in (
        ("POST", f"/containers/{name}/start", 204),
        ("POST", f"/containers/{name}/wait", 200),
        ("DELETE", f"/containers/{name}", 204),
    ):
        status, said = intruder.ask(path, method, target)
        assert status == wanted, (target, said)
    return (time.perf_counter() - began) * 1000


def streams(stand: Stand, options: Options) -> list[Verdict]:
    """docker save and load of a large image: bytes a second, and the memory of what is in between."""
    direct = stand.sides["direct"].socket
    file = stand.root / "big.tar"
    _make_image(direct, options.megabytes)
    try:
        load.save(direct, f"/images/get?names={BIG}", file)
        runs: dict[str, Mapping[str, list[float]]] = {}
        largest: dict[str, float] = {}
        used: dict[str, float] = {}
        for kind in ("save", "load"):
            rates: dict[str, list[float]] = {}
            for _ in range(2):
                for side in stand.some("direct", "haproxy", "ours"):
                    before = side.cpu()
                    with load.sampled(side.rss) as seen:
                        rates.setdefault(side.name, []).append(_stream(kind, side.socket, file))
                    largest[side.name] = max(largest.get(side.name, 0), *seen)
                    used[side.name] = used.get(side.name, 0) + side.cpu() - before
            runs[kind] = rates
    finally:
        intruder.ask(direct, "DELETE", f"/images/{BIG}?force=1")
        file.unlink(missing_ok=True)
    print(f"\nsave and load of {options.megabytes} MB (MB/s)")
    for name in ("direct", "haproxy", "ours"):
        rates_of = "   ".join(f"{kind} {max(runs[kind][name]) / 1e6:7.0f}" for kind in runs)
        seconds = used[name] / (4 * options.megabytes / 1000)
        print(f"  {name:10} {rates_of}   CPU {seconds:5.2f} s/GB   largest process {largest[name]:5.0f} MB")
    verdicts = [
        at_least(f"docker {kind}: bytes/s", max(rates["ours"]) / max(rates["direct"]), 0.9, "x direct")
        for kind, rates in runs.items()
    ]
    return [*verdicts, Verdict("save and load: largest gate process", largest["ours"], 80, "MB")]


def _stream(kind: str, path: Path, file: Path) -> float:
    if kind == "save":
        return load.download(path, f"/images/get?names={BIG}")
    return load.upload(path, "/images/load?quiet=1", file)


def _make_image(path: Path, megabytes: int) -> None:
    """An image of one file of that size."""
    head = (
        b"big".ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + b"%011o\0" % (megabytes << 20) + b"0" * 11 + b"\0"
    )
    block = bytearray((head + b" " * 8 + b"0").ljust(512, b"\0"))
    block[257:265] = b"ustar\x0000"
    block[148:156] = b"%06o\0 " % sum(block)

    def pieces() -> Iterator[bytes]:
        yield bytes(block)
        for _ in range(megabytes):
            yield bytes(1 << 20)
        yield bytes(1024)

    connection = intruder.Unix(path)
    repository, _, tag = BIG.partition(":")
    target = f"/images/create?fromSrc=-&repo={repository}&tag={tag}"
    connection.request("POST", target, pieces(), {"Content-Type": "application/x-tar"}, encode_chunked=True)
    answer = connection.getresponse()
    said = answer.read()
    assert b"sha256:" in said, said
    connection.close()


def logs(stand: Stand, options: Options) -> list[Verdict]:
    """docker logs -f of a container that wrote 32 MB and then ends."""
    direct = stand.sides["direct"].socket
    command = "yes 0123456789012345678901234567890123456789012345678901234567890123 | head -c 32000000"
    body = {"Image": IMAGE, "Cmd": ["sh", "-c", command], "HostConfig": {"NetworkMode": "none"}}
    name = intruder.ask(direct, "POST", "/containers/create", body)[1]["Id"]
    rates: dict[str, list[float]] = {}
    try:
        intruder.ask(direct, "POST", f"/containers/{name}/start")
        intruder.ask(direct, "POST", f"/containers/{name}/wait")
        for _ in range(3):
            for side in stand.some("direct", "haproxy", "ours"):
                target = f"/containers/{name}/logs?stdout=1&follow=1"
                rates.setdefault(side.name, []).append(load.download(side.socket, target))
    finally:
        intruder.ask(direct, "DELETE", f"/containers/{name}?force=1")
    print("\nlogs -f (MB/s)")
    for side_name, found in rates.items():
        print(f"  {side_name:10} {max(found) / 1e6:7.1f}")
    return [at_least("docker logs -f: bytes/s", max(rates["ours"]) / max(rates["direct"]), 0.9, "x direct")]


def idle(stand: Stand, options: Options) -> list[Verdict]:
    """1,000 event streams on which nothing happens."""
    verdicts = []
    print("\n1,000 open event streams")
    for side in stand.some("haproxy", "ours"):
        with ExitStack() as stack:
            for _ in range(1000):
                sock = stack.enter_context(load.request(side.socket, "GET /events HTTP/1.1\nHost: docker"))
                assert b" 200 " in sock.recv(4096)
            time.sleep(1)
            before = side.cpu()
            time.sleep(5)
            used, memory = (side.cpu() - before) / 5 * 100, side.memory()
        print(f"  {side.name:10} {memory:6.0f} MB in all processes, shared memory once; CPU {used:.1f} %")
        if side.name == "ours":
            verdicts = [
                Verdict("1,000 idle event streams: memory of all processes", memory, 150, "MB"),
                Verdict("1,000 idle event streams: CPU", used, 0.5, "%"),
            ]
    return verdicts


def neighbours(stand: Stand, options: Options) -> list[Verdict]:
    """One client of repo two, while repo one sends the worst bodies that are allowed, slow heads, and floods."""
    other = stand.neighbour
    assert other is not None
    quiet, loud = [], []
    attacked = stand.sides["ours"].socket
    for _ in range(options.rounds):
        quiet += load.paced(other.socket, "/_ping", 2)
        with _hostile(attacked):
            time.sleep(0.5)
            loud += load.paced(other.socket, "/_ping", 2)
    print("\nGET /_ping of repo two, one each 2 ms (ms)")
    for name, times in (("quiet", quiet), ("beside", loud)):
        print(f"  {name:10} p50 {median(times):8.2f}   p99 {load.quantile(times, 0.99):8.2f}   max {max(times):8.2f}")
    ratio = load.quantile(loud, 0.99) / load.quantile(quiet, 0.99)
    return [Verdict("p99 of repo two beside a hostile repo one", ratio, 2.0, "x quiet")]


def worst_body() -> bytes:
    """A create that passes: near 2 MiB and 20,000 nodes."""
    environment = [f"E{number}={'x' * 90}" for number in range(19_000)]
    return json.dumps({"Image": "nothing:here", "Env": environment, "HostConfig": {}}).encode()


@contextmanager
def _hostile(path: Path) -> Iterator[None]:
    over = threading.Event()
    workers: tuple[Callable[[], None], ...] = (
        lambda: _post_worst(path, over), lambda: _slow_heads(path, over), lambda: _never_reads(path, over)
    )  # fmt: skip
    threads = [threading.Thread(target=worker) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _post_worst(path: Path, over: threading.Event) -> None:
    body = worst_body()
    request = intruder.raw("POST", "/containers/create", body)
    while not over.is_set():
        said = intruder.talk(path, request)
        assert intruder.statuses(said) == (404,), said[:300]


def _slow_heads(path: Path, over: threading.Event) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(200)]
        for client in clients:
            client.connect(str(path))
        while not over.wait(0.2):
            for client in clients:
                with suppress(OSError):
                    client.send(b"G")


def _never_reads(path: Path, over: threading.Event) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.settimeout(0.1)
        while not over.is_set():
            with suppress(TimeoutError):
                client.send(b"GET /containers/json?all=1 HTTP/1.1\r\nHost: d\r\n\r\n" * 100)


def _rounds(stand: Stand, options: Options, target: str, connections: int, *names: str) -> dict[str, list[load.Small]]:
    runs: dict[str, list[load.Small]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for side in stand.some(*names):
            runs[side.name].append(load.small(stand, side, target, options.requests, connections))
    return runs


def _table(title: str, runs: Mapping[str, list[load.Small]]) -> None:
    print(f"\n{title}")
    print(f"  {'':10} {'req/s':>8} {'x direct':>8} {'p50 ms':>8} {'p99 ms':>8} {'CPU us':>8} {'daemon us':>9}")
    for name, found in runs.items():
        fields = ("rate", "p50", "p99", "cpu", "daemon_cpu")
        rate, p50, p99, cpu, daemon = (median([getattr(run, field) for run in found]) for field in fields)
        ratio = _ratio(runs, name, "direct")
        print(f"  {name:10} {rate:8.0f} {ratio:8.2f} {p50:8.2f} {p99:8.2f} {cpu:8.0f} {daemon:9.0f}")


def _ratio(runs: Mapping[str, list[load.Small]], name: str, to: str) -> float:
    """The median of the rounds' own ratios."""
    return median([one.rate / other.rate for one, other in zip(runs[name], runs[to], strict=True)])


CASES: dict[str, Callable[[Stand, Options], list[Verdict]]] = {
    "small": small,
    "latency": latency,
    "many": many,
    "cycle": cycle,
    "streams": streams,
    "logs": logs,
    "idle": idle,
    "neighbours": neighbours,
}
