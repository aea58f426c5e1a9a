"""`gpugrant gate …`: the contract of the arguments; what they do lies in the modules beside this one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

import click

from gpugrant_operator.cli import completing, options


@click.group(invoke_without_command=True)
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
