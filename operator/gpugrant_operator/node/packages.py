"""How each kind of Linux gets the NVIDIA Container Toolkit: its repository as NVIDIA documents it, then one package.

Pure. The key comes with this program and is never fetched, so that nothing else can sign what is installed. The package
is the base of the toolkit: `nvidia-ctk`, the hook that specs name and the refresh units, and no runtime to configure
(R14). NVIDIA's install guide: apt, dnf, zypper; Arch has the toolkit among its own packages.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "nvidia-container-toolkit-base"

FINGERPRINT = "C95B321B61E88C1809C4F759DDCAE044F796ECB0"
"""Of NVIDIA's key for this repository (NVIDIA CORPORATION (Open Source Projects)); it has no end."""

ADDRESS = "https://nvidia.github.io/libnvidia-container/stable"

_APT_LIST = "etc/apt/sources.list.d/nvidia-container-toolkit.list"
_APT_KEY = "usr/share/keyrings/nvidia-container-toolkit-keyring.gpg"
_RPM_KEY = "etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia-container-toolkit"

Files = Mapping[str, bytes]
"""Paths below the root → contents."""
Command = tuple[str, ...]
"""A program's name and its arguments."""


@dataclass(frozen=True, slots=True)
class Manager:
    """A package manager. `sources` takes the root and the armored key, `commands` the root; the last command installs,
    those before it prepare."""

    program: str
    package: str
    ids: frozenset[str]
    """ID and ID_LIKE of os-release(5)."""
    sources: Callable[[Path, str], Files]
    commands: Callable[[Path], tuple[Command, ...]]
    lists: tuple[str, ...] = ()
    """Below the root: the folders and files where a repository that somebody else set up would stand."""


def choose(os_release: str, there: Callable[[str], bool]) -> Manager | None:
    """The machine's package manager: by what it says it is, else the first that is there; None: none is."""
    words = _ids(os_release)
    ranked = sorted(MANAGERS, key=lambda manager: not (manager.ids & words))
    return next((manager for manager in ranked if there(manager.program)), None)


def _ids(os_release: str) -> frozenset[str]:
    fields = dict(line.partition("=")[::2] for line in os_release.splitlines() if "=" in line)
    text = f"{fields.get('ID', '')} {fields.get('ID_LIKE', '')}"
    return frozenset(text.replace('"', " ").replace("'", " ").lower().split())


def dearmored(armored: str) -> bytes:
    """The key's packets (RFC 4880, 6.2: base64 between an empty line and the checksum line)."""
    body = armored.split("\n\n", 1)[1].split("\n=", 1)[0]
    return base64.b64decode("".join(body.split()), validate=True)


def _apt_sources(root: Path, key: str) -> Files:
    line = f"deb [signed-by={root / _APT_KEY}] {ADDRESS}/deb/$(ARCH) /\n"
    return {_APT_KEY: dearmored(key), _APT_LIST: line.encode()}


def _apt(root: Path) -> tuple[Command, ...]:
    # only this list: another repository that is broken must not keep this one from being read
    only = (
        *("-o", f"Dir::Etc::SourceList={root / _APT_LIST}"),
        *("-o", "Dir::Etc::SourceParts=-"),
        *("-o", "APT::Get::List-Cleanup=0"),
    )
    lock = ("-o", "DPkg::Lock::Timeout=120")
    elsewhere = () if root == Path("/") else only
    return (
        ("apt-get", "update", "-q", "-o", "APT::Update::Error-Mode=any", *lock, *only),
        ("apt-get", "install", "-y", "-q", "--no-install-recommends", *lock, *elsewhere, PACKAGE),
    )


def _rpm_sources(folder: str) -> Callable[[Path, str], Files]:
    def sources(root: Path, key: str) -> Files:
        # NVIDIA signs the metadata, which holds the packages' hashes, and not the packages
        text = (
            "[nvidia-container-toolkit]\nname=nvidia-container-toolkit\n"
            f"baseurl={ADDRESS}/rpm/$basearch\nenabled=1\nrepo_gpgcheck=1\ngpgcheck=0\n"
            f"gpgkey=file://{root / _RPM_KEY}\n"
        )
        return {_RPM_KEY: key.encode(), f"{folder}/nvidia-container-toolkit.repo": text.encode()}

    return sources


def _dnf(program: str) -> Callable[[Path], tuple[Command, ...]]:
    def commands(root: Path) -> tuple[Command, ...]:
        elsewhere = () if root == Path("/") else (f"--setopt=reposdir={root / 'etc/yum.repos.d'}",)
        return ((program, "install", "-y", *elsewhere, PACKAGE),)

    return commands


def _zypper(root: Path) -> tuple[Command, ...]:
    elsewhere = () if root == Path("/") else ("--reposd-dir", str(root / "etc/zypp/repos.d"))
    # the pinned key is imported by hand: --gpg-auto-import-keys would take whatever key the server shows
    return (
        ("rpm", "--import", str(root / _RPM_KEY)),
        ("zypper", "--non-interactive", *elsewhere, "install", "--no-recommends", PACKAGE),
    )


def _no_sources(root: Path, key: str) -> Files:
    del root, key
    return {}


def _pacman(root: Path) -> tuple[Command, ...]:
    del root
    return (("pacman", "-S", "--noconfirm", "--needed", "nvidia-container-toolkit"),)


_RED_HAT = frozenset({"fedora", "rhel", "centos", "amzn", "rocky", "almalinux", "ol"})

MANAGERS = (
    Manager(
        "apt-get",
        PACKAGE,
        frozenset({"debian", "ubuntu"}),
        _apt_sources,
        _apt,
        ("etc/apt/sources.list", "etc/apt/sources.list.d"),
    ),
    Manager("dnf", PACKAGE, _RED_HAT, _rpm_sources("etc/yum.repos.d"), _dnf("dnf"), ("etc/yum.repos.d",)),
    Manager("yum", PACKAGE, _RED_HAT, _rpm_sources("etc/yum.repos.d"), _dnf("yum"), ("etc/yum.repos.d",)),
    Manager(
        "zypper",
        PACKAGE,
        frozenset({"suse", "opensuse", "sles"}),
        _rpm_sources("etc/zypp/repos.d"),
        _zypper,
        ("etc/zypp/repos.d",),
    ),
    Manager("pacman", "nvidia-container-toolkit", frozenset({"arch", "manjaro"}), _no_sources, _pacman),
)
