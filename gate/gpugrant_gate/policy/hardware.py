"""The hardware rules: every way to a device but a granted name. No setting opens one of them (R45).

Each yields one clause for each thing that it refuses; `rules` has them in their order.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpugrant_crds import names
from gpugrant_gate.policy import messages
from gpugrant_gate.policy.container import MASKED, READONLY, Container
from gpugrant_gate.policy.model import RepoView
from gpugrant_gate.policy.strictjson import quoted

MOST_DEVICES = 64
"""More names than any machine has cards and partitions; bounds the message, and the search for near names."""

CAPABILITIES = frozenset({"ALL", "SYS_ADMIN", "SYS_RAWIO", "SYS_MODULE"})
"""Each of them makes or reaches devices by itself (R45)."""
TRACER = "SYS_PTRACE"
"""With it a process traces what the daemon starts in its container while that still has all capabilities."""


def missing(container: Container, repo: RepoView) -> tuple[str, ...]:
    """The CDI names asked for that this repo does not hold now, compared byte for byte."""
    return tuple(name for name in container.names if not holds(name, repo))


def holds(name: str, repo: RepoView) -> bool:
    # A name of one letter's vendor or class makes daemons panic: it must not reach one, whoever granted it.
    return not repo.unfit and name in repo.granted and names.is_qualified(name)


def unfit(container: Container, repo: RepoView) -> Iterator[str]:
    why = repo.unfit or repo.withheld
    if why and container.names:
        wanted = messages.listed(container.names)
        yield f"repo {repo.name} can't have {wanted} on {repo.machine}: it gets no hardware there, since {why}"


def grant(container: Container, repo: RepoView) -> Iterator[str]:
    if len(container.names) > MOST_DEVICES:
        yield f"a container may ask for at most {MOST_DEVICES} devices, this one asks for {len(container.names)}"
        return
    lacking = missing(container, repo)
    if lacking and not repo.unfit and not repo.withheld:
        note = "; the container was made while the device was granted" if container.started else ""
        yield messages.no_grant(lacking, repo) + note


def gpus(container: Container, repo: RepoView) -> Iterator[str]:
    other = [request for request in container.requests if not request.is_cdi and not request.is_zero]
    if other:
        ids = [name for request in other for name in request.ids]
        meant = [*ids, *(f"nvidia.com/gpu={name}" for name in ids)]
        compose = container.compose
        spelling = "" if compose else "--gpus, "
        form = messages.gpu_form(repo, compose=compose, wanted=meant)
        yield f"GPUs by {spelling}gpus: or deploy.resources.reservations.devices are refused: write {form}"


def runtime(container: Container, repo: RepoView) -> Iterator[str]:
    runtime = container.host.get("Runtime", "")
    # A container that exists without one runs under the daemon's default, which is runc where the daemon is fit.
    if runtime != "runc" and (runtime or (container.started and repo.unfit)):
        form = messages.gpu_form(repo, compose=container.compose)
        yield f"the runtime {quoted(runtime)} is refused, only runc runs here: for a GPU write {form}"


def devices(container: Container, repo: RepoView) -> Iterator[str]:
    for device in container.devices:
        if device.is_cdi_name and not container.started:
            continue
        if names.is_qualified(device.host):
            yield f"the raw device {quoted(device.host)} is refused: write the CDI name alone, {device.host}"
        else:
            yield f"the raw device {messages.raw_device(device.host, repo, compose=container.compose)}"


def cgroup_rules(container: Container, repo: RepoView) -> Iterator[str]:
    if container.host.get("DeviceCgroupRules"):
        form = messages.gpu_form(repo, compose=container.compose)
        yield f"device cgroup rules are refused: a device comes by a CDI grant, write {form}"


def privileged(container: Container, repo: RepoView) -> Iterator[str]:
    if container.host.get("Privileged"):
        image = str(container.config.get("Image", ""))
        yield f"privileged is refused: it opens every device of the machine{_instead(image, repo)}"


def _instead(image: str, repo: RepoView) -> str:
    """What to do instead, for the tools whose helpers always ask for it."""
    if "testcontainers/ryuk" in image:
        return "; for testcontainers set TESTCONTAINERS_RYUK_CONTAINER_PRIVILEGED=false"
    return f"; {messages.builder_container(repo)}" if "moby/buildkit" in image else ""


def all_mighty(container: Container, repo: RepoView) -> Iterator[str]:
    asked = [name for name in capabilities(container) if name in CAPABILITIES]
    if asked:
        yield f"the capability {', '.join(asked)} is refused: it reaches devices by itself"


def capabilities(container: Container) -> tuple[str, ...]:
    """CapAdd without prefix and in capitals, as the daemon reads it."""
    asked = container.host.get("CapAdd", ())
    return tuple(name.upper().removeprefix("CAP_") if name.isascii() else name for name in asked)


def pid(container: Container, repo: RepoView) -> Iterator[str]:
    mode = container.host.get("PidMode", "")
    if mode:
        yield (f"the PID mode {quoted(mode)} is refused: another process lends its root folder and its open devices")


def cgroup(container: Container, repo: RepoView) -> Iterator[str]:
    if container.host.get("CgroupParent"):
        yield "a cgroup parent is refused: the place of a container's cgroup decides which devices it may open"
    if container.host.get("Cgroup"):
        yield "the cgroup of another container is refused: it decides which devices may be opened"


def annotated(container: Container, repo: RepoView) -> Iterator[str]:
    if container.host.get("Annotations"):
        yield "annotations are refused: runc, systemd, CRIU and device plugins obey them"


def masks(container: Container, repo: RepoView) -> Iterator[str]:
    for field, least in (("MaskedPaths", MASKED), ("ReadonlyPaths", READONLY)):
        given = container.host.get(field)
        if given is not None and not least <= frozenset(given):
            yield f"{field} without Docker's own list is refused (systempaths=unconfined): it opens /proc and /sys"


def tracer(container: Container, repo: RepoView) -> Iterator[str]:
    """A healthcheck is an exec of the daemon's own: the same holds for it."""
    test = (container.config.get("Healthcheck") or {}).get("Test") or ["NONE"]
    if TRACER in capabilities(container) and test[0] != "NONE":
        yield (
            f"a healthcheck in a container with {TRACER} is refused, for {_CAUGHT}: "
            "write docker run --no-healthcheck, or in a Compose file healthcheck: {disable: true}"
        )


_CAUGHT = "what the daemon starts in there could be taken over while it still has all capabilities"


def traced_exec(container: Container) -> Iterator[str]:
    """For an exec. Seen on a real daemon: a caught `runc init` mounts the machine's device cgroup."""
    if TRACER in capabilities(container):
        yield f"an exec in a container with {TRACER} is refused, for {_CAUGHT}: start what you need with the container"
