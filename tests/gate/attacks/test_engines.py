"""The other generation of Docker: its Go, its decoder and its fields are not those of the first."""

from __future__ import annotations

from typing import Any

import pytest

import intruder
from corpus import allowed, bodies, endpoints, past, requests
from intruder import IMAGE, Attack, create, host, one

pytestmark = [pytest.mark.real, pytest.mark.req("R4", "R45"), pytest.mark.timeout(300)]

GO = [*bodies.READINGS, *requests.FRAMES, *requests.SECONDS]
"""What depends on encoding/json and net/http."""
DEFAULTS = [*bodies.DEVICES[::2], *endpoints.BUILDS[::3], *endpoints.DOCKERFILES, *endpoints.NETWORKS[::2]]
"""CDI is on by itself since 28.2, and networks have other options since 27."""
KEPT = [attack for attack in past.TABLE if attack.id.startswith(("start.", "volume.", "volumes-from.", "exec-start."))]
"""How a daemon tells of what it has, in the words of its own version."""


def endpoint(**fields: Any) -> dict[str, Any]:
    return host() | {"NetworkingConfig": {"EndpointsConfig": {"bridge": fields}}}


def newer(id_: str, body: Any, rule: str = "", **more: Any) -> Attack:
    return one(f"newer.{id_}", create(body), rule, **more)


IMAGE_MOUNT = {"Type": "image", "Source": IMAGE, "Target": "/x"}
OPTIONS = "com.docker.network.endpoint."
NEWER = [
    newer("image-mount", host(Mounts=[IMAGE_MOUNT]), free=True),
    newer("image-mount-subpath", host(Mounts=[IMAGE_MOUNT | {"ImageOptions": {"Subpath": "../../dev"}}]), free=True),
    newer("image-mount-of-a-path", host(Mounts=[IMAGE_MOUNT | {"Source": "/dev"}]), free=True),
    newer(
        "volume-subpath",
        host(Mounts=[{"Type": "volume", "Source": "v", "Target": "/x", "VolumeOptions": {"Subpath": "../../../dev"}}]),
        free=True,
    ),
    newer("cluster", host(Mounts=[{"Type": "cluster", "Source": "v", "Target": "/x"}]), "host.mounts"),
    newer("interface-name", endpoint(DriverOpts={f"{OPTIONS}ifname": "../../x"}), "host.endpoint"),
    newer(
        "interface-sysctl",
        endpoint(DriverOpts={f"{OPTIONS}ifname": "domainname", f"{OPTIONS}sysctls": "kernel.ipv4..IFNAME.=x"}),
        "host.endpoint",
    ),
    newer("interface-nothing", host() | {"NetworkingConfig": {"EndpointsConfig": {"bridge": None}}}, free=True),
    newer("gateway-priority", endpoint(GwPriority=-1), free=True),
    newer("create-mountpoint", host(Mounts=[{
        "Type": "bind", "Source": "/dev/shm/none", "Target": "/x", "BindOptions": {"CreateMountpoint": True},
    }]), "hw.trees"),
    newer("health-start", host() | {"Healthcheck": {"Test": ["CMD", "true"], "StartInterval": 1}}, free=True),
    newer("nri", host(NriPlugins=["x"]), "body.field"),
]  # fmt: skip


@pytest.mark.parametrize("attack", [*GO, *DEFAULTS, *KEPT, *allowed.CREATES], ids=lambda attack: attack.id)
def test_the_other_generation_is_as_shut(other_ground: intruder.Ground, attack: Attack) -> None:
    intruder.run(attack, other_ground)


@pytest.mark.parametrize("attack", NEWER, ids=lambda attack: attack.id)
def test_what_only_one_generation_knows(ground_a: intruder.Ground, attack: Attack) -> None:
    intruder.run(attack, ground_a)


@pytest.mark.parametrize("attack", NEWER, ids=lambda attack: attack.id)
def test_what_the_other_does_not_know(other_ground: intruder.Ground, attack: Attack) -> None:
    intruder.run(attack, other_ground)
