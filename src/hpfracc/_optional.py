"""Imports of optional libraries. A missing library raises an error that names the extra which installs it.

A module is in ``sys.modules`` as soon as its import begins, so its presence there does not mean that it can be used.
``importlib.import_module`` waits until an import in another thread is complete. In a forked child whose parent was
importing in another thread, it would wait forever. Therefore large libraries are imported in a thread of their own: the
caller can stop waiting, and Ctrl-C cannot leave a library half imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
from functools import cache, partial
from types import ModuleType
from typing import Any

from hpfracc._interrupts import ShieldedCall, after_fork
from hpfracc.errors import MissingDependencyError

#: The extra of hpfracc that installs each library.
EXTRAS: dict[str, str] = {
    "numba": "numba",
    "torch": "torch",
    "jax": "jax",
    "cupy": "cuda",
    "pynvml": "cuda",
    "dask": "dask",
    "matplotlib": "plot",
    "igraph": "graph",
    "networkx": "graph",
    "rustworkx": "graph",
    "joblib": "parallel",
    "sklearn": "sklearn",
    "pandas": "frames",
    "xarray": "frames",
}

#: Libraries that are imported in a thread of their own. They can take seconds, and an interrupted import cannot be
#: repeated.
_LARGE = frozenset({"numba", "torch", "jax", "cupy"})
#: Seconds that a forked child waits for an import. An import begun by the parent's other threads never completes.
CHILD_TIMEOUT = 20.0

#: Imports in progress.
_pending: dict[str, ShieldedCall] = {}
#: Libraries that the parent of a forked child was importing: a thread of the child that happens to have the number of
#: the parent's would get them half imported.
_halted: set[str] = set()
_is_child = False


class ImportDelayedError(MissingDependencyError):
    """A library could not be imported in time; a later attempt may succeed."""


def find_psutil() -> Any:
    """The module psutil, or None where there is none, as in Pyodide."""
    try:
        import psutil
    except ImportError:
        return None
    return psutil


@cache
def machine_memory() -> int:
    """Bytes of memory of this machine; the largest possible where the system does not tell."""
    try:
        pages = os.sysconf("SC_PHYS_PAGES")
        return pages * os.sysconf("SC_PAGE_SIZE") if pages > 0 else sys.maxsize
    except (AttributeError, ValueError, OSError):  # Windows
        psutil = find_psutil()
        return sys.maxsize if psutil is None else int(psutil.virtual_memory().total)


def is_installed(name: str) -> bool:
    """Whether ``name`` is installed. Does not import it."""
    if name in sys.modules:
        return sys.modules[name] is not None
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


@cache
def package_version(package: str) -> str | None:
    """Version of a package (the name that pip knows), from its metadata; None if it is not installed."""
    from importlib import metadata  # takes some milliseconds, as does each package

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def is_loaded(name: str) -> bool:
    """Whether ``name`` is fully imported. Never waits for an import in progress."""
    module = sys.modules.get(name)
    # As the import system itself asks, while the lock of the module may be held.
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)


def is_importing(name: str) -> bool:
    """Whether an import of ``name`` is in progress in any thread."""
    call = _pending.get(name)
    return (call is not None and not call.ended) or (sys.modules.get(name) is not None and not is_loaded(name))


def count_loaded() -> int:
    """Number of large libraries that are imported."""
    return sum(map(is_loaded, _LARGE))


def import_optional(name: str) -> ModuleType:
    """Import ``name``; raises :class:`MissingDependencyError`, which says how to install it.

    In a forked child, an import that takes too long raises :class:`ImportDelayedError`.
    """
    if is_loaded(name):
        return sys.modules[name]
    try:
        return import_shielded(name) if name in _LARGE else importlib.import_module(name)
    except ModuleNotFoundError as error:
        root = name.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != root:
            raise  # the library is installed and one of its dependencies is missing: keep the original error
        raise missing(root) from error


def missing(library: str) -> MissingDependencyError:
    """The error that says how to install a library."""
    what = f"'hpfracc[{EXTRAS[library]}]'" if library in EXTRAS else library
    return MissingDependencyError(f"{library!r} is not installed; install it with: pip install {what}", name=library)


def import_shielded(name: str) -> ModuleType:
    """Import ``name`` so that Ctrl-C cannot interrupt it. In a forked child, with a timeout."""
    if not _is_child and threading.current_thread() is not threading.main_thread():
        # Ctrl-C never interrupts this thread, and an import in another thread will complete.
        return importlib.import_module(name)
    call = _pending.get(name)
    if name not in _halted and (call is None or call.ended):
        try:
            call = _pending[name] = ShieldedCall(partial(importlib.import_module, name), awaited=not _is_child)
        except RuntimeError:  # no thread can be started
            return importlib.import_module(name)
    if call is None or not call.wait(CHILD_TIMEOUT if _is_child else float("inf")):
        raise ImportDelayedError(
            f"{name!r} could not be imported within {CHILD_TIMEOUT:g} s; this process was forked, maybe while another "
            f"thread of its parent was importing it: import {name} before forking, or start processes with 'spawn'",
            name=name,
        )
    module: ModuleType = call.result()
    return module


@after_fork
def _after_fork() -> None:
    global _is_child
    _is_child = True
    _pending.clear()  # a fork does not copy other threads
    _halted.update(name for name in _LARGE if sys.modules.get(name) is not None and not is_loaded(name))
