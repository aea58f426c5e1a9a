"""Builds through the gate on real daemons with real buildx of both generations, and what a build must not reach."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import buildkitclient
import rig
from buildkitclient import INSECURE, NETWORK_HOST, Step
from gateprocess import RUN, GateProcess, made
from gpugrant_gate.life import buildkit

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

IMAGE = "ubuntu:24.04"
DEVICE = "nvidia.com/gpu=all"
OF_ALL = "auto.com/gpu=all"
"""A device whose spec gives it to any build."""
ENGINES = ("26", "28")
SPEC = """\
cdiVersion: 0.6.0
kind: {kind}
{more}
devices:
- name: all
  containerEdits:
    deviceNodes: [{{path: /dev/nvidia0, hostPath: {node}}}]
"""
ANNOTATED = f'annotations: {{"{buildkit.AUTO_ALLOW}": "true"}}'
REACHES = "(cat </dev/nvidia0) 2>&1 | grep -q 'No such device or address'"
"""True where the stand-in device is open: ENXIO comes from its missing driver, EPERM from the device cgroup."""
MAKES = "mknod /tmp/n c 195 77 && (cat </tmp/n) 2>&1 | grep -q 'No such device or address'"


@dataclass(frozen=True, slots=True)
class Place:
    """A root with a gate, and daemons behind it by name."""

    root: Path
    gate: GateProcess
    daemons: rig.Daemons

    @property
    def node(self) -> Path:
        return self.root / "node"

    def spec(self, name: str, kind: str, more: str = "") -> None:
        (self.gate.layout.cdi / name).write_text(SPEC.format(kind=kind, more=more, node=self.node))

    def grant(self, repo: str, repo_id: str, *devices: str) -> dict[str, Any]:
        """The repo has exactly these from now on; the gate's answer."""
        status, answer = asyncio.run(self.gate.put(made(time.time_ns(), *devices, repo=repo, repo_id=repo_id)))
        assert status == 200, answer
        found: dict[str, Any] = answer
        return found

    def serve(self, name: str, **more: str) -> Path:
        """The gate's socket for this repo, once its daemon is fit."""
        self.gate.write_repo(name, **more)
        asyncio.run(self.gate.until_served(name))
        return self.gate.layout.repo_socket(name)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    if os.geteuid() != 0:
        pytest.skip("a Docker daemon needs root")
    daemons = rig.Daemons()
    here = Place(daemons.root, GateProcess(daemons.root), daemons)
    for folder in (here.gate.layout.repos, here.gate.layout.cdi):
        folder.mkdir(parents=True)
    os.mknod(here.node, 0o666 | 0o020000, os.makedev(195, 77))
    here.spec("nvidia.yaml", "nvidia.com/gpu")
    with (here.root / "gate.log").open("wb") as log:
        running = subprocess.Popen([sys.executable, "-P", "-c", RUN, str(here.root)], stderr=log)
    rig.wait_for(here.gate.layout.control("gate").exists, seconds=60)
    yield here
    running.send_signal(signal.SIGTERM)
    assert running.wait(10) == 0
    daemons.close()


@dataclass(frozen=True, slots=True)
class Client:
    """docker with buildx and Compose of one generation, with a home of its own, on one socket."""

    generation: str
    socket: Path
    home: Path

    @property
    def command(self) -> list[str]:
        return [str(rig.tools_of(self.generation) / "docker"), "--host", f"unix://{self.socket}"]

    @property
    def environ(self) -> dict[str, str]:
        plugins = self.home / "cli-plugins"
        if not plugins.exists():
            plugins.symlink_to(rig.tools_of(self.generation).parent / "cli-plugins")
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), "DOCKER_CONFIG": str(self.home)}

    def run(self, *words: str, **environ: str) -> rig.Result:
        return rig.run([*self.command, *words], environ=self.environ | environ)

    def ok(self, *words: str, **environ: str) -> str:
        done = self.run(*words, **environ)
        return rig.succeeded(done) + done.stderr


@pytest.fixture(scope="module", params=ENGINES, ids=lambda engine: f"engine-{engine}")
def sealed(request: pytest.FixtureRequest, place: Place) -> rig.Daemon:
    """A sealed daemon of each generation, behind the gate."""
    daemon = place.daemons.start(f"sealed-{request.param}", engine=request.param)
    config = str(daemon.folder / "daemon.json")
    place.serve(daemon.name, id=daemon.repo_id, upstream=str(daemon.socket), sealed="true", daemonConfig=config)
    return daemon


