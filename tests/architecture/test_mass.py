"""Each room has a mass: its lines of code and its files. A room may shrink as it likes; to grow it needs a new entry.

Lines of code are those that are not blank, no comment, and no part of a docstring.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.helpers.source import SOURCE, parse

#: Lines of code and files of each room, as they were counted last. Lower an entry when its room has become smaller.
MASS = {
    "engine/backends": (5_645, 77),
    "engine/execution": (3_724, 26),
    "engine/selection": (2_660, 15),
    "engine/primitives": (1_300, 15),
    "engine": (2_751, 23),
    "history": (908, 7),
    "special": (470, 7),
    "operators": (7_530, 53),
    "solvers/ode": (11_105, 83),
    "solvers/pde": (8_420, 54),
    "solvers/sde": (5_226, 42),
    "ml": (3_072, 32),
    "control": (2_119, 11),
    "models": (868, 9),
    "distributed": (3_082, 18),
    "profiling": (1_579, 13),
    "lattice": (1_722, 14),
    "cli": (1_210, 12),
    "(root)": (2_758, 33),
}
#: How far a room may grow beyond its entry.
GROWTH = 1.02
#: The room of what lies in no other: the files at the top, and small packages.
REST = "(root)"


def code_lines(text: str) -> int:
    """Number of lines of code in a module."""
    docstrings, strings = set[int](), set[int]()
    for node in ast.walk(parse(text)):
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno != node.lineno:
            strings.update(range(node.lineno, (node.end_lineno or 0) + 1))  # their blank lines are values too
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                docstrings.update(range(first.lineno, (first.end_lineno or 0) + 1))
    written = (line.strip() for line in text.splitlines())
    lines = {number for number, line in enumerate(written, 1) if line and not line.startswith("#")}
    return len((lines | strings) - docstrings)


def room_of(path: Path) -> str:
    """The room of a file, whose path is relative to the package: the innermost folder that has an entry."""
    return next((folder.as_posix() for folder in path.parents if folder.as_posix() in MASS), REST)


def mass_of(source: Path) -> dict[str, tuple[int, int]]:
    """Lines of code and files of every room."""
    lines, files = Counter[str](), Counter[str]()
    for path in source.rglob("*.py"):
        room = room_of(path.relative_to(source))
        lines[room] += code_lines(path.read_text(encoding="utf-8"))
        files[room] += 1
    return {room: (lines[room], files[room]) for room in sorted(files)}


def grown(mass: dict[str, tuple[int, int]]) -> list[str]:
    """The rooms that have outgrown their entries, as sentences."""
    found = []
    for room, counted in mass.items():
        for number, entry, what in zip(counted, MASS[room], ("lines of code", "files"), strict=True):
            if number > GROWTH * entry:
                found.append(
                    f"{room} has {number:,} {what}, and its entry in MASS is {entry:,}: delete what serves no user, or "
                    "raise the entry and say in the commit what the new lines are for"
                )
    return found


def test_no_room_has_grown():
    """What is added to a room has to be worth its lines; the rooms of the table are those of the package."""
    mass = mass_of(SOURCE)
    assert mass.keys() == MASS.keys()
    assert grown(mass) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('"""Doc."""\n\nx = 1  # why\n# only a comment\n', 1),
        ('def f():\n    """Two\n    lines."""\n    return """two\nlines"""\n', 3),
        ("class A:\n    '''Doc.'''\n\n    x: int = (\n        1\n    )\n", 4),
        ("", 0),
    ],
)
def test_lines_of_code(text: str, count: int):
    """Comments, docstrings and blank lines count nothing; a string that is a value counts each of its lines."""
    assert code_lines(text) == count


def test_growth_is_told():
    """Within 2 % nothing is said; beyond, one sentence for each number that is too large. Shrinking is no failure."""
    lines, files = MASS[REST]
    assert grown({REST: (int(GROWTH * lines), files)}) == []
    assert grown({REST: (1, 1)}) == []
    (told,) = grown({REST: (int(GROWTH * lines) + 1, files)})
    assert told.startswith(f"{REST} has {int(GROWTH * lines) + 1:,} lines of code")
    assert len(grown({REST: (2 * lines, 2 * files)})) == 2


def test_files_belong_to_the_innermost_room():
    """A folder of a room that has an entry of its own is that room's; what lies in none is at the top."""
    assert room_of(Path("engine/execution/batch/run.py")) == "engine/execution"
    assert room_of(Path("engine/workers.py")) == "engine"
    assert room_of(Path("_files.py")) == room_of(Path("core/fractional_implementations.py")) == REST
