"""Starts and stops sealed Docker daemons below a root.

Sealed: the daemon's mount namespace has, in place of the CDI folder, a folder that is keyed by the repo's own random id
and holds the specs of what this repo was granted. An id is made once a name and never taken from a data root, so that
a copy of one brings no grant along. Its network namespace is its own too: the networks of Compose need bridges, and
those are neither left on the machine nor shared by two copies of one data root. The default bridge is one of them:
builds with BuildKit have no other network.
"""

import json
import os
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpugrant_hack import api, cache, image, processes
from gpugrant_hack.places import Root, checked_socket
from gpugrant_hack.say import Trouble
from gpugrant_hack.tools import Engine, Tools

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
READY_WITHIN = 60.0
"""Seconds; a daemon is ready in 2 to 5 on an idle machine."""

_GPUGRANT = Path(__file__).resolve().parents[3] / ".venv/bin/gpugrant"

# $1 sealed folder, $2 CDI folder, $3 run folder, $4 where it goes, $5 the root's other CDI folder, $6 busybox, $7 what
# pins bind sources again, $8 root and $9 repo (empty: there are none); the rest is the daemon.
# The host's mounts go on reaching the namespace (slave), so that folders which are bound later can be bound into
# containers; nothing leaks out.
SEAL = """
set -eu
mount --bind "$1" "$2"
mount -o remount,bind,ro "$2"
mkdir -p "$4"
mount --bind "$3" "$4"
mkdir -p "$5"
mount -t tmpfs -o ro,mode=0755,size=4k none "$5"
for other in $(readlink -f /run/cdi /var/run/cdi | sort -u); do
    if [ -d "$other" ]; then mount -t tmpfs -o ro,mode=0755,size=4k none "$other"; fi
done
"$6" ip link set lo up
# a source that can't be pinned any more is its container's trouble, not the daemon's
if [ -n "$9" ]; then "$7" gate binds restore --root "$8" "$9" || true; fi
shift 9
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class Daemon:
    """One daemon's folder below a root."""

    root: Root
    name: str

    @property
    def folder(self) -> Path:
        return self.root.daemons / self.name

    @property
    def socket(self) -> Path:
        return self.folder / "docker.sock"

    @property
    def config(self) -> Path:
        return self.folder / "daemon.json"

    @property
    def run(self) -> Path:
        """Lies at processes.RUN in the daemon's mount namespace."""
        return self.folder / "run"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def lock(self) -> Path:
        return self.folder / "lock"

    @property
    def id_file(self) -> Path:
        return self.folder / "id"


def start(tools: Tools, root: Root, name: str, *, engine_choice: str = "", data_root: Path | None = None) -> Daemon:
    """A running sealed daemon of this name; one that runs already is left as it is. Raises Trouble."""
    if not NAME.fullmatch(name):
        raise Trouble(f"the name {name!r} is none: small letters, digits and dashes, 63 at most")
    if os.geteuid() != 0:
        raise Trouble("a Docker daemon needs root: run this as root")
    daemon = Daemon(root, name)
    checked_socket(daemon.socket)
    with cache.locked(daemon.lock):
        settings = _settings(daemon, data_root)
        if processes.members(daemon.run).daemon is None or not api.answers(daemon.socket):
            engine = tools.engine(engine_choice)
            processes.end(daemon.run)  # what a killed daemon left behind
            _refuse_shared_data(root, daemon, settings)
            _launch(tools, engine, daemon, settings)
        image.load_if_missing(tools, daemon.socket)
    return daemon


def stop(daemon: Daemon) -> bool:
    """Ends the daemon with its containers, mounts and networks; its data stays. False: it did not run."""
    if not daemon.config.exists():
        return False
    with cache.locked(daemon.lock):
        ended = processes.end(daemon.run)
        daemon.socket.unlink(missing_ok=True)
    return ended


def known(root: Root) -> Iterator[Daemon]:
    """The daemons that were ever started below a root."""
    for folder in sorted(root.daemons.glob("*")) if root.daemons.is_dir() else []:
        if (folder / "daemon.json").exists():
            yield Daemon(root, folder.name)


