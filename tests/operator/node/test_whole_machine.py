"""`renet setup` as it is typed on a machine of its own, without --root and --hardware: this Debian in an overlay with
the cards, driver and tools of a server laid over it, real apt and dpkg, the real nvidia-ctk.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator

import pytest

import nvidia_ctk
import whole_machine
from nvidia_machines import content
from whole_machine import Box, package

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]


@pytest.fixture
def box() -> Iterator[Box]:
    made = whole_machine.fresh()
    yield made
    shutil.rmtree(made.work)


@pytest.fixture
def server() -> Iterator[Box]:
    made = whole_machine.server()
    yield made
    shutil.rmtree(made.work)


@pytest.mark.req("R11", "R13", "R10")
def test_offline_it_is_one_sentence_and_the_rest_is_done(server: Box) -> None:
    """The real apt can't reach NVIDIA's repository: exit 1, an inventory with both cards, no half-made repository."""
    done = server.setup()
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if line.startswith("renet: ")]
    assert len(said) == 1
    assert said[0].startswith("renet: the NVIDIA Container Toolkit is not installed: apt-get says: E: ")
    assert said[0].endswith(": install the package nvidia-container-toolkit-base, then run renet setup again")
    assert [gpu.minor for gpu in server.inventory().gpus if gpu.vendor == "nvidia"] == [3, 0]
    assert not list((server.upper / "etc/apt").rglob("nvidia*"))


@pytest.mark.req("R11", "R13", "R14", "R17", "D6")
def test_apt_installs_the_toolkit_which_makes_the_spec(server: Box) -> None:
    """One command on a fresh server: package, spec, inventory; no runtime is configured; false then touches nothing."""
    package(server)
    done = server.setup()
    assert done.returncode == 0, done.stderr
    names = [name for name in server.inventory().device_names if name.startswith("nvidia")]
    uuids = [f"nvidia.com/gpu={card.uuid}" for card in nvidia_ctk.CARDS]
    assert names == ["nvidia.com/gpu=0", "nvidia.com/gpu=1", *uuids, "nvidia.com/gpu=all"]
    assert server.inventory().nvidia.toolkit_version == nvidia_ctk.NEWEST
    assert "hostPath: /usr/bin/nvidia-smi" in content(server.spec)
    assert not (server.upper / "etc/docker").exists()
    assert not (server.upper / "etc/containerd").exists()

    whole = server.spec.read_bytes()
    assert server.setup("--install-nvidia-toolkit", "false").returncode == 0
    (server.upper / "usr/bin/nvidia-ctk").write_text("#!/bin/sh\nexit 1\n")
    assert server.setup().returncode == 0
    assert server.spec.read_bytes() == whole
    assert server.setup("--install-nvidia-toolkit", "auto").returncode == 1
    assert server.spec.read_bytes() == whole


@pytest.mark.req("R13")
def test_true_without_a_card_installs_and_makes_no_spec(box: Box) -> None:
    """Exit 0; auto would have installed nothing."""
    for name in ("dev", "sys/bus/pci/devices", "proc/driver"):
        (box.machine.tree / name).mkdir(parents=True)
    box.machine.node("dev/null", 1, 3)
    package(box)
    assert box.setup().returncode == 0
    assert not (box.upper / "usr/bin/nvidia-ctk").exists()
    done = box.setup("--install-nvidia-toolkit", "true")
    assert done.returncode == 0, done.stderr
    assert (box.upper / "usr/bin/nvidia-ctk").exists()
    assert not box.spec.exists()
    assert box.inventory().nvidia.toolkit_version == nvidia_ctk.NEWEST


SYSTEMCTL = """#!/bin/sh
echo "$*" >>/var/log/systemctl
[ "$1 $2" = "restart nvidia-cdi-refresh.service" ] || exit 0
set -a
eval "$(sed -n 's/^Environment=//p' /lib/systemd/system/nvidia-cdi-refresh.service)"
. /etc/nvidia-container-toolkit/nvidia-cdi-refresh.env
set +a
exec $(sed -n 's/^ExecStart=//p' /lib/systemd/system/nvidia-cdi-refresh.service | tail -n 1)
"""


@pytest.mark.req("R42", "R43")
def test_where_systemd_runs_the_refresh_service_is_pointed_at_the_folder(server: Box) -> None:
    """On the machine itself: /etc/cdi/nvidia.yaml to the letter, and our own units name no other root."""
    package(server)
    (server.work / "systemctl").write_text(SYSTEMCTL)
    (server.work / "systemctl").chmod(0o755)
    done = server.setup()
    assert done.returncode == 0, done.stderr
    env = content(server.upper / "etc/nvidia-container-toolkit/nvidia-cdi-refresh.env")
    assert "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/etc/cdi/nvidia.yaml\n" in env
    assert "restart nvidia-cdi-refresh.service" in content(server.upper / "var/log/systemctl").splitlines()
    unit = content(server.upper / "etc/systemd/system/gpugrant-refresh.service")
    assert f"ExecStart={sys.executable} -m gpugrant_operator.cli.renet setup --offline\n" in unit
    assert "PathChanged=/etc/cdi/nvidia.yaml\n" in content(server.upper / "etc/systemd/system/gpugrant-refresh.path")
    assert server.inventory().problems == ()
