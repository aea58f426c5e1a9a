"""`renet setup`: what a node runs on itself, by hand, from the operator, or in a detection Job (design 11).

Results on stdout, progress and sentences on stderr. Exit 0: done (a failed probe stands in the inventory); 1: an
installation or a generation failed, or the inventory could not be written; 2: wrong usage.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Literal

import click

from gpugrant_crds.inventory import Problem
from gpugrant_operator.cli import progress
from gpugrant_operator.node import setup, units
from gpugrant_operator.node.run import DAEMON_UNITS
from gpugrant_operator.node.state import Install

_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy")
"""What package managers ask the environment for."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Sets this machine up: its GPUs, their CDI specs, its inventory."""


@cli.command("setup")
@click.option(
    "--install-nvidia-toolkit",
    "install",
    type=click.Choice(["auto", "true", "false"]),
    help="auto: install NVIDIA's toolkit when an NVIDIA GPU is present; true: in any case; false: leave all of "
    "NVIDIA's alone. Kept by later runs. Without it: what was given last, else --toolkit-default.",
)
@click.option(
    "--toolkit-default",
    "default",
    type=click.Choice(["auto", "true", "false"]),
    default="auto",
    help="What counts until --install-nvidia-toolkit is given once; the operator passes the GpuMachine's "
    "toolkit.install. Default: auto.",
)
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    envvar="GPUGRANT_ROOT",
    default=Path("/"),
    help="Where results go: etc/cdi, etc/rediacc. Default: $GPUGRANT_ROOT, else /.",
)
@click.option(
    "--hardware",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path("/"),
    help="Where the machine is read from (sys, proc, dev, usr), such as a recorded tree. Default: /.",
)
@click.option(
    "--daemon-units",
    "daemon_units",
    multiple=True,
    metavar="PATTERN",
    help="Units of the repos' daemons, such as docker@*.service: they are shown the socket of nvidia-persistenced. May "
    f"be repeated; kept by later runs. Without it: what was given last, else {', '.join(DAEMON_UNITS)}.",
)
@click.option("--offline", is_flag=True, help="Install nothing; a missing toolkit is a failure.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="json: the inventory.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
def setup_command(
    install: Install | None,
    default: Install,
    root: Path,
    hardware: Path,
    daemon_units: tuple[str, ...],
    offline: bool,
    output: Literal["text", "json"],
    dry_run: bool,
) -> None:
    """Detects the GPUs, makes the CDI specs and records the inventory. Configures no container runtime."""
    for pattern in daemon_units:
        if units.drop_in_folder(pattern) is None:
            raise click.BadParameter(f'"{pattern}" is no unit, template or prefix: docker@*.service, docker-*.service')
    options = setup.Options(
        root.absolute(),
        hardware.resolve(),
        install,
        dry_run,
        default,
        offline=offline,
        daemon_units=daemon_units,
        command=(sys.executable, "-m", "gpugrant_operator.cli.renet", "setup"),
        environ={name: value for name, value in os.environ.items() if name.lower() in _PROXIES},
    )
    try:
        with progress.following(sys.stderr) as say:
            outcome = setup.run(options, lambda: datetime.now(UTC), say)
    except setup.Busy as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise click.ClickException(f"the inventory was not written: {error.filename or root}: {reason}") from error
    click.echo(outcome.inventory.dump() if output == "json" else _text(outcome, dry_run=dry_run), nl=output == "text")
    for sentence in outcome.failures:
        click.echo(f"renet: {sentence}", err=True)
    sys.exit(outcome.exit_code)


def _text(outcome: setup.Outcome, *, dry_run: bool) -> str:
    found = outcome.inventory
    names = ", ".join(gpu.name for gpu in found.gpus) or "none"
    lines = [f"{found.hostname} ({found.platform}): {_count(len(found.gpus), 'GPU')}: {names}"]
    lines.append(f"devices: {', '.join(found.device_names) or 'none'}")
    lines += [f"{'would run' if dry_run else 'ran'}: {clause}" for clause in outcome.actions]
    lines += [f"{'would write' if dry_run else 'written'}: {path}" for path in outcome.written]
    lines += [f"{'would remove' if dry_run else 'removed'}: {path}" for path in outcome.removed]
    lines += [f"problem: {problem.reason}: {problem.message}" for problem in _untold(outcome)]
    return "\n".join(lines)


def _untold(outcome: setup.Outcome) -> list[Problem]:
    """Without those that are said on stderr as failures."""
    return [problem for problem in outcome.inventory.problems if problem.message not in outcome.failures]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _terminated(signum: int, _frame: FrameType | None) -> None:
    """SIGTERM as an exit that unwinds: the programs that were started are ended on the way."""
    sys.exit(128 + signum)


def main() -> None:
    """The `renet` program."""
    signal.signal(signal.SIGTERM, _terminated)
    cli(prog_name="renet")


if __name__ == "__main__":
    main()
