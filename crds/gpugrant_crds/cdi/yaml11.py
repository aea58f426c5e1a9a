"""YAML as the CDI library reads it: go-yaml v2 (YAML 1.1), strict, the first document only.

Not PyYAML's own resolver: `08`, `1_0`, `yes` and `12:30:45` mean other things there. Every node keeps its text as
written, so that a reader can tell where the library's newer parser (go-yaml v3, from 1.1.1 on) reads something else.
Bytes in, values out; bounded in size, depth and expansion, and never anything but a value or NotYaml.
"""

from __future__ import annotations

import codecs
import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import yaml

MAX_BYTES = 8 * 1024 * 1024
"""Of one file. A spec with 2,000 devices has about 1 MiB."""

MAX_NODES = 250_000
"""Of one document as written; a reader bounds what aliases expand to by the same number."""

MAX_DEPTH = 64
"""A CDI spec is at most 6 deep (devices, device, containerEdits, hooks, hook, args)."""

_LOADER: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_STRING_TAG = "tag:yaml.org,2002:str"


class NotYaml(ValueError):
    """The text can't be read; `line` counts from 1, None where the place is not known."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Scalar:
    value: bool | int | float | str | None
    text: str
    """As written, without quotes."""
    line: int


@dataclass(slots=True)
class Sequence:
    items: list[Node]
    line: int


@dataclass(slots=True)
class Mapping:
    pairs: list[tuple[Scalar, Node]]
    """In the order of the file; keys are unique by value."""
    line: int


Node = Scalar | Sequence | Mapping

_WORDS: dict[str, bool | float | None] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}

# Go's strconv.ParseInt with base 0, after underscores are taken out.
_INT = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
# resolve.go cuts "0b" off and parses the rest, sign included.
_SIGNED_BINARY = re.compile(r"0b([+-][01]{1,63})")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_ESCAPED_SLASH = re.compile(r"(?<!\\)(?:\\\\)*\\/")
_DOT_FLOAT = re.compile(r"\.[0-9]+(?:[eE][-+]?[0-9]+)?")


def resolve(text: str) -> bool | int | float | str | None:
    """What go-yaml v2 makes of an unquoted scalar (resolve.go)."""
    if text in _WORDS:
        return _WORDS[text]
    if text.startswith("."):
        return float(text) if _DOT_FLOAT.fullmatch(text) else text
    if text[0] not in "+-0123456789":
        return text
    plain = text.replace("_", "")
    if _INT.fullmatch(plain):
        number = _go_int(plain)
        # int64, or uint64 where there is no sign; beyond that the text is tried as a float
        if -(2**63) <= number < 2**63 or (plain[0] not in "+-" and number < 2**64):
            return number
    if signed := _SIGNED_BINARY.fullmatch(plain):
        return int(signed[1], 2)
    if _FLOAT.fullmatch(plain):
        number_f = float(plain)
        return text if math.isinf(number_f) else number_f
    return text


def _go_int(plain: str) -> int:
    sign = -1 if plain.startswith("-") else 1
    digits = plain.lstrip("+-")
    for prefix, base in (("0x", 16), ("0b", 2), ("0o", 8)):
        if digits.lower().startswith(prefix):
            return sign * int(digits[2:], base)
    return sign * int(digits, 8 if digits.startswith("0") else 10)


def go_text(value: bool | float | str) -> str:
    """The string that Go's library makes of a scalar where a field wants one (sigs.k8s.io/yaml)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _go_float(value)
    return str(value)


