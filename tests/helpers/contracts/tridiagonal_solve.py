"""Reference and test cases of ``tridiagonal_solve``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc.engine.primitives.base import Primitive
from tests.helpers.contracts import Case, reversed_view, samples, strided_view


def reference(primitive: Primitive, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
    """Elimination in extended precision, row by row."""
    call = primitive.describe(*arrays, **params)
    wide: Any = np.clongdouble if call.dtype.startswith("complex") else np.longdouble
    lower, diagonal, upper, rhs = (np.broadcast_to(np.asarray(one).astype(wide), call.shape) for one in arrays)
    n = call.length
    pivot: Any = diagonal.copy()
    x: Any = rhs.copy()
    with np.errstate(all="ignore"):
        for i in range(1, n):
            factor = lower[..., i] / pivot[..., i - 1]
            pivot[..., i] -= factor * upper[..., i - 1]
            x[..., i] -= factor * x[..., i - 1]
        for i in range(n - 1, -1, -1):
            if i < n - 1:
                x[..., i] -= upper[..., i] * x[..., i + 1]
            x[..., i] /= pivot[..., i]
        found: np.ndarray[Any, Any] = x.astype(call.dtype)
    found[~np.isfinite(found).all(-1)] = np.nan
    return found


def cases(primitive: Primitive, dtype: str) -> Iterator[Case]:
    """Own matrices and shared ones, weak dominance, few and many points, rows that are not finite."""

    def case(name: str, matrix: tuple[int, ...], rhs: tuple[int, ...], *, smooth: bool = False) -> Case:
        diagonals = [samples(dtype, matrix, seed) for seed in (1, 2, 3)]
        # Larger than the sum of both others.
        diagonals[1] = (2.0 + np.abs(diagonals[0]) + np.abs(diagonals[2]) + 0.1 * diagonals[1]).astype(dtype)
        return Case(name, (*diagonals, samples(dtype, rhs, 4)), differentiable=smooth)

    yield case("plain", (7,), (7,), smooth=True)
    yield case("own matrices", (3, 9), (3, 9), smooth=True)
    yield case("one matrix", (6,), (2, 6), smooth=True)
    yield case("one right-hand side", (4, 5), (5,))
    yield case("one point", (2, 1), (2, 1))
    yield case("two points", (2,), (3, 2))
    yield case("long", (300,), (4, 300))
    yield case("many rows", (70, 1, 17), (70, 2, 17))
    yield case("no points", (2, 0), (2, 0))
    yield case("no rows", (5,), (0, 5))
    ones = np.ones(33, dtype)
    yield Case("weakly dominant", (-ones, 2 * ones, -ones, samples(dtype, (2, 33), 5)))
    plain = case("strided", (3, 10), (3, 10))
    yield Case("strided", tuple(map(strided_view, plain.arrays)))
    yield Case("reversed", tuple(map(reversed_view, plain.arrays)))
    spoiled = plain.arrays[3].copy()
    spoiled[1, 4], spoiled[2, 9] = np.nan, np.inf
    yield Case("rows that are not finite", (*plain.arrays[:3], spoiled))
    if dtype == "float64":
        whole = np.ones(4, np.int64)
        yield Case("whole numbers", (whole, 4 * whole, -whole, np.arange(4)))