@pytest.fixture(params=ENGINES, ids=lambda client: f"client-{client}")
def client(request: pytest.FixtureRequest, place: Place, sealed: rig.Daemon, tmp_path: Path) -> Client:
    return Client(request.param, place.gate.layout.repo_socket(sealed.name), tmp_path)


@pytest.fixture
def context(tmp_path: Path) -> Path:
    folder = tmp_path / "context"
    folder.mkdir()
    (folder / "data").write_text("built here\n")
    dockerfile(folder, "COPY data /data", "RUN cat /data")
    return folder


def dockerfile(folder: Path, *lines: str) -> None:
    (folder / "Dockerfile").write_text("\n".join((f"FROM {IMAGE}", *lines, "")))


# What people do all day.


def test_builds_and_runs_what_was_built(client: Client, context: Path) -> None:
    said = client.ok("build", "--no-cache", "--progress", "plain", "-t", "built:1", str(context))
    assert "built here" in said
    assert client.ok("run", "--rm", "built:1", "cat", "/data") == "built here"
    client.ok("rmi", "built:1")


def test_builds_from_nothing_into_a_folder(client: Client, context: Path, tmp_path: Path) -> None:
    (context / "Dockerfile").write_text("FROM scratch\nCOPY data /\n")
    out = tmp_path / "out"
    client.ok("buildx", "build", "-o", f"type=local,dest={out}", str(context))
    assert (out / "data").read_text() == "built here\n"


