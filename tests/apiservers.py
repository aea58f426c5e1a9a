"""Two API servers to hold against each other: Kubernetes' own with an etcd, and ours, each on free ports."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives import serialization

import rig
from gpugrant_operator.apiserver import tls
from gpugrant_operator.apiserver.store.disk import Disk

sys.path.insert(0, str(rig.HACK / "lib"))

from gpugrant_hack import cache
from gpugrant_hack.kubernetes import VERSION

USER = "gpugrant-admin"
SERVE = rig.CHECKOUT / "tests/operator/apiserver/differential/serve.py"
START = 90.0
"""Seconds that a server may take to be ready on a busy machine."""


class NotStarted(Exception):
    """A server did not get ready; the message has the last lines that it wrote."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`body` is the parsed JSON, or the text of another type; of a watch the list of its events."""

    code: int
    headers: Mapping[str, str]
    body: Any


@dataclass
class ApiServer:
    """One that runs; a connection is kept open between questions."""

    name: str
    port: int
    ca: str
    token: str
    kubeconfig: Path
    processes: tuple[subprocess.Popen[bytes], ...]
    _connection: http.client.HTTPSConnection | None = field(default=None, repr=False)

    def connect(self) -> http.client.HTTPSConnection:
        """A connection of its own."""
        context = ssl.create_default_context(cadata=self.ca)
        return http.client.HTTPSConnection(tls.HOST, self.port, context=context, timeout=60)

    def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Answer:
        """Sends one request; an idle connection that the server closed is opened anew, once."""
        sent = {"Authorization": f"Bearer {self.token}", **(headers or {})}
        for last in (False, True):
            connection = self._connection = self._connection or self.connect()
            try:
                connection.request(method, path, body, sent)
                answered = connection.getresponse()
                break
            except (ConnectionError, http.client.RemoteDisconnected):
                connection.close()
                self._connection = None
                if last:
                    raise
        data = answered.read()
        told = {key.lower(): value for key, value in answered.getheaders() if key.lower() != "warning"}
        told["warning"] = ", ".join(answered.headers.get_all("Warning") or ())
        return Answer(answered.status, told, _parsed(data, told.get("content-type", ""), _watches(path)))

    def close(self) -> None:
        """Ends the kept connection."""
        if self._connection is not None:
            self._connection.close()

    def create(self, path: str, body: Any) -> Answer:
        return self.ask("POST", path, {"Content-Type": "application/json"}, json.dumps(body).encode())

    def memory(self) -> int:
        """Resident bytes of all its processes."""
        pages = (Path(f"/proc/{each.pid}/statm").read_text().split()[1] for each in self.processes)
        return sum(int(page) * 4096 for page in pages)


def _watches(path: str) -> bool:
    return "watch=true" in path or "watch=1" in path


def _parsed(data: bytes, content_type: str, watches: bool) -> Any:
    if not content_type.startswith("application/json"):
        return data.decode(errors="replace")
    if watches:
        return [json.loads(line) for line in data.splitlines() if line.strip()]
    return json.loads(data) if data else ""


@contextmanager
def kubernetes(crds: Sequence[Mapping[str, Any]]) -> Iterator[ApiServer]:
    """The real one, with these CRDs served. Raises NotStarted, or CalledProcessError where there are no programs."""
    etcd, program = (_tool(name) for name in ("etcd", "kube-apiserver"))
    with _folder() as folder, contextlib.ExitStack() as stack:
        served = stack.enter_context(_with_free_ports(folder, etcd, program))
        for crd in crds:
            made = served.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
            if made.code != 201:
                raise NotStarted(f"the CRD {crd['metadata']['name']} is refused: {made.body}")
        for crd in crds:
            _wait_for_crd(served, crd)
        yield served


@contextmanager
def ours(crds: Sequence[Mapping[str, Any]]) -> Iterator[ApiServer]:
    """Ours, without the rules of our own kinds: the real one can't have them without a webhook."""
    with _folder() as folder:
        (folder / "crds.json").write_text(json.dumps(list(crds)))
        command = [sys.executable, "-P", str(SERVE), str(folder / "root"), str(folder / "crds.json")]
        with _running(command, folder / "ours.log") as process:
            _wait(lambda: _line(folder / "ours.log", "kubeconfig "), (process,), folder / "ours.log")
            kubeconfig = Path(_line(folder / "ours.log", "kubeconfig "))
            served = _from_kubeconfig(kubeconfig, process)
            _wait(lambda: _ready(served), (process,), folder / "ours.log")
            with contextlib.closing(served):
                yield served


def is_built() -> bool:
    """Whether the real one is in the cache: then it starts in some seconds."""
    store = cache.folder(os.environ)
    return (store / f"kube-apiserver-{VERSION}").is_dir() and (store / "etcd").is_dir()


def _tool(name: str) -> Path:
    done = subprocess.run([str(rig.HACK / "tools"), name], check=True, stdout=subprocess.PIPE, text=True)
    return Path(done.stdout.strip())


