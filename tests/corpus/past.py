"""What was made past the gate, on the daemon's own socket, and what may then be tried through the gate.

So it is with a data root from before the gate, with a fork's copy, and with what was granted once.
"""

from __future__ import annotations

from typing import Any

from intruder import FOLDER, JSON, Attack, cdi, create, host, raw

OTHER = "rediacc.io/amd=gpu0"
NULL = {"PathOnHost": "/dev/null", "PathInContainer": "/dev/other", "CgroupPermissions": "rwm"}
BIND_ROOT = {"Type": "bind", "Source": "/", "Target": "/x"}
EVIL_VOLUME = raw(
    "POST", "/volumes/create", {"Name": "evil", "DriverOpts": {"type": "none", "o": "bind", "device": "/"}}
)
MOUNTS_EVIL = host(Binds=["evil:/x"])
START_STALE = raw("POST", "/containers/stale/start")

HARDWARE: dict[str, tuple[dict[str, Any], str]] = {
    "privileged": (host(Privileged=True), "hw.privileged"),
    "device": (host(Devices=[NULL]), "hw.devices"),
    "cgroup-rule": (host(DeviceCgroupRules=["c 1:3 rwm"]), "hw.cgroup-rules"),
    "sys-admin": (host(CapAdd=["SYS_ADMIN"]), "hw.capabilities"),
    "all": (host(CapAdd=["ALL"]), "hw.capabilities"),
    "pid": (host(PidMode="host"), "hw.pid"),
    "masks": (host(MaskedPaths=[], ReadonlyPaths=[]), "hw.masks"),
    "bind-dev": (host(Binds=["/dev:/x"]), "hw.trees"),
    "bind-root": (host(Mounts=[BIND_ROOT]), "hw.trees"),
    "annotation": (host(Annotations={"a": "b"}), "hw.annotations"),
    "cgroup-parent": (host(CgroupParent="/other"), "hw.cgroup"),
}
"""What the daemon starts when it is asked to itself."""
HOST: dict[str, tuple[dict[str, Any], str]] = {
    "network": (host(NetworkMode="host"), "host.network"),
    "ipc": (host(IpcMode="host"), "host.ipc"),
    "seccomp": (host(SecurityOpt=["seccomp=unconfined"]), "host.security"),
    "net-admin": (host(CapAdd=["NET_ADMIN"]), "host.capabilities"),
    "bind-home": (host(Binds=["/home:/x"]), "host.binds"),
    "swappable": (host(Binds=[f"{FOLDER}/sub:/x"]), "host.binds"),
    "link": (host(Binds=[f"{FOLDER}/link:/x"]), "host.binds"),
    "propagation": (host(Binds=["/home:/x:rslave"]), "host.mounts"),
    "tmpfs": (host(Tmpfs={"/x": "dev"}), "host.tmpfs"),
}
NEVER: dict[str, tuple[dict[str, Any], str]] = {
    "cdi": (cdi(OTHER), "hw.grant"),
    "cdi-beside": (cdi("nvidia.com/gpu=0", OTHER), "hw.grant"),
    "cdi-capabilities": (cdi("nvidia.com/gpu=0", Capabilities=[["gpu"]]), "hw.gpus"),
}
"""A sealed daemon starts none of these itself."""
RUNTIMES: dict[str, tuple[dict[str, Any], str]] = {
    "runtime": (host(Runtime="io.containerd.runc.v2"), "hw.runtime"),
}
MADE = HARDWARE | HOST | NEVER | RUNTIMES


def stale(body: dict[str, Any], *more: bytes) -> tuple[bytes, ...]:
    return (create(body, "stale"), *more)


STARTS = [
    Attack(f"{verb}.{name}", (raw("POST", f"/containers/stale/{verb}"),), rule, past=stale(body))
    for name, (body, rule) in MADE.items()
    for verb in ("start", "restart")
]
POLICY = raw("POST", "/containers/stale/update", {"RestartPolicy": {"Name": "always"}})
EXEC = raw("POST", "/containers/stale/exec", {"Cmd": ["sh"]})
ATTACH = raw(
    "POST", "/containers/stale/attach?stream=1&stdin=1", None, "Connection: Upgrade", "Upgrade: tcp", close=False
)
ATTACH_WS = raw(
    "GET",
    "/containers/stale/attach/ws?stream=1&stdin=1",
    None,
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    close=False,
)
RUNNING = [
    attack
    for name, (body, rule) in HARDWARE.items()
    for attack in (
        Attack(f"exec.{name}", (EXEC,), rule, past=stale(body, START_STALE)),
        Attack(f"attach.{name}", (ATTACH,), rule, past=stale(body, START_STALE)),
        Attack(f"attach-ws.{name}", (ATTACH_WS,), rule, past=stale(body, START_STALE)),
        Attack(
            f"restart-running.{name}",
            (raw("POST", "/containers/stale/restart?t=0"),),
            rule,
            past=stale(body, START_STALE),
        ),
        Attack(f"policy.{name}", (POLICY,), rule, past=stale(body, START_STALE)),
        Attack(
            f"unpause.{name}",
            (raw("POST", "/containers/stale/unpause"),),
            rule,
            past=stale(body, START_STALE, raw("POST", "/containers/stale/pause")),
        ),
        Attack(
            f"exec-start.{name}",
            (raw("POST", "/exec/%ID%/start", {"Detach": True}),),
            rule,
            past=stale(body, START_STALE, EXEC),
        ),
    )
] + [Attack(f"policy.{name}", (POLICY,), rule, past=stale(body)) for name, (body, rule) in NEVER.items()]

