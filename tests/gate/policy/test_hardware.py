"""The one hardware door, and every other way to a device: refused, with what to write instead."""

from __future__ import annotations

from typing import Any

import pytest

from dockerclient import (
    DRI,
    NVIDIA,
    cdi,
    compose_body,
    create,
    gpus,
    raw,
    repo,
    rules_of,
    run_body,
    said,
    sent,
)
from gpugrant_gate.policy.model import Admission, Refusal

HELD = repo(NVIDIA)
WITHOUT = repo()

R24 = (
    "repo gpu-b has no grant for nvidia.com/gpu=all on wsl-gpu; an operator can run: "
    "rdc repo gpu grant gpu-b@wsl-gpu --device nvidia.com/gpu=all"
)
REQUEST = {"Driver": "cdi", "Count": 0, "DeviceIDs": [NVIDIA], "Capabilities": None, "Options": None}


@pytest.mark.req("R5", "R23")
def test_a_granted_name_passes_in_its_one_form() -> None:
    decision = create(HELD, run_body(DeviceRequests=cdi(NVIDIA)))
    assert sent(decision)["HostConfig"]["DeviceRequests"] == [REQUEST]
    assert isinstance(decision, Admission)
    assert decision.devices == (NVIDIA,)


FORMS = {
    "docker-py's empty lists": [{**REQUEST, "Capabilities": [], "Options": {}}],
    "without the zero fields": [{"Driver": "cdi", "DeviceIDs": [NVIDIA]}],
    "in lower case": [{"driver": "cdi", "deviceids": [NVIDIA]}],
    "with a request that says nothing beside it": [{"Driver": "", "Count": 0, "DeviceIDs": None}, REQUEST],
    "named twice": [REQUEST, REQUEST],
}


@pytest.mark.parametrize("requests", FORMS.values(), ids=FORMS.keys())
@pytest.mark.req("R46")
def test_the_forms_of_the_door_are_one_form_behind_it(requests: list[dict[str, Any]]) -> None:
    assert sent(create(HELD, run_body(DeviceRequests=requests)))["HostConfig"]["DeviceRequests"] == [REQUEST]


@pytest.mark.req("R5")
def test_several_granted_names_pass_in_their_order() -> None:
    view = repo(NVIDIA, DRI)
    host = sent(create(view, run_body(DeviceRequests=[*cdi(DRI), *cdi(NVIDIA, DRI)])))["HostConfig"]
    assert host["DeviceRequests"][0]["DeviceIDs"] == [DRI, NVIDIA]


@pytest.mark.req("R24")
def test_an_ungranted_name_is_refused_with_the_sentence_that_names_the_grant() -> None:
    decision = create(repo(name="gpu-b"), run_body(DeviceRequests=cdi(NVIDIA)))
    assert said(decision) == f"{R24} [hw.grant]"
    assert isinstance(decision, Refusal)
    assert (decision.status, decision.missing) == (403, (NVIDIA,))


@pytest.mark.req("R5", "R24")
def test_all_missing_names_are_told_with_the_command_for_the_first() -> None:
    decision = create(repo(DRI), run_body(DeviceRequests=cdi("rediacc.io/amd=gpu0", DRI, NVIDIA)))
    assert said(decision) == (
        "repo gpu-a has no grant for rediacc.io/amd=gpu0, nvidia.com/gpu=all on wsl-gpu; an operator can run: "
        "rdc repo gpu grant gpu-a@wsl-gpu --device rediacc.io/amd=gpu0 [hw.grant]"
    )


@pytest.mark.req("R7")
@pytest.mark.parametrize(
    ("held", "asked"),
    [
        (NVIDIA, "nvidia.com/gpu=0"),
        ("nvidia.com/gpu=0", NVIDIA),
        (NVIDIA, "nvidia.com/gpu=All"),
        (NVIDIA, "Nvidia.com/gpu=all"),
    ],
)
def test_a_grant_is_of_one_exact_name(held: str, asked: str) -> None:
    assert rules_of(create(repo(held), run_body(DeviceRequests=cdi(asked)))) == ["hw.grant"]


@pytest.mark.req("R8")
def test_a_misspelt_name_is_told_with_the_nearest() -> None:
    message = said(create(HELD, run_body(DeviceRequests=cdi("nvidia.com/gpu=al"))))
    assert 'wsl-gpu has no device "nvidia.com/gpu=al"; did you mean nvidia.com/gpu=all' in message


