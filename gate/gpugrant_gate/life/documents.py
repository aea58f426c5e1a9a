"""The gate's settings file: a flat YAML mapping, read strictly, with the line of whatever is wrong.

An unknown or repeated key is an error: a setting that is not understood could have been a restriction.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import yaml

from gpugrant_gate.life import quantities

SIZE_MAX = 64 * 1024
"""Bytes of a settings file; the longest real one has a few hundred."""


class Broken(ValueError):
    """A file that can't be used: `file:line: what is wrong`."""

    def __init__(self, path: Path, line: int, message: str) -> None:
        super().__init__(f"{path}:{line}: {message}")


@dataclass(frozen=True, slots=True)
class Value:
    """A value as it is written; the accessors raise Broken."""

    path: Path
    key: str
    node: yaml.Node

    @property
    def line(self) -> int:
        return int(self.node.start_mark.line) + 1

    def text(self) -> str:
        """A scalar's own characters: `0660` stays `0660`."""
        if not isinstance(self.node, yaml.ScalarNode) or self.node.tag == "tag:yaml.org,2002:null":
            raise self.wrong("must be a text")
        return str(self.node.value)

    def one_of(self, *words: str) -> str:
        text = self.text()
        if text not in words:
            raise self.wrong(f"must be {' or '.join(words)}")
        return text

    def number(self, least: int, most: int) -> int:
        text = self.text()
        if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) or not least <= int(text) <= most:
            raise self.wrong(f"must be a number from {least} to {most}")
        return int(text)

    def seconds(self, least: int, most: int) -> int:
        """A span of time."""
        span = quantities.seconds(self.text())
        if span is None or not least <= span <= most:
            bounds = f"from {quantities.write_seconds(least)} to {quantities.write_seconds(most)}"
            raise self.wrong(f"must be a time {bounds}, in d, h, m and s, such as 90s or 1h30m")
        return span

    def size(self, least: int, most: int) -> int:
        """A number of bytes."""
        count = quantities.size(self.text())
        if count is None or not least <= count <= most:
            bounds = f"from {quantities.write_size(least)} to {quantities.write_size(most)}"
            raise self.wrong(f"must be a size {bounds}, in B, KiB, MiB or GiB, such as 512KiB")
        return count

    def file(self) -> Path:
        """A file's absolute path."""
        path = Path(self.text())
        if not path.is_absolute() or "\0" in self.text():
            raise self.wrong("must be an absolute path")
        return path

    def address(self) -> tuple[str, int]:
        """An IP address and a port: `127.0.0.1:9469` or `[::1]:9469`."""
        host, _, port = self.text().rpartition(":")
        host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        try:
            address = str(ipaddress.ip_address(host))
        except ValueError:
            raise self._no_address() from None
        if not re.fullmatch(r"[0-9]{1,5}", port, re.ASCII) or not 0 < int(port) < 2**16:
            raise self._no_address()
        return address, int(port)

    def _no_address(self) -> Broken:
        return self.wrong("must be an IP address and a port, such as 127.0.0.1:9469")

    def wrong(self, message: str) -> Broken:
        return Broken(self.path, self.line, f'"{self.key}" {message}')


def read(path: Path, text: str, keys: Collection[str]) -> dict[str, Value]:
    """The file's settings by key; an empty file has none. Raises Broken."""
    if len(text) > SIZE_MAX:
        raise Broken(path, 1, f"the file is longer than {SIZE_MAX // 1024} KiB")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Broken(path, mark.line + 1 if mark else 1, f"not YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise Broken(path, 1, "not YAML") from error
    if node is None:
        return {}
    if not isinstance(node, yaml.MappingNode):
        raise Broken(path, int(node.start_mark.line) + 1, "must hold settings as `key: value`")
    return _settings(path, node, keys)


def _settings(path: Path, node: yaml.MappingNode, keys: Collection[str]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for key_node, value_node in node.value:
        line = int(key_node.start_mark.line) + 1
        key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "?"
        if key not in keys:
            near = difflib.get_close_matches(key, keys, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there is {', '.join(sorted(keys))}"
            raise Broken(path, line, f'the key "{key}" is not known; {hint}')
        if key in found:
            raise Broken(path, line, f'the key "{key}" is there twice')
        found[key] = Value(path, key, value_node)
    return found
