"""The tables of fields: one a body, in the order and spelling of moby's api/types.

A row is the field and its kind; a field that is missing here is unknown, and refused unless it says nothing.
"""

from __future__ import annotations

from gpugrant_gate.policy.bodies import (
    Kind,
    exactly,
    few,
    flag,
    integer,
    mapping,
    must_be_zero,
    obsolete,
    seq,
    struct,
    text,
    word,
    words,
    zero,
)

_BLKIO = must_be_zero("host.blkio", "the daemon would look at any path of the machine for it")
_WINDOWS = must_be_zero("body.windows", "it is for Windows containers")

HEALTHCHECK = struct(
    {"Test": seq(text), "Interval": integer, "Timeout": integer, "StartPeriod": integer, "StartInterval": integer,
     "Retries": integer}
)  # fmt: skip

CONFIG: dict[str, Kind] = {
    "Hostname": word, "Domainname": word, "User": word,
    "AttachStdin": flag, "AttachStdout": flag, "AttachStderr": flag, "ExposedPorts": mapping(exactly, word),
    "Tty": flag, "OpenStdin": flag, "StdinOnce": flag,
    "Env": seq(text), "Cmd": words, "Healthcheck": HEALTHCHECK, "ArgsEscaped": flag, "Image": word,
    "Volumes": mapping(exactly, word), "WorkingDir": word, "Entrypoint": words, "NetworkDisabled": flag,
    "MacAddress": word, "OnBuild": seq(text), "Labels": mapping(text), "StopSignal": word, "StopTimeout": integer,
    "Shell": words, "PortSpecs": zero,
}  # fmt: skip

ENDPOINT = struct(
    {"IPAMConfig": struct({"IPv4Address": word, "IPv6Address": word, "LinkLocalIPs": seq(word)}),
     "Links": seq(word), "Aliases": seq(word), "MacAddress": word, "DriverOpts": mapping(word, word),
     "GwPriority": integer, "NetworkID": obsolete, "EndpointID": obsolete, "Gateway": word, "IPAddress": word,
     "IPPrefixLen": integer, "IPv6Gateway": word, "GlobalIPv6Address": word, "GlobalIPv6PrefixLen": integer,
     "DNSNames": seq(word)}
)  # fmt: skip

RESTART_POLICY = struct({"Name": word, "MaximumRetryCount": integer})

DEVICE_REQUEST = struct(
    {"Driver": text, "Count": integer, "DeviceIDs": few(seq(text)), "Capabilities": seq(seq(text)),
     "Options": mapping(text)}
)  # fmt: skip

RESOURCES: dict[str, Kind] = {
    "CpuShares": integer, "Memory": integer, "NanoCpus": integer, "CgroupParent": text,
    "BlkioWeight": integer, "BlkioWeightDevice": _BLKIO, "BlkioDeviceReadBps": _BLKIO, "BlkioDeviceWriteBps": _BLKIO,
    "BlkioDeviceReadIOps": _BLKIO, "BlkioDeviceWriteIOps": _BLKIO,
    "CpuPeriod": integer, "CpuQuota": integer, "CpuRealtimePeriod": integer, "CpuRealtimeRuntime": integer,
    "CpusetCpus": word, "CpusetMems": word,
    "Devices": few(seq(struct({"PathOnHost": text, "PathInContainer": text, "CgroupPermissions": text}))),
    "DeviceCgroupRules": seq(text), "DeviceRequests": few(seq(DEVICE_REQUEST)),
    "MemoryReservation": integer, "MemorySwap": integer, "MemorySwappiness": integer,
    "OomKillDisable": flag, "PidsLimit": integer,
    "Ulimits": seq(struct({"Name": word, "Soft": integer, "Hard": integer})),
    "CpuCount": _WINDOWS, "CpuPercent": _WINDOWS, "IOMaximumIOps": _WINDOWS, "IOMaximumBandwidth": _WINDOWS,
    "KernelMemory": obsolete, "KernelMemoryTCP": obsolete,
}  # fmt: skip

MOUNT = struct(
    {"Type": word, "Source": text, "Target": text, "ReadOnly": flag, "Consistency": word,
     "BindOptions": struct({"Propagation": word, "NonRecursive": flag, "CreateMountpoint": flag,
                            "ReadOnlyNonRecursive": flag, "ReadOnlyForceRecursive": flag}),
     "VolumeOptions": struct({"NoCopy": flag, "Labels": mapping(text), "Subpath": word,
                              "DriverConfig": struct({"Name": word, "Options": mapping(text)})}),
     "ImageOptions": struct({"Subpath": word}),
     "TmpfsOptions": struct({"SizeBytes": integer, "Mode": integer, "Options": seq(seq(word))}),
     "ClusterOptions": zero}
)  # fmt: skip

