"""What is judged against the grants of now: start, restart, unpause, exec, and a policy that starts by itself."""

from __future__ import annotations

from typing import Any

import pytest

from dockerclient import (
    DRI,
    ID,
    NVIDIA,
    OTHER_ID,
    ask,
    cdi,
    gpus,
    inspected,
    judge_with,
    knows,
    raw,
    repo,
    rules_of,
    said,
    sent,
)
from gpugrant_gate.policy import judge, routes
from gpugrant_gate.policy.model import (
    Admission,
    Body,
    ContainerFact,
    Decision,
    Exchange,
    ExecFact,
    Head,
    InfoFact,
    PathFact,
    PathInfo,
    Refusal,
    RepoView,
    VolumeFact,
)

HELD = repo(NVIDIA)
WITHOUT = repo(name="gpu-b")
R24 = (
    "repo gpu-b has no grant for nvidia.com/gpu=all on wsl-gpu; an operator can run: "
    "rdc repo gpu grant gpu-b@wsl-gpu --device nvidia.com/gpu=all"
)
EXEC = "ab" * 32


def start(view: RepoView, found: Any, **facts: Any) -> Decision:
    return ask("POST", "/v1.45/containers/web/start", view, find=knows({ContainerFact("web"): found, **facts}))


ENGINES = {
    "28.5.2 under cgroup v1": inspected(),
    "26.1.5": inspected(
        MaskedPaths=[path for path in inspected()["HostConfig"]["MaskedPaths"] if path != "/proc/interrupts"]
    ),
    "under cgroup v2": inspected(CgroupnsMode="private"),
    "with lists that are null": inspected(MaskedPaths=None, ReadonlyPaths=None),
    "on a bridge": inspected(NetworkMode="bridge", IpcMode="shareable"),
}


@pytest.mark.parametrize("found", ENGINES.values(), ids=ENGINES.keys())
def test_a_plain_container_starts_by_its_full_id(found: dict[str, Any]) -> None:
    decision = start(repo(), found)
    assert isinstance(decision, Admission)
    assert decision.outgoing.target == f"/v1.45/containers/{ID}/start"
    assert decision.outgoing.body == b""
    assert decision.devices == ()


@pytest.mark.req("R23")
def test_a_container_starts_with_the_devices_that_its_repo_holds() -> None:
    decision = start(repo(NVIDIA, DRI), inspected(DeviceRequests=cdi(NVIDIA, DRI)))
    assert isinstance(decision, Admission)
    assert decision.devices == (NVIDIA, DRI)


@pytest.mark.req("R1", "R24", "R51")
def test_a_container_made_while_the_device_was_granted_does_not_start_after_the_revocation() -> None:
    decision = start(WITHOUT, inspected(DeviceRequests=cdi(NVIDIA)))
    assert said(decision) == f"{R24}; the container was made while the device was granted [hw.grant]"
    assert isinstance(decision, Refusal)
    assert decision.missing == (NVIDIA,)


PAST_THE_GATE = {
    "privileged": ({"Privileged": True}, "hw.privileged"),
    "--gpus all": ({"DeviceRequests": gpus()}, "hw.gpus"),
    "a raw device": ({"Devices": raw("/dev/dri/renderD128")}, "hw.devices"),
    "a raw device with a CDI name": ({"Devices": raw(NVIDIA)}, "hw.devices"),
    "device cgroup rules": ({"DeviceCgroupRules": ["c 195:* rwm"]}, "hw.cgroup-rules"),
    "the runtime nvidia": ({"Runtime": "nvidia"}, "hw.runtime"),
    "host PID": ({"PidMode": "host"}, "hw.pid"),
    "a cgroup parent": ({"CgroupParent": "/x"}, "hw.cgroup"),
    "annotations": ({"Annotations": {"a": "b"}}, "hw.annotations"),
    "SYS_ADMIN": ({"CapAdd": ["SYS_ADMIN"]}, "hw.capabilities"),
    "no masks": ({"MaskedPaths": [], "ReadonlyPaths": []}, "hw.masks"),
    "a bind of /dev": ({"Binds": ["/dev:/dev"]}, "hw.trees"),
    "a mount of the socket": (
        {"Mounts": [{"Type": "bind", "Source": "/var/run/docker.sock", "Target": "/s"}]},
        "hw.socket",
    ),
    "host network": ({"NetworkMode": "host"}, "host.network"),
    "no seccomp": ({"SecurityOpt": ["seccomp=unconfined"]}, "host.security"),
    "a field of a newer daemon": ({"DevicePlugins": ["x"]}, "body.field"),
}


