"""testcontainers-python at a gate: each step says what came of it, as one JSON object on stdout. argv: granted device,
another."""

import json
import sys
import tempfile
from pathlib import Path

import docker
from docker.types import DeviceRequest
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

IMAGE = "ubuntu:24.04"
GRANTED, UNGRANTED = sys.argv[1:]


def container(command="sleep 60", **more):
    return DockerContainer(IMAGE, command=command, **more)


def run():
    with container("sh -c 'echo ready; echo bad >&2; sleep 60'").waiting_for(LogMessageWaitStrategy("ready")) as box:
        return [text.decode() for text in box.get_logs()]


def exec_():
    with container() as box:
        code, output = box.exec(["sh", "-c", "echo inside; exit 5"])
        return [output.decode(), code]


def environment():
    with container().with_env("A", "b") as box:
        return box.exec(["sh", "-c", "echo $A"]).output.decode()


def files():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "file").write_text("data")
        with container() as box:
            box.copy_into_container(Path(folder, "file"), "/tmp/file")
            return box.exec(["cat", "/tmp/file"]).output.decode()


def network():
    with Network() as made, container().with_network(made).with_network_aliases("alias") as box:
        box.get_wrapped_container().reload()
        return box.get_wrapped_container().attrs["NetworkSettings"]["Networks"][made.name]["Aliases"]


def device():
    asked = [DeviceRequest(driver="cdi", device_ids=[GRANTED])]
    with container().with_kwargs(device_requests=asked) as box:
        return box.exec(["sh", "-c", "(cat </dev/nvidia0) 2>&1"]).output.decode()


def ungranted():
    with container().with_kwargs(device_requests=[DeviceRequest(driver="cdi", device_ids=[UNGRANTED])]):
        pass


def gpus():
    with container().with_kwargs(device_requests=[DeviceRequest(count=-1, capabilities=[["gpu"]])]):
        pass


def privileged():
    with container().with_kwargs(privileged=True):
        pass


found = {}
for step in (run, exec_, environment, files, network, device, ungranted, gpus, privileged):
    try:
        found[step.__name__.strip("_")] = step()
    except Exception as error:
        found[step.__name__.strip("_")] = {"error": type(error).__name__, "said": str(error)}
found["left"] = [box.name for box in docker.from_env().containers.list(all=True)]
print(json.dumps(found))