def test_secrets_and_agents_come_through_the_session(client: Client, context: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("very secret")
    dockerfile(
        context,
        "RUN --mount=type=secret,id=token test \"$(cat /run/secrets/token)\" = 'very secret'",
        "RUN --mount=type=ssh test -S $SSH_AUTH_SOCK",
        "RUN --mount=type=cache,target=/cache echo kept >/cache/x",
    )
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", tmp_path / "agent"], stdout=subprocess.DEVNULL)
    try:
        rig.wait_for((tmp_path / "agent").exists)
        given = ("--secret", f"id=token,src={tmp_path / 'token'}", "--ssh", "default")
        client.ok("build", "--no-cache", *given, str(context), SSH_AUTH_SOCK=str(tmp_path / "agent"))
    finally:
        agent.terminate()
        agent.wait()


def test_a_failing_build_fails_with_its_output(client: Client, context: Path) -> None:
    dockerfile(context, "RUN echo so far && exit 7")
    done = client.run("build", "--no-cache", "--progress", "plain", str(context))
    assert done.returncode != 0
    assert "so far" in done.stderr
    assert "exit code: 7" in done.stderr


def test_looks_at_and_prunes_its_cache(client: Client, context: Path) -> None:
    client.ok("build", "--no-cache", str(context))
    assert "Total:" in client.ok("buildx", "du")
    assert "Total:" in client.ok("builder", "prune", "-f")
    assert "Total:" in client.ok("buildx", "prune", "-af")
    assert client.ok("builder", "prune", "-f", DOCKER_BUILDKIT="0")
    assert "default" in client.ok("buildx", "ls")


def test_compose_builds_and_runs(client: Client, context: Path) -> None:
    (context / "compose.yaml").write_text("services:\n  s:\n    build: .\n    command: cat /data\n")
    file = ("compose", "-f", str(context / "compose.yaml"), "-p", "built")
    client.ok(*file, "build", "--no-cache")
    assert "built here" in client.ok(*file, "up", "--no-log-prefix")
    client.ok(*file, "down", "--rmi", "local")


def test_the_classic_builder_builds_as_before(client: Client, context: Path) -> None:
    assert "built here" in client.ok("build", "--no-cache", str(context), DOCKER_BUILDKIT="0")


def test_a_client_that_is_interrupted_ends_its_build(client: Client, context: Path) -> None:
    mark = f"{time.time_ns() % 10**9}.5"
    dockerfile(context, f"RUN sleep {mark}")
    command = [*client.command, "build", "--no-cache", str(context)]
    with subprocess.Popen(command, env=client.environ, stderr=subprocess.DEVNULL) as building:
        rig.wait_for(lambda: sleeps(mark), seconds=60)
        building.send_signal(signal.SIGINT)
        assert building.wait(30) != 0
    rig.wait_for(lambda: not sleeps(mark))


def sleeps(mark: str) -> bool:
    """Whether a build step's process is there."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if file.read_bytes().startswith(b"sleep\0" + mark.encode()):
                return True
        except OSError:
            continue
    return False


@pytest.mark.req("R45")
def test_a_builder_of_its_own_is_refused_with_what_to_use(client: Client, context: Path) -> None:
    name = f"own-{os.getpid()}"
    client.ok("buildx", "create", "--name", name, "--driver", "docker-container", f"unix://{client.socket}")
    done = client.run("buildx", "build", "--builder", name, str(context))
    client.run("buildx", "rm", name)
    assert done.returncode != 0
    assert "docker buildx use NAME" in done.stderr


# What a build must not reach.

ATTEMPTS = {
    "a device by its name": Step(IMAGE, REACHES, devices=(DEVICE,)),
    "a device with an entitlement": Step(IMAGE, REACHES, devices=(DEVICE,), entitlements=("device",)),
    "a device with an entitlement of its name": Step(
        IMAGE, REACHES, devices=(DEVICE,), entitlements=(f"device={DEVICE}",)
    ),
    "a device that is for any build": Step(IMAGE, REACHES, devices=(OF_ALL,)),
    "a class of such devices": Step(IMAGE, REACHES, devices=("auto.com/gpu",)),
    "all such devices": Step(IMAGE, REACHES, devices=("auto.com/gpu=*",)),
    "a node that it makes": Step(IMAGE, MAKES),
    "a node in another cgroup": Step(IMAGE, MAKES, cgroup_parent="/"),
    "a node in a cgroup far away": Step(IMAGE, MAKES, cgroup_parent="../../../../"),
    "every privilege": Step(IMAGE, MAKES, security=INSECURE, entitlements=("security.insecure",)),
    "every privilege, not asked for": Step(IMAGE, MAKES, security=INSECURE),
    "the host's network": Step(IMAGE, "true", network=NETWORK_HOST, entitlements=("network.host",)),
    "the host's network, not asked for": Step(IMAGE, "true", network=NETWORK_HOST),
}


@pytest.fixture(scope="module")
def granted(place: Place, sealed: rig.Daemon) -> Path:
    """The gate's socket of a repo that has both devices, and whose containers open them."""
    place.spec("auto.yaml", "auto.com/gpu", ANNOTATED)
    place.grant(sealed.name, sealed.repo_id, DEVICE, OF_ALL)
    rig.wait_for(lambda: (sealed.sealed / "auto.yaml").exists())
    socket = place.gate.layout.repo_socket(sealed.name)
    run = ("run", "--rm", "--network", "none")
    for device in (DEVICE, OF_ALL):
        rig.succeeded(sealed.docker(*run, "--device", device, IMAGE, "sh", "-c", REACHES, socket=socket))
    return socket


@pytest.mark.req("R45", "R5")
@pytest.mark.parametrize("what", ATTEMPTS)
def test_a_build_behind_the_gate_does_not_reach(granted: Path, what: str) -> None:
    """Although the repo is granted both devices: a build is no container that a grant is for."""
    assert buildkitclient.solve(granted, Step(IMAGE, "true"))
    assert not buildkitclient.solve(granted, ATTEMPTS[what])
    assert not buildkitclient.solve(granted, replace(ATTEMPTS[what], network=NETWORK_HOST))


@contextmanager
def plain(place: Place, name: str, engine: str, settings: Mapping[str, Any], **environ: str) -> Iterator[Path]:
    """A daemon that isn't sealed, with these settings beside the needed ones; its folder, with `d.sock` in it."""
    folder = place.root / name
    folder.mkdir()
    needed = {
        "hosts": [f"unix://{folder}/d.sock"],
        "group": "root",
        "data-root": f"{folder}/data",
        "exec-root": f"{folder}/exec",
        "pidfile": f"{folder}/pid",
        "iptables": False,
        "ip6tables": False,
        "features": {"cdi": True},
        "cdi-spec-dirs": [str(place.gate.layout.cdi)],
    }
    (folder / "daemon.json").write_text(json.dumps(needed | dict(settings)))
    (folder / "daemon.json").chmod(0o644)
    tools = rig.tools_of(engine)
    command = ["unshare", "--mount", "--net", str(tools / "dockerd"), "--config-file", str(folder / "daemon.json")]
    path = {"PATH": f"{tools}:{os.environ['PATH']}"}
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, env={**os.environ, **path, **environ}, stdout=log, stderr=log) as running,
    ):
        try:
            socket = folder / "d.sock"
            rig.wait_for(lambda: rig.docker(engine, socket, "version").returncode == 0, seconds=60)
            archive = folder / "image.tar"
            donor = place.daemons.start("sealed-28", engine="28")
            rig.succeeded(donor.docker("save", "-o", str(archive), IMAGE))
            rig.succeeded(rig.docker(engine, socket, "load", "-i", str(archive)))
            yield folder
        finally:
            running.terminate()
            running.wait(60)
            shutil.rmtree(folder, ignore_errors=True)


