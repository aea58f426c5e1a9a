"""Brings up the example system: two repos with a sealed daemon each, the product, and the main job shown on it.

The product is only driven through its commands (`gpugrant`, `kubectl`, `docker`), as a user would.
"""

import os
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpugrant_hack import daemons, shell
from gpugrant_hack.places import Root, checked_socket
from gpugrant_hack.say import Trouble, note, result
from gpugrant_hack.tools import Tools

REPOS = ("gpu-a", "gpu-b")
RECORDED = "examples/machines/workstation"
READY_WITHIN = 60.0
"""Seconds for the API to answer and the machine to be detected."""
GPU_SIGNS = ("dev/nvidiactl", "proc/driver/nvidia/gpus", "dev/dxg", "dev/kfd", "dev/dri/renderD*")


@dataclass(frozen=True, slots=True)
class System:
    """One example system below one root."""

    checkout: Path
    root: Root
    tools: Tools

    @property
    def scripts(self) -> Path:
        return self.checkout / ".venv/bin"

    @property
    def hardware_file(self) -> Path:
        """Which tree the machine is read from, while it runs and after."""
        return self.root.path / "hardware"

    def environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """What `<root>/env` makes of an environment."""
        kept = {key: value for key, value in environ.items() if not key.startswith("DOCKER_")}
        return {
            **kept,
            "GPUGRANT_ROOT": str(self.root.path),
            "KUBECONFIG": str(self.root.kubeconfig),
            "DOCKER_CONFIG": str(self.root.docker_config),
            "PATH": f"{self.root.bin}:{self.tools.search}",
        }


def default_hardware(checkout: Path, machine: Path = Path("/")) -> tuple[Path, str]:
    """Where the machine is read from, and what to say about it: this machine if it has a GPU, else the recorded one."""
    if any(True for sign in GPU_SIGNS for _ in machine.glob(sign)):
        return machine, ""
    return checkout / RECORDED, f"this machine has no GPU: {RECORDED} stands in for one (another: --hardware DIR)"


def up(system: System, hardware: Path | None, engine_choice: str) -> None:
    """Everything started and answering; harmless when it already is. Raises Trouble."""
    root = system.root
    for repo in REPOS:
        checked_socket(root.gate_socket(repo))
    tree, remark = _tree(system, hardware)
    engine, kubectl = system.tools.engine(engine_choice), system.tools.kubectl()
    sockets = {repo: daemons.start(system.tools, root, repo, engine_choice=engine_choice).socket for repo in REPOS}
    docker = engine.program("docker", system.tools.search)
    scripts = {name: system.scripts / name for name in shell.SCRIPTS}
    shell.write(root, programs={"docker": docker, "kubectl": kubectl, **scripts}, plugins=engine.plugins, repos=REPOS)
    for repo, socket in sockets.items():
        _register(system, repo, socket)
    if remark:
        note(remark)
    gpugrant(system, "up", "--root", str(root.path), "--detach", "--hardware", str(tree))
    system.hardware_file.write_text(f"{tree}\n")
    _machine(system)


def _tree(system: System, hardware: Path | None) -> tuple[Path, str]:
    """The hardware tree of this start; raises Trouble for one that is none, or when it runs with another."""
    if hardware is None and running(system):
        return Path(system.hardware_file.read_text().strip()), ""
    if hardware is None:
        return default_hardware(system.checkout)
    if not hardware.is_dir():
        raise Trouble(f"--hardware {str(hardware)!r} is no folder: it names the tree that the machine is read from")
    if running(system) and Path(system.hardware_file.read_text().strip()) != hardware:
        raise Trouble(f"it runs with other hardware ({system.hardware_file.read_text().strip()}): run hack/down first")
    return hardware, ""


def running(system: System) -> bool:
    """Whether a part of the product is up below this root: it holds its lock file (asked for without touching it)."""
    files = {file.stat().st_ino for file in system.root.locks if file.exists()}
    held = (line.split() for line in Path("/proc/locks").read_text().splitlines() if " FLOCK " in line)
    return system.hardware_file.exists() and any(int(words[5].rpartition(":")[2]) in files for words in held)


def _register(system: System, repo: str, socket: Path) -> None:
    """Puts the daemon behind the gate; a file left by an earlier daemon of this name has another id and gives way."""
    root = system.root
    file = root.repos / f"{repo}.yaml"
    repo_id = daemons.Daemon(root, repo).id_file.read_text().strip()
    if file.exists():
        if re.search(rf"^id: *['\"]?{re.escape(repo_id)}['\"]? *$", file.read_text(), re.MULTILINE):
            return
        gpugrant(system, "repo", "remove", repo, "--root", str(root.path))
    config = daemons.Daemon(root, repo).config
    gpugrant(
        system,
        *("repo", "add", repo, "--upstream", str(socket), "--daemon-config", str(config), "--sealed"),
        *("--root", str(root.path)),
    )


def _machine(system: System) -> str:
    """The machine's name, once the API has it and it is Ready. Raises Trouble."""
    deadline = time.monotonic() + READY_WITHIN
    while True:
        found = run(system, "kubectl", "get", "gpumachines", "-o", "name")
        if found.returncode == 0 and found.stdout.strip():
            break
        if time.monotonic() > deadline:
            raise Trouble(f"the API shows no machine after {READY_WITHIN:.0f} s: {_said(found)}")
        time.sleep(0.1)
    name = found.stdout.split()[0]
    waited = run(system, "kubectl", "wait", "--for=condition=Ready", f"--timeout={READY_WITHIN:.0f}s", name)
    if waited.returncode:
        raise Trouble(f"{name} is not Ready: {_said(waited)}; 'kubectl describe {name}' says more")
    return name.partition("/")[2]


