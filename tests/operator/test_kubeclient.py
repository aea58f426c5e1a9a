"""The thin client: kubeconfigs, errors, pages; over real sockets."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from gpugrant_operator import kubeclient
from gpugrant_operator.kubeclient import (
    Access,
    ApiError,
    ApiUnreachable,
    Conflict,
    KubeClient,
    KubeconfigUnusable,
    NotFound,
    read_kubeconfig,
)


def kubeconfig(path: Path, *, cluster: Any = None, user: Any = None, **more: Any) -> Path:
    document = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1/", **(cluster or {})}}],
        "users": [{"name": "u", "user": {"token": "t"} if user is None else user}],
    } | more
    path.write_text(yaml.safe_dump(document))
    return path


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_an_access(tmp_path: Path) -> None:
    """Server, CA, token; inline data and files below the kubeconfig's folder."""
    (tmp_path / "token").write_text("from a file\n")
    (tmp_path / "key.pem").write_text("KEY")
    path = kubeconfig(
        tmp_path / "config",
        cluster={"certificate-authority-data": encoded("CA")},
        user={"tokenFile": "token", "client-certificate-data": encoded("CERT"), "client-key": "key.pem"},
    )

    assert read_kubeconfig((path,)) == Access(
        server="https://127.0.0.1:1", ca="CA", token="from a file", certificate="CERT", key="KEY"
    )


def test_several_files_are_merged_as_kubectl_does(tmp_path: Path) -> None:
    """The first that has an entry wins; files that are not there are passed over."""
    first = kubeconfig(tmp_path / "first", clusters=[], users=[])
    second = kubeconfig(tmp_path / "second", user={"token": "second"}, **{"current-context": "elsewhere"})

    access = read_kubeconfig((tmp_path / "nothing", first, second))

    assert (access.server, access.token) == ("https://127.0.0.1:1", "second")


UNUSABLE: dict[str, tuple[dict[str, Any], str]] = {
    "no context": ({"current-context": ""}, "no current-context"),
    "a context that is not there": ({"current-context": "x"}, 'no context named "x"'),
    "a user that is not there": ({"users": []}, 'no user named "u"'),
    "a cluster without a server": ({"clusters": [{"name": "c", "cluster": {"server": ""}}]}, "has no server"),
    "a program for credentials": ({"user": {"exec": {}}}, 'the user has "exec"; give it a token'),
    "data that is no base64": ({"cluster": {"certificate-authority-data": "*"}}, "is not base64"),
    "a file that is not there": ({"user": {"tokenFile": "nothing"}}, "tokenFile: .*No such file"),
}


@pytest.mark.parametrize(("change", "says"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_unusable_kubeconfigs(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    """One sentence, with the file."""
    path = kubeconfig(tmp_path / "config", **change)

    with pytest.raises(KubeconfigUnusable, match=says) as error:
        read_kubeconfig((path,))
    assert str(path) in str(error.value)


@pytest.mark.parametrize("text", ["[1", "- a list", "\x00"], ids=["no YAML", "no mapping", "no text"])
def test_files_that_are_no_kubeconfig(tmp_path: Path, text: str) -> None:
    """Also one sentence."""
    (tmp_path / "config").write_text(text)

    with pytest.raises(KubeconfigUnusable, match="config"):
        read_kubeconfig((tmp_path / "config",))


def test_no_file_at_all(tmp_path: Path) -> None:
    """It says where it looked."""
    with pytest.raises(KubeconfigUnusable, match=r"there is no kubeconfig at .*config"):
        read_kubeconfig((tmp_path / "config",))


def test_verification_is_on_unless_it_is_turned_off() -> None:
    """By the system's authorities where there is no CA."""
    assert Access("https://x").ssl_context().verify_mode == ssl.CERT_REQUIRED
    assert Access("https://x", insecure=True).ssl_context().verify_mode == ssl.CERT_NONE


@asynccontextmanager
async def api(handler: Any) -> AsyncIterator[KubeClient]:
    """A client of a server that answers everything with `handler`."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with KubeClient(Access(f"http://127.0.0.1:{port}", token="secret")) as client:
            yield client
    finally:
        await runner.cleanup()


async def test_requests_carry_who_asks_and_what() -> None:
    """Token, agent, types; the body as it is."""
    seen: list[tuple[str, str, str, str, str]] = []

    async def handler(request: web.Request) -> web.Response:
        heads = request.headers
        body = await request.text()
        seen.append((request.method, heads["Authorization"], heads["User-Agent"], request.content_type, body))
        return web.json_response({"kind": "Thing"})

    async with api(handler) as client:
        assert await client.get("/a") == {"kind": "Thing"}
        await client.post("/a", {"x": 1})
        await client.put("/a", {"x": 2})
        await client.patch("/a", {"x": None})

    assert [(method, kind, body) for method, _, _, kind, body in seen[1:]] == [
        ("POST", "application/json", '{"x": 1}'),
        ("PUT", "application/json", '{"x": 2}'),
        ("PATCH", "application/merge-patch+json", '{"x": null}'),
    ]
    assert {(token, agent) for _, token, agent, _, _ in seen} == {("Bearer secret", "gpugrant-operator")}


ERRORS: dict[str, tuple[int, dict[str, Any] | None, type[ApiError], str]] = {
    "not found": (404, {"reason": "NotFound", "message": "no such thing"}, NotFound, "no such thing"),
    "a conflict": (409, {"reason": "Conflict", "message": "changed"}, Conflict, "changed"),
    "a refusal": (403, {"reason": "Forbidden", "message": "not you"}, ApiError, "not you"),
    "an error without words": (500, {}, ApiError, "the API answered 500"),
    "no JSON": (502, None, ApiError, "502 without a JSON object"),
}


@pytest.mark.parametrize(("status", "body", "kind", "says"), ERRORS.values(), ids=ERRORS.keys())
async def test_errors(status: int, body: dict[str, Any] | None, kind: type[ApiError], says: str) -> None:
    """Each with its status, reason and sentence."""

    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=status, text="oh") if body is None else web.json_response(body, status=status)

    async with api(handler) as client:
        with pytest.raises(kind, match=says) as error:
            await client.get("/a")
    assert error.value.status == status
    assert type(error.value) is kind


async def test_nobody_there() -> None:
    """Another error than a refusal."""
    async with KubeClient(Access("http://127.0.0.1:1")) as client:
        with pytest.raises(ApiUnreachable, match="does not answer") as error:
            await client.get("/a")
    assert error.value.status == 0


async def test_lists_are_read_to_the_end() -> None:
    """Page by page, as long as the server says that there is more."""
    asked: list[dict[str, str]] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(dict(request.query))
        page = len(asked)
        more = {"continue": f"after-{page}"} if page < 3 else {}
        return web.json_response({"items": [{"page": page}], "metadata": more})

    async with api(handler) as client:
        assert await client.list("/things") == [{"page": 1}, {"page": 2}, {"page": 3}]
    limit = {"limit": str(kubeclient.PAGE)}
    assert asked == [limit, limit | {"continue": "after-1"}, limit | {"continue": "after-2"}]
