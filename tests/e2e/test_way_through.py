"""From `kubectl apply` to a container that has the device, on real parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import rig

pytestmark = [pytest.mark.real, pytest.mark.must_run, pytest.mark.timeout(300)]

GPU = "nvidia.com/gpu=all"
AMD = "rediacc.io/amd=gpu0"
SMI = ("run", "--rm", "--device", GPU, "ubuntu:24.04", "nvidia-smi", "-L")
EXAMPLES = rig.CHECKOUT / "examples"


@pytest.fixture
def clean(system: rig.System) -> Iterator[rig.System]:
    """The system without a grant, before and after."""
    rig.succeeded(system.kubectl("delete", "rgg", "--all", "-A", "--timeout=30s"))
    yield system
    rig.succeeded(system.kubectl("delete", "rgg", "--all", "-A", "--timeout=30s"))


def manifest(repo: str, device: str = GPU, *, name: str = "trial", machine: str = "workstation", **spec: object) -> str:
    return json.dumps(
        {
            "apiVersion": "gpu.rediacc.io/v1alpha1",
            "kind": "RepoGpuGrant",
            "metadata": {"name": name},
            "spec": {"machine": machine, "repo": repo, "device": device, **spec},
        }
    )


def refused(done: rig.Result) -> str:
    """What a refused command said; fails when it was not refused."""
    assert done.returncode != 0, f"{done.args} was not refused:\n{done.stdout}"
    return done.stderr


def daemon_pids(system: rig.System) -> list[str]:
    return [path.read_text() for path in sorted(system.root.glob("daemons/*/pid"))]


@pytest.mark.req("D1", "D4", "D10", "D13", "R1", "R4", "R6", "R3", "R15", "R16", "R23", "R24")
def test_kubectl_apply_gives_the_device(clean: rig.System) -> None:
    """Applied, ready, in the container; refused elsewhere with the command that would grant it; gone when deleted."""
    pids = daemon_pids(clean)
    assert "workstation" in rig.succeeded(clean.kubectl("get", "gpumachines"))

    rig.succeeded(clean.kubectl("apply", "-f", str(EXAMPLES / "grant.yaml")))
    rig.succeeded(clean.kubectl("wait", "--for=condition=Ready", "rgg", "--all", "--timeout=30s"))
    listed = rig.succeeded(clean.docker("gpu-a", *SMI))
    nodes = rig.succeeded(
        clean.docker("gpu-a", "run", "--rm", "--device", AMD, "ubuntu:24.04", "ls", "/dev", "/dev/dri")
    )
    elsewhere = refused(clean.docker("gpu-b", *SMI))
    rig.succeeded(clean.kubectl("delete", "-f", str(EXAMPLES / "grant.yaml")))
    afterwards = refused(clean.docker("gpu-a", *SMI))

    assert listed.startswith("GPU 0: ")
    assert "kfd" in nodes.split()
    assert any(node.startswith("renderD") for node in nodes.split())
    assert (
        f"repo gpu-b has no grant for {GPU} on workstation; an operator can run: "
        f"rdc repo gpu grant gpu-b@workstation --device {GPU}"
    ) in elsewhere
    assert f"repo gpu-a has no grant for {GPU}" in afterwards
    assert daemon_pids(clean) == pids


@pytest.mark.req("R5", "R7")
def test_a_name_is_exactly_that_name(clean: rig.System) -> None:
    """`all` admits no single card; of several names those without a grant are named."""
    rig.succeeded(clean.rdc("repo", "gpu", "grant", "gpu-a", "--device", GPU))

    said = refused(clean.docker("gpu-a", "run", "--rm", "--device", "nvidia.com/gpu=0", "ubuntu:24.04", "true"))
    both = refused(clean.docker("gpu-a", "run", "--rm", "--device", GPU, "--device", AMD, "ubuntu:24.04", "true"))

    assert "no grant for nvidia.com/gpu=0" in said
    assert f"no grant for {AMD}" in both
    assert f"no grant for {GPU}" not in both


@pytest.mark.req("R22", "R6", "R51", "R23")
def test_rdc_grants_and_revokes(clean: rig.System) -> None:
    """`rdc` returns when it is enforced, both ways; again is no error; what was never granted says so."""
    granted = rig.succeeded(clean.rdc("repo", "gpu", "grant", "gpu-a", "--device", GPU))
    assert rig.succeeded(clean.docker("gpu-a", *SMI)).startswith("GPU 0: ")
    again = clean.rdc("repo", "gpu", "grant", "gpu-a@workstation", "--device", GPU)
    table = rig.succeeded(clean.rdc("repo", "gpu", "list"))
    revoked = rig.succeeded(clean.rdc("repo", "gpu", "revoke", "gpu-a", "--device", GPU))
    refused(clean.docker("gpu-a", *SMI))
    never = clean.rdc("repo", "gpu", "revoke", "gpu-a", "--device", GPU)

    assert GPU in granted
    assert (again.returncode, "already" in again.stderr) == (0, True)
    assert "gpu-a" in table
    assert GPU in revoked
    assert never.returncode == 0
    assert "no grant" in never.stdout + never.stderr


@pytest.mark.req("R36", "R33", "R32", "R31")
@pytest.mark.parametrize("client", ["26", "28"])
def test_compose(clean: rig.System, client: str, tmp_path: Path) -> None:
    """`devices: [nvidia.com/gpu=all]` starts with a grant, with each Compose; the other spellings name this one."""
    file = str(EXAMPLES / "compose.yaml")
    without = refused(clean.compose(client, "gpu-a", "-f", file, "-p", "inference", "up"))
    rig.succeeded(clean.rdc("repo", "gpu", "grant", "gpu-a", "--device", GPU))
    try:
        up = clean.compose(client, "gpu-a", "-f", file, "-p", "inference", "up")
    finally:
        clean.compose(client, "gpu-a", "-f", file, "-p", "inference", "down")

    assert f"no grant for {GPU}" in without
    assert "GPU 0: " in rig.succeeded(up)

    spelling = tmp_path / "compose.yaml"
    spelling.write_text("services: {inference: {image: 'ubuntu:24.04', runtime: nvidia}}\n")
    said = refused(clean.compose(client, "gpu-a", "-f", str(spelling), "-p", "other", "up"))
    clean.compose(client, "gpu-a", "-f", str(spelling), "-p", "other", "down")
    assert f"devices: [{GPU}]" in said


SPELLINGS = {
    "--gpus all": (("--gpus", "all"), f"--device {GPU}"),
    "--gpus with driver cdi": (("--gpus", f"driver=cdi,device={GPU}"), f"--device {GPU}"),
    "--runtime nvidia": (("--runtime", "nvidia"), GPU),
    "a raw render node": (("--device", "/dev/dri/renderD128"), "rediacc.io/dri="),
    "a raw kfd": (("--device", "/dev/kfd"), "rediacc.io/amd="),
    "a raw NVIDIA node": (("--device", "/dev/nvidia0"), "nvidia.com/gpu="),
    "another raw device": (("--device", "/dev/fuse"), "device"),
    "a bind of /dev": (("-v", "/dev:/host"), "/dev"),
    "a cgroup rule": (("--device-cgroup-rule", "c 195:* rwm"), "grant"),
    "privileged": (("--privileged",), "privileged"),
    "SYS_ADMIN": (("--cap-add", "SYS_ADMIN"), "SYS_ADMIN"),
    "host PID": (("--pid", "host"), "pid"),
}


@pytest.mark.req("R30", "R31", "R34", "R35", "R45", "R46")
@pytest.mark.parametrize(("options", "said"), SPELLINGS.values(), ids=SPELLINGS.keys())
def test_refused_spellings(clean: rig.System, options: tuple[str, ...], said: str) -> None:
    """Refused with the docker client as it is, with a grant in force; the message names the form to use."""
    rig.succeeded(clean.rdc("repo", "gpu", "grant", "gpu-a", "--device", GPU))

    message = refused(clean.docker("gpu-a", "run", "--rm", *options, "ubuntu:24.04", "true"))

    assert said.lower() in message.lower()


@pytest.mark.req("R37")
def test_extra_groups_grant_nothing(clean: rig.System) -> None:
    """`--group-add` passes, and the container has no device of it."""
    nodes = rig.succeeded(clean.docker("gpu-a", "run", "--rm", "--group-add", "44", "ubuntu:24.04", "ls", "/dev"))

    assert not {"dri", "kfd", "nvidia0"} & set(nodes.split())


@pytest.mark.req("R8")
def test_a_misspelt_device_is_refused_at_once(clean: rig.System) -> None:
    """Not stored, by kubectl and by rdc, with the nearest name."""
    by_kubectl = refused(clean.kubectl("apply", "-f", "-", text=manifest("gpu-a", "nvidia.com/gpu=al")))
    by_rdc = refused(clean.rdc("repo", "gpu", "grant", "gpu-a", "--device", "nvidia.com/gpu=al"))

    assert GPU in by_kubectl
    assert GPU in by_rdc
    assert "No resources found" in clean.kubectl("get", "rgg", "-A").stderr


@pytest.mark.req("R9", "R8", "R48")
def test_unknown_machines_and_repos_wait_for_kubectl_and_are_refused_by_rdc(clean: rig.System) -> None:
    """kubectl prints a warning and stores it; rdc refuses with near names and leaves nothing behind."""
    machine = clean.kubectl("apply", "-f", "-", text=manifest("gpu-a", machine="elsewhere"))
    repo = clean.kubectl("apply", "-f", "-", text=manifest("gpu-aa", name="trial-2"))
    by_rdc = refused(clean.rdc("repo", "gpu", "grant", "gpu-aa@workstation", "--device", GPU))
    rig.succeeded(clean.kubectl("wait", "--for=condition=Ready=false", "rgg", "--all", "--timeout=30s"))
    reasons = rig.succeeded(
        clean.kubectl("get", "rgg", "-o", "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].reason}")
    )

    rig.succeeded(machine)
    rig.succeeded(repo)
    assert "Warning" in machine.stderr
    assert "Warning" in repo.stderr
    assert "gpu-a" in by_rdc
    assert sorted(reasons.split()) == ["MachineNotFound", "RepoNotFound"]


@pytest.mark.req("R26", "R27", "R25", "R28")
def test_exclusive_both_ways(clean: rig.System) -> None:
    """Refused while another repo holds the name, and the other way round, with the holder named."""
    rig.succeeded(clean.rdc("repo", "gpu", "grant", "gpu-a", "--device", GPU))
    reserve = refused(clean.rdc("repo", "gpu", "grant", "gpu-b", "--device", GPU, "--exclusive"))
    upgraded = clean.rdc("repo", "gpu", "grant", "gpu-a", "--device", GPU, "--exclusive")
    share = refused(clean.rdc("repo", "gpu", "grant", "gpu-b", "--device", GPU))
    by_kubectl = refused(clean.kubectl("apply", "-f", "-", text=manifest("gpu-b")))

    for said in (reserve, share, by_kubectl):
        assert "gpu-a" in said
    assert "becomes exclusive" in upgraded.stdout + upgraded.stderr
    rig.succeeded(clean.rdc("repo", "gpu", "revoke", "gpu-a", "--device", GPU))
    rig.succeeded(clean.rdc("repo", "gpu", "grant", "gpu-b", "--device", GPU))
    assert rig.succeeded(clean.docker("gpu-b", *SMI)).startswith("GPU 0: ")


@pytest.mark.req("R29", "R25")
def test_exclusive_is_no_scheduler(clean: rig.System) -> None:
    """Two containers of the granted repo share the card."""
    rig.succeeded(clean.rdc("repo", "gpu", "grant", "gpu-a", "--device", GPU, "--exclusive"))
    try:
        for name in ("one", "two"):
            rig.succeeded(
                clean.docker("gpu-a", "run", "-d", "--name", name, "--device", GPU, "ubuntu:24.04", "sleep", "60")
            )
        for name in ("one", "two"):
            assert rig.succeeded(clean.docker("gpu-a", "exec", name, "nvidia-smi", "-L")).startswith("GPU 0: ")
    finally:
        rig.succeeded(clean.docker("gpu-a", "rm", "-f", "one", "two"))


@pytest.mark.req("R1", "R6")
def test_a_container_of_a_revoked_grant_does_not_start(clean: rig.System) -> None:
    """Created while it was granted; start and restart are refused after the revocation, exec too."""
    rig.succeeded(clean.rdc("repo", "gpu", "grant", "gpu-a", "--device", GPU))
    rig.succeeded(clean.docker("gpu-a", "create", "--name", "old", "--device", GPU, "ubuntu:24.04", "nvidia-smi", "-L"))
    try:
        rig.succeeded(clean.rdc("repo", "gpu", "revoke", "gpu-a", "--device", GPU))
        for verb in ("start", "restart"):
            assert f"no grant for {GPU}" in refused(clean.docker("gpu-a", verb, "old"))
    finally:
        rig.succeeded(clean.docker("gpu-a", "rm", "-f", "old"))


@pytest.mark.req("R19", "R20", "R21", "R10")
def test_listing(clean: rig.System) -> None:
    """The machine's head, its cards, every name and who holds it; `-o json` is the file byte for byte."""
    rig.succeeded(clean.rdc("repo", "gpu", "grant", "gpu-a", "--device", GPU))
    table = rig.succeeded(clean.rdc("machine", "gpu", "list", "workstation"))
    inventory = (clean.root / "etc/rediacc/gpu/inventory.json").read_text()
    as_json = clean.rdc("machine", "gpu", "list", "workstation", "-o", "json")

    assert as_json.stdout == inventory
    for shown in ("workstation", "native", GPU, "rediacc.io/amd=gpu0", "rediacc.io/dri=renderD128", "gpu-a"):
        assert shown in table
    assert "no such" not in table
    unknown = clean.rdc("machine", "gpu", "list", "workstatio")
    assert unknown.returncode == 1
    assert "workstation" in unknown.stderr