@pytest.mark.parametrize(
    "name", ["a/b=c", "a/gpu=c", "nvidia.com/g=all", "", "/dev/nvidia0", "nvidia.com/gpu", "gpu=all"]
)
def test_a_name_that_breaks_daemons_never_reaches_one_not_even_granted(name: str) -> None:
    assert rules_of(create(repo(name), run_body(DeviceRequests=cdi(name)))) == ["hw.grant"]


def test_at_most_64_names() -> None:
    names = [f"nvidia.com/gpu={index}" for index in range(65)]
    assert isinstance(create(repo(*names), run_body(DeviceRequests=cdi(*names[:64]))), Admission)
    assert rules_of(create(repo(*names), run_body(DeviceRequests=cdi(*names)))) == ["hw.grant"]


GPUS = {
    "--gpus all": gpus(),
    "--gpus device=nvidia.com/gpu=all": gpus(Count=0, DeviceIDs=[NVIDIA]),
    "--gpus driver=cdi,device=nvidia.com/gpu=all": gpus(Driver="cdi", Count=0, DeviceIDs=[NVIDIA]),
    "--gpus device=0": gpus(Count=0, DeviceIDs=["0"]),
    "deploy with driver cdi": gpus(Driver="cdi", Count=0, DeviceIDs=[NVIDIA], Options=None),
    "deploy with driver nvidia": gpus(Driver="nvidia"),
    "the driver nvidia with a CDI name": gpus(
        Driver="nvidia", Count=0, DeviceIDs=["vendor.com/net=hostnic"], Capabilities=None
    ),
    "the driver nvidia.cdi": gpus(Driver="nvidia.cdi", Count=0, DeviceIDs=[NVIDIA], Capabilities=None),
    "the driver amd": gpus(Driver="amd"),
    "no driver and a CDI name": gpus(Driver="", Count=0, DeviceIDs=[NVIDIA], Capabilities=None),
    "CDI in capitals": gpus(Driver="CDI", Count=0, DeviceIDs=[NVIDIA], Capabilities=None),
    "CDI with a blank": gpus(Driver="cdi ", Count=0, DeviceIDs=[NVIDIA], Capabilities=None),
    "a count": [{**REQUEST, "Count": 1}],
    "a count of all": [{**REQUEST, "Count": -1}],
    "options": [{**REQUEST, "Options": {"a": "b"}}],
    "an empty capability set": [{**REQUEST, "Capabilities": [[]]}],
    "cdi without names": [{**REQUEST, "DeviceIDs": []}],
    "a good request with a bad one behind it": [REQUEST, *gpus()],
}


@pytest.mark.parametrize("view", [HELD, WITHOUT], ids=["with a grant", "without"])
@pytest.mark.parametrize("requests", GPUS.values(), ids=GPUS.keys())
@pytest.mark.req("R30", "R32", "R33", "R46")
def test_every_other_device_request_is_refused_with_both_forms(requests: list[dict[str, Any]], view: Any) -> None:
    decision = create(view, run_body(DeviceRequests=requests))
    assert "hw.gpus" in rules_of(decision)
    assert "docker run --device nvidia.com/gpu=" in said(decision)
    assert "devices: [nvidia.com/gpu=" in said(decision)


@pytest.mark.req("R30")
def test_the_plain_flag_is_answered_with_the_whole_set() -> None:
    assert said(create(HELD, run_body(DeviceRequests=gpus()))) == (
        "GPUs by --gpus, gpus: or deploy.resources.reservations.devices are refused: write docker run --device "
        "nvidia.com/gpu=all, or in a Compose file devices: [nvidia.com/gpu=all] [hw.gpus]"
    )


@pytest.mark.req("R32", "R33", "R46")
def test_compose_hears_of_its_own_form_alone() -> None:
    message = said(create(HELD, compose_body(DeviceRequests=gpus())))
    assert "devices: [nvidia.com/gpu=all]" in message
    assert "docker run" not in message
    assert "--gpus" not in message


HINTS = {
    "the one that it holds": (repo("nvidia.com/gpu=0"), gpus(), "nvidia.com/gpu=0"),
    "all before one card": (repo("nvidia.com/gpu=0", NVIDIA), gpus(), NVIDIA),
    "the card that was meant": (repo("nvidia.com/gpu=0", NVIDIA), gpus(Count=0, DeviceIDs=["0"]), "nvidia.com/gpu=0"),
    "an AMD card that it holds": (repo("rediacc.io/amd=gpu0"), gpus(), "rediacc.io/amd=gpu0"),
    "what the machine has": (repo(devices=("rediacc.io/amd=gpu0",)), gpus(), "rediacc.io/amd=gpu0"),
    "NVIDIA's whole set where nothing is known": (repo(devices=()), gpus(), NVIDIA),
    "nothing that is gone": (repo("nvidia.com/gpu=7"), gpus(), NVIDIA),
}