def down(system: System) -> bool:
    """Stops the product's parts and every daemon below the root, nothing else; False when nothing ran."""
    stopped, trouble = False, ""
    if (system.scripts / "gpugrant").exists() and (system.root.path / "run/rediacc/gpu").is_dir():
        stopped = running(system)
        done = run(system, "gpugrant", "down", "--root", str(system.root.path))
        trouble = _said(done) if done.returncode else ""
    for daemon in daemons.known(system.root):
        stopped = daemons.stop(daemon) or stopped
    if trouble:
        raise Trouble(f"gpugrant down failed: {trouble}")
    return stopped


def next_steps(system: System) -> list[str]:
    """The commands of the main job that fit this machine, to be typed in a shell. Raises Trouble."""
    job = _job(system)
    if job is None:
        return ["kubectl get gpumachines"]
    grant, words = job
    file = grant.relative_to(system.checkout) if grant.is_relative_to(system.checkout) else grant
    return [
        "kubectl get gpumachines",
        f"kubectl apply -f {file}",
        f"kubectl wait --for=condition=Ready -f {file}",
        f"docker --context gpu-a {' '.join(words)}",
        f"docker --context gpu-b {' '.join(words)}   # refused",
    ]


def _job(system: System) -> tuple[Path, list[str]] | None:
    """The manifest to apply and the container to run; None: the machine has no device. Raises Trouble."""
    found = _grant(system, _machine(system))
    if found is None:
        return None
    grant, device = found
    command = ["nvidia-smi", "-L"] if device.startswith("nvidia.com/") else ["ls", "-l", "/dev/dri"]
    return grant, ["run", "--rm", "--device", device, "ubuntu:24.04", *command]


def show(system: System) -> None:
    """The main job, with the commands as a user would type them and what they answer. Raises Trouble."""
    found = _job(system)
    _shown(system, ["kubectl", "get", "gpumachines"])
    if found is None:
        note("this machine has no device that could be granted, so there is no grant to show")
        return
    grant, job = found
    _shown(system, ["kubectl", "apply", "-f", str(grant)])
    _shown(system, ["kubectl", "wait", "--for=condition=Ready", "--timeout=60s", "-f", str(grant)])
    _shown(system, ["docker", "--context", "gpu-a", *job])
    _shown(system, ["docker", "--context", "gpu-b", *job], refused=True)


def _grant(system: System, machine: str) -> tuple[Path, str] | None:
    """The manifest to apply and its first device: the example, or a copy that fits another machine; None: no device."""
    example = system.checkout / "examples/grant.yaml"
    listed = run(system, "kubectl", "get", "gpumachine", machine, "-o", "jsonpath={.status.devices[*].name}")
    devices = listed.stdout.split()
    if not devices:
        return None
    text, device = fitted(example.read_text(), machine, devices)
    if text == example.read_text():
        return example, device
    copy = system.root.path / "grant.yaml"
    copy.write_text(text)
    return copy, device


def fitted(example: str, machine: str, devices: Sequence[str]) -> tuple[str, str]:
    """The example's grants as they fit a machine, and the first one's device: those of names that it has, or the
    first one with a name that it has. On the machine of the example that is the example itself."""
    documents = example.split("---\n")
    kept = [text for text in documents if _field(text, "device") in devices]
    if not kept:
        of_another = documents[0].replace("gpu-a-nvidia-all", "gpu-a-first-device")
        kept = [re.sub(r"^  device: .*$", f"  device: {devices[0]}", of_another, flags=re.MULTILINE)]
    text = re.sub(r"^  machine: .*$", f"  machine: {machine}", "---\n".join(kept), flags=re.MULTILINE)
    return text, _field(kept[0], "device")


def _field(document: str, name: str) -> str:
    found = re.search(rf"^  {name}: (\S+)$", document, re.MULTILINE)
    return found[1] if found else ""


def _shown(system: System, command: list[str], *, refused: bool = False) -> None:
    result(f"\n$ {shlex.join(_short(system, word) for word in command)}")
    done = run(system, *command)
    result((done.stdout + done.stderr).strip())
    if refused != (done.returncode != 0):
        raise Trouble(f"that should have been {'refused' if refused else 'done'}: 'gpugrant status' says what runs")


def _short(system: System, word: str) -> str:
    return word.removeprefix(f"{system.checkout}/")


def gpugrant(system: System, *words: str) -> None:
    """Runs a command of the product; raises Trouble with what it says when it fails."""
    done = run(system, "gpugrant", *words)
    if done.returncode:
        raise Trouble(f"gpugrant {words[0]} failed: {_said(done)}")


def run(system: System, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs a program as in a shell that has read `<root>/env`; its output is captured."""
    path = system.scripts / program if program in shell.SCRIPTS else system.root.bin / program
    # Files, not pipes: a part that goes on in the background must not keep this waiting.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        done = subprocess.run(
            [str(path), *words],
            cwd=system.checkout,
            env=system.environ(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            check=False,
        )
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(done.args, done.returncode, out.read(), err.read())


def _said(done: subprocess.CompletedProcess[str]) -> str:
    said = " ".join(done.stderr.split()) or " ".join(done.stdout.split()) or f"exit code {done.returncode}"
    return said.removeprefix("error: ")
