"""Reference and test cases of ``causal_convolution``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc.engine.primitives.base import Primitive
from tests.helpers.contracts import Case, reversed_view, samples, strided_view


def reference(primitive: Primitive, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
    """Sum row by row in extended precision."""
    call = primitive.describe(*arrays, **params)
    wide = np.clongdouble if call.dtype.startswith("complex") else np.longdouble
    weights, signal, *rest = (np.asarray(array).astype(call.dtype).astype(wide) for array in arrays)
    n = call.length
    first = signal[..., :1]
    if params.get("differences", False) and n:
        with np.errstate(invalid="ignore"):
            signal = np.diff(signal, prepend=first, axis=-1)
    weights = np.broadcast_to(weights[..., :n], (*call.shape[:-1], call.facts["taps"]))
    signal = np.broadcast_to(signal, call.shape)
    result: np.ndarray[Any, Any] = np.zeros(call.shape, wide)
    with np.errstate(invalid="ignore"):
        for k in range(call.facts["taps"]):
            result[..., k:] += weights[..., k, None] * signal[..., : n - k]
        for j, row in enumerate(rest[0] if rest else (), params.get("starts_from", 0)):
            result[..., j:] += row[j:] * (signal[..., j, None] if j else first)
    return result.astype(call.dtype)


def cases(primitive: Primitive, dtype: str) -> Iterator[Case]:
    """Each memory layout, each relation of the two lengths, and sizes that cross every block's edge."""

    def case(name: str, weights: tuple[int, ...], signal: tuple[int, ...], differentiable: bool = False) -> Case:
        return Case(name, (samples(dtype, weights, 1), samples(dtype, signal, 2)), differentiable=differentiable)

    yield case("plain", (16,), (16,), differentiable=True)
    yield case("prime", (101,), (101,))
    yield case("one point", (1,), (1,), differentiable=True)
    yield case("one tap", (1,), (20,))
    yield case("short weights", (7,), (64,), differentiable=True)
    yield case("long weights", (90,), (50,), differentiable=True)
    yield case("batched", (12,), (3, 4, 20), differentiable=True)
    yield case("broadcast weights", (3, 1, 9), (4, 16), differentiable=True)
    yield case("a row of weights each", (5, 11), (5, 11))
    yield case("more axes in the weights", (2, 1, 6), (8,))
    yield case("many rows", (8,), (70, 8))
    yield case("several blocks", (300,), (4500,))
    yield case("several blocks of taps", (1300,), (2600,))
    yield case("no points", (4,), (0,))
    yield case("no rows", (4,), (0, 6))
    yield case("no taps", (0,), (6,))
    weights, signal = samples(dtype, 24, 3), samples(dtype, (3, 40), 4)
    yield Case("strided", (strided_view(weights), strided_view(signal)))
    yield Case("reversed", (reversed_view(weights), reversed_view(signal)))
    yield Case("transposed", (weights, np.ascontiguousarray(signal.T).T))
    yield Case("repeated rows", (weights, np.broadcast_to(signal[0], (4, 40))))
    begun = (weights, signal, samples(dtype, (3, 40), 9))
    yield Case("three starting weights from the third sample on", begun, {"starts_from": 2})
    long = (samples(dtype, 40, 10), signal, samples(dtype, (1, 40), 11))
    yield Case("full memory, differences, starting weights", long, {"differences": True, "starts_from": 1}, True)
    both = (samples(dtype, 40, 10), signal, samples(dtype, (2, 40), 12))
    yield Case("differences, starting weights of the first sample too", both, {"differences": True}, True)
    yield Case("differences, starting weights of the first sample alone", long, {"differences": True}, True)
    yield Case("differences", (weights, signal), {"differences": True})
    yield Case("differences of no points", (weights, signal[:, :0]), {"differences": True})
    if dtype == "float64":
        yield Case("integers", (weights, np.arange(-8, 9)))
        yield Case("booleans", (samples("float32", 5, 5), np.arange(9) % 3 == 0))
    elif dtype == "float32":
        yield Case("weights of more digits", (samples("float64", 9, 6), signal))
    else:
        real = "float64" if dtype == "complex128" else "float32"
        yield Case("complex weights alone", (weights, samples(real, 40, 7)))
        yield Case("complex signal alone", (samples(real, 24, 8), signal))