CLOSED = {"builder": json.loads("{" + buildkit.daemon_json() + "}")["builder"]}
OPEN = {"builder": {"entitlements": {"security-insecure": True}}}


def refusal(socket: Path) -> str:
    """Why the tunnel is refused; empty: it isn't."""
    try:
        buildkitclient.solve(socket, Step(IMAGE, "true"))
    except buildkitclient.Refused as refused:
        return str(refused)
    return ""


@pytest.mark.req("R45")
def test_what_an_open_daemon_gives_to_builds_is_refused_by_the_gate(place: Place) -> None:
    """The attempts do reach what they are after where nothing keeps them; so the gate lets none of them begin."""
    place.spec("auto.yaml", "auto.com/gpu", ANNOTATED)
    with plain(place, "open", "28", OPEN) as folder:
        raw = folder / "d.sock"
        given = {what for what, step in ATTEMPTS.items() if buildkitclient.solve(raw, step)}
        through = place.serve("open", upstream=str(raw), daemonConfig=f"{folder}/daemon.json")
        said = refusal(through)
        (place.gate.layout.repos / "open.yaml").unlink()
    assert given == {
        "a device that is for any build",
        "a class of such devices",
        "all such devices",
        "every privilege",
        "the host's network",
    }
    for words in ("403", "security-insecure", "network-host", "auto.yaml", "DOCKER_BUILDKIT=0", "[build.buildkit]"):
        assert words in said


@pytest.mark.req("R45", "R51")
def test_an_unsealed_daemon_is_open_to_builds_only_while_no_spec_is(place: Place, tmp_path: Path) -> None:
    """Without a restart: a spec that gives a device to any build ends the builds that are open; one that is taken away
    lets the next ones in."""
    (place.gate.layout.cdi / "auto.yaml").unlink(missing_ok=True)
    with plain(place, "unsealed", "28", CLOSED) as folder:
        through = place.serve("unsealed", upstream=f"{folder}/d.sock", daemonConfig=f"{folder}/daemon.json")
        rig.wait_for(lambda: not refusal(through))
        for step in ATTEMPTS.values():
            assert not buildkitclient.solve(through, step)
        here = Client("28", through, tmp_path)
        with building(here, tmp_path) as mark:
            place.spec("auto.yaml", "auto.com/gpu", ANNOTATED)
            rig.wait_for(lambda: not sleeps(mark))
        assert "auto.yaml may give devices to any build" in refusal(through)
        place.spec("auto.yaml", "auto.com/gpu")
        rig.wait_for(lambda: not refusal(through))

        place.grant("unsealed", "id-unsealed", DEVICE)
        with building(here, tmp_path) as mark:
            place.grant("unsealed", "id-unsealed", DEVICE, OF_ALL)
            assert sleeps(mark), "a grant more ends nothing"
            answer = place.grant("unsealed", "id-unsealed", DEVICE)
            rig.wait_for(lambda: not sleeps(mark))
            assert answer["pending"] == []
        (place.gate.layout.repos / "unsealed.yaml").unlink()


SYSTEMD = """
import ctypes, os, socket, sys
ctypes.CDLL(None).prctl(15, b"systemd")
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(100)
child = 0
for line in sys.stdin:
    if child:
        os.kill(child, 15)
        os.waitpid(child, 0)
    child = 0 if line == "stop\\n" else os.fork()
    if not child and line != "stop\\n":
        os.dup2(listener.fileno(), 3)
        os.set_inheritable(3, True)
        os.environ |= {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}
        os.execvp("unshare", ["unshare", "--mount", "--net", "dockerd", "-H", "fd://", "--config-file", sys.argv[2]])
    print(child, flush=True)
"""
"""As docker.socket does it: systemd listens, and hands the socket to each daemon that it starts (sd_listen_fds(3))."""


