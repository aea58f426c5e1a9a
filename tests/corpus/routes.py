"""Every endpoint of a daemon by the wrong method, with an upgrade and a request behind it, with a form for a body."""

from __future__ import annotations

from intruder import SMUGGLED, Attack, lines, one, raw

DAEMON = """
GET /_ping
GET /version
GET /info
GET /system/df?type=volume
GET /events?since=1&until=2
POST /auth
GET /containers/json
GET /containers/nobody/json
GET /containers/nobody/top
GET /containers/nobody/logs?stdout=1
GET /containers/nobody/stats?stream=0
GET /containers/nobody/changes
GET /containers/nobody/export
GET /containers/nobody/archive?path=/
GET /containers/nobody/attach/ws
GET /containers/nobody/checkpoints
PUT /containers/nobody/archive?path=/
POST /containers/create?name=nobody
POST /containers/nobody/start
POST /containers/nobody/restart
POST /containers/nobody/stop
POST /containers/nobody/kill
POST /containers/nobody/pause
POST /containers/nobody/unpause
POST /containers/nobody/wait
POST /containers/nobody/resize?h=1&w=1
POST /containers/nobody/rename?name=other
POST /containers/nobody/update
POST /containers/nobody/attach?stream=1
POST /containers/nobody/exec
POST /containers/nobody/checkpoints
DELETE /containers/nobody
POST /exec/0000/start
POST /exec/0000/resize?h=1&w=1
GET /exec/0000/json
GET /images/json
GET /images/get?names=nobody
GET /images/nobody/get
GET /images/nobody/json
GET /images/nobody/history
POST /images/load
POST /images/create?fromSrc=-
POST /images/nobody/push
POST /images/nobody/tag?repo=x
DELETE /images/nobody
POST /commit?container=nobody
POST /build
POST /build/cancel?id=x
POST /session
POST /grpc
GET /volumes
GET /volumes/nobody
POST /volumes/create
PUT /volumes/nobody
DELETE /volumes/nobody
GET /networks
GET /networks/nobody
POST /networks/create
POST /networks/nobody/connect
POST /networks/nobody/disconnect
DELETE /networks/nobody
GET /swarm
GET /services
GET /plugins
GET /secrets
GET /debug/vars
"""
"""moby's daemon/server/router, less what asks a registry or prunes; nobody is nobody's name."""
ROUTES = [tuple(row.split(" ")) for row in DAEMON.split("\n") if row]
IN_REQUESTS = (("/containers/nobody/attach?stream=1", "tcp"), ("/grpc", "h2c"), ("/session", "h2c"))
HAVE_HEAD = ("/_ping", "/containers/nobody/archive?path=/")


def named(what: str, method: str, target: str) -> str:
    return f"{what}.{method.lower()}-{target.partition('?')[0].strip('/').replace('/', '-')}"


HEADS = [
    one(named("head", method, target), raw("HEAD", target))
    for method, target in ROUTES
    if method == "GET" and target not in HAVE_HEAD
]
UPGRADES = [
    Attack(
        named(f"upgrade-{protocol}", method, target),
        (
            lines(
                f"{method} {target} HTTP/1.1",
                "Host: docker",
                "Connection: Upgrade",
                f"Upgrade: {protocol}",
                "Content-Length: 0",
                body=SMUGGLED,
            ),
        ),
        free=True,
    )
    for method, target in ROUTES
    for protocol in ("tcp", "h2c")
    if (target, protocol) not in IN_REQUESTS
]
FORMS = [
    one(named("form", method, target), raw(method, target, "name=evil", f"Content-Type: {kind}"))
    for method, target in ROUTES
    if method in ("POST", "PUT")
    for kind in ("application/x-www-form-urlencoded",)
]
OTHERS = [
    one(named("other", method, target), raw(method, target))
    for _, target in ROUTES
    for method in ("PATCH", "OPTIONS")
    if target.startswith(("/containers/create", "/containers/nobody/s", "/volumes/c", "/images/l", "/_ping"))
]

TABLE = [*HEADS, *UPGRADES, *FORMS, *OTHERS]