@pytest.mark.parametrize(("view", "requests", "name"), HINTS.values(), ids=HINTS.keys())
@pytest.mark.req("R30")
def test_names(view: Any, requests: list[dict[str, Any]], name: str) -> None:
    message = said(create(view, run_body(DeviceRequests=requests)))
    assert f"--device {name}, or in a Compose file devices: [{name}]" in message


def test_says_that_the_named_device_needs_a_grant() -> None:
    assert "it needs a grant: rdc repo gpu grant gpu-a@wsl-gpu" in said(
        create(WITHOUT, run_body(DeviceRequests=gpus()))
    )
    assert "it needs a grant" not in said(create(HELD, run_body(DeviceRequests=gpus())))


@pytest.mark.req("R31")
@pytest.mark.parametrize(
    "runtime", ["nvidia", "crun", "io.containerd.runsc.v1", "io.containerd.runc.v2", "RUNC", "runc ", "runc\n"]
)
@pytest.mark.parametrize("view", [HELD, WITHOUT], ids=["with a grant", "without"])
def test_another_runtime_is_refused_with_the_form_for_a_gpu(runtime: str, view: Any) -> None:
    decision = create(view, run_body(Runtime=runtime))
    assert rules_of(decision) == ["hw.runtime"]
    assert "devices: [nvidia.com/gpu=all]" in said(decision)


@pytest.mark.req("R31")
def test_runc_by_name_passes() -> None:
    assert sent(create(WITHOUT, run_body(Runtime="runc")))["HostConfig"]["Runtime"] == "runc"


RAW = {
    "/dev/dri": ("rediacc.io/dri=renderD128", "rediacc.io/amd=gpu0"),
    "/dev/dri/renderD129": ("rediacc.io/dri=renderD129", "rediacc.io/amd=gpu0"),
    "/dev/dri/card0": ("rediacc.io/dri=renderD128", "rediacc.io/amd=gpu0"),
    "/dev/kfd": ("rediacc.io/amd=gpu0", "rediacc.io/dri=renderD128"),
    "//dev//dri": ("rediacc.io/dri=renderD128",),
    "/dev/nvidia0": ("nvidia.com/gpu=",),
    "/dev/nvidiactl": ("nvidia.com/gpu=all",),
    "/dev/nvidia-caps/nvidia-cap1": ("nvidia.com/gpu=all",),
    "/dev/dxg": ("nvidia.com/gpu=all",),
    "/dev/fuse": ("only a device with a CDI name",),
    "/dev": ("only a device with a CDI name",),
    "/etc/passwd": ("only a device with a CDI name",),
    "dri": ("only a device with a CDI name",),
}


@pytest.mark.req("R24")
@pytest.mark.parametrize("name", ["\x1b[31mx", "nvidia.com/gpu=all\n", "", "x" * 3000, "nvidia.com/gpu=\u202e0"])
def test_a_name_that_a_terminal_would_obey_is_quoted(name: str) -> None:
    sentence = said(create(WITHOUT, run_body(DeviceRequests=cdi(name))))
    assert sentence.isascii()
    assert sentence.isprintable()
    assert len(sentence) < 1000
    assert "  " not in sentence


@pytest.mark.req("R34")
def test_the_name_that_is_held_is_told_before_the_one_that_needs_a_grant() -> None:
    body = run_body(Devices=raw("/dev/nvidia0"))
    held = said(create(HELD, body))
    assert "--device nvidia.com/gpu=all" in held
    assert "it needs a grant" not in held
    assert "--device nvidia.com/gpu=0" in said(create(WITHOUT, body))


@pytest.mark.parametrize(("path", "names"), RAW.items(), ids=RAW.keys())
@pytest.mark.parametrize("view", [HELD, WITHOUT], ids=["with a grant", "without"])
@pytest.mark.req("R34")
def test_a_raw_device_is_refused_with_the_cdi_name(path: str, names: tuple[str, ...], view: Any) -> None:
    decision = create(view, run_body(Devices=raw(path)))
    assert rules_of(decision) == ["hw.devices"]
    assert all(name in said(decision) for name in names)


