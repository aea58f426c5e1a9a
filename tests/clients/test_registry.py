"""pull, push and login at a gate: a registry in the network of the daemon, which reaches nothing else."""

from __future__ import annotations

import base64
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import intruder
import rig
from clientstand import GRANTED, IMAGE, Stand

pytestmark = [pytest.mark.real, pytest.mark.req("R4"), pytest.mark.timeout(180)]

HOST = "127.0.0.1:5000"
"""A registry of the daemon's own host needs no TLS."""
REPO = f"{HOST}/team/made"
CONFIG = """\
version: 0.1
log: {level: error}
storage: {filesystem: {rootdirectory: %(folder)s/images}, delete: {enabled: true}}
http: {addr: "127.0.0.1:5000"}
auth: {htpasswd: {realm: here, path: %(folder)s/htpasswd}}
"""
SECRET = "me:$2b$05$bz5is07NyUWaLjrQtbGHOeYrT5g.PeAdhmycgG/LGB2OAlxef7I0m\n"
"""me, with the password `secret`."""


@pytest.fixture(autouse=True)
def registry(stand: Stand, tmp_path: Path) -> Iterator[None]:
    brought = rig.script("tools", "registry")
    if brought.returncode:
        pytest.skip(brought.stderr.strip().splitlines()[-1])
    folder = tmp_path / "registry"
    folder.mkdir()
    (folder / "htpasswd").write_text(SECRET)
    (folder / "config.yml").write_text(CONFIG % {"folder": folder})
    inside = ["nsenter", "--net", "--target", str(stand.daemon.pid)]
    with (folder / "log").open("w") as log:
        running = subprocess.Popen(
            [*inside, brought.stdout.strip(), "serve", str(folder / "config.yml")], stdout=log, stderr=log
        )

    def answers() -> bool:
        tried = [*inside, "bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/5000"]
        return subprocess.run(tried, stderr=subprocess.DEVNULL, check=False).returncode == 0

    try:
        rig.wait_for(answers)
        yield
    finally:
        running.terminate()
        running.wait(10)
        stand.daemon.docker("rmi", "-f", f"{REPO}:1")


LOGIN = "echo secret | docker login -u me --password-stdin 127.0.0.1:5000 >/dev/null 2>&1\n"
SCRIPTS = {
    "push, pull, run": (
        LOGIN
        + f"""docker tag {IMAGE} {REPO}:1
docker push {REPO}:1 | grep -o 'digest: sha256'
docker rmi {REPO}:1 >/dev/null
docker pull {REPO}:1 | grep -o 'Downloaded newer image'
docker pull -q {REPO}:1
docker run --rm -q --pull always --device {GRANTED} {REPO}:1 ls /dev/nvidia0
docker pull {REPO}:none 2>&1 | grep -o 'manifest unknown' | head -1
""",
        f"digest: sha256\nDownloaded newer image\n{REPO}:1\n/dev/nvidia0\nmanifest unknown\n",
    ),
    "pull before run, and before a build": (
        LOGIN
        + f"""docker tag {IMAGE} {REPO}:1
docker push -q {REPO}:1
docker rmi {REPO}:1 >/dev/null
docker run --rm -q {REPO}:1 echo ran
docker rmi {REPO}:1 >/dev/null
printf 'FROM {REPO}:1\\nRUN echo built\\n' | docker build --pull --network none - | grep ^built
""",
        f"{REPO}:1\nran\nbuilt\n",
    ),
    "by Compose": (
        LOGIN
        + f"""docker tag {IMAGE} {REPO}:1
printf 'services: {{app: {{image: "{REPO}:1", command: echo up, devices: ["{GRANTED}"]}}}}\\n' >compose.yaml
docker push -q {REPO}:1
docker rmi {REPO}:1 >/dev/null
docker compose -p pulled pull -q
docker compose -p pulled up --no-log-prefix 2>/dev/null | grep -o 'up$'
docker compose -p pulled down 2>/dev/null
""",
        f"{REPO}:1\nup\n",
    ),
    "without a password": (
        f"""docker tag {IMAGE} {REPO}:1
docker push {REPO}:1 2>&1 | grep -o 'no basic auth credentials'
docker pull -q {REPO}:1 2>&1 | grep -o 'no basic auth credentials'
echo wrong | docker login -u me --password-stdin 127.0.0.1:5000 2>&1 | grep -o 401 | head -1
""",
        "no basic auth credentials\nno basic auth credentials\n401\n",
    ),
}


@pytest.mark.parametrize(("script", "expected"), SCRIPTS.values(), ids=SCRIPTS.keys())
def test_script(desk: dict[str, str], tmp_path: Path, script: str, expected: str) -> None:
    config = tmp_path / "config"  # of somebody who may keep a password
    config.mkdir()
    (config / "cli-plugins").symlink_to(Path(desk["DOCKER_CONFIG"]) / "cli-plugins")
    environ = {**desk, "DOCKER_CONFIG": str(config)}
    done = subprocess.run(
        ["sh", "-ec", script], env=environ, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=90
    )
    assert (done.returncode, done.stdout) == (0, expected), done.stdout + done.stderr


def test_progress_of_a_pull_comes_in_pieces(stand: Stand) -> None:
    """Layer by layer, with bytes counted, and not in one piece at the end."""
    auth = base64.urlsafe_b64encode(b'{"username": "me", "password": "secret"}').decode()
    stand.ok("run", "--name", "web", IMAGE, "sh", "-c", "head -c 20000000 /dev/urandom >/big")
    stand.ok("commit", "web", f"{REPO}:1")
    status, _ = intruder.ask(stand.socket, "POST", f"/images/{REPO}/push?tag=1", X_Registry_Auth=auth)
    assert status == 200
    stand.ok("rmi", f"{REPO}:1")
    pieces = []
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(60)
        sock.connect(str(stand.socket))
        sock.sendall(
            intruder.raw("POST", f"/v1.45/images/create?fromImage={REPO}&tag=1", None, f"X-Registry-Auth: {auth}")
        )
        while piece := sock.recv(65536):
            pieces.append(piece)
    said = b"".join(pieces)
    assert b'"status":"Downloading","progressDetail":{"current":' in said
    assert b"Downloaded newer image" in said
    assert len(pieces) > 5
