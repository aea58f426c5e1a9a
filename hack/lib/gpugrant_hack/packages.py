"""Brings Debian packages without installing them: private lists, a verified download, unpacked into a folder.

Nothing of the system's apt state is read for writing or changed: lists, status, archives and hooks are our own.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpugrant_hack import cache, sources
from gpugrant_hack.say import Trouble

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

# The hooks of the machine's own apt (cleaners of /var/cache/apt, command-not-found …) are none of a private list's.
CONFIG = """\
#clear APT::Update;
#clear DPkg;
Dir::Etc::SourceList "{dir}/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State::Lists "{dir}/lists";
Dir::State::Status "{dir}/status";
Dir::Cache "{dir}/cache";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
"""


@dataclass(frozen=True, slots=True)
class Archive:
    """The Debian archive of this machine."""

    mirrors: tuple[str, ...]
    codename: str


def machine_archive(etc: Path = Path("/etc")) -> Archive:
    """The archive that this machine is set up with; raises Trouble on a machine that is not Debian."""
    release = dict(
        line.partition("=")[::2]
        for line in _text(etc / "os-release").splitlines()
        if "=" in line and not line.startswith("#")
    )
    codename = release.get("VERSION_CODENAME", "").strip('"')
    found: list[sources.Source] = list(sources.parse_one_line(_text(etc / "apt/sources.list")))
    for path in sorted((etc / "apt/sources.list.d").glob("*")):
        if path.suffix == ".sources":
            found += sources.parse_deb822(_text(path))
        elif path.suffix == ".list":
            found += sources.parse_one_line(_text(path))
    mirrors = sources.mirrors(found, codename)
    if release.get("ID", "").strip('"') != "debian" or not mirrors or not shutil.which("apt-get"):
        raise Trouble("this is no Debian with a package mirror of its own")
    return Archive(mirrors, codename)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def unpack(store: Path, archive: Archive, wanted: Iterable[tuple[str, str]], into: Path) -> None:
    """Unpacks packages, given as (name, suite), into a folder. Raises Trouble when the mirror does not serve them."""
    wanted = tuple(wanted)
    suites = tuple(dict.fromkeys(suite for _, suite in wanted))
    with cache.locked(store / "apt.lock"):
        config = _lists(store, archive, suites)
        with tempfile.TemporaryDirectory(prefix="apt-", dir=store) as downloads:
            names = [f"{name}/{suite}" for name, suite in wanted]
            done = _run(["apt-get", "-c", str(config), "-q", "download", *names], cwd=downloads)
            debs = sorted(Path(downloads).glob("*.deb"))
            if done.returncode or len(debs) < len(wanted):
                raise Trouble(f"the Debian mirror does not serve {' '.join(names)} ({_last(done.stderr)})")
            for deb in debs:
                done = _run(["dpkg-deb", "-x", str(deb), str(into)])
                if done.returncode:
                    raise Trouble(f"{deb.name} does not unpack ({_last(done.stderr)})")


def _lists(store: Path, archive: Archive, suites: tuple[str, ...]) -> Path:
    """Fresh private lists of these suites; the configuration file that points apt at them."""
    failure = ""
    for mirror in archive.mirrors:
        place = store / "apt" / "-".join(suites)
        for part in ("lists/partial", "cache/archives/partial"):
            (place / part).mkdir(parents=True, exist_ok=True)
        (place / "status").touch()
        signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
        (place / "sources.list").write_text("".join(f"deb {signed}{mirror} {s} main\n" for s in suites))
        config = place / "apt.conf"
        config.write_text(CONFIG.format(dir=place))
        done = _run(["apt-get", "-c", str(config), "-q", "-o", "APT::Update::Error-Mode=any", "update"])
        if done.returncode == 0:
            return config
        failure = failure or _last(done.stderr)
    raise Trouble(f"the Debian mirror does not answer ({failure})")


def _run(command: list[str], cwd: str | None = None) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, check=False)


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("E:")]
    return (errors or lines or ["no reason given"])[0]
