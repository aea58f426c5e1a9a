"""A repo's user, who reaches the gate's socket by its group, reaches nothing that grants (R50)."""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

import rig
from gpugrant_crds.layout import Layout

pytestmark = [pytest.mark.real, pytest.mark.must_run, pytest.mark.req("R50"), pytest.mark.timeout(300)]

NOBODY = 65534
GROUP = 54321
"""A group of no account: the socket's, as `group:` in a repo's file would set it."""
GPU = "nvidia.com/gpu=all"
GRANTS = "/apis/gpu.rediacc.io/v1alpha1/namespaces/default/repogpugrants"
BODY = {
    "apiVersion": "gpu.rediacc.io/v1alpha1",
    "kind": "RepoGpuGrant",
    "metadata": {"name": "mine"},
    "spec": {"machine": "workstation", "repo": "gpu-a", "device": GPU},
}

TRY = """
import json, os, socket, sys
root, said = sys.argv[1], {"connected": [], "readable": []}
for folder, _, names in os.walk(root):
    for name in names:
        path = os.path.join(folder, name)
        if path.endswith(".sock"):
            try:
                socket.socket(socket.AF_UNIX).connect(path)
            except OSError:
                continue
            said["connected"].append(path)
        elif os.path.isfile(path):
            try:
                with open(path, "rb") as file:
                    found = file.read()
            except OSError:
                continue
            said["readable"].append([path, [word for word in sys.argv[2:] if word.encode() in found]])
print(json.dumps(said))
"""


def as_user(code: str, *words: str) -> Any:
    """What the program prints, run as an account that has nothing but the socket's group."""
    done = subprocess.run(
        ["/usr/bin/env", "python3", "-c", code, *words],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[GROUP],
        env={"PATH": f"{Path(sys.executable).resolve().parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def gate_socket(system: rig.System) -> Path:
    """The socket of gpu-a, open to the group alone."""
    path = Layout(system.root).repo_socket("gpu-a")
    os.chown(path, 0, GROUP)
    path.chmod(0o660)
    system.root.chmod(0o755)
    return path


def ask(path: Path, method: str, target: str, body: bytes = b"") -> int:
    """The status of one raw request on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = client.recv(65536)
    return int(answer.split()[1])


def kubeconfig(system: rig.System) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(Layout(system.root).kubeconfig.read_text())
    return found


def test_no_file_and_no_socket_but_the_gates_is_open_to_them(system: rig.System, gate_socket: Path) -> None:
    token = kubeconfig(system)["users"][0]["user"]["token"]
    layout = Layout(system.root)
    assert stat.S_IMODE(layout.kubeconfig.stat().st_mode) == 0o600
    for part in ("gate", "apiserver", "operator", "supervisor"):
        assert stat.S_IMODE(layout.control(part).stat().st_mode) == 0o600
    secrets = [path.read_text().splitlines()[1] for path in (layout.store / "pki").glob("*.key")]
    assert len(secrets) == 2
    seen = as_user(TRY, str(system.root), token, *secrets)
    assert seen["connected"] == [str(gate_socket)]
    assert [path for path, words in seen["readable"] if words] == []
    assert len(seen["readable"]) > 1


@pytest.mark.parametrize("given", ["", "Bearer ", "Bearer x", "Basic eDp4", "Bearer null"])
def test_the_api_answers_nobody_without_the_token(system: rig.System, given: str) -> None:
    cluster = kubeconfig(system)["clusters"][0]["cluster"]
    ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
    for method, target in (
        ("GET", GRANTS),
        ("POST", GRANTS),
        ("PATCH", f"{GRANTS}/mine"),
        ("DELETE", GRANTS),
        ("GET", "/api/v1/secrets"),
        ("GET", "/apis"),
        ("POST", "/accept-deletes"),
    ):
        data = json.dumps(BODY).encode() if method in ("POST", "PATCH") else None
        headers = {"Content-Type": "application/json", **({"Authorization": given} if given else {})}
        request = urllib.request.Request(cluster["server"] + target, data=data, headers=headers, method=method)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, context=ssl.create_default_context(cadata=ca), timeout=10)
        assert refused.value.code == 401, (method, target)
        refused.value.close()


def test_the_gates_socket_has_no_way_to_a_grant(system: rig.System, gate_socket: Path) -> None:
    assert ask(gate_socket, "GET", "/_ping") == 200
    for method, target in (
        ("GET", "/healthz"),
        ("GET", "/v1/status"),
        ("GET", "/v1/snapshot"),
        ("PUT", "/v1/snapshot"),
        ("POST", "/v1/snapshot"),
        ("GET", GRANTS),
        ("POST", GRANTS),
        ("POST", "/accept-deletes"),
    ):
        assert ask(gate_socket, method, target, json.dumps(BODY).encode()) >= 400, (method, target)
    assert rig.succeeded(system.kubectl("get", "repogpugrants", "-A", "-o", "name")) == ""
    assert system.docker("gpu-a", "run", "--rm", "--device", GPU, "ubuntu:24.04", "true").returncode != 0


@pytest.mark.parametrize(
    "place", ["etc/rediacc/gpu", "etc/rediacc/gpu/kubeconfig", "var/lib/rediacc/gpu/state", "run/rediacc/gpu", "."]
)
def test_no_container_brings_the_token_or_a_control_socket_out(system: rig.System, place: str) -> None:
    mounted = system.docker("gpu-a", "run", "--rm", "-v", f"{system.root / place}:/x:ro", "ubuntu:24.04", "ls", "/x")
    assert mounted.returncode != 0, mounted.stdout
    assert "refused" in mounted.stderr
