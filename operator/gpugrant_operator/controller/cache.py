"""What the API is known to hold: fed by watches, by our own writes and by lists; an older version never wins.

Single-threaded: only the controller's loop touches it. `put_*` and `drop_*` return the names of the machines that
have to be looked at again; an echo of what is known already returns none.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from gpugrant_crds.v1alpha1 import GpuMachine, Metadata, RepoGpuGrant

GrantKey = tuple[str, str]
"""Namespace and name."""

_TOMBSTONES = 4096
"""Uids of deleted objects that a late answer must not bring back; more than any burst of deletions in flight."""


@dataclass(frozen=True, slots=True)
class Known:
    """Uids by name: the state of a cache at one moment."""

    machines: Mapping[str, str]
    grants: Mapping[GrantKey, str]


class Cache:
    """Machines, grants by machine, and the namespaces that are being deleted."""

    def __init__(self) -> None:
        self._machines: dict[str, GpuMachine] = {}
        self._grants: dict[GrantKey, RepoGpuGrant] = {}
        self._by_machine: dict[str, dict[GrantKey, RepoGpuGrant]] = {}
        self._terminating: frozenset[str] = frozenset()
        self._buried: OrderedDict[str, None] = OrderedDict()

    @property
    def terminating(self) -> frozenset[str]:
        return self._terminating

    @property
    def machines(self) -> tuple[GpuMachine, ...]:
        return tuple(self._machines.values())

    @property
    def names(self) -> frozenset[str]:
        """Every machine that exists or that a grant names."""
        return frozenset(self._machines) | frozenset(self._by_machine)

    def machine(self, name: str) -> GpuMachine | None:
        return self._machines.get(name)

    def grants_of(self, machine: str) -> tuple[RepoGpuGrant, ...]:
        return tuple(self._by_machine.get(machine, {}).values())

    def grant(self, key: GrantKey) -> RepoGpuGrant | None:
        return self._grants.get(key)

    def put_machine(self, machine: GpuMachine) -> frozenset[str]:
        before = self._machines.get(machine.metadata.name)
        if not self._takes(None if before is None else before.metadata, machine.metadata):
            return frozenset()
        self._machines[machine.metadata.name] = machine
        nodes = {machine.node} if before is None else {machine.node, before.node}
        same_claims = before is not None and before.node == machine.node and before.metadata.uid == machine.metadata.uid
        return frozenset({machine.metadata.name}) | (frozenset() if same_claims else self._on(nodes))

    def drop_machine(self, name: str, uid: str) -> frozenset[str]:
        self._bury(uid)
        before = self._machines.get(name)
        if before is None or before.metadata.uid != uid:
            return frozenset()
        del self._machines[name]
        return frozenset({name}) | self._on({before.node})

    def put_grant(self, grant: RepoGpuGrant) -> frozenset[str]:
        key = (grant.metadata.namespace, grant.metadata.name)
        before = self._grants.get(key)
        if not self._takes(None if before is None else before.metadata, grant.metadata):
            return frozenset()
        affected = self._unlink(key)
        self._grants[key] = grant
        self._by_machine.setdefault(grant.spec.machine, {})[key] = grant
        return affected | {grant.spec.machine}

    def drop_grant(self, key: GrantKey, uid: str) -> frozenset[str]:
        self._bury(uid)
        before = self._grants.get(key)
        if before is None or before.metadata.uid != uid:
            return frozenset()
        return self._unlink(key)

    def set_terminating(self, namespace: str, terminating: bool) -> frozenset[str]:
        if terminating == (namespace in self._terminating):
            return frozenset()
        change = frozenset({namespace})
        self._terminating = self._terminating | change if terminating else self._terminating - change
        return frozenset(grant.spec.machine for key, grant in self._grants.items() if key[0] == namespace)

    def known(self) -> Known:
        """What is there now, by uid: what a later list lacks of it was deleted."""
        return Known(
            machines={name: machine.metadata.uid for name, machine in self._machines.items()},
            grants={key: grant.metadata.uid for key, grant in self._grants.items()},
        )

    def lacks(self, item: GpuMachine | RepoGpuGrant) -> bool:
        """Whether `item` is news."""
        meta = item.metadata
        return self.lacks_machine(meta) if isinstance(item, GpuMachine) else self.lacks_grant(meta)

    def lacks_machine(self, meta: Metadata) -> bool:
        """Whether that version of a machine is news: what is not, need not be read any further."""
        before = self._machines.get(meta.name)
        return self._takes(None if before is None else before.metadata, meta)

    def lacks_grant(self, meta: Metadata) -> bool:
        """Whether that version of a grant is news."""
        before = self._grants.get((meta.namespace, meta.name))
        return self._takes(None if before is None else before.metadata, meta)

    def _takes(self, before: Metadata | None, after: Metadata) -> bool:
        if after.uid in self._buried:
            return False
        return before is None or newer(after.resource_version, before.resource_version)

    def _on(self, nodes: set[str]) -> frozenset[str]:
        return frozenset(name for name, machine in self._machines.items() if machine.node in nodes)

    def _unlink(self, key: GrantKey) -> frozenset[str]:
        before = self._grants.pop(key, None)
        if before is None:
            return frozenset()
        siblings = self._by_machine[before.spec.machine]
        del siblings[key]
        if not siblings:
            del self._by_machine[before.spec.machine]
        return frozenset({before.spec.machine})

    def _bury(self, uid: str) -> None:
        self._buried[uid] = None
        while len(self._buried) > _TOMBSTONES:
            self._buried.popitem(last=False)


def newer(version: str, than: str) -> bool:
    """Whether a resourceVersion is later; versions are comparable numbers (KEP-5504), else a different one is later."""
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return version != than
