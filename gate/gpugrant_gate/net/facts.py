"""Facts for a decision: what only the daemon or the file system can tell, asked for at the moment of judging."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpugrant_gate.net import paths, upstream
from gpugrant_gate.net.upstream import Unreachable
from gpugrant_gate.policy.model import (
    ContainerFact,
    ExecFact,
    Fact,
    Facts,
    ImageFact,
    InfoFact,
    ListenersFact,
    NetworkFact,
    PathFact,
    RepoView,
    VolumeFact,
)
from gpugrant_gate.settings import Limits


async def gather(wanted: tuple[Fact, ...], daemon: Path, view: RepoView, limits: Limits) -> Facts:
    """Every fact asked for; raises Unreachable when one can't be had: a missing answer must not look like "none"."""
    found: dict[Fact, Any] = {}
    for fact in wanted:
        if isinstance(fact, PathFact):
            found[fact] = paths.look(fact.path, (*view.binds, *view.above))
        elif isinstance(fact, ListenersFact):
            found[fact] = listeners()
        else:
            found[fact] = await _ask(daemon, target(fact, view.api_version), limits)
    return found


Asked = ContainerFact | VolumeFact | NetworkFact | InfoFact | ExecFact | ImageFact


def target(fact: Asked, api_version: str) -> str:
    """The request target that answers it."""
    prefix = f"/v{api_version}" if api_version else ""
    match fact:
        case ContainerFact(name):
            return f"{prefix}/containers/{quote(name, safe='')}/json"
        case VolumeFact(name):
            return f"{prefix}/volumes/{quote(name, safe='')}"
        case NetworkFact(name):
            return f"{prefix}/networks/{quote(name, safe='')}"
        case InfoFact():
            return f"{prefix}/info"
        case ExecFact(exec_id):
            return f"{prefix}/exec/{quote(exec_id, safe='')}/json"
        case ImageFact(name):
            return f"{prefix}/images/{quote(name, safe='/:@')}/json"


_ACCEPTS = "00010000"
"""__SO_ACCEPTCON in the flags (linux net/unix/af_unix.c unix_seq_show)."""


def listeners(table: Path = Path("/proc/net/unix")) -> tuple[str, ...] | None:
    """The names of abstract Unix sockets that are listened on, None where nobody tells; the gate runs in the machine's
    own network."""
    try:
        text = table.read_text(errors="surrogateescape")
    except OSError:
        return None
    lines = (line.split(None, 7) for line in text.splitlines())
    return tuple(words[7][1:] for words in lines if len(words) > 7 and words[3] == _ACCEPTS and words[7][0] == "@")


async def _ask(daemon: Path, question: str, limits: Limits) -> Any:
    answer = await upstream.get(daemon, question, limits)
    if answer.status == 404:
        return None
    if answer.status != 200 or not isinstance(answer.value, dict):
        raise Unreachable(f"it answered a question of the gate with status {answer.status}")
    return answer.value
