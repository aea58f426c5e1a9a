"""The Python client that the commands use, against the running server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, watch

pytestmark = pytest.mark.real

GRANTS = {"group": "gpu.rediacc.io", "version": "v1alpha1", "namespace": "default", "plural": "repogpugrants"}


def grant(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "gpu.rediacc.io/v1alpha1",
        "kind": "RepoGpuGrant",
        "metadata": {"name": name},
        "spec": {"machine": "m1", "repo": "gpu-a", "device": "nvidia.com/gpu=all"},
    }


def use(kubeconfig: Path) -> list[Any]:
    """A session of the official client; it is synchronous, so it runs in a thread."""
    seen: list[Any] = []
    with config.new_client_from_config(str(kubeconfig)) as connection:
        objects = client.CustomObjectsApi(connection)
        core = client.CoreV1Api(connection)
        made = objects.create_namespaced_custom_object(**GRANTS, body=grant("a"))
        with pytest.raises(client.ApiException) as twice:
            objects.create_namespaced_custom_object(**GRANTS, body=grant("a"))
        seen.append(twice.value.status)
        patched = objects.patch_namespaced_custom_object(**GRANTS, name="a", body={"metadata": {"labels": {"x": "y"}}})
        seen.append(patched["metadata"]["labels"])
        version = made["metadata"]["resourceVersion"]
        events = watch.Watch().stream(
            objects.list_namespaced_custom_object, **GRANTS, resource_version=version, timeout_seconds=1
        )
        seen.extend((event["type"], event["object"]["metadata"]["name"]) for event in events)
        seen.append(sorted(item.metadata.name for item in core.list_namespace().items))
        core.create_namespace({"metadata": {"name": "other"}})
        core.create_namespaced_event(
            "default",
            {
                "metadata": {"generateName": "e-", "namespace": "default"},
                "involvedObject": {"kind": "RepoGpuGrant", "name": "a", "namespace": "default"},
                "reason": "Enforced",
                "message": "so",
                "type": "Normal",
            },
        )
        seen.append(core.list_namespaced_event("default", field_selector="involvedObject.name=a").items[0].reason)
        objects.delete_namespaced_custom_object(**GRANTS, name="a")
        seen.append(objects.list_namespaced_custom_object(**GRANTS)["items"])
    return seen


async def test_the_official_python_client(serve: Any) -> None:
    async with serve() as api:
        seen = await asyncio.to_thread(use, api.server.settings.layout.kubeconfig)
    assert seen == [409, {"x": "y"}, ("MODIFIED", "a"), ["default", "kube-system"], "Enforced", []]
