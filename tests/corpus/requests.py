"""Attacks on how a request is written: targets, queries, frames, a second request behind the first, upgrades."""

from __future__ import annotations

from intruder import JSON, PRIVILEGED, SMUGGLED, Attack, chunked, host, lines, one, raw, text

CREATE = "/v1.45/containers/create"
EVIL = text(PRIVILEGED).encode()
PLAIN = text(host()).encode()
LENGTH = f"Content-Length: {len(EVIL)}"


def at(target: str, rule: str = "", id_: str = "") -> Attack:
    """A privileged create under another spelling of its path."""
    return one(f"path.{id_ or target}", raw("POST", target, PRIVILEGED), rule)


PATHS = [
    at("/V1.45/containers/create"),
    at("/v1.45x/containers/create"),
    at("/v1,45/containers/create"),
    at("//containers/create"),
    at("/v1.45//containers/create"),
    at("/./containers/create"),
    at("/x/../containers/create"),
    at("/v1.45/containers/%2e/create"),
    at("/v1.45/%2e%2e/containers/create"),
    at("/images/..%2fcontainers/create"),
    at("/images/../containers/create"),
    at("/v1.45/v1.45/containers/create"),
    at("/v1.45/containers/create/"),
    at("/containers%2Fcreate"),
    at("/v1.45%2Fcontainers%2Fcreate"),
    at("/v1.45/%63ontainers/create", "hw.privileged"),
    at("/%76%31.45/containers/creat%65", "hw.privileged"),
    at("/v1.999/containers/create", "http.version"),
    at("/v9.99/containers/create", "http.version"),
    at("/v1/containers/create"),
    at("/v.../containers/create"),
    at("/v1.45.0/containers/create"),
    at("/v01.045/containers/create", "hw.privileged"),
    at("/containers/create%00"),
    at("/containers/create%20"),
    at("/containers/create%0a"),
    at("/containers/create%3Fname=x"),
    at("/containers/create%23"),
    at("/containers/create;x=1"),
    at("/containers\\create"),
    at("/Containers/Create"),
    at("/containers/create%"),
    at("/containers/create%zz"),
    at("/containers/%c3%a7reate"),
    at("/containers/create%ff"),
    at("/containers/create#x"),
    at("containers/create"),
    at("*", id_="star"),
    at("?name=x"),
    at("/", id_="root"),
    at("/v1.45"),
    at("http://docker/v1.45/containers/create"),
    at("HTTP:///v1.45/containers/create"),
    at("unix://x/containers/create"),
    at("docker:80"),
    at("/v5.0.0/libpod/containers/create"),
    at("/distribution/x/../../containers/create"),
    at("/images/x/json/../../../containers/create"),
    one("path.long", raw("POST", "/containers/create?name=" + "a" * 70_000, PRIVILEGED), "wire.head-size"),
    one("path.method-case", raw("post", CREATE, PRIVILEGED)),
    one("path.method-get", raw("GET", CREATE, PRIVILEGED)),
    one("path.method-put", raw("PUT", CREATE, PRIVILEGED)),
    one("path.method-options", raw("OPTIONS", CREATE, PRIVILEGED)),
    one("path.method-connect", raw("CONNECT", "/containers/create", PRIVILEGED)),
    one(
        "path.method-override",
        raw("GET", "/_ping", PRIVILEGED, JSON, f"X-HTTP-Method-Override: POST\r\nX-Original-URL: {CREATE}"),
        "wire.body",
    ),
    one("query.semicolon", raw("POST", f"{CREATE}?name=a;x=1", host()), "http.query"),
    one("query.twice", raw("POST", f"{CREATE}?name=a&name=b", host()), "http.query"),
    one("query.twice-escaped", raw("POST", f"{CREATE}?name=a&n%61me=b", host()), "http.query"),
    one("query.unknown", raw("POST", f"{CREATE}?privileged=1", host()), "http.query"),
    one("query.case", raw("POST", f"{CREATE}?PLATFORM=x", host()), "http.query"),
    one("query.field", raw("POST", f"{CREATE}?HostConfig=%7B%22Privileged%22:true%7D", host()), answers=(201,)),
    one("query.nul", raw("POST", f"{CREATE}?name=a%00b", host()), "http.query"),
    one("query.question", raw("POST", f"{CREATE}?name=a?privileged=1", host())),
    one("query.name-slash", raw("POST", f"{CREATE}?name=a/start", host())),
    one("query.start-checkpoint", raw("POST", "/containers/x/start?checkpoint=c"), "hw.checkpoints"),
    one("query.start-checkpoint-dir", raw("POST", "/containers/x/start?checkpoint-dir=/tmp"), "hw.checkpoints"),
    one("query.start-checkpoint-escaped", raw("POST", "/containers/x/start?%63heckpoint=c"), "hw.checkpoints"),
]