@pytest.mark.parametrize(("host", "rule"), PAST_THE_GATE.values(), ids=PAST_THE_GATE.keys())
@pytest.mark.req("R45")
def test_a_container_made_past_the_gate_is_refused(host: dict[str, Any], rule: str) -> None:
    assert rule in rules_of(start(HELD, inspected(**host)))


RESOLVED = {
    "a bind of /dev": ([{"Type": "bind", "Source": "/dev", "Destination": "/x"}], "hw.trees"),
    "a volume with options": (
        [{"Type": "volume", "Name": "old", "Driver": "local", "Destination": "/x"}],
        "hw.volumes",
    ),
    "a volume of another driver": ([{"Type": "volume", "Name": "v", "Driver": "x", "Destination": "/x"}], "hw.volumes"),
    "a source that became a link": (
        [{"Type": "bind", "Source": "/srv/gpu-a/link", "Destination": "/x"}],
        "host.binds",
    ),
    "a list that is none": ("?", "host.mounts"),
}


@pytest.mark.parametrize(("mounts", "rule"), RESOLVED.values(), ids=RESOLVED.keys())
@pytest.mark.req("R45")
def test_what_a_daemon_resolved_is_judged_too(mounts: Any, rule: str) -> None:
    facts = {
        ContainerFact("web"): inspected(mounts=mounts),
        VolumeFact("old"): {"Driver": "local", "Options": {"device": "/dev"}},
        PathFact("/srv/gpu-a/link"): PathInfo("directory", symlink=True, swappable=False),
    }
    decision = ask("POST", "/containers/web/start", repo(binds=("/srv/gpu-a",)), find=knows(facts))
    assert rule in rules_of(decision)


def test_a_bind_and_a_volume_that_still_are_what_they_were_start() -> None:
    facts = {
        ContainerFact("web"): inspected(
            Binds=["/srv/gpu-a/src:/src"],
            mounts=[
                {
                    "Type": "bind",
                    "Source": "/srv/gpu-a/src",
                    "Destination": "/src",
                    "Mode": "",
                    "RW": True,
                    "Propagation": "rprivate",
                },
                {
                    "Type": "volume",
                    "Name": "data",
                    "Source": "/x",
                    "Destination": "/d",
                    "Driver": "local",
                    "Propagation": "",
                },
            ],
        ),
        VolumeFact("data"): {"Driver": "local", "Options": None},
    }
    assert isinstance(ask("POST", "/containers/web/start", repo(binds=("/srv/gpu-a",)), find=knows(facts)), Admission)


def test_a_container_that_is_not_there_is_docker_s_own_404() -> None:
    decision = ask("POST", "/containers/web/start", HELD)
    assert isinstance(decision, Refusal)
    assert decision.status == 404
    assert decision.message.startswith("No such container: web")


STRANGE = {
    "a list": [],
    "no id": {"HostConfig": {}},
    "an id that is a name": inspected(id_="web"),
    "no host config": {"Id": ID, "Mounts": [], "Config": {}},
    "a host config that is a list": {"Id": ID, "HostConfig": []},
    "a flag that is a string": inspected(Privileged="false"),
    "mounts that are a number": {**inspected(), "Mounts": 1},
}


