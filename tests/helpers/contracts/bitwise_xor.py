"""Reference and test cases of ``bitwise_xor``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc.engine.primitives.base import Primitive
from tests.helpers.contracts import Case, reversed_view, samples, strided_view


def reference(primitive: Primitive, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
    """NumPy's implementation."""
    call = primitive.describe(*arrays, **params)
    a, b = (np.asarray(array).astype(call.dtype) for array in arrays)
    return np.asarray(np.bitwise_xor(a, b))


def cases(primitive: Primitive, dtype: str) -> Iterator[Case]:
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
