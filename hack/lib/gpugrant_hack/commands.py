"""The commands behind the scripts in hack/: arguments and environment are read here and nowhere deeper."""

import argparse
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gpugrant_hack import cache, daemons, environment, kubernetes, libraries, manifests, requirements, system
from gpugrant_hack.places import Root
from gpugrant_hack.say import Trouble, note, result
from gpugrant_hack.tools import Tools

CHECKOUT = Path(__file__).resolve().parents[3]


def main(words: list[str]) -> int:
    """Runs one command; 0 done, 1 refused or failed with one sentence on stderr, 2 wrong usage."""
    name, *arguments = words or [""]
    command = COMMANDS.get(name)
    if command is None:
        note(f"no command {name!r}: one of {', '.join(COMMANDS)}")
        return 2
    try:
        return command(arguments)
    except Trouble as trouble:
        note(str(trouble))
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _tools(root: Path | None = None, environ: Mapping[str, str] = os.environ) -> Tools:
    """The tools as they are looked up outside of what `<root>/env` puts into PATH: that would find its own links."""
    roots = [root, environ.get("GPUGRANT_ROOT")]
    own = {str(Root(Path(place)).bin) for place in roots if place}
    search = [folder for folder in (environ.get("PATH") or os.defpath).split(":") if folder not in own]
    return Tools(cache.folder(environ), ":".join(search))


