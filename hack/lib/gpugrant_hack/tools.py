"""Finds what the system needs on this machine, or brings it into the cache (never into the system).

A set of Docker programs is taken whole from one place: mixed generations of daemon, containerd and shim do not fit.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpugrant_hack import cache, packages
from gpugrant_hack.say import Trouble, note

MINIMUM = 25
"""The first Docker that reads CDI specs (R4)."""

ENGINE_PACKAGES = ("docker.io", "docker-cli", "docker-compose", "docker-buildx", "containerd")
ENGINE_SUITES = {"26": "trixie", "28": "forky"}
INIT_PACKAGES = {"26": "tini", "28": "tini-static"}
PREFERRED = ("28", "26")
KUBECTL_SUITE = "trixie"
ETCD_SUITE = "forky"
"""Debian 12's etcd is of a line that kube-apiserver no longer speaks with."""
PROGRAMS = ("dockerd", "docker", "containerd", "containerd-shim-runc-v2", "runc")
PLUGINS = ("docker-compose", "docker-buildx")
PLUGIN_FOLDERS = (
    "usr/local/lib/docker/cli-plugins",
    "usr/local/libexec/docker/cli-plugins",
    "usr/lib/docker/cli-plugins",
    "usr/libexec/docker/cli-plugins",
)

MEND_DOCKER = (
    f"connect this machine to its Debian mirror once, or install Docker {MINIMUM} or newer with Compose v2 "
    "(dockerd, containerd, runc, docker, docker compose)"
)


@dataclass(frozen=True, slots=True)
class Engine:
    """One set of Docker programs."""

    name: str
    programs: Path | None
    """The folder with all of them; None: they are in PATH."""
    plugins: Mapping[str, Path]

    def path(self, search: str) -> str:
        """A PATH in which this set comes first."""
        return search if self.programs is None else f"{self.programs}:{search}"

    def program(self, name: str, search: str) -> Path:
        """Where a program of the set lies; raises Trouble when it is gone."""
        found = shutil.which(name, path=self.path(search))
        if found is None:
            raise Trouble(f"{name} is gone from {self.programs or 'PATH'}: run the script again")
        return Path(found)


@dataclass(frozen=True, slots=True)
class Tools:
    """What one run of a script has: where things are kept and how a program is looked up."""

    store: Path
    search: str
    """PATH"""
    etc: Path = Path("/etc")

    def engine(self, choice: str = "") -> Engine:
        """The set of Docker programs: `26`, `28`, `own` (this machine's), or the best for an empty choice."""
        if choice not in {"", "own", *ENGINE_SUITES}:
            raise Trouble(f"no engine {choice!r}: it is one of 26, 28, own")
        if choice in {"", "own"}:
            own, lack = own_engine(self.search)
            if own is not None:
                return own
            if choice == "own":
                raise Trouble(f"this machine's own Docker does not serve: {lack}")
            return self._best_engine(lack)
        return self._brought_engine(choice, f"engine {choice} is asked for")

    def _best_engine(self, reason: str) -> Engine:
        """The newest that can be had: what a moving suite holds may not be served or not run on this machine."""
        *newer, last = PREFERRED
        for version in newer:
            try:
                return self._brought_engine(version, reason)
            except Trouble as trouble:
                note(f"not Docker {version} but {last}, as {trouble.__cause__ or trouble}")
        return self._brought_engine(last, reason)

    def _brought_engine(self, version: str, reason: str) -> Engine:
        def build(into: Path) -> None:
            suite, own = ENGINE_SUITES[version], self._archive().codename
            note(f"bringing Docker {version} with Compose into {self.store}: {reason} (about 120 MB, once)")
            # The newer suites' runc needs a newer libc than this machine may have; its own one serves all.
            names = (*ENGINE_PACKAGES, INIT_PACKAGES[version])
            self._unpack([*((name, suite) for name in names), ("runc", own)], into / "tree")
            _gather_programs(into / "tree", into)

        folder = self._bring(f"docker-{version}", build, "Docker with CDI", MEND_DOCKER)
        plugins = {name: folder / "cli-plugins" / name for name in PLUGINS}
        return Engine(version, folder / "bin", plugins)

    def kubectl(self) -> Path:
        """A kubectl that runs: this machine's, else a brought one."""
        for found in filter(None, [shutil.which("kubectl", path=self.search)]):
            if _answers([found, "version", "--client"]):
                return Path(found)

        def build(into: Path) -> None:
            note(f"bringing kubectl into {self.store}: this machine has none (about 15 MB, once)")
            self._take("kubectl", KUBECTL_SUITE, "usr/bin/kubectl", into / "bin/kubectl")

        folder = self._bring("kubectl", build, "kubectl", "connect this machine once, or install kubectl")
        return folder / "bin/kubectl"

    def busybox(self) -> Path:
        """A statically linked busybox, which the stand-in image is made of."""

        def build(into: Path) -> None:
            note(f"bringing a static busybox into {self.store}: the stand-in image is made of it (1 MB, once)")
            self._take("busybox-static", self._archive().codename, "**/bin/busybox", into / "bin/busybox")

        return self._bring("busybox", build, "busybox", "connect this machine once") / "bin/busybox"

    def registry(self) -> Path:
        """An image registry, for tests of pull and push."""

        def build(into: Path) -> None:
            note(f"bringing an image registry into {self.store}: tests pull from it (5 MB, once)")
            self._take("docker-registry", self._archive().codename, "usr/bin/docker-registry", into / "bin/registry")

        return self._bring("registry", build, "an image registry", "connect this machine once") / "bin/registry"

    def etcd(self) -> Path:
        """An etcd for a real kube-apiserver."""

        def build(into: Path) -> None:
            note(f"bringing etcd into {self.store}: a real kube-apiserver keeps its objects in it (10 MB, once)")
            self._take("etcd-server", ETCD_SUITE, "usr/bin/etcd", into / "bin/etcd")
            if not _answers([str(into / "bin/etcd"), "--version"]):
                raise Trouble("the etcd of Debian's packages does not run here")

        return self._bring("etcd", build, "etcd", "connect this machine once") / "bin/etcd"

    def pip(self) -> Path:
        """A pip wheel to run pip from, for a Python that has none."""

        def build(into: Path) -> None:
            note(f"bringing pip into {self.store}: this Python has none (2 MB, once)")
            wheel = "usr/share/python-wheels/pip-*.whl"
            self._take("python3-pip-whl", self._archive().codename, wheel, into / "pip.whl")

        mend = "connect this machine once, or install uv or python3-pip"
        return self._bring("pip", build, "pip", mend) / "pip.whl"

    def certificates(self) -> Path | None:
        """Certificate authorities for a machine that has none; None where the machine's own serve."""
        if (self.etc / "ssl/certs/ca-certificates.crt").exists():
            return None

        def build(into: Path) -> None:
            note(f"bringing certificate authorities into {self.store}: this machine has none (1 MB, once)")
            self._unpack([("ca-certificates", self._archive().codename)], into / "tree")
            found = sorted((into / "tree/usr/share/ca-certificates/mozilla").glob("*.crt"))
            (into / "all.pem").write_text("".join(path.read_text() for path in found))
            shutil.rmtree(into / "tree")

        mend = "connect this machine once, or install ca-certificates"
        return self._bring("certificates", build, "a set of certificate authorities", mend) / "all.pem"

    def _archive(self) -> packages.Archive:
        return packages.machine_archive(self.etc)

    def _unpack(self, wanted: list[tuple[str, str]], into: Path) -> None:
        packages.unpack(self.store, self._archive(), wanted, into)

    def _take(self, package: str, suite: str, pattern: str, target: Path) -> None:
        """Brings one file of one package."""
        with tempfile.TemporaryDirectory(dir=self.store) as tree:
            self._unpack([(package, suite)], Path(tree))
            found = next(Path(tree).glob(pattern), None)
            if found is None:
                raise Trouble(f"the package {package} of {suite} has no {pattern}")
            _move(found, target)

    def _bring(self, name: str, build: Callable[[Path], None], what: str, mend: str) -> Path:
        try:
            return cache.entry(self.store, name, build)
        except Trouble as trouble:
            raise Trouble(f"{what} is not on this machine and can't be brought, as {trouble}: {mend}") from trouble