def head(*more: str, method: str = "POST", target: str = CREATE, body: bytes = b"", version: str = "1.1") -> bytes:
    return lines(f"{method} {target} HTTP/{version}", "Host: docker", *more, body=body)


CHUNKS = chunked(EVIL)
"""The hidden request sits behind what the other reader takes as the end."""
FRAMES = [
    one("frame.cl-te", head(JSON, "Content-Length: 5", "Transfer-Encoding: chunked", body=b"0\r\n\r\n" + SMUGGLED)),
    one("frame.te-cl", head(JSON, "Transfer-Encoding: chunked", "Content-Length: 4", body=CHUNKS + SMUGGLED)),
    one(
        "frame.te-1.0",
        head(JSON, "Transfer-Encoding: chunked", "Connection: keep-alive", body=CHUNKS + SMUGGLED, version="1.0"),
    ),
    one(
        "frame.te-1.0-cl",
        head(
            JSON,
            "Transfer-Encoding: chunked",
            "Content-Length: 0",
            "Connection: keep-alive",
            body=CHUNKS,
            version="1.0",
        ),
    ),
    one("frame.version-1.2", head(JSON, LENGTH, body=EVIL, version="1.2"), "wire.version"),
    one("frame.version-2.0", head(JSON, LENGTH, body=EVIL, version="2.0"), "wire.version"),
    one("frame.version-0.9", b"POST /containers/create\r\n\r\n" + EVIL, silent=True),
    one("frame.cl-twice", head(JSON, LENGTH, LENGTH, body=EVIL)),
    one("frame.cl-differ", head(JSON, "Content-Length: 0", LENGTH, body=EVIL)),
    one("frame.cl-list", head(JSON, "Content-Length: 0, 0", body=SMUGGLED)),
    one("frame.cl-plus", head(JSON, "Content-Length: +0", body=SMUGGLED)),
    one("frame.cl-hex", head(JSON, "Content-Length: 0x0", body=SMUGGLED)),
    one("frame.cl-underscore", head(JSON, "Content-Length: 1_0", body=SMUGGLED)),
    one("frame.cl-empty", head(JSON, "Content-Length:", body=SMUGGLED)),
    one("frame.cl-minus", head(JSON, "Content-Length: -1", body=SMUGGLED)),
    one("frame.cl-huge", head(JSON, "Content-Length: 99999999999999999999", body=EVIL)),
    one("frame.te-gzip", head(JSON, "Transfer-Encoding: gzip, chunked", body=CHUNKS)),
    one("frame.te-identity", head(JSON, "Transfer-Encoding: identity", LENGTH, body=EVIL)),
    one("frame.te-twice", head(JSON, "Transfer-Encoding: chunked", "Transfer-Encoding: identity", body=CHUNKS)),
    one("frame.te-xchunked", head(JSON, "Transfer-Encoding: xchunked", body=SMUGGLED)),
    one("frame.te-tab", head(JSON, "Transfer-Encoding:\tchunked\x0b", body=CHUNKS)),
    one("frame.te-blank-colon", head(JSON, "Transfer-Encoding : chunked", body=CHUNKS)),
    one("frame.te-folded", head(JSON, "Transfer-Encoding:\r\n chunked", body=CHUNKS)),
    one("frame.fold", head("X-A: a\r\n b", JSON, LENGTH, body=EVIL)),
    one("frame.fold-first", lines(f"POST {CREATE} HTTP/1.1", " Host: docker", JSON, LENGTH, body=EVIL)),
    one("frame.bare-lf", raw("POST", CREATE, PRIVILEGED).replace(b"\r\n", b"\n")),
    one("frame.bare-lf-header", head("X-A: a\nTransfer-Encoding: chunked", JSON, body=CHUNKS)),
    one("frame.bare-lf-end", f"POST {CREATE} HTTP/1.1\r\nHost: docker\r\n{JSON}\r\n{LENGTH}\n\n".encode() + EVIL),
    one("frame.bare-cr", head("X-A: a\rTransfer-Encoding: chunked", JSON, body=CHUNKS)),
    one("frame.nul-header", head("X-A: a\x00b", JSON, LENGTH, body=EVIL)),
    one("frame.utf8-header", head("X-\xe9: a", JSON, LENGTH, body=EVIL)),
    one("frame.no-colon", head("Transfer-Encoding chunked", JSON, LENGTH, body=EVIL)),
    one("frame.two-hosts", head("Host: other", JSON, LENGTH, body=EVIL), "wire.duplicate-header"),
    one("frame.tab-request-line", f"POST\t{CREATE}\tHTTP/1.1\r\nHost: d\r\n\r\n".encode()),
    one("frame.blanks-request-line", f"POST  {CREATE} HTTP/1.1\r\nHost: d\r\n\r\n".encode()),
    one("frame.crlf-before", b"\r\n\r\n" + raw("POST", CREATE, PRIVILEGED)),
    one("frame.many-headers", head(*[f"X-{n}: a" for n in range(2000)], JSON, LENGTH, body=EVIL), "wire.head-size"),
    one("frame.large-header", head("X-A: " + "a" * 70_000, JSON, LENGTH, body=EVIL), "wire.head-size"),
    one(
        "chunk.bare-lf", head(JSON, "Transfer-Encoding: chunked", body=CHUNKS.replace(b"\r\n", b"\n")), "wire.line-end"
    ),
    one("chunk.size-plus", head(JSON, "Transfer-Encoding: chunked", body=b"+" + CHUNKS), "wire.chunk"),
    one("chunk.size-0x", head(JSON, "Transfer-Encoding: chunked", body=b"0x" + CHUNKS), "wire.chunk"),
    one("chunk.size-blank", head(JSON, "Transfer-Encoding: chunked", body=b" " + CHUNKS), "wire.chunk"),
    one(
        "chunk.size-overflow",
        head(JSON, "Transfer-Encoding: chunked", body=b"10000000000000000\r\n" + SMUGGLED),
        "wire.chunk",
    ),
    one("chunk.size-empty", head(JSON, "Transfer-Encoding: chunked", body=b"\r\n" + CHUNKS), "wire.chunk"),
    one(
        "chunk.longer",
        head(JSON, "Transfer-Encoding: chunked", body=b"%x\r\n%b\r\n0\r\n\r\n" % (len(EVIL) - 1, EVIL)),
        "wire.chunk",
    ),
    one(
        "chunk.lf-in-extension",
        head(JSON, "Transfer-Encoding: chunked", body=b"%x;a=\n\r\n%b\r\n0\r\n\r\n" % (len(EVIL), EVIL)),
        "wire.chunk",
    ),
    one(
        "chunk.lf-end-of-extension",
        head(JSON, "Transfer-Encoding: chunked", body=b"%x;a\n%b\r\n0\r\n\r\n" % (len(EVIL), EVIL)),
        "wire.chunk",
    ),
    one("chunk.extension-endless", head(JSON, "Transfer-Encoding: chunked", body=b"5;" + b"a" * 20_000), "wire.chunk"),
    one(
        "chunk.extension-is-judged",
        head(
            JSON,
            "Transfer-Encoding: chunked",
            "Connection: close",
            body=b"%x;x=y\r\n%b\r\n0\r\nHost: x\r\n\r\n" % (len(EVIL), EVIL),
        ),
        "hw.privileged",
    ),
    one(
        "chunk.trailer-frame",
        head(
            JSON,
            "Transfer-Encoding: chunked",
            "Trailer: Content-Length",
            "Connection: close",
            body=CHUNKS[:-2] + b"Content-Length: 0\r\n\r\n",
        ),
        "hw.privileged",
    ),
    one(
        "chunk.trailer-malformed",
        head(JSON, "Transfer-Encoding: chunked", body=CHUNKS[:-2] + b"a b: c\r\n\r\n"),
        "wire.trailer",
    ),
    one("expect.unknown", head(JSON, LENGTH, "Expect: 200-ok", body=EVIL), "wire.expect"),
    one(
        "expect.is-judged", head(JSON, LENGTH, "Expect: 100-continue", "Connection: close", body=EVIL), "hw.privileged"
    ),
    one("preface.h2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "wire.version"),
    one("preface.h2-then-request", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SMUGGLED, "wire.version"),
    one("preface.tls", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200 + b"\r\n\r\n", silent=True),
]

PING = raw("GET", "/_ping", close=False)
REFUSED = raw("POST", CREATE, PRIVILEGED, close=False)
WITH_ID = "/containers/nobody"
UPGRADE = ("Connection: Upgrade", "Upgrade: tcp")
SECONDS = [
    one("pipeline.behind-refusal", REFUSED + SMUGGLED, answers=(403, 403)),
    one("pipeline.behind-ping", PING + SMUGGLED, answers=(200, 403)),
    one(
        "pipeline.behind-415",
        raw("POST", CREATE, PRIVILEGED, "Content-Type: multipart/form-data", close=False) + SMUGGLED,
        "http.content-type",
        answers=(415,),
    ),
    one("pipeline.behind-400", head("X-A : b") + SMUGGLED, answers=(400,)),
    one(
        "pipeline.in-refused-body",
        head(JSON, f"Content-Length: {len(SMUGGLED)}", body=SMUGGLED),
        "body.json",
        answers=(400,),
    ),
    one(
        "pipeline.in-unread-body",
        head("Content-Type: x/y", f"Content-Length: {len(SMUGGLED)}", body=SMUGGLED),
        "http.content-type",
        answers=(415,),
    ),
    one(
        "pipeline.in-unwanted-body",
        head(JSON, f"Content-Length: {len(SMUGGLED)}", target=f"{WITH_ID}/stop", body=SMUGGLED),
        answers=(400,),
    ),
    one(
        "pipeline.get-with-body",
        head(JSON, f"Content-Length: {len(SMUGGLED)}", method="GET", target="/_ping", body=SMUGGLED),
        "wire.body",
        answers=(400,),
    ),
    one(
        "pipeline.get-chunked-body",
        head(JSON, "Transfer-Encoding: chunked", method="GET", target="/info", body=chunked(SMUGGLED)),
        "wire.body",
        answers=(400,),
    ),
    one(
        "pipeline.head-with-body",
        head(f"Content-Length: {len(SMUGGLED)}", method="HEAD", target="/_ping", body=SMUGGLED),
        answers=(400,),
    ),
    one("pipeline.many", PING * 50 + SMUGGLED, answers=(200,) * 50 + (403,)),
    one("pipeline.behind-unknown-route", raw("GET", "/nothing", close=False) + SMUGGLED, answers=(403, 403)),
    one("pipeline.behind-close", raw("GET", "/_ping") + SMUGGLED, answers=(200,)),
    one("pipeline.behind-1.0", raw("GET", "/_ping", version="1.0", close=False) + SMUGGLED, answers=(200,)),
    one("upgrade.create", raw("POST", CREATE, PRIVILEGED, JSON, *UPGRADE), "hw.privileged"),
    one("upgrade.ping", head(*UPGRADE, method="GET", target="/_ping") + SMUGGLED, answers=(200, 403)),
    one(
        "upgrade.h2c",
        head(
            "Connection: Upgrade, HTTP2-Settings",
            "Upgrade: h2c",
            "HTTP2-Settings: AAMAAABk",
            method="GET",
            target="/_ping",
        )
        + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + SMUGGLED,
        answers=(200, 505),
    ),
    one("upgrade.twice", head(*UPGRADE, "Upgrade: h2c", target=f"{WITH_ID}/attach"), "wire.duplicate-header"),
    one(
        "upgrade.attach-404",
        head(*UPGRADE, "Content-Length: 0", target=f"{WITH_ID}/attach?stream=1") + SMUGGLED,
        answers=(404,),
    ),
    one(
        "upgrade.attach-h2c",
        head("Connection: Upgrade", "Upgrade: h2c", "Content-Length: 0", target=f"{WITH_ID}/attach?stream=1")
        + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + SMUGGLED,
        answers=(404,),
    ),
    one(
        "upgrade.exec-404",
        raw("POST", f"/exec/{'a' * 64}/start", {"Detach": False}, JSON, *UPGRADE, close=False) + SMUGGLED,
        answers=(404,),
    ),
    one(
        "upgrade.refused-then-bytes",
        raw("POST", f"{WITH_ID}/exec", {"Privileged": True, "Cmd": ["sh"]}, JSON, *UPGRADE, close=False) + SMUGGLED,
        answers=(403, 403),
    ),
    one(
        "upgrade.grpc",
        head("Connection: Upgrade", "Upgrade: h2c", "Content-Length: 0", target="/grpc") + SMUGGLED,
        answers=(101,),
    ),
    one(
        "upgrade.session",
        head("Connection: Upgrade", "Upgrade: h2c", "Content-Length: 0", target="/session") + SMUGGLED,
        answers=(101,),
    ),
    one(
        "upgrade.versioned-grpc",
        head("Connection: Upgrade", "Upgrade: h2c", "Content-Length: 0", target="/v1.45/grpc") + SMUGGLED,
        answers=(101,),
    ),
    one(
        "upgrade.websocket",
        head(
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: AAAA",
            method="GET",
            target=f"{WITH_ID}/attach/ws",
        )
        + SMUGGLED,
        "gate.facts",
        answers=(404,),
    ),
    one(
        "upgrade.no-token",
        head("Connection: Upgrade", "Content-Length: 0", target=f"{WITH_ID}/attach?stream=1") + SMUGGLED,
        answers=(404,),
    ),
    one(
        "header.auth-twice",
        raw("POST", "/images/x/push", None, "X-Registry-Auth: a", "X-Registry-Auth: b"),
        "http.header",
    ),
    one(
        "header.connection-names-length",
        head(JSON, "Connection: close, Content-Length", LENGTH, body=EVIL),
        "hw.privileged",
    ),
]

TABLE = [*PATHS, *FRAMES, *SECONDS]