@pytest.mark.req("R45", "R52")
def test_a_daemon_behind_a_systemd_socket_is_judged_by_its_own_process(place: Place) -> None:
    """The socket stays while the daemon behind it is another one with another configuration."""
    folder = place.root / "activated"
    folder.mkdir()
    config, socket = folder / "daemon.json", folder / "d.sock"
    settings = {key: str(folder / key) for key in ("data-root", "exec-root", "pidfile")}
    settings |= {"iptables": False, "ip6tables": False, "features": {"cdi": True}}
    settings |= {"cdi-spec-dirs": [str(place.gate.layout.cdi)]}
    (place.gate.layout.cdi / "auto.yaml").unlink(missing_ok=True)
    environ = {**os.environ, "PATH": f"{rig.tools_of('28')}:{os.environ['PATH']}"}
    command = [sys.executable, "-c", SYSTEMD, str(socket), str(config)]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as systemd,
    ):
        assert systemd.stdin is not None
        assert systemd.stdout is not None

        def start(**more: Any) -> None:
            config.write_text(json.dumps(settings | more))
            config.chmod(0o644)
            tell("start")
            rig.wait_for(lambda: rig.docker("28", socket, "version").returncode == 0, seconds=60)

        def tell(what: str) -> None:
            print(what, file=systemd.stdin, flush=True)
            systemd.stdout.readline()  # type: ignore[union-attr]  # asserted above

        try:
            start(**CLOSED)
            through = place.serve("activated", upstream=str(socket), daemonConfig=str(config))
            rig.wait_for(lambda: not refusal(through))
            start(**OPEN)
            assert "become privileged (security-insecure)" in refusal(through)
        finally:
            tell("stop")
            systemd.stdin.close()
        (place.gate.layout.repos / "activated.yaml").unlink()


def test_a_sealed_daemons_builds_outlive_a_revocation(place: Place, sealed: rig.Daemon, tmp_path: Path) -> None:
    place.grant(sealed.name, sealed.repo_id, DEVICE)
    here = Client("28", place.gate.layout.repo_socket(sealed.name), tmp_path)
    with building(here, tmp_path) as mark:
        place.grant(sealed.name, sealed.repo_id)
        time.sleep(1)
        assert sleeps(mark)


@contextmanager
def building(client: Client, folder: Path) -> Iterator[str]:
    """A build that goes on and on; the mark of its step's process. Interrupted at the end."""
    mark = f"{time.time_ns() % 10**9}.5"
    dockerfile(folder, f"RUN --network=none sleep {mark}")
    command = [*client.command, "build", "--no-cache", str(folder)]
    with subprocess.Popen(command, env=client.environ, stderr=subprocess.DEVNULL) as running:
        try:
            rig.wait_for(lambda: sleeps(mark), seconds=60)
            yield mark
        finally:
            running.send_signal(signal.SIGINT)
            running.wait(30)


@pytest.mark.req("R45")
def test_what_is_not_known_of_a_daemon_is_refused(place: Place) -> None:
    """No file named, another file, one that was changed after the start, another program than runc."""
    with plain(place, "unknown", "26", CLOSED) as folder:
        given = {"upstream": f"{folder}/d.sock"}
        through = place.serve("unknown", **given)
        assert f"add the line daemonConfig: {folder}/daemon.json" in refusal(through)
        place.serve("unknown", **given, daemonConfig="/etc/docker/daemon.json")
        rig.wait_for(lambda: f"reads {folder}/daemon.json and not" in refusal(through))
        place.serve("unknown", **given, daemonConfig=f"{folder}/daemon.json")
        rig.wait_for(lambda: not refusal(through))
        (folder / "daemon.json").touch()
        place.serve("unknown", **given)
        rig.wait_for(lambda: "add the line" in refusal(through))
        place.serve("unknown", **given, daemonConfig=f"{folder}/daemon.json")
        rig.wait_for(lambda: "was changed after its daemon started: restart the daemon" in refusal(through))
        (place.gate.layout.repos / "unknown.yaml").unlink()
    with plain(place, "runc", "26", CLOSED, DOCKER_BUILDKIT_RUNC_COMMAND="runc") as folder:
        through = place.serve("runc", upstream=f"{folder}/d.sock", daemonConfig=f"{folder}/daemon.json")
        assert "another program than runc" in refusal(through)
        (place.gate.layout.repos / "runc.yaml").unlink()
