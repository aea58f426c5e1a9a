"""Progress for a person: on a terminal the step that runs with a spinner, elsewhere plain lines, one a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

import click


@contextmanager
def following(stream: TextIO) -> Iterator[Callable[[str], None]]:
    """Yields what says that a step begins; on a terminal the steps before it stay above."""
    if not stream.isatty():
        yield lambda line: click.echo(line, file=stream)
        return
    from rich.console import Console  # a terminal pays for it, scripts don't
    from rich.text import Text

    console = Console(file=stream, highlight=False)
    with console.status(Text("")) as status:
        begun: list[str] = []

        def say(line: str) -> None:
            if begun:
                console.print(Text(begun.pop(), style="dim"), soft_wrap=True)
            begun.append(line)
            status.update(Text(line))

        yield say
        if begun:
            console.print(Text(begun.pop(), style="dim"), soft_wrap=True)
