# ruff: noqa: PTH103, PTH110, PTH115, PTH116, PTH123, PTH208
"""Runs as root in a tenant's container: every known way to a device that an opened host rule could shorten.

`reach` tries one after another, each in a process of its own, and says `NAME: nothing (why)` or `NAME: GOT what`.
A device node is made with `mknod`, which every container may; opened, it says EPERM while the container's device cgroup
holds, and anything else (ENXIO where nothing is behind the number) once it doesn't. `catch` lies in wait for what a
daemon starts in this container. Nothing is changed outside: an open for writing is proof enough.
"""

from __future__ import annotations

import array
import ctypes
import errno
import os
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

LIBC = ctypes.CDLL(None, use_errno=True)
NEW = {"mnt": 0x20000, "cgroup": 0x2000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000}
SYSCALLS = {
    "iopl": 172, "ioperm": 173, "init_module": 175, "kexec_load": 246, "perf_event_open": 298, "open_by_handle_at": 304,
    "setns": 308, "bpf": 321, "pidfd_open": 434, "pidfd_getfd": 438, "ptrace": 101, "unshare": 272, "mount": 165,
}  # fmt: skip
"""Of x86-64 (arch/x86/entry/syscalls/syscall_64.tbl)."""
ALLOWED = {(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 1), (5, 2)}
"""What every container may open: null, zero, full, random, urandom, tty, console, ptmx."""
SYS_ADMIN = 21
PTRACE_SEIZE = 0x4206
SWITCHES = (
    "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper",
    "/proc/kcore", "/sys/kernel/security/apparmor/.replace", "/sys/firmware/efi/vars",
)  # fmt: skip
QUESTION = b"GET /v1.44/info HTTP/1.1\r\nHost: d\r\nConnection: close\r\n\r\n"
HEAD = 4096


class Reached(Exception):
    """A device, or what leads to one."""


def call(name: str, *arguments: object) -> int:
    result: int = LIBC.syscall(SYSCALLS[name], *arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
    return result


def mount(source: str, target: str, kind: str, options: str = "") -> None:
    os.makedirs(target, exist_ok=True)
    call("mount", source.encode(), target.encode(), kind.encode(), 0, options.encode())


def nodes() -> Iterator[tuple[int, int, int]]:
    """Numbers of GPUs, the machine's memory, and the disk that it lies on."""
    yield from ((stat.S_IFCHR, 226, 129), (stat.S_IFCHR, 195, 0), (stat.S_IFCHR, 1, 1))
    disk = os.stat("/etc/hosts").st_dev
    yield stat.S_IFBLK, os.major(disk), os.minor(disk)


def reached(folder: str = "/tmp") -> str:
    """The first device that opens; empty: none."""
    for kind, major, minor in nodes():
        path = f"{folder}/node-{major}-{minor}"
        try:
            if not os.path.exists(path):
                os.mknod(path, kind | 0o666, os.makedev(major, minor))
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        except OSError as error:
            # EACCES: the file system carries no devices
            if error.errno in (errno.EPERM, errno.EACCES):
                continue
        return f"{major}:{minor}"
    return ""


def others() -> Iterator[int]:
    """Processes that are there beside this one."""
    yield from (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid())


def writes(path: str) -> None:
    """Raises Reached where the file opens for writing."""
    try:
        os.close(os.open(path, os.O_WRONLY))
    except OSError:
        return
    raise Reached(f"{path} can be written")


# The ways.


def a_node() -> None:
    """As it is."""


def a_node_in_shared_memory() -> None:
    if got := reached("/dev/shm"):
        raise Reached(got)


def switches() -> None:
    for path in SWITCHES:
        writes(path)


def leave(top: str) -> None:
    """Out of the device cgroup, by every file below a mounted hierarchy."""
    for folder, _, files in os.walk(top):
        for name, text in (("devices.allow", "a"), ("cgroup.procs", str(os.getpid()))):
            if name in files:
                try:
                    with open(f"{folder}/{name}", "w") as file:
                        file.write(text)
                except OSError:
                    continue
                if got := reached():
                    raise Reached(f"{got} by {folder}/{name}")
        if "release_agent" in files:
            writes(f"{folder}/release_agent")


def cgroups_as_they_are() -> None:
    leave("/sys/fs/cgroup")


def a_cgroup_mount() -> None:
    try:
        mount("none", "/tmp/cg1", "cgroup", "devices")
        leave("/tmp/cg1")
    finally:
        mount("none", "/tmp/cg2", "cgroup2")
        leave("/tmp/cg2")


def a_user_namespace(*more: str) -> None:
    kinds = ("user", "mnt", *more)
    call("unshare", sum(NEW[kind] for kind in kinds))
    for file, text in (("setgroups", "deny"), ("uid_map", "0 0 1"), ("gid_map", "0 0 1")):
        with open(f"/proc/self/{file}", "w") as opened:
            opened.write(text)
    if "pid" in more and (child := os.fork()):
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))  # the child says what came of it
    errors = []
    for way in (a_cgroup_mount, fresh_proc, fresh_sys, switches, cgroups_as_they_are, a_bpf_filter, kernel_calls):
        try:
            way()
        except OSError as error:
            errors.append(f"{way.__name__} {error.strerror}")
        if got := reached():
            raise Reached(f"{got} by {way.__name__}")
    raise OSError(errno.EPERM, ", ".join(errors))


