"""What the scripts tell a person: notes on stderr, and the one sentence that ends a script."""

import sys


class Trouble(Exception):
    """A script can't go on; the message is one sentence that says what to do."""


def note(text: str) -> None:
    """One line on stderr; stdout is kept for results."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def result(text: str) -> None:
    """One line on stdout."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