@pytest.mark.parametrize("found", STRANGE.values(), ids=STRANGE.keys())
@pytest.mark.parametrize("line", ["start", "restart", "unpause"])
def test_an_answer_that_cannot_be_understood_refuses(found: Any, line: str) -> None:
    decision = ask("POST", f"/containers/web/{line}", HELD, find=knows({ContainerFact("web"): found}))
    assert rules_of(decision) == ["gate.facts"]


def test_a_start_without_the_fact_is_refused() -> None:
    routed = routes.route(Head("POST", "/containers/web/start", (), (1, 1), False), HELD)
    assert not isinstance(routed, Refusal)
    assert rules_of(judge.judge(routed, b"", {}, HELD)) == ["gate.facts"]


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b" {} \n"])
def test_an_empty_body_of_any_client_goes_on_as_none(body: bytes) -> None:
    decision = ask("POST", "/containers/web/start", HELD, body, find=knows({ContainerFact("web"): inspected()}))
    assert isinstance(decision, Admission)
    assert decision.outgoing.body == b""


@pytest.mark.parametrize("body", [b'{"Binds":["/dev:/dev"]}', b"x", b'{"Privileged":true}'])
def test_a_start_with_a_body_is_refused(body: bytes) -> None:
    decision = ask("POST", "/containers/web/start", HELD, body, find=knows({ContainerFact("web"): inspected()}))
    assert isinstance(decision, Refusal)
    assert decision.status == 400


# restart


def test_a_restart_that_says_its_query_twice_starts_without_a_body() -> None:
    find = knows({ContainerFact("web"): inspected()})
    decision = ask("POST", "/containers/web/restart?t=5", HELD, {"t": 5}, find=find)
    assert isinstance(decision, Admission)
    assert decision.then is not None
    assert (decision.outgoing.body, decision.then.body) == (b"", Body.NONE)


def restart(view: RepoView, found: Any) -> Decision:
    return ask("POST", "/v1.45/containers/web/restart?t=5&signal=INT", view, find=knows({ContainerFact("web"): found}))


def test_a_restart_is_a_stop_and_then_a_start_that_is_judged_afresh() -> None:
    decision = restart(HELD, inspected(DeviceRequests=cdi(NVIDIA)))
    assert isinstance(decision, Admission)
    assert decision.outgoing.target == f"/v1.45/containers/{ID}/stop?t=5&signal=INT"
    assert decision.devices == (NVIDIA,)
    then = decision.then
    assert then is not None
    assert (then.route, then.segments, then.query, then.body) == (
        "container.start", ("containers", ID, "start"), (), Body.NONE,
    )  # fmt: skip
    find = knows({ContainerFact(ID): inspected(DeviceRequests=cdi(NVIDIA))})
    assert isinstance(judge_with(then, b"", HELD, find), Admission)
    assert rules_of(judge_with(then, b"", WITHOUT, find)) == ["hw.grant"]


@pytest.mark.req("R51")
def test_a_refused_restart_leaves_the_container_running() -> None:
    assert rules_of(restart(WITHOUT, inspected(DeviceRequests=cdi(NVIDIA)))) == ["hw.grant"]


def test_a_container_that_goes_when_it_stops_is_not_restarted() -> None:
    decision = restart(HELD, inspected(AutoRemove=True))
    assert rules_of(decision) == ["start.auto-remove"]
    assert "run it anew" in said(decision)


# what goes on in a container that runs


def unpause(view: RepoView, found: Any) -> Decision:
    return ask("POST", "/containers/web/unpause", view, find=knows({ContainerFact("web"): found}))


def exec_create(view: RepoView, found: Any) -> Decision:
    body = {"Cmd": ["sh"], "Tty": True, "Privileged": False, "Env": None}
    return ask("POST", "/containers/web/exec", view, body, find=knows({ContainerFact("web"): found}))


def exec_start(view: RepoView, found: Any) -> Decision:
    facts = {ExecFact(EXEC): {"ContainerID": ID, "ProcessConfig": {"privileged": False}}, ContainerFact(ID): found}
    return ask("POST", f"/exec/{EXEC}/start", view, {"Detach": False, "Tty": True}, find=knows(facts))


