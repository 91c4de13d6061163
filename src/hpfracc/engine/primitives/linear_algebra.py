"""Contracts of the matrix product, and of batched tridiagonal systems: the solves of implicit steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, final

import numpy as np

from hpfracc.engine.primitives.base import (
    ArraySpec,
    Call,
    Cut,
    Primitive,
    broadcast,
    inexact,
    own_axis,
    promoted,
    read_dtype,
    read_shape,
    shape_of,
)
from hpfracc.errors import ShapeError


@final
class Matmul(Primitive):
    """``a @ b``: matrices in the last two axes, the others broadcast; a vector counts as a row or a column.

    Operands are converted to NumPy's common dtype. Every backend supports float32, float64, complex64 and complex128;
    integers and booleans are exact and supported by NumPy only. The result of two vectors is a 0-d array.

    Float32 is accumulated as the library's BLAS does. Differentiable in both operands.
    """

    name = "matmul"
    operands = ("a", "b")

    def describe(self, a: Any, b: Any) -> Call:
        """Check both operands; ``facts``: ``rows``, ``inner`` and ``columns`` of one product."""
        dtype = promoted((read_dtype(self.name, "a", a), read_dtype(self.name, "b", b)))
        left, right = shape_of(a), shape_of(b)
        if not left or not right:
            raise ShapeError(
                f"{self.name}: shapes {left} and {right}; both need at least one axis: multiply numbers by *"
            )
        rows, inner = (1, left[0]) if len(left) == 1 else left[-2:]
        facing, columns = (right[0], 1) if len(right) == 1 else right[-2:]
        if inner != facing:
            raise ShapeError(
                f"{self.name}: shapes {left} and {right}: {inner} columns meet {facing} rows; they must be equal"
            )
        batch = broadcast(self.name, left[:-2], right[:-2])
        shape = batch + (() if len(left) == 1 else (rows,)) + (() if len(right) == 1 else (columns,))
        # Elements of square matrices whose product takes the same number of steps.
        length = round((rows * inner * columns) ** (2 / 3))
        facts: dict[str, Any] = {"rows": rows, "inner": inner, "columns": columns}
        return self.call(dtype, shape, (left, right), batch=math.prod(batch), length=length, **facts)

    def work(self, call: Call, algorithm: str) -> float:
        """Multiplications."""
        return float(call.batch * call.facts["rows"] * call.facts["inner"] * call.facts["columns"])

    def cuts(self, call: Call, *arrays: Any, **params: Any) -> Iterator[Cut]:
        """The stack; then rows of the first matrix, or columns of the second, whichever are more."""
        left, right = map(shape_of, arrays)
        cores = min(len(left), 2), min(len(right), 2)
        inner = len(call.shape) - max(len(left) - cores[0], len(right) - cores[1])
        for axis in sorted(range(-len(call.shape), -inner), key=lambda axis: -call.shape[axis]):
            shapes = zip((left, right), cores, strict=True)
            operands = tuple(own_axis(shape, axis + inner - core) for shape, core in shapes)
            if call.shape[axis] > 1 and operands != (None, None):
                yield Cut(axis, call.shape[axis], operands)
        ways = []
        if len(left) > 1:
            ways.append(Cut(-1 if len(right) == 1 else -2, left[-2], (-2, None)))
        if len(right) > 1:
            ways.append(Cut(-1, right[-1], (None, -1)))
        yield from sorted((way for way in ways if way.length > 1), key=lambda way: -way.length)

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """A matrix and one of the transposed shape; two vectors for one axis."""
        shape = shape or (1,)
        return (ArraySpec(shape, dtype), ArraySpec((*shape[:-2], *shape[:-3:-1]), dtype)), {}


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
        shapes = {name: read_shape(self.name, name, array) for name, array in given.items()}
        for name, shape in shapes.items():
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

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """A matrix for every row."""
        return (ArraySpec(shape or (1,), dtype),) * 4, {}

    def typical(self, arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Diagonally dominant."""
        lower, diagonal, upper, rhs = arrays
        return [lower, diagonal + np.asarray(8.0, diagonal.dtype), upper, rhs]
