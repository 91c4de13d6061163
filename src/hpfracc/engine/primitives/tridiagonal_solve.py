"""Contract of batched tridiagonal systems: the linear solves of implicit steps along one axis."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, final

import numpy as np

from hpfracc.engine.primitives.base import (
    INEXACT,
    INTEGERS,
    ArraySpec,
    Call,
    Case,
    Primitive,
    reversed_view,
    samples,
    strided_view,
)
from hpfracc.engine.primitives.cuts import Cut, outer_cuts
from hpfracc.engine.primitives.operands import broadcast, dtype_bytes, elements, promoted, read_dtype, shape_of
from hpfracc.errors import ShapeError

__all__ = ["TridiagonalSolve"]


@final
class TridiagonalSolve(Primitive):
    r"""The x with :math:`l_i x_{i-1} + d_i x_i + u_i x_{i+1} = b_i`, along the last axis.

    All four operands, ``lower``, ``diagonal``, ``upper`` and ``rhs``, have shape ``(..., n)`` with broadcast
    leading axes: one matrix may have many right-hand sides. ``lower[..., 0]`` and ``upper[..., -1]`` are not read.

    For matrices that need no pivoting: diagonally dominant ones, and symmetric positive definite ones. A row with a
    non-finite solution is nan throughout. Differentiable in all operands.

    Algorithms: ``lapack`` eliminates with the library's routine, one matrix after the other; ``thomas`` eliminates
    all rows together, or compiled; ``reduction`` is parallel cyclic reduction, which halves the coupling of all
    equations in each of :math:`\log_2 n` steps.

    References
    ----------
    R. W. Hockney, C. R. Jesshope, "Parallel Computers 2", Adam Hilger, 1988.
    """

    name = "tridiagonal_solve"
    operands = ("lower", "diagonal", "upper", "rhs")

    def describe(self, lower: Any, diagonal: Any, upper: Any, rhs: Any) -> Call:
        """Check the operands; ``facts``: ``matrices``, the number of distinct ones."""
        given = dict(zip(self.operands, (lower, diagonal, upper, rhs), strict=True))
        names = tuple(read_dtype(self.name, name, array, INEXACT | INTEGERS) for name, array in given.items())
        dtype = promoted(names)
        if dtype not in INEXACT:
            dtype = "float64"
        shapes = {name: shape_of(array) for name, array in given.items()}
        for name, shape in shapes.items():
            if not shape:
                raise ShapeError(f"{self.name}: {name} has shape (); it needs at least one axis, the last")
            if shape[-1] != shapes["rhs"][-1]:
                raise ShapeError(
                    f"{self.name}: {name} has {shape[-1]} points along the last axis, and rhs {shapes['rhs'][-1]}; "
                    "give the same number (the first of lower and the last of upper are not read)"
                )
        whole = broadcast(self.name, *shapes.values())
        matrices = broadcast(self.name, *(shapes[name] for name in self.operands[:3]))
        item = dtype_bytes(dtype)
        return Call(
            operation=self.name,
            batch=elements(whole[:-1]),
            length=whole[-1],
            dtype=dtype,
            shape=whole,
            input_bytes=sum(elements(shape) for shape in shapes.values()) * item,
            output_bytes=elements(whole) * item,
            facts={"matrices": elements(matrices[:-1])},
        )

    def work(self, call: Call, algorithm: str) -> float:
        """Points of all rows, times the steps of a reduction."""
        steps = math.ceil(math.log2(max(2, call.length))) if algorithm == "reduction" else 1
        return float(max(1, call.batch) * max(1, call.length) * steps)

    def workspace(self, call: Call, algorithm: str) -> int:
        """The three diagonals and the right-hand side."""
        return (3 * int(call.facts["matrices"]) + call.batch) * call.length * call.itemsize

    def cuts(self, call: Call, *arrays: Any, **params: Any) -> Iterator[Cut]:
        """Rows."""
        return outer_cuts(tuple(shape_of(array) for array in arrays), call.shape, (-1,))

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """A matrix for every row."""
        spec = ArraySpec(shape or (1,), dtype)
        return (spec,) * 4, {}

    def typical(self, arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Diagonally dominant."""
        lower, diagonal, upper, rhs = arrays
        return [lower, diagonal + np.asarray(8.0, diagonal.dtype), upper, rhs]

    def reference(self, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
        """Elimination in extended precision, row by row."""
        call = self.describe(*arrays, **params)
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

    def cases(self, dtype: str) -> Iterator[Case]:
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
