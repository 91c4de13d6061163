"""Habits of the repository: finished code, no prints in the library, one version everywhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import hpfracc
from tests.helpers.source import REPOSITORY, SOURCE, find_modules

#: Words that say a thing is not finished.
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def unfinished(source: Path) -> list[str]:
    return [
        f"{path.relative_to(source)}:{number} says {match.group()}"
        for path in sorted(source.rglob("*"))
        if path.suffix in {".py", ".html", ".css", ".js"}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if (match := UNFINISHED.search(line))
    ]


def prints(source: Path) -> list[str]:
    """Calls of ``print`` outside the command line, which is the one part that talks to a terminal."""
    return [
        f"{module.name}:{node.lineno} prints: log it, or return it"
        for module in find_modules(source).values()
        if not f"{module.name}.".startswith("hpfracc.cli.")
        if "print" in module.path.read_text(encoding="utf-8")  # quick: few files
        for node in ast.walk(module.tree())
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]


def test_nothing_is_left_unfinished():
    """No TODO or FIXME: what is not done is not in the code, or is an issue."""
    assert unfinished(SOURCE) == []


def test_the_library_does_not_print():
    """Only the command line prints."""
    assert prints(SOURCE) == []


def test_both_are_noticed(tmp_path: Path):
    """The two checks above fail where they should, and spare the command line."""
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "info.py").write_text("print(1)\n", encoding="utf-8")
    (tmp_path / "clients.py").write_text("def f():\n    print(1)  # FIXME\n", encoding="utf-8")
    assert unfinished(tmp_path) == ["clients.py:2 says FIXME"]
    assert prints(tmp_path) == ["hpfracc.clients:2 prints: log it, or return it"]


@pytest.mark.parametrize(
    ("file", "pattern"),
    [("CITATION.cff", r"^version: (\S+)$"), ("CHANGELOG.md", r"^## \[(\d+\.\d+\.\d+)\]")],
)
def test_the_version_is_the_same_everywhere(file: str, pattern: str):
    """The citation and the newest release of the changelog name the version the library says it has."""
    found = re.search(pattern, (REPOSITORY / file).read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    assert found.group(1).strip('"') == hpfracc.__version__


def test_the_package_says_it_is_typed():
    """``py.typed`` lies beside the package, so that a user's type checker reads its annotations."""
    assert (SOURCE / "py.typed").is_file()