def restart_policy(view: RepoView, found: Any) -> Decision:
    body = {"RestartPolicy": {"Name": "always", "MaximumRetryCount": 0}}
    return ask("POST", "/containers/web/update", view, body, find=knows({ContainerFact("web"): found}))


LIKE_START = pytest.mark.parametrize("act", [unpause, exec_create, exec_start, restart_policy])


@LIKE_START
def test_a_container_without_devices_is_free(act: Any) -> None:
    assert isinstance(act(repo(), inspected()), Admission)


@LIKE_START
def test_a_container_with_granted_devices_is_free(act: Any) -> None:
    decision = act(HELD, inspected(DeviceRequests=cdi(NVIDIA)))
    assert isinstance(decision, Admission)
    assert decision.devices == (NVIDIA,)


@LIKE_START
@pytest.mark.req("R51")
def test_a_container_whose_device_was_revoked_is_refused(act: Any) -> None:
    decision = act(WITHOUT, inspected(DeviceRequests=cdi(NVIDIA)))
    assert rules_of(decision) == ["hw.grant"]
    assert R24 in said(decision)


@LIKE_START
@pytest.mark.parametrize("host", [{"Privileged": True}, {"Devices": raw("/dev/dri")}, {"Binds": ["/dev:/dev"]}])
@pytest.mark.req("R45")
def test_a_container_with_hardware_from_past_the_gate_is_refused(act: Any, host: dict[str, Any]) -> None:
    assert rules_of(act(HELD, inspected(**host)))[0].startswith("hw.")


@LIKE_START
def test_host_power_of_a_container_that_runs_is_no_matter_of_hardware(act: Any) -> None:
    assert isinstance(act(repo(), inspected(NetworkMode="host", SecurityOpt=["seccomp=unconfined"])), Admission)


def test_an_exec_goes_to_the_full_id_with_its_body_written_anew() -> None:
    decision = exec_create(repo(), inspected())
    assert isinstance(decision, Admission)
    assert decision.outgoing.target == f"/v1.45/containers/{ID}/exec"
    assert sent(decision) == {"Cmd": ["sh"], "Tty": True, "Privileged": False}


@pytest.mark.req("R45")
def test_a_privileged_exec_is_refused() -> None:
    body = {"Cmd": ["sh"], "Privileged": True}
    decision = ask("POST", "/containers/web/exec", HELD, body, find=knows({ContainerFact("web"): inspected()}))
    assert rules_of(decision) == ["hw.privileged"]


@pytest.mark.req("R45")
def test_a_privileged_exec_from_past_the_gate_does_not_start() -> None:
    facts = {ExecFact(EXEC): {"ContainerID": ID, "ProcessConfig": {"privileged": True}}, ContainerFact(ID): inspected()}
    decision = ask("POST", f"/exec/{EXEC}/start", HELD, {"Detach": False}, find=knows(facts))
    assert rules_of(decision) == ["hw.privileged"]


@pytest.mark.parametrize(
    ("body", "exchange"), [({"Detach": True}, Exchange.PLAIN), ({}, Exchange.HIJACK), (None, Exchange.HIJACK)]
)
def test_an_exec_is_a_pipe_unless_it_is_detached(body: Any, exchange: Exchange) -> None:
    facts = {ExecFact(EXEC): {"ContainerID": ID}, ContainerFact(ID): inspected()}
    decision = ask("POST", f"/exec/{EXEC}/start", HELD, body, find=knows(facts))
    assert isinstance(decision, Admission)
    assert decision.outgoing.exchange is exchange


@pytest.mark.parametrize("found", [{}, {"ContainerID": "web"}, {"ContainerID": None}, []])
def test_an_exec_of_an_unknown_place_is_refused(found: Any) -> None:
    decision = ask("POST", f"/exec/{EXEC}/start", HELD, {}, find=knows({ExecFact(EXEC): found}))
    assert rules_of(decision) == ["gate.facts"]


