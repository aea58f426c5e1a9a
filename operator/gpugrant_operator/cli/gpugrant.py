"""`gpugrant`: an instance on this machine, its parts, and the repos behind its gate.

The contract of the arguments; what they do lies in the modules beside this one, which are read when they are needed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gpugrant_operator.cli import completing, completion_command, console, gate_group, options, repo_group


@click.group(context_settings=console.CONTEXT)
@click.version_option(package_name="gpugrant", prog_name="gpugrant")
def cli() -> None:
    """GPU access for Docker repos, granted by CDI device name and enforced by an API gate."""


@cli.command()
@options.root
@click.option("--detach", is_flag=True, help="Return once all is ready (exit 3 when it isn't in 60 s).")
@options.hardware
@options.manifests
@click.option(
    "--enforce",
    is_flag=True,
    help="Stop also what ran with devices that were not granted before the gate's very first start.",
)
def up(root: Path, detach: bool, hardware: Path, manifests: tuple[Path, ...], enforce: bool) -> None:
    """Start all parts on this machine, with the repos of repos.d.

    Stays in the foreground and stops the parts when it is asked to end. Parts that run already are kept.
    """
    from gpugrant_operator.cli import instance

    options.check_apart(root, manifests)
    instance.up(root, hardware=hardware, detach=detach, enforce=enforce, manifests=manifests)


@cli.command()
@options.root
def down(root: Path) -> None:
    """Stop the supervisor and the parts, and nothing else; the data stays."""
    from gpugrant_operator.cli import instance

    instance.down(root)


@cli.command()
@options.root
@options.output("table", "json")
def status(root: Path, output: str) -> None:
    """Show what runs; exit 0 when all parts are well, else 1."""
    from gpugrant_operator.cli import instance

    instance.status(root, as_json=output == "json")


@cli.command()
@options.root
@click.option("--fix", is_flag=True, help="Mend what can be mended without a loss.")
@options.output("text", "json")
def doctor(root: Path, fix: bool, output: str) -> None:
    """Say what is wrong on this machine and how to mend it; exit 1 when a problem is found.

    It looks at the parts, the repos' daemons and sockets, the CDI specs, the inventory, the access to the API, the
    clock and the grants, whether or not anything runs.
    """
    from gpugrant_operator.cli import doctor_command

    doctor_command.run(root, fix=fix, as_json=output == "json")


@cli.command()
@options.root
@options.manifests
def apiserver(root: Path, manifests: tuple[Path, ...]) -> None:
    """Run the API server alone: a Kubernetes-compatible API over a directory of YAML files."""
    from gpugrant_operator.apiserver import main as part

    options.check_apart(root, manifests)
    sys.exit(part.run(root, sources=manifests))


@cli.command()
@options.root
@options.hardware
def operator(root: Path, hardware: Path) -> None:
    """Run the operator alone: it needs only KUBECONFIG and GPUGRANT_ROOT."""
    from gpugrant_operator.controller import main as part

    sys.exit(part.run(root, hardware=hardware))


@cli.group()
def machine() -> None:
    """Machines whose GPUs are granted."""


@machine.command("release")
@click.argument("device")
@options.root
@click.option(
    "--machine",
    "name",
    metavar="MACHINE",
    shell_complete=completing.machines,
    help="Default: the only one there is.",
)
@click.option("--force", is_flag=True, required=True, help="Needed: a container may go on using the device.")
def machine_release(device: str, root: Path, name: str | None, force: bool) -> None:
    """Give up on DEVICE, which can't be taken back from a repo: others may have it from now on.

    For a container that survives being killed (RevokeStuck), a daemon or a gate that is gone for good.
    """
    from gpugrant_operator.cli import release_command

    release_command.release(root, device, machine=name)


@cli.group()
def store() -> None:
    """The files of the standalone API server."""


@store.command("verify")
@options.root
@click.pass_context
def store_verify(ctx: click.Context, root: Path) -> None:
    """Check journal, snapshot, objects and manifests; exit 1 when something is wrong. The server may run."""
    from gpugrant_operator.cli import store_command

    if not store_command.check(root):
        ctx.exit(1)


@store.command("backup")
@click.argument("file", type=options.Absolute())
@options.root
def store_backup(file: Path, root: Path) -> None:
    """Write the whole store into FILE, as it is at one moment. The server may run."""
    from gpugrant_operator.cli import store_command

    store_command.back_up(root, file)


@store.command("restore")
@click.argument("file", type=options.Absolute())
@options.root
def store_restore(file: Path, root: Path) -> None:
    """Make the store what the backup in FILE says. The API server must be stopped; what is replaced is kept."""
    from gpugrant_operator.cli import store_command

    store_command.put_back(root, file)


@store.command("accept-deletes")
@options.root
def store_accept_deletes(root: Path) -> None:
    """Let go what vanished at once from a --manifests folder, or with it, and is held back."""
    from gpugrant_operator.cli import store_command

    store_command.accept_deletes(root)


@cli.group("service")
def service_group() -> None:
    """The instance of this machine as a systemd service."""


@service_group.command("install")
@options.root
@options.manifests
def service_install(root: Path, manifests: tuple[Path, ...]) -> None:
    """Write, enable and start gpugrant.service; an instance that runs is taken over without a pause."""
    from gpugrant_operator.cli import service_command

    options.check_apart(root, manifests)
    service_command.install(root, manifests)


@service_group.command("remove")
@options.root
def service_remove(root: Path) -> None:
    """Stop the service and remove its unit; the data stays."""
    from gpugrant_operator.cli import service_command

    service_command.remove(root)


@cli.command()
@click.argument("shell", type=click.Choice(completion_command.SHELLS))
def completion(shell: str) -> None:
    """Print what SHELL needs to complete gpugrant, rdc and renet, with the names of machines, repos and devices.

    \b
    bash: source <(gpugrant completion bash)
    zsh:  source <(gpugrant completion zsh)
    fish: gpugrant completion fish | source
    """
    completion_command.show(shell)


@cli.command()
def crds() -> None:
    """Print the CRD manifests."""
    from gpugrant_crds import schema

    click.echo("---\n".join(schema.manifests().values()), nl=False)


cli.add_command(gate_group.gate)
cli.add_command(repo_group.repo)


def main() -> None:
    """The `gpugrant` program."""
    console.run(cli, "gpugrant")


if __name__ == "__main__":
    main()
