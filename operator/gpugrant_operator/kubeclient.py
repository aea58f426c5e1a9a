"""A thin client of a Kubernetes API: one request, one answer or one ApiError.

It knows URLs, credentials and errors, and nothing about our resources. It never retries: whoever asks knows best
whether the question still makes sense.
"""

from __future__ import annotations

import base64
import binascii
import json
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml

JsonObject = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"

PAGE = 500
"""Objects a list request, as kubectl's --chunk-size."""

_TIMEOUT = aiohttp.ClientTimeout(total=30, connect=5)
"""Seconds; reference/operator.md 1.1 gives kopf's client the same."""


class KubeconfigUnusable(ValueError):
    """No access can be read from the kubeconfig; the message is a sentence for a person."""


class ApiError(Exception):
    """The API refused or did not answer; `status` 0: it could not be reached."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


class ApiUnreachable(ApiError):
    """No answer came."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "Unreachable", message)


class NotFound(ApiError):
    """There is no such object."""


class Conflict(ApiError):
    """The object is not what the writer had read (409), or there is one of that name already."""


@dataclass(frozen=True, slots=True)
class Access:
    """Where the API is and who asks. Certificates and keys are PEM texts."""

    server: str
    ca: str | None = None
    token: str | None = None
    certificate: str | None = None
    key: str | None = None
    insecure: bool = False

    def ssl_context(self) -> ssl.SSLContext:
        """Verifies the server by `ca`, else by the system's; presents the certificate where there is one."""
        context = ssl.create_default_context(cadata=self.ca)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate is not None:
            # load_cert_chain takes only files; the folder is 0700 and goes at once.
            with tempfile.TemporaryDirectory() as folder:
                pem = Path(folder) / "client.pem"
                pem.write_text(f"{self.certificate}\n{self.key or ''}")
                context.load_cert_chain(pem)
        return context


def read_kubeconfig(paths: tuple[Path, ...]) -> Access:
    """The access of the current context; of several files the first that has an entry wins, as with kubectl.

    Raises KubeconfigUnusable. Programs that fetch credentials (`exec`) are not run.
    """
    merged = _merged(paths)
    context = _named(merged, "contexts", "context", merged.current)
    cluster = _named(merged, "clusters", "cluster", str(context.get("cluster", "")))
    user = _named(merged, "users", "user", str(context.get("user", "")))
    if not cluster.get("server"):
        raise KubeconfigUnusable(f"{merged.name}: the cluster of context {merged.current} has no server")
    for key in ("exec", "auth-provider"):
        if key in user:
            raise KubeconfigUnusable(f'{merged.name}: the user has "{key}"; give it a token or a client certificate')
    return Access(
        server=str(cluster["server"]).rstrip("/"),
        ca=_pem(merged, cluster, "certificate-authority"),
        token=_token(merged, user),
        certificate=_pem(merged, user, "client-certificate"),
        key=_pem(merged, user, "client-key"),
        insecure=bool(cluster.get("insecure-skip-tls-verify", False)),
    )


@dataclass(frozen=True, slots=True)
class _Merged:
    name: str
    folder: Path
    current: str
    sections: Mapping[str, Mapping[str, JsonObject]]


def _merged(paths: tuple[Path, ...]) -> _Merged:
    current = ""
    sections: dict[str, dict[str, JsonObject]] = {"contexts": {}, "clusters": {}, "users": {}}
    read = [path for path in paths if path.is_file()]
    if not read:
        raise KubeconfigUnusable(f"there is no kubeconfig at {', '.join(str(path) for path in paths)}")
    for path in read:
        document = _document(path)
        current = current or str(document.get("current-context") or "")
        for section, entries in sections.items():
            for entry in document.get(section) or ():
                if isinstance(entry, dict):
                    entries.setdefault(str(entry.get("name", "")), entry)
    if not current:
        raise KubeconfigUnusable(f"{read[0]}: it has no current-context")
    return _Merged(str(read[0]), read[0].parent, current, sections)


def _document(path: Path) -> JsonObject:
    try:
        document = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise KubeconfigUnusable(f"{path}: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise KubeconfigUnusable(f"{path}: it is not a kubeconfig")
    return document


def _named(merged: _Merged, section: str, key: str, name: str) -> JsonObject:
    entry = merged.sections[section].get(name)
    found = None if entry is None else entry.get(key)
    if not isinstance(found, dict):
        raise KubeconfigUnusable(f'{merged.name}: it has no {key} named "{name}"')
    return found


def _pem(merged: _Merged, entry: JsonObject, key: str) -> str | None:
    """Inline data wins over a file, as in client-go."""
    if entry.get(f"{key}-data"):
        try:
            return base64.b64decode(str(entry[f"{key}-data"]), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise KubeconfigUnusable(f"{merged.name}: {key}-data is not base64 of a PEM text") from error
    return _text(merged, key, str(entry[key])) if entry.get(key) else None


def _token(merged: _Merged, user: JsonObject) -> str | None:
    if user.get("token"):
        return str(user["token"])
    return _text(merged, "tokenFile", str(user["tokenFile"])).strip() if user.get("tokenFile") else None


def _text(merged: _Merged, key: str, name: str) -> str:
    try:
        return (merged.folder / name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise KubeconfigUnusable(f"{merged.name}: {key}: {error}") from error


class KubeClient:
    """Use as `async with`; several requests may run at once."""

    def __init__(self, access: Access, *, agent: str = "gpugrant-operator") -> None:
        self._access = access
        self._agent = agent
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        headers = {"User-Agent": self._agent, "Accept": "application/json"}
        if self._access.token is not None:
            headers["Authorization"] = f"Bearer {self._access.token}"
        context = self._access.ssl_context() if self._access.server.startswith("https:") else True
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=16), headers=headers, timeout=_TIMEOUT
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> JsonObject:
        return await self._request("GET", path, params=params)

    async def post(self, path: str, body: JsonObject) -> JsonObject:
        return await self._request("POST", path, body)

    async def put(self, path: str, body: JsonObject) -> JsonObject:
        return await self._request("PUT", path, body)

    async def patch(self, path: str, body: JsonObject) -> JsonObject:
        """A JSON merge patch; a `metadata.resourceVersion` in it is a precondition."""
        return await self._request("PATCH", path, body, content_type=MERGE_PATCH)

    async def list(self, path: str) -> list[JsonObject]:
        """All objects, page by page."""
        items: list[JsonObject] = []
        params = {"limit": str(PAGE)}
        while True:
            page = await self.get(path, params)
            items += page.get("items") or ()
            following = (page.get("metadata") or {}).get("continue")
            if not following:
                return items
            params = {"limit": str(PAGE), "continue": str(following)}

    async def _request(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> JsonObject:
        if self._session is None:
            raise RuntimeError("the client is used outside of its context")
        data = None if body is None else json.dumps(body).encode()
        headers = None if body is None else {"Content-Type": content_type}
        try:
            async with self._session.request(
                method, self._access.server + path, data=data, params=params, headers=headers
            ) as response:
                return _answer(response.status, await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiUnreachable(f"{self._access.server} does not answer: {error or type(error).__name__}") from error


def _answer(status: int, raw: bytes) -> JsonObject:
    try:
        body = json.loads(raw)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise ApiError(status, "NoJson", f"the API answered {status} without a JSON object")
    if status < 400:
        return body
    kind = {404: NotFound, 409: Conflict}.get(status, ApiError)
    raise kind(status, str(body.get("reason", "")), str(body.get("message", f"the API answered {status}")))
