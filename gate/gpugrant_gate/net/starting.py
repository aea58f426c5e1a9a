"""A start of the gate's own: judged as a client's would be, noted down as one, and sent as one (design 5, daemons)."""

from __future__ import annotations

from typing import Any

from gpugrant_gate.life.admitted import Unwritable
from gpugrant_gate.net import orders
from gpugrant_gate.net.turn import Host
from gpugrant_gate.policy.model import MAX_ROUNDS, Admission, Decision, Fact, Head, Refusal
from gpugrant_gate.wire import framing, messages


async def start(container: str, host: Host) -> bool:
    """Whether the daemon has started it; False where it may not be, too. Raises Unreachable."""
    decision = await _judged(container, host)
    if not isinstance(decision, Admission) or not decision.starts:
        return False
    end = host.begin(decision.devices)
    try:
        started = await host.admit(decision.starts, decision.devices)
    except Unwritable:
        end()
        return False
    try:
        sent = decision.outgoing
        head = messages.request(sent.method, sent.target, sent.headers, framing.NONE)
        return await orders.told(host.repo.upstream, head, host.limits, host.limits.fact_timeout) == 204
    finally:
        started()
        end()


async def _judged(container: str, host: Host) -> Decision:
    policy = host.policy
    head = Head("POST", f"/containers/{container}/start", (), (1, 1), has_body=False)
    routed = policy.route(head, host.view())
    if isinstance(routed, Refusal):
        return routed
    found: dict[Fact, Any] = {}
    for _ in range(MAX_ROUNDS):
        needs = policy.needs(routed, b"", host.view(), found)
        if isinstance(needs, Refusal):
            return needs
        wanted = tuple(fact for fact in needs.facts if fact not in found)
        if not wanted:
            break
        found |= await host.facts(wanted, host.view())
    return policy.judge(routed, b"", found, host.view())
