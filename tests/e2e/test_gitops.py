"""A Git checkout as desired state of a standalone machine: a commit grants, a revert takes back (D11)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import rig

pytestmark = [pytest.mark.real, pytest.mark.must_run, pytest.mark.timeout(300)]

MACHINE = rig.CHECKOUT / "examples/machines/workstation"
GPU = "nvidia.com/gpu=all"
SMI = ("run", "--rm", "--device", GPU, "ubuntu:24.04", "nvidia-smi", "-L")
WITHIN = 60.0
"""Seconds from a commit to its effect; a removal alone counts after five."""


def grant(repo: str, *, exclusive: bool = False, name: str = "") -> str:
    spec = f"  machine: workstation\n  repo: {repo}\n  device: {GPU}\n"
    more = "  exclusive: true\n" if exclusive else ""
    head = "apiVersion: gpu.rediacc.io/v1alpha1\nkind: RepoGpuGrant\nmetadata:\n"
    return f"{head}  name: {name or repo}-all\nspec:\n{spec}{more}"


@dataclass(frozen=True)
class Desired:
    """The system, and the checkout that it follows."""

    system: rig.System
    checkout: Path

    def git(self, *words: str) -> None:
        who = {
            f"GIT_{part}_{what}": "ops@example.com" for part in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
        }
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.checkout.parent), **who}
        subprocess.run(["git", *words], cwd=self.checkout, env=environ, check=True, capture_output=True)

    def commit(self, **files: str | None) -> None:
        for name, text in files.items():
            path = self.checkout / "grants" / f"{name}.yaml"
            path.parent.mkdir(exist_ok=True)
            if text is None:
                path.unlink()
            else:
                path.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "grants")

    def may(self, repo: str) -> bool:
        return "RTX" in self.system.docker(repo, *SMI).stdout


@pytest.fixture(scope="module")
def desired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desired]:
    if os.geteuid() != 0:
        pytest.skip("hack/up needs root")
    root, checkout = rig.short_folder(), tmp_path_factory.mktemp("git")
    try:
        system = rig.bring_up(root, MACHINE)
        rig.succeeded(system.gpugrant("down"))
        found = Desired(system, checkout)
        found.git("init", "-q", "-b", "main")
        up = ("up", "--detach", "--hardware", str(MACHINE), "--manifests", str(checkout))
        rig.succeeded(system.gpugrant(*up))
        rig.succeeded(system.gpugrant(*up))
        other = system.gpugrant(*up[:-2])
        assert other.returncode == 1
        assert f"with --manifests {checkout}: run gpugrant down first" in other.stderr
        yield found
    finally:
        rig.succeeded(rig.script("down", "--root", root))
    shutil.rmtree(root)


@pytest.mark.req("D11", "R51", "R6")
def test_a_commit_grants_and_a_revert_takes_back(desired: Desired) -> None:
    assert not desired.may("gpu-a")
    desired.commit(a=grant("gpu-a"))
    rig.wait_for(lambda: desired.may("gpu-a"), seconds=WITHIN)

    file = desired.checkout / "grants/a.yaml"
    revoked = desired.system.rdc("repo", "gpu", "revoke", "gpu-a", "--device", GPU)
    assert (revoked.returncode, str(file) in revoked.stderr) == (1, True), revoked.stderr
    deleted = desired.system.kubectl("delete", "repogpugrant", "gpu-a-all")
    assert (deleted.returncode, str(file) in deleted.stderr) == (1, True), deleted.stderr
    assert desired.may("gpu-a")

    desired.git("revert", "--no-edit", "HEAD")
    rig.wait_for(lambda: not desired.may("gpu-a"), seconds=WITHIN)
    rig.wait_for(lambda: not rig.succeeded(desired.system.kubectl("get", "repogpugrants", "-A", "-o", "name")))


@pytest.mark.req("D11", "R26", "R48")
def test_a_commit_moves_an_exclusive_device(desired: Desired) -> None:
    """In one commit and in any order; never are both in force."""
    desired.commit(old=grant("gpu-b", exclusive=True))
    rig.wait_for(lambda: desired.may("gpu-b"), seconds=WITHIN)
    desired.commit(old=None, first=grant("gpu-a", exclusive=True))
    assert not (desired.may("gpu-a") and desired.may("gpu-b"))
    rig.wait_for(lambda: desired.may("gpu-a"), seconds=WITHIN)
    assert not desired.may("gpu-b")
    desired.commit(first=None)
    rig.wait_for(lambda: not desired.may("gpu-a"), seconds=WITHIN)


@pytest.mark.req("D11")
def test_status_names_what_is_not_taken(desired: Desired) -> None:
    desired.commit(a=grant("gpu-a"), bad=grant("gpu-b").replace("device:", "devise:"))
    rig.wait_for(lambda: desired.may("gpu-a"), seconds=WITHIN)
    status = desired.system.gpugrant("status")
    assert status.returncode == 0
    assert "grants/bad.yaml" in status.stdout.replace("\n", "")
    aside = desired.checkout.rename(desired.checkout.with_name("aside"))
    rig.wait_for(lambda: "is gone" in desired.system.gpugrant("status", "-o", "json").stdout, seconds=WITHIN)
    assert desired.may("gpu-a")
    accepted = rig.succeeded(desired.system.gpugrant("store", "accept-deletes"))
    assert accepted.splitlines() == [
        f"accepted: 1 objects of {desired.checkout} go",
        "  repogpugrants.gpu.rediacc.io/default/gpu-a-all",
    ]
    rig.wait_for(lambda: not desired.may("gpu-a"), seconds=WITHIN)
    aside.rename(desired.checkout)
    rig.wait_for(lambda: desired.may("gpu-a"), seconds=WITHIN)
    desired.commit(a=None, bad=None)
    rig.wait_for(lambda: not desired.may("gpu-a"), seconds=WITHIN)
    assert rig.succeeded(desired.system.gpugrant("store", "accept-deletes")) == "nothing is held back"
