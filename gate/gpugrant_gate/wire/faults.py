"""The one error of this room: bytes that are not what they must be."""

from __future__ import annotations


class Malformed(ValueError):
    """A message that can't be taken. `status` is what a client is told; `rule` is the id in audit and answers."""

    def __init__(self, status: int, rule: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.rule = rule
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} [{self.rule}]"


class Truncated(ValueError):
    """A peer closed its connection in the middle of a message."""
