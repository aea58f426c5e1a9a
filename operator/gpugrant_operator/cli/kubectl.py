"""`kubectl gpugrant`: the commands of `gpugrant` where people type kubectl (kubectl finds kubectl-gpugrant in PATH)."""

from __future__ import annotations

from gpugrant_operator.cli import console
from gpugrant_operator.cli.gpugrant import cli


def main() -> None:
    """The plugin `kubectl-gpugrant`."""
    console.run(cli, "kubectl gpugrant")


if __name__ == "__main__":
    main()
