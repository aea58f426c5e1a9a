"""Bind sources on real daemons: a tenant who swaps one for a way to the raw socket, at every moment; and the way of the
Docker socket into a container."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import intruder
import rig
import workshop
from gateprocess import RUN, GateProcess
from intruder import host

pytestmark = [pytest.mark.real, pytest.mark.req("R45"), pytest.mark.timeout(300)]

SOCKET = "/var/run/docker.sock"


@dataclass(slots=True)
class Tenant:
    """A repo behind its gate that may bind a folder, in which the tenant is root."""

    daemon: rig.Daemon
    gate: GateProcess
    folder: Path

    @property
    def socket(self) -> Path:
        return self.gate.layout.repo_socket(self.daemon.name)

    @property
    def source(self) -> Path:
        return self.folder / "src"

    def write(self, **more: str) -> None:
        """The repo's file; returns once it counts."""
        values = {"name": self.daemon.name, "id": self.daemon.repo_id, "upstream": self.daemon.socket, "sealed": "true"}
        mark = f"mark{time.monotonic_ns()}"
        lines = {**values, "binds": f"[{self.folder}, {self.folder}-{mark}]", **more}
        new = self.gate.layout.repos / "new"
        new.write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))
        new.rename(self.gate.layout.repos / f"{self.daemon.name}.yaml")
        rig.wait_for(self.socket.exists)
        body = host(Binds=["/elsewhere:/x"])
        rig.wait_for(lambda: mark in str(self.ask("POST", "/containers/create", body)))

    def ask(self, method: str, target: str, body: Any = None) -> tuple[int, Any]:
        return intruder.ask(self.socket, method, target, body)

    def past(self, method: str, target: str, body: Any = None) -> tuple[int, Any]:
        return intruder.ask(self.daemon.socket, method, target, body)

    def makes(self, name: str, **fields: Any) -> tuple[int, Any]:
        return self.ask("POST", f"/containers/create?name={name}", host(**fields))

    def runs(self, name: str, **fields: Any) -> None:
        status, answer = self.makes(name, **fields)
        assert status == 201, answer
        status, answer = self.ask("POST", f"/containers/{name}/start")
        assert status == 204, answer

    def sees(self, name: str, place: str) -> list[str]:
        """What lies at a place in a running container, seen by the machine."""
        _, found = self.past("GET", f"/containers/{name}/json")
        return sorted(path.name for path in Path(f"/proc/{found['State']['Pid']}/root{place}").iterdir())

    def inspected(self, name: str) -> Any:
        status, found = self.ask("GET", f"/containers/{name}/json")
        assert status == 200, found
        return found

    def places(self) -> list[str]:
        """The mounts at places of this root in the daemon's mount namespace."""
        lines = Path(f"/proc/{self.daemon.pid}/mountinfo").read_text().splitlines()
        return [line.split()[4] for line in lines if line.split()[4].startswith(f"{self.gate.layout.pins}/")]

    def swapped(self, target: Path) -> None:
        """The source is a link to `target` now; before, it is moved aside."""
        with suppress(FileNotFoundError):
            self.source.rename(self.folder / "aside")
        self.source.symlink_to(target)

    def back(self) -> None:
        """The source is the folder that it was."""
        if self.source.is_symlink():
            self.source.unlink()
        with suppress(FileNotFoundError):
            (self.folder / "aside").rename(self.source)

    def forget(self, *names: str) -> None:
        for name in names:
            self.past("DELETE", f"/containers/{name}?force=1&v=1")


@pytest.fixture(scope="module")
def tenant(daemon: rig.Daemon, daemons: rig.Daemons) -> Iterator[Tenant]:
    gate = GateProcess(daemons.root)
    for place in (gate.layout.repos, gate.layout.cdi):
        place.mkdir(parents=True, exist_ok=True)
    folder = rig.short_folder()
    (folder / "src").mkdir()
    (folder / "src/mine").write_text("mine\n")
    (folder / "file").write_text("mine\n")
    status, answer = intruder.ask(
        daemon.socket,
        "POST",
        "/images/create?fromSrc=-&repo=workshop&tag=1",
        workshop.image(),
        Content_Type="application/x-tar",
    )
    assert status == 200, answer
    with (daemons.root / "binds.log").open("wb") as log:
        running = subprocess.Popen([sys.executable, "-P", "-c", RUN, str(daemons.root)], stderr=log)
    try:
        made = Tenant(daemon, gate, folder)
        made.write()
        yield made
        assert "Traceback" not in (daemons.root / "binds.log").read_text()
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(20) == 0
        (gate.layout.repos / f"{daemon.name}.yaml").unlink(missing_ok=True)
        shutil.rmtree(folder)


