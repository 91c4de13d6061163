"""The tests themselves: few lines, few imports of what is private, and lists that name tests that are there."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.helpers.more import KEPT, MORE
from tests.helpers.public_api import PUBLIC_MODULES
from tests.helpers.source import REPOSITORY, Module, find_imports

TESTS = REPOSITORY / "tests"
MAX_LINES = 64_050
#: The most test files in the folders below that import private modules. Lower both numbers when there is less.
MAX_PRIVATE = 67
FOLDERS = ("operators", "solvers", "special", "control", "models", "ml", "lattice")
PUBLIC = {
    *PUBLIC_MODULES,
    *(f"hpfracc.{name}" for name in ("pde", "control", "models", "ml", "noise", "rough", "transport", "distributed")),
    *("hpfracc.solvers", "hpfracc.operators", "hpfracc.pde.problems", "hpfracc.ml.jax", "hpfracc.ml.jax.optimizers"),
    *("hpfracc.ml.optimized_optimizers", "hpfracc.ml.path_losses", "hpfracc.lab"),
}


def private_imports(path: Path) -> list[str]:
    """Names that a file imports of modules that no user imports."""
    targets = [use.target for use in find_imports(Module("tests", path)) if use.target.startswith("hpfracc.")]
    return [each for each in targets if each not in PUBLIC and each.rpartition(".")[0] not in PUBLIC]


def test_the_tests_are_few_enough_to_read():
    """An idea is tested once."""
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in TESTS.rglob("*.py")) <= MAX_LINES


def test_most_tests_use_public_names():
    """So that a change inside of the library changes its tests in few places."""
    files = [path for folder in FOLDERS for path in (TESTS / folder).rglob("test_*.py")]
    assert len([path for path in files if private_imports(path)]) <= MAX_PRIVATE


def test_the_lists_of_tests_name_what_is_there():
    """Each entry is the beginning of the name of some test."""
    names = {path.relative_to(TESTS).as_posix(): path for path in TESTS.rglob("test_*.py")}
    for entry in (*MORE, *KEPT):
        file, _, test = entry.partition("::")
        found = [path for name, path in names.items() if name.startswith(file)]
        assert found, entry
        functions = [
            node.name
            for path in found
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.FunctionDef)
        ]
        assert any(name.startswith(test.partition("[")[0]) for name in functions), entry
