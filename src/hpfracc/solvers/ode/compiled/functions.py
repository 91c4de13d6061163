"""The user's functions as pointers: compiled by Numba, or called back into Python."""

from __future__ import annotations

import ctypes
import functools
import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numba
import numba.experimental.function_type  # teaches Numba to take pointers as arguments
import numpy as np
from numba import types

from hpfracc.solvers.ode._surroundings import same_surroundings, surroundings
from hpfracc.solvers.ode.compiled.kernels import call

__all__ = ["CallBack", "CompiledFunction", "NotCompiledError", "compare", "compile_function"]

Array = np.ndarray[Any, Any]

#: A compiled function may differ by this much, relative to its largest component: other order of operations.
_AGREES = 1e-9


class NotCompiledError(Exception):
    """Numba cannot compile it; the message says why, in one line."""


@dataclass(frozen=True, slots=True, eq=False)
class CompiledFunction:
    """A pointer for the kernels, and the numbers among the further arguments, which it reads at each call.

    A 0 follows them: there is always something for the kernels to point at.

    ``fresh``: whether it was compiled just now, and not found where it was kept.
    """

    pointer: Any
    parameters: Array
    fresh: bool = True

    def __call__(self, t: float, y: Array, shape: tuple[int, ...]) -> Array:
        """The value at one point, of ``shape``."""
        out = np.empty(math.prod(shape), y.dtype)
        call(self.pointer, t, np.array(y).reshape(-1), out, self.parameters)
        return out.reshape(shape)


#: Compiled pointers of each function, by what they depend on; gone with the function.
_compiled: weakref.WeakKeyDictionary[Any, dict[Any, tuple[Any, tuple[Any, ...] | None]]] = weakref.WeakKeyDictionary()


@functools.cache
def _signature(kind: str) -> Any:
    pointer = types.CPointer(types.complex128 if kind == "c" else types.float64)
    return types.void(types.float64, pointer, pointer, types.CPointer(types.float64))


@functools.cache
def _function_type(kind: str) -> Any:
    """The type of such a pointer. Numba finds it out at every call of a kernel, which takes 9 us, unless it is told."""
    return types.FunctionType(_signature(kind))


def compile_function(
    fun: Callable[..., Any], args: tuple[Any, ...], t: float, y: Array, out_shape: tuple[int, ...]
) -> CompiledFunction:
    """``fun(t, y, *args)`` compiled; plain floats among ``args`` stay changeable, everything else is built in.

    It is called once at ``(t, y)`` as it is, to see whether it gives an array or a list.
    """
    shape, dtype = y.shape, y.dtype
    listed = not isinstance(fun(t, y, *args), np.ndarray)
    numbers = tuple(isinstance(each, float) for each in args)
    parameters = np.array([*(each for each, is_number in zip(args, numbers, strict=True) if is_number), 0.0])
    fixed = tuple(each for each, is_number in zip(args, numbers, strict=True) if not is_number)
    around = surroundings(fun, *fixed)
    key = (numbers, shape, out_shape, dtype, listed)
    try:
        known = _compiled.setdefault(fun, {})
    except TypeError:  # cannot be referred to weakly: compiled each time
        known = {}
    found = known.get(key)
    if found is not None and same_surroundings(found[1], around):
        return CompiledFunction(found[0], parameters, fresh=False)
    pointer = _build(fun, (numbers, fixed), (shape, out_shape), dtype, listed)
    known[key] = (pointer, around)
    return CompiledFunction(pointer, parameters)


