"""docker-py at a gate: each step says what came of it, as one JSON object on stdout. argv: granted device, another."""

import io
import json
import sys
import tarfile
import threading

import docker
from docker.types import DeviceRequest

IMAGE = "ubuntu:24.04"
GRANTED, UNGRANTED = sys.argv[1:]
client = docker.from_env()


def version():
    return {"api": client.api._version, "os": client.version()["Os"], "ping": client.ping()}


def run():
    return client.containers.run(IMAGE, ["echo", "hi"], remove=True).decode()


def exit_status():
    box = client.containers.run(IMAGE, ["sh", "-c", "exit 7"], detach=True)
    return box.wait()["StatusCode"]


def exec_():
    box = client.containers.run(IMAGE, ["sleep", "60"], detach=True)
    done = box.exec_run(["sh", "-c", "echo inside; exit 5"])
    return [done.output.decode(), done.exit_code]


def exec_stdin():
    box = client.containers.run(IMAGE, ["sleep", "60"], detach=True)
    made = client.api.exec_create(box.id, ["sh", "-c", "cat; echo late"], stdin=True)
    stream = client.api.exec_start(made["Id"], socket=True)
    stream._sock.sendall(b"fed\n")
    stream._sock.shutdown(1)
    said = b"".join(piece for _, piece in docker.utils.socket.frames_iter(stream, tty=False))
    return said.decode()


def logs():
    box = client.containers.run(IMAGE, ["sh", "-c", "echo one; sleep 1; echo two"], detach=True)
    return b"".join(box.logs(stream=True, follow=True)).decode()


def events():
    stream, seen = client.events(decode=True, filters={"type": "container", "label": "seen=1"}), []

    def listen():
        for event in stream:
            seen.append(event["Action"])
            if event["Action"] == "die":
                return

    listener = threading.Thread(target=listen)
    listener.start()
    client.containers.run(IMAGE, ["true"], labels={"seen": "1"})
    listener.join(20)
    stream.close()
    return [action for action in seen if action in ("create", "start", "die")]


def archive():
    box = client.containers.create(IMAGE, ["true"])
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        member = tarfile.TarInfo("file")
        member.size = 4
        tar.addfile(member, io.BytesIO(b"data"))
    box.put_archive("/tmp", packed.getvalue())
    pieces, stat = box.get_archive("/tmp/file")
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as tar:
        return [stat["name"], tar.extractfile("file").read().decode()]


def network():
    made = client.networks.create("made", driver="bridge", labels={"a": "b"})
    box = client.containers.create(IMAGE, ["true"])
    made.connect(box, aliases=["alias"])
    box.reload()
    aliases = box.attrs["NetworkSettings"]["Networks"]["made"]["Aliases"]
    made.disconnect(box)
    made.remove()
    return aliases


def commit():
    image = client.containers.create(IMAGE, ["true"]).commit("made", "2", conf={"Cmd": ["echo", "committed"]})
    said = client.containers.run(image.id, remove=True).decode()
    client.images.remove(image.id, force=True)
    return said


def build():
    text = f'FROM {IMAGE}\nRUN echo built >/f\nCMD ["cat", "/f"]\n'
    image, _ = client.images.build(fileobj=io.BytesIO(text.encode()), network_mode="none", rm=True)
    said = client.containers.run(image.id, remove=True).decode()
    client.images.remove(image.id, force=True)
    return said


def device():
    asked = [DeviceRequest(driver="cdi", device_ids=[GRANTED])]
    return client.containers.run(IMAGE, ["sh", "-c", "(cat </dev/nvidia0) 2>&1; true"], device_requests=asked).decode()


def ungranted():
    client.containers.run(IMAGE, device_requests=[DeviceRequest(driver="cdi", device_ids=[UNGRANTED])])


def gpus():
    client.containers.run(IMAGE, device_requests=[DeviceRequest(count=-1, capabilities=[["gpu"]])])


def gpus_by_cdi():
    asked = DeviceRequest(driver="cdi", device_ids=[GRANTED], capabilities=[["gpu"]])
    client.containers.run(IMAGE, device_requests=[asked])


def raw_device():
    client.containers.run(IMAGE, devices=["/dev/nvidia0:/dev/nvidia0:rwm"])


def privileged():
    client.containers.run(IMAGE, privileged=True)


STEPS = (version, run, exit_status, exec_, exec_stdin, logs, events, archive, network, commit, build, device)
REFUSALS = (ungranted, gpus, gpus_by_cdi, raw_device, privileged)
found = {}
for step in STEPS + REFUSALS:
    try:
        found[step.__name__.strip("_")] = step()
    except Exception as error:
        found[step.__name__.strip("_")] = {"error": type(error).__name__, "said": str(error)}
for box in client.containers.list(all=True):
    box.remove(force=True)
print(json.dumps(found))
