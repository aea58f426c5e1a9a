"""What a gate must not break: each line of a script is what people type, each answer is the daemon's own."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import intruder
import rig

pytestmark = [pytest.mark.real, pytest.mark.req("R4", "R5", "R36", "R37"), pytest.mark.timeout(300)]

U = "ubuntu:24.04"
SCRIPTS = {
    "run": (f"docker run --rm {U} echo hi", "hi\n"),
    "run, exit code": (f"docker run --rm {U} sh -c 'exit 7' || echo $?", "7\n"),
    "run, killed": (f"docker run --rm {U} sh -c 'kill -9 $$' || echo $?", "137\n"),
    "run -d, wait, logs": (f"c=$(docker run -d {U} echo hi); docker wait $c; docker logs $c", "0\nhi\n"),
    "run -i": (f"echo hi | docker run -i --rm {U} cat", "hi\n"),
    "run -i, output after the end of input": (f"echo hi | docker run -i --rm {U} sh -c 'cat; sleep 1; echo late'", "hi\nlate\n"),
    "run -i, output ends first": (f"(sleep 2) | docker run -i --rm {U} echo first", "first\n"),
    "run -i, 20 MB both ways": (f"head -c 20000000 /dev/zero | docker run -i --rm {U} cat | wc -c", "20000000\n"),
    "run, stderr apart": (f"docker run --rm {U} sh -c 'echo out; echo err >&2' 2>/dev/null", "out\n"),
    "run --init": (f"docker run --rm --init {U} ps | grep -c docker-init", "1\n"),
    "run, named, labels, host name": (
        f"docker run --rm --name web --label a=b --hostname h --domainname d.e {U} hostname", "h\n",
    ),
    "run, user and folder": (f"docker run --rm -u 1:1 -w /tmp {U} sh -c 'id -u; pwd'", "1\n/tmp\n"),
    "run, environment of 200 KiB": (
        f"docker run --rm $(for i in $(seq 20); do printf -- '-e A%s=%s ' $i $(head -c 10240 /dev/zero | tr '\\0' a); done) "
        f"{U} sh -c 'env | wc -c'", None,
    ),
    "run, ulimits": (f"docker run --rm --ulimit nofile=77:88 {U} sh -c 'ulimit -n; ulimit -Hn'", "77\n88\n"),
    "run, limits": (f"docker run --rm -m 64m --cpus 0.5 --pids-limit 50 --shm-size 32m {U} echo hi", "hi\n"),
    "run, read-only with tmpfs": (
        f"docker run --rm --read-only --tmpfs /t:size=1m,mode=1777 {U} sh -c 'echo hi >/t/a; cat /t/a'", "hi\n",
    ),
    "run, drops and what passes": (
        f"docker run --rm --cap-drop ALL --cap-add chown --cap-add CAP_IPC_LOCK --security-opt no-new-privileges {U} echo hi",
        "hi\n",
    ),
    "run, groups": (f"docker run --rm --group-add video --group-add 105 {U} id -G", "0 44 105\n"),
    "run, hosts and dns": (
        f"docker run --rm --add-host a:1.2.3.4 --dns 9.9.9.9 {U} sh -c 'grep -c 1.2.3.4 /etc/hosts; grep -c 9.9.9.9 /etc/resolv.conf'",
        "1\n1\n",
    ),
    "run, sysctl": (f"docker run --rm --sysctl net.ipv4.ip_forward=0 {U} cat /proc/sys/net/ipv4/ip_forward", "0\n"),
    "run, no network": (f"docker run --rm --network none {U} echo hi", "hi\n"),
    "run, ports": (
        f"docker run -d --name web -p 127.0.0.1:38123:80 -P --expose 81 {U} sleep 60 >/dev/null; docker port web 80", "127.0.0.1:38123\n",
    ),
    "run, a restart policy": (
        f"docker run -d --name web --restart on-failure:2 {U} sleep 60 >/dev/null; "
        "docker update --restart unless-stopped web; docker inspect -f '{{.HostConfig.RestartPolicy.Name}}' web",
        "web\nunless-stopped\n",
    ),
    "run, a health check": (
        f"docker run -d --name web --health-cmd true --health-interval 500ms {U} sleep 60 >/dev/null; "
        "until [ $(docker inspect -f '{{.State.Health.Status}}' web) = healthy ]; do sleep 0.2; done; echo healthy", "healthy\n",
    ),
    "run, logging": (f"docker run --rm --log-driver local --log-opt max-size=1m {U} echo hi", "hi\n"),
    "run, another's network": (
        f"docker run -d --name web {U} sleep 60 >/dev/null; docker run --rm --network container:web {U} echo hi", "hi\n",
    ),
    "run, memory shared": (
        f"docker run -d --name web --ipc shareable {U} sleep 60 >/dev/null; docker run --rm --ipc container:web {U} echo hi", "hi\n",
    ),
    "volumes": (
        f"docker volume create --label a=b v; docker run --rm -v v:/v {U} sh -c 'echo hi >/v/f'; "
        f"docker run --rm --mount type=volume,src=v,dst=/v,readonly {U} cat /v/f; docker volume ls -q; docker volume rm v",
        "v\nhi\nv\nv\n",
    ),
    "volumes from another": (
        f"docker run --name web -v /data {U} sh -c 'echo hi >/data/f'; docker run --rm --volumes-from web:ro {U} cat /data/f", "hi\n",
    ),
    "an anonymous volume": (f"docker run --rm -v /data {U} ls -d /data", "/data\n"),
    "networks": (
        "docker network create --label a=b -o com.docker.network.driver.mtu=1400 --subnet 10.213.0.0/24 n >/dev/null; "
        f"docker run -d --name web --network n --network-alias w --ip 10.213.0.9 {U} sleep 60 >/dev/null; "
        "docker network inspect -f '{{range .Containers}}{{.IPv4Address}}{{end}}' n; docker network disconnect n web; "
        "docker network connect --alias x n web; docker rm -f web; docker network rm n",
        "10.213.0.9/24\nweb\nn\n",
    ),
    "create, start, stop, restart, kill": (
        f"docker create --name web {U} sleep 60 >/dev/null; docker start web; docker stop -t 0 web; docker start web; "
        "docker restart -t 0 web; docker kill web; docker rm web", "web\nweb\nweb\nweb\nweb\nweb\n",
    ),
    "start -a": (f"docker create --name web {U} echo hi >/dev/null; docker start -a web", "hi\n"),
    "pause, rename, top, diff": (
        f"docker run -d --name web {U} sh -c 'echo >/new; sleep 60' >/dev/null; docker pause web; docker unpause web; "
        "docker rename web other; docker top other | grep -c sleep; docker diff other | grep /new", "web\nweb\n2\nA /new\n",
    ),
    "update": (f"docker run -d --name web {U} sleep 60 >/dev/null; docker update -m 64m --memory-swap 64m --cpus 1 web", "web\n"),
    "exec": (
        f"docker run -d --name web {U} sleep 60 >/dev/null; docker exec web echo hi; echo in | docker exec -i web cat; "
        "docker exec -e A=b -w /tmp -u 1 web sh -c 'echo $A; pwd; id -u'; docker exec web sh -c 'exit 5' || echo $?; "
        "docker exec -d web touch /done; until docker exec web test -e /done; do sleep 0.1; done",
        "hi\nin\nb\n/tmp\n1\n5\n",
    ),
    "attach": (f"docker run -d --name web {U} sh -c 'sleep 1; echo hi' >/dev/null; docker attach --no-stdin web", "hi\n"),
    "logs -f": (f"docker run -d --name web {U} sh -c 'echo a; sleep 1; echo b' >/dev/null; docker logs -f --since 1h web", "a\nb\n"),
    "logs": (f"docker run --name web {U} sh -c 'echo a; echo b' >/dev/null; docker logs -n 1 web; docker logs -t web | wc -l", "b\n2\n"),
    "cp": (
        f"docker run -d --name web {U} sleep 60 >/dev/null; mkdir d; echo hi >d/f; ln -s f d/l; docker cp -q d web:/tmp/d; "
        "docker exec web cat /tmp/d/l; docker cp -q -a web:/tmp/d back; cat back/l; tar -C d -c . | docker cp -q - web:/root; "
        "docker cp web:/root/f - | tar -x -O; docker cp -q web:/root/l l; readlink l",
        "hi\nhi\nhi\nf\n",
    ),
    "cp, 50 MB": (
        f"docker run -d --name web {U} sleep 60 >/dev/null; head -c 50000000 /dev/zero >big; docker cp -q big web:/tmp/; "
        "docker exec web wc -c /tmp/big; docker cp web:/tmp/big - | wc -c | cut -c1-4", "50000000 /tmp/big\n5000\n",
    ),
    "commit": (
        f"docker run --name web {U} touch /new; docker commit -m x -c 'CMD [\"ls\", \"/new\"]' web made >/dev/null; "
        "docker run --rm made; docker rmi -f made >/dev/null", "/new\n",
    ),
    "save, load, tag, import, export": (
        f"docker tag {U} a:b; docker save a:b {U} >s; docker rmi a:b >/dev/null; docker load -qi s | sort; docker rmi a:b >/dev/null; "
        f"docker run --name web {U} true; docker export web | docker import -c 'CMD [\"echo\", \"hi\"]' - a:b >/dev/null; docker run --rm a:b; "
        "docker history -q a:b | wc -l; docker rmi -f a:b >/dev/null", "Loaded image: a:b\nLoaded image: ubuntu:24.04\nhi\n1\n",
    ),
    "load, compressed": (f"docker save {U} | gzip | docker load -q", "Loaded image: ubuntu:24.04\n"),
    "build": (
        f"printf 'FROM {U}\\nARG A\\nCOPY f /f\\nRUN echo $A >>/f\\nCMD [\"cat\", \"/f\"]\\n' >Dockerfile; echo hi >f; "
        "DOCKER_BUILDKIT=0 docker build -q --build-arg A=b --label x=y -t made:1 . >/dev/null 2>&1; docker run --rm made:1; "
        "docker rmi -f made:1 >/dev/null", "hi\nb\n",
    ),
    "build from stdin, without cache": (
        f"printf 'FROM {U}\\nRUN echo hi\\n' | DOCKER_BUILDKIT=0 docker build --no-cache --network none -m 64m - 2>/dev/null | grep -c ^hi$",
        "1\n",
    ),
    "build, a target, limits, host entry": (
        f"printf 'FROM {U} AS a\\nRUN echo hi >/f\\nFROM {U}\\nCOPY --from=a /f /g\\n' >Dockerfile; DOCKER_BUILDKIT=0 docker build -q "
        "--target a --add-host x:1.2.3.4 --ulimit nofile=99 --shm-size 32m --force-rm . >/dev/null 2>&1; echo $?", "0\n",
    ),
    "stats": (f"docker run -d --name web {U} sleep 60 >/dev/null; docker stats --no-stream --format '{{{{.Name}}}}'", "web\n"),
    "events": (
        "s=$(date +%s); docker run --rm --label e=1 " + U + " true; "
        "docker events --since $s --until $(($(date +%s) + 1)) --filter label=e=1 --format '{{.Action}}' | sort | tr '\\n' ' '",
        "attach create destroy die start ",
    ),
    "events, followed": (
        f"(timeout 5 docker events --format '{{{{.Type}}}} {{{{.Action}}}}' || true) >e & sleep 1; docker run --rm {U} true; wait; "
        "grep -c 'container start' e", "1\n",
    ),
    "ps, images, inspect": (
        f"docker run -d --name web --label q=1 {U} sleep 60 >/dev/null; docker ps -q --filter label=q=1 --filter status=running | wc -l; "
        "docker ps -as --format '{{.Names}}'; docker inspect -s -f '{{.Name}}' web; docker images -q ubuntu | wc -l", "1\nweb\n/web\n1\n",
    ),
    "system": ("docker system df >/dev/null; docker info -f '{{.DefaultRuntime}}'; docker version -f '{{.Server.Os}}'", "runc\nlinux\n"),
    "prune": (
        f"docker run --name web {U} true; docker container prune -f --filter until=0s | grep -c Total; docker volume prune -f >/dev/null; "
        "docker network prune -f >/dev/null; docker image prune -f >/dev/null; docker builder prune -f >/dev/null 2>&1; echo ok",
        "1\nok\n",
    ),
    "a granted device": (
        f"docker run --rm --device nvidia.com/gpu=0 {U} sh -c 'ls /dev/nvidia0'", "/dev/nvidia0\n",
    ),
    "a bind": (f"docker run --rm -v $FOLDER:/w:ro --mount type=bind,src=$FOLDER,dst=/x {U} sh -c 'ls -d /w/sub /x/sub'", "/w/sub\n/x/sub\n"),
}  # fmt: skip


@pytest.fixture
def desk(tmp_path: Path, system: rig.System, folder: Path) -> Iterator[dict[str, str]]:
    """The environment of a person in an empty folder; what they left in the daemon is taken away."""
    gate = system.root / "run/rediacc/gpu/repos/gpu-a.sock"
    judge = intruder.Judge(system.root / "daemons/gpu-a/docker.sock", frozenset())
    before = judge.look()
    yield {**system.environ, "DOCKER_HOST": f"unix://{gate}", "FOLDER": str(folder), "HOME": str(tmp_path)}
    judge.clear(before)


@pytest.mark.parametrize(("script", "expected"), SCRIPTS.values(), ids=SCRIPTS.keys())
def test_script(desk: dict[str, str], tmp_path: Path, script: str, expected: str | None) -> None:
    done = subprocess.run(
        ["sh", "-ec", script], env=desk, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout if expected is not None else None) == (0, expected), done.stdout + done.stderr


def test_a_terminal(desk: dict[str, str]) -> None:
    """`docker run -it`: a pty on both sides, typed input, its size, its exit code."""
    docker = shutil.which("docker", path=desk["PATH"])
    assert docker is not None
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(docker, [docker, "run", "-it", "--rm", U, "sh", "-c", "read line; echo got $line; tty; exit 3"], desk)
    os.write(terminal, b"typed\n")
    said = _all_of(terminal)
    _, status = os.waitpid(pid, 0)
    assert "got typed" in said
    assert "/dev/pts/0" in said
    assert os.waitstatus_to_exitcode(status) == 3


def _all_of(terminal: int) -> str:
    said = b""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # the other side of a pty is gone
            return said.decode(errors="replace")
        if not piece:
            return said.decode(errors="replace")
        said += piece


COMPOSE = """\
services:
  web:
    image: ubuntu:24.04
    command: sh -c 'echo here; ls /dev/nvidia0; sleep 600'
    devices: [nvidia.com/gpu=0]
    group_add: [video]
    init: true
    restart: unless-stopped
    stop_grace_period: 0s
    environment: {A: b}
    ports: ["127.0.0.1::80"]
    volumes: ["data:/data"]
    networks: {net: {aliases: [www]}}
    ulimits: {nofile: 100}
    healthcheck: {test: ["CMD", "true"], interval: 1s}
    depends_on: {job: {condition: service_completed_successfully}}
  job:
    image: ubuntu:24.04
    command: sh -c 'echo done >/data/f'
    volumes: ["data:/data"]
    networks: [net]
