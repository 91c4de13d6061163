"""Functions that compute in double precision, differentiable and mappable for any precision setting of JAX.

JAX runs the backward pass of a function long after a kernel's ``enable_x64`` scope has ended. With x64 off it then
combines single precision zeros with double precision values, which is an error. So such a kernel is a separate JAX
primitive, and its derivative, transpose and batched form run in its own precision.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir


def call_wide(function: Callable[..., Any], arrays: Sequence[Any], options: tuple[Hashable, ...]) -> Any:
    """``function(*arrays, *options)``, one array, run with x64 on: now, and in every derivative of it.

    ``function`` must be the same object in every call. Linearity need not be declared.
    """
    with jax.enable_x64(True):
        if not any(isinstance(array, jax.core.Tracer) for array in arrays):
            return function(*arrays, *options)
        return _wide.bind(*arrays, run=_Plain(function, options))[0]


@dataclass(frozen=True)
class _Plain:
    """The function itself. These classes are compared by value, so that JAX compiles each once."""

    function: Callable[..., Any]
    options: tuple[Hashable, ...]

    def __call__(self, *arrays: Any) -> list[Any]:
        return [self.function(*arrays, *self.options)]


@dataclass(frozen=True)
class _Tangent:
    """The derivative along tangents, which follow the arrays, for the arrays marked by ``moves``."""

    run: Callable[..., list[Any]]
    moves: tuple[bool, ...]

    def split(self, arrays: Sequence[Any]) -> tuple[Callable[..., list[Any]], list[Any], list[Any]]:
        """The function of the moving arrays only, these arrays, and their tangents."""
        fixed, tangents = arrays[: len(self.moves)], list(arrays[len(self.moves) :])
        moving = [array for array, moves in zip(fixed, self.moves, strict=True) if moves]
        return partial(_filled, self.run, fixed, self.moves), moving, tangents

    def __call__(self, *arrays: Any) -> list[Any]:
        function, moving, tangents = self.split(arrays)
        return list(jax.jvp(function, moving, tangents)[1])


@dataclass(frozen=True)
class _Transpose:
    """The transpose in the arrays marked by ``linear``, of these shapes and dtypes; cotangents follow the others."""

    run: Callable[..., list[Any]]
    linear: tuple[bool, ...]
    kinds: tuple[tuple[tuple[int, ...], Any], ...]

    def __call__(self, *arrays: Any) -> list[Any]:
        known, cotangents = list(arrays[: self.linear.count(False)]), list(arrays[self.linear.count(False) :])
        run = self.run
        if isinstance(run, _Tangent) and self.linear == (False,) * len(run.moves) + (True,) * run.moves.count(True):
            function, moving, _ = run.split(known)
            return list(jax.vjp(function, *moving)[1](cotangents))
        rest = iter(known)
        full = [None if linear else next(rest) for linear in self.linear]
        shapes = [jax.ShapeDtypeStruct(*kind) for kind in self.kinds]
        return list(jax.linear_transpose(partial(_filled, run, full, self.linear), *shapes)(cotangents))


@dataclass(frozen=True)
class _Mapped:
    """The function mapped over one axis of each array; it is the first axis of the results."""

    run: Callable[..., list[Any]]
    axes: tuple[int | None, ...]

    def __call__(self, *arrays: Any) -> list[Any]:
        return list(jax.vmap(self.run, in_axes=self.axes)(*arrays))


def _filled(run: Callable[..., list[Any]], fixed: Sequence[Any], moves: tuple[bool, ...], *moving: Any) -> list[Any]:
    """``run`` with the moving arrays inserted among the fixed ones."""
    rest = iter(moving)
    return run(*(next(rest) if moved else array for array, moved in zip(fixed, moves, strict=True)))


_wide = Primitive("hpfracc_wide")
_wide.multiple_results = True


def _evaluate(*arrays: Any, run: Callable[..., list[Any]]) -> list[Any]:
    with jax.enable_x64(True):
        return run(*arrays)


@partial(jax.jit, static_argnums=0)
def _compiled(run: Callable[..., list[Any]], *arrays: Any) -> list[Any]:
    return _evaluate(*arrays, run=run)


@_wide.def_impl
def _now(*arrays: Any, run: Callable[..., list[Any]]) -> list[Any]:
    with jax.enable_x64(True):
        return _compiled(run, *arrays)


@_wide.def_abstract_eval
def _shapes(*arrays: Any, run: Callable[..., list[Any]]) -> list[Any]:
    with jax.enable_x64(True):
        found = jax.eval_shape(run, *(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays))
    return [jax.core.ShapedArray(one.shape, one.dtype) for one in found]


def _differentiate(primals: Any, tangents: Any, *, run: Callable[..., list[Any]]) -> tuple[Any, Any]:
    moves = tuple(not isinstance(tangent, ad.Zero) for tangent in tangents)
    changes = [tangent for tangent, moved in zip(tangents, moves, strict=True) if moved]
    value = _wide.bind(*primals, run=run)
    return value, _wide.bind(*primals, *changes, run=_Tangent(run, moves))


def _transpose(cotangents: Any, *arrays: Any, run: Callable[..., list[Any]]) -> list[Any]:
    linear = tuple(ad.is_undefined_primal(array) for array in arrays)
    kinds = tuple((array.aval.shape, array.aval.dtype) for array in arrays if ad.is_undefined_primal(array))
    known = [array for array in arrays if not ad.is_undefined_primal(array)]
    with jax.enable_x64(True):
        given = [ad.instantiate_zeros(cotangent) for cotangent in cotangents]
        found = iter(_wide.bind(*known, *given, run=_Transpose(run, linear, kinds)))
    return [next(found) if one else None for one in linear]


def _map(arrays: Any, axes: Any, *, run: Callable[..., list[Any]]) -> tuple[list[Any], list[int]]:
    found = _wide.bind(*arrays, run=_Mapped(run, tuple(axes)))
    return found, [0] * len(found)


ad.primitive_jvps[_wide] = _differentiate
ad.primitive_transposes[_wide] = _transpose
batching.primitive_batchers[_wide] = _map
mlir.register_lowering(_wide, mlir.lower_fun(_evaluate, multiple_results=True))
