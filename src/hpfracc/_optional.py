"""Import a library that may be missing, or name the extra that brings it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType

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


def is_installed(name: str) -> bool:
    """Whether ``name`` could be imported, found without importing it."""
    if name in sys.modules:
        return sys.modules[name] is not None
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def import_optional(name: str) -> ModuleType:
    """Import ``name``, or raise :class:`MissingDependencyError` that says how to get it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        root = name.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != root:
            raise  # the library is there, something it needs is not: that error says more than ours
        extra = EXTRAS.get(root, root)
        raise MissingDependencyError(
            f"{root!r} is not installed; install it with: pip install 'hpfracc[{extra}]'", name=root
        ) from error