@pytest.mark.req("R9", "R2")
def test_a_removed_repos_grants_serve_no_later_repo(clean: rig.System) -> None:
    """Removed and added again on the same daemon, it is another repo: sealed anew, it takes grants of its own."""
    rig.succeeded(clean.rdc("repo", "gpu", "grant", "gpu-b", "--device", GPU))
    upstream = str(clean.root / "daemons/gpu-b/docker.sock")
    rig.succeeded(clean.gpugrant("repo", "remove", "gpu-b"))
    rig.succeeded(clean.gpugrant("repo", "add", "gpu-b", "--upstream", upstream, "--sealed"))

    assert GPU in refused(clean.docker("gpu-b", *SMI))
    ready = "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].reason}"
    rig.wait_for(lambda: clean.kubectl("get", "rgg", "-o", ready).stdout == "RepoIdMismatch", seconds=30)
    rig.succeeded(clean.kubectl("delete", "rgg", "--all", "--timeout=30s"))
    rig.succeeded(rig.script("daemon", "gpu-b", "--root", clean.root, "--stop"))
    rig.succeeded(rig.script("daemon", "gpu-b", "--root", clean.root))
    rig.succeeded(clean.rdc("repo", "gpu", "grant", "gpu-b", "--device", GPU))
    assert rig.succeeded(clean.docker("gpu-b", *SMI)).startswith("GPU 0: ")


