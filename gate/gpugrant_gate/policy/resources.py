"""Decides on what is not a container: images, builds, volumes and networks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from gpugrant_gate.policy import host, messages
from gpugrant_gate.policy.asking import Asked, by_messages, decide, outgoing, passed, refused
from gpugrant_gate.policy.model import Admission, Decision, Fact, NetworkFact, Violation
from gpugrant_gate.policy.routes import CONTAINER, TUNNEL, refuse
from gpugrant_gate.policy.strictjson import quoted


def commit(asked: Asked) -> Decision:
    return decide(asked, asked.faults, asked.body or None)


def import_image(asked: Asked) -> Decision:
    source = dict(asked.routed.query).get("fromSrc")
    if source != "-":
        message = "an import from an address is refused, for the daemon would fetch it: docker import - < FILE"
        return refused(asked, (Violation("host.import", message),))
    return passed(asked)


_BUILDX = re.compile(r"(docker\.io/)?moby/buildkit[:@].*buildx-stable.*", re.ASCII)
"""What buildx pulls for a builder in a container (docker/buildx driver/bkimage)."""


def pull(asked: Asked) -> Decision:
    """Any image, but one that buildx starts in a privileged container: said before it is fetched."""
    query = dict(asked.routed.query)
    if _BUILDX.fullmatch(f"{query.get('fromImage', '')}:{query.get('tag', '')}"):
        why = f"a builder in a container is refused, for it is privileged; {messages.builder_container(asked.repo)}"
        return refused(asked, (Violation("build.container", why),))
    return passed(asked)


_REMOTE = "a build from an address is refused, for the daemon would fetch it: send the folder"
_BUILD_NETWORKS = ("", "default", "none", "bridge")
_BUILD_EMPTY = {
    "cgroupparent": ("hw.cgroup", "a cgroup parent is refused"),
    "securityopt": ("host.security", "security options are refused"),
}
_BUILDKITS = ("session", "outputs")
"""What only a build with BuildKit says; version=2 makes it one."""
_REMOTES = ("", "client-session", "upload-request")
"""Where BuildKit's context comes from when it comes by the client's own session."""
_SAYS_NOTHING = ("", "[]", "{}", "null")
"""Of values that are JSON. As a cgroup's path `null` is a name like any other."""
_JSON_KEYS = frozenset({"securityopt", "outputs"})


def build(asked: Asked) -> Decision:
    query = dict(asked.routed.query)
    found = [why for key, why in _BUILD_EMPTY.items() if _says(query, key)]
    version = query.get("version", "")
    if version not in ("", "1", "2"):
        found.append(("build.buildkit", f"there is no builder version {quoted(version)}"))
    if version == "2" and (why := messages.buildkit(asked.repo)):
        found.append(("build.buildkit", why))
    if version != "2" and any(_says(query, key) for key in _BUILDKITS):
        found.append(("build.buildkit", "the classic builder takes no session and no outputs"))
    if query.get("remote", "") not in (_REMOTES if version == "2" else ("",)):
        found.append(("build.remote", _REMOTE))
    network = query.get("networkmode", "")
    if network == "host":
        found.extend(("host.network", text) for text in host.host_network(asked.repo))
        found.extend(("hw.listeners", text) for text in host.handed_out(asked.repo, asked.facts))
    elif network not in _BUILD_NETWORKS:
        found.append(("host.network", f"the build network {quoted(network)} is refused; default, bridge and none pass"))
    if query.get("isolation", "") not in ("", "default"):
        found.append(("host.isolation", "isolation is for Windows containers"))
    if asked.repo.unfit:
        # Its RUN steps run under the daemon's default runtime, which may add devices by itself.
        found.append(("hw.unfit", f"builds are refused in repo {asked.repo.name}: {asked.repo.unfit}"))
    found.sort(key=lambda why: not why[0].startswith("hw."))
    decision = decide(asked, by_messages(asked, *dict.fromkeys(found)), None)
    return replace(decision, build=True) if isinstance(decision, Admission) and version == "2" else decision


def wanted_for_build(asked: Asked) -> tuple[Fact, ...]:
    return host.listener_facts(asked.repo)