def _build(
    fun: Callable[..., Any],
    arguments: tuple[tuple[bool, ...], tuple[Any, ...]],
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    dtype: Any,
    listed: bool,
) -> Any:
    numbers, fixed = arguments
    if isinstance(fun, numba.core.dispatcher.Dispatcher):
        inner = fun
    elif isinstance(fun, FunctionType):
        # Without the check a wrong index reads whatever lies there, where Python raises.
        inner = numba.njit(boundscheck=True)(fun)
    else:
        raise NotCompiledError(f"Numba compiles plain functions, and this is a {type(fun).__name__}")
    terms: list[str] = []
    constants: dict[str, Any] = {}
    reals = 0
    for is_number in numbers:
        if is_number:
            terms.append(f"parameters[{reals}]")
            reals += 1
        else:
            name = f"fixed_{len(constants)}"
            constants[name] = fixed[len(constants)]
            terms.append(name)
    wrapped = "array(inner({}))" if listed else "inner({})"
    source = "\n".join(
        (
            "def call(t, y_pointer, out_pointer, parameter_pointer):",
            "    y = carray(y_pointer, shape)",
            "    out = carray(out_pointer, out_shape)",
            "    parameters = carray(parameter_pointer, (count,))",
            "    try:",
            f"        out[...] = {wrapped.format(', '.join(('t', 'y', *terms)))}",
            # An exception cannot leave a pointer. What is not finite is looked at again in Python, where it can.
            "    except Exception:",
            "        out[...] = nan",
        )
    )
    scope: dict[str, Any] = {
        "carray": numba.carray,
        "array": np.array,
        "nan": np.nan,
        "inner": inner,
        "shape": shapes[0],
        "out_shape": shapes[1],
        "count": max(1, reals),
        **constants,
    }
    exec(compile(source, "<hpfracc right-hand side>", "exec"), scope)
    try:
        pointer = numba.cfunc(_signature(np.dtype(dtype).kind))(scope["call"])
    except Exception as error:  # whatever Numba raises: its own errors, or those of its parts
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise NotCompiledError(f"{type(error).__name__}: {lines[0][:160] if lines else 'no reason given'}") from error
    # Told once: at every call of a kernel Numba would look up the type and compare signatures.
    pointer._numba_type_ = _function_type(np.dtype(dtype).kind)
    address = pointer.address
    pointer.__wrapper_address__ = lambda: address
    return pointer


def compare(fun: CompiledFunction, expected: Array, t: float, y: Array) -> None:
    """Raise :class:`NotCompiledError` where a compiled function differs at a point from what the given one returned."""
    found = fun(t, y, expected.shape)
    if ((found == expected) | (np.isnan(found) & np.isnan(expected))).all():
        return
    worst = float(np.max(np.abs(found - expected)))
    if not worst <= _AGREES * float(np.max(np.abs(expected))):
        raise NotCompiledError(f"compiled, it differs by {worst:.3g} from the function as given at t={t:g}")


class CallBack(types.WrapperAddressProtocol):
    """A Python function of t as a pointer: it reads from and writes to arrays that the kernel uses as scratch.

    ``make(fail)`` makes it. An exception cannot pass through compiled code: it is handed to ``fail`` and kept in
    ``error``, and ``flag`` tells the kernel to end.
    """

    def __init__(self, make: Callable[[Callable[[BaseException], None]], Any], dtype: Any, flag: Array) -> None:
        self.error: BaseException | None = None
        kind = np.dtype(dtype).kind
        self._signature, self._numba_type_ = _signature(kind), _function_type(kind)

        def fail(error: BaseException) -> None:
            self.error = error
            flag[0] = 1

        # The kernel passes three pointers after t. The arrays they point to are known here, so they are not even looked
        # at: arguments travel in registers or are removed by the caller, and to turn each into an object takes 0.1 us.
        # Kept with this object: the address is good for as long as the pointer lives.
        self._pointer = ctypes.PYFUNCTYPE(None, ctypes.c_double)(make(fail))
        self.address = ctypes.cast(self._pointer, ctypes.c_void_p).value

    def check(self) -> None:
        """Raise what the function raised."""
        if self.error is not None:
            raise self.error

    def __wrapper_address__(self) -> Any:
        return self.address

    def signature(self) -> Any:
        """What Numba has to know of it."""
        return self._signature