def test_an_exec_that_is_not_there_is_docker_s_own_404() -> None:
    decision = ask("POST", f"/exec/{EXEC}/start", HELD, {})
    assert isinstance(decision, Refusal)
    assert decision.status == 404


def test_a_large_exec_body_of_an_editor_passes() -> None:
    body = {"Cmd": ["sh", "-c", "x" * 1_000_000], "AttachStdout": True}
    decision = ask("POST", "/containers/web/exec", HELD, body, find=knows({ContainerFact("web"): inspected()}))
    assert sent(decision)["Cmd"] == ["sh", "-c", "x" * 1_000_000]


# update


def update(view: RepoView, body: dict[str, Any], found: Any = None) -> Decision:
    return ask("POST", "/containers/web/update", view, body, find=knows({ContainerFact("web"): found or inspected()}))


def test_limits_are_updated_without_a_look_at_the_container() -> None:
    decision = update(
        WITHOUT, {"Memory": 1, "DeviceRequests": None, "Devices": []}, inspected(DeviceRequests=cdi(NVIDIA))
    )
    assert sent(decision) == {"Memory": 1}


@pytest.mark.parametrize("name", ["no", ""])
def test_a_restart_policy_can_always_be_taken_away(name: str) -> None:
    found = inspected(id_=OTHER_ID, DeviceRequests=cdi(NVIDIA))
    assert isinstance(update(WITHOUT, {"RestartPolicy": {"Name": name}}, found), Admission)


UPDATES = {
    "devices": ({"Devices": raw("/dev/dri")}, "hw.update"),
    "a granted device": ({"DeviceRequests": cdi(NVIDIA)}, "hw.update"),
    "device cgroup rules": ({"DeviceCgroupRules": ["a *:* rwm"]}, "hw.cgroup-rules"),
    "a cgroup parent": ({"CgroupParent": "/x"}, "hw.cgroup"),
    "a path to throttle": ({"BlkioDeviceReadBps": [{"Path": "/dev/sda"}]}, "host.blkio"),
    "an unknown policy": ({"RestartPolicy": {"Name": "sometimes"}}, "host.restart"),
    "an unknown field": ({"Privileged": True}, "body.field"),
}


@pytest.mark.parametrize(("body", "rule"), UPDATES.values(), ids=UPDATES.keys())
@pytest.mark.req("R45")
def test_refuses_in_an_update(body: dict[str, Any], rule: str) -> None:
    assert rules_of(update(HELD, body)) == [rule]


# open whatever was revoked


@pytest.mark.parametrize(
    "line",
    [
        "GET /containers/web/logs?stdout=1",
        "POST /containers/web/stop?t=1",
        "POST /containers/web/kill",
        "POST /containers/web/pause",
        "POST /containers/web/wait",
        "DELETE /containers/web?force=1",
        "POST /containers/web/rename?name=y",
    ],
)
def test_stays_open_without_a_look(line: str) -> None:
    method, _, target = line.partition(" ")
    decision = ask(method, f"/v1.45{target}", WITHOUT)
    assert isinstance(decision, Admission)
    assert decision.devices == ()


FILES = ["GET", "HEAD", "PUT"]


@pytest.mark.parametrize("method", FILES)
def test_files_go_in_and_out_after_a_revocation(method: str) -> None:
    """A daemon mounts no device for it."""
    find = knows({ContainerFact("web"): inspected(DeviceRequests=cdi(NVIDIA))})
    decision = ask(method, "/containers/web/archive?path=%2Fx", WITHOUT, find=find)
    assert isinstance(decision, Admission)
    assert decision.outgoing.target == f"/v1.45/containers/{ID}/archive?path=%2Fx"
    assert decision.outgoing.plain_tar == (method == "PUT")


