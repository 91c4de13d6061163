"""Layers on graphs, for PyTorch and JAX: functions of the Laplacian, by its decomposition or the Lanczos method."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array, diags_array, issparse

from hpfracc import _reading
from hpfracc._arrays import dtype_name, is_transformed
from hpfracc._xp import Namespace, array_namespace, namespace_of
from hpfracc.errors import InvalidInputError, ShapeError, SolveError
from hpfracc.ml.config import OrderLike
from hpfracc.ml.operator_layers import OPERATIONS, OperatorLayer
from hpfracc.special import mittag_leffler

__all__ = ["DiffusionLayer", "PowerLayer", "times_functions"]

#: Largest number of nodes for which the Laplacian is decomposed.
_DENSE = 2048
#: Spacing of numbers at 1, of dtypes below double precision.
_SPACING = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


class _GraphLayer(OperatorLayer):
    """A function of the Laplacian, whose constants are its decomposition, or itself for the Lanczos method."""

    def _prepare(self, laplacian: Any, method: str, symmetric_only: bool, **fields: Any) -> None:
        given = self._read_matrix(laplacian)
        sparse = issparse(given)
        values = _reading.numbers("laplacian", given.tocsr().data if sparse else given)
        matrix: Any = csr_array(given).astype(np.float64) if sparse else values
        rounding = _SPACING.get(dtype_name(laplacian), 2.0**-52)
        if matrix.ndim != 2 or not matrix.shape[0] == matrix.shape[1] > 0:
            raise ShapeError(f"a Laplacian of shape {matrix.shape}; give one row and column for each node")
        _reading.choice("method", method, ("auto", "eigen", "lanczos"))
        if method == "auto":
            method = "eigen" if matrix.shape[0] <= _DENSE else "lanczos"
        size = abs(matrix).max()
        symmetric = bool(abs(matrix - matrix.T).max() <= max(1e-12, 4.0 * rounding) * size)
        if not symmetric and (symmetric_only or method == "lanczos"):
            raise InvalidInputError(
                "the Laplacian is not symmetric; use that of an undirected graph, or LaplacianPower with method='eigen'"
            )
        matrix = 0.5 * (matrix + matrix.T) if symmetric else matrix
        rest = matrix.sum(1)
        if abs(rest).max() <= 8.0 * rounding * size:  # D - A, in which only the sums of D were rounded
            matrix, rounding = matrix - (diags_array(rest, format="csr") if sparse else np.diag(rest)), 0.0
        full = matrix.toarray() if sparse and method == "eigen" else matrix
        constants = {"matrix": full} if method == "lanczos" else _decomposed(full, symmetric, rounding)
        zero = max(1e-13, 2.0 * rounding)
        self._assign(constants, laplacian, nodes=int(matrix.shape[0]), method=method, zero=zero, **fields)

    def _function(self, kind: str, x: Any, most: float, *options: Any) -> Any:
        x, order = self._samples(x), self.order()
        if isinstance(order, float) and not 0.0 < order <= most:
            raise InvalidInputError(f"the order {order:g} is outside the range above 0, up to {most:g}; use one there")
        if x.ndim < 2 or x.shape[-2] != self.nodes:
            raise ShapeError(f"features of shape {tuple(x.shape)} for {self.nodes} nodes; give (..., nodes, features)")
        return self._operate(kind, x, self.method, *options)


class DiffusionLayer(_GraphLayer):
    """Diffusion with memory."""

    def __init__(self, laplacian: Any, beta: OrderLike = 0.5, t: float = 1.0, *, method: str = "auto") -> None:
        order = self._single_order(beta, "fractional diffusion")
        self._prepare(laplacian, method, True, order=order, t=_reading.number("t", t, above=0))

    def forward(self, x: Any) -> Any:
        """Features after the diffusion, of shape (..., nodes, features)."""
        return self._function("diffusion", x, 1.0, self.t)


class PowerLayer(_GraphLayer):
    """A fractional power of the Laplacian."""

    def __init__(self, laplacian: Any, alpha: OrderLike = 0.5, *, method: str = "auto") -> None:
        self._prepare(laplacian, method, False, order=self._single_order(alpha, "a power of the Laplacian"))

    def forward(self, x: Any) -> Any:
        """Features of shape (..., nodes, features)."""
        return self._function("power", x, math.inf, self.zero)


def _decomposed(full: Any, symmetric: bool, rounding: float) -> dict[str, Any]:
    if symmetric:
        values, left = np.linalg.eigh(full)
        if values[0] < -max(1e-10, 8.0 * rounding) * np.abs(values).max():
            raise InvalidInputError(
                f"the Laplacian has the eigenvalue {values[0]:g}; no graph has one below 0: use D - A"
            )
        right = left
    else:
        left, values, turned = np.linalg.svd(full)
        right = turned.T
    return {"left": left, "right": right, "values": np.maximum(values, 0.0)}


@dataclass(frozen=True)
class _Decay:
    """The decay of modes with the eigenvalues ``values``."""

    t: float

    def __call__(self, values: Any, beta: Any) -> Any:
        return mittag_leffler(-values * self.t**beta, beta)


@dataclass(frozen=True)
class _Power:
    """A power of eigenvalues; those below ``zero`` times the largest are 0 up to rounding, and have no logarithm."""

    zero: float

    def __call__(self, values: Any, alpha: Any) -> Any:
        xp = namespace_of(values)
        still = values <= self.zero * xp.amax(values, -1)[..., None]
        return xp.where(still, 0.0, xp.exp(alpha * xp.log(xp.where(still, 1.0, values))))


def _apply(f: Any, arrays: list[Any], alpha: Any, method: str) -> Any:
    """``f(L, alpha) x`` for features of shape (..., nodes, features), in the library's widest precision."""
    x, *graph = arrays
    xp = array_namespace(x)
    torch = xp.library == "torch"
    if xp.is_complex(x):  # L is real: real and imaginary parts are features of their own
        found = _apply(f, [xp.concatenate([x.real, x.imag], -1), *graph], alpha, method)
        count = x.shape[-1]
        return xp.complex(found[..., :count], found[..., count:])
    wide = xp.module.float64 if torch else xp.module.result_type(float)
    # Integers would be rounded.
    kind = x.dtype if "float" in str(x.dtype) else xp.module.get_default_dtype() if torch else wide
    x = xp.astype(x, wide)
    nodes = x.shape[-2]
    # The buffers of a layer that was cast to half precision are not in double precision.
    graph = [xp.astype(each, wide) if "float" in str(each.dtype) else each for each in map(xp.asarray, graph)]
    if method == "eigen":
        left, right, values = graph
        factors = xp.astype(f(values, alpha), wide)
        found = xp.matmul(left, factors[:, None] * xp.matmul(right.T, x))
    else:
        rows = xp.moveaxis(x, -2, -1).reshape(-1, nodes)
        layers = importlib.import_module(f"hpfracc.ml.{xp.library}.layers")
        found = layers.times_function(f, tuple(graph), rows, alpha)
        if not is_transformed(found) and not bool(xp.isfinite(found).all()) and bool(xp.isfinite(rows).all()):
            raise SolveError(
                f"the Lanczos method did not reach its tolerance within 600 vectors of {nodes} nodes, or the Laplacian "
                "has negative eigenvalues; use D - A, a shorter time or a larger order, or method='eigen'"
            )
        found = xp.moveaxis(found.reshape(*x.shape[:-2], x.shape[-1], nodes), -1, -2)
    return xp.astype(found, kind)


