"""Hand-made mistakes, each of which the suite must catch.

A mutant is one changed line of `decide` or of the gate. The named tests run on a copy of the packages with
that line changed, and must fail; a line that is no longer there fails too, so that the table follows the code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {"gpugrant_crds": ROOT / "crds", "gpugrant_gate": ROOT / "gate"}


@dataclass(frozen=True)
class Mutant:
    """`before` becomes `after` in `file`; `tests` must notice."""

    file: str
    before: str
    after: str
    tests: str


DECIDE = "tests/crds/decide/test_decide.py"
POLICY = "tests/gate/policy"
BUILDS = "tests/gate/life/test_buildkit.py"
WIRE = "tests/gate/wire"
NET = "tests/gate/net"
HANDOVER = "tests/gate/test_handover.py"
ATOMS = "tests/crds/test_atoms.py"
MOVED = "tests/crds/decide/test_moved.py"
SWEEP = "tests/gate/life/test_sweep.py"
ADMITTED = "tests/gate/life/test_admitted.py"
IN_USE = "tests/crds/decide/test_in_use.py"
MUTANTS = {
    "an exclusive grant is in force beside others' containers": Mutant(
        "gpugrant_crds/decide/ledger.py",
        "            if not entry.grant.waits\n",
        "",
        IN_USE,
    ),
    "a gate that says nothing ends the waiting": Mutant(
        "gpugrant_crds/decide/core.py",
        "return candidate.gate is not None and not owed and _used_by_others(candidate) is None",
        "return not owed and _used_by_others(candidate) is None",
        IN_USE,
    ),
    "any run of a container may outlive its grant": Mutant(
        "gpugrant_gate/life/sweep.py",
        'return entry.run in ("", seen.started_at)',
        "return True",
        SWEEP,
    ),
    "what is to be restarted is left to it": Mutant(
        "gpugrant_gate/life/sweep.py",
        "calm=enforces and seen.state == RESTARTING,",
        "calm=False,",
        SWEEP,
    ),
    "a container that does not run keeps its policy": Mutant(
        "gpugrant_gate/life/sweep.py",
        "disarm=enforces and seen.policy not in _NO_POLICY and",
        "disarm=enforces and seen.alive and seen.policy not in _NO_POLICY and",
        SWEEP,
    ),
    "a fork inherits what its parent was let start": Mutant(
        "gpugrant_gate/life/admitted.py",
        'return self if repo_id in ("", self.repo_id) else Ledger(repo_id)',
        "return self",
        ADMITTED,
    ),
    "a repo that comes later is spared": Mutant(
        "gpugrant_gate/life/admitted.py",
        "    if folder.is_dir():\n        if enforce:",
        "    if folder.is_dir() and enforce:\n        if enforce:",
        ADMITTED,
    ),
    "an exclusive grant doesn't keep others out": Mutant(
        "gpugrant_crds/decide/conflicts.py",
        "if entry.grant.exclusive and entry.repo != spec.repo:",
        "if entry.grant.exclusive and entry.repo == spec.repo:",
        DECIDE,
    ),
    "a device is handed over before the gate has answered": Mutant(
        "gpugrant_crds/decide/conflicts.py",
        "EXCLUSION: tuple[Rule, ...] = (_exclusive_held, _shared_held, _releasing)",
        "EXCLUSION: tuple[Rule, ...] = (_exclusive_held, _shared_held)",
        DECIDE,
    ),
    "a gate of another history pays debts": Mutant(
        "gpugrant_crds/decide/verdicts.py",
        "if gate.epoch == machine.status.ledger_epoch and gate.digest != _digest(machine, gate.api_id):",
        "if gate.epoch < 0:",
        DECIDE,
    ),
    "a MIG instance is told by the beginning of its number": Mutant(
        "gpugrant_crds/atoms.py",
        'return part == whole or part.startswith(f"{whole}/")',
        "return part.startswith(whole)",
        ATOMS,
    ),
    "a MIG device shares its whole card": Mutant(
        "gpugrant_crds/atoms.py",
        "partial = {part.card for part in parts} if len(parts) == len(caps) else set()",
        "partial = set[str]()",
        ATOMS,
    ),
    "a capability that nobody knows is as good as any": Mutant(
        "gpugrant_crds/atoms.py",
        "partial = {part.card for part in parts} if len(parts) == len(caps) else set()",
        "partial = {part.card for part in parts}",
        ATOMS,
    ),
    "a mount of a device is no device": Mutant(
        "gpugrant_crds/atoms.py",
        "[node.source for node in edits.device_nodes] + [mount.host_path for mount in edits.mounts]",
        "[node.source for node in edits.device_nodes]",
        ATOMS,
    ),
    "a set of devices moves": Mutant(
        "gpugrant_crds/decide/ledger.py",
        "return found[0] if len(found) == 1 and not atoms.names_a_set(device, found) else None",
        "return found[0] if found else None",
        MOVED,
    ),
    "a moved device is bound anew by itself": Mutant(
        "gpugrant_crds/decide/ledger.py",
        "(None if anew or before is None else before.hardware)",
        "None",
        MOVED,
    ),
    "an expired grant stays": Mutant(
        "gpugrant_crds/decide/core.py",
        "return expiry is not None and expiry <= now",
        "return expiry is not None and expiry > now",
        DECIDE,
    ),
    "a repo with another id gets the grant": Mutant(
        "gpugrant_crds/decide/conflicts.py",
        "if it.repo is None or issued_for is None or it.repo.id == issued_for:",
        "if it.repo is None or issued_for is None or it.repo.name == it.grant.spec.repo:",
        DECIDE,
    ),
    "a device without a grant passes": Mutant(
        "gpugrant_gate/policy/hardware.py",
        "return not repo.unfit and name in repo.granted and names.is_qualified(name)",
        "return not repo.unfit and names.is_qualified(name)",
        f"{POLICY}/test_hardware.py",
    ),
    "a device request with capabilities is taken for a CDI name": Mutant(
        "gpugrant_gate/policy/container.py",
        "and bool(self.ids) and not self.capabilities and not self.options",
        "and bool(self.ids) and not self.options",
        f"{POLICY}/test_hardware.py",
    ),
    "a daemon's privileged container starts": Mutant(
        "gpugrant_gate/policy/hardware.py",
        'if container.host.get("Privileged"):',
        'if container.host.get("Privileged") and not container.started:',
        f"{POLICY}/test_start.py",
    ),
    "a duplicate JSON key passes": Mutant(
        "gpugrant_gate/policy/strictjson.py",
        "if len(found) != len(pairs):",
        "if len(found) > len(pairs):",
        f"{POLICY}/test_strictjson.py",
    ),
    "a field that is not known passes": Mutant(
        "gpugrant_gate/policy/bodies.py",
        """def _unknown(key: str, value: Any, path: str, reading: Reading) -> None:
    if not is_zero(value):""",
        """def _unknown(key: str, value: Any, path: str, reading: Reading) -> None:
    if value is None:""",
        f"{POLICY}/test_bodies.py",
    ),
    "an exec goes into a container that may trace it": Mutant(
        "gpugrant_gate/policy/hardware.py",
        """    if TRACER in capabilities(container):
        yield f"an exec""",
        """    if not container.started and TRACER in capabilities(container):
        yield f"an exec""",
        f"{POLICY}/test_host.py",
    ),
    "an image's healthcheck runs beside who may trace it": Mutant(
        "gpugrant_gate/policy/containers.py",
        'body["Healthcheck"] = _NO_HEALTHCHECK',
        'body["Healthcheck"] = {}',
        f"{POLICY}/test_host.py",
    ),
    "one opened value opens its whole rule": Mutant(
        "gpugrant_gate/policy/model.py",
        'return (f"{rule}={value}" if value else rule) in self.open',
        "return any(name.startswith(rule) for name in self.open)",
        f"{POLICY}/test_host.py",
    ),
    "an X server hands out devices on the host's network": Mutant(
        "gpugrant_gate/policy/host.py",
        "names = [name for name in found if _HANDS_OUT.fullmatch(name)]",
        "names = [name for name in found[1:0] if _HANDS_OUT.fullmatch(name)]",
        f"{POLICY}/test_host.py",
    ),
    "the host's network has another name": Mutant(
        "gpugrant_gate/policy/host.py",
        """if isinstance(found, dict) and found.get("Driver") == "host":
            yield from host_network(repo)""",
        """if isinstance(found, dict) and found.get("Name") == "host":
            yield from host_network(repo)""",
        f"{POLICY}/test_host.py",
    ),
    "a word in an opening is any text": Mutant(
        "gpugrant_crds/openings.py",
        're.sub(r"<[a-z]+>", "[A-Za-z0-9_]+", re.escape(self.name))',
        're.sub(r"<[a-z]+>", ".+", re.escape(self.name))',
        "tests/crds/test_openings.py",
    ),
    "an entitlement that is not written counts as closed": Mutant(
        "gpugrant_gate/life/buildkit.py",
        'device=_flag(entitlements, "device", default=True),',
        'device=_flag(entitlements, "device", default=False),',
        BUILDS,
    ),
    "an annotated spec gives its devices to a sealed repo's builds": Mutant(
        "gpugrant_gate/life/buildkit.py",
        "return tuple((key, value) for key, value in annotations if key != AUTO_ALLOW)",
        "return annotations",
        BUILDS,
    ),
    "an engine that nobody knows builds": Mutant(
        "gpugrant_gate/life/buildkit.py",
        "if engine[0] > NEWEST_ENGINE:",
        "if engine[0] > NEWEST_ENGINE + 1:",
        BUILDS,
    ),
    "a configuration that was changed under the daemon counts": Mutant(
        "gpugrant_gate/net/procfs.py",
        "return data, found.st_ctime",
        "return data, found.st_mtime",
        "tests/gate/net/test_procfs.py",
    ),
    "a tunnel opens before a daemon that is open itself": Mutant(
        "gpugrant_gate/policy/resources.py",
        """    why = messages.buildkit(asked.repo)
    if why:
""",
        """    why = messages.buildkit(asked.repo)
    if why and asked.repo.unfit:
""",
        f"{POLICY}/test_buildkit.py",
    ),
    "a body's key that only JSON calls nothing is nothing": Mutant(
        "gpugrant_gate/policy/resources.py",
        '_JSON_KEYS = frozenset({"securityopt", "outputs"})',
        '_JSON_KEYS = frozenset({"securityopt", "outputs", "cgroupparent"})',
        f"{POLICY}/test_judge.py",
    ),
    "a body may ask the daemon any number of questions": Mutant(
        "gpugrant_gate/policy/bodies.py",
        "if isinstance(value, list | dict) and len(value) > MOST_ENTRIES:",
        "if isinstance(value, list | dict) and len(value) > MOST_ENTRIES * 1000:",
        f"{POLICY}/test_bodies.py",
    ),
    "a key that folds to another passes": Mutant(
        "gpugrant_gate/policy/bodies.py",
        "    if not key.isascii():\n",
        "    if not key.isprintable():\n",
        f"{POLICY}/test_bodies.py",
    ),
    "half a surrogate pair passes": Mutant(
        "gpugrant_gate/policy/strictjson.py",
        'if b"\\\\u" in raw:',
        'if b"\\\\U" in raw:',
        f"{POLICY}/test_strictjson.py",
    ),
    "a query that daemons cut passes": Mutant(
        "gpugrant_gate/policy/target.py",
        'if ";" in query:',
        'if ";;" in query:',
        f"{POLICY}/test_target.py",
    ),
    "chunks in HTTP/1.0 are a body": Mutant(
        "gpugrant_gate/wire/heads.py",
        "        if version == (1, 0):\n            # Go",
        "        if version == (0, 9):\n            # Go",
        f"{WIRE}/test_heads.py",
    ),
    "a chunk may be longer than it says": Mutant(
        "gpugrant_gate/wire/framing.py",
        'raise Malformed(400, "wire.chunk", "a chunk is longer than its size line says")',
        "self._at = _At.SIZE\n        return position",
        f"{WIRE}/test_framing.py",
    ),
    "a compressed archive passes": Mutant(
        "gpugrant_gate/wire/tars.py",
        "if block.startswith(_COMPRESSED) or",
        "if block.startswith(_COMPRESSED[:1]) or",
        f"{WIRE}/test_tars.py",
    ),
    "a decision outlives what it was made under": Mutant(
        "gpugrant_gate/net/prepared.py",
        "if view is self._view and len(head) <= HEAD_MAX else None",
        "if len(head) <= HEAD_MAX else None",
        f"{NET}/test_prepared.py",
    ),
    "another daemon's connection is used": Mutant(
        "gpugrant_gate/net/upstream.py",
        "            if is_judged(link):",
        "            if link.writable:",
        f"{NET}/test_upstream.py",
    ),
    "what a daemon says too much is the next answer": Mutant(
        "gpugrant_gate/wire/exchange.py",
        "if self._decoder is not None and self._decoder.rest:",
        "if self._decoder is None:",
        f"{WIRE}/test_exchange.py",
    ),
    "what was meant for a refused pipe is a request": Mutant(
        "gpugrant_gate/net/turn.py",
        "if routed.exchange is Carrying.HIJACK:",
        "if routed.exchange is None:",
        f"{NET}/test_hijack.py",
    ),
    "a client's end overtakes its bytes": Mutant(
        "gpugrant_gate/net/exchange.py",
        "elif not self._exchange.may_pipe:",
        "elif self._exchange is not None:",
        f"{NET}/test_hijack.py",
    ),
    "a socket is where clients find it before it has its rights": Mutant(
        "gpugrant_gate/net/listener.py",
        'os.chmod("s", mode, dir_fd=folder)',
        "os.umask(0)",
        f"{NET}/test_listener.py",
    ),
    "an inherited socket is served under rights that no longer hold": Mutant(
        "gpugrant_gate/net/listener.py",
        "or one.inode not in (None, inode) or not same_rights:",
        "or one.inode not in (None, inode):",
        f"{NET}/test_listener.py",
    ),
    "a revocation is answered before it counts in the older gate": Mutant(
        "gpugrant_gate/net/pool.py",
        "return [*self.members, *([] if elder is None else [elder])]",
        "return [*self.members]",
        f"{HANDOVER} -k revocation",
    ),
    "an older gate goes on without its successor": Mutant(
        "gpugrant_gate/net/leaving.py",
        "    await pool.abandon(machine)",
        "    await asyncio.sleep(0)",
        f"{HANDOVER} -k without_its_successor",
    ),
    "a gate that may not get everything accepts no more": Mutant(
        "gpugrant_gate/net/gate.py",
        "                self.pool.resume()",
        "                pass",
        f"{HANDOVER} -k dies_on_the_way",
    ),
    "a time without a zone is a moment": Mutant(
        "gpugrant_crds/snapshot.py",
        "        return timestamps.read(value)",
        "        return datetime.fromisoformat(value)",
        "tests/crds/test_snapshot.py",
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_is_caught(mutant: Mutant, tmp_path: Path) -> None:
    """The named tests fail on the mutant (and, being run everywhere else, pass on the code itself)."""
    for name, folder in PACKAGES.items():
        shutil.copytree(folder / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / mutant.file
    text = file.read_text()
    assert text.count(mutant.before) == 1, f"{mutant.file} has no such line any more: {mutant.before}"
    file.write_text(text.replace(mutant.before, mutant.after))

    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutant.tests.split()],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 1, f"the mutant survives:\n{run.stdout[-2000:]}{run.stderr[-2000:]}"