def test_a_source_below_a_root_is_mounted_and_keeps_its_name(tenant: Tenant) -> None:
    source, file = str(tenant.source), str(tenant.folder / "file")
    try:
        tenant.runs("one", Binds=[f"{source}:/w"], Mounts=[{"Type": "bind", "Source": file, "Target": "/f"}])
        assert tenant.sees("one", "/w") == ["mine"]
        found = tenant.inspected("one")
        assert found["HostConfig"]["Binds"] == [f"{source}:/w"]
        assert [mount["Source"] for mount in found["HostConfig"]["Mounts"]] == [file]
        assert {mount["Source"] for mount in found["Mounts"]} == {source, file}
        _, listed = tenant.ask("GET", "/containers/json")
        assert {mount["Source"] for mount in listed[0]["Mounts"]} == {source, file}
        _, usage = tenant.ask("GET", "/system/df")
        assert str(tenant.gate.layout.pins) not in json.dumps(usage)
        assert len(tenant.places()) == 2
        assert str(tenant.gate.layout.pins) not in Path("/proc/self/mountinfo").read_text()
        tenant.ask("DELETE", "/containers/one?force=1")
        rig.wait_for(lambda: tenant.places() == [])
        assert (tenant.source / "mine").exists()
    finally:
        tenant.forget("one")


def test_a_daemons_error_names_the_clients_own_path(tenant: Tenant) -> None:
    try:
        status, _ = tenant.makes("one", Binds=[f"{tenant.source}:/etc/passwd"])
        assert status == 201
        status, answer = tenant.ask("POST", "/containers/one/start")
        assert status >= 400
        assert str(tenant.gate.layout.pins) not in str(answer)
        assert str(tenant.source) in str(answer)
    finally:
        tenant.forget("one")


@pytest.mark.parametrize("client", ["26", "28"])
def test_compose_knows_its_folders_again(tenant: Tenant, client: str) -> None:
    file = tenant.folder / "compose.yaml"
    file.write_text(
        "services:\n  web:\n    image: ubuntu:24.04\n    command: sleep 600\n    volumes:\n"
        "    - ./src:/w\n    - {type: bind, source: ./file, target: /f}\n"
    )

    def compose(*words: str) -> str:
        done = tenant.daemon.docker("compose", "-f", str(file), *words, socket=tenant.socket, client=client)
        return rig.succeeded(done) + done.stderr

    try:
        compose("up", "-d")
        made = compose("ps", "-q", "web")
        again = compose("up", "-d")
        assert "Recreate" not in again
        assert compose("ps", "-q", "web") == made
        assert "mine" in compose("exec", "-T", "web", "cat", "/f")
        assert "Recreate" in compose("up", "-d", "--force-recreate")
    finally:
        compose("down", "-t", "0")
        file.unlink()


def test_a_swapped_source_is_refused_and_never_followed(tenant: Tenant) -> None:
    """Before the create, between create and start, between two starts, and once the place is gone."""
    raw = tenant.daemon.folder
    try:
        tenant.swapped(raw)
        assert tenant.makes("one", Binds=[f"{tenant.source}:/w"])[0] == 403
        tenant.back()
        assert tenant.makes("one", Binds=[f"{tenant.source}:/w"])[0] == 201
        tenant.swapped(raw)
        status, answer = tenant.ask("POST", "/containers/one/start")
        assert (status, "symbolic link" in str(answer)) == (403, True), answer
        assert tenant.past("POST", "/containers/one/start")[0] == 204, "the daemon itself has the pinned folder"
        assert tenant.sees("one", "/w") == ["mine"]
        assert tenant.ask("POST", "/containers/one/restart?t=0")[0] == 403
        assert tenant.past("POST", "/containers/one/restart?t=0")[0] == 204
        assert tenant.sees("one", "/w") == ["mine"]
        tenant.back()
        assert tenant.ask("POST", "/containers/one/restart?t=0")[0] == 204
    finally:
        tenant.back()
        tenant.forget("one")


