"""Reference and test cases of ``matmul``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc.engine.primitives.base import Primitive
from tests.helpers.contracts import Case, reversed_view, samples, strided_view


def reference(primitive: Primitive, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
    """NumPy's product in extended precision; integers in their own dtype, where sums wrap around."""
    call = primitive.describe(*arrays, **params)
    kind = np.dtype(call.dtype).kind
    wide: Any = {"f": np.longdouble, "c": np.clongdouble}.get(kind, np.dtype(call.dtype).type)
    left, right = (np.asarray(array).astype(call.dtype).astype(wide) for array in arrays)
    with np.errstate(all="ignore"):
        return np.asarray(np.matmul(left, right)).astype(call.dtype)


def cases(primitive: Primitive, dtype: str) -> Iterator[Case]:
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
