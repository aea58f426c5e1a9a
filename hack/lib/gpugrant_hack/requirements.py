"""Which requirements the tests show: the numbers of `pytest.mark.req`, read from the tests' text (nothing is run)."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpugrant_hack.say import Trouble


@dataclass(frozen=True, slots=True)
class Shown:
    """One requirement that one test function, class or module shows."""

    number: str
    real: bool
    """On real parts: daemons, kubectl."""
    place: str
    """file:line"""


def numbers(text: str) -> dict[str, str]:
    """The committed list: a number and what it is about, one a line; `#` starts a comment."""
    lines = (line.strip() for line in text.splitlines())
    return {line.split()[0]: line.partition(" ")[2].strip() for line in lines if line and not line.startswith("#")}


def shown(source: str, name: str) -> Iterator[Shown]:
    """What one test file shows. Raises SyntaxError for a file that is no Python."""
    tree = ast.parse(source, name)
    yield from _walk(tree.body, _pytestmark(tree.body), name, real=False)


def _walk(body: Iterable[ast.stmt], marks: list[ast.expr], name: str, *, real: bool) -> Iterator[Shown]:
    """Marks of a module or class count for what is in it; a file without a test in it shows nothing."""
    real = real or any(_is_real(mark) for mark in marks)
    inherited = [found for mark in marks for found in _numbers(mark)]
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _walk(node.body, [*marks, *node.decorator_list, *_pytestmark(node.body)], name, real=real)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            own_real = real or any(_is_real(mark) for mark in node.decorator_list)
            own = [found for mark in node.decorator_list for found in _numbers(mark)]
            for number in dict.fromkeys([*inherited, *own]):
                yield Shown(number, own_real, f"{name}:{node.lineno}")


def _pytestmark(body: Iterable[ast.stmt]) -> list[ast.expr]:
    """What is assigned to `pytestmark` in a module or class."""
    assigned = (node for node in body if isinstance(node, ast.Assign))
    return [node.value for node in assigned if any(ast.unparse(target) == "pytestmark" for target in node.targets)]


def _is_real(mark: ast.expr) -> bool:
    return any(_mark_name(node) == "real" for node in ast.walk(mark))


def _numbers(mark: ast.expr) -> Iterator[str]:
    """The arguments of every `pytest.mark.req(…)` in an expression, those of single cases (`marks=`) included."""
    for node in ast.walk(mark):
        if isinstance(node, ast.Call) and _mark_name(node.func) == "req":
            for argument in node.args:
                if isinstance(argument, ast.Constant):
                    yield str(argument.value)


def _mark_name(node: ast.AST) -> str:
    """`x` of `pytest.mark.x`."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "mark":
        return node.attr
    return ""


def report(known: Mapping[str, str], found: Iterable[Shown]) -> list[str]:
    """One line a requirement, then what has no test and what has no proof on real parts."""
    found = list(found)
    for item in found:
        if item.number not in known:
            raise Trouble(f"{item.place} marks {item.number}, which is no number of tests/requirements.txt")
    real = {number: sum(item.real for item in found if item.number == number) for number in known}
    unit = {number: sum(not item.real for item in found if item.number == number) for number in known}
    lines = [f"{number:<4} {real[number]:>4} real {unit[number]:>4} unit  {text}" for number, text in known.items()]
    untested = [number for number in known if not real[number] + unit[number]]
    unproven = [number for number in known if unit[number] and not real[number]]
    lines.append(f"no test: {' '.join(untested) or 'none'}")
    lines.append(f"unit tests only, no proof on real parts: {' '.join(unproven) or 'none'}")
    return lines


def read(checkout: Path) -> list[str]:
    """The report of a checkout."""
    known = numbers((checkout / "tests/requirements.txt").read_text())
    files = sorted((checkout / "tests").rglob("test_*.py"))
    found = [item for file in files for item in shown(file.read_text(), str(file.relative_to(checkout)))]
    return report(known, found)
