"""Compiled functions of the user as the kernels take them.

A kernel takes a function as a value, so that it is compiled and kept on disk once for all functions. Numba has function
types for that, but unboxes them in Python code at each call of a kernel, in which an interrupt becomes another error.
So a function is unboxed once, into a structure that kernels take by reference. In ``benchmarks/compiled_calls.py``,
whole solves take 1 to 7 % longer than if the function is called by its address with addresses of arrays; unboxed at
each call of a kernel, they take 25 to 69 % longer.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from numba import types
from numba.experimental import structref

from hpfracc.solvers.ode.compiled.kernels import compile_kernel

__all__ = ["FunctionReference", "refer"]


# Kernels on disk name this class: once it has another name or place, Numba raises an error when it reads them.
@structref.register
class _FunctionReferenceType(types.StructRef):
    """Numba's type of :class:`FunctionReference`."""


class FunctionReference(structref.StructRefProxy):
    """A function compiled with ``numba.cfunc``, which kernels find in the field ``evaluate``."""

    __slots__ = ("function",)  # keeps the code alive
    # Like Numba's property, but not in Python code: an interrupt there is lost.
    _numba_type_ = property(attrgetter("_type"))


structref.define_proxy(FunctionReference, _FunctionReferenceType, ["evaluate"])


@compile_kernel
def _refer(function: Any) -> Any:
    return FunctionReference(function)


def refer(function: Any) -> FunctionReference:
    """A reference to a function compiled with ``numba.cfunc``."""
    found: FunctionReference = _refer(function)
    found.function = function
    return found