@contextmanager
def _folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="gg-api-", dir="/tmp"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def _with_free_ports(folder: Path, etcd: Path, program: Path) -> Iterator[ApiServer]:
    """Another program may take a port between its choice and its use: then it is tried with others."""
    with contextlib.ExitStack() as stack:
        for attempt in range(3):
            try:
                served = stack.enter_context(_kubernetes(folder / str(attempt), etcd, program))
                break
            except NotStarted:
                if attempt == 2:
                    raise
        yield served


@contextmanager
def _kubernetes(folder: Path, etcd: Path, program: Path) -> Iterator[ApiServer]:
    folder.mkdir()
    client, peer, port = _free_ports(3)
    identity = tls.ensure(folder / "pki", Disk(), datetime.now(UTC))
    account = folder / "account.key"
    key = serialization.load_pem_private_key(identity.key.read_bytes(), password=None)
    shape = (serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    account.write_bytes(key.private_bytes(*shape))
    (folder / "tokens.csv").write_text(f'{identity.token},{USER},admin,"system:masters"\n')
    at, among = f"http://{tls.HOST}:{client}", f"http://{tls.HOST}:{peer}"
    store = [str(etcd), "--unsafe-no-fsync", "--data-dir", str(folder / "etcd"), "--log-level", "error"]
    store += ["--listen-client-urls", at, "--advertise-client-urls", at, "--listen-peer-urls", among]
    store += ["--initial-advertise-peer-urls", among, "--initial-cluster", f"default={among}"]
    flags = {
        "etcd-servers": at,
        "bind-address": tls.HOST,
        "secure-port": port,
        "endpoint-reconciler-type": "none",
        "tls-cert-file": identity.certificate,
        "tls-private-key-file": identity.key,
        "token-auth-file": folder / "tokens.csv",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": account,
        "service-account-signing-key-file": account,
        "authorization-mode": "RBAC",
        "service-cluster-ip-range": "10.96.0.0/16",
        "disable-admission-plugins": "ServiceAccount",
    }
    command = [str(program), *(f"--{name}={value}" for name, value in flags.items())]
    with _running(store, folder / "etcd.log") as keeper, _running(command, folder / "api.log") as process:
        ca = identity.ca.decode()
        kubeconfig = _write_kubeconfig(folder / "kubeconfig", port, ca, identity.token)
        served = ApiServer("kube-apiserver", port, ca, identity.token, kubeconfig, (process, keeper))
        _wait(lambda: _ready(served), (process, keeper), folder / "api.log")
        _wait(lambda: served.ask("GET", "/api/v1/namespaces/default").code == 200, (process,), folder / "api.log")
        with contextlib.closing(served):
            yield served


def _write_kubeconfig(path: Path, port: int, ca: str, token: str) -> Path:
    (path.parent / "ca.crt").write_text(ca)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "real",
        "contexts": [{"name": "real", "context": {"cluster": "real", "user": "real"}}],
        "clusters": [
            {
                "name": "real",
                "cluster": {
                    "server": f"https://{tls.HOST}:{port}",
                    "certificate-authority": str(path.parent / "ca.crt"),
                },
            }
        ],
        "users": [{"name": "real", "user": {"token": token}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


def _from_kubeconfig(path: Path, process: subprocess.Popen[bytes]) -> ApiServer:
    config = yaml.safe_load(path.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
    port = int(cluster["server"].rpartition(":")[2])
    return ApiServer("gpugrant", port, ca, user["token"], path, (process,))


def _wait_for_crd(served: ApiServer, crd: Mapping[str, Any]) -> None:
    """Served a moment after it is established: first the list, then its schema."""
    spec = crd["spec"]
    path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    _wait(lambda: served.ask("GET", path).code == 200, served.processes, None)
    schema = f"/openapi/v3/apis/{spec['group']}/{spec['versions'][0]['name']}"
    kind = f'"{spec["names"]["kind"]}"'
    _wait(lambda: kind in json.dumps(served.ask("GET", schema).body), served.processes, None)


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.bind((tls.HOST, 0))
        return [each.getsockname()[1] for each in held]


def _ready(served: ApiServer) -> bool:
    try:
        return served.ask("GET", "/readyz").code == 200
    except OSError:
        return False


def _line(log: Path, start: str) -> str:
    lines = log.read_text().splitlines() if log.exists() else []
    return next((line.removeprefix(start) for line in lines if line.startswith(start)), "")


def _wait(check: Any, processes: Sequence[subprocess.Popen[bytes]], log: Path | None) -> None:
    until = time.monotonic() + START
    while not check():
        if time.monotonic() > until or any(each.poll() is not None for each in processes):
            said = log.read_text(errors="replace")[-2000:] if log else "what was waited for did not come"
            raise NotStarted(said)
        time.sleep(0.05)
