r"""Functions of a large symmetric matrix times vectors, by the Lanczos method.

Each column gets an orthonormal basis Q of its Krylov space, in which L is tridiagonal, and
:math:`f(L) x \approx |x|\, Q f(T) e_1`. The number of vectors grows until the result converges: 24, 48, 96, ... to 600.

Derivatives hold for every basis: :math:`f(L)` is linear and symmetric in x, and its derivatives in the order are the
same with :math:`\partial^k f / \partial \alpha^k`. All are functions of L, and can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["Matrix", "apply_matrix_function"]

#: A dense matrix; or values, rows and columns of a sparse one, sorted by rows.
Matrix = tuple[Any, ...]
#: ``f(values, alpha)``, elementwise; hashable, and equal to other functions with the same results.
Function = Callable[[Any, Any], Any]

_MAX, _GROUP = 600, 24
#: Largest total size of the bases in bytes; further columns are processed in later groups.
_WORKSPACE = 1 << 30


def apply_matrix_function(f: Function, matrix: Matrix, x: Any, alpha: Any) -> Any:
    """``f(L, alpha) x`` for a symmetric L without negative eigenvalues, to a relative 1e-10 (1e-5 in single precision).

    Parameters
    ----------
    f : callable
    matrix : tuple of arrays
    x : array, shape (nodes, columns)
    alpha : float or array of no axes
        If it is an array, it can be differentiated to any order in reverse mode.

    Returns
    -------
    array, shape (nodes, columns)
        nan if 600 vectors do not reach the tolerance, or if L has a negative eigenvalue.
    """
    if isinstance(alpha, float):
        return _function(_Fixed(f, alpha), None, matrix, x, jnp.zeros((), x.dtype))
    return _function(f, 0, matrix, x, jnp.asarray(alpha, x.dtype))


class _Fixed:
    """A function whose order is a plain number."""

    def __init__(self, f: Function, alpha: float) -> None:
        self.key = (f, alpha)

    def __call__(self, values: Any, _: Any) -> Any:
        f, alpha = self.key
        return f(values, alpha)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Fixed) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _function(f: Function, degree: int | None, matrix: Matrix, x: Any, alpha: Any) -> Any:
    """The derivative of f of this degree in alpha, of L, times x; without a degree alpha is not differentiated."""
    return _lanczos(f, degree or 0, 1, matrix, x, alpha)[0]


def _function_forward(f: Function, degree: int | None, matrix: Matrix, x: Any, alpha: Any) -> tuple[Any, Any]:
    if degree is None:
        return _function(f, None, matrix, x, alpha), (matrix, alpha, None)
    value, slope = _with_slope(f, degree, matrix, x, alpha)
    return value, (matrix, alpha, slope)


def _function_backward(f: Function, degree: int | None, kept: Any, bar: Any) -> tuple[Any, Any, Any]:
    matrix, alpha, slope = kept
    return None, _function(f, degree, matrix, bar, alpha), None if slope is None else (bar * slope).sum()


_function.defvjp(_function_forward, _function_backward)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _with_slope(f: Function, degree: int, matrix: Matrix, x: Any, alpha: Any) -> tuple[Any, Any]:
    """The derivatives of this degree and the next, from one basis."""
    value, slope = _lanczos(f, degree, 2, matrix, x, alpha)
    return value, slope


def _with_slope_forward(f: Function, degree: int, matrix: Matrix, x: Any, alpha: Any) -> tuple[Any, Any]:
    value, slope = _with_slope(f, degree, matrix, x, alpha)
    return (value, slope), (matrix, x, alpha, slope)


def _with_slope_backward(f: Function, degree: int, kept: Any, bars: tuple[Any, Any]) -> tuple[Any, Any, Any]:
    matrix, x, alpha, slope = kept
    one, two = bars
    back = _function(f, degree, matrix, one, alpha) + _function(f, degree + 1, matrix, two, alpha)
    further = _function(f, degree + 2, matrix, x, alpha)
    return None, back, (one * slope).sum() + (two * further).sum()


_with_slope.defvjp(_with_slope_forward, _with_slope_backward)


def _derivatives(f: Function, degree: int, count: int, values: Any, alpha: Any) -> tuple[Any, ...]:
    """One or two derivatives of f in alpha, ``count`` in number, starting with this degree."""

    def derivative(degree: int) -> Callable[[Any], Any]:
        if degree == 0:
            return lambda a: f(values, a)
        return lambda a: jax.jvp(derivative(degree - 1), (a,), (jnp.ones_like(a),))[1]

    if count == 1:
        return (derivative(degree)(alpha),)
    value, slope = jax.jvp(derivative(degree), (alpha,), (jnp.ones_like(alpha),))
    return value, slope


def _times(matrix: Matrix, q: Any) -> Any:
    """``L q`` for rows q, shape (columns, nodes)."""
    if len(matrix) == 1:
        return jnp.matmul(q, matrix[0], precision="highest")  # L is symmetric
    values, rows, columns = matrix
    products = values[:, None] * q.T[columns]
    return jax.ops.segment_sum(products, rows, q.shape[1], indices_are_sorted=True).T


@partial(jax.jit, static_argnums=(0, 1, 2))
def _lanczos(f: Function, degree: int, count: int, matrix: Matrix, x: Any, alpha: Any) -> tuple[Any, ...]:
    """``count`` functions of L times x, each of the shape of x."""
    nodes, columns = x.shape
    most = min(nodes, _MAX)
    together = max(1, min(columns, _WORKSPACE // (nodes * most * x.dtype.itemsize)))
    groups = -(-columns // together)
    starts = jnp.pad(x.T, ((0, groups * together - columns), (0, 0))).reshape(groups, together, nodes)
    solve = partial(_group, f, degree, count, matrix, alpha)
    found = solve(starts[0])[None] if groups == 1 else lax.map(solve, starts)
    whole = jnp.moveaxis(found, 1, 0).reshape(count, groups * together, nodes)
    return tuple(each[:columns].T for each in whole)


def _group(f: Function, degree: int, count: int, matrix: Matrix, alpha: Any, x: Any) -> Any:
    """The same for a group of rows x processed together: shape (count, columns, nodes)."""
    columns, nodes = x.shape
    most = min(nodes, _MAX)
    sizes = [_GROUP << stage for stage in range(most.bit_length()) if _GROUP << stage < most] + [most]
    room = -(-(most + 1) // _GROUP) * _GROUP
    wide = x.dtype == jnp.float64
    tiny, rtol = (1e-13, 1e-10) if wide else (1e-6, 1e-5)
    size = jnp.linalg.norm(x, axis=1)
    start = x / jnp.where(size > 0, size, 1.0)[:, None]

    def projected(basis: Any, v: Any, done: Any) -> Any:
        """The projection of v onto the vectors computed so far, in groups."""

        def add(group: Any, total: Any) -> Any:
            part = lax.dynamic_slice_in_dim(basis, group * _GROUP, _GROUP, 1)
            shares = jnp.einsum("cmn,cn->cm", part, v, precision="highest")
            return total + jnp.einsum("cmn,cm->cn", part, shares, precision="highest")

        return lax.fori_loop(0, (done + _GROUP - 1) // _GROUP, add, jnp.zeros_like(v))

    def extend(m: Any, kept: Any) -> Any:
        basis, diagonal, beside = kept
        q = lax.dynamic_index_in_dim(basis, m, 1, keepdims=False)
        v = _times(matrix, q)
        diagonal = diagonal.at[:, m].set((q * v).sum(1))
        # Two passes are enough to keep the vectors orthogonal.
        v = lax.fori_loop(0, 2, lambda _, v: v - projected(basis, v, m + 1), v)
        norm = jnp.linalg.norm(v, axis=1)
        ended = norm <= tiny * jnp.abs(diagonal).max(1)
        beside = beside.at[:, m].set(jnp.where(ended, 0.0, norm))
        unit = jnp.where(ended[:, None], 0.0, v / jnp.where(ended, 1.0, norm)[:, None])
        return basis.at[:, m + 1].set(unit), diagonal, beside

    def decomposed(m: int, diagonal: Any, beside: Any) -> tuple[Any, Any]:
        """Eigenvalues and eigenvectors of the leading m by m block; zeros beyond it."""
        places = jnp.arange(m)
        apart = places[:, None] - places  # only the lower triangle is read
        whole = jnp.where(apart == 0, diagonal[:, None, :m], jnp.where(apart == 1, beside[:, None, :m], 0.0))
        values, vectors = jnp.linalg.eigh(whole, symmetrize_input=False)
        rest = (0, most - m)
        return jnp.pad(values, ((0, 0), rest)), jnp.pad(vectors, ((0, 0), rest, rest))

    def advance(state: Any) -> Any:
        stage, m, kept, *_ = state
        target = jnp.asarray(sizes)[stage]
        kept = lax.fori_loop(m, target, extend, kept)
        branches = [partial(decomposed, each) for each in sizes]
        values, vectors = lax.switch(stage, branches, kept[1], kept[2])
        largest = jnp.abs(values).max(1, keepdims=True)
        # Ritz values lie between the eigenvalues of L: a negative one is not a rounding error.
        valid = ~(values < (-1e-10 if wide else -1e-4) * largest).any()
        values = jnp.where(values <= tiny * largest, 0.0, values)
        functions = jnp.stack(_derivatives(f, degree, count, values, alpha)).astype(x.dtype)
        coefficients = jnp.einsum("cij,kcj->kci", vectors, functions * vectors[:, 0], precision="highest")
        last = jnp.arange(most) >= target - 2  # entries beyond the target are 0
        sizes_found = jnp.abs(coefficients)
        missing = jnp.where(last, sizes_found, 0.0).max(-1)
        lacking = (missing > rtol * sizes_found.max(-1)).any()
        done = ~lacking | (target >= nodes) | ~valid
        return stage + 1, target, kept, coefficients, done, valid & done

    state = (
        jnp.asarray(0),
        jnp.asarray(0),
        (
            jnp.zeros((columns, room, nodes), x.dtype).at[:, 0].set(start),
            jnp.zeros((columns, most), x.dtype),
            jnp.zeros((columns, most), x.dtype),
        ),
        jnp.zeros((count, columns, most), x.dtype),
        jnp.asarray(False),
        jnp.asarray(False),
    )
    _, m, (basis, _, _), coefficients, _, right = lax.while_loop(
        lambda state: ~state[4] & (state[0] < len(sizes)), advance, state
    )
    coefficients = jnp.pad(coefficients, ((0, 0), (0, 0), (0, room - most)))

    def add(group: Any, total: Any) -> Any:
        part = lax.dynamic_slice_in_dim(basis, group * _GROUP, _GROUP, 1)
        shares = lax.dynamic_slice_in_dim(coefficients, group * _GROUP, _GROUP, 2)
        return total + jnp.einsum("cmn,kcm->kcn", part, shares, precision="highest")

    total = jnp.zeros((count, columns, nodes), x.dtype)
    total = lax.fori_loop(0, (m + _GROUP - 1) // _GROUP, add, total)
    return jnp.where(right, total * size[:, None], jnp.nan)
