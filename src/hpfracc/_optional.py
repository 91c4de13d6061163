"""Import a library that may be missing, or name the extra that brings it.

A module is in ``sys.modules`` from the moment its import begins, so that alone does not say that it can be used. Asking
for it with ``importlib.import_module`` waits until it is whole; in a forked child whose parent was importing it in
another thread, for ever. So the large libraries are asked for, and imported, in a thread of their own: the caller waits
as long as it wants to, and no interrupt leaves one half imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
from functools import partial
from types import ModuleType

from hpfracc._shielded import ShieldedCall
from hpfracc.errors import MissingDependencyError

#: Which extra of hpfracc installs which library.
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

#: The libraries that are imported in a thread of their own: each takes up to seconds, and none can be imported again
#: once its import was broken off.
_LARGE = frozenset({"numba", "torch", "jax", "cupy"})
#: Seconds within which a library that is imported says so; waited for once.
_ANSWER = 0.1
#: Seconds that a forked child waits for an import: what its parent's other threads began nobody will end.
CHILD_PATIENCE = 20.0

#: Modules that were seen imported to their end.
_whole: set[str] = set()
#: Imports, and questions whether one has ended, that are under way.
_asked: dict[str, ShieldedCall] = {}
_is_child = False


class ImportDelayedError(MissingDependencyError):
    """A library that cannot be imported now, and may well be later."""


def is_installed(name: str) -> bool:
    """Whether ``name`` could be imported, found without importing it."""
    if name in sys.modules:
        return sys.modules[name] is not None
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def is_loaded(name: str) -> bool:
    """Whether ``name`` is imported, to its end. Never waits for an import that is under way."""
    if sys.modules.get(name) is None:
        return False
    if name in _whole or name not in _LARGE:
        return True
    new = name not in _asked
    try:
        asked = _ask(name, awaited=False)
    except RuntimeError:  # no thread can be started; whoever uses it waits for its import
        return True
    return asked.wait(_ANSWER if new else 0.0) and name in _whole


def is_importing(name: str) -> bool:
    """Whether the import of ``name`` is under way, in whatever thread."""
    asked = _asked.get(name)
    return (asked is not None and not asked.ended) or (sys.modules.get(name) is not None and not is_loaded(name))


def count_loaded() -> int:
    """A number that changes when a library was found imported that was not before."""
    return len(_whole)


def import_optional(name: str) -> ModuleType:
    """Import ``name``, or raise :class:`MissingDependencyError` that says how to get it.

    In a forked child :class:`ImportDelayedError` is raised where the import takes too long.
    """
    if name in _whole and (known := sys.modules.get(name)) is not None:
        return known
    try:
        return import_whole(name) if name in _LARGE else importlib.import_module(name)
    except ModuleNotFoundError as error:
        root = name.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != root:
            raise  # the library is there, something it needs is not: that error says more than ours
        extra = EXTRAS.get(root, root)
        raise MissingDependencyError(
            f"{root!r} is not installed; install it with: pip install 'hpfracc[{extra}]'", name=root
        ) from error


def import_whole(name: str) -> ModuleType:
    """Import ``name``, out of the reach of interrupts, and in a forked child for some seconds at most."""
    if not _is_child and threading.current_thread() is not threading.main_thread():
        return _import(name)  # no interrupt comes here, and whoever imports it will end
    try:
        asked = _ask(name, awaited=not _is_child)
    except RuntimeError:  # no thread can be started
        return _import(name)
    if not asked.wait(CHILD_PATIENCE if _is_child else float("inf")):
        raise ImportDelayedError(
            f"{name!r} could not be imported within {CHILD_PATIENCE:g} s; this process was forked, maybe while another "
            f"thread of its parent was importing it: import {name} before forking, or start processes by 'spawn'",
            name=name,
        )
    module: ModuleType = asked.result()
    return module


def _ask(name: str, *, awaited: bool) -> ShieldedCall:
    """The import of ``name`` that is under way, begun if there is none."""
    asked = _asked.get(name)
    if asked is None or asked.ended:
        asked = _asked[name] = ShieldedCall(partial(_import, name), awaited=awaited)
    return asked


def _import(name: str) -> ModuleType:
    module = importlib.import_module(name)
    if name in _LARGE:
        _whole.add(name)
    return module


def _after_fork() -> None:
    global _is_child
    _is_child = True
    _asked.clear()  # those threads are not here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
