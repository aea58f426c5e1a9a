"""`gpugrant repo …`: the contract of the arguments; what they do lies in the modules beside this one."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from gpugrant_operator.cli import completing, options


@click.group()
def repo() -> None:
    """Put repos' daemons behind the gate."""


@repo.command("add")
@click.argument("name")
@options.root
@click.option("--upstream", type=options.ABSOLUTE, required=True, metavar="SOCK", help="The daemon's own socket.")
@click.option(
    "--id",
    "repo_id",
    metavar="ID",
    help="The repo's id. Default: that of its sealed folder if no repo had it before, else random.",
)
@click.option(
    "--listen", type=options.ABSOLUTE, metavar="SOCK", help="Where the gate listens. Default: below the root."
)
@click.option(
    "--sealed",
    is_flag=True,
    help="The daemon sees only the CDI specs of this repo's granted devices. Found out where it does already.",
)
@click.option(
    "--daemon-config",
    type=options.ABSOLUTE,
    metavar="FILE",
    help="The daemon's daemon.json. Without it builds with BuildKit are refused.",
)
def repo_add(
    name: str,
    root: Path,
    upstream: Path,
    repo_id: str | None,
    listen: Path | None,
    sealed: bool,
    daemon_config: Path | None,
) -> None:
    """Put the daemon of the repo NAME behind the gate."""
    from gpugrant_operator.cli import repo_commands as commands

    commands.add(
        root, name, upstream=upstream, repo_id=repo_id, listen=listen, sealed=sealed, daemon_config=daemon_config
    )


@repo.command("remove")
@click.argument("name", shell_complete=completing.local_repos)
@options.root
def repo_remove(name: str, root: Path) -> None:
    """Take the repo NAME from the gate; its daemon goes on running."""
    from gpugrant_operator.cli import repo_commands as commands

    commands.remove(root, name)


@repo.command("seal")
@click.argument("name", shell_complete=completing.local_repos)
@options.root
@click.option(
    "--unit", metavar="UNIT", help="The daemon's service. Default: that of its process, else docker-NAME.service."
)
def repo_seal(name: str, root: Path, unit: str | None) -> None:
    """Let the daemon of the repo NAME see only the CDI specs of its granted devices, from its next start on.

    Writes a drop-in of the daemon's systemd unit and restarts nothing.
    """
    from gpugrant_operator.cli import seal_command

    seal_command.seal(root, name, unit=unit)


@repo.command("adopt")
@click.argument("name", shell_complete=completing.local_repos)
@options.root
@click.option("--dry-run", is_flag=True, help="Say what would be granted, and write nothing.")
@options.timeout("30s")
@click.option("-n", "--namespace", metavar="NAMESPACE", help="Default: the context's, else default.")
def repo_adopt(name: str, root: Path, dry_run: bool, timeout: timedelta, namespace: str | None) -> None:
    """Grant to the repo NAME the devices that its running containers use already.

    For a host that used GPUs before it had a gate. What is used in a way that no grant is for is listed, and left as
    it is.
    """
    from gpugrant_operator.cli import adopt_command

    adopt_command.adopt(root, name, namespace=namespace, dry_run=dry_run, timeout=timeout)


@repo.command("list")
@options.root
@options.output("table", "json")
def repo_list(root: Path, output: str) -> None:
    """List the repos and what the gate says of their daemons."""
    from gpugrant_operator.cli import repo_commands as commands

    commands.show(root, as_json=output == "json")
