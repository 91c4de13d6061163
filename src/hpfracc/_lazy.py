"""Names of a package that are loaded on first use (PEP 562), declared once: in the stub beside its ``__init__.py``.

A type checker reads the stub, and so does the package when it is imported: ``from MODULE import NAME as NAME`` says
where a name lives, ``from PACKAGE import NAME as NAME`` that it is a module. Names that the stub imports from a package
given as ``unlisted`` can be used, and are not in ``dir()``: they are public there.

Names that older versions had, and what takes their place, are in ``old_names.json``: an import of one says so.
"""

from __future__ import annotations

import ast
import functools
import importlib
import json
import pkgutil
import sys
from collections.abc import Callable
from typing import Any

#: The module and the name there of each lazy name of a package; the name is empty for a module.
_declared: dict[str, dict[str, tuple[str, str]]] = {}


def _read(package: str) -> dict[str, tuple[str, str]]:
    """The declarations of a package's stub."""
    text = pkgutil.get_data(package, "__init__.pyi")
    if text is None:
        raise ImportError(f"{package} has no __init__.pyi beside it: its installation is incomplete", name=package)
    found: dict[str, tuple[str, str]] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                if alias.asname is not None:
                    path = (f"{package}.{alias.name}", "") if node.module == package else (node.module, alias.name)
                    found[alias.asname] = path
    return found


def attach(package: str, unlisted: str = "") -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package; call it once, in its ``__init__.py``."""
    declared = _declared[package] = _read(package)
    listed = sorted(name for name, (home, there) in declared.items() if not there or home != unlisted)

    def load(name: str) -> Any:
        if name not in declared:
            raise AttributeError(_gone(f"{package}.{name}") or f"module {package!r} has no attribute {name!r}")
        home, there = declared[name]
        try:
            module = importlib.import_module(home)
        except ModuleNotFoundError as error:
            _explain(error)
            raise
        value = getattr(module, there) if there else module
        # Cached, so that the next lookup does not call this function.
        setattr(sys.modules[package], name, value)
        return value

    def directory() -> list[str]:
        return sorted({*listed, "__version__"} if hasattr(sys.modules[package], "__version__") else listed)

    return load, directory, [name for name in listed if declared[name][1]]


@functools.cache
def _gone(path: str) -> str:
    """What takes the place of a name that older versions had; empty for other names."""
    names: dict[str, str] = json.loads(pkgutil.get_data("hpfracc", "old_names.json") or b"{}")
    return f"{path} was part of hpfracc 2 and 3. Now: {names[path]}" if path in names else ""


class OldNames:
    """The last finder of modules: an import of a name that is gone says what takes its place."""

    @staticmethod
    def find_spec(path: str, *_: Any) -> None:
        """Raise an error for a name that is gone; find nothing otherwise."""
        if path.startswith("hpfracc.") and (words := _gone(path)):
            raise ModuleNotFoundError(words)  # without ``name=``, which ``from hpfracc import`` would take for its own


def _explain(error: ModuleNotFoundError) -> None:
    """Raise our own error if what is missing is an optional library."""
    from hpfracc._optional import EXTRAS, missing

    root = str(error.name).partition(".")[0]
    if root in EXTRAS:
        raise missing(root) from error


def homes(package: str) -> dict[str, str]:
    """The module that defines each lazy name of a package, modules left out."""
    return {name: home for name, (home, there) in _declared[package].items() if there}


def modules(package: str) -> frozenset[str]:
    """The public modules of a package that are imported on first use."""
    return frozenset(name for name, (_, there) in _declared[package].items() if not there)
