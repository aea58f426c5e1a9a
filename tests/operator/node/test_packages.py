"""How each Linux gets the toolkit: repository, key, commands."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from gpugrant_operator.node import packages, toolkit

ROOT = Path("/")


def test_the_key_is_nvidias() -> None:
    """The fingerprint of a version 4 key: SHA-1 over 0x99, the length and the first packet (RFC 4880, 12.2)."""
    data = packages.dearmored(toolkit.KEY.read_text())
    length = int.from_bytes(data[1:3], "big")
    assert data[0] == 0x99
    assert hashlib.sha1(data[: 3 + length]).hexdigest().upper() == packages.FINGERPRINT


@pytest.mark.skipif(shutil.which("gpg") is None, reason="this machine has no gpg")
def test_gpg_reads_it_and_finds_one_key_whose_own_signature_is_good(tmp_path: Path) -> None:
    """What apt will read is the whole key: its self-signature verifies."""
    tmp_path.chmod(0o700)
    (tmp_path / "key.gpg").write_bytes(packages.dearmored(toolkit.KEY.read_text()))

    def gpg(*words: str) -> str:
        command = ["gpg", "--homedir", str(tmp_path), "--batch", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    gpg("--import", str(tmp_path / "key.gpg"))
    lines = [line.split(":") for line in gpg("--check-sigs", "--with-colons").splitlines()]
    subprocess.run(["gpgconf", "--homedir", str(tmp_path), "--kill", "all"], check=False)
    assert [line[9] for line in lines if line[0] == "fpr"] == [packages.FINGERPRINT]
    assert [line[1] for line in lines if line[0] == "sig"] == ["!"]


@pytest.mark.parametrize(
    ("os_release", "there", "chosen"),
    [
        pytest.param("ID=debian\n", {"apt-get"}, "apt-get", id="Debian"),
        pytest.param('ID=ubuntu\nID_LIKE="debian"\n', {"apt-get", "dnf"}, "apt-get", id="Ubuntu that has dnf too"),
        pytest.param("ID=fedora\n", {"apt-get", "dnf"}, "dnf", id="Fedora that has apt too"),
        pytest.param('ID="amzn"\nID_LIKE="centos rhel"\n', {"yum"}, "yum", id="an old Red Hat"),
        pytest.param("ID='opensuse-tumbleweed'\nID_LIKE='opensuse suse'\n", {"dnf", "zypper"}, "zypper", id="openSUSE"),
        pytest.param("ID=arch\n", {"pacman"}, "pacman", id="Arch"),
        pytest.param("", {"zypper"}, "zypper", id="no os-release: what is there"),
        pytest.param("ID=nixos\n", set(), None, id="none that is known"),
    ],
)
def test_which_package_manager(os_release: str, there: set[str], chosen: str | None) -> None:
    """By what the machine says it is, else by what it has."""
    found = packages.choose(os_release, there.__contains__)
    assert (None if found is None else found.program) == chosen


def test_the_sources_are_nvidias_and_signed_by_the_key_beside_them() -> None:
    """As NVIDIA's install guide writes them, for the machine itself and below another root."""
    apt, dnf, zypper = (
        next(manager for manager in packages.MANAGERS if manager.program == name)
        for name in ("apt-get", "dnf", "zypper")
    )
    key = toolkit.KEY.read_text()
    assert apt.sources(ROOT, key)["etc/apt/sources.list.d/nvidia-container-toolkit.list"] == (
        b"deb [signed-by=/usr/share/keyrings/nvidia-container-toolkit-keyring.gpg] "
        b"https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH) /\n"
    )
    for manager, folder in ((dnf, "etc/yum.repos.d"), (zypper, "etc/zypp/repos.d")):
        files = manager.sources(Path("/x"), key)
        text = files[f"{folder}/nvidia-container-toolkit.repo"].decode()
        assert "gpgkey=file:///x/etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia-container-toolkit\n" in text
        assert "repo_gpgcheck=1\n" in text
        assert files["etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia-container-toolkit"] == key.encode()


@pytest.mark.req("R14")
def test_nothing_but_one_package_is_installed() -> None:
    """The base package has no runtime to configure; of what it recommends nothing comes along."""
    for manager in packages.MANAGERS:
        *preparing, installing = manager.commands(ROOT)
        assert installing[-1] == manager.package
        assert not [command for command in preparing if "install" in command]


@pytest.mark.real
@pytest.mark.req("R11")
@pytest.mark.skipif(shutil.which("apt-get") is None, reason="this machine has no apt")
def test_the_real_apt_reads_the_source_and_its_key(tmp_path: Path) -> None:
    """It would fetch that list, with the index of this machine's architecture, and no other."""
    apt = packages.MANAGERS[0]
    for path, data in apt.sources(tmp_path, toolkit.KEY.read_text()).items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_bytes(data)
    update = apt.commands(tmp_path)[0]
    done = subprocess.run([*update, "--print-uris"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    uris = [line.split("'")[1] for line in done.stdout.splitlines()]
    assert uris
    assert {uri.split("/deb/")[0] for uri in uris} == {packages.ADDRESS}
    assert not [uri for uri in uris if "$(" in uri]
