"""One file of `repos.d`: how a repo and its daemon are named, and where its sockets lie (design 8).

The gate and the commands read the same files through this one reader. A file is whole or refused: a key that this
version doesn't know could be a restriction, so it is never skipped. Nothing is opened here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from gpugrant_crds import names, openings
from gpugrant_crds.layout import Layout, checked_socket

SUFFIX = ".yaml"
"""Other files in the folder are not repos."""

MAX_BYTES = 65_536
"""A larger file is refused before it is parsed; a real one has some hundred bytes."""

_ACCOUNT = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}\$?"
"""A user's or group's name or number as in passwd(5)."""

_MODE = r"0?o?[0-7]{3}"
"""Three octal digits, as chmod takes them; YAML 1.1 and 1.2 write a leading 0 or 0o."""

TREES = (
    "/dev", "/proc", "/sys", "/run", "/var/run", "/boot", "/etc/cdi", "/var/run/cdi", "/etc/docker", "/etc/containerd",
    "/etc/nri", "/opt/nri", "/usr/lib/docker", "/usr/libexec/docker", "/var/lib/docker", "/var/lib/containerd",
    "/etc/rediacc", "/var/lib/rediacc",
)  # fmt: skip
"""Devices, the kernel, daemons, and the folders that CDI and NRI read as root (reference: moby, CDI, NRI sources): no
container gets anything of them, whatever `binds:` says."""

_BOOLEAN_TAG = "tag:yaml.org,2002:bool"
_NULL_TAG = "tag:yaml.org,2002:null"


@dataclass(frozen=True, slots=True)
class RepoProblem:
    """Why a file is refused; `str()` is the sentence for a person, with file and line."""

    file: str
    line: int
    """Counted from 1; 0: the file as a whole."""
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.message}"


class _Refused(ValueError):
    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


def _absolute(path: Path) -> Path:
    if not path.is_absolute() or ".." in path.parts:
        raise ValueError(f'"{path}" must be an absolute path without ".."')
    return path


def _socket(path: Path) -> Path:
    return checked_socket(_absolute(path))


def _account(text: str) -> str:
    if not re.fullmatch(_ACCOUNT, text, re.ASCII):
        raise ValueError(f'"{text}" is neither the name nor the number of an account')
    return text


def _mode(text: str) -> str:
    if not re.fullmatch(_MODE, text, re.ASCII):
        raise ValueError(f'"{text}" is not a file mode: write three octal digits, for example "0660"')
    return text


def _openings(items: tuple[str, ...]) -> tuple[str, ...]:
    for item in items:
        openings.check(item)
    return items


def _bindable(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    for path in paths:
        tree = next((tree for tree in TREES if path.is_relative_to(tree)), None)
        if path == Path("/"):
            raise ValueError(f'"{path}" is the whole machine, which no container may have: name the folders themselves')
        if tree is not None:
            raise ValueError(f'nothing of "{path}" can be bound: no container may see {tree}; take it out')
    return paths


SocketPath = Annotated[Path, AfterValidator(_socket)]
AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
Account = Annotated[str, AfterValidator(_account)]


class RepoFile(BaseModel):
    """One repo as its file says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, AfterValidator(names.check_repo)]
    id: Annotated[str, AfterValidator(names.check_repo_id)] | None = None
    """The repo's own random id; None: it gets no hardware."""
    upstream: SocketPath
    """The daemon's own socket."""
    listen: SocketPath | None = None
    """Where the gate listens for this repo; None: the layout's place."""
    owner: Account | None = None
    """Of the listening socket; None: root."""
    group: Account | None = None
    """Of the listening socket; None: root."""
    mode: Annotated[str, AfterValidator(_mode)] | None = None
    """Of the listening socket, octal digits; `permissions` is the number."""
    sealed: bool = False
    """The daemon sees only the CDI specs of this repo's granted devices."""
    binds: Annotated[tuple[AbsolutePath, ...], AfterValidator(_bindable)] | None = None
    """Bind sources on the host must lie below one of these; None: binds of host paths are refused."""
    binds_pinned: bool = Field(default=True, alias="bindsPinned")
    """Sources that somebody other than root could swap are pinned before a daemon mounts them."""
    open: Annotated[tuple[str, ...], AfterValidator(_openings)] | None = None
    """Host rules that are open for this repo, each by its id or `id=value` (`openings`); None: none."""
    profile: Annotated[str, AfterValidator(openings.check_profile)] | None = None
    """A named set of openings beside those of `open`."""
    daemon_config: AbsolutePath | None = Field(default=None, alias="daemonConfig")
    """The daemon's own configuration file (daemon.json), as the daemon sees it; None: builds with BuildKit are refused,
    for what they may reach is not known."""

    @property
    def permissions(self) -> int | None:
        """The mode as a number, 0 to 0o777; None: the gate's own choice."""
        return None if self.mode is None else int(self.mode[-3:], 8)

    @property
    def opened(self) -> frozenset[str]:
        """All host rules that are open for this repo."""
        return openings.opened(self.open or (), self.profile)

    def listens(self, layout: Layout) -> Path:
        """The socket that the repo's users reach."""
        return self.listen or layout.repo_socket(self.name)


