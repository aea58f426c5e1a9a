"""Every endpoint of the Engine API 1.24 to 1.56 has its verdict: passed, judged, or refused by a rule that is named.

The list is what moby's daemon/server/router registers, router by router in its order (checkpoint, container, image,
system, volume, build, session, swarm, plugin, distribution, network, debug, grpc), written by hand from its source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from dockerclient import head, repo
from gpugrant_gate.policy import judge, routes
from gpugrant_gate.policy.model import Refusal, Routed

ROUTER = """
GET    /containers/{name}/checkpoints              refused hw.checkpoints
POST   /containers/{name}/checkpoints              refused hw.checkpoints
DELETE /containers/{name}/checkpoints/{checkpoint} refused hw.checkpoints

HEAD   /containers/{name}/archive                  judged
GET    /containers/json                            passed
GET    /containers/{name}/export                   passed
GET    /containers/{name}/changes                  passed
GET    /containers/{name}/json                     passed
GET    /containers/{name}/top                      passed
GET    /containers/{name}/logs                     passed
GET    /containers/{name}/stats                    passed
GET    /containers/{name}/attach/ws                judged
GET    /exec/{id}/json                             passed
GET    /containers/{name}/archive                  judged
POST   /containers/create                          judged
POST   /containers/{name}/kill                     passed
POST   /containers/{name}/pause                    passed
POST   /containers/{name}/unpause                  judged
POST   /containers/{name}/restart                  judged
POST   /containers/{name}/start                    judged
POST   /containers/{name}/stop                     passed
POST   /containers/{name}/wait                     passed
POST   /containers/{name}/resize                   passed
POST   /containers/{name}/attach                   judged
POST   /containers/{name}/exec                     judged
POST   /exec/{id}/start                            judged
POST   /exec/{id}/resize                           passed
POST   /containers/{name}/rename                   passed
POST   /containers/{name}/update                   judged
POST   /containers/prune                           passed
POST   /commit                                     judged
PUT    /containers/{name}/archive                  judged
DELETE /containers/{name}                          passed

GET    /images/json                                passed
GET    /images/search                              passed
GET    /images/get                                 passed
GET    /images/{image}/get                         passed
GET    /images/{image}/history                     passed
GET    /images/{image}/json                        passed
GET    /images/{image}/attestations                passed
POST   /images/load                                passed
POST   /images/create                              judged
POST   /images/create?fromSrc=-                    judged
POST   /images/{image}/push                        passed
POST   /images/{image}/tag                         passed
POST   /images/prune                               passed
DELETE /images/{image}                             passed

OPTIONS /{anyroute}                                refused route.options
GET    /_ping                                      passed
HEAD   /_ping                                      passed
GET    /events                                     passed
GET    /info                                       passed
GET    /version                                    passed
GET    /system/df                                  passed
POST   /auth                                       judged

GET    /volumes                                    passed
GET    /volumes/{name}                             passed
POST   /volumes/create                             judged
POST   /volumes/prune                              passed
PUT    /volumes/{name}                             refused hw.volumes
DELETE /volumes/{name}                             passed

POST   /build                                      judged
POST   /build/prune                                passed
POST   /build/cancel                               passed

POST   /session                                    judged

POST   /swarm/init                                 refused hw.swarm
POST   /swarm/join                                 refused hw.swarm
POST   /swarm/leave                                refused hw.swarm
GET    /swarm                                      refused hw.swarm
GET    /swarm/unlockkey                            refused hw.swarm
POST   /swarm/update                               refused hw.swarm
POST   /swarm/unlock                               refused hw.swarm
GET    /services                                   passed
GET    /services/{name}                            passed
POST   /services/create                            refused hw.swarm
POST   /services/{name}/update                     refused hw.swarm
DELETE /services/{name}                            refused hw.swarm
GET    /services/{name}/logs                       refused hw.swarm
GET    /nodes                                      passed
GET    /nodes/{name}                               passed
DELETE /nodes/{name}                               refused hw.swarm
POST   /nodes/{name}/update                        refused hw.swarm
GET    /tasks                                      passed
GET    /tasks/{name}                               passed
GET    /tasks/{name}/logs                          refused hw.swarm
GET    /secrets                                    refused hw.swarm
POST   /secrets/create                             refused hw.swarm
DELETE /secrets/{name}                             refused hw.swarm
GET    /secrets/{name}                             refused hw.swarm
POST   /secrets/{name}/update                      refused hw.swarm
GET    /configs                                    refused hw.swarm
POST   /configs/create                             refused hw.swarm
DELETE /configs/{name}                             refused hw.swarm
GET    /configs/{name}                             refused hw.swarm
POST   /configs/{name}/update                      refused hw.swarm

