"""Where a container's folders come from: one code for Binds, Mounts and what a daemon resolved (CVE-2026-6406).

A source is judged first as text, then by what lies there; a source that is refused as text is never looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from posixpath import basename

from gpugrant_crds.repofile import TREES
from gpugrant_gate.policy import messages, pins
from gpugrant_gate.policy.container import Container, Mount
from gpugrant_gate.policy.model import ContainerFact, Fact, Facts, PathFact, PathInfo, RepoView, VolumeFact
from gpugrant_gate.policy.pins import Pin
from gpugrant_gate.policy.routes import CONTAINER
from gpugrant_gate.policy.strictjson import quoted

KINDS = ("bind", "volume", "tmpfs", "image")
_MODES = frozenset({"ro", "rw", "z", "Z", "nocopy", "cached", "consistent", "delegated", "private", "rprivate"})
_PROPAGATION = ("", "private", "rprivate")
_PRIVATE = "mounts stay private to their container"
_TMPFS_WORDS = frozenset({"ro", "rw", "exec", "noexec", "suid", "nosuid", "nodev", "noatime", "nodiratime"})
_TMPFS_VALUE = re.compile(r"(?:size|mode|uid|gid|nr_inodes|nr_blocks)=[0-9]{1,20}[kKmMgG%]?", re.ASCII)
_TMPFS_MOST = 1024
VOLUMES_FROM_MODES = frozenset({"ro", "rw", "z", "Z", "nocopy"})


@lru_cache(maxsize=512)  # of one request, which asks again for each rule
def clean(source: str) -> str | None:
    """The absolute path in its one spelling; None where it is relative or holds `.` or `..`."""
    if not source.startswith("/"):
        return None
    parts = [part for part in source.split("/") if part]
    if any(part in (".", "..") for part in parts) or "\\" in source:
        return None
    return "/" + "/".join(parts)


def is_below(path: str, tree: str) -> bool:
    """Whether `path` is `tree` or inside it; both clean."""
    return path == tree or path.startswith(f"{tree.rstrip('/')}/")


# hardware: refused as text


def sockets(container: Container, repo: RepoView) -> Iterator[str]:
    for mount, path in _binds(container):
        if path is not None and _is_socket(path, repo) and not _becomes_the_gates(mount, path, repo):
            yield (
                f"a bind of the Docker socket {quoted(mount.source)} is refused: "
                "a container that holds it would go round the gate"
            )


def trees(container: Container, repo: RepoView) -> Iterator[str]:
    for mount, path in _binds(container):
        if path is None or _is_socket(path, repo):
            continue
        if is_below(path, "/dev") and path != "/dev":
            yield f"the bind of {messages.raw_device(path, repo, compose=container.compose)}"
        elif (tree := _tree(path, repo)) is not None:
            yield f"the bind source {quoted(mount.source)} is refused: {_why_not(path, tree, container, repo)}"


def _why_not(path: str, tree: str, container: Container, repo: RepoView) -> str:
    if path == "/dev":
        form = messages.gpu_form(repo, compose=container.compose)
        return f"it holds every device of the machine; for a GPU write {form}"
    return f"it {'lies in' if is_below(path, tree) else 'holds'} {tree}, which no container may see"


def volume_options(container: Container, repo: RepoView) -> Iterator[str]:
    driver = container.host.get("VolumeDriver", "")
    if driver not in ("", "local"):
        yield f"the volume driver {quoted(driver)} is refused: only local volumes pass"
    for mount in container.mounts:
        if mount.driver not in ("", "local"):
            yield f"{mount.where}: the volume driver {quoted(mount.driver)} is refused: only local volumes pass"
        if mount.driver_options:
            yield f"{mount.where}: driver options of a volume are refused: they mount any part of the machine"


# hardware: refused by what is there


def volumes(container: Container, repo: RepoView, facts: Facts) -> Iterator[str]:
    for name in dict.fromkeys(_volume_names(container)):
        if VolumeFact(name) not in facts:
            yield f"the volume {quoted(name)} is refused: it could not be looked at"
        elif (found := facts[VolumeFact(name)]) is not None and not is_plain_volume(found):
            yield (
                f"the volume {quoted(name)} is refused: it has driver options or another driver than local, "
                "which mount any part of the machine"
            )


def is_plain_volume(found: object) -> bool:
    """Whether a daemon's volume is a folder of its own data root and nothing else."""
    return isinstance(found, dict) and found.get("Driver") == "local" and not found.get("Options")


# host