def a_user_namespace_with_cgroups() -> None:
    a_user_namespace("cgroup", "ipc", "net")


def a_user_namespace_with_processes() -> None:
    a_user_namespace("cgroup", "pid", "net")


def fresh_proc() -> None:
    mount("proc", "/tmp/proc", "proc")
    writes("/tmp/proc/sys/kernel/core_pattern")


def fresh_sys() -> None:
    mount("sysfs", "/tmp/sys", "sysfs")
    writes("/tmp/sys/kernel/uevent_helper")


def devtmpfs() -> None:
    mount("devtmpfs", "/tmp/dev", "devtmpfs")
    raise Reached("devtmpfs")


def other_roots() -> None:
    here = os.stat("/")
    for pid in others():
        there = os.stat(f"/proc/{pid}/root/")
        if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
            raise Reached(f"the root folder of process {pid}")


def other_namespaces() -> None:
    for pid in others():
        for kind in ("mnt", "pid", "cgroup", "user"):
            if os.readlink(f"/proc/{pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}"):
                call("setns", os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY), 0)
                raise Reached(f"the {kind} namespace of process {pid}")


def other_processes() -> None:
    """Files that others hold open or have mapped."""
    for pid in others():
        for folder in (f"/proc/{pid}/fd", f"/proc/{pid}/map_files"):
            for name in os.listdir(folder):
                judge_file(os.open(f"{folder}/{name}", os.O_RDONLY | os.O_NONBLOCK))
        handle = call("pidfd_open", pid, 0)
        for number in range(16):
            with suppress(OSError):
                judge_file(call("pidfd_getfd", handle, number, 0))


def judge_file(descriptor: int) -> None:
    seen = os.fstat(descriptor)
    if stat.S_ISCHR(seen.st_mode) or stat.S_ISBLK(seen.st_mode):
        number = (os.major(seen.st_rdev), os.minor(seen.st_rdev))
        if number not in ALLOWED and number[0] != 136:
            raise Reached(f"an open device {number}")


def a_file_by_its_number() -> None:
    handle = struct.pack("=IiII", 8, 1, 2, 0)  # the root folder of the file system below /etc/hosts
    call("open_by_handle_at", os.open("/etc/hosts", os.O_RDONLY), handle, os.O_RDONLY)
    raise Reached("the machine's root folder")


def kernel_calls() -> None:
    """Calls that would make the machine one's own; what is not refused for want of power counts."""
    tries: tuple[tuple[str, tuple[object, ...]], ...] = (
        ("iopl", (3,)),
        ("ioperm", (0x80, 1, 1)),
        ("init_module", (b"x", 1, b"")),
        ("kexec_load", (0, 0, None, 0)),
    )
    for name, arguments in tries:
        try:
            call(name, *arguments)
        except OSError as error:
            if error.errno in (errno.EPERM, errno.ENOSYS):
                continue
        raise Reached(name)


def a_kernel_probe() -> None:
    attributes = struct.pack("=IIQ", 1, 64, 0) + bytes(48)  # a hardware counter of the whole machine
    call("perf_event_open", attributes, -1, 0, -1, 0)
    raise Reached("a counter over every process")