HOST_CONFIG: dict[str, Kind] = {
    **RESOURCES,
    "Binds": few(seq(text)), "ContainerIDFile": word,
    "LogConfig": struct({"Type": word, "Config": mapping(text, word)}), "NetworkMode": word,
    "PortBindings": mapping(seq(struct({"HostIp": word, "HostPort": word})), word),
    "RestartPolicy": RESTART_POLICY, "AutoRemove": flag, "VolumeDriver": word, "VolumesFrom": few(seq(word)),
    "ConsoleSize": seq(integer), "Annotations": mapping(text), "Mounts": few(seq(MOUNT)),
    "CapAdd": few(words), "CapDrop": words, "CgroupnsMode": word, "Dns": seq(word), "DnsOptions": seq(word),
    "DnsSearch": seq(word), "ExtraHosts": seq(word), "GroupAdd": seq(word), "IpcMode": word, "Cgroup": word,
    "Links": seq(word), "OomScoreAdj": integer, "PidMode": word, "Privileged": flag, "PublishAllPorts": flag,
    "ReadonlyRootfs": flag, "SecurityOpt": seq(text), "StorageOpt": mapping(word, word),
    "Tmpfs": few(mapping(word, word)), "UTSMode": word, "UsernsMode": word, "ShmSize": integer,
    "Sysctls": mapping(word, word), "Runtime": text, "Isolation": word,
    "MaskedPaths": seq(text), "ReadonlyPaths": seq(text), "Init": flag,
    "Capabilities": must_be_zero("host.capabilities", "capabilities are named with CapAdd and CapDrop"),
}  # fmt: skip

_DOCKERODE = ("authconfig", "abortSignal")
"""Options for dockerode itself, which it sends along."""
_QUERY_OF_CREATE = ("name", "platform", *_DOCKERODE)
"""What dockerode says in the body as well; daemons read it in the query alone."""
CREATE = struct(
    {
        **CONFIG,
        **dict.fromkeys(_QUERY_OF_CREATE, obsolete),
        "HostConfig": struct(HOST_CONFIG),
        "NetworkingConfig": struct({"EndpointsConfig": few(mapping(ENDPOINT, word))}),
    }
)
_QUERY_OF_COMMIT = ("container", "repo", "tag", "comment", "author", "pause", "changes")
_DOCKER_JAVA_COMMIT = ("containerId", "repository", "message", "Memory", "MemorySwap")
"""docker-java's own words for the query, and what a daemon of 2013 read."""
COMMIT = struct({**CONFIG, **dict.fromkeys((*_QUERY_OF_COMMIT, *_DOCKERODE, *_DOCKER_JAVA_COMMIT), obsolete)})
UPDATE = struct({**RESOURCES, "RestartPolicy": RESTART_POLICY})
INSPECTED_HOST = struct(HOST_CONFIG)

EXEC_CREATE = struct(
    {"User": word, "Privileged": flag, "Tty": flag, "ConsoleSize": seq(integer), "AttachStdin": flag,
     "AttachStderr": flag, "AttachStdout": flag, "Detach": flag, "DetachKeys": word, "Env": seq(text),
     "WorkingDir": word, "Cmd": words, "Container": obsolete, "containerId": obsolete}
)  # fmt: skip
"""containerId: docker-java says the path's again."""
EXEC_START = struct({"Detach": flag, "Tty": flag, "ConsoleSize": seq(integer), "hijack": obsolete, "stdin": obsolete})
"""hijack and stdin: dockerode's own, for its side of the pipe."""

VOLUME_CREATE = struct(
    {"Name": word, "Driver": word, "DriverOpts": mapping(text), "Labels": mapping(text), "ClusterVolumeSpec": zero}
)

NETWORK_CREATE = struct(
    {"Name": word, "CheckDuplicate": flag, "Driver": word, "Scope": word, "EnableIPv4": flag, "EnableIPv6": flag,
     "IPAM": struct({"Driver": word, "Options": mapping(word, word),
                     "Config": seq(struct({"Subnet": word, "IPRange": word, "Gateway": word,
                                           "AuxiliaryAddresses": mapping(word, word)}))}),
     "Internal": flag, "Attachable": flag, "Ingress": zero, "ConfigOnly": zero, "ConfigFrom": zero,
     "Options": mapping(word, word), "Labels": mapping(text)},
    twice=("EnableIPv6",),  # docker-java says enableIPv6 beside it
)  # fmt: skip
NETWORK_CONNECT = struct({"Container": word, "EndpointConfig": ENDPOINT, "containerConfig": obsolete})
"""containerConfig: docker-java says EndpointConfig again by that name."""
NETWORK_DISCONNECT = struct({"Container": word, "Force": flag})

AUTH = struct(
    {"username": text, "password": text, "auth": text, "email": text, "serveraddress": word, "identitytoken": text,
     "registrytoken": text}
)  # fmt: skip

ALSO_IN_QUERY = {
    "container.create": frozenset({*CONFIG, "HostConfig", "NetworkingConfig", *_DOCKERODE}),
    "image.commit": frozenset({*CONFIG, *_DOCKERODE}),
    "volume.create": frozenset({"Name", "Driver", "DriverOpts", "Labels", *_DOCKERODE}),
    "network.create": frozenset(
        {"Name", "CheckDuplicate", "Driver", "Scope", "EnableIPv4", "EnableIPv6", "IPAM", "Internal", "Attachable",
         "Ingress", "Options", "Labels", *_DOCKERODE}
    ),
}  # fmt: skip
"""Fields of the body that dockerode says in the query as well: no daemon reads them there, and they don't go on."""
