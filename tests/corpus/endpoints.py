"""Attacks by other endpoints than create: execs, updates, archives, builds, volumes, networks, whole families."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import struct
import tarfile
from typing import Any

from intruder import JSON, PRIVILEGED, Attack, create, host, one, raw

TAR = "Content-Type: application/x-tar"
CREATED = create(host(), "cc")
STARTED = raw("POST", "/containers/cc/start")
RUNNING = (CREATED, STARTED)
"""A harmless container of the tenant's own."""
SHELL = {"Cmd": ["sh"], "AttachStdout": True}
NODE = {"PathOnHost": "/dev/nvidia0", "PathInContainer": "/dev/nvidia0", "CgroupPermissions": "rwm"}
GPUS = [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]


def archive(*members: tuple[str, bytes, bytes]) -> bytes:
    """A tar of (name, tar type, content)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type, member.mode, member.size = kind, 0o755, len(content)
            member.devmajor, member.devminor = 195, 0
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def post(path: str, body: Any = None, *lines: str, method: str = "POST") -> bytes:
    return raw(method, path, body, *lines)


def after(id_: str, request: bytes, rule: str = "", **more: Any) -> Attack:
    """On a container of the tenant's own that runs."""
    return Attack(id_, (*RUNNING, request), rule, **more)


