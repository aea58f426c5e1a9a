"""`gpugrant service install` and `remove`: the instance of this machine as a systemd service."""

from __future__ import annotations

import contextlib
import shutil
import sys
from pathlib import Path

import click

from gpugrant_crds.layout import Layout
from gpugrant_operator import repos
from gpugrant_operator.cli import console, instance, service, systemd
from gpugrant_operator.cli.console import Failure
from gpugrant_operator.repos import Refused
from gpugrant_operator.supervisor import parts

HERE = Path("/")


def install(root: Path, manifests: tuple[Path, ...]) -> None:
    """Writes the unit, enables and starts it; an instance that runs is taken over, without a pause."""
    layout = Layout(root)
    path = root / service.PATH
    elsewhere = () if root == HERE else ("--root", str(root))
    command = (str(_program()), "up", *elsewhere, *parts.manifest_options(manifests))
    systemctl = _systemctl(root)
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        repos.replace(path, service.unit(command))
        if systemctl is None:
            console.note(f"note: systemd does not run here, or not below {root}: nothing is started")
            click.echo(f"written: {path}")
            return
        systemd.call(systemctl, "daemon-reload")
        systemd.call(systemctl, "enable", service.NAME)
        if systemd.call(systemctl, "show", "--property=ActiveState", "--value", service.NAME).strip() == "active":
            systemd.call(systemctl, "reload", service.NAME)
        else:
            instance.give_way(layout)
            systemd.call(systemctl, "start", service.NAME)
    except Refused as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise console.os_error(error, f"can't write {path}") from error
    instance.await_ready(layout)
    click.echo(f"{service.NAME} runs and is enabled ({path}); after an upgrade: systemctl reload {service.NAME}")


def remove(root: Path) -> None:
    """Stops the service and takes the unit away; the data stays."""
    path = root / service.PATH
    if not path.exists():
        click.echo(f"there is no {path}")
        return
    systemctl = _systemctl(root)
    try:
        if systemctl is not None:
            systemd.call(systemctl, "disable", "--now", service.NAME)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        if systemctl is not None:
            systemd.call(systemctl, "daemon-reload")
    except Refused as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise console.os_error(error, f"can't remove {path}") from error
    layout = Layout(root)
    click.echo(f"{service.NAME} is removed; the data stays in {layout.etc} and {layout.state}")


def _program() -> Path:
    """The `gpugrant` that belongs to this Python: a unit must not depend on anybody's PATH."""
    beside = Path(sys.executable).parent / "gpugrant"
    if not beside.exists():
        raise Failure(f"there is no {beside}, which the unit would start: install the package gpugrant there")
    return beside


def _systemctl(root: Path) -> str | None:
    return shutil.which("systemctl") if root == HERE and systemd.BOOTED.is_dir() else None