volumes: {data: {labels: {a: b}}}
networks: {net: {}}
"""


@pytest.mark.parametrize("client", ["26", "28"], ids=["Compose 2.26.1", "Compose 2.40.3"])
def test_compose(desk: dict[str, str], system: rig.System, tmp_path: Path, client: str) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(COMPOSE)
    project = ("-p", f"p{client}", "-f", str(file))

    def compose(*words: str) -> str:
        return rig.succeeded(system.compose(client, "gpu-a", *project, *words))

    compose("up", "-d", "--wait")
    assert "web" in compose("ps", "--services")
    assert compose("exec", "-T", "web", "cat", "/data/f") == "done"
    assert "/dev/nvidia0" in rig.wait_for(lambda: compose("logs", "--no-color", "web"))
    compose("up", "-d")
    compose("restart", "web")
    compose("stop")
    compose("start")
    compose("down", "-v")
    assert compose("ps", "-q") == ""


def test_other_clients_of_a_granted_repo_hear_the_sentence(desk: dict[str, str], system: rig.System) -> None:
    said = system.docker("gpu-b", "run", "--rm", "--device", "nvidia.com/gpu=0", U, "true")
    assert said.returncode != 0
    assert "repo gpu-b has no grant for nvidia.com/gpu=0" in said.stderr
