"""The user's functions compiled by Numba: from source that was read, or directly if requested."""

from __future__ import annotations

import functools
import itertools
import math
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types
from numba.extending import is_jitted

from hpfracc._interrupts import run_shielded
from hpfracc.engine.backends.registry import describe_failure
from hpfracc.solvers.ode.compiled import NotCompiledError, call_kernel
from hpfracc.solvers.ode.compiled.kernels import FunctionReference, call, refer
from hpfracc.solvers.ode.compiled.reading import BoundSource
from hpfracc.solvers.ode.compiled.tracing import MATH
from hpfracc.solvers.tensors.programs import same_surroundings, surroundings

Array = np.ndarray[Any, Any]

#: Largest deviation of a compiled function, relative to its largest component, due to another order of operations.
_AGREES = 1e-9
#: Most functions that are compiled in a process unless that was requested: Numba never frees code, so each of them
#: takes 0.42 MB (two components, Numba 0.68) until the process ends.
_MAX_COMPILED = 512


class CompiledFunction(NamedTuple):
    """A compiled ``f(t, y, out, parameters)`` for the kernels.

    Attributes
    ----------
    reference : FunctionReference
        What the kernels take.
    parameters : array
        Numbers that it reads at each call, followed by a 0, so that the array is never empty.
    bound : BoundSource or None
        The source it was compiled from; None if it was compiled directly.
    fresh : bool
        Whether it was compiled just now, and not found in the cache.
    """

    reference: FunctionReference
    parameters: Array
    bound: BoundSource | None = None
    fresh: bool = True

    def unchanged(self) -> bool:
        """Whether all captured values of a function that was read are unchanged."""
        return self.bound is None or self.bound.unchanged()

    def __call__(self, t: float, y: Array, shape: tuple[int, ...]) -> Array:
        """The value at one point, of ``shape``."""
        out = np.empty(math.prod(shape), y.dtype)
        call_kernel(call, y.dtype.kind, self.reference, t, np.array(y).reshape(-1), out, self.parameters)
        return out.reshape(shape)


#: Functions of ``math`` that the source of a right-hand side may use.
MATHEMATICS = {name: getattr(math, name) for name in (*MATH, "isfinite")}
_SCOPE: dict[str, Any] = {
    **MATHEMATICS,
    **{name: getattr(np, name) for name in ("nan", "inf", "fmod", "floor", "ceil", "trunc", "rint")},
}

#: By source and sizes. Never dropped, because the code stays in memory anyway, and compiling it again takes more.
_read: dict[tuple[str, int, int, int], FunctionReference] = {}
#: Functions compiled directly, by everything they depend on; dropped together with the function.
_given: weakref.WeakKeyDictionary[Any, dict[Any, tuple[FunctionReference, Any]]] = weakref.WeakKeyDictionary()


@functools.cache
def _signature(kind: str) -> Any:
    state = types.Array(types.complex128 if kind == "c" else types.float64, 1, "C")
    return types.void(types.float64, state, state, types.Array(types.float64, 1, "C"))


def compile_bound(
    bound: BoundSource, shape: tuple[int, ...], out_shape: tuple[int, ...], *, must: bool = True
) -> CompiledFunction:
    """Compile a function that was read, for a state of ``shape``; a new one only if it ``must`` or there are few."""
    parameters = np.array([*bound.parameters, 0.0])
    key = (bound.source, math.prod(shape), math.prod(out_shape), parameters.size)
    fresh = key not in _read
    if fresh:
        if not must and len(_read) >= _MAX_COMPILED:
            raise NotCompiledError(
                f"{len(_read)} functions were compiled in this process, and Numba never frees their memory; "
                "compile=True compiles more of them"
            )
        _read[key] = _compile_source(bound.source)
    return CompiledFunction(_read[key], parameters, bound, fresh)


def _compile_source(source: str) -> FunctionReference:
    lines = ["def call(t, y, out, p):", *function_lines(source, ("out[:] = nan", "return"))]
    # Divisions by zero give infinities, as in NumPy; where Python would raise, the source bails out.
    return _numba_compile(lines, dict(_SCOPE), "f", error_model="numpy")


