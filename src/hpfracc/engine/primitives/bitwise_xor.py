"""Contract of the exclusive or."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

import numpy as np

from hpfracc.engine.primitives.base import (
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
from hpfracc.errors import UnsupportedDtypeError

__all__ = ["BitwiseXor"]


@final
class BitwiseXor(Primitive):
    """``a ^ b`` for integers of any width and booleans, over arrays that broadcast.

    Operands are converted to NumPy's common dtype; int64 with uint64 has none and raises an error. A bool with booleans
    is a truth value, with integers 0 or 1. Exact, and without a derivative.
    """

    name = "bitwise_xor"
    operands = ("a", "b")

    def describe(self, a: Any, b: Any) -> Call:
        """Check both operands."""
        pair = read_dtype(self.name, "a", a, INTEGERS), read_dtype(self.name, "b", b, INTEGERS)
        dtype = promoted(pair)
        if dtype not in INTEGERS:
            raise UnsupportedDtypeError(
                f"{self.name}: no integer dtype holds both {pair[0]} and {pair[1]}; convert one with .astype()"
            )
        left, right = shape_of(a), shape_of(b)
        shape = broadcast(self.name, left, right)
        size, item = elements(shape), dtype_bytes(dtype)
        return Call(
            operation=self.name,
            batch=1,
            length=size,
            dtype=dtype,
            shape=shape,
            input_bytes=(elements(left) + elements(right)) * item,
            output_bytes=size * item,
        )

    def work(self, call: Call, algorithm: str) -> float:
        """Bytes: an element's width counts."""
        return float(call.output_bytes)

    def workspace(self, call: Call, algorithm: str) -> int:
        """Nothing."""
        return 0

    def cuts(self, call: Call, *arrays: Any, **params: Any) -> Iterator[Cut]:
        """Every axis, the longest first."""
        return broadcast_cuts(map(shape_of, arrays), call.shape)

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """Two arrays; other dtypes are replaced by 64-bit integers."""
        spec = ArraySpec(shape, dtype if dtype in INTEGERS else "uint64")
        return (spec, spec), {}

    def reference(self, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
        """NumPy's implementation."""
        call = self.describe(*arrays, **params)
        a, b = (np.asarray(array).astype(call.dtype) for array in arrays)
        return np.asarray(np.bitwise_xor(a, b))

    def cases(self, dtype: str) -> Iterator[Case]:
        """Broadcasting, memory layouts, and lengths that no vector register divides."""

        def case(name: str, a: tuple[int, ...], b: tuple[int, ...]) -> Case:
            return Case(name, (samples(dtype, a, 1), samples(dtype, b, 2)))

        yield case("plain", (64,), (64,))
        yield case("prime", (101,), (101,))
        yield case("one element", (1,), (1,))
        yield case("no axes", (), ())
        yield case("batched", (3, 4, 5), (3, 4, 5))
        yield case("broadcast", (5, 1, 8), (3, 1))
        yield case("scalar operand", (4, 7), ())
        yield case("no elements", (0,), (0,))
        yield case("broadcast over nothing", (0, 4), (4,))
        yield case("several blocks", (70_001,), (70_001,))
        a, b = samples(dtype, (6, 9), 3), samples(dtype, (6, 9), 4)
        yield Case("strided", (strided_view(a), strided_view(b)))
        yield Case("reversed", (reversed_view(a), b))
        yield Case("transposed", (np.ascontiguousarray(a.T).T, b))
        if dtype in ("int64", "uint8"):
            yield Case("with booleans", (a, samples("bool", (6, 9), 5)))
        if dtype == "int64":
            yield Case("mixed widths", (samples("int16", (6, 9), 6), samples("uint32", (6, 9), 7)))