def _settings(daemon: Daemon, data_root: Path | None) -> dict[str, Any]:
    """The content of daemon.json; a name keeps the data root that it was made with."""
    before = _data_root(daemon)
    data = data_root.absolute() if data_root else before or daemon.folder / "data"
    if before is not None and data != before:
        raise Trouble(f"daemon {daemon.name} has its data in {before}: choose another name for {data}")
    return {
        "hosts": [f"unix://{daemon.socket}"],
        "group": "root",
        "data-root": str(data),
        "exec-root": f"{processes.RUN}/docker",
        "pidfile": str(daemon.folder / "pid"),
        "iptables": False,
        "ip6tables": False,
        "features": {"cdi": True},
        "cdi-spec-dirs": [str(daemon.root.cdi)],
        "default-runtime": "runc",
        "live-restore": False,
        "builder": {"entitlements": {"network-host": False, "security-insecure": False, "device": False}},
    }


def _data_root(daemon: Daemon) -> Path | None:
    try:
        return Path(json.loads(daemon.config.read_text())["data-root"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as error:
        raise Trouble(f"{daemon.config} is broken ({error}): remove the folder {daemon.folder}") from error


def _refuse_shared_data(root: Root, daemon: Daemon, settings: Mapping[str, Any]) -> None:
    for other in known(root):
        if other.name != daemon.name and str(_data_root(other)) == settings["data-root"]:
            raise Trouble(f"{settings['data-root']} is the data of daemon {other.name}: give a copy of it")


def _launch(tools: Tools, engine: Engine, daemon: Daemon, settings: dict[str, Any]) -> None:
    sealed = daemon.root.sealed(_repo_id(daemon))
    for folder in (sealed, daemon.root.cdi):
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    shutil.rmtree(daemon.run, ignore_errors=True)
    daemon.run.mkdir(mode=0o711)
    (daemon.folder / "pid").unlink(missing_ok=True)
    daemon.socket.unlink(missing_ok=True)
    settings["userland-proxy"] = shutil.which("docker-proxy", path=engine.path(tools.search)) is not None
    daemon.config.write_text(json.dumps(settings, indent=2) + "\n")
    # the gate believes only what nobody but root could have written
    daemon.config.chmod(0o644)
    command = [
        *("unshare", "--mount", "--propagation", "slave", "--net", "sh", "-c", SEAL, "seal"),
        *(str(sealed), str(daemon.root.cdi), str(daemon.run), processes.RUN),
        *(str(daemon.root.path / "run/cdi"), str(tools.busybox())),
        *(str(_GPUGRANT), str(daemon.root.path), _repo_with_pins(daemon)),
        *(str(engine.program("dockerd", tools.search)), "--config-file", str(daemon.config)),
    ]
    environ = {key: value for key, value in os.environ.items() if not key.startswith("DOCKER_")}
    with daemon.log.open("wb") as log:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env={**environ, "PATH": engine.path(tools.search)},
            start_new_session=True,
        )
    _wait(daemon, child)


def _repo_with_pins(daemon: Daemon) -> str:
    """The repo whose daemon it is, where its containers have pinned bind sources."""
    if not daemon.root.pin_notes(_repo_id(daemon)).exists() or not _GPUGRANT.exists():
        return ""
    return next((fields.get("name", "") for fields in _repo_files(daemon)), "")


def _repo_files(daemon: Daemon) -> Iterator[dict[str, str]]:
    """The files in repos.d that are this daemon's."""
    for file in sorted(daemon.root.repos.glob("*.yaml")):
        text = file.read_text(errors="replace")
        fields = dict(re.findall(r"^(name|id|upstream): *['\"]?(.*?)['\"]? *$", text, re.MULTILINE))
        if fields.get("upstream") == str(daemon.socket):
            yield fields


def _repo_id(daemon: Daemon) -> str:
    """The repo's own id: random, made with the name, kept beside the data root and never in it.

    A repo that was removed and added again has another id than its daemon was made with: its file tells.
    """
    for fields in _repo_files(daemon):
        if NAME.fullmatch(fields.get("id", "")):
            daemon.id_file.write_text(f"{fields['id']}\n")
    try:
        return daemon.id_file.read_text().strip()
    except FileNotFoundError:
        fresh = uuid.uuid4().hex
        daemon.id_file.write_text(f"{fresh}\n")
        return fresh


def _wait(daemon: Daemon, child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_WITHIN
    while not api.answers(daemon.socket):
        if child.poll() is not None:
            raise Trouble(f"daemon {daemon.name} ended at once, see {daemon.log}: {_last_error(daemon.log)}")
        if time.monotonic() > deadline:
            processes.end(daemon.run)
            raise Trouble(f"daemon {daemon.name} did not answer in {READY_WITHIN:.0f} s, see {daemon.log}")
        time.sleep(0.05)


def _last_error(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "level=error" in line or "level=fatal" in line or "failed to" in line]
    return (errors or lines or ["it said nothing"])[-1]
