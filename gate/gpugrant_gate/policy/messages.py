"""Sentences for people: each says what is wrong and what to write instead, with names that this machine has.

A message never quotes environment, commands or credentials.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpugrant_crds import names, openings
from gpugrant_gate.policy.model import RepoView
from gpugrant_gate.policy.strictjson import quoted

BUILDKIT = "builds with BuildKit are refused here: build with the classic builder, DOCKER_BUILDKIT=0 docker build …"
CLASSIC = "build with the classic builder: DOCKER_BUILDKIT=0 docker build …"
SWARM = "swarm is refused: its services start containers that nobody judged"

NVIDIA_DEFAULT = "nvidia.com/gpu=all"
DRI_DEFAULT = "rediacc.io/dri=renderD128"
AMD_DEFAULT = "rediacc.io/amd=gpu0"
_NVIDIA = "nvidia.com/"
_GPU_KINDS = (_NVIDIA, "rediacc.io/amd=", "rediacc.io/dri=", "amd.com/", "intel.com/")
"""Whose names are told to somebody who asks for a GPU, best first."""


def no_grant(missing: tuple[str, ...], repo: RepoView) -> str:
    """R24: the sentence that names repo, devices, machine and the command that would grant the first of them."""
    text = f"repo {repo.name} has no grant for {', '.join(map(_shown, missing))} on {repo.machine}"
    grantable = [name for name in missing if is_there(name, repo) and _shown(name) == name]
    if grantable:
        text += f"; an operator can run: {grant_command(grantable[0], repo)}"
    return text + "".join(_nearest(name, repo) for name in missing)


def _shown(name: str) -> str:
    """A device's name as it is typed; what a terminal would obey, what is empty or endless is quoted."""
    return name if re.fullmatch("[!-~]{1,120}", name) else quoted(name)


def is_there(name: str, repo: RepoView) -> bool:
    """Whether the machine has the device, as far as that is known."""
    return not repo.devices or name in repo.devices


def buildkit(repo: RepoView) -> str:
    """Why builds with BuildKit are refused, and what mends it; empty: they pass."""
    why = repo.unfit or repo.buildkit
    return why and f"builds with BuildKit are refused in repo {repo.name}: {why}; or {CLASSIC}"


def builder_container(repo: RepoView) -> str:
    """What to do instead of a BuildKit of one's own in a container, as buildx makes one."""
    # buildx falls back to its container driver where /grpc is refused, and shows the refusal of this create alone
    # the builder of a docker context has the context's name
    return buildkit(repo) or (
        "a builder of its own is not needed: the repo's daemon builds with docker buildx use NAME, where NAME is what "
        "docker context show prints"
    )


def to_open(repo: RepoView, *asked: str) -> str:
    """`; …` with how an operator opens these host rules for the repo, and why some of them never are; often empty."""
    names = tuple(dict.fromkeys(asked))
    openable = [name for name in names if openings.is_openable(name)]
    text = "".join(f"; {name} can't be opened: {openings.NEVER[name]}" for name in names if name in openings.NEVER)
    if openable:
        text += f"; an operator can open it: open: [{', '.join(openable)}] in the file of repo {repo.name} in repos.d"
    return text


def grant_command(device: str, repo: RepoView) -> str:
    return f"rdc repo gpu grant {repo.name}@{repo.machine} --device {device}"


def _nearest(name: str, repo: RepoView) -> str:
    if is_there(name, repo):
        return ""
    return f"; {repo.machine} has no device {quoted(name)}{names.did_you_mean(name, repo.devices)}"


def gpu_form(repo: RepoView, *, compose: bool, wanted: Iterable[str] = ()) -> str:
    """`write …` with the CDI form of a GPU request (R30–R33); Compose's alone where it is known to be Compose (R46)."""
    return _form(gpu_name(repo, wanted), repo, compose=compose)


def _form(device: str, repo: RepoView, *, compose: bool) -> str:
    in_compose = f"devices: [{device}]"
    text = in_compose if compose else f"docker run --device {device}, or in a Compose file {in_compose}"
    if not is_there(device, repo):
        return f"{text} (which {repo.machine} does not have)"
    if device not in repo.granted and not repo.unfit and not repo.withheld:
        text += f" (it needs a grant: {grant_command(device, repo)})"
    return text


def gpu_name(repo: RepoView, wanted: Iterable[str] = ()) -> str:
    """The device to name: what was meant if this repo holds it, else what it holds, else what the machine has."""
    here = frozenset(repo.devices)
    held = sorted(name for name in repo.granted if not here or name in here)
    for name in wanted:
        if name in held or (not held and name in here):
            return name
    for pool in (held, sorted(here)):
        for kind in _GPU_KINDS:
            of_kind = [name for name in pool if name.startswith(kind)]
            if of_kind:
                return _whole(of_kind)
    return NVIDIA_DEFAULT


def _whole(pool: list[str]) -> str:
    return next((name for name in pool if name.endswith("=all")), pool[0])


def raw_device(path: str, repo: RepoView, *, compose: bool) -> str:
    """R34: what to write instead of a node below /dev, as `…; write …`, or why there is nothing."""
    candidates = _names_for(path, repo)
    if not candidates:
        return f"{quoted(path)} is refused: only a device with a CDI name and a grant passes"
    forms = " or ".join(_form(name, repo, compose=compose) for name in candidates)
    return f"{quoted(path)} is refused: write {forms}"


def _names_for(path: str, repo: RepoView) -> tuple[str, ...]:
    base = "/" + "/".join(part for part in path.split("/") if part)
    if base.startswith("/dev/nvidia") or base == "/dev/dxg":
        index = base.removeprefix("/dev/nvidia")
        return (_pick(repo, _NVIDIA, f"nvidia.com/gpu={index}", NVIDIA_DEFAULT),)
    if base == "/dev/dri" or base.startswith("/dev/dri/") or base == "/dev/kfd":
        node = base.removeprefix("/dev/dri/")
        dri = _pick(repo, "rediacc.io/dri=", f"rediacc.io/dri={node}", DRI_DEFAULT)
        amd = _pick(repo, "rediacc.io/amd=", AMD_DEFAULT, AMD_DEFAULT)
        return (amd, dri) if base == "/dev/kfd" else (dri, amd)
    return ()


def _pick(repo: RepoView, kind: str, meant: str, default: str) -> str:
    """The name of this kind to tell: the one that is meant if it is held, else one that is held, else the one that is
    meant if it is there, else one that is there."""
    here = [name for name in repo.devices if name.startswith(kind)]
    held = sorted(name for name in repo.granted if name.startswith(kind))
    for pool in (held, here):
        for name in (meant, default):
            if name in pool:
                return name
        if pool:
            return _whole(pool)
    return default


def listed(items: Iterable[str]) -> str:
    """Items for a message: quoted, at most five and how many more."""
    shown = [quoted(item) for item in items]
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    return ", ".join(shown[:5]) + more
