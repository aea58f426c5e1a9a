"""The gate against the daemon's own socket and HAProxy, on real Docker daemons: python tests/bench/gate [--only NAME].

Needs root, and once a Debian mirror (HAProxy and h2load are unpacked into the cache, nothing is installed). Prints what
design 12 asks for and whether it is reached; exits 0 in any case, for another program beside it changes every number.
"""

from __future__ import annotations

import argparse
import time

import cases
import stand
from cases import CASES, Options


def main() -> None:
    parser = argparse.ArgumentParser("tests/bench/gate", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(CASES), help="this part; may be repeated")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds of each side (default: 5)")
    parser.add_argument("--requests", type=int, default=20_000, help="small requests of one run (default: 20,000)")
    parser.add_argument(
        "--size", type=int, default=2000, help="MB of the image that is loaded and saved (default: 2000)"
    )
    parser.add_argument("--workers", type=int, help="of the gate (default: its own)")
    given = parser.parse_args()
    began = time.monotonic()
    options = Options(given.rounds, given.requests, given.size)
    verdicts: list[cases.Verdict] = []
    with stand.standing(given.workers) as made:
        for name in given.only or CASES:
            verdicts += CASES[name](made, options)
    print(f"\nafter {time.monotonic() - began:.0f} s:")
    for verdict in verdicts:
        print(verdict)


if __name__ == "__main__":
    main()
