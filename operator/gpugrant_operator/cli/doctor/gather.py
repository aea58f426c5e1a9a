"""Looks at the whole machine. Nothing is changed, and each question has its bound; what can't be seen is said."""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import shutil
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from gpugrant_crds import cdi, inventory
from gpugrant_crds.inventory import Inventory
from gpugrant_crds.layout import Layout
from gpugrant_crds.repofile import RepoFile
from gpugrant_crds.snapshot import GateStatus
from gpugrant_crds.v1alpha1 import API_VERSION, RepoGpuGrant
from gpugrant_gate import settings as gate_settings
from gpugrant_gate.life import stored
from gpugrant_gate.life.documents import Broken
from gpugrant_operator import gateclient, kubeclient, repos
from gpugrant_operator.cli.doctor.seen import Daemon, Part, Seen
from gpugrant_operator.node import daemons, fingerprint, folder, state
from gpugrant_operator.node.tree import Tree
from gpugrant_operator.supervisor import health, parts, processes
from gpugrant_operator.supervisor.health import Health

OTHER_FOLDERS = (Path("run/cdi"), Path("var/run/cdi"))
"""Beside /etc/cdi the CDI library's default: podman, containerd and a Docker with default settings read them."""

SUPERVISOR_WITHIN = 2 * health.TIMEOUT
"""Seconds: it asks its parts before it answers, and one of them may hang."""

GRANTS = f"/apis/{API_VERSION}/repogpugrants"


def look(layout: Layout, *, now: datetime, version: str) -> Seen:
    """The machine as it is now."""
    answers = {
        parts.SUPERVISOR: asyncio.run(health.ask(layout.control(parts.SUPERVISOR), timeout=SUPERVISOR_WITHIN)),
        **{name: asyncio.run(health.ask(layout.control(name))) for name in parts.NAMES},
    }
    unreadable: list[str] = []
    found = tuple(_part(layout, name, answer, unreadable) for name, answer in answers.items())
    supervisor = answers[parts.SUPERVISOR]
    told = "" if supervisor is None else supervisor.hardware
    hardware = Path(told) if told else Path("/") if layout.root == Path("/") else None
    gate = _gate(layout)
    listed = _repos(layout, unreadable)
    specs = folder.parse(folder.read(layout.cdi))
    merged = cdi.merge(specs)
    conflicts = tuple(merged.unusable.values())
    begins, ends = _certificate(layout, unreadable)
    api_problem, grants = asyncio.run(_api(layout)) if layout.kubeconfig.exists() else (None, ())
    return Seen(
        layout=layout,
        now=now,
        version=version,
        is_root=os.geteuid() == 0,
        parts=found,
        settings_problem=_settings_problem(layout),
        repo_problems=tuple(str(problem) for problem in listed.problems),
        daemons=tuple(_daemon(repo, layout, gate) for repo in listed.repos.values()),
        gate=gate,
        spec_problems=tuple(dict.fromkeys([*(s for s in specs.values() if isinstance(s, cdi.Problem)), *conflicts])),
        spec_names=frozenset(merged.names),
        shadowing=tuple(_shadowing(layout, frozenset(merged.names))),
        inventory=_inventory(layout),
        hardware=hardware,
        fingerprint=None if hardware is None else fingerprint.take(Tree(hardware)),
        changed_units=tuple(_changed_units(layout)),
        kubeconfig_mode=_mode(layout.kubeconfig),
        api_problem=api_problem,
        certificate_begins=begins,
        certificate_ends=ends,
        clock_ahead=_clock_ahead(layout, now),
        free=_free(layout),
        grants=grants,
        unreadable=tuple(unreadable),
    )


def _part(layout: Layout, name: str, answer: Health | None, unreadable: list[str]) -> Part:
    try:
        held = processes.holder(layout.lock(name))
    except PermissionError:
        unreadable.append(f"{layout.lock(name)} can't be read")
        return Part(name, ok=None if answer is None else answer.ok)
    if held is None:
        return Part(name)
    if answer is None:
        return Part(name, held.pid)
    return Part(name, held.pid, answer.ok, answer.message, answer.version)


def _gate(layout: Layout) -> GateStatus | None:
    try:
        return gateclient.ask(layout.control("gate"), lambda gate: gate.status())
    except gateclient.GateError:
        return None


def _settings_problem(layout: Layout) -> str | None:
    try:
        gate_settings.load(layout.gate_settings, "any", cores=1)
    except Broken as error:
        return str(error)
    return None


def _repos(layout: Layout, unreadable: list[str]) -> repos.Folder:
    try:
        return repos.read(layout)
    except FileNotFoundError:
        return repos.Folder({})
    except OSError as error:
        unreadable.append(f"{layout.repos} can't be read ({(error.strerror or str(error)).lower()})")
        return repos.Folder({})


