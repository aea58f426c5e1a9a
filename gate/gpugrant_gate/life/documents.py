"""The gate's settings file: a flat YAML mapping, read strictly, with the line of whatever is wrong.

An unknown or repeated key is an error: a setting that is not understood could have been a restriction.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import yaml

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

    def number(self, least: int, most: int) -> int:
        text = self.text()
        if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) or not least <= int(text) <= most:
            raise self.wrong(f"must be a number from {least} to {most}")
        return int(text)

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
            raise Broken(path, line, f'the key "{key}" is not known; there is {", ".join(sorted(keys))}')
        if key in found:
            raise Broken(path, line, f'the key "{key}" is there twice')
        found[key] = Value(path, key, value_node)
    return found
