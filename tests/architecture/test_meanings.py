"""One name has one meaning: names of classes, and names that one module imports from another."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.source import PACKAGE, SOURCE, Module, find_modules

#: Folders that hold the same files for different libraries: the same name in the same file has the same meaning.
PARALLEL = re.compile(r"(engine\.backends|solvers\.ode\.tensors|ml)\.(on_)?(generic|numpy|numba|torch|jax|cupy)\.")
#: Names of several classes, and why.
CLASSES = {
    "VariableOrder": "public: hpfracc.VariableOrder, the operator, and hpfracc.solvers.ode.VariableOrder, the method",
    "FractionalDerivative": "public: hpfracc.core and hpfracc.ml, users' old base class and the layer",
    "FractionalDiffusion": "public: hpfracc.lattice and hpfracc.pde, on a graph and a term of an equation",
}
#: Other names that modules import from several places, and why.
IMPORTED = {
    "Array": "an array: the annotation of NumPy's, and the class of arrays in a function that is being compiled",
    "causal_convolution": "public: the operation, and hpfracc.batch.causal_convolution for files",
    "distributed_order": "public: hpfracc.distributed_order, the operator, and the model equation of pde.problems",
    "elementwise": "public: the operation, and hpfracc.batch.elementwise for files",
    "make_kernels": "the kernels of one primitive, made for each library; a file per primitive",
    "prabhakar": "public: hpfracc.prabhakar, the operator, and hpfracc.special.prabhakar, the function in its kernel",
    "read_grid": "the checked points of a problem: of samples, of noise, of a box in space",
    "read_orders": "the checked orders of an equation: ordinary, partial",
    "read_problem": "the checked arguments of a call: of an operator, of each kind of equation",
}


def class_clashes(source: Path) -> set[str]:
    """Names of classes, also underscored ones, that stand for different things in different files."""
    homes: dict[str, set[str]] = defaultdict(set)
    for module in find_modules(source).values():
        for node in ast.walk(module.tree()):
            if isinstance(node, ast.ClassDef):
                homes[node.name].add(_home(module.name))
    return {name for name, where in homes.items() if len(where) > 1}


def import_clashes(source: Path) -> dict[str, set[str]]:
    """Names under which modules import different things of ours, and where those are defined.

    Modules are left out, since their packages tell them apart, and so are constants, which are a module's own figures.
    """
    modules = find_modules(source)
    bound = {name: set(_defined(module.tree().body)) for name, module in modules.items()}
    imported = {name: list(_imported(module)) for name, module in modules.items()}
    handed_on = {name: dict(found) for name, found in imported.items()}

    def define(home: str, name: str) -> str:
        # A module stops the search: ``from hpfracc import errors`` in hpfracc itself hands on what it imports.
        while f"{home}.{name}" not in modules and name not in bound.get(home, ()) and name in handed_on.get(home, ()):
            home, name = handed_on[home][name]
        return f"{home}.{name}"

    meanings: dict[str, set[str]] = defaultdict(set)
    for found in imported.values():
        for local, target in found:
            home = define(*target)
            if home not in modules and not local.isupper():
                meanings[local].add(_home(home))
    return {name: homes for name, homes in meanings.items() if len(homes) > 1}


def _home(name: str) -> str:
    return PARALLEL.sub(r"\1.", name.removeprefix(f"{PACKAGE}."))


def _defined(body: list[ast.stmt]) -> Iterator[str]:
    """Names that the statements of a module bind, except by importing."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.If | ast.Try):
            yield from _defined(node.body + node.orelse)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))


def _imported(module: Module) -> Iterator[tuple[str, tuple[str, str]]]:
    """Each name of ours that a module imports, wherever in the file: as what, from which module, what."""
    stub = module.path.with_suffix(".pyi")  # declares the names that a package loads on first use
    trees = [module.tree(), *([ast.parse(stub.read_text(encoding="utf-8"))] if stub.exists() else [])]
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == PACKAGE:
            for alias in node.names:
                yield alias.asname or alias.name, (node.module, alias.name)


def test_a_class_name_has_one_meaning():
    """No two classes of one name, apart from the same file for another library and pairs of public names."""
    assert class_clashes(SOURCE) == set(CLASSES)


def test_an_imported_name_has_one_meaning():
    """Who sees a name in two modules sees the same thing; exceptions have a reason, and are needed."""
    found = import_clashes(SOURCE)
    assert {name: homes for name, homes in found.items() if name not in IMPORTED and name not in CLASSES} == {}
    assert set(IMPORTED) - set(found) == set()


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in {"__init__.py": "", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", ["Plan", "_Plan"])
@pytest.mark.parametrize(
    ("first", "second", "clash"),
    [
        ("engine/plan.py", "solvers/plan.py", True),
        ("engine/backends/torch/kernels/fft.py", "engine/backends/jax/kernels/fft.py", False),
        ("engine/backends/torch/kernels/fft.py", "engine/backends/jax/kernels/matmul.py", True),
        ("solvers/ode/tensors/on_jax/mesh.py", "solvers/ode/tensors/on_torch/mesh.py", False),
    ],
)
def test_a_clash_of_classes_is_noticed(tmp_path: Path, first: str, second: str, clash: bool, name: str):
    """Two classes of one name are reported unless they are the same file for two libraries."""
    _write(tmp_path, {first: f"class {name}: ...", second: f"class {name}: ..."})
    assert class_clashes(tmp_path) == ({name} if clash else set())


@pytest.mark.parametrize(
    ("texts", "clash"),
    [
        (["from hpfracc.a import plan", "from hpfracc.b import plan"], True),
        (["from hpfracc.a import plan", "def f():\n    from hpfracc.b import other as plan"], True),
        (["from hpfracc.a import plan", "from hpfracc.b import other"], False),
        (["from hpfracc.a import plan", "from hpfracc.c import plan"], False),  # hands on that of a
        (["from hpfracc.a import LIMIT as MOST", "from hpfracc.b import plan as MOST"], False),
        (["from hpfracc import a as plan", "from hpfracc import b as plan"], False),
    ],
)
def test_a_clash_of_imports_is_noticed(tmp_path: Path, texts: list[str], clash: bool):
    """Different functions under one name are reported, also by an alias; modules, constants and re-exports are not."""
    homes = {
        "a.py": "LIMIT = 1\ndef plan(): ...",
        "b.py": "def plan(): ...\nother = 1",
        "c.py": "from hpfracc.a import plan",
    }
    _write(tmp_path, homes | {f"user_{number}.py": text for number, text in enumerate(texts)})
    assert set(import_clashes(tmp_path)) == ({"plan"} if clash else set())