def own_engine(search: str) -> tuple[Engine | None, str]:
    """This machine's own set of programs, or None and what it lacks."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=search) is None]
    if missing:
        return None, f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not on this machine"
    version = docker_version(_output(["dockerd", "--version"], search))
    if version is None or version < MINIMUM:
        return None, f"this machine's Docker is {version or 'of an unknown version'}, older than {MINIMUM}"
    plugins = {name: path for name in PLUGINS for path in _plugin(name)}
    if "docker-compose" not in plugins:
        return None, "this machine's Docker has no Compose v2"
    return Engine("own", None, plugins), ""


def docker_version(text: str) -> int | None:
    """The major number in the output of `dockerd --version`."""
    found = re.search(r"\bversion v?(\d+)\.", text)
    return int(found[1]) if found else None


def _plugin(name: str) -> list[Path]:
    return [path for folder in PLUGIN_FOLDERS if (path := Path("/") / folder / name).exists()][:1]


def _gather_programs(tree: Path, into: Path) -> None:
    """Puts the programs of unpacked packages into `bin` and `cli-plugins` and drops the rest."""
    for name in (*PROGRAMS, "docker-proxy", "tini-static"):
        for found in (tree / "usr/sbin" / name, tree / "usr/bin" / name):
            if found.exists() and not found.is_symlink():
                _move(found, into / "bin" / name)
    for name in PLUGINS:
        for folder in PLUGIN_FOLDERS:
            if (found := tree / folder / name).exists():
                _move(found, into / "cli-plugins" / name)
    # `docker run --init` mounts it into the container, where no libc need be.
    (into / "bin/docker-init").symlink_to("tini-static")
    shutil.rmtree(tree)
    for program in ("dockerd", "containerd", "runc", "docker", "tini-static"):
        if not _answers([str(into / "bin" / program), "--version"]):
            raise Trouble(f"the {program} of Debian's packages does not run here")


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(source, target)


def _answers(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _output(command: list[str], search: str) -> str:
    program = shutil.which(command[0], path=search) or command[0]
    done = subprocess.run([program, *command[1:]], capture_output=True, text=True, check=False, timeout=30)
    return done.stdout
