"""The URLs of the server and what each answers. Every failure leaves as a Status; none leaves as a trace."""

from __future__ import annotations

import contextlib
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

import structlog
from aiohttp import web

from gpugrant_operator.apiserver import http, watch
from gpugrant_operator.apiserver.objects import (
    decode,
    discovery,
    openapi,
    patch,
    selectors,
    status,
    table,
)
from gpugrant_operator.apiserver.objects.resources import Resource
from gpugrant_operator.apiserver.objects.selectors import Selector
from gpugrant_operator.apiserver.objects.status import ApiError, Json, Obj
from gpugrant_operator.apiserver.registry import Options, Registry, Written
from gpugrant_operator.apiserver.settings import Settings
from gpugrant_operator.apiserver.store.history import Stored
from gpugrant_operator.apiserver.store.store import Store
from gpugrant_operator.apiserver.watch import Watches

log = structlog.get_logger(__name__)

PIECE = 200
"""Objects in one piece of a long list: about 400 kB of grants."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Target:
    """What an object URL names. `namespace` None: all of them; `name` None: the collection."""

    resource: Resource
    namespace: str | None
    name: str | None
    subresource: str

    @property
    def is_status(self) -> bool:
        return self.subresource == "status"

    @property
    def place(self) -> str:
        return self.namespace or ""

    @property
    def item(self) -> str:
        """The name; a collection has none and is never asked for it."""
        if self.name is None:
            raise status.no_such_path()
        return self.name


@dataclass
class Routes:
    """The HTTP side of one server."""

    registry: Registry
    store: Store
    settings: Settings
    token: str
    release: str
    ready: Callable[[], str]
    """Why the server is not ready; empty: it is."""
    watches: Watches

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=self.settings.max_body)
        router = app.router
        for path in ("/healthz", "/livez", "/readyz"):
            router.add_get(path, self._health)
            router.add_get(f"{path}/", self._health)
        router.add_get("/version", self._version)
        router.add_get("/version/", self._version)
        for path in ("/api", "/api/"):
            router.add_get(path, self._core_versions)
        for path in ("/apis", "/apis/"):
            router.add_get(path, self._groups)
        router.add_get("/openapi/v2", self._openapi_v2)
        router.add_get("/openapi/v3", self._openapi_v3)
        router.add_get("/openapi/v3/{path:.+}", self._openapi_v3_document)
        router.add_route("*", "/{path:.*}", self._objects)
        return app

    # --- every request ----------------------------------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self._authenticate(request)
            return await handler(request)
        except ApiError as error:
            return http.refused(error)
        except web.HTTPRequestEntityTooLarge:
            return http.refused(status.too_large(self.settings.max_body))
        except web.HTTPException as error:
            return http.refused(_from_http(error))
        except ConnectionError:
            raise
        except Exception:
            # The outermost edge of a request: the client gets a Status, the log the trace.
            log.exception("request failed", method=request.method, path=request.path)
            return http.refused(status.internal("the server met an unexpected condition; its log has the details"))

    def _authenticate(self, request: web.Request) -> None:
        kind, _, given = request.headers.get("Authorization", "").partition(" ")
        token = given.strip().encode("utf-8", "surrogateescape")  # bytes as they came, also those that are no text
        if kind.lower() != "bearer" or not hmac.compare_digest(token, self.token.encode()):
            raise status.unauthorized()

    # --- fixed documents --------------------------------------------------------------------------------------

    async def _health(self, request: web.Request) -> web.Response:
        why = self.ready() if not request.path.startswith("/livez") else ""
        if why:
            raise ApiError(500, "InternalError", why)
        return web.Response(text="ok")

    async def _version(self, _: web.Request) -> web.Response:
        return http.answer(discovery.version_info(self.release))

    async def _core_versions(self, request: web.Request) -> web.Response:
        return self._discover(request, discovery.api_versions(), core=True)

    async def _groups(self, request: web.Request) -> web.Response:
        return self._discover(request, discovery.group_list(self.store.catalog), core=False)

    def _discover(self, request: web.Request, legacy: Obj, *, core: bool) -> web.Response:
        wanted = discovery.wanted_version(http.accepted(request))
        if wanted is None:
            return http.answer(legacy)
        version, content_type = wanted
        return http.answer(
            discovery.aggregated(self.store.catalog, core=core, version=version), content_type=content_type
        )

    async def _openapi_v2(self, request: web.Request) -> web.Response:
        if any("protobuf" in entry for entry in http.accepted(request)):
            # No bytes are a valid, empty protobuf document.
            return http.raw_answer(b"", content_type=openapi.V2_PROTOBUF)
        return http.answer(openapi.swagger())

    async def _openapi_v3(self, _: web.Request) -> web.Response:
        return http.answer(openapi.index(self.store.catalog))

    async def _openapi_v3_document(self, request: web.Request) -> web.Response:
        catalog = self.store.catalog
        match request.match_info["path"].split("/"):
            case ["api", version]:
                group = ""
            case ["apis", group, version]:
                pass
            case _:
                raise status.no_such_path()
        if not catalog.of(group, version):
            raise status.no_such_path()
        etag = f'"{openapi.document_hash(catalog, group, version)}"'
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers={"ETag": etag})
        response = http.raw_answer(openapi.document_bytes(catalog, group, version))
        response.headers["ETag"] = etag
        return response

    # --- objects ----------------------------------------------------------------------------------------------

    async def _objects(self, request: web.Request) -> web.StreamResponse:
        parts = [part for part in request.match_info["path"].split("/") if part]
        match parts:
            case ["api", version, *rest]:
                group = ""
            case ["apis", group, version, *rest]:
                pass
            case ["apis", group]:
                return self._group(request, group)
            case _:
                raise status.no_such_path()
        if not rest:
            return self._resources(request, group, version)
        if review := self._review_kind(group, version, rest):
            return await self._review(request, review)
        target = self._target(group, version, rest)
        return await self._dispatch(request, target)

    def _group(self, request: web.Request, group: str) -> web.Response:
        version = discovery.groups(self.store.catalog).get(group)
        if version is None or request.method not in ("GET", "HEAD"):
            raise status.no_such_path()
        found = {"kind": "APIGroup", "apiVersion": "v1", **discovery.group(group, version)}
        return http.answer(found)

    def _resources(self, request: web.Request, group: str, version: str) -> web.Response:
        known = {"": "v1", **discovery.groups(self.store.catalog)}
        if known.get(group) != version or request.method not in ("GET", "HEAD"):
            raise status.no_such_path()
        return http.answer(discovery.resource_list(self.store.catalog, group, version))

    def _target(self, group: str, version: str, rest: list[str]) -> Target:
        catalog = self.store.catalog
        match rest:
            case ["namespaces", namespace, plural, *tail] if plural not in ("status", "finalize"):
                resource = catalog.find(group, version, plural)
                if resource is None or not resource.namespaced:
                    raise status.no_such_path()
                where: str | None = namespace
            case [plural, *tail]:
                resource = catalog.find(group, version, plural)
                if resource is None or (resource.namespaced and tail):
                    raise status.no_such_path()
                where = None if resource.namespaced else ""
            case _:
                raise status.no_such_path()
        return _target_of(resource, where, tail)

    async def _dispatch(self, request: web.Request, target: Target) -> web.StreamResponse:
        if target.is_status:
            by_method = {"GET": self._get, "PUT": self._put, "PATCH": self._patch}
        elif target.name is not None:
            by_method = {"GET": self._get, "PUT": self._put, "PATCH": self._patch, "DELETE": self._delete}
        elif target.namespace is None:
            by_method = {"GET": self._list}  # writes are of one namespace
        else:
            by_method = {"GET": self._list, "POST": self._post, "DELETE": self._delete_collection}
        handler = by_method.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            raise status.method_not_allowed(target.resource.plural, target.resource.group, request.method)
        answered: web.StreamResponse = await handler(request, target)
        return answered

    # --- reads ------------------------------------------------------------------------------------------------

    async def _get(self, request: web.Request, target: Target) -> web.StreamResponse:
        shape = http.shape(request)
        stored = self.store.get(target.resource, target.place, target.item)
        if stored is None:
            raise status.not_found(target.resource.plural, target.resource.group, target.item)
        return self._shown(target.resource, stored, shape)

    def _shown(
        self, resource: Resource, stored: Stored, shape: http.Shape, *, code: int = 200, told: tuple[str, ...] = ()
    ) -> web.Response:
        if shape.form is not None:
            metadata = {"resourceVersion": stored.obj["metadata"].get("resourceVersion", "")}
            made = table.table(resource, [stored.obj], form=shape.form, now=self.settings.now(), metadata=metadata)
            return http.answer(made, code=code, warnings=told)
        if shape.partial:
            return http.answer(table.partial(stored.obj), code=code, warnings=told)
        return http.raw_answer(stored.raw + b"\n", code=code, warnings=told)

    async def _list(self, request: web.Request, target: Target) -> web.StreamResponse:
        query = request.query
        selector = selectors.parse(target.resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        http.check_list(query)
        if http.flag(query, "watch"):
            return await self._watch(request, target, selector)
        return self._listed(request, target, selector)

    def _listed(self, request: web.Request, target: Target, selector: Selector) -> web.Response:
        query, resource, shape = request.query, target.resource, http.shape(request)
        limit = http.number(query, "limit", 0)
        page = http.page(query.get("continue", ""))
        if page is not None and query.get("resourceVersion", "0") not in ("", "0"):
            raise status.bad_request("specifying resource version is not allowed when using continue")
        self._check_list_version(query)
        version = self.store.version if page is None else page.version
        if version < self.store.history.oldest or version > self.store.version:
            raise status.expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You must start a new list without the continue parameter."
            )
        metadata: Obj = {"resourceVersion": str(version)}
        chosen: list[Stored] = []
        found = iter(
            self.store.listed(
                resource, target.namespace if resource.namespaced else None, after=page.after if page else None
            )
        )
        for stored in found:
            if not selector.matches(stored.obj):
                continue
            if limit and len(chosen) == limit:
                last = chosen[-1].obj["metadata"]
                metadata["continue"] = http.Page(version, (last.get("namespace", ""), last["name"])).token
                if not selector:
                    metadata["remainingItemCount"] = 1 + sum(1 for _ in found)
                break
            chosen.append(stored)
        return self._collection(resource, chosen, metadata, shape)

    def _check_list_version(self, query: Mapping[str, str]) -> None:
        """We list what is there now: that is never older than a version we gave out, and never another's."""
        wanted = http.number(query, "resourceVersion", 0)
        if wanted > self.store.version:
            raise ApiError(
                504, "Timeout", f"Too large resource version: {wanted}, current: {self.store.version}", details={}
            )
        if wanted != self.store.version and query.get("resourceVersionMatch") == "Exact":
            raise status.expired(f"The resourceVersion for the provided list is too old: {wanted}")

    def _collection(self, resource: Resource, chosen: list[Stored], metadata: Obj, shape: http.Shape) -> web.Response:
        if shape.form is not None:
            objects = (stored.obj for stored in chosen)
            return http.answer(
                table.table(resource, objects, form=shape.form, now=self.settings.now(), metadata=metadata)
            )
        if shape.partial:
            items = [table.partial(stored.obj) for stored in chosen]
            return http.answer(
                {
                    "kind": "PartialObjectMetadataList",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": metadata,
                    "items": items,
                }
            )
        if resource.custom:
            metadata = {"continue": "", **metadata}  # as an unstructured list is written; a typed one leaves it out
        head = json.dumps(
            {"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": metadata},
            separators=(",", ":"),
        )
        start = head[:-1].encode() + b',"items":['
        if len(chosen) > PIECE:
            return http.raw_answer(_pieces(start, chosen))
        return http.raw_answer(b"%s%s]}\n" % (start, b",".join(stored.raw for stored in chosen)))

    async def _watch(self, request: web.Request, target: Target, selector: Selector) -> web.StreamResponse:
        query, resource, shape = request.query, target.resource, http.shape(request)
        version = http.number(query, "resourceVersion", 0)
        wanted = watch.Query(
            resource=resource,
            namespace=target.namespace if resource.namespaced else None,
            selector=selector,
            since=version or None,
            bookmarks=http.flag(query, "allowWatchBookmarks"),
            timeout=float(http.number(query, "timeoutSeconds", int(watch.TIMEOUT))),
        )
        encoder: watch.Encoder = watch.json_encoder
        if shape.form is not None:
            encoder = watch.table_encoder(resource, shape.form, self.settings.now)
        elif shape.partial:
            encoder = watch.partial_encoder
        return await self._streamed(request, wanted, encoder, as_table=shape.form is not None)

    async def _streamed(
        self, request: web.Request, wanted: watch.Query, encoder: watch.Encoder, *, as_table: bool
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": http.JSON_TYPE, "Cache-Control": http.UNCACHED})
        response.enable_chunked_encoding()
        await response.prepare(request)
        lines = self.watches.stream(wanted, encoder, cut=lambda: _abort(request), as_table=as_table)
        with contextlib.suppress(ConnectionError):  # the client has gone; there is nobody to tell
            async with contextlib.aclosing(lines):
                async for line in lines:
                    await response.write(line)
            await response.write_eof()
        return response

    # --- writes -----------------------------------------------------------------------------------------------

    async def _post(self, request: web.Request, target: Target) -> web.StreamResponse:
        shape, decoded = http.shape(request), await self._body(request)
        written = await self.registry.create(
            target.resource, target.place, decoded.value, _options(request), decoded.duplicates
        )
        return self._written(target.resource, written, shape)

    async def _put(self, request: web.Request, target: Target) -> web.StreamResponse:
        shape, decoded = http.shape(request), await self._body(request)
        written = await self.registry.update(
            target.resource,
            target.place,
            target.item,
            decoded.value,
            _options(request),
            status=target.is_status,
            duplicates=decoded.duplicates,
        )
        return self._written(target.resource, written, shape)

    async def _patch(self, request: web.Request, target: Target) -> web.StreamResponse:
        shape, content_type = http.shape(request), _content_type(request)
        patch.check_type(content_type, custom=target.resource.custom)
        applies = content_type == patch.APPLY_PATCH
        options = http.patch_options(request.query, agent=_agent(request), applies=applies)
        where, is_status = (target.resource, target.place, target.item), target.is_status
        data = await request.read()
        if applies:
            config = decode.json_or_yaml(data)
            written = await self.registry.apply(*where, config, options, status=is_status)
        else:
            body = decode.from_json(data).value
            written = await self.registry.patch(*where, content_type, body, options, status=is_status)
        return self._written(target.resource, written, shape)

    def _written(self, resource: Resource, written: Written, shape: http.Shape) -> web.Response:
        code = HTTPStatus.CREATED if written.created else HTTPStatus.OK
        return self._shown(resource, Stored(written.obj), shape, code=code, told=written.warnings)

    async def _delete(self, request: web.Request, target: Target) -> web.StreamResponse:
        shape, body = http.shape(request), await self._delete_options(request)
        written = await self.registry.delete(
            target.resource, target.place, target.item, body, http.options(request.query, body)
        )
        if not written.removed:
            return self._shown(target.resource, Stored(written.obj), shape)
        details: Obj = {"name": target.item, "kind": target.resource.plural, "uid": written.obj["metadata"]["uid"]}
        if target.resource.group:
            details["group"] = target.resource.group
        return http.answer(status.success(details))

    async def _delete_collection(self, request: web.Request, target: Target) -> web.StreamResponse:
        shape, body = http.shape(request), await self._delete_options(request)
        query, resource = request.query, target.resource
        selector = selectors.parse(resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        gone = await self.registry.delete_collection(
            resource,
            target.namespace if resource.namespaced else None,
            selector,
            body,
            http.options(query, body),
        )
        metadata = {"resourceVersion": str(self.store.version)}
        return self._collection(resource, [Stored(obj) for obj in gone], metadata, shape)

    async def _body(self, request: web.Request) -> decode.Decoded:
        return decode.body(await request.read(), _content_type(request))

    async def _delete_options(self, request: web.Request) -> Mapping[str, Json]:
        data = await request.read()
        in_query = {key: request.query[key] for key in ("propagationPolicy",) if request.query.get(key)}
        if not data.strip():
            return in_query
        value = decode.body(data, _content_type(request)).value
        if not isinstance(value, dict) or not isinstance(value.get("preconditions") or {}, dict):
            raise status.bad_request("the body of a delete must be DeleteOptions")
        return value

    # --- reviews ----------------------------------------------------------------------------------------------

    def _review_kind(self, group: str, version: str, rest: list[str]) -> str:
        for known_group, known_version, plural, kind in discovery.REVIEWS:
            if [known_group, known_version, [plural]] == [group, version, rest]:
                return kind
        return ""

    async def _review(self, request: web.Request, kind: str) -> web.Response:
        """Whoever has the token may do all that is served; this says so in the words of each review."""
        if request.method != "POST":
            raise status.method_not_allowed(kind.lower() + "s", "", request.method)
        body = (await self._body(request)).value
        if not isinstance(body, dict):
            raise status.bad_request("the body must be an object")
        answers: dict[str, Obj] = {
            "SelfSubjectAccessReview": {"allowed": True, "reason": "the bearer of the token may do everything"},
            "SelfSubjectRulesReview": {
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": False,
            },
            "SelfSubjectReview": {"userInfo": {"username": "gpugrant-admin", "groups": ["system:authenticated"]}},
        }
        return http.answer({**body, "status": answers[kind]}, code=HTTPStatus.CREATED)


async def _pieces(start: bytes, chosen: list[Stored]) -> AsyncIterator[bytes]:
    """A long list piece by piece: as one body it would stand in memory three times, and once for good in the TLS
    buffers of a connection that stays open."""
    for at in range(0, len(chosen), PIECE):
        yield (b"," if at else start) + b",".join(stored.raw for stored in chosen[at : at + PIECE])
    yield b"]}\n"


def _target_of(resource: Resource, namespace: str | None, tail: list[str]) -> Target:
    match tail:
        case []:
            return Target(resource, namespace, None, "")
        case [name]:
            return Target(resource, namespace, name, "")
        case [name, "status"] if resource.has_status:
            return Target(resource, namespace, name, "status")
        case _:
            raise status.no_such_path()


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _agent(request: web.Request) -> str:
    return request.headers.get("User-Agent", "")


def _options(request: web.Request) -> Options:
    kind = "CreateOptions" if request.method == "POST" else "UpdateOptions"
    return http.options(request.query, agent=_agent(request), kind=kind)


def _content_type(request: web.Request) -> str:
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _from_http(error: web.HTTPException) -> ApiError:
    try:
        phrase = HTTPStatus(error.status).phrase
    except ValueError:
        phrase = "Unknown"
    return ApiError(error.status, phrase.replace(" ", ""), phrase.lower())