PLAIN = stale(host(), START_STALE)
FROM_STALE = create(host(VolumesFrom=["stale"]))
PUT_ROOT = raw("PUT", "/containers/stale/archive?path=/x/tmp", bytes(1024), "Content-Type: application/x-tar")
GET_ROOT = raw("GET", "/containers/stale/archive?path=/x/etc/hostname")
OTHERS = [
    Attack(
        "exec-start.privileged-exec",
        (raw("POST", "/exec/%ID%/start", {"Detach": True}),),
        "hw.privileged",
        past=(*PLAIN, raw("POST", "/containers/stale/exec", {"Cmd": ["id"], "Privileged": True})),
    ),
    Attack(
        "exec-start.upgrade",
        (raw("POST", "/exec/%ID%/start", {"Detach": False}, JSON, "Connection: Upgrade", "Upgrade: tcp", close=False),),
        "hw.privileged",
        past=(*PLAIN, raw("POST", "/containers/stale/exec", {"Cmd": ["id"], "Privileged": True})),
    ),
    Attack("volume.by-bind", (create(MOUNTS_EVIL),), "hw.volumes", past=(EVIL_VOLUME,)),
    Attack(
        "volume.by-mount",
        (create(host(Mounts=[{"Type": "volume", "Source": "evil", "Target": "/x"}])),),
        "hw.volumes",
        past=(EVIL_VOLUME,),
    ),
    Attack(
        "volume.by-mount-subpath",
        (
            create(
                host(Mounts=[{"Type": "volume", "Source": "evil", "Target": "/x", "VolumeOptions": {"Subpath": "dev"}}])
            ),
        ),
        "hw.volumes",
        past=(EVIL_VOLUME,),
    ),
    Attack("volume.by-start", (START_STALE,), "hw.volumes", past=(EVIL_VOLUME, *stale(MOUNTS_EVIL))),
    Attack("volume.by-exec", (EXEC,), "hw.volumes", past=(EVIL_VOLUME, *stale(MOUNTS_EVIL, START_STALE))),
    Attack("volume.by-policy", (POLICY,), "hw.volumes", past=(EVIL_VOLUME, *stale(MOUNTS_EVIL, START_STALE))),
    Attack(
        "volume.by-exec-start",
        (raw("POST", "/exec/%ID%/start", {"Detach": True}),),
        "hw.volumes",
        past=(EVIL_VOLUME, *stale(MOUNTS_EVIL, START_STALE, EXEC)),
    ),
    Attack("archive.into-root", (PUT_ROOT,), "hw.trees", past=stale(host(Mounts=[BIND_ROOT]))),
    Attack("archive.into-volume", (PUT_ROOT,), "hw.volumes", past=(EVIL_VOLUME, *stale(MOUNTS_EVIL))),
    Attack("archive.out-of-root", (GET_ROOT,), "hw.trees", past=stale(host(Mounts=[BIND_ROOT]))),
    Attack("archive.out-of-dev", (GET_ROOT,), "hw.trees", past=stale(host(Binds=["/dev:/x"]))),
    Attack("archive.out-of-volume", (GET_ROOT,), "hw.volumes", past=(EVIL_VOLUME, *stale(MOUNTS_EVIL))),
    Attack("volumes-from.bind", (FROM_STALE,), "hw.trees", past=stale(host(Binds=["/dev:/x"]))),
    Attack("volumes-from.root", (FROM_STALE,), "hw.trees", past=stale(host(Mounts=[BIND_ROOT]))),
    Attack("volumes-from.volume", (FROM_STALE,), "hw.volumes", past=(EVIL_VOLUME, *stale(MOUNTS_EVIL))),
    Attack(
        "volumes-from.read-only",
        (create(host(VolumesFrom=["stale:ro"])),),
        "hw.trees",
        past=stale(host(Binds=["/dev:/x"])),
    ),
    Attack(
        "volumes-from.chain",
        (create(host(VolumesFrom=["second"])),),
        "hw.trees",
        past=(*stale(host(Binds=["/dev:/x"])), create(host(VolumesFrom=["stale"]), "second")),
    ),
    Attack(
        "network.of-host",
        (create(host(NetworkMode="container:stale")),),
        "host.shared",
        past=stale(host(NetworkMode="host"), START_STALE),
    ),
    Attack(
        "network.of-host-chain",
        (create(host(NetworkMode="container:second")),),
        "host.shared",
        past=(
            *stale(host(NetworkMode="host"), START_STALE),
            create(host(NetworkMode="container:stale"), "second"),
            raw("POST", "/containers/second/start"),
        ),
    ),
    Attack(
        "ipc.of-host",
        (create(host(IpcMode="container:stale")),),
        "host.shared",
        past=stale(host(IpcMode="host"), START_STALE),
    ),
    Attack(
        "pid.of-host",
        (create(host(PidMode="container:stale")),),
        "hw.pid",
        past=stale(host(PidMode="host"), START_STALE),
    ),
    Attack(
        "cgroup.of-privileged",
        (create(host(Cgroup="container:stale")),),
        "hw.cgroup",
        past=stale(host(Privileged=True), START_STALE),
    ),
    Attack(
        "name.legacy-alias",
        (raw("POST", "/containers/second%2Fx/start"),),
        past=(*stale(host(Privileged=True)), create(host(), "second")),
    ),
]

TABLE = [*STARTS, *RUNNING, *OTHERS]
