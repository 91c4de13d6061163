"""Contract of the matrix product, with NumPy's rules for shapes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, final

from hpfracc.engine.primitives.base import ArraySpec, Call, Cut, Primitive, broadcast_cuts
from hpfracc.engine.primitives.operands import broadcast, promoted, read_dtype, shape_of
from hpfracc.errors import ShapeError

__all__ = ["Matmul"]


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
        facts = {"rows": rows, "inner": inner, "columns": columns}
        return self.call(dtype, shape, (left, right), batch=math.prod(batch), length=length, **facts)

    def work(self, call: Call, algorithm: str) -> float:
        """Multiplications."""
        return float(call.batch * call.facts["rows"] * call.facts["inner"] * call.facts["columns"])

    def cuts(self, call: Call, *arrays: Any, **params: Any) -> Iterator[Cut]:
        """The stack; then rows of the first matrix, or columns of the second, whichever are more."""
        left, right = map(shape_of, arrays)
        yield from broadcast_cuts((left, right), call.shape, (min(len(left), 2), min(len(right), 2)))
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