@pytest.mark.req("R10", "D5", "D6")
def test_machine_setup(clean: rig.System) -> None:
    """Setup on a known machine ends Ready; on an unknown one it names the known ones."""
    rig.succeeded(clean.rdc("machine", "setup", "workstation"))
    unknown = clean.rdc("machine", "setup", "workstatoin")

    assert unknown.returncode == 1
    assert "workstation" in unknown.stderr


@pytest.mark.req("R1", "R51")
def test_a_machine_does_not_move_away_from_its_grants(clean: rig.System) -> None:
    """Another nodeName would leave the grants in force at the gate of the old node: it is refused."""
    moved = refused(clean.kubectl("patch", "gm", "workstation", "--type=merge", "-p", '{"spec":{"nodeName":"x"}}'))

    assert "nodeName can't be added, changed or removed" in moved
    rig.succeeded(clean.kubectl("annotate", "gm", "workstation", "note=still-changeable", "--overwrite"))


def test_a_broken_manifest_takes_nothing_away(clean: rig.System) -> None:
    """A file in the store that is no YAML is named with its line; the object and all others go on."""
    rig.succeeded(clean.rdc("repo", "gpu", "grant", "gpu-a", "--device", GPU))
    (file,) = (clean.root / "var/lib/rediacc/gpu/manifests").rglob("repogpugrants/*/*.yaml")
    text = file.read_text()
    file.write_text(text + "\n  broken: [\n")
    try:
        said = rig.wait_for(lambda: [part for part in parts(clean) if file.name in part["message"]])
        assert "line" in str(said)
        assert rig.succeeded(clean.docker("gpu-a", *SMI)).startswith("GPU 0: ")
    finally:
        file.write_text(text)
    rig.wait_for(lambda: all(part["ok"] for part in parts(clean)))


def test_a_broken_repo_file_takes_nothing_from_others(clean: rig.System) -> None:
    """A file in repos.d that is no YAML is named with its line; the other repos go on."""
    rig.succeeded(clean.rdc("repo", "gpu", "grant", "gpu-a", "--device", GPU))
    file = clean.root / "etc/rediacc/gpu/repos.d/broken.yaml"
    file.write_text("name: broken\nid: [\n")
    try:
        said = rig.wait_for(lambda: [part for part in parts(clean) if "broken.yaml" in part["message"]])
        assert "broken.yaml:3: " in str(said)
        assert rig.succeeded(clean.docker("gpu-a", *SMI)).startswith("GPU 0: ")
    finally:
        file.unlink()
    rig.wait_for(lambda: all(part["ok"] for part in parts(clean)))


def parts(system: rig.System) -> list[dict[str, str]]:
    """The parts as `gpugrant status -o json` shows them."""
    found: list[dict[str, str]] = json.loads(system.gpugrant("status", "-o", "json").stdout)["parts"]
    return found