@pytest.mark.req("R34")
def test_a_raw_device_in_compose_hears_of_composes_form_alone() -> None:
    message = said(create(WITHOUT, compose_body(Devices=raw("/dev/kfd"))))
    assert "devices: [rediacc.io/amd=gpu0]" in message
    assert "docker run" not in message


@pytest.mark.req("R36")
def test_the_long_form_of_an_old_compose_says_no_permissions() -> None:
    """`devices: [{source: nvidia.com/gpu=all, target: nvidia.com/gpu=all}]` with Compose 2.26."""
    host = sent(create(repo(NVIDIA), compose_body(Devices=raw(NVIDIA, ""))))["HostConfig"]
    assert host["DeviceRequests"][0]["DeviceIDs"] == [NVIDIA]
    assert "Devices" not in host


@pytest.mark.req("R36")
def test_a_cdi_name_as_old_compose_writes_it_becomes_a_request() -> None:
    decision = create(repo(NVIDIA, DRI), compose_body(Devices=[*raw(NVIDIA), *raw(DRI)]))
    host = sent(decision)["HostConfig"]
    assert host["DeviceRequests"] == [{**REQUEST, "DeviceIDs": [NVIDIA, DRI]}]
    assert "Devices" not in host
    assert isinstance(decision, Admission)
    assert decision.devices == (NVIDIA, DRI)


@pytest.mark.req("R24", "R36")
def test_a_cdi_name_as_old_compose_writes_it_needs_its_grant() -> None:
    decision = create(repo(name="gpu-b"), compose_body(Devices=raw(NVIDIA)))
    assert said(decision) == f"{R24} [hw.grant]"


NOT_COMPOSES_FORM = {
    "other permissions": {**raw(NVIDIA)[0], "CgroupPermissions": "rw"},
    "another place in the container": {**raw(NVIDIA)[0], "PathInContainer": "/dev/x"},
    "no place in the container": {"PathOnHost": NVIDIA},
}


@pytest.mark.parametrize("device", NOT_COMPOSES_FORM.values(), ids=NOT_COMPOSES_FORM.keys())
@pytest.mark.req("R34")
def test_a_cdi_name_in_another_raw_form_is_refused(device: dict[str, str]) -> None:
    assert rules_of(create(HELD, run_body(Devices=[device]))) == ["hw.devices"]


@pytest.mark.req("R35")
def test_device_cgroup_rules_are_refused_with_the_grant_to_ask_for() -> None:
    decision = create(HELD, run_body(DeviceCgroupRules=["c 195:* rwm"]))
    assert rules_of(decision) == ["hw.cgroup-rules"]
    assert "CDI grant" in said(decision)
    assert "--device nvidia.com/gpu=all" in said(decision)


@pytest.mark.req("R37")
@pytest.mark.parametrize("groups", [["video"], ["render", "44"], ["0"]])
def test_groups_pass_and_grant_nothing(groups: list[str]) -> None:
    host = sent(create(WITHOUT, run_body(GroupAdd=groups)))["HostConfig"]
    assert host["GroupAdd"] == groups
    assert "DeviceRequests" not in host


HARDWARE = {
    "privileged": ({"Privileged": True}, "hw.privileged"),
    "SYS_ADMIN": ({"CapAdd": ["SYS_ADMIN"]}, "hw.capabilities"),
    "SYS_ADMIN in another spelling": ({"CapAdd": ["cap_sys_admin"]}, "hw.capabilities"),
    "SYS_RAWIO": ({"CapAdd": ["CAP_SYS_RAWIO"]}, "hw.capabilities"),
    "SYS_MODULE": ({"CapAdd": ["sys_module"]}, "hw.capabilities"),
    "all capabilities": ({"CapAdd": ["all"]}, "hw.capabilities"),
    "one string for the list": ({"CapAdd": "ALL"}, "hw.capabilities"),
    "the host's processes": ({"PidMode": "host"}, "hw.pid"),
    "another container's processes": ({"PidMode": "container:x"}, "hw.pid"),
    "a cgroup parent": ({"CgroupParent": "/docker/buildx"}, "hw.cgroup"),
    "another container's cgroup": ({"Cgroup": "container:x"}, "hw.cgroup"),
    "systemd by annotation": ({"Annotations": {"org.systemd.property.DeviceAllow": "x"}}, "hw.annotations"),
    "CRIU by annotation": ({"Annotations": {"org.criu.config": "/x"}}, "hw.annotations"),
    "no masked paths": ({"MaskedPaths": []}, "hw.masks"),
    "no read-only paths": ({"ReadonlyPaths": []}, "hw.masks"),
    "one masked path": ({"MaskedPaths": ["/proc/kcore"]}, "hw.masks"),
}


