"""What becomes of an object when its owners go: the garbage collector's rules, on facts that were gathered.

As kube-controller-manager's (pkg/controller/garbagecollector). An owner of a kind that isn't served here can't be
judged and keeps its dependents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from gpugrant_operator.apiserver.objects.resources import Catalog, Resource
from gpugrant_operator.apiserver.objects.status import ApiError, Cause, Json, Obj, bad_request, invalid

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
"""The finalizers by which a delete waits for the collector (metav1)."""

Policy = Literal["Orphan", "Background", "Foreground"]
_POLICIES: tuple[Policy, ...] = ("Orphan", "Background", "Foreground")
_FINALIZERS = {"Orphan": (ORPHAN,), "Foreground": (FOREGROUND,), "Background": ()}

Owner = Literal["there", "waits", "absent", "unknown"]
"""`waits`: it is being deleted and waits for its dependents to go first. `unknown`: of no kind that is served."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing is to be done."""


@dataclass(frozen=True, slots=True)
class Release:
    """The object stays, with these owners alone."""

    owners: tuple[Obj, ...]


@dataclass(frozen=True, slots=True)
class Collect:
    """The object goes."""

    policy: Policy


Verdict = Keep | Release | Collect


def policy(options: Mapping[str, Json]) -> Policy | None:
    """The policy of DeleteOptions; None: none is said. Raises ApiError 400 or 422."""
    said, orphans = options.get("propagationPolicy"), options.get("orphanDependents")
    if orphans is not None and not isinstance(orphans, bool):
        raise bad_request("orphanDependents must be true or false")
    if said is not None and orphans is not None:
        told = "Invalid value: orphanDependents and deletionPropagation cannot be both set"
        raise _bad_options("propagationPolicy", told)
    if said is None:
        return None if orphans is None else ("Orphan" if orphans else "Background")
    for known in _POLICIES:
        if said == known:
            return known
    raise _bad_options(
        "propagationPolicy", f'Unsupported value: "{said}": supported values: "Background", "Foreground", "Orphan", nil'
    )


def _bad_options(field: str, told: str) -> ApiError:
    return invalid("DeleteOptions", "meta.k8s.io", "", [Cause("FieldValueInvalid", field, told)])


def finalizers(held: Iterable[str], chosen: Policy | None) -> list[str]:
    """The finalizers of an object that is deleted with this policy; without one those that it has say it."""
    if chosen is None:
        return list(held)
    return [*(name for name in held if name not in (ORPHAN, FOREGROUND)), *_FINALIZERS[chosen]]


def judge(obj: Obj, state: Callable[[Obj], Owner], *, has_dependents: bool) -> Verdict:
    """What is to be done with an object that has owners and isn't being deleted."""
    owners = tuple(obj["metadata"].get("ownerReferences") or ())
    states = [state(owner) for owner in owners]
    if not owners or "unknown" in states:
        return Keep()
    there = tuple(owner for owner, what in zip(owners, states, strict=True) if what == "there")
    if there:
        return Keep() if len(there) == len(owners) else Release(there)
    if "waits" in states and has_dependents:
        return Collect("Foreground")
    held = obj["metadata"].get("finalizers") or ()
    return Collect("Orphan" if ORPHAN in held else "Foreground" if FOREGROUND in held else "Background")


def place(catalog: Catalog, dependent: Resource, namespace: str, owner: Obj) -> tuple[Resource, str] | None:
    """Where the owner must be; None: that can't be said. A namespaced owner is in its dependent's namespace."""
    found = next((r for r in catalog.resources if _is_kind(r, owner)), None)
    if found is None or (found.namespaced and not dependent.namespaced):
        return None
    return found, namespace if found.namespaced else ""


def _is_kind(resource: Resource, owner: Obj) -> bool:
    """By group and kind: an owner that was written with an older version is the same."""
    group, _, _ = str(owner["apiVersion"]).rpartition("/")
    return (resource.group, resource.kind) == (group, owner["kind"])


def blocks(dependent: Obj, uid: str) -> bool:
    """The dependent must be gone before the owner of this uid goes."""
    return any(ref["uid"] == uid and ref.get("blockOwnerDeletion") is True for ref in owners(dependent))


def is_owned_by(obj: Obj, uid: str) -> bool:
    return any(ref["uid"] == uid for ref in owners(obj))


def owners(obj: Obj) -> list[Obj]:
    return obj["metadata"].get("ownerReferences") or []


def without_owner(obj: Obj, uid: str) -> list[Obj]:
    return [owner for owner in owners(obj) if owner["uid"] != uid]
