"""`rdc`: machines, and which repo may use which GPU.

The contract of the arguments; what they do lies in the modules beside this one, which are read when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import click

from gpugrant_operator.cli import completing, console, options


def _devices(complete: completing.Complete) -> Callable[[options.F], options.F]:
    return click.option(
        "--device",
        "devices",
        multiple=True,
        required=True,
        metavar="NAME",
        shell_complete=complete,
        help="A CDI device name, for example nvidia.com/gpu=all; repeatable, all or nothing.",
    )


def _waiting(what: str) -> Callable[[options.F], options.F]:
    return click.option("--wait/--no-wait", default=True, help=f"Return when {what}. Default: --wait.")


@click.group(context_settings=console.CONTEXT)
@click.version_option(package_name="gpugrant", prog_name="rdc")
def cli() -> None:
    """GPUs of machines, granted to repos by name.

    Uses the API of KUBECONFIG, else the one of gpugrant up (below GPUGRANT_ROOT, else /).
    """


@cli.group()
def machine() -> None:
    """Machines with GPUs."""


@machine.command("setup")
@click.argument("machine", shell_complete=completing.machines)
@options.timeout("10m")
def machine_setup(machine: str, timeout: timedelta) -> None:
    """Detect the GPUs of MACHINE; return when it is Ready."""
    from gpugrant_operator.cli import setup_command

    setup_command.setup(machine, timeout)


@machine.group("gpu")
def machine_gpu() -> None:
    """The GPUs of a machine."""


@machine_gpu.command("list")
@click.argument("machine", shell_complete=completing.machines)
@options.output("table", "json", "yaml")
def machine_gpu_list(machine: str, output: str) -> None:
    """List the GPUs of MACHINE and who holds each device (json: the inventory as it is recorded there)."""
    from gpugrant_operator.cli import list_commands

    list_commands.machine_gpus(machine, output)


@cli.group()
def repo() -> None:
    """Repos."""


@repo.group("gpu")
def repo_gpu() -> None:
    """The GPUs that repos may use. REPO is a name, or name@machine."""


@repo_gpu.command("grant")
@click.argument("repo", shell_complete=completing.repos)
@_devices(completing.devices)
@click.option("--exclusive", is_flag=True, help="Reserve the devices for this repo.")
@click.option(
    "--expires-in",
    type=options.DURATION,
    metavar="TIME",
    help="End the grant after this: numbers with the units d, h, m, s, for example 8h or 1d12h.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be written or refused, and write nothing.")
@_waiting("the gate enforces it, not already when it is accepted")
@options.timeout("30s")
@click.option("-n", "--namespace", metavar="NAMESPACE", help="Default: the context's, else default.")
def repo_gpu_grant(
    repo: str,
    devices: tuple[str, ...],
    exclusive: bool,
    expires_in: timedelta | None,
    dry_run: bool,
    wait: bool,
    timeout: timedelta,
    namespace: str | None,
) -> None:
    """Let REPO use devices of its machine."""
    from gpugrant_operator.cli import grant_commands

    grant_commands.grant(
        repo,
        devices,
        exclusive=exclusive,
        expires_in=expires_in,
        namespace=namespace,
        dry_run=dry_run,
        wait=wait,
        timeout=timeout,
    )


@repo_gpu.command("revoke")
@click.argument("repo", shell_complete=completing.repos)
@_devices(completing.granted)
@_waiting("the gate enforces it, not already when the grants are deleted")
@options.timeout("30s")
def repo_gpu_revoke(repo: str, devices: tuple[str, ...], wait: bool, timeout: timedelta) -> None:
    """Take devices from REPO, in all namespaces. Containers that run with one are listed, not stopped."""
    from gpugrant_operator.cli import grant_commands

    grant_commands.revoke(repo, devices, wait=wait, timeout=timeout)


@repo_gpu.command("list")
@click.argument("repo", required=False, shell_complete=completing.repos)
@options.output("table", "json", "yaml")
def repo_gpu_list(repo: str | None, output: str) -> None:
    """List the grants of REPO, or all."""
    from gpugrant_operator.cli import list_commands

    list_commands.repo_grants(repo, output)


@repo_gpu.command("explain")
@click.argument("repo", shell_complete=completing.repos)
@click.option(
    "--device",
    required=True,
    metavar="NAME",
    shell_complete=completing.devices,
    help="A CDI device name, for example nvidia.com/gpu=all.",
)
@options.output("table", "json", "yaml")
def repo_gpu_explain(repo: str, device: str, output: str) -> None:
    """Say whether REPO may use a device right now, and what says so; exit 1 unless it may."""
    from gpugrant_operator.cli import list_commands

    list_commands.explain(repo, device, output)


def main() -> None:
    """The `rdc` program."""
    console.run(cli, "rdc")


if __name__ == "__main__":
    main()
