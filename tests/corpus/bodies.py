"""Attacks in the bodies of requests: what a JSON reader could read otherwise, and each spelling of hardware."""

from __future__ import annotations

from typing import Any

from intruder import FOLDER, IMAGE, PRIVILEGED, Attack, cdi, create, host, one, raw

GPUS = {"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}
NODE = {"PathOnHost": "/dev/nvidia0", "PathInContainer": "/dev/nvidia0", "CgroupPermissions": "rwm"}
OTHER = "rediacc.io/amd=gpu0"
"""A device that the machine has and that neither repo holds."""


def body(text: str) -> bytes:
    """A create with this text as its body; `$` stands for the image and a command."""
    return create(text.replace("$", f'"Image":"{IMAGE}","Cmd":["sleep","600"]'))


def coded(text: str, coding: str) -> bytes:
    return create(text.replace("$", f'"Image":"{IMAGE}"').encode(coding))


READINGS = [
    one("json.duplicate-object", body('{$,"HostConfig":{"Privileged":true},"HostConfig":{"Binds":[]}}'), "body.keys"),
    one("json.duplicate-null", body('{$,"HostConfig":{"Privileged":true},"HostConfig":null}'), "body.keys"),
    one("json.duplicate-scalar", body('{$,"HostConfig":{"Privileged":true,"Privileged":null}}'), "body.keys"),
    one("json.duplicate-false", body('{$,"HostConfig":{"Privileged":true,"Privileged":false}}'), "body.keys"),
    one(
        "json.duplicate-list",
        body('{$,"HostConfig":{"DeviceRequests":[{"Driver":"nvidia","Count":-1}],"DeviceRequests":[{}]}}'),
        "body.keys",
    ),
    one(
        "json.duplicate-map", body('{$,"HostConfig":{"Sysctls":{"net.a":"1"},"Sysctls":{"kernel.b":"1"}}}'), "body.keys"
    ),
    one(
        "json.duplicate-cleared", body('{$,"HostConfig":{"Binds":["/dev:/x"],"Binds":[],"Binds":[null]}}'), "body.keys"
    ),
    one(
        "json.duplicate-deep",
        body('{$,"HostConfig":{"Mounts":[{"Type":"bind","Source":"/dev","Type":"volume","Target":"/x"}]}}'),
        "body.keys",
    ),
    one("json.fold-host", body('{$,"HostConfig":{"Privileged":true},"hostconfig":{}}'), "body.keys"),
    one("json.fold-upper", body('{$,"HOSTCONFIG":{"PRIVILEGED":true}}'), "hw.privileged"),
    one("json.fold-inner", body('{$,"HostConfig":{"privileged":true,"Privileged":false}}'), "body.keys"),
    one(
        "json.fold-request",
        body('{$,"HostConfig":{"DeviceRequests":[{"Driver":"cdi","driver":"nvidia","DeviceIDs":["0"]}]}}'),
        "body.keys",
    ),
    one("json.long-s", body('{$,"Ho\u017ftConfig":{"Privileged":true}}'), "body.keys"),
    one("json.long-s-escaped", body('{$,"Ho\\u017ftConfig":{"Privileged":true}}'), "body.keys"),
    one("json.long-s-inner", body('{$,"HostConfig":{"Device\u017f":[]}}'), "body.keys"),
    one("json.kelvin", body('{$,"HostConfig":{"Networ\u212aMode":"host"}}'), "body.keys"),
    one("json.kelvin-escaped", body('{$,"HostConfig":{"Networ\\u212aMode":"host"}}'), "body.keys"),
    one("json.escaped-key", body('{$,"\\u0048ostConfig":{"\\u0050rivileged":true}}'), "hw.privileged"),
    one("json.key-blank", body('{$,"HostConfig ":{"Privileged":true}}'), "body.field"),
    one("json.key-embedded", body('{$,"Config":{"HostConfig":{"Privileged":true}}}'), "body.field"),
    one(
        "json.key-resources",
        body('{$,"HostConfig":{"Resources":{"Devices":[{"PathOnHost":"/dev/sda"}]}}}'),
        "body.field",
    ),
    one("json.trailing-brace", body('{$}} {"HostConfig":{"Privileged":true}}'), "body.json"),
    one("json.trailing-bracket", body('{$,"HostConfig":{"Privileged":true}} ] {}'), "body.json"),
    one("json.two-values", body('{$}{$,"HostConfig":{"Privileged":true}}'), "body.json"),
    one("json.nul-behind", body('{$,"HostConfig":{"Privileged":true}}\x00'), "body.json"),
    one("json.null", create("null"), "body.type"),
    one("json.list", create("[]"), "body.type"),
    one("json.empty", create(b""), "body.json"),
    one("json.bom", coded('\ufeff{$,"HostConfig":{"Privileged":true}}', "utf-8"), "body.json"),
    one("json.utf16", coded('{$,"HostConfig":{"Privileged":true}}', "utf-16"), "body.json"),
    one("json.utf32", coded('{$,"HostConfig":{"Privileged":true}}', "utf-32-le"), "body.json"),
    one("json.bad-utf8", create(b'{"Image":"%b","Env":["\xff"]}' % IMAGE.encode()), "body.json"),
    one(
        "json.overlong-utf8",
        create(b'{"Image":"%b","HostConfig":{"Runtime":"\xc0\xaf"}}' % IMAGE.encode()),
        "body.json",
    ),
    one("json.half-surrogate", body('{$,"Env":["\\ud800"]}'), "body.json"),
    one("json.nul-in-enum", body('{$,"HostConfig":{"Runtime":"runc\\u0000"}}'), "body.json"),
    one("json.control-in-path", body('{$,"HostConfig":{"Binds":["' + FOLDER + '\\n:/x"]}}'), "host.mounts"),
    one("json.nan", body('{$,"HostConfig":{"Memory":NaN}}'), "body.json"),
    one("json.infinity", body('{$,"HostConfig":{"Memory":-Infinity}}'), "body.json"),
    one("json.float", body('{$,"HostConfig":{"DeviceRequests":[{"Driver":"cdi","Count":1.0}]}}'), "body.json"),
    one("json.exponent", body('{$,"HostConfig":{"PidsLimit":1e3}}'), "body.json"),
    one("json.huge-integer", body('{$,"HostConfig":{"Memory":%s}}' % ("9" * 5000)), "body.json"),
    one("json.int64-overflow", body('{$,"HostConfig":{"Memory":9223372036854775808}}'), "body.json"),
    one("json.bool-text", body('{$,"HostConfig":{"Privileged":"true"}}'), "body.type"),
    one("json.bool-number", body('{$,"HostConfig":{"Privileged":1}}'), "body.type"),
    one("json.int-bool", body('{$,"HostConfig":{"DeviceRequests":[{"Driver":"cdi","Count":true}]}}'), "body.type"),
    one("json.object-for-list", body('{$,"HostConfig":{"Devices":{"0":{"PathOnHost":"/dev/sda"}}}}'), "body.type"),
    one("json.text-for-list", body('{$,"HostConfig":{"Binds":"/dev:/dev"}}'), "body.type"),
    one("json.null-in-list", body('{$,"HostConfig":{"Binds":[null]}}'), "body.type"),
    one("json.null-request", body('{$,"HostConfig":{"DeviceRequests":[null]}}'), "body.type"),
    one("json.deep", body('{$,"Labels":' + '{"a":' * 200 + "1" + "}" * 200 + "}"), "body.json"),
    one("json.deep-list", body('{$,"Cmd":' + "[" * 100_000 + "]" * 100_000 + "}"), "body.size"),
    one("json.many-values", body('{$,"Env":[' + ",".join(['""'] * 30_000) + "]}"), "body.size"),
    one("json.large", body('{$,"Env":["' + "a" * (2 * 1024 * 1024) + '"]}'), "wire.body-size"),
    one("json.comment", body('{$,/*"HostConfig":{}*/"HostConfig":{"Privileged":true}}'), "body.json"),
    one("json.trailing-comma", body('{$,"HostConfig":{"Privileged":true},}'), "body.json"),
    one("json.single-quotes", body("{$,'HostConfig':{'Privileged':true}}"), "body.json"),
    one("media.none", raw("POST", "/containers/create", PRIVILEGED, "X-No: type"), "http.content-type"),
    one("media.text", raw("POST", "/containers/create", PRIVILEGED, "Content-Type: text/json"), "http.content-type"),
    one(
        "media.form",
        raw("POST", "/containers/create", PRIVILEGED, "Content-Type: application/x-www-form-urlencoded"),
        "http.content-type",
    ),
    one(
        "media.two",
        raw("POST", "/containers/create", PRIVILEGED, "Content-Type: application/json", "Content-Type: text/x"),
        "wire.duplicate-header",
    ),
    one(
        "media.parameter",
        raw("POST", "/containers/create", PRIVILEGED, "Content-Type: application/json; charset=utf-7"),
        "hw.privileged",
    ),
]


def request(**fields: Any) -> bytes:
    return create(host(DeviceRequests=[{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"]} | fields]))


DEVICES = [
    one("hw.cdi-not-held", create(cdi(OTHER)), "hw.grant"),
    one("hw.cdi-all", create(cdi("nvidia.com/gpu=all")), "hw.grant"),
    one("hw.cdi-one-of-two", create(cdi("nvidia.com/gpu=0", OTHER)), "hw.grant"),
    one(
        "hw.cdi-second-request",
        create(
            host(
                DeviceRequests=[
                    {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"]},
                    {"Driver": "cdi", "DeviceIDs": [OTHER]},
                ]
            )
        ),
        "hw.grant",
    ),
    one("hw.cdi-case", create(cdi("NVIDIA.com/gpu=0")), "hw.grant"),
    one("hw.cdi-blank", create(cdi("nvidia.com/gpu=0 ")), "hw.grant"),
    one("hw.cdi-newline", create(cdi("nvidia.com/gpu=0\n")), "hw.grant"),
    one("hw.cdi-look-alike", create(cdi("nvidia.com/gpu=\u0660")), "hw.grant"),
    one("hw.cdi-glob", create(cdi("nvidia.com/gpu=*")), "hw.grant"),
    one("hw.cdi-comma", create(cdi(f"nvidia.com/gpu=0,{OTHER}")), "hw.grant"),
    one("hw.cdi-kind", create(cdi("nvidia.com/gpu")), "hw.grant"),
    one("hw.cdi-panic", create(cdi("a/b=c")), "hw.grant"),
    one("hw.cdi-empty-name", create(cdi("")), "hw.grant"),
    one("hw.cdi-no-names", create(cdi()), "hw.gpus"),
    one("hw.cdi-count", request(Count=-1), "hw.gpus"),
    one("hw.cdi-capabilities", request(Capabilities=[["gpu"]]), "hw.gpus"),
    one("hw.cdi-empty-capability", request(Capabilities=[[]]), "hw.gpus"),
    one("hw.cdi-options", request(Options={"x": "y"}), "hw.gpus"),
    one("hw.cdi-unknown-key", request(Runtime="nvidia"), "body.field"),
    one("hw.driver-case", request(Driver="CDI"), "hw.gpus"),
    one("hw.driver-blank", request(Driver="cdi "), "hw.gpus"),
    one("hw.driver-none", request(Driver=""), "hw.gpus"),
    one("hw.driver-nvidia", request(Driver="nvidia"), "hw.gpus"),
    one("hw.driver-nvidia-cdi", request(Driver="nvidia.cdi"), "hw.gpus"),
    one("hw.driver-hook", request(Driver="nvidia.runtime-hook"), "hw.gpus"),
    one("hw.driver-amd", request(Driver="amd", Count=-1, DeviceIDs=None), "hw.gpus"),
    one("hw.gpus-all", create(host(DeviceRequests=[GPUS])), "hw.gpus"),
    one("hw.gpus-count", create(host(DeviceRequests=[{"Count": 1}])), "hw.gpus"),
    one(
        "hw.gpus-beside-cdi",
        create(host(DeviceRequests=[{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"]}, GPUS])),
        "hw.gpus",
    ),
    one("hw.raw", create(host(Devices=[NODE])), "hw.devices"),
    one("hw.raw-dri", create(host(Devices=[NODE | {"PathOnHost": "/dev/dri"}])), "hw.devices"),
    one(
        "hw.raw-kfd", create(host(Devices=[NODE | {"PathOnHost": "/dev/kfd", "CgroupPermissions": "m"}])), "hw.devices"
    ),
    one("hw.raw-slashes", create(host(Devices=[NODE | {"PathOnHost": "//dev//nvidia0"}])), "hw.devices"),
    one("hw.raw-dots", create(host(Devices=[NODE | {"PathOnHost": "/tmp/../dev/sda"}])), "hw.devices"),
    one("hw.raw-null-device", create(host(Devices=[NODE | {"PathOnHost": "/dev/null"}])), "hw.devices"),
    one("hw.raw-no-host", create(host(Devices=[{"PathInContainer": "/dev/nvidia0"}])), "hw.devices"),
    one(
        "hw.raw-cdi-not-held",
        create(host(Devices=[{"PathOnHost": OTHER, "PathInContainer": OTHER, "CgroupPermissions": "rwm"}])),
        "hw.grant",
    ),
    one(
        "hw.raw-cdi-other-path",
        create(host(Devices=[{"PathOnHost": "nvidia.com/gpu=0", "PathInContainer": "/dev/sda"}])),
        "hw.devices",
    ),
    one("hw.cgroup-rule", create(host(DeviceCgroupRules=["c 195:* rwm"])), "hw.cgroup-rules"),
    one("hw.cgroup-rule-all", create(host(DeviceCgroupRules=["a *:* rwm"])), "hw.cgroup-rules"),
    one("hw.cgroup-rule-empty", create(host(DeviceCgroupRules=[""])), "hw.cgroup-rules"),
    one("hw.privileged", create(PRIVILEGED), "hw.privileged"),
    one("hw.privileged-old-api", create(PRIVILEGED, prefix="/v1.24"), "hw.privileged"),
    one("hw.privileged-bare", create(PRIVILEGED, prefix=""), "hw.privileged"),
    one("hw.runtime-nvidia", create(host(Runtime="nvidia")), "hw.runtime"),
    one("hw.runtime-shim", create(host(Runtime="io.containerd.runsc.v1")), "hw.runtime"),
    one("hw.runtime-runc-shim", create(host(Runtime="io.containerd.runc.v2")), "hw.runtime"),
    one("hw.runtime-path", create(host(Runtime="/usr/bin/runc")), "hw.runtime"),
    one("hw.runtime-case", create(host(Runtime="RUNC")), "hw.runtime"),
    one("hw.cgroup-parent", create(host(CgroupParent="/")), "hw.cgroup"),
    one("hw.cgroup-parent-dots", create(host(CgroupParent="../../system.slice")), "hw.cgroup"),
    one("hw.cgroup-of", create(host(Cgroup="container:x")), "hw.cgroup"),
    one("hw.pid-host", create(host(PidMode="host")), "hw.pid"),
    one("hw.pid-container", create(host(PidMode="container:x")), "hw.pid"),
    one(
        "hw.annotation-systemd",
        create(host(Annotations={"org.systemd.property.DeviceAllow": "['/dev/sda rw']"})),
        "hw.annotations",
    ),
    one("hw.annotation-criu", create(host(Annotations={"org.criu.config": "/tmp/x"})), "hw.annotations"),
    one("hw.annotation-cdi", create(host(Annotations={"cdi.k8s.io/x": OTHER})), "hw.annotations"),
    one("hw.masked-empty", create(host(MaskedPaths=[])), "hw.masks"),
    one("hw.readonly-empty", create(host(ReadonlyPaths=[])), "hw.masks"),
    one("hw.masked-part", create(host(MaskedPaths=["/proc/kcore"])), "hw.masks"),
    one("hw.blkio", create(host(BlkioDeviceReadBps=[{"Path": "/dev/sda", "Rate": 1}])), "host.blkio"),
    one("hw.legacy-capabilities", create(host(Capabilities=["CAP_SYS_ADMIN"])), "host.capabilities"),
    one("hw.windows-isolation", create(host(Isolation="process")), "host.isolation"),
    one("hw.unknown-field", create(host(NriConfig={"a": 1})), "body.field"),
    one("hw.top-level", create({"Image": IMAGE, "Privileged": True, "Devices": [NODE]}), "body.field"),
]

CAPABILITIES = [
    one(f"cap.{name}", create(host(CapAdd=[name])))
    for name in (
        "ALL",
        "all",
        "CAP_ALL",
        "Cap_aLL",
        "SYS_ADMIN",
        "cap_sys_admin",
        "CAP_SYS_RAWIO",
        "sys_module",
        "SYS_PTRACE",
        "CAP_BPF",
        "PERFMON",
        "NET_ADMIN",
        "DAC_READ_SEARCH",
        "SYSLOG",
        "CAP_CAP_SYS_ADMIN",
        " SYS_ADMIN",
        "\u017fYS_ADMIN",
        "SYS_ADMIN\x00",
        "",
    )
] + [
    one("cap.text", create(host(CapAdd="SYS_ADMIN")), "hw.capabilities"),
    one("cap.behind-harmless", create(host(CapAdd=["IPC_LOCK", "SYS_ADMIN"])), "hw.capabilities"),
]

MODES = [
    one("ns.network", create(host(NetworkMode="host")), "host.network"),
    one("ns.network-case", create(host(networkmode="host")), "host.network"),
    one(
        "ns.network-endpoint", create(host() | {"NetworkingConfig": {"EndpointsConfig": {"host": {}}}}), "host.network"
    ),
    one("ns.network-ns", create(host(NetworkMode="ns:/proc/1/ns/net")), "host.network"),
    one("ns.network-container-none", create(host(NetworkMode="container:")), "host.shared"),
    one("ns.network-container-path", create(host(NetworkMode="container:../1")), "host.shared"),
    one("ns.network-container-unknown", create(host(NetworkMode="container:nobody")), "host.shared"),
    one("ns.ipc", create(host(IpcMode="host")), "host.ipc"),
    one("ns.ipc-unknown", create(host(IpcMode="hosT")), "host.ipc"),
    one("ns.userns", create(host(UsernsMode="host")), "host.userns"),
    one("ns.cgroup", create(host(CgroupnsMode="host")), "host.cgroupns"),
    one("sec.seccomp", create(host(SecurityOpt=["seccomp=unconfined"])), "host.security"),
    one("sec.seccomp-colon", create(host(SecurityOpt=["seccomp:unconfined"])), "host.security"),
    one(
        "sec.seccomp-inline", create(host(SecurityOpt=['seccomp={"defaultAction":"SCMP_ACT_ALLOW"}'])), "host.security"
    ),
    one("sec.apparmor", create(host(SecurityOpt=["apparmor=unconfined"])), "host.security"),
    one("sec.label", create(host(SecurityOpt=["label=disable"])), "host.security"),
    one("sec.label-bare", create(host(SecurityOpt=["disable"])), "host.security"),
    one("sec.systempaths", create(host(SecurityOpt=["systempaths=unconfined"])), "host.security"),
    one("sec.writable-cgroups", create(host(SecurityOpt=["writable-cgroups=true"])), "host.security"),
    one("sec.new-privileges", create(host(SecurityOpt=["no-new-privileges=false"])), "host.security"),
    one("sec.newline", create(host(SecurityOpt=["no-new-privileges\nseccomp=unconfined"])), "host.security"),
    one("sec.behind-harmless", create(host(SecurityOpt=["no-new-privileges", "seccomp=unconfined"])), "host.security"),
    one("sysctl.kernel", create(host(Sysctls={"kernel.core_pattern": "|/x"})), "host.sysctls"),
    one("sysctl.slash", create(host(Sysctls={"kernel/core_pattern": "|/x"})), "host.sysctls"),
    one("sysctl.vm", create(host(Sysctls={"vm.overcommit_memory": "1"})), "host.sysctls"),
    one("sysctl.net-dots", create(host(Sysctls={"net/../kernel/core_pattern": "|/x"}))),
    one("sysctl.net-climbs", create(host(Sysctls={"net.ipv4/../../kernel/core_pattern": "|/x"})), "host.sysctls"),
    one("sysctl.net-in-host", create(host(NetworkMode="host", Sysctls={"net.ipv4.ip_forward": "1"})), "host.network"),
    one(
        "log.syslog",
        create(host(LogConfig={"Type": "syslog", "Config": {"syslog-address": "unix:///dev/log"}})),
        "host.log",
    ),
    one("log.gelf", create(host(LogConfig={"Type": "gelf"})), "host.log"),
    one("log.plugin", create(host(LogConfig={"Type": "x/y:latest"})), "host.log"),
    one("log.path", create(host(LogConfig={"Type": "json-file", "Config": {"path": "/etc/passwd"}})), "host.log"),
    one("storage.dm", create(host(StorageOpt={"dm.basesize": "1G"})), "host.storage"),
    one(
        "endpoint.option",
        create(host() | {"NetworkingConfig": {"EndpointsConfig": {"bridge": {"DriverOpts": {"parent": "eth0"}}}}}),
        "host.endpoint",
    ),
    one("restart.unknown", create(host(RestartPolicy={"Name": "forever"})), "host.restart"),
]


def bind(source: str, rule: str, id_: str, modes: str = "") -> list[Attack]:
    """The same source as a bind, as a mount, and as one mount among harmless ones."""
    mount = {"Type": "bind", "Source": source, "Target": "/x"}
    tmpfs = {"Type": "tmpfs", "Target": "/t"}
    return [
        one(f"bind.{id_}", create(host(Binds=[f"{source}:/x{modes}"])), rule),
        one(f"mount.{id_}", create(host(Mounts=[mount])), rule),
        one(f"mounts.{id_}", create(host(Mounts=[tmpfs, mount])), rule),
    ]


BINDS = [
    *bind("/dev", "hw.trees", "dev"),
    *bind("//dev", "hw.trees", "dev-slashes"),
    *bind("/dev/", "hw.trees", "dev-slash"),
    *bind("/dev/nvidia0", "hw.trees", "node"),
    *bind("/dev/dri/renderD128", "hw.trees", "render-node"),
    *bind("/", "hw.trees", "root"),
    *bind("//", "hw.trees", "root-slashes"),
    *bind("/proc", "hw.trees", "proc"),
    *bind("/proc/self/root", "hw.trees", "proc-root"),
    *bind("/proc/1/root/dev", "hw.trees", "proc-dev"),
    *bind("/sys/fs/cgroup", "hw.trees", "cgroup"),
    *bind("/run", "hw.trees", "run"),
    *bind("/var", "hw.trees", "var"),
    *bind("/etc", "hw.trees", "etc"),
    *bind("/etc/cdi", "hw.trees", "cdi"),
    *bind("/tmp/../dev", "host.mounts", "dots"),
    *bind("/./dev", "host.mounts", "dot"),
    *bind("/var/run/docker.sock", "host.docker-socket", "docker-sock"),
    *bind(f"{FOLDER}/docker.sock", "hw.socket", "sock-name"),
    *bind("/home", "host.binds", "outside"),
    *bind(f"{FOLDER}-2", "host.binds", "beside"),
    *bind(f"{FOLDER}/link", "host.binds", "link"),
    *bind(f"{FOLDER}/link/dev", "host.binds", "through-link"),
    *bind(f"{FOLDER}/dev", "host.binds", "link-dev"),
    *bind(f"{FOLDER}/sock", "host.binds", "socket"),
    *bind(f"{FOLDER}/null", "host.binds", "device-node"),
    *bind(f"{FOLDER}/none", "host.binds", "missing"),
    *bind("relative/path", "host.mounts", "relative"),
    one("bind.shared", create(host(Binds=[f"{FOLDER}:/x:rshared"])), "host.mounts"),
    one("bind.slave", create(host(Binds=[f"{FOLDER}:/x:ro,rslave"])), "host.mounts"),
    one("bind.four-parts", create(host(Binds=[f"{FOLDER}:/x:ro:/dev"])), "host.mounts"),
    one("bind.empty-source", create(host(Binds=[":/x"])), "host.mounts"),
    one(
        "mount.shared",
        create(
            host(Mounts=[{"Type": "bind", "Source": FOLDER, "Target": "/x", "BindOptions": {"Propagation": "rshared"}}])
        ),
        "host.mounts",
    ),
    one("mount.type-case", create(host(Mounts=[{"Type": "BIND", "Source": "/dev", "Target": "/x"}])), "host.mounts"),
    one("mount.no-type", create(host(Mounts=[{"Source": "/dev", "Target": "/x"}])), "host.mounts"),
    one("mount.npipe", create(host(Mounts=[{"Type": "npipe", "Source": "/dev", "Target": "/x"}])), "host.mounts"),
    one("mount.cluster", create(host(Mounts=[{"Type": "cluster", "Source": "v", "Target": "/x"}])), "host.mounts"),
    one(
        "mount.volume-options",
        create(
            host(
                Mounts=[
                    {
                        "Type": "volume",
                        "Source": "evil",
                        "Target": "/x",
                        "VolumeOptions": {
                            "DriverConfig": {
                                "Name": "local",
                                "Options": {"type": "none", "o": "bind", "device": "/dev"},
                            }
                        },
                    }
                ]
            )
        ),
        "hw.volumes",
    ),
    one(
        "mount.volume-driver",
        create(host(Mounts=[{"Type": "volume", "Target": "/x", "VolumeOptions": {"DriverConfig": {"Name": "x/y"}}}])),
        "hw.volumes",
    ),
    one(
        "mount.volume-path", create(host(Mounts=[{"Type": "volume", "Source": "/dev", "Target": "/x"}])), "host.mounts"
    ),
    one(
        "mount.tmpfs-dev",
        create(host(Mounts=[{"Type": "tmpfs", "Target": "/x", "TmpfsOptions": {"Options": [["dev"]]}}])),
        "host.mounts",
    ),
    one("tmpfs.dev", create(host(Tmpfs={"/x": "rw,dev"})), "host.tmpfs"),
    one("tmpfs.option", create(host(Tmpfs={"/x": "mpol=bind:0"})), "host.tmpfs"),
    one("volumes.driver", create(host(VolumeDriver="x/y", Binds=["v:/x"])), "hw.volumes"),
    one("volumes.anonymous-bind", create(host() | {"Volumes": {"/dev:/x": {}}}), "host.anonymous"),
    one("volumes-from.unknown", create(host(VolumesFrom=["nobody"])), "host.volumes-from"),
    one("volumes-from.modes", create(host(VolumesFrom=["nobody:rshared"])), "host.volumes-from"),
]

TABLE = [*READINGS, *DEVICES, *CAPABILITIES, *MODES, *BINDS]