def tunnel(asked: Asked) -> Decision:
    """`/grpc` and `/session`: nothing of what is said in one is seen, so the daemon must refuse what the gate would."""
    why = messages.buildkit(asked.repo)
    if why:
        rule = "hw.unfit" if asked.repo.unfit else "build.buildkit"
        return refused(asked, (Violation(rule, why),))
    if found := by_messages(asked, *(("hw.listeners", text) for text in host.handed_out(asked.repo, asked.facts))):
        # a build in it may be one on the machine's network
        return refused(asked, found)
    if TUNNEL not in asked.routed.headers:
        message = "this endpoint needs the header Upgrade: h2c"
        return refuse(400, "http.upgrade", message, asked.routed.route)
    return Admission(asked.routed.route, outgoing(asked), build=True)


def _says(query: Mapping[str, str], key: str) -> bool:
    return query.get(key, "") not in (_SAYS_NOTHING if key in _JSON_KEYS else ("",))


def volume_create(asked: Asked) -> Decision:
    found = []
    driver = asked.body.get("Driver", "")
    if driver not in ("", "local"):
        found.append(("hw.volumes", f"the volume driver {quoted(driver)} is refused: only local volumes pass"))
    if asked.body.get("DriverOpts"):
        options = messages.listed(asked.body["DriverOpts"])
        found.append(("hw.volumes", f"the volume option {options} is refused: it mounts any part of the machine"))
    return decide(asked, by_messages(asked, *found), {**asked.body, "Driver": "local"})


_NETWORK_OPTIONS = frozenset(
    {"com.docker.network.bridge.enable_icc", "com.docker.network.bridge.enable_ip_masquerade",
     "com.docker.network.bridge.host_binding_ipv4", "com.docker.network.bridge.gateway_mode_ipv4",
     "com.docker.network.bridge.gateway_mode_ipv6", "com.docker.network.bridge.inhibit_ipv4",
     "com.docker.network.driver.mtu", "com.docker.network.container_iface_prefix",
     "com.docker.network.enable_ipv4", "com.docker.network.enable_ipv6"}
)  # fmt: skip


_OPTIONS_OF = {
    "macvlan": frozenset({"parent", "macvlan_mode"}),
    "ipvlan": frozenset({"parent", "ipvlan_mode", "ipvlan_flag"}),
}
"""moby daemon/libnetwork/drivers/{macvlan,ipvlan}."""


def network_create(asked: Asked) -> Decision:
    body, found = asked.body, []
    driver, scope = body.get("Driver", ""), body.get("Scope", "")
    if driver == "null":
        found.append(("host.network-driver", "the network without a driver is there already: it is called none"))
    found.extend(("host.network-driver", text) for text in host.network_driver(driver, asked.repo))
    if scope not in ("", "local"):
        found.append(("host.network-driver", f"the network scope {quoted(scope)} is refused"))
    known = _NETWORK_OPTIONS | _OPTIONS_OF.get(driver, frozenset())
    unknown = [name for name in body.get("Options", {}) if name not in known]
    if unknown:
        found.append(("host.network-driver", f"the network option {messages.listed(unknown)} is refused"))
    ipam = body.get("IPAM", {})
    if ipam.get("Driver", "") not in ("", "default") or ipam.get("Options"):
        found.append(
            ("host.network-driver", "an address driver other than the default, or options for it, are refused")
        )
    return decide(asked, by_messages(asked, *found), body)


def network_member(asked: Asked) -> Decision:
    found = [("host.endpoint", text) for text in host.endpoint_options(asked.body.get("EndpointConfig", {}))]
    if not CONTAINER.fullmatch(asked.body.get("Container", "")):
        found.append(("http.name", f"{quoted(asked.body.get('Container', ''))} is no container's name or id"))
    network = the_network(asked)[0]
    known = asked.facts.get(network, "")
    driver = str(known.get("Driver", "")) if isinstance(known, dict) else ""
    if known == "":
        found.append(("host.network", f"the network {quoted(network.name)} could not be looked at"))
    elif driver == "host" or network.name == "host":
        found.extend(("host.network", text) for text in host.host_network(asked.repo))
    else:
        found.extend(("host.network-driver", text) for text in host.network_driver(driver, asked.repo))
    return decide(asked, by_messages(asked, *found), asked.body)


def the_network(asked: Asked) -> tuple[NetworkFact]:
    return (NetworkFact(asked.routed.segments[1]),)


def as_read(asked: Asked) -> Decision:
    return decide(asked, asked.faults, asked.body)