@pytest.mark.parametrize("method", FILES)
@pytest.mark.req("R45")
def test_no_files_by_way_of_a_mount_of_the_machine(method: str) -> None:
    """The container need not run: the daemon mounts for itself what it has."""
    bind = {"Type": "bind", "Source": "/", "Destination": "/x"}
    find = knows({ContainerFact("web"): inspected(mounts=[bind])})
    assert rules_of(ask(method, "/containers/web/archive?path=%2Fx", WITHOUT, find=find)) == ["hw.trees"]


# talking to what runs


def attach(view: RepoView, found: dict[str, Any]) -> Decision:
    return ask("POST", "/containers/web/attach?stream=1&stdin=1", view, find=knows({ContainerFact("web"): found}))


WEBSOCKET = (("upgrade", "WebSocket"), ("sec-websocket-key", "AAAA"), ("sec-websocket-version", "13"), ("origin", "x"))


def test_attaching_by_websocket_is_judged_like_attaching() -> None:
    found = {ContainerFact("web"): inspected()}
    target = "/containers/web/attach/ws?stream=1"
    decision = ask("GET", target, WITHOUT, find=knows(found), headers=WEBSOCKET)
    assert isinstance(decision, Admission)
    assert decision.outgoing.exchange is Exchange.HIJACK
    assert decision.outgoing.headers == WEBSOCKET[:3]
    privileged = {ContainerFact("web"): inspected(Privileged=True)}
    assert rules_of(ask("GET", target, WITHOUT, find=knows(privileged), headers=WEBSOCKET)) == ["hw.privileged"]
    for headers in (WEBSOCKET[:1], WEBSOCKET[1:], (("upgrade", "tcp"), *WEBSOCKET[1:])):
        assert rules_of(ask("GET", target, WITHOUT, find=knows(found), headers=headers)) == ["http.upgrade"]


@pytest.mark.parametrize(
    "found",
    [inspected(), inspected(DeviceRequests=cdi(NVIDIA)), inspected(NetworkMode="host")],
    ids=["plain", "its grant was revoked", "on the host's network"],
)
def test_a_console_stays_whatever_was_revoked_or_closed(found: dict[str, Any]) -> None:
    decision = attach(WITHOUT, found)
    assert isinstance(decision, Admission)
    assert decision.outgoing.target == f"/v1.45/containers/{ID}/attach?stream=1&stdin=1"


PAST = {
    "privileged": (inspected(Privileged=True), "hw.privileged"),
    "host PID": (inspected(PidMode="host"), "hw.pid"),
    "a raw device": (inspected(Devices=raw("/dev/kfd")), "hw.devices"),
    "a bind of the machine": (inspected(mounts=[{"Type": "bind", "Source": "/", "Destination": "/x"}]), "hw.trees"),
}


@pytest.mark.parametrize(("found", "rule"), PAST.values(), ids=PAST.keys())
@pytest.mark.req("R45")
def test_no_console_of_what_was_made_past_the_gate(found: dict[str, Any], rule: str) -> None:
    assert rules_of(attach(repo(NVIDIA), found)) == [rule]


@pytest.mark.parametrize(("own", "rules"), [("syslog", []), ("json-file", ["host.log"])])
def test_the_daemons_own_log_driver_is_no_wish(own: str, rules: list[str]) -> None:
    found = inspected(LogConfig={"Type": "syslog", "Config": {"syslog-address": "udp://x"}})
    find = knows({ContainerFact("web"): found, InfoFact(): {"LoggingDriver": own}})
    assert rules_of(ask("POST", "/containers/web/start", repo(), find=find)) == rules


def test_the_label_that_the_daemon_adds_to_host_ipc_is_no_wish() -> None:
    added = {"SecurityOpt": ["label=disable"]}
    assert isinstance(start(repo(open=frozenset({"host.ipc"})), inspected(IpcMode="host", **added)), Admission)
    assert rules_of(start(repo(), inspected(IpcMode="private", **added))) == ["host.security"]
    assert rules_of(start(repo(), inspected(IpcMode="host", **added))) == ["host.ipc"]
