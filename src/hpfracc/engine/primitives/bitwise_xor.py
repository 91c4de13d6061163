"""Contract of the exclusive or."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, final

from hpfracc.engine.primitives.base import INTEGERS, ArraySpec, Call, Cut, Primitive, broadcast_cuts
from hpfracc.engine.primitives.operands import broadcast, promoted, read_dtype, shape_of
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
        given = shape_of(a), shape_of(b)
        shape = broadcast(self.name, *given)
        return self.call(dtype, shape, given, batch=1, length=math.prod(shape))

    def work(self, call: Call, algorithm: str) -> float:
        """Bytes: an element's width counts."""
        return float(call.output_bytes)

    def cuts(self, call: Call, *arrays: Any, **params: Any) -> Iterator[Cut]:
        """Every axis, the longest first."""
        return broadcast_cuts(map(shape_of, arrays), call.shape)

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """Two arrays; other dtypes are replaced by 64-bit integers."""
        spec = ArraySpec(shape, dtype if dtype in INTEGERS else "uint64")
        return (spec, spec), {}