def test_another_folder_of_the_same_name_is_pinned_anew(tenant: Tenant) -> None:
    other = tenant.folder / "other"
    try:
        tenant.runs("one", Binds=[f"{tenant.source}:/w"])
        tenant.source.rename(other)
        tenant.source.mkdir()
        (tenant.source / "new").touch()
        assert tenant.ask("POST", "/containers/one/restart?t=0")[0] == 204
        assert tenant.sees("one", "/w") == ["new"]
    finally:
        tenant.forget("one")
        shutil.rmtree(tenant.source)
        other.rename(tenant.source)


@contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """`work` again and again until the block ends."""
    done = threading.Event()

    def loop() -> None:
        while not done.is_set():
            work()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("spelling", ["Binds", "Mounts"])
def test_a_source_that_is_swapped_all_the_time_never_leads_to_the_raw_socket(tenant: Tenant, spelling: str) -> None:
    raw = tenant.daemon.folder
    ran = refused = 0
    form: dict[str, Any] = {
        "Binds": {"Binds": [f"{tenant.source}:/w"]},
        "Mounts": {"Mounts": [{"Type": "bind", "Source": str(tenant.source), "Target": "/w"}]},
    }[spelling]

    def swap() -> None:
        tenant.swapped(raw)
        tenant.back()
        time.sleep(0.001)

    try:
        with meanwhile(swap):
            end = time.monotonic() + 12
            while time.monotonic() < end:
                if tenant.makes("racer", **form)[0] != 201:
                    refused += 1
                    continue
                for target in ("start", "restart?t=0", "restart?t=0"):
                    status, answer = tenant.ask("POST", f"/containers/racer/{target}")
                    if status == 204:
                        ran += 1
                        assert tenant.sees("racer", "/w") == ["mine"]
                    else:
                        assert status == 403, answer
                        refused += 1
                tenant.forget("racer")
        assert ran
        assert refused
    finally:
        tenant.back()
        tenant.forget("racer")


def test_after_a_boot_a_restart_policy_finds_the_pinned_source_or_none(tenant: Tenant, daemons: rig.Daemons) -> None:
    """The places end with the daemon's mount namespace and are made again before the next one starts."""
    raw = tenant.daemon.folder
    always = {"RestartPolicy": {"Name": "always"}}

    def again() -> None:
        daemons.stop(tenant.daemon)
        daemons.start(tenant.daemon.name, engine=tenant.daemon.engine)
        rig.wait_for(lambda: tenant.past("GET", "/containers/one/json")[1]["State"]["Running"])

    try:
        tenant.runs("one", Binds=[f"{tenant.source}:/w"], **always)
        again()
        assert tenant.sees("one", "/w") == ["mine"]
        tenant.swapped(raw)
        again()
        assert tenant.sees("one", "/w") == []
        assert tenant.ask("POST", "/containers/one/restart?t=0")[0] == 403
        tenant.back()
        status, answer = tenant.ask("POST", "/containers/one/restart?t=0")
        assert status == 204, answer
        assert tenant.sees("one", "/w") == ["mine"]
    finally:
        tenant.back()
        tenant.forget("one")


def test_a_container_that_was_made_without_a_pin_does_not_start(tenant: Tenant) -> None:
    try:
        status, _ = tenant.past("POST", "/containers/create?name=one", host(Binds=[f"{tenant.source}:/w"]))
        assert status == 201
        status, answer = tenant.ask("POST", "/containers/one/start")
        assert (status, "make the container anew" in str(answer)) == (403, True), answer
    finally:
        tenant.forget("one")


def test_a_place_is_no_source(tenant: Tenant) -> None:
    try:
        tenant.runs("one", Binds=[f"{tenant.source}:/w"])
        for source in (*tenant.places(), str(tenant.gate.layout.pins)):
            status, answer = tenant.makes("two", Binds=[f"{source}:/w"])
            assert (status, "[hw.trees]" in str(answer)) == (403, True), answer
    finally:
        tenant.forget("one", "two")