KEYS = tuple(field.alias or name for name, field in RepoFile.model_fields.items())
"""As they are written in a file."""


def parse(text: str, filename: str) -> RepoFile | RepoProblem:
    """The repo of one file's text, or why the file is refused; `filename` is only quoted."""
    try:
        return _repo(text)
    except _Refused as refused:
        return RepoProblem(filename, refused.line, refused.message)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return RepoProblem(filename, mark.line + 1 if mark else 0, f"not valid YAML: {error.problem}")
    except yaml.YAMLError as error:
        return RepoProblem(filename, 0, f"not valid YAML: {' '.join(str(error).split())}")
    except RecursionError:
        return RepoProblem(filename, 0, "not valid YAML: nested too deeply")


def dump(repo: RepoFile) -> str:
    """The file's text; `parse(dump(repo), …) == repo`."""
    data = repo.model_dump(mode="json", exclude_none=True, by_alias=True)
    if not repo.sealed:
        data.pop("sealed")
    if repo.binds_pinned:
        data.pop("bindsPinned")
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)


def clashes(repos: Mapping[str, RepoFile], layout: Layout) -> dict[str, str]:
    """By file name: why a readable file can't be trusted beside the others; those repos get no hardware.

    A name, an id, a daemon or a listening socket that stands in two files belongs to neither.
    """
    found: dict[str, str] = {}
    for what, key in _UNIQUE:
        seen: dict[object, list[str]] = {}
        for file, repo in sorted(repos.items()):
            value = key(repo, layout)
            if value is not None:
                seen.setdefault(value, []).append(file)
        for value, files in seen.items():
            for file in files if len(files) > 1 else ():
                others = ", ".join(other for other in files if other != file)
                found.setdefault(file, f"the {what} {value} stands in {others} too: remove one of them")
    return found


_UNIQUE: tuple[tuple[str, Callable[[RepoFile, Layout], object]], ...] = (
    ("name", lambda repo, _: repo.name),
    ("id", lambda repo, _: repo.id),
    ("upstream", lambda repo, _: repo.upstream),
    ("listen path", lambda repo, layout: repo.listens(layout)),
)


def _repo(text: str) -> RepoFile:
    if len(text.encode(errors="surrogatepass")) > MAX_BYTES:
        raise _Refused(0, f"the file is larger than {MAX_BYTES} bytes")
    document = yaml.compose(text, Loader=yaml.SafeLoader)
    if document is None:
        raise _Refused(0, "the file is empty: it needs the keys name, id and upstream")
    if not isinstance(document, yaml.MappingNode):
        raise _Refused(_line(document), "the file must hold keys and values, one a line")
    values, lines = _entries(document)
    try:
        return RepoFile.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = str(first["loc"][0])
        raise _Refused(lines.get(key, 0), _sentence(key, first["type"], first["msg"])) from error


def _sentence(key: str, kind: str, message: str) -> str:
    if kind == "missing":
        return f'the key "{key}" is missing'
    return f"{key}: {message.removeprefix('Value error, ')}"


def _entries(document: yaml.MappingNode) -> tuple[dict[str, Any], dict[str, int]]:
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for key_node, value_node in document.value:
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else ""
        line = _line(key_node)
        if key not in KEYS:
            known = ", ".join(KEYS)
            raise _Refused(line, f'the key "{key}" is not known{names.did_you_mean(key, KEYS)}; the keys are {known}')
        if key in lines:
            raise _Refused(line, f'the key "{key}" stands here twice')
        lines[key] = line
        if key not in _MAY_BE_EMPTY or value_node.tag != _NULL_TAG:
            values[key] = _READERS.get(key, _text)(key, value_node)
    return values, lines


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _text(key: str, node: yaml.Node) -> str:
    """The scalar as it is written: an id of digits stays a text, and 0660 does not become 432."""
    if not isinstance(node, yaml.ScalarNode) or node.tag == _NULL_TAG:
        raise _Refused(_line(node), f"{key}: must be one text")
    return str(node.value)


def _boolean(key: str, node: yaml.Node) -> bool:
    if not isinstance(node, yaml.ScalarNode) or node.tag != _BOOLEAN_TAG or node.value not in ("true", "false"):
        raise _Refused(_line(node), f"{key}: must be true or false")
    return bool(node.value == "true")


def _texts(key: str, node: yaml.Node) -> tuple[str, ...]:
    if not isinstance(node, yaml.SequenceNode):
        raise _Refused(_line(node), f"{key}: must be a list, for example {_LISTS[key]}")
    return tuple(_text(key, item) for item in node.value)


_MAY_BE_EMPTY = frozenset({"binds", "open", "profile"})
"""Where nothing behind the key, all lines being commented out, means nothing: there it is the narrowest."""
_LISTS = {"binds": "[/srv/data]", "open": "[host.network]"}
_READERS: dict[str, Callable[[str, yaml.Node], Any]] = {
    "sealed": _boolean,
    "bindsPinned": _boolean,
    **dict.fromkeys(_LISTS, _texts),
}
