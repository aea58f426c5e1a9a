"""How the commands speak."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import click
import pytest

from gpugrant_operator.cli import console, options, waiting
from gpugrant_operator.cli.gpugrant import cli as gpugrant
from gpugrant_operator.cli.rdc import cli as rdc

PROGRAM = """
import click
from gpugrant_operator.cli import console

@click.command()
@click.argument("what")
def cli(what):
    if what == "refused":
        raise console.Failure("no such thing")
    if what == "late":
        raise console.NotReady("not in time")
    if what == "file":
        open("/nonexistent/x")
    if what == "system":
        raise ConnectionResetError(104, "Connection reset by peer")
    if what == "bug":
        raise ZeroDivisionError("division\\nby zero")
    click.echo("done")

console.run(cli, "trial")
"""


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, *words]
    return subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "code", "stdout", "stderr"),
    [
        pytest.param(["ok"], 0, "done\n", "", id="done"),
        pytest.param(["refused"], 1, "", "error: no such thing\n", id="refused"),
        pytest.param(["late"], 3, "", "error: not in time\n", id="not ready in time"),
        pytest.param(["file"], 1, "", "error: /nonexistent/x: no such file or directory\n", id="a file that is amiss"),
        pytest.param(
            ["system"],
            1,
            "",
            "error: connection reset by peer (GPUGRANT_DEBUG=1 shows where)\n",
            id="an error of the system without a file",
        ),
        pytest.param(
            ["bug"],
            1,
            "",
            "error: unexpected ZeroDivisionError: division by zero (GPUGRANT_DEBUG=1 shows where)\n",
            id="a bug is one line",
        ),
    ],
)
def test_exit_codes_and_sentences(words: list[str], code: int, stdout: str, stderr: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout, done.stderr) == (code, stdout, stderr)


def test_wrong_usage_exits_2() -> None:
    done = run()
    assert done.returncode == 2
    assert "Missing argument" in done.stderr


def test_a_bug_shows_where_when_it_is_asked_to() -> None:
    assert "Traceback" in run("bug", GPUGRANT_DEBUG="1").stderr


def test_a_reader_that_has_gone_is_no_error() -> None:
    command = [sys.executable, "-c", PROGRAM.replace('click.echo("done")', 'click.echo("done\\n" * 99999)'), "ok"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""


@pytest.mark.parametrize("text", ['"done"', '"done " * 99_999'], ids=["short", "more than a buffer"])
def test_a_full_disk_under_the_output_is_one_sentence(text: str) -> None:
    program = PROGRAM.replace('click.echo("done")', f"click.echo({text})")
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-c", program, "ok"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: can't write the output: no space left on device\n")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (86_399, "23h"), (90_000, "1d")],
)
def test_ages_read_as_kubectls(seconds: int, text: str) -> None:
    assert console.age(timedelta(seconds=seconds)) == text


def test_memory_reads_in_gib() -> None:
    assert console.memory(48 * 2**30) == "48.0 GiB"
    assert console.memory(None) == "-"


def test_a_table_for_a_script_is_plain_and_one_for_a_terminal_has_the_same_words() -> None:
    columns, rows = ("NAME", "X"), [("a[b]", "1"), ("long name", "22")]
    assert console.table(columns, rows, terminal=False) == "NAME        X\na[b]        1\nlong name   22"
    shown = console.table(columns, rows, terminal=True)
    assert "\x1b[1m" in shown
    assert "a[b]" in shown


def test_a_file_that_must_not_be_written_is_a_sentence_that_says_what_to_do() -> None:
    said = console.os_error(PermissionError(13, "Permission denied"), "can't write below /").message
    assert said == "can't write below /: permission denied: run this as root, or give a --root of your own"
    assert console.os_error(OSError(28, "No space left on device"), "can't write x").message.endswith("left on device")


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("8h", timedelta(hours=8)),
        ("90m", timedelta(minutes=90)),
        ("1h30m5s", timedelta(hours=1, minutes=30, seconds=5)),
        ("2d", timedelta(days=2)),
        ("1d12h", timedelta(hours=36)),
    ],
)
def test_times_are_read_as_go_writes_them(text: str, span: timedelta) -> None:
    assert options.DURATION.convert(text, None, None) == span


@pytest.mark.parametrize("text", ["", "8", "8 h", "-1h", "0s", "0d", "1h1d", "1w", "h", "٣h"])
def test_what_is_no_time_is_wrong_usage(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a time: write numbers with the units d, h, m or s"):
        options.DURATION.convert(text, None, None)


def test_a_root_has_one_name(tmp_path: Path) -> None:
    assert options.ABSOLUTE.convert(f"{tmp_path}/a/../b", None, None) == tmp_path / "b"


@pytest.mark.parametrize("group", [gpugrant, rdc], ids=["gpugrant", "rdc"])
def test_every_command_has_a_help_with_all_its_options(group: click.Group) -> None:
    for path, command in commands(group):
        assert command.help, path
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, (path, parameter.name)


def commands(group: click.Group, path: str = "") -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []
    for name, command in group.commands.items():
        found.append((f"{path} {name}", command))
        if isinstance(command, click.Group):
            found += commands(command, f"{path} {name}")
    return found


@pytest.mark.parametrize("module", ["gpugrant", "rdc"])
def test_help_loads_nothing_heavy(module: str) -> None:
    program = (
        f"import sys; from gpugrant_operator.cli.{module} import cli; "
        "cli(['--help'], standalone_mode=False); "
        "print([m for m in ('kubernetes', 'kopf', 'aiohttp', 'pydantic', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_waiting_ends_with_the_first_value_or_with_the_time() -> None:
    answers = iter([None, None, 7])
    assert waiting.until(lambda: next(answers), 10) == 7
    assert waiting.until(lambda: None, 0.01) is None
