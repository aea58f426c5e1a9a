"""The checks, in the order in which a person would mend: a later one may only be the consequence of an earlier."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from gpugrant_crds import conditions
from gpugrant_operator.cli.doctor.seen import Chmod, Daemon, Finding, Seen, SetUp

OLDEST_ENGINE = (25, 0)
"""The first Docker Engine with CDI (R4)."""

ENDS_SOON = timedelta(days=20)
"""The API server renews its certificate 30 days before the end."""

FREE_MIN = 64 * 1024 * 1024
"""Bytes: below that the next snapshot or object may not fit."""

PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class Check:
    """`name` is the contract of `-o json`; `what` is said where all is well."""

    name: str
    what: str
    look: Callable[[Seen], Iterator[Finding]]


def _can_look(seen: Seen) -> Iterator[Finding]:
    for clause in seen.unreadable:
        fix = "look into it" if seen.is_root else "run it as root"
        yield Finding(f"{clause}: what depends on it was not looked at", fix)


def _parts(seen: Seen) -> Iterator[Finding]:
    down = [part.name for part in seen.parts if not part.pid]
    if len(down) == len(seen.parts):
        yield Finding(f"nothing runs below {seen.layout.root}", f"gpugrant up --detach --root {seen.layout.root}")
        return
    for part in seen.parts:
        if not part.pid and part.name == "supervisor":
            fix = f"gpugrant up --detach --root {seen.layout.root}: it takes the parts over"
            yield Finding("no supervisor runs: a part that dies stays dead", fix)
        elif not part.pid:
            yield Finding(f"the {part.name} does not run", f"read {seen.layout.logs / f'{part.name}.log'}")
        elif part.ok is None:
            yield Finding(
                f"the {part.name} (process {part.pid}) does not answer",
                f"kill {part.pid}: the supervisor starts it anew; its log is {seen.layout.logs / f'{part.name}.log'}",
            )
        elif not part.ok:
            yield Finding(f"the {part.name} is not well: {part.message}", "gpugrant status shows when it is")


def _version(seen: Seen) -> Iterator[Finding]:
    for part in seen.parts:
        if part.version and part.version != seen.version:
            yield Finding(
                f"the running {part.name} is version {part.version}, and {seen.version} is installed",
                f"gpugrant up --detach --root {seen.layout.root}: it takes over without a pause",
                "advice",
            )


def _settings(seen: Seen) -> Iterator[Finding]:
    if seen.settings_problem is not None:
        yield Finding(seen.settings_problem, f"mend {seen.layout.gate_settings}")
    for problem in seen.repo_problems:
        yield Finding(f"{seen.layout.repos}/{problem}", "mend the file: its repo gets no hardware until then")


def _gate(seen: Seen) -> Iterator[Finding]:
    if seen.gate is None:
        return  # said by the parts
    for problem in seen.gate.problems:
        if not any(problem.endswith(known) or known in problem for known in seen.repo_problems):
            yield Finding(f"the gate says: {problem}", "gpugrant status shows when it is gone")
    if seen.gate.epoch < 0 and seen.daemons:
        yield Finding(
            "the gate holds no snapshot, so all hardware is refused",
            "see that the operator runs, and that this machine has a GpuMachine: rdc machine setup",
        )
    for pending in seen.gate.pending:
        if pending.reason:
            fix = f"end its process, or gpugrant machine release {pending.device} --force"
            yield Finding(pending.message or f"{pending.device} can't be taken back from repo {pending.repo}", fix)


def _daemons(seen: Seen) -> Iterator[Finding]:
    if not seen.daemons and not seen.repo_problems:
        yield Finding("no repo is behind the gate", "gpugrant repo add NAME --upstream SOCK", "advice")
    said = {} if seen.gate is None else {repo.name: repo for repo in seen.gate.repos}
    for daemon in seen.daemons:
        gate = said.get(daemon.name)
        if gate is not None and not gate.fit and gate.message:
            yield Finding(f"repo {daemon.name}: {gate.message}", "until then the repo gets no hardware")
        elif gate is None or gate.fit:
            yield from _daemon(seen, daemon)


def _daemon(seen: Seen, daemon: Daemon) -> Iterator[Finding]:
    """What can be said of it without a gate."""
    where = f"the daemon of repo {daemon.name}"
    if not daemon.answers:
        yield Finding(f"{where} does not answer at {daemon.upstream}", "start it; the gate takes it up when it does")
        return
    if daemon.release < OLDEST_ENGINE:
        release = ".".join(map(str, daemon.release))
        yield Finding(f"{where} is Docker {release}", "install Docker 25 or newer")
    elif not daemon.folders:
        yield Finding(f"CDI is off in {where}", 'put "features": {"cdi": true} into its daemon.json and restart it')
    elif daemon.folders != {str(seen.layout.cdi)}:
        listed = ", ".join(sorted(daemon.folders))
        fix = f'put "cdi-spec-dirs": ["{seen.layout.cdi}"] into its daemon.json and restart it'
        yield Finding(f"{where} reads CDI specs from {listed}", fix)


def _sockets(seen: Seen) -> Iterator[Finding]:
    for daemon in seen.daemons:
        if daemon.open_to:
            yield Finding(
                f"the raw socket {daemon.upstream} of repo {daemon.name} is open to {' and '.join(daemon.open_to)}, "
                "who get past the gate there",
                f'let root alone reach it ("group": "root" in its daemon.json; chmod 0600 {daemon.upstream}) and give '
                f"the repo's users {daemon.listen}",
            )
        if seen.gate is not None and not daemon.served:
            yield Finding(
                f"nobody listens for repo {daemon.name} at {daemon.listen}",
                "gpugrant status; a file there that is no socket of the gate's has to go",
            )


def _ids(seen: Seen) -> Iterator[Finding]:
    owners: dict[tuple[int, int], str] = {}
    for daemon in seen.daemons:
        other = daemon.name if daemon.inode is None else owners.setdefault(daemon.inode, daemon.name)
        if other != daemon.name:
            yield Finding(
                f"the repos {other} and {daemon.name} are behind one daemon ({daemon.upstream})",
                f"gpugrant repo remove one of them: what {other} is granted {daemon.name} has as well",
            )


def _seals(seen: Seen) -> Iterator[Finding]:
    for daemon in seen.daemons:
        if not daemon.sealed and daemon.repo_id is not None:
            yield Finding(
                f"repo {daemon.name} is not sealed: its daemon sees the devices of all repos, and what starts past the "
                "gate is only found afterwards",
                f"gpugrant repo seal {daemon.name}",
                "advice",
            )


def _specs(seen: Seen) -> Iterator[Finding]:
    for problem in seen.spec_problems:
        yield Finding(f"{seen.layout.cdi}/{problem}", "mend or remove the file: its devices can't be granted")
    for path, names in seen.shadowing:
        yield Finding(
            f"{path} has {', '.join(names[:3])}{' …' if len(names) > 3 else ''} too: programs that read both folders "
            "take that file's, or none",
            f"remove {path}, or point what writes it at {seen.layout.cdi}",
        )


def _inventory(seen: Seen) -> Iterator[Finding]:
    if seen.inventory is None:
        yield Finding(f"there is no {seen.layout.inventory}: nothing was detected", "renet setup", mend=SetUp())
    elif isinstance(seen.inventory, str):
        fix = "renet setup makes it anew"
        yield Finding(f"{seen.layout.inventory} can't be read: {seen.inventory}", fix, mend=SetUp())
    else:
        if None not in (seen.fingerprint, seen.inventory.fingerprint) and (
            seen.fingerprint != seen.inventory.fingerprint
        ):
            yield Finding(
                f"the hardware or its drivers changed since {seen.inventory.generated_at}", "renet setup", mend=SetUp()
            )
        for name in sorted(set(seen.inventory.device_names) - seen.spec_names):
            yield Finding(f"{name} is recorded and stands in no spec of {seen.layout.cdi}", "renet setup", mend=SetUp())
        for problem in seen.inventory.problems:
            yield Finding(
                f"{problem.message} ({problem.reason}, since {problem.since})",
                "once it is mended, renet setup looks again",
            )


def _units(seen: Seen) -> Iterator[Finding]:
    for path in seen.changed_units:
        yield Finding(f"{path} is gone, or not as setup wrote it", "renet setup writes it anew", mend=SetUp())


def _access(seen: Seen) -> Iterator[Finding]:
    path, mode = seen.layout.kubeconfig, seen.kubeconfig_mode
    if mode is not None and mode & ~PRIVATE:
        fix = f"chmod {PRIVATE:o} {path}"
        yield Finding(f"{path} holds an admin's token and has mode {mode:04o}", fix, mend=Chmod(path, PRIVATE))
    if seen.api_problem is not None:
        yield Finding(f"the API can't be used: {seen.api_problem}", "gpugrant status; gpugrant up writes the file anew")


def _certificate(seen: Seen) -> Iterator[Finding]:
    begins, ends = seen.certificate_begins, seen.certificate_ends
    if ends is not None and ends - seen.now < ENDS_SOON:
        word = "ended" if ends <= seen.now else "ends"
        fix = f"gpugrant up --detach --root {seen.layout.root} with a running API server renews it"
        yield Finding(f"the API server's certificate {word} at {ends:%Y-%m-%d %H:%M} UTC", fix)
    if begins is not None and begins > seen.now:
        yield Finding(f"the API server's certificate begins only at {begins:%Y-%m-%d %H:%M} UTC", "set the clock")


def _clock(seen: Seen) -> Iterator[Finding]:
    if seen.clock_ahead is not None:
        yield Finding(
            f"the clock went back: the gate has seen {seen.clock_ahead:%Y-%m-%d %H:%M:%S} UTC, and goes on from there, "
            "so grants may end early",
            "set the clock (timedatectl set-ntp true), then start the gate anew",
        )


def _room(seen: Seen) -> Iterator[Finding]:
    if seen.free is not None and seen.free < FREE_MIN:
        yield Finding(f"only {seen.free // 2**20} MiB are free at {seen.layout.state}", "make room: writes fail soon")


def _grants(seen: Seen) -> Iterator[Finding]:
    for grant in seen.grants:
        ready = conditions.find(grant.status.conditions, conditions.READY)
        if ready is not None and ready.status != "True" and grant.metadata.deletion_timestamp is None:
            spec = grant.spec
            yield Finding(
                f"grant {grant.ref} ({spec.device} for repo {spec.repo}) is not in force: {ready.message}",
                f"kubectl describe rgg {grant.metadata.name} -n {grant.metadata.namespace}",
            )


CHECKS: tuple[Check, ...] = (
    Check("access", "everything could be looked at", _can_look),
    Check("parts", "all parts run and are well", _parts),
    Check("versions", "what runs is what is installed", _version),
    Check("files", "gate.yaml and repos.d can be read", _settings),
    Check("gate", "the gate holds a snapshot and owes nothing", _gate),
    Check("daemons", "the repos' daemons are fit for CDI devices", _daemons),
    Check("sockets", "the raw sockets are root's, and the gate listens for every repo", _sockets),
    Check("repos", "every repo has a daemon of its own", _ids),
    Check("sealed", "every daemon sees only its own repo's devices", _seals),
    Check("specs", "the CDI specs are valid, and no other file shadows them", _specs),
    Check("inventory", "the inventory is that of the machine as it is now", _inventory),
    Check("units", "the systemd units are as setup wrote them", _units),
    Check("kubeconfig", "the API answers, and its kubeconfig is private", _access),
    Check("certificate", "the API server's certificate is valid", _certificate),
    Check("clock", "the clock did not go back", _clock),
    Check("room", "there is room for the state", _room),
    Check("grants", "every grant is in force", _grants),
)


def judge(seen: Seen) -> tuple[tuple[Check, tuple[Finding, ...]], ...]:
    """Every check with what it found."""
    return tuple((check, tuple(check.look(seen))) for check in CHECKS)
