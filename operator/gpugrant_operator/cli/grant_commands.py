"""`rdc repo gpu grant` and `revoke`: gather, plan, write, wait. A refused grant leaves nothing behind (R48)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import click

from gpugrant_crds import names
from gpugrant_crds.names import RepoRef
from gpugrant_crds.v1alpha1 import RepoGpuGrant
from gpugrant_operator.cli import console, granting, revoking, session, waiting
from gpugrant_operator.cli.api import Api, ApiProblem, Exists, Gone
from gpugrant_operator.cli.console import Failure, NotReady
from gpugrant_operator.cli.granting import Change, Create, Keep, Plan, Progress, Step, Wish
from gpugrant_operator.cli.refs import Refused
from gpugrant_operator.cli.session import Session
from gpugrant_operator.gateclient import GateError

TRIES = 5
"""Plans of one command: another command may write the same object in between."""

UNDONE_WITHIN = 10.0
"""Seconds for what was written in vain to be gone again."""


@dataclass(frozen=True, slots=True)
class Written:
    """One step and the object as it stands after it."""

    step: Step
    grant: RepoGpuGrant


class _Raced(Exception):
    """Another command wrote in between: plan again."""


def grant(
    ref_text: str,
    devices: Sequence[str],
    *,
    exclusive: bool,
    expires_in: timedelta | None,
    namespace: str | None,
    dry_run: bool,
    wait: bool,
    timeout: timedelta,
) -> None:
    """Grants all the devices or none; returns when the gate enforces them (`wait`) or the ledger holds them."""
    ref = parsed(ref_text)
    ours = session.begin(os.environ)
    wish = Wish(
        ref=ref,
        devices=tuple(devices),
        namespace=namespace or ours.api.namespace,
        namespace_given=namespace is not None,
        exclusive=exclusive,
        expires_at=None if expires_in is None else datetime.now(UTC) + expires_in,
    )
    carry_out(wish, ours, dry_run=dry_run, wait=wait, timeout=timeout)


def carry_out(wish: Wish, ours: Session, *, dry_run: bool, wait: bool, timeout: timedelta) -> None:
    """Grants what is wished for, or with `dry_run` says what would be written."""
    if dry_run:
        planned = _planned(wish, ours)
        _tell(planned)
        for step in planned.steps:
            click.echo(granting.told(step))
        return
    planned, written = _write_all(wish, ours)
    _settle(written, ours.api, wait=wait, timeout=timeout)
    _tell(planned)
    for done in written:
        spec = done.grant.spec
        click.echo(f"repo {spec.repo} may use {spec.device} on {spec.machine} (grant {done.grant.ref})")


def parsed(text: str) -> RepoRef:
    try:
        return names.parse_repo_ref(text)
    except names.InvalidName as error:
        raise Failure(str(error)) from error


def _planned(wish: Wish, ours: Session) -> Plan:
    planned = granting.plan(wish, ours.world())
    if isinstance(planned, Refused):
        raise Failure(planned.message)
    return planned


def _tell(planned: Plan) -> None:
    for note in planned.notes:
        console.note(note)


def _write_all(wish: Wish, ours: Session) -> tuple[Plan, list[Written]]:
    for _ in range(TRIES):
        planned = _planned(wish, ours)
        written: list[Written] = []
        try:
            for step in planned.steps:
                written.append(Written(step, _write(step, ours.api)))  # noqa: PERF401  (what was written must be undone)
        except _Raced:
            _undo(written, ours.api)
        except BaseException:
            _undo(written, ours.api)
            raise
        else:
            return planned, written
    raise Failure(f"another command keeps writing the grants of repo {wish.ref.repo}: try again")


def _write(step: Step, api: Api) -> RepoGpuGrant:
    match step:
        case Keep(grant=stored):
            return stored
        case Change(grant=stored):
            try:
                meta = stored.metadata
                return api.change_grant(meta.namespace, meta.name, meta.uid, step.patch(step.spec))
            except Gone as error:
                raise _Raced from error
        case Create(namespace=namespace, name=name, spec=spec, instead_of=former):
            if former is not None:
                _remove([former], api)
            try:
                return api.create_grant(namespace, name, spec.to_json())
            except Exists as error:
                raise _Raced from error


def _undo(written: Sequence[Written], api: Api) -> None:
    """Takes back what was written, the last first; what can't be taken back is said."""
    created = [done.grant for done in written if isinstance(done.step, Create)]
    for done in reversed(written):
        if isinstance(done.step, Change):
            meta = done.grant.metadata
            try:
                api.change_grant(meta.namespace, meta.name, meta.uid, done.step.patch(done.step.grant.spec))
            except ApiProblem as problem:
                console.note(f"note: the grant {done.grant.ref} could not be changed back: {problem.message}")
    try:
        _remove(created, api)
    except (ApiProblem, NotReady) as problem:
        console.note(f"note: {problem.message}")


def _remove(grants: Sequence[RepoGpuGrant], api: Api) -> None:
    """Deletes these objects and waits until they are gone; raises NotReady."""
    for doomed in grants:
        api.delete_grant(doomed.metadata.namespace, doomed.metadata.name, doomed.metadata.uid)

    def all_gone() -> bool | None:
        return all(_is_gone(doomed, api) for doomed in grants) or None

    if waiting.until(all_gone, UNDONE_WITHIN) is None:
        raise NotReady(f"the grant {grants[0].ref} is deleted and still waits for the gate's answer")