def _daemon(repo: RepoFile, layout: Layout, gate: GateStatus | None) -> Daemon:
    sight = daemons.look(repo.upstream)
    seen = None if gate is None else next((its for its in gate.repos if its.name == repo.name), None)
    listen = repo.listens(layout)
    return Daemon(
        name=repo.name,
        repo_id=repo.id,
        sealed=repo.sealed or (seen is not None and seen.sealed),
        upstream=repo.upstream,
        listen=listen,
        answers=sight is not None,
        release=(0, 0) if sight is None else sight.release,
        folders=frozenset() if sight is None else sight.folders,
        open_to=tuple(open_to(repo.upstream)),
        served=repos.accepts(listen) is not None,
        inode=_inode(repo.upstream),
    )


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        its = path.stat()
    except OSError:
        return None
    return its.st_dev, its.st_ino


def open_to(path: Path) -> Iterator[str]:
    """Who else than root may connect to the socket (unix(7): that needs write permission, and search permission for
    every folder above), in words."""
    try:
        place = path.resolve(strict=True)
        above = [parent.stat() for parent in place.parents]
        its = place.stat()
    except OSError:
        return
    if not stat.S_ISSOCK(its.st_mode):
        return
    everybody = all(its.st_mode & stat.S_IXOTH for its in above)
    if its.st_uid and (everybody or all(_lets_in(folder, its.st_uid, None) for folder in above)):
        yield f"user {_name_of_user(its.st_uid)}"
    if its.st_mode & stat.S_IWGRP and its.st_gid and all(_lets_in(folder, None, its.st_gid) for folder in above):
        yield f"group {_name_of_group(its.st_gid)}"
    if its.st_mode & stat.S_IWOTH and everybody:
        yield "everybody on this machine"


def _lets_in(folder: os.stat_result, uid: int | None, gid: int | None) -> bool:
    if uid is not None and folder.st_uid == uid:
        return bool(folder.st_mode & stat.S_IXUSR)
    if gid is not None and folder.st_gid == gid:
        return bool(folder.st_mode & stat.S_IXGRP)
    return bool(folder.st_mode & stat.S_IXOTH)


def _name_of_user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _name_of_group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _shadowing(layout: Layout, own: frozenset[str]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    told: set[Path] = set()
    for relative in OTHER_FOLDERS:
        place = layout.root / relative
        for name, spec in folder.parse(folder.read(place)).items():
            path = (place / name).resolve()
            both = tuple(sorted(own.intersection(spec.names), key=cdi.natural)) if isinstance(spec, cdi.Spec) else ()
            if both and path not in told:
                told.add(path)
                yield path, both


def _inventory(layout: Layout) -> Inventory | str | None:
    try:
        return inventory.parse(layout.inventory.read_bytes())
    except FileNotFoundError:
        return None
    except inventory.InventoryUnreadable as error:
        return str(error)
    except OSError as error:
        return (error.strerror or str(error)).lower()


def _changed_units(layout: Layout) -> Iterator[Path]:
    """Units, drop-ins and rules that setup wrote; specs are looked at by what stands in them."""
    known, _ = state.load(layout.setup)
    for name in sorted(known.files):
        if not name.startswith(("etc/systemd/", "etc/udev/")):
            continue
        path = layout.root / name
        data = folder.read_file(path)
        if known.latest(name) is not None and (isinstance(data, str) or not known.owns(name, data)):
            yield path


def _mode(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None


async def _api(layout: Layout) -> tuple[str | None, tuple[RepoGpuGrant, ...]]:
    try:
        access = kubeclient.read_kubeconfig((layout.kubeconfig,))
        async with asyncio.timeout(health.TIMEOUT), kubeclient.KubeClient(access, agent="gpugrant") as api:
            return None, tuple(RepoGpuGrant.model_validate(item) for item in await api.list(GRANTS))
    except TimeoutError:
        return f"no answer in {health.TIMEOUT:g} s", ()
    except (kubeclient.KubeconfigUnusable, kubeclient.ApiError, OSError, ValueError) as error:
        return " ".join(str(error).split()), ()


def _certificate(layout: Layout, unreadable: list[str]) -> tuple[datetime | None, datetime | None]:
    path = layout.store / "pki/server.crt"
    try:
        read = x509.load_pem_x509_certificate(path.read_bytes())
    except FileNotFoundError:
        return None, None
    except PermissionError:
        unreadable.append(f"{path} can't be read")
        return None, None
    except (OSError, ValueError):
        return None, None  # the API server makes a damaged one anew
    return read.not_valid_before_utc, read.not_valid_after_utc


def _clock_ahead(layout: Layout, now: datetime) -> datetime | None:
    found = stored.load(layout.snapshot).stored
    mark = None if found is None else found.clock
    if mark is None or mark.wall <= now.timestamp() + 1:
        return None
    return datetime.fromtimestamp(mark.wall, UTC)


def _free(layout: Layout) -> int | None:
    try:
        return shutil.disk_usage(layout.state).free
    except OSError:
        return None
