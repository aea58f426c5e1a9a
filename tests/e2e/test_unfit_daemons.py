"""Real Docker daemons that can't be trusted with CDI devices: no hardware, and the lines that mend it (R52)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rig
import standalone

pytestmark = [pytest.mark.real, pytest.mark.must_run, pytest.mark.timeout(300)]

GPU = "nvidia.com/gpu=all"


@pytest.fixture(scope="module")
def instance() -> Iterator[standalone.Instance]:
    if os.geteuid() != 0:
        pytest.skip("a Docker daemon needs root")
    with standalone.up() as running:
        yield running


@contextmanager
def dockerd(folder: Path, settings: Mapping[str, Any]) -> Iterator[Path]:
    """A plain daemon with these lines in its daemon.json, `hosts` beside its own; its socket."""
    folder.mkdir(exist_ok=True)
    socket = folder / "d.sock"
    file = folder / "daemon.json"
    hosts = [f"unix://{socket}", *settings.get("hosts", [])]
    own = {
        "group": "root",
        "data-root": str(folder / "data"),
        "exec-root": str(folder / "exec"),
        "pidfile": str(folder / "pid"),
        "bridge": "none",
        "iptables": False,
        "ip6tables": False,
    }
    file.write_text(json.dumps(own | dict(settings) | {"hosts": hosts}))
    bin_ = rig.tools_of("28")
    environ = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}"}
    with (folder / "log").open("wb") as log:
        command = ["unshare", "--mount", "--net", str(bin_ / "dockerd"), "--config-file", str(file)]
        with subprocess.Popen(command, env=environ, stdout=log, stderr=log) as process:
            try:
                rig.wait_for(lambda: rig.docker("28", socket, "version").returncode == 0, seconds=30)
                yield socket
            finally:
                process.terminate()


def cases(root: Path) -> dict[str, tuple[dict[str, Any], str]]:
    """daemon.json lines, and the line that the message asks for."""
    ours = {"features": {"cdi": True}, "cdi-spec-dirs": [f"{root}/etc/cdi"]}
    return {
        "cdi-off": ({"features": {"cdi": False}}, '"features": {"cdi": true}'),
        "other-folder": ({"features": {"cdi": True}, "cdi-spec-dirs": ["/var/run/cdi"]}, f"{root}/etc/cdi"),
        "two-folders": (
            {"features": {"cdi": True}, "cdi-spec-dirs": [f"{root}/etc/cdi", "/var/run/cdi"]},
            f"{root}/etc/cdi",
        ),
        "other-runtime": (
            ours | {"runtimes": {"other": {"path": "runc"}}, "default-runtime": "other"},
            '"default-runtime": "runc"',
        ),
        # dockerd waits 15 s before it opens such an address
        "open-api": (ours | {"hosts": ["tcp://127.0.0.1:2375"], "tls": False}, "http://127.0.0.1:2375"),
    }


@pytest.mark.req("R52", "R43", "R4")
@pytest.mark.parametrize("name", ["cdi-off", "other-folder", "two-folders", "other-runtime", "open-api"])
def test_an_unfit_daemon_gets_no_hardware(instance: standalone.Instance, name: str) -> None:
    """The grant is stored and not Ready, the container is refused, and both say which lines mend it."""
    settings, line = cases(instance.root)[name]
    with dockerd(instance.root / name, settings) as socket:
        added = instance.gpugrant("repo", "add", name, "--upstream", str(socket))
        granted = instance.rdc("repo", "gpu", "grant", name, "--device", GPU, "--timeout", "6s")
        through = instance.layout.repo_socket(name)
        refused = rig.docker("28", through, "run", "--rm", "--device", GPU, "ubuntu:24.04", "true")
        listed = json.loads(instance.gpugrant("repo", "list", "-o", "json").stdout)
        instance.rdc("repo", "gpu", "revoke", name, "--device", GPU)
        instance.gpugrant("repo", "remove", name)

    assert added.exit_code == 0
    assert granted.exit_code != 0
    assert line in granted.output
    assert refused.returncode != 0
    assert line in refused.stderr
    (shown,) = [repo for repo in (listed["repos"] if isinstance(listed, dict) else listed) if repo["name"] == name]
    assert shown["fit"] is False


@pytest.mark.req("R52", "R6")
def test_a_daemon_that_comes_back_unfit_is_known_to_be_before_anybody_asks_for_hardware(
    instance: standalone.Instance,
) -> None:
    fit = {"features": {"cdi": True}, "cdi-spec-dirs": [f"{instance.root}/etc/cdi"]}

    def shown() -> tuple[bool, str]:
        listed = json.loads(instance.gpugrant("repo", "list", "-o", "json").stdout)
        (row,) = [repo for repo in listed if repo["name"] == "back"]
        return row["fit"], row["message"]

    with dockerd(instance.root / "back", fit) as socket:
        instance.gpugrant("repo", "add", "back", "--upstream", str(socket))
        rig.wait_for(lambda: shown() == (True, ""))
    with dockerd(instance.root / "back", cases(instance.root)["two-folders"][0]):
        rig.wait_for(lambda: "must read" in shown()[1], seconds=8)
        assert shown()[0] is False
    instance.gpugrant("repo", "remove", "back")


@pytest.mark.req("R52", "R45")
def test_a_daemon_that_joins_a_swarm_is_unfit_and_fit_again_when_it_leaves(instance: standalone.Instance) -> None:
    """An unfit daemon is looked at again soon."""
    with dockerd(
        instance.root / "swarm", cases(instance.root)["other-runtime"][0] | {"default-runtime": "runc"}
    ) as socket:
        rig.succeeded(
            rig.docker("28", socket, "swarm", "init", "--listen-addr", "127.0.0.1", "--advertise-addr", "127.0.0.1")
        )
        instance.gpugrant("repo", "add", "swarm", "--upstream", str(socket))

        def message() -> str:
            listed = json.loads(instance.gpugrant("repo", "list", "-o", "json").stdout)
            (shown,) = [repo for repo in listed if repo["name"] == "swarm"]
            return str(shown["message"])

        rig.wait_for(lambda: "docker swarm leave --force" in message())
        rig.succeeded(rig.docker("28", socket, "swarm", "leave", "--force"))
        rig.wait_for(lambda: message() == "")
        instance.gpugrant("repo", "remove", "swarm")
