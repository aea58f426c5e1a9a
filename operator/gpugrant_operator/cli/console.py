"""How the commands speak: exit codes, one sentence on stderr, tables.

Exit codes (design 11): 0 done, 1 refused or failed, 2 wrong usage, 3 not ready in time. A person never sees a
traceback; a person who wants one sets GPUGRANT_DEBUG.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NoReturn

import click

DEBUG_VARIABLE = "GPUGRANT_DEBUG"

CANT_WRITE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))
"""Where a file takes no more, which is nobody's mistake here (write(2))."""

Row = Sequence[str]

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class Failure(click.ClickException):
    """Refused or failed; the message is one sentence."""

    def show(self, file: Any = None) -> None:
        click.echo(f"error: {self.message}", file=file, err=file is None)


class NotReady(Failure):
    """What was asked for is on its way and did not come in time."""

    exit_code = 3


def run(command: click.Command, name: str) -> NoReturn:
    """Runs a command as a whole process and exits."""
    try:
        result = command.main(prog_name=name, standalone_mode=False)
        # Outside of standalone mode click returns the code of `ctx.exit`.
        code = result if isinstance(result, int) else 0
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except BrokenPipeError:
        _give_up_stdout()  # the reader (head, a pager) has gone
        code = 1
    except OSError as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        if error.errno in CANT_WRITE:
            _give_up_stdout()
        click.echo(f"error: {_broken(error)}", err=True)
        code = 1
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        why = " ".join(str(error).split())
        click.echo(f"error: unexpected {type(error).__name__}: {why} ({DEBUG_VARIABLE}=1 shows where)", err=True)
        code = 1
    sys.exit(code)


def _give_up_stdout() -> None:
    """Python's own flush at exit must not complain about what could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _broken(error: OSError) -> str:
    """The sentence for an error of the system that no command has one for; an error without a file is the output's."""
    why = " ".join((error.strerror or str(error)).lower().split())
    if error.errno in CANT_WRITE:
        return f"can't write {error.filename or 'the output'}: {why}"
    return f"{error.filename}: {why}" if error.filename else f"{why} ({DEBUG_VARIABLE}=1 shows where)"


def note(text: str) -> None:
    """Something that a person should know, beside the result."""
    click.echo(text, err=True)


def table(columns: Row, rows: Sequence[Row], *, terminal: bool) -> str:
    """The table as text, without a newline at its end; on a terminal with a bold head, as wide as it needs."""
    if not terminal:
        return plain(columns, rows)
    from rich.console import Console  # a terminal pays for it, scripts don't
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    console = Console(force_terminal=True, highlight=False)
    with console.capture() as captured:
        console.print(made)
    return captured.get().rstrip("\n")


def plain(columns: Row, rows: Sequence[Row]) -> str:
    """Columns three blanks apart, as kubectl prints them."""
    lines = [columns, *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def show(columns: Row, rows: Sequence[Row]) -> None:
    """Prints a table."""
    click.echo(table(columns, rows, terminal=sys.stdout.isatty()))


def age(span: timedelta) -> str:
    """As kubectl writes ages: 45s, 12m, 5h, 3d; a clock that went back counts as 0s."""
    seconds = max(0, int(span.total_seconds()))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * size or (seconds >= size and unit == "d"):
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def memory(size: int | None) -> str:
    """Bytes as a person reads them; unknown: `-`."""
    return "-" if size is None else f"{size / 2**30:.1f} GiB"


def os_error(error: OSError, doing: str) -> Failure:
    """The sentence for a file that can't be used; `doing` is a clause such as "can't write /etc"."""
    why = (error.strerror or str(error)).lower()
    hint = ": run this as root, or give a --root of your own" if isinstance(error, PermissionError) else ""
    return Failure(f"{doing}: {why}{hint}")


Say = Callable[[str], None]
