"""The ledger as a value: holders, debts, and the few ways in which they change.

Every way returns a new ledger. A holder that leaves always leaves a debt: the device is free for others only when the
gate has answered for an epoch without that holder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gpugrant_crds import atoms, snapshot, timestamps
from gpugrant_crds.snapshot import GateStatus, GrantRef, SnapshotGrant
from gpugrant_crds.v1alpha1 import (
    REBIND_ANNOTATION,
    Allocation,
    Debt,
    GpuMachineStatus,
    HeldGrant,
    Holder,
    RepoGpuGrant,
)

_REBIND_MAX = 256
"""Characters of the annotation that are remembered."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One grant that the ledger holds."""

    device: str
    repo: str
    repo_id: str
    grant: HeldGrant


@dataclass(frozen=True, slots=True)
class Owed:
    """One device that was taken from a repo."""

    device: str
    debt: Debt


@dataclass(frozen=True, slots=True)
class Ledger:
    """Flat: entries by the uid of their grant, debts as they are. `allocations()` is the stored form."""

    entries: Mapping[str, Entry]
    debts: tuple[Owed, ...] = ()
    given_up: frozenset[tuple[str, str]] = frozenset()
    """Device and repo: nobody waits for it to come free there."""

    def holders(self, device: str) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries.values() if entry.device == device)

    def owed(self, device: str) -> tuple[Debt, ...]:
        return tuple(owed.debt for owed in self.debts if owed.device == device)

    def owed_uids(self) -> frozenset[str]:
        """The grants that debts are of."""
        return frozenset(uid for owed in self.debts for uid in owed.debt.uids)

    def with_entry(self, entry: Entry) -> Ledger:
        return replace(self, entries={**self.entries, entry.grant.uid: entry})

    def without(self, uids: Iterable[str], *, epoch: int) -> Ledger:
        """Those grants leave; each leaves a debt that an answer for `epoch` or later pays."""
        ended = frozenset(uids)
        gone = [self.entries[uid] for uid in sorted(ended)]
        entries = {uid: entry for uid, entry in self.entries.items() if uid not in ended}
        debts = tuple(
            Owed(
                entry.device,
                Debt(
                    repo=entry.repo,
                    repo_id=entry.repo_id,
                    epoch=epoch,
                    exclusive=entry.grant.exclusive,
                    uids=(entry.grant.uid,),
                ),
            )
            for entry in gone
        )
        return replace(self, entries=entries, debts=self.debts + debts)

    def begun_again(self, enforced: Iterable[tuple[str, str]], *, epoch: int) -> Ledger:
        """On top of another history, of which a gate enforces these devices for these repos.

        What is not held here is owed, as if it had been exclusive: the ledger can't tell. An exclusive hold that the
        gate doesn't know waits like a new one.
        """
        theirs = frozenset(enforced)
        ours = {(entry.device, entry.repo) for entry in self.entries.values()}
        repos = {entry.repo: entry.repo_id for entry in self.entries.values()}
        debts = tuple(
            Owed(device, Debt(repo=repo, repo_id=repos.get(repo, ""), epoch=epoch, exclusive=True))
            for device, repo in sorted(theirs - ours)
        )
        entries = {
            uid: replace(entry, grant=entry.grant.model_copy(update={"waits": True}))
            if entry.grant.exclusive and (entry.device, entry.repo) not in theirs
            else entry
            for uid, entry in self.entries.items()
        }
        # older debts are of the ledger's own history: only an answer for this one pays them
        owed = tuple(replace(item, debt=item.debt.model_copy(update={"epoch": epoch})) for item in self.debts)
        return replace(self, entries=entries, debts=owed + debts)

    def settled(self, gate: GateStatus | None) -> Ledger:
        """Without the debts that the gate has answered for; None: it has answered for nothing."""
        if gate is None:
            return self
        pending = {(item.repo, item.device) for item in gate.pending}
        return replace(
            self,
            debts=tuple(
                owed for owed in self.debts if owed.debt.epoch > gate.epoch or (owed.debt.repo, owed.device) in pending
            ),
        )

    def allocations(self) -> tuple[Allocation, ...]:
        """The stored form: sorted, one entry a device, equal ledgers byte for byte equal."""
        held: dict[str, list[Entry]] = {}
        for entry in self.entries.values():
            held.setdefault(entry.device, []).append(entry)
        lost: dict[str, list[str]] = {}
        for device, repo in self.given_up:
            lost.setdefault(device, []).append(repo)
        taken: dict[str, list[Debt]] = {}
        for owed in self.debts:
            taken.setdefault(owed.device, []).append(owed.debt)
        return tuple(
            _allocation(device, held.get(device, []), taken.get(device, []), lost.get(device, []))
            for device in sorted({*held, *taken, *lost})
        )

    def snapshot_grants(self) -> tuple[SnapshotGrant, ...]:
        """What the gate has to enforce: all that is held and waits for nobody, in the snapshot's order."""
        return snapshot.ordered(
            SnapshotGrant(
                repo=entry.repo,
                repo_id=entry.repo_id,
                device=entry.device,
                expires_at=None if entry.grant.expires_at is None else timestamps.read(entry.grant.expires_at),
                grant=GrantRef(namespace=entry.grant.namespace, name=entry.grant.name, uid=entry.grant.uid),
            )
            for entry in self.entries.values()
            if not entry.grant.waits
        )


