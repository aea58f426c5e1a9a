"""Real kubectl against the running server: every version of it that this machine has."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real

SDK = Path("/usr/lib/google-cloud-sdk/bin")
BINARIES = [
    path
    for name in ("kubectl", *(f"kubectl.1.{minor}" for minor in range(27, 38)))
    if (path := shutil.which(name) or shutil.which(str(SDK / name)))
]
"""The kubectl of PATH, and the dated ones that a Google SDK brings."""

GRANT = """
apiVersion: gpu.rediacc.io/v1alpha1
kind: RepoGpuGrant
metadata: {name: a, labels: {team: one}}
spec: {machine: m1, repo: gpu-a, device: nvidia.com/gpu=all}
"""
MACHINE = """
apiVersion: gpu.rediacc.io/v1alpha1
kind: GpuMachine
metadata: {name: m1}
spec: {}
"""
NEVER_DETECTED = "Warning: the devices of machine m1 were never detected"


@pytest.fixture(params=BINARIES or ["kubectl"], ids=lambda path: Path(path).name)
def kubectl(request: pytest.FixtureRequest) -> str:
    if not BINARIES:
        pytest.skip("this machine has no kubectl")
    return str(request.param)


@pytest.mark.must_run
@pytest.mark.req("D3", "D10", "D13", "R8")
async def test_the_main_verbs(serve: Any, kubectl: str) -> None:
    async with serve() as api:

        async def run(*arguments: str, stdin: str | None = None, **env: str) -> Any:
            return await api.kubectl(*arguments, stdin=stdin, binary=kubectl, **env)

        assert "created" in (await run("apply", "-f", "-", stdin=MACHINE)).ok
        applied = await run("apply", "-f", "-", stdin=GRANT)
        assert applied.ok == "repogpugrant.gpu.rediacc.io/a created\n"
        assert NEVER_DETECTED in applied.err
        assert "unchanged" in (await run("apply", "-f", "-", stdin=GRANT)).ok

        rows = (await run("get", "rgg")).ok.splitlines()
        assert rows[0].split() == ["NAME", "REPO", "MACHINE", "DEVICE", "EXCLUSIVE", "READY", "REASON", "AGE"]
        assert rows[1].split()[:4] == ["a", "gpu-a", "m1", "nvidia.com/gpu=all"]
        assert "MESSAGE" in (await run("get", "rgg", "-o", "wide")).ok
        both = (await run("get", "gpu")).ok
        assert "repogpugrant.gpu.rediacc.io/a" in both
        assert "gpumachine.gpu.rediacc.io/m1" in both
        assert (await run("get", "rgg", "-A", "-l", "team=one", "-o", "name")).ok == ("repogpugrant.gpu.rediacc.io/a\n")
        selected = ("get", "rgg", "--field-selector", "spec.device=nvidia.com/gpu=all", "-o", "name")
        assert (await run(*selected)).ok.strip() == "repogpugrant.gpu.rediacc.io/a"

        described = (await run("describe", "rgg", "a")).ok
        assert "Device:   nvidia.com/gpu=all" in described
        assert "Exactly one qualified CDI name" in (await run("explain", "rgg.spec.device")).ok
        assert "labeled" in (await run("label", "rgg", "a", "x=y")).ok
        assert "annotate" in (await run("annotate", "rgg", "a", "gpu.rediacc.io/on-conflict=Wait")).ok
        assert "patched" in (await run("patch", "rgg", "a", "--type=merge", "-p", '{"spec":{"exclusive":true}}')).ok
        edited = await run("edit", "rgg", "a", EDITOR="sed -i s/exclusive:.true/exclusive:\\ false/")
        assert "edited" in edited.ok
        assert (await run("diff", "-f", "-", stdin=GRANT.replace("one}", "two}"))).code == 1
        assert (await run("get", "rgg", "a", "-o", "jsonpath={.metadata.labels.team}")).ok == "one"

        frozen = await run("patch", "rgg", "a", "--type=merge", "-p", '{"spec":{"device":"nvidia.com/gpu=0"}}')
        assert frozen.code == 1
        assert "device can't be changed: delete the grant and make another" in frozen.err
        wrong = await run("apply", "-f", "-", stdin=GRANT.replace("repo:", "repro: x, repo:"))
        assert 'unknown field "spec.repro"' in wrong.err

        dry = await run("apply", "--dry-run=server", "-f", "-", stdin=GRANT.replace("name: a", "name: b"))
        assert "created (server dry run)" in dry.ok
        assert "NotFound" in (await run("get", "rgg", "b")).err
        assert (await run("delete", "rgg", "a", "--timeout=20s")).ok.startswith("repogpugrant.gpu.rediacc.io")
        assert (await run("get", "rgg", "-o", "name")).ok == ""


async def test_wait_and_watch(serve: Any, kubectl: str) -> None:
    async with serve() as api:
        await api.kubectl("apply", "-f", "-", stdin=GRANT, binary=kubectl)
        waiting = asyncio.create_task(
            api.kubectl("wait", "--for=condition=Ready", "rgg/a", "--timeout=30s", binary=kubectl)
        )
        condition = {
            "type": "Ready",
            "status": "True",
            "reason": "Enforced",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        }
        status = {"status": {"observedGeneration": 1, "conditions": [condition]}}
        path = "/apis/gpu.rediacc.io/v1alpha1/namespaces/default/repogpugrants/a"
        await api.client.merge(f"{path}/status", status)
        assert "condition met" in (await waiting).ok

        await api.client.merge(path, {"metadata": {"finalizers": ["gpu.rediacc.io/enforced"]}})
        deleting = asyncio.create_task(api.kubectl("delete", "rgg", "a", "--timeout=30s", binary=kubectl))
        gone = asyncio.create_task(api.kubectl("wait", "--for=delete", "rgg/a", "--timeout=30s", binary=kubectl))
        async with api.client.watch(path.removesuffix("/a")) as lines:
            await lines.until(lambda event: "deletionTimestamp" in event["object"]["metadata"])
        await api.client.merge(path, {"metadata": {"finalizers": None}})
        assert (await deleting).code == 0
        assert (await gone).code == 0


async def test_namespaces_cascade(serve: Any, kubectl: str) -> None:
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-b}\n"
    async with serve() as api:
        assert "created" in (await api.kubectl("apply", "-f", "-", stdin=namespace, binary=kubectl)).ok
        assert "labeled" in (await api.kubectl("label", "ns", "team-b", "a=b", binary=kubectl)).ok
        assert (
            "patched"
            in (
                await api.kubectl("patch", "ns", "team-b", "-p", '{"metadata":{"labels":{"c":"d"}}}', binary=kubectl)
            ).ok
        )
        await api.kubectl("-n", "team-b", "apply", "-f", "-", stdin=GRANT, binary=kubectl)
        gone = await api.kubectl("delete", "ns", "team-b", "--timeout=30s", binary=kubectl)
        assert gone.ok == 'namespace "team-b" deleted\n'
        assert (await api.kubectl("get", "rgg", "-A", "-o", "name", binary=kubectl)).ok == ""
        assert not list(api.manifests.rglob("a.yaml"))


async def test_a_config_map_by_apply_and_get(serve: Any, kubectl: str) -> None:
    body = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}})
    async with serve() as api:
        assert "created" in (await api.kubectl("apply", "-f", "-", stdin=body, binary=kubectl)).ok
        changed = body.replace('"b"', '"c"')
        assert "configured" in (await api.kubectl("apply", "-f", "-", stdin=changed, binary=kubectl)).ok
        assert (await api.kubectl("get", "cm", "c", "-o", "jsonpath={.data.a}", binary=kubectl)).ok == "c"


async def test_what_is_not_served_is_said(serve: Any, kubectl: str) -> None:
    async with serve() as api:
        await api.kubectl("apply", "-f", "-", stdin=GRANT, binary=kubectl)
        strategic = await api.kubectl("patch", "rgg", "a", "-p", "{}", binary=kubectl)
        assert strategic.code == 1
        crd = await api.kubectl("delete", "crd", "repogpugrants.gpu.rediacc.io", binary=kubectl)
        assert "built in" in crd.err


@pytest.mark.req("D3", "D10")
async def test_what_newer_versions_send_as_protobuf(serve: Any, kubectl: str) -> None:
    """kubectl since 1.32 encodes the built-in kinds so, and has no other way when it is refused."""
    async with serve() as api:

        async def run(*arguments: str) -> Any:
            return await api.kubectl(*arguments, binary=kubectl)

        assert (await run("create", "namespace", "team-p")).ok == "namespace/team-p created\n"
        literal = "--from-literal=a=1"
        assert (await run("create", "configmap", "c", literal)).ok == "configmap/c created\n"
        assert (await run("create", "secret", "generic", "s", literal)).ok == "secret/s created\n"
        assert (await run("get", "secret", "s", "-o", "jsonpath={.type} {.data.a}")).ok == "Opaque MQ=="
        assert (await run("get", "configmap", "c", "-o", "jsonpath={.data.a}")).ok == "1"
        assert (await run("auth", "can-i", "create", "rgg")).ok == "yes\n"
        assert "*.*" in (await run("auth", "can-i", "--list")).ok
        who = await run("auth", "whoami")  # since 1.28 of the version that is served
        assert "gpugrant-admin" in who.out or "v1alpha1 or" in who.err or "unknown command" in who.err
        again = await run("create", "namespace", "team-p")
        assert again.err == 'Error from server (AlreadyExists): namespaces "team-p" already exists\n'
        assert "deleted" in (await run("delete", "configmap", "c", "--cascade=orphan", "--timeout=20s")).ok
        assert "deleted" in (await run("delete", "namespace", "team-p", "--timeout=20s")).ok


@pytest.mark.req("D3", "D10", "D11")
async def test_server_side_apply(serve: Any, kubectl: str) -> None:
    """Two managers, a conflict in kubectl's own words, and the way from client-side apply."""
    name = "repogpugrant.gpu.rediacc.io/a"
    exclusive = GRANT.replace("nvidia.com/gpu=all", "nvidia.com/gpu=all, exclusive: true")

    async with serve() as api:

        async def apply(manifest: str, *more: str) -> Any:
            return await api.kubectl("apply", "--server-side", *more, "-f", "-", stdin=manifest, binary=kubectl)

        async def version() -> str:
            shown = await api.kubectl("get", "rgg", "a", "-o", "jsonpath={.metadata.resourceVersion}", binary=kubectl)
            return str(shown.ok)

        assert (await apply(GRANT)).ok == f"{name} serverside-applied\n"
        first = await version()
        assert (await apply(GRANT)).ok == f"{name} serverside-applied\n"
        assert await version() == first

        labelled = GRANT.replace("team: one", "team: two")
        refused = await apply(labelled, "--field-manager=flux")
        assert refused.code == 1
        assert 'conflict with "kubectl": .metadata.labels.team' in refused.err
        assert "--force-conflicts" in refused.err
        assert (await apply(labelled, "--field-manager=flux", "--force-conflicts")).code == 0

        assert (await apply(exclusive.replace(", labels: {team: one}", ""))).code == 0
        left = GRANT.replace(", labels: {team: one}", "")
        assert (await apply(left)).code == 0
        shown = json.loads(
            (await api.kubectl("get", "rgg", "a", "-o", "json", "--show-managed-fields", binary=kubectl)).ok
        )
        assert shown["metadata"]["labels"] == {"team": "two"}
        assert "exclusive" not in shown["spec"]
        assert [(e["manager"], e["operation"]) for e in shown["metadata"]["managedFields"]] == [
            ("flux", "Apply"),
            ("kubectl", "Apply"),
        ]
        dry = await apply(exclusive, "--dry-run=server", "--force-conflicts")
        assert "serverside-applied (server dry run)" in dry.ok
        wrong = await apply(GRANT.replace("repo:", "repro: x, repo:"))
        assert ".spec.repro: field not declared in schema" in wrong.err
        assert (
            "failed to create typed patch object (default/a; gpu.rediacc.io/v1alpha1, Kind=RepoGpuGrant)" in wrong.err
        )


async def test_from_client_side_to_server_side_apply(serve: Any, kubectl: str) -> None:
    more = GRANT.replace("nvidia.com/gpu=all", "nvidia.com/gpu=all, exclusive: true")
    config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: '1', b: '2'}\n"
    async with serve() as api:

        async def apply(manifest: str, *options: str) -> None:
            applied = await api.kubectl("apply", *options, "-f", "-", stdin=manifest, binary=kubectl)
            assert applied.code == 0, applied.err

        await apply(more)
        await apply(more, "--server-side")
        await apply(GRANT, "--server-side")
        await apply(config)
        await apply(config, "--server-side")
        await apply(config.replace(", b: '2'", ""), "--server-side")
        shown = await api.kubectl("get", "rgg", "a", "-o", "jsonpath={.spec.exclusive}", binary=kubectl)
        data = await api.kubectl("get", "cm", "c", "-o", "jsonpath={.data}", binary=kubectl)

        assert shown.ok == ""
        assert json.loads(data.ok) == {"a": "1"}
