"""The docker command of both generations at a gate: what people type prints what it prints at a daemon's own socket."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import clientstand
import rig
from clientstand import GRANTED, IMAGE, Stand

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

HERE = Path(__file__).parent
EVERYDAY = HERE.parent / "gate/attacks/clients.txt"
"""Run there with the newer docker."""


def prints(script: str, expected: str, desk: dict[str, str], folder: Path) -> None:
    done = subprocess.run(
        ["sh", "-ec", script], env=desk, cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, expected), done.stdout + done.stderr


@pytest.mark.req("R4", "R5", "R23", "R37")
@pytest.mark.parametrize(("script", "expected"), clientstand.plays(HERE / "docker.txt"))
def test_script(desk: dict[str, str], tmp_path: Path, script: str, expected: str) -> None:
    prints(script, expected, desk, tmp_path)


@pytest.mark.req("R4", "R5", "R37")
@pytest.mark.parametrize("stand", ["26"], indirect=True)
@pytest.mark.parametrize(("script", "expected"), clientstand.plays(EVERYDAY))
def test_the_older_docker_too(desk: dict[str, str], tmp_path: Path, script: str, expected: str) -> None:
    prints(script, expected, desk, tmp_path)


@pytest.mark.req("R4", "R23")
def test_a_docker_of_another_generation_than_the_daemon(stand: Stand) -> None:
    """They agree on the API of the older one."""
    (client,) = set(clientstand.GENERATIONS) - {stand.daemon.engine}

    def other(*words: str, text: str = "") -> str:
        return rig.succeeded(stand.daemon.docker(*words, socket=stand.socket, client=client, text=text))

    assert other("version", "-f", "{{.Client.APIVersion}}") == "1.45"
    assert other("run", "--rm", "--device", GRANTED, IMAGE, "ls", "/dev/nvidia0") == "/dev/nvidia0"
    other("run", "-d", "--name", "web", IMAGE, "sleep", "600")
    assert other("exec", "-i", "web", "cat", text="in") == "in"
    assert other("ps", "--format", "{{.Names}}") == "web"


CDI = f"write docker run --device {GRANTED}"
OF_CARD = "write docker run --device nvidia.com/gpu="
REFUSED = {
    "--gpus all": ("--gpus all", CDI),
    "--gpus, a count": ("--gpus 2", CDI),
    "--gpus, a card": ("--gpus device=0", "write docker run --device nvidia.com/gpu=0"),
    "--gpus, a CDI name": (f"--gpus device={GRANTED}", CDI),
    "--gpus, driver cdi": (f"--gpus driver=cdi,device={GRANTED}", CDI),
    "--gpus, capabilities": ("--gpus capabilities=utility,count=1", CDI),
    "--gpus and a granted device": (f"--gpus all --device {GRANTED}", CDI),
    "--runtime nvidia": ("--runtime nvidia", CDI),
    "--runtime, a shim": ("--runtime io.containerd.runsc.v1", CDI),
    "--device /dev/nvidia0": ("--device /dev/nvidia0", OF_CARD),
    "--device /dev/nvidiactl": ("--device /dev/nvidiactl:/dev/x:rw", OF_CARD),
    "--device /dev/dxg": ("--device /dev/dxg", OF_CARD),
    "--device /dev/dri": ("--device /dev/dri", "rediacc.io/dri=renderD128"),
    "--device, a render node": ("--device /dev/dri/renderD129", "rediacc.io/dri="),
    "--device /dev/kfd": ("--device /dev/kfd", "rediacc.io/amd=gpu0"),
    "--device, another": ("--device /dev/fuse", "only a device with a CDI name and a grant passes"),
    "-v /dev": ("-v /dev:/host", "/dev"),
    "-v /dev/dri": ("-v /dev/dri:/dev/dri", "rediacc.io/dri="),
    "--mount /dev/nvidia0": ("--mount type=bind,src=/dev/nvidia0,dst=/dev/nvidia0", "nvidia.com/gpu="),
    "--device-cgroup-rule": ("--device-cgroup-rule 'c 195:* rwm'", "a device comes by a CDI grant"),
    "--privileged": ("--privileged", "it opens every device of the machine"),
    "--cap-add ALL": ("--cap-add ALL", "ALL"),
    "--cap-add SYS_ADMIN": ("--cap-add SYS_ADMIN", "SYS_ADMIN"),
    "--pid host": ("--pid host", "pid"),
    "--security-opt systempaths": ("--security-opt systempaths=unconfined", "MaskedPaths"),
    "--volume-driver": ("--volume-driver x -v v:/v", "x"),
    "-v the Docker socket": ("-v /var/run/docker.sock:/var/run/docker.sock", "add host.docker-socket to `open:`"),
}


@pytest.mark.req("R30", "R31", "R34", "R35", "R45", "R46")
@pytest.mark.parametrize(("options", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_spelling(stand: Stand, desk: dict[str, str], options: str, said: str) -> None:
    """With a grant in force; nothing is made, and the message names the form to use."""
    script = f"docker run --rm --name intruder {options} {IMAGE} true"
    done = subprocess.run(["sh", "-c", script], env=desk, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "Error response from daemon: " in done.stderr
    assert said in done.stderr
    assert stand.daemon.docker("inspect", "intruder").returncode != 0


@pytest.mark.req("R24")
def test_a_missing_grant_is_named(stand: Stand) -> None:
    for word in ("run", "create"):
        assert stand.no_grant in stand.refused(word, "--device", clientstand.UNGRANTED, IMAGE, "true")


@pytest.mark.req("R45")
def test_other_ways_in_are_refused(stand: Stand) -> None:
    stand.ok("run", "-d", "--name", "web", IMAGE, "sleep", "600")
    assert "privileged" in stand.refused("exec", "--privileged", "web", "true")
    assert "checkpoint" in stand.refused("start", "--checkpoint", "x", "web")
    assert "plugin" in stand.refused("plugin", "install", "--grant-all-permissions", "x")
    assert "swarm" in stand.refused("swarm", "init")
    assert "docker.volume" not in stand.refused(
        "volume", "create", "-o", "type=none", "-o", "o=bind", "-o", "device=/dev"
    )
    assert "macvlan" in stand.refused("network", "create", "-d", "macvlan", "-o", "parent=eth0", "m")
