"""`renet setup` as it is typed on a machine of its own, with no --root and no --hardware: this Debian in an overlay with
the cards, driver and tools of a server laid over it, real apt and dpkg, the real nvidia-ctk.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import nvidia_ctk
import rig
from gpugrant_crds import inventory
from machines import Machine
from nvidia_machines import content

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

PROGRAMS = ("apt-get", "dpkg-deb", "unshare", "chroot", "mount")

BOX = """
set -eu
work=$1 tree=$2 checkout=$3
shift 3
root=$work/root
mkdir -p "$root"
mount -t overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/overlay" overlay "$root"
mount --rbind /proc "$root/proc"
mount -t tmpfs none "$root/run"
mount -t tmpfs none "$root/dev"
cp -a "$tree/dev/." "$root/dev/"
for name in zero random urandom; do cp -a "/dev/$name" "$root/dev/"; done
ln -s /proc/self/fd "$root/dev/fd"
mount --rbind "$tree/sys" "$root/sys"
mount -t tmpfs none "$root/proc/driver"
cp -a "$tree/proc/driver/." "$root/proc/driver/"
# where the project and its interpreter lie on file systems of their own
for place in "$checkout" "$(dirname "$tree")"; do
    mkdir -p "$root$place"
    mount --rbind "$place" "$root$place"
done
if [ -e "$work/systemctl" ]; then
    mkdir -p "$root/run/systemd/system"
    cp "$work/systemctl" "$root/usr/bin/systemctl"
fi
exec chroot "$root" "$@"
"""


@dataclass(frozen=True)
class Box:
    """The machine: `upper` is what it has written."""

    work: Path
    machine: Machine

    @property
    def upper(self) -> Path:
        return self.work / "upper"

    def run(self, *command: str) -> rig.Result:
        place = ["unshare", "--mount", "sh", "-c", BOX, "sh"]
        clean = {key: value for key, value in os.environ.items() if key not in ("GPUGRANT_ROOT", "KUBECONFIG")}
        paths = [str(self.work), str(self.machine.tree), str(rig.CHECKOUT)]
        return rig.run([*place, *paths, *command], environ=clean)

    def setup(self, *options: str) -> rig.Result:
        return self.run(sys.executable, "-m", "gpugrant_operator.cli.renet", "setup", *options)

    @property
    def spec(self) -> Path:
        return self.upper / "etc/cdi/nvidia.yaml"

    def inventory(self) -> inventory.Inventory:
        return inventory.parse((self.upper / "etc/rediacc/gpu/inventory.json").read_bytes())


@pytest.fixture
def box() -> Box:
    """A fresh one, on a file system that an overlay can lie on."""
    if os.geteuid() != 0 or any(shutil.which(name) is None for name in PROGRAMS):
        pytest.skip("a machine in an overlay needs root on a Debian")
    if Path("/etc/cdi").exists() or Path("/etc/rediacc").exists():
        pytest.skip("this machine is set up itself")
    folder = rig.short_folder()
    # apt reads as a user of its own
    folder.chmod(0o755)
    for name in ("upper", "overlay"):
        (folder / name).mkdir(mode=0o755)
    return Box(folder, Machine(folder / "machine/tree", folder))


@pytest.fixture
def server(box: Box) -> Box:
    """A server with two cards and its driver, without the toolkit."""
    nvidia_ctk.native(box.machine, nvidia_ctk.NEWEST)
    lay_driver(box)
    return box


@pytest.fixture(autouse=True)
def removed(box: Box) -> object:
    yield
    shutil.rmtree(box.work, ignore_errors=True)


def lay_driver(box: Box) -> None:
    """The driver's files at their places below /usr."""
    for path in ("usr/bin/nvidia-smi", *(f"{nvidia_ctk.LIBRARIES}/{name}" for name in libraries(box))):
        target = box.upper / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(box.machine.tree / path, target, follow_symlinks=False)
    for folder in ("usr", "usr/bin", "usr/lib", nvidia_ctk.LIBRARIES):
        (box.upper / folder).chmod(0o755)


def libraries(box: Box) -> list[str]:
    return sorted(path.name for path in (box.machine.tree / nvidia_ctk.LIBRARIES).iterdir())


def package(box: Box) -> None:
    """The toolkit's base package, made of the real programs, in a repository that the machine's apt knows already."""
    tree = box.work / "machine/package"
    (tree / "usr/bin").mkdir(parents=True)
    for path in nvidia_ctk.programs(nvidia_ctk.NEWEST).iterdir():
        shutil.copy(path, tree / "usr/bin")
    units = tree / "lib/systemd/system"
    units.mkdir(parents=True)
    for name in ("nvidia-cdi-refresh.service", "nvidia-cdi-refresh.path"):
        shutil.copyfile(nvidia_ctk.module(nvidia_ctk.NEWEST) / "deployments/systemd" / name, units / name)
    control = (
        f"Package: nvidia-container-toolkit-base\nVersion: {nvidia_ctk.NEWEST}-1\nArchitecture: amd64\n"
        "Maintainer: nobody <nobody@example.invalid>\nDepends: libc6\nDescription: for a test\n"
    )
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN/control").write_text(control)
    for folder in tree.rglob("*"):
        folder.chmod(0o755 if folder.is_dir() or folder.parent.name == "bin" else 0o644)
    deb = box.work / "machine/base.deb"
    subprocess.run(["dpkg-deb", "--build", "-Znone", str(tree), str(deb)], check=True, stdout=subprocess.DEVNULL)
    data = deb.read_bytes()
    (deb.parent / "Packages").write_text(
        f"{control}Filename: ./base.deb\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
    )
    lists = box.upper / "etc/apt/sources.list.d"
    lists.mkdir(parents=True)
    (box.upper / "etc").chmod(0o755)
    (lists / "company.list").write_text(f"deb [trusted=yes] file:{deb.parent} ./\n")
    only = ["-oDir::Etc::SourceList=/etc/apt/sources.list.d/company.list", "-oDir::Etc::SourceParts=-"]
    rig.succeeded(box.run("apt-get", "update", "-q", *only, "-oAPT::Get::List-Cleanup=0"))


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
