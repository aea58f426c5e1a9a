"""Events that the server itself writes: one object a message, counted up when it is said again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpugrant_crds import timestamps
from gpugrant_operator.apiserver.objects.patch import MERGE_PATCH
from gpugrant_operator.apiserver.objects.resources import EVENTS, NAMESPACES, Resource
from gpugrant_operator.apiserver.objects.status import ApiError, Obj
from gpugrant_operator.apiserver.registry import Options, Registry
from gpugrant_operator.apiserver.store.journal import Key

COMPONENT = "gpugrant-apiserver"


@dataclass(frozen=True, slots=True)
class Subject:
    """The object that an event is about; it need not exist."""

    resource: Resource
    key: Key


def in_one_line(problems: Mapping[Path, str] | Mapping[str, str]) -> str:
    """What is wrong, by its place, for a health message; empty: nothing is."""
    told = sorted(f"{place}: {text}" for place, text in problems.items())
    return "; ".join(told[:5]) + (f"; and {len(told) - 5} more" if len(told) > 5 else "")


async def warn(registry: Registry, subject: Subject, reason: str, message: str) -> None:
    """A Warning event. An event is told, never insisted on: where it can't be stored, the log has it anyway."""
    resource, (_, namespace, name) = subject.resource, subject.key
    where = namespace if namespace and registry.store.get(NAMESPACES, "", namespace) else "default"
    digest = hashlib.sha256("\0".join((*subject.key, reason, message)).encode()).hexdigest()[:16]
    event_name = f"{name[:200]}.{digest}"
    now = timestamps.write(registry.settings.now())
    held = registry.store.get(EVENTS, where, event_name)
    stored = registry.store.get(resource, namespace, name)
    event: Obj = {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": event_name, "namespace": where},
        "involvedObject": {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": name,
            **({"namespace": namespace} if namespace else {}),
            **({"uid": stored.obj["metadata"]["uid"]} if stored else {}),
        },
        "reason": reason,
        "message": message[:1024],
        "type": "Warning",
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": "",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        if held is None:
            await registry.create(EVENTS, where, event, Options())
        else:
            again = {"count": int(held.obj.get("count") or 1) + 1, "lastTimestamp": now}
            await registry.patch(EVENTS, where, event_name, MERGE_PATCH, again, Options())
    except ApiError:
        return