def function_lines(source: str, bail: tuple[str, ...]) -> list[str]:
    """The body of a function that was read, indented; ``bail`` replaces the parts that are left to Python."""
    lines = []
    for line in source.splitlines():
        text = line.lstrip()
        margin = "    " + line[: len(line) - len(text)]
        lines += [margin + each for each in bail] if text == "bail" else [margin + text]
    return lines


def compile_as_given(
    fun: Callable[..., Any], args: tuple[Any, ...], t: float, y: Array, out_shape: tuple[int, ...]
) -> CompiledFunction:
    """Compile ``fun(t, y, *args)`` directly; plain floats in ``args`` stay variable, everything else is a constant.

    The function is called once at ``(t, y)`` to see whether it returns an array or a list.
    """
    listed = not isinstance(fun(t, y.copy(), *args), np.ndarray)
    parameters = np.array([*(each for each in args if isinstance(each, float)), 0.0])
    around = surroundings(fun, *(each for each in args if not isinstance(each, float)))
    key = (tuple(isinstance(each, float) for each in args), y.shape, out_shape, y.dtype, listed)
    try:
        known = _given.setdefault(fun, {})
    except TypeError:  # no weak references: compiled each time
        known = {}
    found = known.get(key)
    if found is not None and same_surroundings(found[1], around):
        return CompiledFunction(found[0], parameters, fresh=False)
    compiled = _build(fun, args, y, out_shape, listed)
    known[key] = (compiled, around)
    return CompiledFunction(compiled, parameters)


def _build(
    fun: Callable[..., Any], args: tuple[Any, ...], y: Array, out_shape: tuple[int, ...], listed: bool
) -> FunctionReference:
    if is_jitted(fun):
        inner = fun
    elif isinstance(fun, FunctionType):
        # Without the check a wrong index reads arbitrary memory, where Python raises an error.
        inner = numba.njit(boundscheck=True)(fun)
    else:
        raise NotCompiledError(f"Numba compiles plain functions, and this is a {type(fun).__name__}")
    scope: dict[str, Any] = {"array": np.array, "nan": np.nan, "inner": inner, "shape": y.shape, "out_shape": out_shape}
    scope |= {f"fixed_{n}": each for n, each in enumerate(args) if not isinstance(each, float)}
    terms, reals = ["t", "y" if y.ndim == 1 else "y.reshape(shape)"], itertools.count()
    terms += [f"parameters[{next(reals)}]" if isinstance(each, float) else f"fixed_{n}" for n, each in enumerate(args)]
    called = f"inner({', '.join(terms)})"
    lines = [
        "def call(t, y, out, parameters):",
        "    try:",
        f"        value = array({called})" if listed else f"        value = {called}",
        "        if value.shape != out_shape:",
        "            raise ValueError",
        "        for i, each in enumerate(value.flat):",  # compiles faster than an assignment
        "            out[i] = each",
        # An exception cannot leave a C callback. Non-finite values are evaluated again in Python, where it can.
        "    except Exception:",
        "        out[:] = nan",
    ]
    return _numba_compile(lines, scope, y.dtype.kind)


def _numba_compile(lines: list[str], scope: dict[str, Any], kind: str, **options: Any) -> FunctionReference:
    """The function ``call`` with this text and these globals."""
    exec(compile("\n".join(lines), "<hpfracc right-hand side>", "exec"), scope)
    try:
        return run_shielded(lambda: refer(numba.cfunc(_signature(kind), **options)(scope["call"])))
    except Exception as error:  # anything that Numba or its parts may raise
        raise NotCompiledError(describe_failure(error)) from error


def compare(fun: CompiledFunction, expected: Array, t: float, y: Array) -> None:
    """Raise :class:`NotCompiledError` if a compiled function differs at a point from the value of the given one."""
    found = fun(t, y, expected.shape)
    if ((found == expected) | (np.isnan(found) & np.isnan(expected))).all():
        return
    worst = float(np.max(np.abs(found - expected)))
    if not worst <= _AGREES * float(np.max(np.abs(expected))):
        raise NotCompiledError(f"compiled, it differs by {worst:.3g} from the function as given at t={t:g}")
