"""`gpugrant doctor`: looks, judges, mends what it is asked to mend, and says the rest with its mend."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from gpugrant_crds.layout import Layout
from gpugrant_operator.cli import console
from gpugrant_operator.cli.doctor import checks, gather, mends
from gpugrant_operator.cli.doctor.checks import Check
from gpugrant_operator.cli.doctor.seen import Finding, Seen

Judged = tuple[tuple[Check, tuple[Finding, ...]], ...]


def run(root: Path, *, fix: bool, as_json: bool) -> None:
    """Prints what is wrong; exits 1 when a problem is left."""
    layout = Layout(root)
    seen = _look(layout)
    judged = checks.judge(seen)
    if fix and _mend(judged, seen):
        judged = checks.judge(_look(layout))
    click.echo(json.dumps(document(judged), indent=2) if as_json else text(judged))
    problems = any(finding.level == "problem" for _, findings in judged for finding in findings)
    sys.exit(1 if problems else 0)


def _look(layout: Layout) -> Seen:
    return gather.look(layout, now=datetime.now(UTC), version=metadata.version("gpugrant"))


def _mend(judged: Judged, seen: Seen) -> bool:
    """Whether something was tried; each mend once."""
    wanted = dict.fromkeys(its.mend for _, findings in judged for its in findings if its.mend is not None)
    for mend in wanted:
        failed = mends.mend(mend, seen.layout, seen.hardware)
        if failed is not None:
            console.note(f"note: {failed}")
    return bool(wanted)


def document(judged: Judged) -> dict[str, Any]:
    """`gpugrant doctor -o json`. Pure."""
    return {
        "checks": [
            {
                "name": check.name,
                "ok": not any(finding.level == "problem" for finding in findings),
                "findings": [
                    {
                        "level": finding.level,
                        "message": finding.message,
                        "fix": finding.fix,
                        "fixable": finding.mend is not None,
                    }
                    for finding in findings
                ],
            }
            for check, findings in judged
        ]
    }


def text(judged: Judged) -> str:
    """A line a check that is well; of the others each finding, with its mend below. Pure."""
    lines = []
    for check, findings in judged:
        if not findings:
            lines.append(f"ok       {check.what}")
        for finding in findings:
            lines += [f"{finding.level:<8} {finding.message}", f"         -> {finding.fix}"]
    return "\n".join(lines)
