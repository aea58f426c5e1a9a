"""What looks like power and gives none: it passes, and the daemon's own word is that nothing came of it."""

from __future__ import annotations

from typing import Any

from intruder import IMAGE, JSON, Attack, create, host, one, raw


def passes(id_: str, body: Any, *, name: str = "intruder") -> Attack:
    return one(f"allowed.{id_}", create(body, name), answers=(201,))


def config(**fields: Any) -> dict[str, Any]:
    """A create body with these fields beside its HostConfig."""
    return host() | fields


CREATES = [
    passes("uts-host", host(UTSMode="host")),
    passes("groups", host(GroupAdd=["video", "render", "44"])),
    passes("capabilities", host(CapAdd=["cap_chown", "CAP_NET_RAW", "Kill"])),
    passes("drop-all", host(CapDrop=["ALL"])),
    passes("environment", config(Env=["NVIDIA_VISIBLE_DEVICES=all", "AMD_VISIBLE_DEVICES=all", "LD_PRELOAD=/x"])),
    passes("labels", config(Labels={"cdi.k8s.io/gpu": "nvidia.com/gpu=all", "org.systemd.property.DeviceAllow": "x"})),
    passes("healthcheck", config(Healthcheck={"Test": ["CMD", "true"], "Interval": 10**9})),
    passes("stop-signal", config(StopSignal="SIGKILL", Tty=True, OpenStdin=True, StdinOnce=True)),
    passes("anonymous-volume", config(Volumes={"/dev/other": {}})),
    passes("volume-over-proc", host(Mounts=[{"Type": "volume", "Target": "/proc/other"}])),
    passes("tmpfs", host(Tmpfs={"/x": "size=1m,exec"}, Mounts=[{"Type": "tmpfs", "Target": "/y"}])),
    passes("security", host(SecurityOpt=["no-new-privileges:true"])),
    passes("sysctls", host(Sysctls={"net.core.somaxconn": "10"})),
    passes("restart", host(RestartPolicy={"Name": "always"})),
    passes("old-fields", host(KernelMemory=1, KernelMemoryTCP=1) | {"MacAddress": "02:42:ac:11:00:09"}),
    passes("cgroup-private", host(CgroupnsMode="private", IpcMode="shareable")),
    passes("ports", host(PublishAllPorts=True, PortBindings={"80/tcp": [{"HostIp": "127.0.0.1"}]})),
    passes("resources", host(Memory=2**28, NanoCpus=10**9, PidsLimit=9, ShmSize=2**20, CpusetCpus="0", OomScoreAdj=-1)),
    passes("rootfs", host(ReadonlyRootfs=True, Init=True, AutoRemove=False, ConsoleSize=[1, 1])),
    passes("names", host(Dns=["127.0.0.1"], DnsSearch=["a"], DnsOptions=["b"], ExtraHosts=["a:127.0.0.1"])),
    passes("id-file", host(ContainerIDFile="/etc/cron.d/x", VolumeDriver="local")),
    passes("null", host(Devices=None, DeviceRequests=None, Privileged=None, MaskedPaths=None, Annotations=None)),
    passes("zero", host(Devices=[], DeviceRequests=[{}], Isolation="default", MemorySwappiness=-1, Unknown={"a": []})),
    passes("empty-runtime", host(Runtime="")),
    passes("on-build", config(OnBuild=["VOLUME /dev", "RUN id"], ArgsEscaped=True, Shell=["sh"])),
    passes("upper-case", {"IMAGE": IMAGE, "HOSTCONFIG": {"GROUPADD": ["video"]}}),
    one("allowed.platform", raw("POST", "/containers/create?name=intruder&platform=linux", host()), answers=(201,)),
    one("allowed.bare", raw("POST", "/containers/create?name=intruder", {"Image": IMAGE}), answers=(201,)),
    one(
        "allowed.length-with-zeros",
        raw("POST", "/containers/create", {"Image": IMAGE}).replace(b"Content-Length: ", b"Content-Length: 00"),
        answers=(201,),
    ),
]  # fmt: skip
EMPTIES = [
    Attack(
        f"allowed.start-{name}",
        (
            create(host(), "cc"),
            raw("POST", "/containers/cc/start", body, JSON).replace(b"Content-Length: 0\r\n", length),
            raw("POST", "/containers/cc/stop?t=0"),
        ),
        answers=(204,),
    )
    for name, body, length in (
        ("object", b"{}", b""),
        ("null", b"null", b""),
        ("nothing", b"", b""),
        ("zero", b"", b"Content-Length: 0\r\n"),
    )
]
VOLUME = {"Type": "volume", "Source": "vol", "Target": "/y", "VolumeOptions": {"NoCopy": True, "Labels": {"a": "b"}}}
TOGETHER = [
    Attack(
        "allowed.volumes-together",
        (
            create(host(Mounts=[VOLUME]) | {"Volumes": {"/a": {}}}, "lender"),
            create(host(VolumesFrom=["lender:ro"], Mounts=[VOLUME], Binds=["other:/z:ro"]) | {"Volumes": {"/b": {}}}),
        ),
        answers=(201,),
    ),
    Attack(
        "allowed.header-range",
        (
            create(host(), "cc"),
            raw("GET", "/containers/cc/archive?path=/etc/passwd", None, "Range: bytes=0-1", "If-Range: x"),
        ),
        answers=(200,),
    ),
]  # fmt: skip
READS = [
    one(f"allowed.read-{target.split('?')[0].strip('/').replace('/', '-')}", raw("GET", target), answers=(200,))
    for target in (
        "/_ping",
        "/version",
        "/info",
        "/events?since=1&until=2",
        "/system/df",
        "/containers/json?all=1",
        "/images/json",
        "/volumes",
        "/networks",
    )
] + [
    one("allowed.read-host-path", raw("GET", "/_ping").replace(b"docker", b"/var/run/docker.sock"), answers=(200,)),
    one("allowed.read-host-is-empty", raw("GET", "/_ping").replace(b" docker", b""), answers=(200,)),
    one("allowed.read-head", raw("HEAD", "/_ping"), answers=(200,)),
]  # fmt: skip

TABLE = [*CREATES, *EMPTIES, *TOGETHER, *READS]