def gate_socket(container: Container, repo: RepoView) -> Iterator[str]:
    """A daemon's socket becomes the gate's, where that is open."""
    ryuk = "testcontainers/ryuk" in str(container.config.get("Image", ""))
    instead = "; or for testcontainers set TESTCONTAINERS_RYUK_DISABLED=true" if ryuk else ""
    for mount, path in _binds(container):
        if path is None or not _becomes_the_gates(mount, path, repo):
            continue
        if not repo.opens("host.docker-socket"):
            yield (
                f"a bind of the Docker socket {quoted(mount.source)} is refused: to put the gate's socket in its "
                f"place, add host.docker-socket to `open:` in the file of repo {repo.name} in repos.d{instead}"
            )
        elif not repo.pins:
            yield f"a bind of the Docker socket {quoted(mount.source)} is refused: {_NO_ID}"


def forms(container: Container, repo: RepoView) -> Iterator[str]:
    for mount in container.mounts:
        if mount.broken:
            yield f"{mount.where} is refused: {mount.broken}"
        elif mount.kind not in KINDS:
            yield f"{mount.where}: the mount type {quoted(mount.kind)} is refused; there are {', '.join(KINDS)}"
        elif not mount.target.startswith("/"):
            yield f"{mount.where}: the target {quoted(mount.target)} must be an absolute path"
        elif mount.kind == "bind" and clean(mount.source) is None:
            yield f'{mount.where}: the bind source {quoted(mount.source)} must be an absolute path without "." and ".."'
        elif mount.kind == "volume" and mount.source and not CONTAINER.fullmatch(mount.source):
            yield f"{mount.where}: {quoted(mount.source)} is neither an absolute path nor a volume's name"
        else:
            yield from _options(mount)


def tmpfs(container: Container, repo: RepoView) -> Iterator[str]:
    for target, options in (container.host.get("Tmpfs") or {}).items():
        if len(options or "") > _TMPFS_MOST:
            yield f"the tmpfs options of {quoted(target)} are refused: they are longer than {_TMPFS_MOST} characters"
            continue
        for option in (options or "").split(","):
            if option and option not in _TMPFS_WORDS and not _TMPFS_VALUE.fullmatch(option):
                yield f"the tmpfs option {quoted(option)} of {quoted(target)} is refused"


def anonymous(container: Container, repo: RepoView) -> Iterator[str]:
    for target in container.config.get("Volumes") or {}:
        if not target.startswith("/") or ":" in target:
            yield f"the volume {quoted(target)} must be an absolute path in the container"


def roots(container: Container, repo: RepoView) -> Iterator[str]:
    outside = [path for mount, path in judged_binds(container, repo) if not _in_roots(path, repo)]
    for path in dict.fromkeys(outside):
        add = f"to bind it, add the folder to `binds:` in the file of repo {repo.name} in repos.d"
        if not repo.binds:
            yield f"the bind source {quoted(path)} is refused: repo {repo.name} has no `binds:`; {add}"
        else:
            places = messages.listed(repo.binds)
            yield f"the bind source {quoted(path)} is refused: it lies below none of {places}; {add}"


def sources(container: Container, repo: RepoView, facts: Facts) -> Iterator[str]:
    wanted = [(mount, path) for mount, path in judged_binds(container, repo) if _in_roots(path, repo)]
    for mount, path in dict.fromkeys(wanted):
        reason = _source_fault(facts.get(PathFact(path)), mount, repo)
        if reason:
            yield f"the bind source {quoted(path)} is refused: {reason}"


def _source_fault(found: object, mount: Mount, repo: RepoView) -> str:
    if not isinstance(found, PathInfo):
        return "it could not be looked at"
    if found.symlink:
        return "a part of it is a symbolic link; name the place itself"
    if found.kind == "missing":
        return "there is no such file or folder; make it first"
    if found.kind not in ("directory", "file"):
        return "it is neither a folder nor a plain file"
    if not found.swappable or mount.pinned or repo.as_named:
        return ""
    if mount.made:
        return (
            "the container was made without pinning it, and somebody could put another place there before the mount: "
            "make the container anew"
        )
    return "" if repo.pins else f"somebody could put another place there before the mount, and {_NO_ID}"


_NO_ID = "what is not root's alone is pinned by the repo's own id, which its file lacks: add one"


def pins_of(container: Container, repo: RepoView, facts: Facts) -> tuple[Pin, ...]:
    """What must be in its place before the container is made or started; of a container that no rule refuses."""
    if not repo.pins:
        return ()
    found = [pin for mount, path in _binds(container) if path is not None for pin in _pins(mount, path, repo, facts)]
    return tuple(dict.fromkeys(found))


