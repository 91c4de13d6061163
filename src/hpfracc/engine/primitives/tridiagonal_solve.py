"""Contract of batched tridiagonal systems: the linear solves of implicit steps along one axis."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, final

import numpy as np

from hpfracc.engine.primitives.base import ArraySpec, Call, Cut, Primitive, outer_cuts
from hpfracc.engine.primitives.operands import broadcast, inexact, promoted, read_dtype, shape_of
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
        dtype = inexact(promoted(tuple(read_dtype(self.name, name, array) for name, array in given.items())))
        shapes = {name: shape_of(array) for name, array in given.items()}
        for name, shape in shapes.items():
            if not shape:
                raise ShapeError(f"{self.name}: {name} has shape (); it needs at least one axis, the last")
            if shape[-1] != shapes["rhs"][-1]:
                raise ShapeError(
                    f"{self.name}: {name} has {shape[-1]} points along the last axis, and rhs {shapes['rhs'][-1]}; "
                    "give the same number (the first of lower and the last of upper are not read)"
                )
        matrices = broadcast(self.name, *(shapes[name] for name in self.operands[:3]))
        whole = broadcast(self.name, *shapes.values())
        return self.call(dtype, whole, shapes.values(), matrices=math.prod(matrices[:-1]))

    def work(self, call: Call, algorithm: str) -> float:
        """Points of all rows, times the steps of a reduction."""
        steps = math.ceil(math.log2(max(2, call.length))) if algorithm == "reduction" else 1
        return float(max(1, call.batch) * max(1, call.length) * steps)

    def workspace(self, call: Call, algorithm: str) -> int:
        """The three diagonals and the right-hand side."""
        return (3 * int(call.facts["matrices"]) + call.batch) * call.length * call.itemsize

    def cuts(self, call: Call, *arrays: Any, **params: Any) -> Iterator[Cut]:
        """Rows."""
        return outer_cuts(map(shape_of, arrays), call.shape, (-1,))

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """A matrix for every row."""
        return (ArraySpec(shape or (1,), dtype),) * 4, {}

    def typical(self, arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Diagonally dominant."""
        lower, diagonal, upper, rhs = arrays
        return [lower, diagonal + np.asarray(8.0, diagonal.dtype), upper, rhs]