GET    /plugins                                    passed
GET    /plugins/{image}/json                       passed
GET    /plugins/privileges                         refused hw.plugins
DELETE /plugins/{image}                            refused hw.plugins
POST   /plugins/{image}/enable                     refused hw.plugins
POST   /plugins/{image}/disable                    refused hw.plugins
POST   /plugins/pull                               refused hw.plugins
POST   /plugins/{image}/push                       refused hw.plugins
POST   /plugins/{image}/upgrade                    refused hw.plugins
POST   /plugins/{image}/set                        refused hw.plugins
POST   /plugins/create                             refused hw.plugins

GET    /distribution/{image}/json                  passed

GET    /networks                                   passed
GET    /networks/                                  refused http.path
GET    /networks/{name}                            passed
POST   /networks/create                            judged
POST   /networks/{name}/connect                    judged
POST   /networks/{name}/disconnect                 judged
POST   /networks/prune                             passed
DELETE /networks/{name}                            passed

GET    /debug/vars                                 refused route.debug
GET    /debug/pprof/                               refused http.path
GET    /debug/pprof/cmdline                        refused route.debug
GET    /debug/pprof/profile                        refused route.debug
GET    /debug/pprof/symbol                         refused route.debug
GET    /debug/pprof/trace                          refused route.debug
GET    /debug/pprof/{name}                         refused route.debug

POST   /grpc                                       judged
"""
NAMES = {"{name}": "web", "{id}": "0123456789abcdef", "{checkpoint}": "cp", "{image}": "docker.io/library/x"}
VIEW = repo(api_version="1.56")


@dataclass(frozen=True, slots=True)
class Row:
    method: str
    target: str
    verdict: str
    rule: str


def rows() -> list[Row]:
    found = []
    for line in ROUTER.splitlines():
        if line:
            method, pattern, verdict, *rule = line.split()
            target = re.sub(r"\{[a-z]+\}", lambda match: NAMES.get(match[0], "any/route"), pattern)
            found.append(Row(method, target, verdict, rule[0] if rule else ""))
    return found


ROWS = rows()


@pytest.mark.parametrize("prefix", ["", "/v1.24", "/v1.44", "/v1.56"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.method} {row.target}")
@pytest.mark.req("R4", "R45")
def test_has_its_verdict(row: Row, prefix: str) -> None:
    found = routes.route(head(row.method, prefix + row.target), VIEW)
    if isinstance(found, Refusal):
        assert row.verdict == "refused"
        assert [broken.rule for broken in found.violations] == [row.rule]
        assert found.message
    else:
        assert row.verdict == ("judged" if found.route in judge.JUDGES else "passed")


def test_no_row_of_the_gate_is_for_an_endpoint_that_no_daemon_has() -> None:
    routed = (routes.route(head(row.method, row.target), VIEW) for row in ROWS)
    assert {found.route for found in routed if isinstance(found, Routed)} == {row.id for row in routes.ROUTES}


@pytest.mark.parametrize("method", ["PATCH", "TRACE", "CONNECT", "get", "post", ""])
def test_no_method_that_no_daemon_has_finds_an_endpoint(method: str) -> None:
    for row in ROWS:
        assert isinstance(routes.route(head(method, row.target), VIEW), Refusal), row.target


@pytest.mark.parametrize("row", [row for row in ROWS if row.verdict != "refused"], ids=lambda row: row.target)
@pytest.mark.req("R45")
def test_an_unknown_query_key_is_refused_by_name(row: Row) -> None:
    joint = "&" if "?" in row.target else "?"
    found = routes.route(head(row.method, f"{row.target}{joint}unheardof=1"), VIEW)
    assert isinstance(found, Refusal)
    assert '"unheardof"' in found.message
