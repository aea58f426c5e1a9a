"""Equal parts of objects as one part in memory: a machine's grants differ in few words, and JSON makes each anew.

An object in the store is never changed in place, so whoever shares a part of it never notices.
"""

from __future__ import annotations

import sys

from gpugrant_operator.apiserver.objects.status import Json

_REPEATED = frozenset(
    {
        "apiVersion",
        "creationTimestamp",
        "device",
        "fieldsType",
        "kind",
        "lastTransitionTime",
        "machine",
        "manager",
        "message",
        "namespace",
        "operation",
        "reason",
        "status",
        "subresource",
        "time",
        "type",
    }
)
"""Fields whose values many objects have; the name or uid of one object would only fill the table of shared texts."""


def shared(value: Json, old: Json = None) -> Json:
    """The same value with the parts of `old` that are the same, and with the field names of all others."""
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        made = {sys.intern(key): _field(key, child, before.get(key)) for key, child in value.items()}
        same = len(made) == len(before) and all(key in before and made[key] is before[key] for key in made)
        return old if same and isinstance(old, dict) else made
    if isinstance(value, list):
        items = old if isinstance(old, list) else []
        row = [shared(item, items[at] if at < len(items) else None) for at, item in enumerate(value)]
        same = len(row) == len(items) and all(new is held for new, held in zip(row, items, strict=True))
        return old if same and isinstance(old, list) else row
    # `True == 1 == 1.0`, and they are three values in JSON.
    return old if type(value) is type(old) and value == old else value


def _field(key: str, value: Json, old: Json) -> Json:
    if key == "fieldsV1":
        return value  # one tree for all objects with the same owner already (ownership.shared): a copy would undo that
    return sys.intern(value) if isinstance(value, str) and key in _REPEATED else shared(value, old)
