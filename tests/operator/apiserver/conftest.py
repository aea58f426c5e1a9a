"""A real API server on a real port over real files, and a small client; nothing is patched."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from gpugrant_crds import schema
from gpugrant_operator.apiserver.server import Server, running
from gpugrant_operator.apiserver.settings import Settings

WIDGETS = "/apis/test.example.com/v1/namespaces/default/widgets"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


def widget_crd() -> dict[str, Any]:
    """A CRD with every schema feature that the server reads."""
    spec = {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 9},
            "colour": {"type": "string", "enum": ["Red", "Blue"], "default": "Red"},
            "label": {"type": "string", "maxLength": 5, "pattern": "^[a-z]+$"},
            "when": {"type": "string", "format": "date-time"},
            "maybe": {"type": "string", "nullable": True},
            "port": {"x-kubernetes-int-or-string": True},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "parts": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "weight": {"type": "integer"}},
                },
            },
            "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
            "fixed": {
                "type": "string",
                "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed can't be changed"}],
            },
        },
        "x-kubernetes-validations": [
            {
                "rule": "!has(self.label) || self.size > 1",
                "messageExpression": "'a labelled widget of size ' + string(self.size) + ' is too small'",
            }
        ],
    }
    status = {
        "type": "object",
        "properties": {
            "observedGeneration": {"type": "integer", "default": -1},
            "conditions": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        name: {"type": "string"}
                        for name in ("type", "status", "reason", "message", "lastTransitionTime")
                    },
                },
            },
        },
        "default": {"observedGeneration": -1},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.test.example.com"},
        "spec": {
            "group": "test.example.com",
            "scope": "Namespaced",
            "names": {
                "kind": "Widget",
                "listKind": "WidgetList",
                "plural": "widgets",
                "singular": "widget",
                "shortNames": ["wd"],
                "categories": ["things"],
            },
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "selectableFields": [{"jsonPath": ".spec.colour"}],
                    "additionalPrinterColumns": [
                        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                        {
                            "name": "Ready",
                            "type": "string",
                            "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
                        },
                        {"name": "Colour", "type": "string", "jsonPath": ".spec.colour", "priority": 1},
                        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                    ],
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "description": "A thing to try the server with.",
                            "required": ["spec"],
                            "properties": {
                                "apiVersion": {"type": "string"},
                                "kind": {"type": "string"},
                                "metadata": {"type": "object"},
                                "spec": spec,
                                "status": status,
                            },
                        }
                    },
                }
            ],
        },
    }


def widget(name: str | None = "w1", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name} if name else {"generateName": "w-"}
    return {"apiVersion": "test.example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {"size": 3, **spec}}


@dataclass(frozen=True)
class Answer:
    code: int
    body: Any
    headers: Any

    @property
    def message(self) -> str:
        return str(self.body["message"])

    @property
    def version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])


@dataclass
class Client:
    """Requests with the token of the kubeconfig, over the CA that stands in it."""

    url: str
    session: aiohttp.ClientSession

    async def ask(self, method: str, path: str, body: Any = None, *, kind: str = "application/json") -> Answer:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": kind} if data is not None else {}
        async with self.session.request(method, self.url + path, data=data, headers=headers) as answer:
            text = await answer.text()
            is_json = answer.content_type == "application/json"
            return Answer(answer.status, json.loads(text) if is_json and text else text, answer.headers)

    async def get(self, path: str, accept: str = "application/json") -> Answer:
        async with self.session.get(self.url + path, headers={"Accept": accept}) as answer:
            data = await answer.read()
            is_json = answer.content_type == "application/json"
            return Answer(answer.status, json.loads(data) if is_json else data, answer.headers)

    async def post(self, path: str, body: Any) -> Answer:
        return await self.ask("POST", path, body)

    async def put(self, path: str, body: Any) -> Answer:
        return await self.ask("PUT", path, body)

    async def merge(self, path: str, body: Any) -> Answer:
        return await self.ask("PATCH", path, body, kind=MERGE)

    async def json_patch(self, path: str, body: Any) -> Answer:
        return await self.ask("PATCH", path, body, kind=JSON_PATCH)

    async def delete(self, path: str, body: Any = None) -> Answer:
        return await self.ask("DELETE", path, body)

    @asynccontextmanager
    async def watch(self, path: str, accept: str = "application/json") -> AsyncIterator[Lines]:
        separator = "&" if "?" in path else "?"
        async with self.session.get(f"{self.url}{path}{separator}watch=true", headers={"Accept": accept}) as answer:
            assert answer.status == 200, await answer.text()
            yield Lines(answer)


@dataclass
class Lines:
    """The events of one watch."""

    answer: aiohttp.ClientResponse

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(10):
            line = await self.answer.content.readline()
        assert line, "the watch ended"
        event: dict[str, Any] = json.loads(line)
        return event

    async def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while not wanted(event := await self.next()):
            pass
        return event

    async def ended(self) -> bool:
        async with asyncio.timeout(10):
            return not await self.answer.content.read()


@asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[Client]:
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=ca), limit=0)
    headers = {"Authorization": f"Bearer {user['token']}"}
    async with aiohttp.ClientSession(
        headers=headers, connector=connector, read_bufsize=2**22, timeout=aiohttp.ClientTimeout(30)
    ) as session:
        yield Client(cluster["server"], session)
    await asyncio.sleep(0)  # lets the connector's transports close before the loop does


@dataclass
class Running:
    """A served store, its client, and a real kubectl beside it."""

    server: Server
    client: Client
    root: Path

    @property
    def manifests(self) -> Path:
        return self.server.settings.layout.manifests

    def file(self, name: str, plural: str = "widgets", namespace: str = "default") -> Path:
        return self.manifests / "objects" / plural / namespace / f"{name}.yaml"

    async def kubectl(self, *arguments: str, stdin: str | None = None, binary: str = "kubectl", **env: str) -> Ran:
        process = await asyncio.create_subprocess_exec(
            binary,
            *arguments,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.root),
                "KUBECONFIG": str(self.server.settings.layout.kubeconfig),
                "KUBECACHEDIR": str(self.root / "kubecache"),
                **env,
            },
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            out, err = await process.communicate(None if stdin is None else stdin.encode())
        return Ran(process.returncode or 0, out.decode(), err.decode())


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def ok(self) -> str:
        """stdout of a command that must have succeeded."""
        assert self.code == 0, self.err
        return self.out


Serve = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        root=tmp_path,
        crds=(widget_crd(), *schema.crds()),
        bookmark_interval=0.2,
        rescan_interval=600,
        source_interval=0.05,
        source_removal_delay=0.6,
    )


@pytest.fixture
def serve(settings: Settings) -> Serve:
    """`async with serve() as api:`; keyword arguments change the settings. The same root each time."""

    @asynccontextmanager
    async def start(**changes: Any) -> AsyncIterator[Running]:
        async with contextlib.AsyncExitStack() as stack:
            server = await stack.enter_async_context(running(replace(settings, **changes)))
            client = await stack.enter_async_context(connected(server.settings.layout.kubeconfig))
            yield Running(server, client, server.settings.root)

    return start


@pytest.fixture
def make_widget() -> Callable[..., dict[str, Any]]:
    return widget


@pytest.fixture
def connect() -> Callable[[Path], AbstractAsyncContextManager[Client]]:
    """A client of whatever server wrote this kubeconfig."""
    return connected


async def _eventually(check: Callable[[], Any], seconds: float = 40) -> Any:
    async with asyncio.timeout(seconds):
        while True:
            result = check()
            if asyncio.iscoroutine(result):
                result = await result
            if result:
                return result
            await asyncio.sleep(0.02)


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """Waits until the check holds; fails after some seconds."""
    return _eventually
