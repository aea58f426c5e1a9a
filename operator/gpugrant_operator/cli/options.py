"""Options that several commands share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from gpugrant_crds.layout import Layout

F = TypeVar("F", bound=Callable[..., Any])

_DURATION = r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?"
"""As Go writes durations (8h, 90m, 1h30m), and days of 24 hours."""


def absolute(path: str | Path) -> Path:
    """The path as every process has it, whatever its folder; not Path.absolute(), which keeps "..": a root must have
    one name only."""
    return Path(os.path.abspath(path))  # noqa: PTH100


class Absolute(click.ParamType[Path]):
    """A path, made absolute as the caller's folder has it."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        return absolute(value)


class Folder(Absolute):
    """A folder that exists."""

    name = "folder"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = super().convert(value, param, ctx)
        if not path.is_dir():
            self.fail(f'"{value}" is not a folder', param, ctx)
        return path


class Duration(click.ParamType[timedelta]):
    """A positive span of time."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(_DURATION, str(value), re.ASCII)
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0, 0)
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if not span:
            self.fail(
                f'"{value}" is not a time: write numbers with the units d, h, m or s, such as 8h or 1h30m', param, ctx
            )
        return span


ABSOLUTE = Absolute()
FOLDER = Folder()
DURATION = Duration()


def root(command: F) -> F:
    return click.option(
        "--root",
        type=ABSOLUTE,
        envvar="GPUGRANT_ROOT",
        default="/",
        metavar="DIR",
        help="Where all files lie. Default: $GPUGRANT_ROOT, else /.",
    )(command)


def hardware(command: F) -> F:
    return click.option(
        "--hardware",
        type=FOLDER,
        default="/",
        metavar="DIR",
        help="Where the machine is read from, such as a recorded tree. Default: /.",
    )(command)


def manifests(command: F) -> F:
    return click.option(
        "--manifests",
        type=ABSOLUTE,
        multiple=True,
        metavar="DIR",
        help="A folder of YAML files, such as a Git checkout, whose grants and machines hold; it is never written. "
        "Repeatable.",
    )(command)


def check_apart(root: Path, folders: tuple[Path, ...]) -> None:
    """Raises UsageError for --manifests folders that can't be sources together."""
    from gpugrant_operator.apiserver.sources import folders as rules

    why = rules.overlapping(folders, Layout(root).state)
    if why:
        raise click.UsageError(why)


def output(*formats: str) -> Callable[[F], F]:
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        help=f"Default: {formats[0]}.",
    )


def timeout(default: str) -> Callable[[F], F]:
    return click.option(
        "--timeout",
        type=DURATION,
        default=default,
        metavar="TIME",
        help=f"How long to wait, for example 30s or 2m; then exit 3. Default: {default}.",
    )