def _diffuse(arrays: list[Any], beta: Any, ceiling: int | None, _: None, method: str, t: float) -> Any:
    return _apply(_Decay(t), arrays, beta, method)


def _raise(arrays: list[Any], alpha: Any, ceiling: int | None, _: None, method: str, zero: float) -> Any:
    return _apply(_Power(zero), arrays, alpha, method)


OPERATIONS |= {"diffusion": _diffuse, "power": _raise}


# -- the Lanczos method -----------------------------------------------------------------------------------------------
# Each vector gets an orthonormal basis Q of its Krylov space, in which L is tridiagonal, and f(L) x = |x| Q f(T) e_1 up
# to an error that falls with the number of vectors, which grows until the result converges: 24, 48, 96, ... to 600.

#: Most vectors of a basis, and as many as there are at first.
_MOST, _FIRST = 600, 24
#: Largest size of the bases in bytes; further rows come later.
_WORKSPACE = 1 << 30


def times_functions(
    xp: Namespace, times: Callable[[Any], Any], functions: Callable[[Any], list[Any]], x: Any
) -> tuple[Any, ...]:
    """Functions of a symmetric L without negative eigenvalues, times x, each to a relative 1e-10 (1e-5 in float32).

    Parameters
    ----------
    times : callable
        ``L q`` for rows q.
    functions : callable
        Values of the functions at eigenvalues of any shape.
    x : array, shape (rows, nodes)
        The vectors.

    Returns
    -------
    tuple of arrays, shape (rows, nodes)
        nan if 600 vectors do not reach the tolerance, or if L has a negative eigenvalue.
    """
    rows, nodes = x.shape
    if not rows:
        return (x,) * len(functions(x))
    together = max(1, min(rows, _WORKSPACE // (nodes * (min(nodes, _MOST) + 1) * x.dtype.itemsize)))
    solve = partial(_times_together, xp, times, functions)
    if together == rows:
        return solve(x)
    padded = xp.concatenate([x, xp.zeros((-rows % together, nodes), x.dtype, x)]).reshape(-1, together, nodes)
    if xp.library == "jax":
        found = sys.modules["jax"].lax.map(solve, padded)
    else:
        found = [xp.stack(each) for each in zip(*map(solve, padded), strict=True)]
    return tuple(each.reshape(-1, nodes)[:rows] for each in found)


def _times_together(
    xp: Namespace, times: Callable[[Any], Any], functions: Callable[[Any], list[Any]], x: Any
) -> tuple[Any, ...]:
    rows, nodes = x.shape
    most, wide = min(nodes, _MOST), x.dtype.itemsize == 8
    # The rounding is that of a Laplacian in single precision.
    tiny, rtol, rounding = (1e-13, 1e-10, 1e-6) if wide else (1e-6, 1e-5, 1e-4)
    every = slice(None)

    def norm(v: Any) -> Any:
        return xp.sqrt((v * v).sum(-1))

    def product(a: Any, v: Any) -> Any:
        return xp.matmul(a, v[..., None])[..., 0]

    def extend(size: int, carried: Any) -> Any:
        m, basis, diagonal, beside = carried
        q, known = basis[:, m], basis[:, :size]
        v = times(q)
        diagonal = xp.put(diagonal, (every, m), (q * v).sum(-1))
        for _ in range(2):  # two passes are enough to keep the vectors orthogonal
            v = v - product(xp.module.swapaxes(known, 1, 2), product(known, v))
        length = norm(v)
        ended = length <= tiny * xp.amax(abs(diagonal), -1)
        beside = xp.put(beside, (every, m), xp.where(ended, 0.0, length))
        unit = xp.where(ended[:, None], 0.0, v / xp.where(ended, 1.0, length)[:, None])
        return m + 1, xp.put(basis, (every, m + 1), unit), diagonal, beside

    def grow(begin: int, size: int, kept: Any) -> Any:
        """From ``begin`` vectors to ``size``; eigenvalues and eigenvectors of T, with zeros beyond."""
        start = (begin, *kept)
        kept = xp.repeat_while(lambda carried: carried[0] < size, partial(extend, size), start)[1:]
        _, diagonal, beside = kept
        apart = np.arange(size)[:, None] - np.arange(size)
        same, below = (xp.asarray(apart == distance, like=x) for distance in (0, 1))
        edge = xp.where(below, beside[:, None, :size], 0.0)
        whole = xp.where(same, diagonal[:, None, :size], 0.0) + edge + xp.module.swapaxes(edge, 1, 2)
        values, vectors = xp.module.linalg.eigh(whole)
        values = xp.put(xp.zeros((rows, most), x.dtype, x), (every, slice(size)), values)
        return (
            kept,
            values,
            xp.put(xp.zeros((rows, most, most), x.dtype, x), (every, slice(size), slice(size)), vectors),
        )

    def turn(state: Any) -> Any:
        place, kept, *_ = state
        branches = [partial(grow, *each) for each in zip([0, *sizes], sizes, strict=False)]
        kept, values, vectors = _switch(xp, place, branches, kept)
        largest = xp.amax(abs(values), -1)[:, None]
        # Ritz values lie between the eigenvalues of L: a negative one is not a rounding error.
        valid = ~(values < -rounding * largest).any()
        values = xp.where(values <= tiny * largest, 0.0, values)
        shares = [product(vectors, xp.astype(f, x.dtype) * vectors[:, 0]) for f in functions(values)]
        size = xp.asarray(np.array(sizes), like=x)[place]
        last = xp.asarray(np.arange(most), like=x) >= size - 2  # shares beyond the size are 0
        lacking = [(xp.amax(abs(xp.where(last, s, 0.0)), -1) > rtol * xp.amax(abs(s), -1)).any() for s in shares]
        enough = ~xp.stack(lacking).any() | (size >= nodes)
        return place + 1, kept, tuple(shares), enough | ~valid, enough & valid

    length = norm(x)
    first = x / xp.where(length > 0.0, length, 1.0)[:, None]
    empty = xp.zeros((rows, most), x.dtype, x)
    kept = (xp.put(xp.zeros((rows, most + 1, nodes), x.dtype, x), (every, 0), first), empty, 1.0 * empty)
    sizes = [_FIRST << k for k in range(most.bit_length()) if _FIRST << k < most] + [most]
    no = (length < 0.0).any()
    state = (0, kept, (empty,) * len(functions(length)), no, no)
    place, kept, shares, _, valid = xp.repeat_while(lambda each: (each[0] < len(sizes)) & ~each[3], turn, state)

    def combined(size: int, share: Any) -> Any:
        return product(xp.module.swapaxes(kept[0][:, :size], 1, 2), share[:, :size]) * length[:, None]

    found = [_switch(xp, place - 1, [partial(combined, size) for size in sizes], share) for share in shares]
    return tuple(xp.where(valid, each, xp.module.nan) for each in found)


def _switch(xp: Namespace, place: Any, branches: Sequence[Callable[[Any], Any]], state: Any) -> Any:
    if xp.library == "jax":
        return sys.modules["jax"].lax.switch(place, branches, state)
    return branches[place](state)
