"""Reading the library's own source: its modules, and what each one imports."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = "hpfracc"
REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = REPOSITORY / "src" / PACKAGE

#: Functions that import the module whose name they are given.
IMPORTERS = frozenset({"import_module", "import_optional", "__import__"})


@dataclass(frozen=True, slots=True)
class Import:
    """One module that another one imports.

    ``at_import`` tells whether it is imported as soon as the importing module is: not inside a function, nor only for
    the type checker.
    """

    target: str
    line: int
    at_import: bool


@dataclass(frozen=True, slots=True)
class Module:
    """One file of the library, under its dotted name; a folder's ``__init__.py`` has the folder's name."""

    name: str
    path: Path

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def package(self) -> str:
        return self.name if self.is_package else self.name.rpartition(".")[0]

    def tree(self) -> ast.Module:
        return parse(self.path.read_text(encoding="utf-8"))


@cache
def parse(text: str) -> ast.Module:
    """The tree of a file: several tests read the whole library."""
    return ast.parse(text)


def find_modules(source: Path = SOURCE) -> dict[str, Module]:
    """Every module below ``source``, the folder of the package, by dotted name."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join((PACKAGE, *(parts[:-1] if parts[-1] == "__init__" else parts)))
        found[name] = Module(name, path)
    return found


def find_imports(module: Module) -> list[Import]:
    """What ``module`` imports, wherever in the file: also inside functions, and by name through :mod:`importlib`."""
    return _imports(module.path.read_text(encoding="utf-8"), module.package)


@cache
def _imports(text: str, package: str) -> list[Import]:
    return [
        Import(target, node.lineno, at_import)
        for node, at_import in _walk(parse(text), at_import=True, calls=any(name in text for name in IMPORTERS))
        for target in _targets(node, package)
    ]


def _walk(node: ast.AST, *, at_import: bool, calls: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Every node below, or without ``calls`` every statement: they are a tenth of the nodes."""
    waiting = [(node, at_import)]
    while waiting:
        parent, runs = waiting.pop()
        for child in ast.iter_child_nodes(parent) if calls else _statements(parent):
            found = child, runs and not _is_deferred(child, parent)
            yield found
            waiting.append(found)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """What lies in the blocks of a statement: statements, and parts of one that have blocks themselves."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        yield from getattr(node, block, ())


def _is_deferred(node: ast.AST, parent: ast.AST) -> bool:
    """Whether ``node`` does not run when the module is imported: a function, or what only the type checker sees."""
    if isinstance(parent, ast.If) and node in parent.body and "TYPE_CHECKING" in ast.unparse(parent.test):
        return True
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def _targets(node: ast.AST, package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            above = package.split(".")
            base = ".".join(above[: len(above) - node.level + 1] + ([base] if base else []))
        # `from package import name`: the name may be a module of its own, which `resolve` finds out.
        return [f"{base}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and node.args:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        argument = node.args[0]
        if called in IMPORTERS and isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            return [argument.value]
    return []


def resolve(target: str, modules: dict[str, Module]) -> str | None:
    """The module of ours that ``target`` (a module, or a name inside one) lies in, or None if it is not ours."""
    if target.partition(".")[0] != PACKAGE:
        return None
    while target not in modules and "." in target:
        target = target.rpartition(".")[0]
    return target


def find_cycle(graph: dict[str, set[str]]) -> list[str] | None:
    """Some path of ``graph`` that comes back to where it began, or None."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        # The sorter takes predecessors, so its cycle runs against the imports.
        return list(reversed(error.args[1]))
    return None