def _is_gone(doomed: RepoGpuGrant, api: Api) -> bool:
    try:
        return api.grant(doomed.metadata.namespace, doomed.metadata.name).metadata.uid != doomed.metadata.uid
    except Gone:
        return True


def _settle(written: Sequence[Written], api: Api, *, wait: bool, timeout: timedelta) -> None:
    """Returns when every grant is in force, or accepted when nobody waits; else undoes what is not to stay."""
    seen = [Progress() for _ in written]

    def look() -> Progress | None:
        seen[:] = [_progress(done.grant, api, before) for done, before in zip(written, seen, strict=True)]
        lost = next((found for found in seen if found.lost is not None), None)
        settled = all(found.enforced or (found.accepted and not wait) for found in seen)
        return lost or (Progress() if settled else None)

    try:
        outcome = waiting.until(look, timeout.total_seconds())
    except BaseException:
        if not all(found.accepted for found in seen):
            _undo(written, api)
        raise
    if outcome is None:
        _late(written, seen, api, timeout)
    elif outcome.lost is not None:
        _undo(written, api)
        raise Failure(outcome.lost)


def _progress(granted: RepoGpuGrant, api: Api, before: Progress) -> Progress:
    """How far it has come; as before while the API doesn't answer: it may just be starting again."""
    try:
        stored = api.grant(granted.metadata.namespace, granted.metadata.name)
    except Gone as error:
        raise Failure(f"the grant {granted.ref} was deleted by somebody else") from error
    except ApiProblem as problem:
        if problem.status == 0:
            return replace(before, message=problem.message)
        raise
    if stored.metadata.uid != granted.metadata.uid:
        raise Failure(f"the grant {granted.ref} was deleted by somebody else")
    return granting.progress(stored)


def _late(written: Sequence[Written], seen: Sequence[Progress], api: Api, timeout: timedelta) -> None:
    """What the ledger holds stays; if it holds one of them not, none stays."""
    within = f"{timeout.total_seconds():g} s"
    undecided = next((found for found in seen if not found.accepted), None)
    if undecided is not None:
        _undo(written, api)
        raise NotReady(f"not accepted in {within}, and taken back: {undecided.message}")
    done, waiting = next(pair for pair in zip(written, seen, strict=True) if not pair[1].enforced)
    raise NotReady(f"the grant {done.grant.ref} is accepted and not enforced after {within}: {waiting.message}")


def revoke(ref_text: str, devices: Sequence[str], *, wait: bool, timeout: timedelta) -> None:
    """Removes every grant of that repo, machine and these names; returns when the gate enforces it (`wait`)."""
    ref = parsed(ref_text)
    ours = session.begin(os.environ)
    planned = revoking.plan(ref, tuple(devices), ours.world())
    if isinstance(planned, Refused):
        raise Failure(planned.message)
    for device in planned.absent:
        click.echo(f"repo {ref.repo} has no grant for {device} on {planned.machine}")
    kept = _delete_all(planned, ours.api)
    gone = tuple(grant for grant in planned.grants if grant.ref not in kept)
    late = _await_revoked(gone, planned.machine, ours, timeout) if wait else None
    for revoked in gone:
        click.echo(f"revoked: {revoked.spec.device} on {planned.machine} from repo {ref.repo} (grant {revoked.ref})")
    if wait and gone:
        _tell_running(planned.machine, ref.repo, {revoked.spec.device for revoked in gone}, ours)
    if kept:
        raise Failure("; ".join(f"the grant {ref} stays: {why}" for ref, why in kept.items()))
    if late is not None:
        raise NotReady(f"deleted, and not enforced after {timeout.total_seconds():g} s: {late}")


def _delete_all(planned: revoking.Plan, api: Api) -> dict[str, str]:
    """Deletes all that can be; why the others can't."""
    kept: dict[str, str] = {}
    for doomed in planned.grants:
        try:
            api.delete_grant(doomed.metadata.namespace, doomed.metadata.name, doomed.metadata.uid)
        except ApiProblem as problem:
            if problem.status == 0:
                raise
            kept[doomed.ref] = problem.message
    return kept


def _await_revoked(gone: Sequence[RepoGpuGrant], name: str, ours: Session, timeout: timedelta) -> str | None:
    """What it still waits for when the time is over; None: it is enforced."""
    last = ["nothing was looked at yet"]

    def look() -> bool | None:
        world = ours.world()
        live = world.live.get(name)
        why = revoking.still(gone, world.grants, world.machine(name), None if live is None else live.status)
        if why is None:
            return True
        last[0] = why
        return None

    if not gone or waiting.until(look, timeout.total_seconds()):
        return None
    return last[0]


def _tell_running(name: str, repo: str, devices: set[str], ours: Session) -> None:
    """Revoked devices go on in containers that run (R51): they are named, where the gate can be asked."""
    answer = ours.gate.answer(in_use=True)
    machine = next((machine for machine in ours.api.machines() if machine.metadata.name == name), None)
    if machine is None:
        return
    if isinstance(answer, GateError) or not answer.serves(machine) or answer.status.in_use is None:
        console.note(f"note: the gate of machine {name} can't be asked which containers still run with it")
        return
    for problem in answer.status.problems:
        if f"repo {repo} " in problem:
            console.note(f"note: {problem}")
    for line in revoking.running(answer.status.in_use, repo, devices):
        click.echo(line)