def a_bpf_filter() -> None:
    """A device filter that says yes, in the place of the container's own."""
    folders = [folder for folder, _, _ in os.walk("/sys/fs/cgroup")][:50]
    for folder in folders:
        where = os.open(folder, os.O_RDONLY)
        for command, program in ((9, 0), (8, _yes())):
            attributes = struct.pack("=IIIIII", where, program, 6, 2, 0, 0) + bytes(96)
            try:
                call("bpf", command, attributes, len(attributes))
            except OSError:
                continue
            if got := reached():
                raise Reached(f"{got} by a filter at {folder}")


def _yes() -> int:
    code = ctypes.create_string_buffer(struct.pack("=QQ", 0x00000001000000B7, 0x95))
    licence = ctypes.create_string_buffer(b"GPL")
    attributes = struct.pack("=IIQQIIQ", 15, 2, ctypes.addressof(code), ctypes.addressof(licence), 0, 0, 0) + bytes(80)
    try:
        return call("bpf", 5, attributes, len(attributes))
    except OSError:
        return 0


def listeners() -> None:
    """Whoever listens where this container can call: a daemon that answers, or a device that is handed over."""
    errors = set()
    for family, address in (*_abstract(), *_loopback()):
        with socket.socket(family) as sock:
            sock.settimeout(0.3)
            try:
                sock.connect(address)
                sock.sendall(QUESTION)
                _judge_answer(sock, address)
            except OSError as error:
                errors.add(error.strerror or str(error))
    if errors:
        raise OSError(errno.EPERM, ", ".join(sorted(errors)))


def _judge_answer(sock: socket.socket, address: object) -> None:
    room = socket.CMSG_SPACE(16 * array.array("i").itemsize)
    data, ancillary, _, _ = sock.recvmsg(HEAD, room)
    for _, _, held in ancillary:
        for descriptor in array.array("i", held[: len(held) - len(held) % 4]):
            judge_file(descriptor)
    if b"DefaultRuntime" in data or (b"HTTP/1.1 200" in data and b"Containers" in data):
        raise Reached(f"a Docker daemon at {address!r}")


def _abstract() -> Iterator[tuple[int, str]]:
    with open("/proc/net/unix") as table:
        for line in table:
            words = line.split()
            if len(words) == 8 and words[7].startswith("@") and words[3] == "00010000" and words[4] == "0001":
                yield socket.AF_UNIX, "\0" + words[7][1:]


def _loopback() -> Iterator[tuple[int, tuple[str, int]]]:
    with open("/proc/net/tcp") as table:
        for line in list(table)[1:]:
            words = line.split()
            if words[3] == "0A":
                yield socket.AF_INET, ("127.0.0.1", int(words[1].split(":")[1], 16))


WAYS: tuple[Callable[[], None], ...] = (
    a_node, a_node_in_shared_memory, switches, cgroups_as_they_are, a_cgroup_mount, devtmpfs, a_user_namespace,
    a_user_namespace_with_cgroups, a_user_namespace_with_processes, other_roots, other_namespaces, other_processes,
    a_file_by_its_number, kernel_calls, a_kernel_probe, a_bpf_filter, listeners,
)  # fmt: skip


def reach() -> int:
    """How many ways led to a device."""
    found = 0
    for way in WAYS:
        child = os.fork()
        if child == 0:
            outcome = _outcome(way)
            print(f"{way.__name__}: {outcome}", flush=True)
            os._exit("GOT" in outcome)
        found += os.waitpid(child, 0)[1] != 0
    return found


def _outcome(way: Callable[[], None]) -> str:
    why = "no way"
    try:
        way()
    except Reached as found:
        return f"GOT {found}"
    except OSError as error:
        why = error.strerror or str(error)
    got = reached()
    return f"GOT {got}" if got else f"nothing ({why})"


def catch(seconds: float) -> int:
    """Waits for a process that is not of this container's making and still has all capabilities: 1 when it has one."""
    print("waiting", flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for pid in others():
            if _power(pid) >> SYS_ADMIN & 1:
                try:
                    call("ptrace", PTRACE_SEIZE, pid, 0, 0)
                except OSError as error:
                    print(f"process {pid}: nothing ({error.strerror})", flush=True)
                else:
                    print(f"process {pid}: GOT all capabilities", flush=True)
                    return 1
    print("done", flush=True)
    return 0


def _power(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status") as file:
            return next(int(line.split()[1], 16) for line in file if line.startswith("CapEff:"))
    except (OSError, StopIteration):
        return 0


if __name__ == "__main__":
    sys.exit(catch(float(sys.argv[2])) if sys.argv[1] == "catch" else reach())
