"""Kubernetes' own programs for tests: built from the Go module, since no package has them; etcd is Debian's.

The module is not made to be required by another: each of its staging modules needs a `replace`, and nothing else big
may stand beside it, or it is not the upstream set of dependencies. No address is written down: Go asks where it is
set up to ask.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from gpugrant_hack import cache
from gpugrant_hack.say import Trouble, note
from gpugrant_hack.tools import Tools

VERSION = "1.34.2"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
PLACE = "/usr/local/go/bin"
"""Where Go's own archive lies; it is often not in PATH."""
WITHIN = 3600.0
"""Seconds for one program: the first one takes 9 minutes on two quiet cores."""
MODULE = "k8s.io/kubernetes"
STAMPED = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")

STAGING = re.compile(r"^\s*(?:require )?(k8s\.io/\S+) v0\.0\.0\s*$", re.M)
"""Only the bare v0.0.0: k8s.io/utils and k8s.io/kube-openapi have a date and a hash behind it and are real versions."""
LANGUAGE = re.compile(r"^go (\S+)$", re.M)


def bring(tools: Tools, name: str) -> Path:
    """Where one of PROGRAMS lies, built once. Raises Trouble when it can't be built here."""

    def build(into: Path) -> None:
        note(f"building {name} {VERSION} into {tools.store}: tests hold ours against it (9 minutes, once)")
        try:
            _build(tools, name, into)
        except Trouble as trouble:
            mend = "install Go 1.24 or newer and connect this machine once"
            raise Trouble(f"{name} is not on this machine and can't be built, as {trouble}: {mend}") from trouble

    return cache.entry(tools.store, f"{name}-{VERSION}", build) / name


def module_file(upstream: str, version: str = VERSION) -> str:
    """The go.mod of a module that builds commands of Kubernetes, from the text of Kubernetes' own go.mod."""
    language = LANGUAGE.search(upstream)
    staging = sorted(set(STAGING.findall(upstream)))
    if language is None or not staging:
        raise Trouble(f"the go.mod of {MODULE} {version} has not the shape that it had")
    minor = version.partition(".")[2]
    lines = ["module build", f"go {language[1]}", f"require {MODULE} v{version}"]
    return "\n".join([*lines, *(f"replace {name} => {name} v0.{minor}" for name in staging), ""])


def link_flags(version: str = VERSION) -> str:
    """What makes the program say its version: without it clients that look at it take it for another."""
    major, minor, _ = version.split(".")
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(["-s", "-w", *(f"-X {place}.{key}={value}" for place in STAMPED for key, value in values.items())])


def _build(tools: Tools, name: str, into: Path) -> None:
    go = shutil.which("go", path=f"{tools.search}:{PLACE}")
    if go is None:
        raise Trouble("Go is not on this machine")
    told = json.loads(_call([go, "mod", "download", "-json", f"{MODULE}@v{VERSION}"], into))
    (into / "go.mod").write_text(module_file(Path(told["GoMod"]).read_text()))
    command = [go, "build", "-p", "2", "-ldflags", link_flags(), "-o", str(into / name), f"{MODULE}/cmd/{name}"]
    _call(command, into)
    for left in ("go.mod", "go.sum"):
        (into / left).unlink(missing_ok=True)


def _call(command: list[str], folder: Path) -> str:
    environ = {**os.environ, "GOFLAGS": "-mod=mod", "GOWORK": "off"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=WITHIN
        )
    except subprocess.TimeoutExpired as error:
        raise Trouble(f"go {command[1]} did not end in {WITHIN:.0f} s") from error
    if done.returncode:
        lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        said = [line for line in lines if not line.startswith("go: downloading ")]
        raise Trouble(f"go {command[1]} failed ({(said or ['it said nothing'])[-1]})")
    return done.stdout
