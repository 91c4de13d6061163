r"""Functions of a large symmetric matrix times vectors, by the Lanczos method, for PyTorch and JAX.

Each vector gets an orthonormal basis Q of its Krylov space, in which L is tridiagonal, and
:math:`f(L) x \approx |x|\, Q f(T) e_1`. The number of vectors grows until the result converges: 24, 48, 96, ... to 600.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from hpfracc._xp import Namespace

__all__ = ["MOST", "rows_together", "times_functions"]

#: Most vectors of a basis, and as many as there are at first.
MOST, _FIRST = 600, 24
#: Largest size of the bases in bytes; further rows come later.
_WORKSPACE = 1 << 30


def rows_together(x: Any) -> int:
    """Number of rows of ``x`` whose bases fit into the memory that is reserved for them."""
    rows, nodes = x.shape
    return max(1, min(rows, _WORKSPACE // (nodes * (min(nodes, MOST) + 1) * x.dtype.itemsize)))


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
    most, wide = min(nodes, MOST), x.dtype.itemsize == 8
    tiny, rtol, rounding = (1e-13, 1e-10, 1e-10) if wide else (1e-6, 1e-5, 1e-4)
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
        last = xp.arange(0, most, "int64", like=x) >= size - 2  # shares beyond the size are 0
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


def _switch(xp: Namespace, place: Any, branches: list[Callable[[Any], Any]], state: Any) -> Any:
    if xp.library == "jax":
        return sys.modules["jax"].lax.switch(place, branches, state)
    return branches[place](state)
