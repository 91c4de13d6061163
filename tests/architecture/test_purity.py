"""Kernels are pure, operators know no backend, and modules that only keep old import paths alive are not imported."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.helpers.source import PACKAGE, SOURCE, Module, find_imports, find_modules, resolve

#: What a kernel, and the mathematics that kernels share, may not know: settings, logs, profiles, other kernels' fates.
IMPURE = ("logging", "warnings", "os", *(f"{PACKAGE}.{name}" for name in ("_config", "profiling")))
#: Calls that wait for a device; adapters, clocks and transfers make them.
WAITS = {"synchronize", "block_until_ready"}
#: A program on one device that several operators share; its kernel has no primitive.
USES_A_BACKEND = {f"{PACKAGE}.operators.core.order_tables"}
#: How the docstring of a module begins that only keeps an old import path alive.
OLD_PATH = "Keeps an old import path alive"


def is_kernel(module: Module) -> bool:
    """Whether a module has kernels, or mathematics that they share."""
    inside = module.name.removeprefix(f"{PACKAGE}.engine.")
    return inside.startswith(("numerics.", "backends.generic.")) or ".kernels." in inside


def problems(source: Path) -> list[str]:
    """Everything below ``source`` that breaks a rule, as sentences."""
    modules = find_modules(source)
    old = {name for name, module in modules.items() if (ast.get_docstring(module.tree()) or "").startswith(OLD_PATH)}
    found = []
    for module in modules.values():
        for use in find_imports(module):
            where = f"{module.name}:{use.line} imports {use.target}"
            if is_kernel(module) and any(f"{use.target}.".startswith(f"{name}.") for name in IMPURE):
                found.append(f"{where}: kernels are pure functions of arrays")
            if (
                module.name.startswith(f"{PACKAGE}.operators.")
                and use.target.startswith(f"{PACKAGE}.engine.backends.")
                and module.name not in USES_A_BACKEND
            ):
                found.append(f"{where}: an operator lowers itself to primitives and knows no backend")
            if resolve(use.target, modules) in old - {module.name} and module.name not in old:
                found.append(f"{where}: that module only keeps an old import path alive")
        if is_kernel(module):
            found += [
                f"{module.name}:{node.lineno} calls {node.func.attr}: only adapters wait for a device"
                for node in ast.walk(module.tree())
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WAITS
            ]
    return found


def test_kernels_are_pure_and_operators_know_no_backend():
    """No settings, logs or profiles in kernels; only adapters wait for a device; old paths lead nowhere inside."""
    assert problems(SOURCE) == []


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("engine/backends/numpy/kernels/fft.py", "import logging", "kernels are pure"),
        ("engine/backends/generic/fft.py", "from hpfracc._config import get_settings", "kernels are pure"),
        ("engine/numerics/lengths.py", "def f():\n    from hpfracc.profiling import recorder", "kernels are pure"),
        ("engine/backends/torch/kernels/fft.py", "def f(event):\n    event.synchronize()", "only adapters wait"),
        ("operators/_mine.py", "from hpfracc.engine.backends.registry import arms", "knows no backend"),
        ("operators/_mine.py", "from hpfracc.old import name", "keeps an old import path"),
    ],
)
def test_a_breach_is_noticed(file: str, text: str, complaint: str, tmp_path: Path):
    """Each way to break a rule, taken in a file of its own, is reported."""
    (tmp_path / "old.py").write_text(f'"""{OLD_PATH}: it lives elsewhere."""', encoding="utf-8")
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    assert [complaint in each for each in problems(tmp_path)] == [True]
