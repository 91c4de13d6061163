"""Contract of the matrix product, with NumPy's rules for shapes."""

from __future__ import annotations

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
from hpfracc.engine.primitives.cuts import Cut, broadcast_cuts
from hpfracc.engine.primitives.operands import broadcast, dtype_bytes, elements, promoted, read_dtype, shape_of
from hpfracc.errors import ShapeError

__all__ = ["Matmul"]

_TAKES = INEXACT | INTEGERS


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
        dtype = promoted((read_dtype(self.name, "a", a, _TAKES), read_dtype(self.name, "b", b, _TAKES)))
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
        size, item = elements(batch), dtype_bytes(dtype)
        return Call(
            operation=self.name,
            batch=size,
            # Elements of square matrices whose product takes the same number of steps.
            length=round((rows * inner * columns) ** (2 / 3)),
            dtype=dtype,
            shape=shape,
            input_bytes=(elements(left) + elements(right)) * item,
            output_bytes=size * rows * columns * item,
            facts={"rows": rows, "inner": inner, "columns": columns},
        )

    def work(self, call: Call, algorithm: str) -> float:
        """Multiplications."""
        return float(call.batch * call.facts["rows"] * call.facts["inner"] * call.facts["columns"])

    def workspace(self, call: Call, algorithm: str) -> int:
        """Nothing: BLAS reads the operands in place."""
        return 0

    def cuts(self, call: Call, *arrays: Any, **params: Any) -> Iterator[Cut]:
        """The stack; then rows of the first matrix, or columns of the second, whichever are more."""
        left, right = map(shape_of, arrays)
        vectors = (1 if len(left) == 1 else 2, 1 if len(right) == 1 else 2)
        yield from broadcast_cuts((left, right), call.shape, vectors)
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

    def reference(self, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
        """NumPy's product in extended precision; integers in their own dtype, where sums wrap around."""
        call = self.describe(*arrays, **params)
        kind = np.dtype(call.dtype).kind
        wide: Any = {"f": np.longdouble, "c": np.clongdouble}.get(kind, np.dtype(call.dtype).type)
        left, right = (np.asarray(array).astype(call.dtype).astype(wide) for array in arrays)
        with np.errstate(all="ignore"):
            return np.asarray(np.matmul(left, right)).astype(call.dtype)

    def cases(self, dtype: str) -> Iterator[Case]:
        """Vectors, matrices, stacks of them, each memory layout, and every kind of empty axis."""

        def case(name: str, a: tuple[int, ...], b: tuple[int, ...], differentiable: bool = False) -> Case:
            return Case(name, (samples(dtype, a, 1), samples(dtype, b, 2)), differentiable=differentiable)

        yield case("plain", (3, 4), (4, 5), differentiable=True)
        yield case("odd", (65, 67), (67, 33))
        yield case("one element", (1, 1), (1, 1))
        yield case("two vectors", (7,), (7,), differentiable=True)
        yield case("vector and matrix", (4,), (4, 3), differentiable=True)
        yield case("matrix and vector", (3, 4), (4,), differentiable=True)
        yield case("stack and vector", (2, 3, 4), (4,))
        yield case("vector and stack", (3,), (5, 3, 2))
        yield case("batched", (6, 3, 4), (6, 4, 2), differentiable=True)
        yield case("broadcast", (2, 1, 3, 4), (5, 4, 2), differentiable=True)
        yield case("long inner axis", (2, 1500), (1500, 3))
        yield case("no inner axis", (3, 0), (0, 4))
        yield case("no rows", (0, 3), (3, 4))
        yield case("no matrices", (0, 3, 4), (4, 2))
        a, b = samples(dtype, (6, 7), 3), samples(dtype, (7, 5), 4)
        yield Case("strided", (strided_view(a), strided_view(b)))
        yield Case("reversed", (reversed_view(a), reversed_view(b)))
        yield Case("transposed", (np.ascontiguousarray(a.T).T, np.ascontiguousarray(b.T).T))
        yield Case("repeated", (np.broadcast_to(a[0], (4, 7)), np.broadcast_to(b, (3, 7, 5))))
        if dtype == "float64":
            yield Case("mixed precision", (samples("float32", (3, 4), 5), samples("float64", (4, 2), 6)))
            yield Case("integers and floats", (np.arange(12).reshape(3, 4), samples("float64", (4, 2), 7)))
        elif dtype == "complex128":
            yield Case("real and complex", (samples("float64", (3, 4), 5), samples("complex128", (4, 2), 6)))