@pytest.mark.parametrize(("host", "rule"), HARDWARE.values(), ids=HARDWARE.keys())
@pytest.mark.parametrize("view", [HELD, WITHOUT], ids=["with a grant", "without"])
@pytest.mark.req("R45")
def test_refuses(host: dict[str, Any], rule: str, view: Any) -> None:
    assert rules_of(create(view, run_body(**host))) == [rule]


def test_the_helper_of_testcontainers_hears_how_to_go_without_privileges() -> None:
    body = run_body(config={"Image": "testcontainers/ryuk:0.5.1"}, Privileged=True)
    assert "TESTCONTAINERS_RYUK_CONTAINER_PRIVILEGED=false" in said(create(WITHOUT, body))


def test_the_builder_container_of_buildx_hears_of_the_classic_builder() -> None:
    body = run_body(config={"Image": "moby/buildkit:buildx-stable-1"}, Privileged=True, CgroupParent="/docker/buildx")
    assert "DOCKER_BUILDKIT=0" in said(create(WITHOUT, body))


UNFIT = repo(unfit='its daemon reads CDI specs from /run/cdi: set "cdi-spec-dirs": ["/etc/cdi"] in its daemon.json')


@pytest.mark.req("R52")
def test_an_unfit_daemon_gets_no_hardware_and_the_message_says_why() -> None:
    decision = create(UNFIT, run_body(DeviceRequests=cdi(NVIDIA)))
    assert rules_of(decision) == ["hw.unfit"]
    assert '"cdi-spec-dirs": ["/etc/cdi"]' in said(decision)
    assert isinstance(decision, Refusal)
    assert decision.missing == (NVIDIA,)


@pytest.mark.req("R52")
def test_an_unfit_daemon_gets_none_even_where_a_grant_is_in_force() -> None:
    view = repo(NVIDIA, unfit="its daemon is Docker 24")
    assert rules_of(create(view, run_body(DeviceRequests=cdi(NVIDIA)))) == ["hw.unfit"]


@pytest.mark.req("R52")
def test_an_unfit_daemon_still_runs_plain_containers() -> None:
    assert isinstance(create(UNFIT, run_body()), Admission)


@pytest.mark.req("R34", "R45")
def test_a_public_rocm_file_hears_of_everything_at_once_hardware_first() -> None:
    body = compose_body(
        Devices=[*raw("/dev/kfd"), *raw("/dev/dri")],
        CapAdd=["SYS_PTRACE"],
        GroupAdd=["video"],
        SecurityOpt=["seccomp:unconfined"],
        IpcMode="host",
    )
    decision = create(WITHOUT, body)
    assert rules_of(decision) == ["hw.devices", "hw.devices", "host.ipc", "host.capabilities", "host.security"]
    assert "devices: [rediacc.io/amd=gpu0]" in said(decision)


def test_a_name_that_the_machine_does_not_have_is_told_without_a_command_that_would_be_refused() -> None:
    message = said(create(WITHOUT, run_body(DeviceRequests=cdi("nvidia.com/gpu=al"))))
    assert message.startswith(
        'repo gpu-a has no grant for nvidia.com/gpu=al on wsl-gpu; wsl-gpu has no device "nvidia.com/gpu=al"; '
        "did you mean nvidia.com/gpu=all or "
    )
    assert "an operator can run" not in message
    both = said(create(WITHOUT, run_body(DeviceRequests=cdi("nvidia.com/gpu=al", NVIDIA))))
    assert "an operator can run: rdc repo gpu grant gpu-a@wsl-gpu --device nvidia.com/gpu=all;" in both
    nowhere = said(create(repo(devices=("rediacc.io/dri=renderD128",)), run_body(Devices=raw("/dev/nvidia0"))))
    assert "devices: [nvidia.com/gpu=all] (which wsl-gpu does not have)" in nowhere


@pytest.mark.req("R34")
@pytest.mark.parametrize("source", ["/dev", "//dev/", "/dev/"])
def test_a_bind_of_all_devices_names_the_form_to_use(source: str) -> None:
    message = said(create(HELD, run_body(Binds=[f"{source}:/dev"])))
    assert "it holds every device of the machine; for a GPU write docker run --device nvidia.com/gpu=all" in message