def _go_float(value: float) -> str:
    """strconv.FormatFloat(value, 'g', -1, 64): shortest digits; an exponent below 1e-4 and from 1e6 on."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    sign, digit_tuple, scale = Decimal(repr(value)).normalize().as_tuple()
    digits = "".join(map(str, digit_tuple))
    exponent = len(digits) - 1 + int(scale)
    if exponent < -4 or exponent >= 6:
        body = digits[0] + ("." + digits[1:] if len(digits) > 1 else "") + f"e{exponent:+03d}"
    elif exponent < 0:
        body = "0." + "0" * (-exponent - 1) + digits
    elif len(digits) <= exponent + 1:
        body = digits + "0" * (exponent + 1 - len(digits))
    else:
        body = digits[: exponent + 1] + "." + digits[exponent + 1 :]
    return ("-" if sign else "") + body


def read(data: str | bytes) -> Node:
    """The first document's root node; raises NotYaml. An empty document is a null scalar."""
    if len(data) > MAX_BYTES:
        raise NotYaml(f"the file has more than {MAX_BYTES} bytes")
    try:
        text = _text(data)
        return _Composer(text).compose(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark or error.context_mark
        raise NotYaml(error.problem or "not readable as YAML", mark.line + 1 if mark else None) from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise NotYaml(f"not readable as YAML: {str(error).splitlines()[0]}") from error


def _text(data: str | bytes) -> str:
    """UTF-8, or UTF-16 where a byte order mark says so, as libyaml and its Go port take them."""
    if isinstance(data, bytes):
        utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        data = data.decode("utf-16" if utf16 else "utf-8")
    return data.removeprefix("\ufeff")


class _Composer:
    """Events to nodes without recursion: a deeply nested file must not exhaust a stack."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.slashes = "\\/" in text
        self.anchors: dict[str, Node | None] = {}
        self.open: list[_Open] = []
        self.root: Node | None = None
        self.count = 0

    def compose(self, events: Any) -> Node:
        for event in events:
            line = event.start_mark.line + 1
            match event:
                case yaml.DocumentStartEvent():
                    _check_version(event)
                case yaml.ScalarEvent():
                    self._check_escapes(event)
                    self._add(event, _scalar(event))
                case yaml.AliasEvent():
                    self._place(self._aliased(event), line)
                case yaml.SequenceStartEvent():
                    self._enter(event, Sequence([], line))
                case yaml.MappingStartEvent():
                    self._enter(event, Mapping([], line))
                case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                    self._leave()
                case yaml.DocumentEndEvent():
                    break
        return self.root if self.root is not None else Scalar(None, "", 1)

    def _enter(self, event: Any, node: Sequence | Mapping) -> None:
        line = event.start_mark.line + 1
        _refuse_tag(event.tag, line, plain=("tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"))
        if len(self.open) >= MAX_DEPTH:
            raise NotYaml(f"nested more than {MAX_DEPTH} deep", line)
        self._place(node, line)
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        self.open.append(_Open(node, event.anchor))

    def _leave(self) -> None:
        closed = self.open.pop()
        if closed.key is not None:
            raise NotYaml("a key has no value", closed.node.line)
        if closed.anchor is not None:
            self.anchors[closed.anchor] = closed.node

    def _add(self, event: Any, node: Scalar) -> None:
        self._place(node, node.line)
        if event.anchor is not None:
            self.anchors[event.anchor] = node

    def _check_escapes(self, event: Any) -> None:
        r"""Refuse "\/", which JSON and libyaml allow and go-yaml does not."""
        if self.slashes and event.style == '"':
            raw = self.text[event.start_mark.index : event.end_mark.index]
            if _ESCAPED_SLASH.search(raw):
                raise NotYaml("found unknown escape character", event.start_mark.line + 1)

    def _aliased(self, event: Any) -> Node:
        line = event.start_mark.line + 1
        if event.anchor not in self.anchors:
            raise NotYaml(f'unknown anchor "{event.anchor}" referenced', line)
        node = self.anchors[event.anchor]
        if node is None:
            raise NotYaml(f'anchor "{event.anchor}" value contains itself', line)
        return node

    def _place(self, node: Node, line: int) -> None:
        self.count += 1
        if self.count > MAX_NODES:
            raise NotYaml(f"more than {MAX_NODES} values", line)
        if not self.open:
            self.root = node
            return
        self.open[-1].take(node, line)


class _Open:
    """A collection whose end has not come yet."""

    def __init__(self, node: Sequence | Mapping, anchor: str | None) -> None:
        self.node = node
        self.anchor = anchor
        self.key: Scalar | None = None
        self.keys: set[tuple[str, object]] = set()

    def take(self, node: Node, line: int) -> None:
        if isinstance(self.node, Sequence):
            self.node.items.append(node)
        elif self.key is None:
            self.key = self._checked_key(node, line)
        else:
            self.node.pairs.append((self.key, node))
            self.key = None

    def _checked_key(self, node: Node, line: int) -> Scalar:
        if not isinstance(node, Scalar):
            raise NotYaml("a key must be a single word", line)
        if node.text == "<<":
            raise NotYaml("merge keys are not read", line)
        seen = (type(node.value).__name__, node.value)
        if seen in self.keys:
            raise NotYaml(f'key "{node.text}" already set in map', line)
        self.keys.add(seen)
        return node


def _check_version(event: Any) -> None:
    if event.version not in (None, (1, 1)):
        raise NotYaml("found incompatible YAML document", event.start_mark.line + 1)


def _scalar(event: Any) -> Scalar:
    line = event.start_mark.line + 1
    _refuse_tag(event.tag, line, plain=(_STRING_TAG, "!"))
    plain = event.tag is None and event.implicit[0]
    return Scalar(resolve(event.value) if plain else event.value, event.value, line)


def _refuse_tag(tag: str | None, line: int, *, plain: tuple[str, ...]) -> None:
    """Tags that change what a value is are no part of a CDI spec, and the two parsers differ in them."""
    if tag is not None and tag not in plain:
        raise NotYaml(f'the tag "{tag}" is not read', line)
