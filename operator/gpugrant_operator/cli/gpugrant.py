"""`gpugrant`: an instance on this machine, its parts, and the repos behind its gate.

The contract of the arguments; what they do lies in the modules beside this one, which are read when they are needed.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

import click

from gpugrant_operator.cli import completing, completion_command, console, options


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


@cli.group(invoke_without_command=True)
@options.root
@options.hardware
@click.option("--listen", type=options.ABSOLUTE, metavar="SOCK", help="One repo with fixed grants: listen here.")
@click.option("--upstream", type=options.ABSOLUTE, metavar="SOCK", help="One repo: its daemon's own socket.")
@click.option("--repo", metavar="NAME", help="One repo: its name.")
@click.option("--grant", "grants", multiple=True, metavar="DEVICE", help="One repo: a granted device; repeatable.")
@click.option("--policy", type=options.ABSOLUTE, metavar="FILE", help="One repo: a file as in repos.d.")
@click.option(
    "--enforce",
    is_flag=True,
    help="Stop also what ran with ungranted devices before the first start; one repo: stop it at all.",
)
@click.pass_context
def gate(
    context: click.Context,
    root: Path,
    hardware: Path,
    listen: Path | None,
    upstream: Path | None,
    repo: str | None,
    grants: tuple[str, ...],
    policy: Path | None,
    enforce: bool,
) -> None:
    """Run the gate alone, or one repo's gate with fixed grants.

    With --listen, --upstream and --repo it serves that one repo and needs no operator: for trials and benches.
    """
    from gpugrant_operator.cli import gate_commands as commands

    trial = commands.trial_of(listen=listen, upstream=upstream, repo=repo, grants=grants, policy=policy)
    if context.invoked_subcommand is not None:
        if trial is not None or enforce:
            raise click.UsageError(f'give the options after "{context.invoked_subcommand}"')
        return
    sys.exit(commands.serve(root, hardware=hardware, trial=trial, enforce=enforce))


@gate.command()
@options.root
@click.option(
    "--repo", metavar="NAME", help="The repo's name; its file in repos.d and its grants count. Default: the policy's."
)
@click.option(
    "--grant",
    "grants",
    multiple=True,
    metavar="DEVICE",
    help="A granted device, beside what the repo holds here; repeatable.",
)
@click.option("--policy", type=options.ABSOLUTE, metavar="FILE", help="A file as in repos.d, in its place.")
@click.option(
    "--facts",
    multiple=True,
    type=options.ABSOLUTE,
    metavar="FILE",
    help="What the daemon says: the output of docker inspect, docker info or docker version -f json; repeatable.",
)
@click.argument("file", type=click.File("rb"))
def explain(
    root: Path,
    repo: str | None,
    grants: tuple[str, ...],
    policy: Path | None,
    facts: tuple[Path, ...],
    file: BinaryIO,
) -> None:
    """Judge the raw HTTP request in FILE (- for stdin); exit 0 when it is admitted, 1 when it is refused.

    It prints the rules that refuse it, or the request as it would go on, with what the gate changes in its body.
    """
    from gpugrant_operator.cli import explain_command as commands

    sys.exit(commands.explain(root, file.read(), repo=repo, grants=grants, policy=policy, facts=facts))


@gate.command("rules")
@options.output("table", "json")
def gate_rules(output: str) -> None:
    """List what each rule of the gate prevents, and what can be opened for a repo."""
    from gpugrant_operator.cli import rules_command

    rules_command.show(output)


@gate.group()
def binds() -> None:
    """Pin the bind sources of repos."""


@binds.command("restore")
@options.root
@click.argument("name", shell_complete=completing.local_repos)
def binds_restore(root: Path, name: str) -> None:
    """Pin the sources of repo NAME's containers again, before its daemon starts (after a boot).

    Run it where the daemon will see the mounts: in the machine's own mount namespace, or in the daemon's.
    """
    from gpugrant_operator.cli import binds_command, gate_commands

    binds_command.restore(root, gate_commands.checked_repo(name))


@gate.command()
@options.root
@click.option("--repo", metavar="NAME", help="Only this repo's. Default: all repos'.")
@click.option("--refused", is_flag=True, help="Only what was not admitted.")
@options.output("text", "json")
def tail(root: Path, repo: str | None, refused: bool, output: str) -> None:
    """Show the gate's decisions as it makes them, until ^C; -o json: as they stand in the audit."""
    from gpugrant_operator.cli import gate_commands, gate_tail

    name = None if repo is None else gate_commands.checked_repo(repo)
    gate_tail.tail(root, repo=name, refused=refused, as_json=output == "json")


@cli.group()
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


def main() -> None:
    """The `gpugrant` program."""
    console.run(cli, "gpugrant")


if __name__ == "__main__":
    main()