def test_what_is_not_pinned_keeps_its_name_and_is_said_to_be_reachable(tenant: Tenant) -> None:
    tenant.write(bindsPinned="false")
    try:
        tenant.runs("one", Binds=[f"{tenant.source}:/w"])
        _, found = tenant.past("GET", "/containers/one/json")
        assert found["HostConfig"]["Binds"] == [f"{tenant.source}:/w"]
        _, status = intruder.ask(tenant.gate.layout.control("gate"), "GET", "/v1/status")
        assert [repo["reason"] for repo in status["repos"] if repo["name"] == tenant.daemon.name] == [
            "RawSocketReachable"
        ]
    finally:
        tenant.forget("one")
        tenant.write()


ASKS = """
import socket, sys
found = socket.socket(socket.AF_UNIX)
found.connect(sys.argv[1])
found.sendall(sys.argv[2].encode().decode("unicode_escape").encode())
while piece := found.recv(65536):
    print(piece.decode(errors="replace"))
"""


def inside(tenant: Tenant, request: str, source: str = SOCKET) -> str:
    """What a container hears that has the Docker socket and asks."""
    body = {
        "Image": workshop.IMAGE,
        "Cmd": workshop.command(ASKS, SOCKET, request),
        "Env": workshop.environment(),
        "HostConfig": {"Binds": [f"{source}:{SOCKET}"]},
    }
    try:
        status, answer = tenant.ask("POST", "/containers/create?name=asks", body)
        assert status == 201, answer
        assert tenant.inspected("asks")["HostConfig"]["Binds"] == [f"{source}:{SOCKET}"]
        status, answer = tenant.ask("POST", "/containers/asks/start")
        assert status == 204, answer
        tenant.past("POST", "/containers/asks/wait")
        return rig.succeeded(tenant.daemon.docker("logs", "asks"))
    finally:
        tenant.forget("asks")


def get(target: str) -> str:
    return f"GET {target} HTTP/1.1\\r\\nHost: docker\\r\\nConnection: close\\r\\n\\r\\n"


def test_the_docker_socket_is_closed_until_it_is_opened(tenant: Tenant) -> None:
    for source in (SOCKET, "/run/docker.sock", str(tenant.daemon.socket), str(tenant.socket)):
        status, answer = tenant.makes("asks", Binds=[f"{source}:{SOCKET}"])
        assert (status, "add host.docker-socket to `open:`" in str(answer)) == (403, True), answer


def test_in_a_container_the_docker_socket_is_the_gates(tenant: Tenant) -> None:
    tenant.write(open="[host.docker-socket]")
    try:
        for source in (SOCKET, "/run/docker.sock", str(tenant.daemon.socket), str(tenant.socket)):
            assert "200 OK" in inside(tenant, get("/_ping"), source)
        body = json.dumps(intruder.PRIVILEGED)
        head = "POST /containers/create HTTP/1.1\\r\\nHost: x\\r\\nContent-Type: application/json\\r\\n"
        said = inside(tenant, f"{head}Connection: close\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n{body}")
        assert "403 Forbidden" in said
        assert "[hw.privileged]" in said
        status, answer = tenant.makes("asks", Binds=[f"{tenant.folder}/docker.sock:{SOCKET}"])
        assert (status, "[hw.socket]" in str(answer)) == (403, True), answer
    finally:
        tenant.write()


def test_a_raw_socket_that_a_container_has_already_is_not_started(tenant: Tenant) -> None:
    tenant.write(open="[host.docker-socket]")
    try:
        bind = f"{tenant.daemon.socket}:{SOCKET}"
        assert tenant.past("POST", "/containers/create?name=one", host(Binds=[bind]))[0] == 201
        status, answer = tenant.ask("POST", "/containers/one/start")
        assert (status, "[hw.socket]" in str(answer)) == (403, True), answer
        assert tenant.makes("two", VolumesFrom=["one"])[0] == 403
    finally:
        tenant.forget("one", "two")
        tenant.write()
