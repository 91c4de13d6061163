"""The core and the applications have a mass: lines of code and files. To grow, they need a new entry."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

from tests.helpers.source import SOURCE, parse

#: The most lines of code and files of each wing. Lower an entry when its wing has become smaller.
MASS = {"core": (61_990, 489), "applications": (7_500, 60)}
#: What the core does without: nothing in it imports these but ``cli``, the lazy names of ``__init__``, and the faces
#: ``pde`` and ``solvers.ode.problems``, for the model equations.
APPLICATIONS = ("control", "models", "lab", "solvers/sde/rough", "solvers/sde/transport", "rough.py", "transport.py")
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(text: str) -> int:
    """Number of lines of code in a module: no blank lines, comments or docstrings."""
    docstrings = set[int]()
    for node in ast.walk(parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            match node.body[0]:
                case ast.Expr(value=ast.Constant(value=str()), lineno=first, end_lineno=last):
                    docstrings.update(range(first, (last or 0) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {n for t in tokens if t.type not in _NO_CODE for n in range(t.start[0], t.end[0] + 1)}
    return len(lines - docstrings)


def wing_of(path: Path) -> str:
    """The wing of a file, whose path is relative to the package."""
    places = {path.as_posix(), *(folder.as_posix() for folder in path.parents)}
    return "core" if places.isdisjoint(APPLICATIONS) else "applications"


def test_no_wing_has_grown():
    """What is added has to be worth its lines: delete what serves no user, or raise the entry and say what for."""
    mass = {wing: [0, 0] for wing in MASS}
    for path in SOURCE.rglob("*.py"):
        entry = mass[wing_of(path.relative_to(SOURCE))]
        entry[0] += code_lines(path.read_text(encoding="utf-8"))
        entry[1] += 1
    assert {wing: lines for wing, (lines, _) in mass.items() if lines > MASS[wing][0]} == {}
    assert {wing: files for wing, (_, files) in mass.items() if files > MASS[wing][1]} == {}


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
