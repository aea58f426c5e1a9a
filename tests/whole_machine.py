"""A whole machine in an overlay: this Debian with the cards, driver and tools of a server laid over it. What runs in it
sees no other root; what it writes lies in a folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import nvidia_ctk
import rig
from gpugrant_crds import inventory
from machines import Machine

PROGRAMS = ("apt-get", "dpkg-deb", "unshare", "chroot", "mount")

BOX = """
set -eu
work=$1 tree=$2 checkout=$3
shift 3
root=$work/root
mkdir -p "$root"
mount -t overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/overlay" overlay "$root"
mount -t proc proc "$root/proc"
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
if [ "$1" = BOOT ]; then
    for name in pts shm; do mkdir "$root/dev/$name"; done
    mkdir -p "$root/sys/fs/cgroup"
    mount -t tmpfs none "$root/sys/fs/cgroup"
    mkdir "$root/sys/fs/cgroup/systemd"
    mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
    exec chroot "$root" env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
        /lib/systemd/systemd --unit=box.target --log-target=console
fi
exec chroot "$root" "$@"
"""

CGROUP = Path("/sys/fs/cgroup/systemd")
"""The hierarchy in which a systemd in a box has its own part."""


@dataclass(frozen=True)
class Box:
    """The machine: `upper` is what it has written."""

    work: Path
    machine: Machine

    @property
    def upper(self) -> Path:
        return self.work / "upper"

    def run(self, *command: str) -> rig.Result:
        """A command on the machine, which is up for as long as it runs."""
        place = ["unshare", "--mount", "sh", "-c", BOX, "sh"]
        clean = {key: value for key, value in os.environ.items() if key not in ("GPUGRANT_ROOT", "KUBECONFIG")}
        paths = [str(self.work), str(self.machine.tree), str(rig.CHECKOUT)]
        return rig.run([*place, *paths, *command], environ=clean)

    def setup(self, *options: str) -> rig.Result:
        return self.run(sys.executable, "-m", "gpugrant_operator.cli.renet", "setup", *options)

    @contextmanager
    def booted(self) -> Iterator[Booted]:
        """The machine with a systemd of its own as its first process, in namespaces of its own; skips where none
        starts."""
        if not Path("/lib/systemd/systemd").exists() or not CGROUP.is_dir() or shutil.which("nsenter") is None:
            pytest.skip("a systemd in a box needs systemd, nsenter and the cgroup hierarchy name=systemd")
        target = self.upper / "etc/systemd/system/box.target"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("[Unit]\nDescription=The box\nAllowIsolate=yes\n")
        part = CGROUP / f"gg-{os.getpid()}"
        part.mkdir()
        paths = [str(self.work), str(self.machine.tree), str(rig.CHECKOUT)]
        spaces = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--ipc", "--uts", "--cgroup"]
        join = f'echo $$ >{part}/cgroup.procs && exec "$@"'
        with (self.work / "console").open("wb") as console:
            parent = subprocess.Popen(
                ["sh", "-c", join, "sh", *spaces, "sh", "-c", BOX, "sh", *paths, "BOOT"], stdout=console, stderr=console
            )
            try:
                yield _up(self, parent.pid)
            finally:
                parent.kill()
                parent.wait()
                rig.wait_for(lambda: _removed(part), seconds=20)

    @property
    def spec(self) -> Path:
        return self.upper / "etc/cdi/nvidia.yaml"

    def inventory(self) -> inventory.Inventory:
        return inventory.parse((self.upper / "etc/rediacc/gpu/inventory.json").read_bytes())


@dataclass(frozen=True)
class Booted:
    """A box with systemd; `pid` is its first process as it is seen from outside."""

    box: Box
    pid: int

    def run(self, *command: str) -> rig.Result:
        clean = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        }
        inside = ["nsenter", "--target", str(self.pid), "--mount", "--pid", "--ipc", "--uts", "--root", "--wd=/"]
        return rig.run([*inside, *command], environ=clean)

    def setup(self, *options: str) -> rig.Result:
        return self.run(sys.executable, "-m", "gpugrant_operator.cli.renet", "setup", *options)

    def systemctl(self, *words: str) -> str:
        return rig.succeeded(self.run("systemctl", *words))


def _up(box: Box, parent: int) -> Booted:
    def first() -> int:
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return int(children[0]) if children else 0

    made = Booted(box, rig.wait_for(first))
    rig.wait_for(lambda: made.run("systemctl", "is-active", "box.target").stdout == "active\n", seconds=30)
    return made


def _removed(part: Path) -> bool:
    """Whether the cgroups are gone, with what systemd made in them."""
    try:
        for path in sorted(part.rglob("*"), reverse=True):
            if path.is_dir():
                path.rmdir()
        part.rmdir()
    except OSError:
        return False
    return True


def fresh() -> Box:
    """A new one, on a file system that an overlay can lie on; skips where that can't be."""
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


def server() -> Box:
    """A server with two cards and its driver, without the toolkit."""
    box = fresh()
    nvidia_ctk.native(box.machine, nvidia_ctk.NEWEST)
    lay_driver(box)
    return box


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
