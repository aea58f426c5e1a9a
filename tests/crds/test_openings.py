"""The grammar of `open:`: one thing at a time, and never a way to a device."""

from __future__ import annotations

import pytest

from gpugrant_crds import openings

MEANT = [
    "host.network",
    "host.capabilities=NET_ADMIN",
    "host.security=seccomp=unconfined",
    "host.security=label=type:svirt_lxc_net_t",
    "host.network-driver=macvlan",
    "host.log=syslog",
]


@pytest.mark.parametrize("text", MEANT)
def test_what_is_in_the_table_can_be_opened(text: str) -> None:
    assert openings.check(text) == text


REFUSED = {
    "hw.privileged": "hw.privileged can't be opened: no setting opens a way to a device (R45)",
    "hw.devices=/dev/kfd": "hw.devices can't be opened: no setting opens a way to a device (R45)",
    "host.netwrk": '"host.netwrk" is nothing that can be opened; did you mean host.network',
    "host.capabilities": "host.capabilities is opened for one thing at a time: write host.capabilities=BLOCK_SUSPEND",
    "host.capabilities=NET_ADMN": "=NET_ADMN can't be opened; did you mean host.capabilities=NET_ADMIN",
    "host.capabilities=SYS_ADMIN": "host.capabilities=SYS_ADMIN can't be opened: it reaches devices by itself",
    "host.capabilities=ALL": "it reaches devices by itself",
    "host.capabilities=MKNOD": "host.capabilities=MKNOD needs no opening: it passes in every repo",
    "host.log=json-file": "host.log=json-file needs no opening",
    "host.shared": "host.shared can't be opened: it follows host.network and host.ipc",
    "host.capabilities=net_admin": "did you mean host.capabilities=NET_ADMIN",
    "host.capabilities=BPF": "host.capabilities=BPF can't be opened: it changes what the kernel runs",
    "host.network=eth0": "host.network=eth0 can't be opened: host.network is opened as a whole",
    "host.security=seccomp={}": "can't be opened",
    "host.security=systempaths=unconfined": "it opens /proc and /sys",
    "host.security=label=type:a b": "can't be opened",
    "host.security=label=type:<type>": "can't be opened",
    "host.binds": "a folder is bound by naming it in `binds:`",
    "route.unknown": "is nothing that can be opened",
    "*": "is nothing that can be opened",
    "": "is nothing that can be opened",
}


@pytest.mark.req("R45")
@pytest.mark.parametrize(("text", "words"), REFUSED.items(), ids=REFUSED.keys())
def test_everything_else_is_refused_with_what_to_do(text: str, words: str) -> None:
    with pytest.raises(openings.NotOpenable) as refused:
        openings.check(text)
    assert words in str(refused.value)


@pytest.mark.req("R45")
def test_no_hardware_rule_and_no_all_mighty_capability_is_in_the_table() -> None:
    for opening in openings.OPENINGS:
        assert opening.rule.startswith("host.")
        assert opening.value not in ("ALL", "SYS_ADMIN", "SYS_RAWIO", "SYS_MODULE", "BPF", "PERFMON", "DAC_READ_SEARCH")
        assert opening.costs
        assert opening.name not in openings.NEVER


def test_each_opening_is_there_once() -> None:
    names = [opening.name for opening in openings.OPENINGS]
    assert len(names) == len(set(names))


def test_a_profile_opens_only_what_can_be_opened_by_name() -> None:
    for profile, items in openings.PROFILES.items():
        assert openings.check_profile(profile) == profile
        assert all(openings.check(item) for item in items)
    assert openings.opened(["host.ipc"], "rediacc") == {"host.ipc", *openings.PROFILES["rediacc"]}
    with pytest.raises(openings.NotOpenable, match='there is no profile "rediac"; there is rediacc'):
        openings.check_profile("rediac")