def _parser(script: str, text: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(f"hack/{script}", description=text, allow_abbrev=False)
    parser.add_argument(
        "--root",
        type=lambda text: Path(text).absolute(),
        default=CHECKOUT / ".gpugrant",
        metavar="DIR",
        help="all that is started lies below it (default: .gpugrant in the checkout)",
    )
    return parser


def daemon(words: list[str]) -> int:
    """hack/daemon: one more sealed daemon; its socket on stdout."""
    parser = _parser("daemon", "Starts a sealed Docker daemon below the root and prints its socket.")
    parser.add_argument("name", metavar="NAME", help="a new name gets a new repo id, a known one keeps its own")
    parser.add_argument("--data-root", type=Path, metavar="DIR", help="the daemon's data (default: below the root)")
    parser.add_argument("--stop", action="store_true", help="end this one with its containers; its data stays")
    given = parser.parse_args(words)
    if given.stop:
        if not daemons.stop(daemons.Daemon(Root(given.root), given.name)):
            note(f"no daemon {given.name} runs below {given.root}")
        return 0
    choice = os.environ.get("GPUGRANT_ENGINE", "")
    started = daemons.start(
        _tools(given.root), Root(given.root), given.name, engine_choice=choice, data_root=given.data_root
    )
    result(str(started.socket))
    return 0


NEXT = """
it runs. In a shell, next:
  . {env}
  {steps}
{script} stops it"""


def up(words: list[str]) -> int:
    """hack/up: the whole example system; in the foreground until it is interrupted, or detached."""
    parser = _parser("up", "Sets up what it needs, starts two example repos and gpugrant, and shows the main job.")
    parser.add_argument("--detach", action="store_true", help="return once all is ready")
    parser.add_argument(
        "--hardware",
        type=lambda text: Path(text).absolute(),
        metavar="DIR",
        help="read the machine from this tree (default: this machine, or a recorded one if it has no GPU)",
    )
    given = parser.parse_args(words)
    whole = system.System(CHECKOUT, Root(given.root), _tools(given.root))
    before = system.running(whole)
    with _interruptible():
        try:
            system.up(whole, given.hardware, os.environ.get("GPUGRANT_ENGINE", ""))
            if given.detach:
                steps = "\n  ".join(system.next_steps(whole))
                result(NEXT.format(env=whole.root.env, steps=steps, script=_down_command(given.root)))
                return 0
            system.show(whole)
            if before:
                note(f"\nit ran already and goes on: {_down_command(given.root)} stops it")
                return 0
            note(f"\nit runs; in another shell: . {whole.root.env}\nCtrl-C stops it")
            while True:
                signal.pause()
        except KeyboardInterrupt:
            note("stopping")
        except Trouble:
            if given.detach or before:
                note(f"what was started goes on: {_down_command(given.root)} stops it")
                raise
            system.down(whole)
            raise
    system.down(whole)
    return 0


def _down_command(root: Path) -> str:
    return "hack/down" if root == CHECKOUT / ".gpugrant" else f"hack/down --root {root}"


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP end a script as Ctrl-C does: what it started is stopped. Ctrl-C counts even where a shell
    started it in the background, with SIGINT ignored; a SIGHUP that is ignored (nohup) stays so."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def down(words: list[str]) -> int:
    """hack/down: stops all that hack/up and hack/daemon started below a root; the data stays."""
    given = _parser("down", "Stops all that hack/up and hack/daemon started below the root.").parse_args(words)
    if not system.down(system.System(CHECKOUT, Root(given.root), _tools(given.root))):
        note(f"nothing runs below {given.root}")
    return 0


def tools(words: list[str]) -> int:
    """hack/tools: one tool, found or brought; where it lies on stdout."""
    here = _tools()
    find: dict[str, Callable[[str], Path]] = {
        "engine": lambda which: here.engine(which).program("dockerd", here.search).parent,
        "library": lambda which: libraries.bring(here, CHECKOUT, which),
        "kubectl": lambda _: here.kubectl(),
        "busybox": lambda _: here.busybox(),
        "registry": lambda _: here.registry(),
        "etcd": lambda _: here.etcd(),
    }
    parser = argparse.ArgumentParser("hack/tools", description="Finds or brings a tool and prints where it lies.")
    parser.add_argument("tool", choices=[*find, *kubernetes.PROGRAMS])
    parser.add_argument(
        "which",
        nargs="?",
        default="",
        help=f"of an engine: 26, 28 or own (default: the best); of a library: {', '.join(libraries.SETS)}",
    )
    given = parser.parse_args(words)
    result(str(find[given.tool](given.which) if given.tool in find else kubernetes.bring(here, given.tool)))
    return 0


def setup(words: list[str]) -> int:
    """hack/setup, when something changed."""
    parser = argparse.ArgumentParser("hack/setup", description="Makes or refreshes .venv from requirements/.")
    parser.parse_args(words)
    environment.refresh(_tools(), CHECKOUT)
    return 0


def update_locks(words: list[str]) -> int:
    """hack/update-locks: writes requirements/; a changed pyproject.toml changes as little as it can."""
    parser = argparse.ArgumentParser("hack/update-locks", description="Writes requirements/{run,dev}.txt.")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    given = parser.parse_args(words)
    environment.lock(_tools(), CHECKOUT, ["--upgrade"] if given.upgrade else [])
    return 0


def update_crds(words: list[str]) -> int:
    """hack/update-crds: crds/*.yaml and crds/*.json from the models."""
    parser = argparse.ArgumentParser(
        "hack/update-crds", description="Writes crds/*.yaml and crds/*.json from the models."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where they differ")
    given = parser.parse_args(words)
    folder, wanted = CHECKOUT / "crds", manifests.generated()
    if given.check:
        if differ := manifests.stale(folder, wanted):
            raise Trouble(f"crds/ is not what the models say ({', '.join(differ)}): run hack/update-crds")
        return 0
    for name in manifests.write(folder, wanted):
        note(f"crds/{name}")
    return 0


def show_requirements(words: list[str]) -> int:
    """hack/requirements: how many tests show each requirement."""
    text = "Counts the tests that show each requirement: on real parts, and unit tests."
    argparse.ArgumentParser("hack/requirements", description=text).parse_args(words)
    for line in requirements.read(CHECKOUT):
        result(line)
    return 0


COMMANDS: Mapping[str, Callable[[list[str]], int]] = {
    "daemon": daemon,
    "up": up,
    "down": down,
    "tools": tools,
    "setup": setup,
    "update-locks": update_locks,
    "update-crds": update_crds,
    "requirements": show_requirements,
}
