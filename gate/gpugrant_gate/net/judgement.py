"""The real policy as sessions take it: the three pure steps, side by side."""

from __future__ import annotations

from gpugrant_gate.policy import judge, routes, rules


class Judgement:
    """`policy.routes` and `policy.judge`; holds nothing."""

    route = staticmethod(routes.route)
    needs = staticmethod(judge.needs)
    judge = staticmethod(judge.judge)
    seen = staticmethod(rules.seen)