def read(status: GpuMachineStatus) -> Ledger:
    """The ledger of a machine's status."""
    entries = {
        grant.uid: Entry(allocation.device, holder.repo, holder.repo_id, grant)
        for allocation in status.allocations
        for holder in allocation.repos
        for grant in holder.grants
    }
    debts = tuple(Owed(allocation.device, debt) for allocation in status.allocations for debt in allocation.releasing)
    given_up = frozenset((allocation.device, repo) for allocation in status.allocations for repo in allocation.given_up)
    return Ledger(entries, debts, given_up)


def held(
    grant: RepoGpuGrant,
    *,
    exclusive: bool,
    waits: bool = False,
    hardware: Iterable[str] = (),
    before: HeldGrant | None = None,
) -> HeldGrant:
    """The grant as the ledger remembers it; `before` itself where nothing of it changes.

    `hardware` are the atoms that its name stands for now; what is remembered of `before` counts, until the grant asks
    to be bound again (R47).
    """
    expiry = grant.spec.expiry()
    wish = grant.metadata.annotations.get(REBIND_ANNOTATION, "")[:_REBIND_MAX] or None
    # a wish that can't be met now, since the device is gone, is met when it is back
    anew = before is None or (wish is not None and wish != before.rebound and bool(tuple(hardware)))
    values = {
        "namespace": grant.metadata.namespace,
        "name": grant.metadata.name,
        "uid": grant.metadata.uid,
        "exclusive": exclusive,
        "waits": waits,
        "expires_at": None if expiry is None else timestamps.write(expiry),
        "hardware": (None if anew or before is None else before.hardware) or _single(grant.spec.device, hardware),
        "rebound": wish if anew else before.rebound if before is not None else None,
    }
    if before is not None and all(getattr(before, name) == value for name, value in values.items()):
        return before  # a model costs more than all the rest
    return HeldGrant.model_validate(values)


def _single(device: str, hardware: Iterable[str]) -> str | None:
    """The atom of a name that can move; None for one of a set, and where nothing is known."""
    found = tuple(hardware)
    return found[0] if len(found) == 1 and not atoms.names_a_set(device, found) else None


def _allocation(device: str, entries: list[Entry], debts: list[Debt], given_up: list[str]) -> Allocation:
    return Allocation(
        device=device,
        state="Releasing" if debts else "Held",
        repos=_holders(entries),
        releasing=tuple(sorted(debts, key=lambda debt: (debt.repo, debt.epoch, debt.uids))),
        given_up=tuple(sorted(given_up)),
    )


def _holders(entries: list[Entry]) -> tuple[Holder, ...]:
    grants: dict[tuple[str, str], list[HeldGrant]] = {}
    for entry in entries:
        grants.setdefault((entry.repo, entry.repo_id), []).append(entry.grant)
    return tuple(
        Holder(
            repo=repo,
            repo_id=repo_id,
            grants=tuple(sorted(held, key=lambda grant: (grant.namespace, grant.name, grant.uid))),
        )
        for (repo, repo_id), held in sorted(grants.items())
    )
