"""One array namespace: functions of NumPy, PyTorch, JAX and CuPy under NumPy's names.

Mathematics that runs in several libraries takes a :class:`Namespace` as its argument ``xp``. :func:`namespace` gives
that of a library and :func:`array_namespace` that of an array. :func:`namespace_of` gives that for weights that depend
on a value: PyTorch's or JAX's for their arrays, NumPy's for all others, CuPy's included. Nothing is imported: the
library of an existing array is in ``sys.modules``.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc._arrays import dtype_name, library_of
from hpfracc._xp.base import NUMPY, CuPyNamespace, Namespace

__all__ = [
    "NUMPY", "Namespace", "array_namespace", "convert_like", "namespace", "namespace_of", "of_variables", "user_scope",
]  # fmt: skip

#: Namespace of each type of array, except for PyTorch, whose namespace depends on the device.
_NAMESPACE_OF_TYPE: dict[type, Namespace] = {np.ndarray: NUMPY}


@functools.lru_cache(maxsize=64)
def namespace(library: str, device: Any = None) -> Namespace:
    """The namespace of a library that is already imported."""
    if library == "torch":
        from hpfracc._xp.torch import TorchNamespace

        return TorchNamespace(library, device)
    if library == "jax":
        from hpfracc._xp.jax import JAXNamespace

        return JAXNamespace(library, device)
    return NUMPY if library == "numpy" else CuPyNamespace(library, device)


def namespace_of(value: Any) -> Namespace:
    """Namespace for weights that depend on ``value``: that of its library if it may carry a derivative."""
    library = library_of(value)
    if library == "torch":
        return namespace("torch", value.device)
    return namespace("jax") if library == "jax" else NUMPY


def array_namespace(array: Any) -> Namespace:
    """Namespace of the array's own library, and of its device for PyTorch; NumPy's for numbers and sequences."""
    kind = type(array)
    known = _NAMESPACE_OF_TYPE.get(kind)
    if known is None:
        library = library_of(array)
        if library == "torch":
            return namespace("torch", array.device)
        known = _NAMESPACE_OF_TYPE[kind] = NUMPY if library == "python" else namespace(library)
    return known


def convert_like(values: Any, like: Any) -> Any:
    """Convert real numbers to the library, device and precision of ``like``."""
    xp, name = array_namespace(like), dtype_name(like)
    real = {"complex64": "float32", "complex128": "float64"}.get(name, name)
    return xp.astype(xp.asarray(values, like), real, like)


def of_variables(xp: Namespace, make: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``make``, which computes arrays from scalars, so that JAX can differentiate it with x64 disabled.

    Functions of other libraries are returned unchanged.
    """
    if xp.library != "jax":
        return make
    from hpfracc._xp.jax import of_jax_variables

    return of_jax_variables(xp, make)


def user_scope() -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """A context that restores JAX's current precision, for user code that is called inside our ``scope``."""
    jax = sys.modules.get("jax")
    if jax is None:
        return contextlib.nullcontext
    wide = bool(jax.config.jax_enable_x64)
    return lambda: jax.enable_x64(wide)