def _pins(mount: Mount, path: str, repo: RepoView, facts: Facts) -> Iterator[Pin]:
    place = pins.place(repo.pins, path)
    if _is_socket(path, repo):
        yield Pin(path, place, repo.socket, socket=True)
    elif mount.pinned or (not mount.made and not repo.as_named and _is_swappable(facts.get(PathFact(path)))):
        yield Pin(path, place, path)


def _is_swappable(found: object) -> bool:
    return isinstance(found, PathInfo) and found.swappable


# facts


def wanted(container: Container, repo: RepoView) -> tuple[Fact, ...]:
    """The facts that the rules above need, each once: only of what isn't refused as text."""
    paths = [PathFact(path) for _, path in judged_binds(container, repo) if _in_roots(path, repo)]
    return tuple(dict.fromkeys([*paths, *wanted_volumes(container)]))


def wanted_volumes(container: Container) -> tuple[VolumeFact, ...]:
    """The named volumes, each once."""
    return tuple(dict.fromkeys(VolumeFact(name) for name in _volume_names(container)))


def borrowed(container: Container) -> tuple[tuple[str, str], ...]:
    """VolumesFrom as (container, modes); a started container's mounts are resolved already."""
    if container.started:
        return ()
    parts = (text.partition(":") for text in container.host.get("VolumesFrom", ()))
    return tuple((name, modes) for name, _, modes in parts)


def borrowed_forms(container: Container, repo: RepoView) -> Iterator[str]:
    for name, modes in borrowed(container):
        if not CONTAINER.fullmatch(name) or not set(modes.split(",") if modes else ()) <= VOLUMES_FROM_MODES:
            shown = quoted(f"{name}:{modes}" if modes else name)
            yield f"HostConfig.VolumesFrom: {shown} must be a container, or container:ro"


def lenders(container: Container) -> tuple[ContainerFact, ...]:
    """The containers whose mounts are borrowed."""
    return tuple(ContainerFact(name) for name, _ in borrowed(container) if CONTAINER.fullmatch(name))


def judged_binds(container: Container, repo: RepoView) -> Iterator[tuple[Mount, str]]:
    """Binds that no hardware rule refuses as text, with the clean source."""
    for mount, path in _binds(container):
        if path is not None and not _is_socket(path, repo) and _tree(path, repo) is None:
            yield mount, path


def _binds(container: Container) -> Iterator[tuple[Mount, str | None]]:
    for mount in container.mounts:
        if mount.kind == "bind" and not mount.broken:
            yield mount, clean(mount.source)


def _volume_names(container: Container) -> Iterator[str]:
    for mount in container.mounts:
        if mount.kind == "volume" and not mount.broken and CONTAINER.fullmatch(mount.source):
            yield mount.source


def _tree(path: str, repo: RepoView) -> str | None:
    """A tree that `path` lies in, is, or holds."""
    return next((tree for tree in (*TREES, *repo.hidden) if is_below(path, tree) or is_below(tree, path)), None)


def _is_socket(path: str, repo: RepoView) -> bool:
    return basename(path) == "docker.sock" or (path.endswith(".sock") and path in repo.hidden)


_DOCKERS = ("/var/run/docker.sock", "/run/docker.sock")


def _becomes_the_gates(mount: Mount, path: str, repo: RepoView) -> bool:
    """Whether it is what clients call their daemon's socket; one that a daemon has already must be the gate's."""
    named = path in _DOCKERS or (path.endswith(".sock") and path in repo.hidden)
    return named and bool(repo.socket) and (mount.pinned or not mount.made)


def _in_roots(path: str, repo: RepoView) -> bool:
    return any(is_below(path, root.rstrip("/")) for root in repo.binds if root.rstrip("/"))


def _options(mount: Mount) -> Iterator[str]:
    unknown = [word for word in mount.modes if word not in _MODES]
    if unknown:
        yield f"{mount.where}: the bind mode {messages.listed(unknown)} is refused: {_PRIVATE}"
    if mount.propagation not in _PROPAGATION:
        yield f"{mount.where}: the propagation {quoted(mount.propagation)} is refused: {_PRIVATE}"
    for option in mount.tmpfs_options:
        if option not in (("exec",), ("noexec",)):
            yield f"{mount.where}: the tmpfs option {quoted('='.join(option))} is refused"
