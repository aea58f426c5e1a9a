"""Names: CDI devices, repos, machines, and how near two of them are.

What is accepted here is what a Docker daemon's CDI library reads (container-device-interface pkg/parser/parser.go),
minus vendors and classes of one letter: they make releases up to v1.1.0 of that library panic. The prose of CDI's
SPEC.md is stricter than the code (63 and 253 characters); names that the daemon would take can be granted.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

DNS_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
"""RFC 1123 as Kubernetes names objects: machines are named so."""

REPO_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
"""A repo's name is a file name (`repos.d/<name>.yaml`, `<name>.sock`): no slash, no leading dot, at most 63."""

REPO_ID = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?"
"""A repo's id is a folder's name below `sealed/`: no slash, no leading dot."""

DEVICE_NAME = (
    r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]/[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]"
    r"=[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?"
)
"""The grammar of a qualified CDI name as one pattern, for schemas; `parse_device` says what is wrong."""

_DEVICE_MAX = 512
"""Longer than any name that a tool writes (a MIG UUID name has 60); keeps messages and ledgers small."""


class InvalidName(ValueError):
    """A name that can't be what it should be; the message is one clause for a person."""


@dataclass(frozen=True, slots=True, order=True)
class DeviceName:
    """A qualified CDI name, `vendor/class=name`."""

    vendor: str
    cls: str
    name: str

    @property
    def kind(self) -> str:
        return f"{self.vendor}/{self.cls}"

    def __str__(self) -> str:
        return f"{self.vendor}/{self.cls}={self.name}"


def is_qualified(text: str) -> bool:
    """Whether `text` is a CDI name that may be granted; a path such as `/dev/dri` is not."""
    try:
        parse_device(text)
    except InvalidName:
        return False
    return True


def parse_device(text: str) -> DeviceName:
    """The parts of a qualified CDI name; raises InvalidName with what is wrong and the form that is right."""
    if len(text) > _DEVICE_MAX:
        raise InvalidName(f"the device name has {len(text)} characters; at most {_DEVICE_MAX} are taken")
    left, equals, name = text.partition("=")
    vendor, slash, cls = left.partition("/")
    if not text or text.startswith("/") or not equals or not slash or not vendor or not cls or not name:
        raise InvalidName(f'"{text}" is not a CDI device name: write vendor/class=name, for example nvidia.com/gpu=all')
    for part, value in (("vendor", vendor), ("class", cls)):
        _check_kind_part(text, part, value)
    _check_characters(text, "device", name, r"[A-Za-z0-9]", r"[A-Za-z0-9_.:-]*", "a letter or digit")
    return DeviceName(vendor, cls, name)


def _check_kind_part(text: str, part: str, value: str) -> None:
    _check_characters(text, part, value, r"[A-Za-z]", r"[A-Za-z0-9_.-]*", "a letter")
    if len(value) == 1:
        raise InvalidName(f'"{text}": a {part} of one letter is refused, since Docker daemons crash on it')


def _check_characters(text: str, part: str, value: str, first: str, middle: str, start: str) -> None:
    if not re.fullmatch(first, value[0], re.ASCII):
        raise InvalidName(f'"{text}": the {part} "{value}" must start with {start}')
    for char in value:
        if not re.fullmatch(middle, char, re.ASCII):
            raise InvalidName(f'"{text}": the {part} "{value}" must not contain {char!r}')
    if not re.fullmatch(r"[A-Za-z0-9]", value[-1], re.ASCII):
        raise InvalidName(f'"{text}": the {part} "{value}" must end with a letter or digit')


@dataclass(frozen=True, slots=True)
class RepoRef:
    """A repo as people name it: `gpu-a` or `gpu-a@wsl-gpu`."""

    repo: str
    machine: str | None = None

    def __str__(self) -> str:
        return self.repo if self.machine is None else f"{self.repo}@{self.machine}"


def parse_repo_ref(text: str) -> RepoRef:
    """`repo[@machine]`; raises InvalidName."""
    repo, at, machine = text.partition("@")
    return RepoRef(check_repo(repo), check_machine(machine) if at else None)


def check_repo(name: str) -> str:
    """The name itself; raises InvalidName."""
    if not re.fullmatch(REPO_NAME, name, re.ASCII):
        raise InvalidName(
            f'"{name}" is not a repo name: letters, digits, ".", "_" and "-", at most 63, '
            "a letter or digit at both ends"
        )
    return name


def check_repo_id(text: str) -> str:
    """The id itself; raises InvalidName."""
    if not re.fullmatch(REPO_ID, text, re.ASCII):
        raise InvalidName(
            f'"{text}" is not a repo id: letters, digits, ".", "_" and "-", at most 128, a letter or digit at both ends'
        )
    return text


def check_machine(name: str) -> str:
    """The name itself; raises InvalidName. A machine is a Kubernetes object, so its name is a DNS subdomain."""
    if len(name) > 253 or not re.fullmatch(DNS_SUBDOMAIN, name, re.ASCII):
        raise InvalidName(
            f'"{name}" is not a machine name: lower-case letters, digits, "-" and ".", a letter or digit at both ends'
        )
    return name


def nearest(name: str, candidates: Iterable[str], most: int = 3) -> tuple[str, ...]:
    """The candidates most like `name`, best first; empty when none is near."""
    pool = sorted(set(candidates))
    folded = {candidate.lower(): candidate for candidate in reversed(pool)}
    close = difflib.get_close_matches(name.lower(), list(folded), n=most, cutoff=0.5)
    return tuple(folded[match] for match in close)


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """`; did you mean a or b?`, or the whole list where it is short, or the empty string."""
    pool = sorted(set(candidates))
    near = nearest(name, pool)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    if 0 < len(pool) <= 5:
        return f"; there is {', '.join(pool)}"
    return ""


def grant_object_name(repo: str, machine: str, device: str) -> str:
    """The name of the grant object that `rdc` makes: the same repo, machine and device give the same object.

    Readable up to the digest; the digest covers the exact three names, so that no two of them share an object.
    """
    digest = hashlib.sha256(f"{repo}\0{machine}\0{device}".encode()).hexdigest()[:10]
    slug = re.sub(r"[^a-z0-9]+", "-", f"{repo}-{device}".lower()).strip("-")
    return f"{slug[:52].rstrip('-')}-{digest}"