CONTAINERS = [
    after("exec.asks-privileged", post("/containers/cc/exec", SHELL | {"Privileged": True}), "hw.privileged"),
    after("exec.privileged-case", post("/containers/cc/exec", SHELL | {"privileged": True}), "hw.privileged"),
    after(
        "exec.privileged-twice",
        post("/containers/cc/exec", '{"Cmd":["sh"],"Privileged":true,"privileged":false}'),
        "body.keys",
    ),
    after("exec.privileged-text", post("/containers/cc/exec", SHELL | {"Privileged": "true"}), "body.type"),
    after("exec.devices", post("/containers/cc/exec", SHELL | {"Devices": [NODE]}), "body.field"),
    after("exec.host-config", post("/containers/cc/exec", SHELL | {"HostConfig": {"Privileged": True}}), "body.field"),
    after("exec.name-spans", post("/containers/cc/start/exec", SHELL), "route.unknown"),
    after("exec.name-spans-escaped", post("/containers/cc%2Fstart/exec", SHELL)),
    after(
        "exec.form",
        post("/containers/cc/exec", SHELL, "Content-Type: application/x-www-form-urlencoded"),
        "http.content-type",
    ),
    one("exec.start-unknown", post(f"/exec/{'0' * 64}/start", {"Detach": False})),
    one("exec.start-no-id", post("/exec/../start", {})),
    after("update.devices", post("/containers/cc/update", {"Devices": [NODE]}), "hw.update"),
    after("update.requests", post("/containers/cc/update", {"DeviceRequests": GPUS}), "hw.update"),
    after(
        "update.cdi",
        post("/containers/cc/update", {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"]}]}),
        "hw.update",
    ),
    after("update.rules", post("/containers/cc/update", {"DeviceCgroupRules": ["a *:* rwm"]}), "hw.cgroup-rules"),
    after("update.parent", post("/containers/cc/update", {"CgroupParent": "/"}), "hw.cgroup"),
    after(
        "update.blkio",
        post("/containers/cc/update", {"BlkioDeviceReadBps": [{"Path": "/dev/sda", "Rate": 1}]}),
        "host.blkio",
    ),
    after("update.privileged", post("/containers/cc/update", {"Privileged": True}), "body.field"),
    after("update.runtime", post("/containers/cc/update", {"Runtime": "nvidia"}), "body.field"),
    after("update.nested", post("/containers/cc/update", {"Resources": {"Devices": [NODE]}}), "body.field"),
    Attack("start.host-config", (CREATED, post("/containers/cc/start", {"Privileged": True, "Binds": ["/dev:/dev"]}))),
    Attack(
        "start.chunked",
        (
            CREATED,
            raw("POST", "/containers/cc/start", b"5\r\naaaaa\r\n0\r\n\r\n", JSON, close=False).replace(
                b"Content-Length: 15", b"Transfer-Encoding: chunked"
            ),
        ),
    ),
    after("restart.host-config", post("/containers/cc/restart", {"Privileged": True, "HostConfig": {}})),
    after("unpause.body", post("/containers/cc/unpause", {"Privileged": True})),
    after(
        "checkpoint.create",
        post("/containers/cc/checkpoints", {"CheckpointID": "x", "CheckpointDir": "/tmp"}),
        "hw.checkpoints",
    ),
    after("checkpoint.list", raw("GET", "/containers/cc/checkpoints?dir=/"), "hw.checkpoints"),
    after("checkpoint.start", post("/containers/cc/start?checkpoint=x"), "hw.checkpoints"),
    after("attach.websocket", raw("GET", "/containers/cc/attach/ws"), "http.upgrade"),
    after("copy.removed", post("/containers/cc/copy", {"Resource": "/etc/passwd"}), "route.unknown"),
    one("name.dots", post("/containers/../start")),
    one("name.encoded-slash", post("/containers/a%2Fb/start")),
    one("name.leading-slash", post("/containers//cc/start")),
    one("create.name-slash", create(host(), "a/b")),
    one("create.name-unicode", create(host(), "%ef%ac%81le"), answers=(400,)),
    one("create.name-newline", create(host(), "a%0ab")),
    one("create.name-like-an-id", create(host(), "0" * 64), free=True),
    one("create.name-of-a-network", create(host(), "host"), free=True),
    one("create.link-alias-slash", create(host(Links=["nobody:x/start"]))),
]

EVIL_XZ = archive(("bin/xz", tarfile.REGTYPE, b"#!/bin/sh\nid >/tmp/ran\n"))
ARCHIVES = [
    after(f"archive.{name}", raw("PUT", "/containers/cc/archive?path=/", body, TAR), "wire.tar")
    for name, body in {
        "xz": lzma.compress(EVIL_XZ),
        "gzip": gzip.compress(EVIL_XZ),
        "bzip2": bz2.compress(EVIL_XZ),
        "zstd": b"\x28\xb5\x2f\xfd" + bytes(600),
        "zstd-skippable": b"\x50\x2a\x4d\x18" + bytes(600),
        "text": b"x" * 1000,
        "gzip-that-is-a-tar": b"\x1f\x8b\x08" + EVIL_XZ[3:],
    }.items()
] + [
    after("archive.json", raw("PUT", "/containers/cc/archive?path=/", {"a": 1}), "http.content-type"),
    after(
        "archive.form",
        raw("PUT", "/containers/cc/archive?path=/", EVIL_XZ, "Content-Type: multipart/form-data"),
        "http.content-type",
    ),
    after("archive.post", raw("POST", "/containers/cc/archive?path=/", EVIL_XZ, TAR), "route.unknown"),
]

IMAGES = [
    one("import.address", post("/images/create?fromSrc=http://127.0.0.1/x.tar&repo=evil"), "host.import"),
    one("import.file", post("/images/create?fromSrc=file:///etc/passwd"), "host.import"),
    one(
        "import.form",
        post("/images/create?fromSrc=-", "fromSrc=http://x/", "Content-Type: application/x-www-form-urlencoded"),
        "http.content-type",
    ),
    one("import.both", post("/images/create?fromSrc=-&fromImage=x"), "http.query"),
    after(
        "commit.host-config", post("/commit?container=cc&repo=evil", {"HostConfig": {"Privileged": True}}), "body.field"
    ),
    after("commit.devices", post("/commit?container=cc&repo=evil", {"Devices": [NODE]}), "body.field"),
    after(
        "commit.form",
        post("/commit?container=cc", "changes=x", "Content-Type: application/x-www-form-urlencoded"),
        "http.content-type",
    ),
    one("load.json", post("/images/load", {"a": 1}), "http.content-type"),
]

CONTEXT = archive(("Dockerfile", tarfile.REGTYPE, b"FROM ubuntu:24.04\nRUN id\n"))


def build(query: str, rule: str, *lines: str) -> Attack:
    return one(f"build.{query[:40]}", raw("POST", f"/v1.45/build?{query}", CONTEXT, *(lines or (TAR,))), rule)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One HTTP/2 frame (RFC 9113 4.1)."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def over_http2(path: str, media: str, body: bytes) -> bytes:
    """A request as HTTP/2 from its preface on, its headers as plain literals (RFC 7541 6.2.2)."""
    headers = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "docker", "content-type": media}
    fields = b"".join(
        b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in headers.items()
    )
    request = frame(4, 0, 0) + frame(1, 4, 1, fields) + frame(0, 1, 1, body)
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + request


def tunnel(path: str, inside: bytes) -> bytes:
    """A tunnel of BuildKit's and what is sent into it."""
    head = f"POST {path} HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    return head.encode() + inside


BUILDS = [
    build("networkmode=host", "host.network"),
    build("networkmode=HOST", "host.network"),
    build("networkmode=container:x", "host.network"),
    build("n%65tworkmode=host", "host.network"),
    build("cgroupparent=/", "hw.cgroup"),
    build("cgroupparent=null", "hw.cgroup"),
    build("cgroupparent=%5B%5D", "hw.cgroup"),
    build("securityopt=%5B%22seccomp=unconfined%22%5D", "host.security"),
    build("remote=http://127.0.0.1/x", "build.remote"),
    build("remote=git://x/y", "build.remote"),
    build("remote=client-session", "build.remote"),
    build("version=2&networkmode=host", "host.network"),
    build("version=2&cgroupparent=/", "hw.cgroup"),
    build("version=2&remote=https://x/y.git", "build.remote"),
    build("version=3", "build.buildkit"),
    build("session=abc", "build.buildkit"),
    build("outputs=%5B%7B%22Type%22:%22local%22%7D%5D", "build.buildkit"),
    build("isolation=process", "host.isolation"),
    build("privileged=1", "http.query"),
    build("device=nvidia.com/gpu=0", "http.query"),
    build("entitlements=device", "http.query"),
    build("networkmode=bridge&networkmode=host", "http.query"),
    build("t=a;networkmode=host", "http.query"),
    one(
        "build.form",
        raw("POST", "/build?t=x", "networkmode=host", "Content-Type: application/x-www-form-urlencoded"),
        "http.content-type",
    ),
    one(
        "build.multipart",
        raw(
            "POST",
            "/build?t=x",
            '--x\r\nContent-Disposition: form-data; name="networkmode"\r\n\r\nhost\r\n--x--\r\n',
            "Content-Type: multipart/form-data; boundary=x",
        ),
        "http.content-type",
    ),
    one(
        "build.form-upper",
        raw("POST", "/build?t=x", "networkmode=host", "Content-Type: APPLICATION/X-WWW-FORM-URLENCODED"),
        "http.content-type",
    ),
    one("buildkit.grpc", post("/grpc"), "http.upgrade"),
    one("buildkit.session", post("/session"), "http.upgrade"),
    one("buildkit.session-versioned", post("/v1.45/session"), "http.upgrade"),
    *(
        one(
            f"buildkit.{path[1:]}-{media.rpartition('/')[2]}-in-tunnel",
            tunnel(path, over_http2("/v1.45/containers/create?name=tunnelled", media, json.dumps(PRIVILEGED).encode())),
            free=True,
        )
        for path in ("/grpc", "/session")
        for media in ("application/json", "application/grpc")
    ),
    one("buildkit.control", post("/moby.buildkit.v1.Control/Solve", b"\0\0\0\0\0", "Content-Type: application/grpc")),
    one(
        "buildkit.container",
        create({"Image": "moby/buildkit:buildx-stable-1", "HostConfig": {"Privileged": True}}),
        "hw.privileged",
    ),
]


DOCKERFILES = [
    one(
        f"dockerfile.{id_}",
        raw("POST", "/v1.45/build?forcerm=1", archive(("Dockerfile", tarfile.REGTYPE, text.encode())), TAR),
        free=True,
        never=b"Successfully built",
    )
    for id_, text in {
        "device": "FROM ubuntu:24.04\nRUN --device=nvidia.com/gpu=0 cat /dev/nvidia0\n",
        "device-syntax": "# syntax=docker/dockerfile:1-labs\nFROM ubuntu:24.04\nRUN --device=nvidia.com/gpu=0 id\n",
        "insecure": "FROM ubuntu:24.04\nRUN --security=insecure cat /dev/mem\n",
        "network": "FROM ubuntu:24.04\nRUN --network=host id\n",
        "mount": "FROM ubuntu:24.04\nRUN --mount=type=bind,source=/dev,target=/x ls /x\n",
        "volume": 'FROM ubuntu:24.04\nVOLUME ["/dev:/x"]\nRUN ls /x\n',
        "mount-device": "FROM ubuntu:24.04\nRUN mkdir /m && mount -t devtmpfs x /m && ls /m\n",
        "cgroup": "FROM ubuntu:24.04\nRUN echo a >/sys/fs/cgroup/devices/devices.allow\n",
    }.items()
]
"""Each step fails where it gets nothing."""


def volume(id_: str, rule: str = "hw.volumes", **fields: Any) -> Attack:
    return one(f"volume.{id_}", post("/volumes/create", {"Name": "evil"} | fields), rule)


VOLUMES = [
    volume("bind-dev", DriverOpts={"type": "none", "o": "bind", "device": "/dev"}),
    volume("rbind-root", DriverOpts={"type": "none", "o": "rbind", "device": "/"}),
    volume("devtmpfs", DriverOpts={"type": "devtmpfs", "device": "devtmpfs"}),
    volume("sysfs", DriverOpts={"type": "sysfs", "device": "sysfs"}),
    volume("proc", DriverOpts={"type": "proc", "device": "proc"}),
    volume("overlay", DriverOpts={"type": "overlay", "o": "lowerdir=/,upperdir=/tmp,workdir=/tmp"}),
    volume("block", DriverOpts={"type": "ext4", "device": "/dev/sda"}),
    volume("nfs", DriverOpts={"type": "nfs", "o": "addr=127.0.0.1", "device": ":/"}),
    volume("tmpfs", DriverOpts={"type": "tmpfs", "device": "tmpfs"}),
    volume("case", driveropts={"type": "none", "o": "bind", "device": "/dev"}),
    volume("driver", Driver="x/y:latest"),
    volume("driver-case", Driver="Local"),
    volume("cluster", "body.field", ClusterVolumeSpec={"Group": "x"}),
    one(
        "volume.duplicate",
        post("/volumes/create", '{"Name":"evil","DriverOpts":{"device":"/dev"},"DriverOpts":{}}'),
        "body.keys",
    ),
    one("volume.put", raw("PUT", "/volumes/evil?version=1", {"Spec": {}}), "hw.volumes"),
]


def network(id_: str, rule: str = "host.network-driver", **fields: Any) -> Attack:
    return one(f"network.{id_}", post("/networks/create", {"Name": "evil"} | fields), rule)


NETWORKS = [
    network("macvlan", Driver="macvlan", Options={"parent": "eth0"}),
    network("ipvlan", Driver="ipvlan"),
    network("host", Driver="host"),
    network("overlay", Driver="overlay"),
    network("plugin", Driver="x/y"),
    network("case", Driver="Bridge"),
    network("scope", Scope="swarm"),
    network("bridge-name", Options={"com.docker.network.bridge.name": "docker0"}),
    network("ipam", IPAM={"Driver": "x/y"}),
    network("ipam-options", IPAM={"Options": {"a": "b"}}),
    network("config-from", "body.field", ConfigFrom={"Network": "x"}),
    network("config-only", "body.field", ConfigOnly=True),
    network("ingress", "body.field", Ingress=True),
    *(
        one(f"network.name-{name}", post("/networks/create", {"Name": name}), free=True)
        for name in ("host", "none", "default", "container:cc", "ns:/proc/1/ns/net", "../host", "h\u043est")
    ),
    Attack("network.connect-host", (CREATED, post("/networks/host/connect", {"Container": "cc"})), "host.network"),
    Attack(
        "network.connect-options",
        (
            CREATED,
            post("/networks/bridge/connect", {"Container": "cc", "EndpointConfig": {"DriverOpts": {"parent": "eth0"}}}),
        ),
        "host.endpoint",
    ),
    Attack("network.connect-path", (CREATED, post("/networks/bridge/connect", {"Container": "../cc"})), "http.name"),
]

SERVICE = {
    "Name": "evil",
    "TaskTemplate": {
        "ContainerSpec": {"Image": "ubuntu:24.04", "Mounts": [{"Type": "bind", "Source": "/dev", "Target": "/dev"}]}
    },
}
FAMILIES = [
    one("plugins.pull", post("/plugins/pull?remote=x/y", []), "hw.plugins"),
    one(
        "plugins.create",
        raw("POST", "/plugins/create?name=evil", archive(("config.json", tarfile.REGTYPE, b"{}")), TAR),
        "hw.plugins",
    ),
    one("plugins.enable", post("/plugins/x/enable"), "hw.plugins"),
    one("plugins.set", post("/v1.45/plugins/x/set", ["A=1"]), "hw.plugins"),
    one("plugins.slashes", post("/plugins/a/b/c/upgrade", []), "hw.plugins"),
    one("swarm.init", post("/swarm/init", {"ListenAddr": "127.0.0.1:2377"}), "hw.swarm"),
    one("swarm.join", post("/swarm/join", {}), "hw.swarm"),
    one("service.create", post("/services/create", SERVICE), "hw.swarm"),
    one("service.plugin", post("/services/create", {"Name": "x", "TaskTemplate": {"Runtime": "plugin"}}), "hw.swarm"),
    one("service.update", post("/services/x/update?version=1", SERVICE), "hw.swarm"),
    one("secret.create", post("/secrets/create", {"Name": "x"}), "hw.swarm"),
    one("config.create", post("/configs/create", {"Name": "x"}), "hw.swarm"),
    one("node.update", post("/nodes/x/update", {}), "hw.swarm"),
    one("task.logs", raw("GET", "/tasks/x/logs"), "hw.swarm"),
    one("debug.vars", raw("GET", "/debug/vars"), "route.debug"),
    one("debug.cmdline", raw("GET", "/debug/pprof/cmdline"), "route.debug"),
    one("libpod.create", post("/libpod/containers/create", PRIVILEGED), "route.libpod"),
    one("libpod.versioned", post("/v5.0/libpod/containers/create", PRIVILEGED), "http.version"),
    one("options", raw("OPTIONS", "/containers/json"), "route.options"),
    one("trace", raw("TRACE", "/_ping"), "route.unknown"),
    one("gate.control", raw("PUT", "/v1/snapshot", {"schema": 1}), "route.unknown"),
    one("gate.status", raw("GET", "/v1/status"), "route.unknown"),
    one("metrics", raw("GET", "/metrics"), "route.unknown"),
]

TABLE = [*CONTAINERS, *ARCHIVES, *IMAGES, *BUILDS, *DOCKERFILES, *VOLUMES, *NETWORKS, *FAMILIES]
