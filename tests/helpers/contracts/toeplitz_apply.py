"""Reference and test cases of ``toeplitz_apply``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hpfracc.engine.primitives.base import Primitive
from tests.helpers.contracts import Case, reversed_view, samples, strided_view


def _part(lag: int, n: int) -> slice:
    """The outputs that depend on a sample ``lag`` before them."""
    return slice(max(0, lag), n + min(0, lag))


def _index(ndim: int, axes: Sequence[int], parts: Sequence[slice]) -> tuple[slice, ...]:
    """An index with ``parts`` at ``axes`` and everything elsewhere."""
    index = [slice(None)] * ndim
    for axis, part in zip(axes, parts, strict=True):
        index[axis] = part
    return tuple(index)


def reference(primitive: Primitive, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
    """Sum over every distance, both ways, in extended precision."""
    call = primitive.describe(*arrays, **params)
    wide = np.clongdouble if call.dtype.startswith("complex") else np.longdouble
    weights, signal = (np.asarray(array).astype(call.dtype).astype(wide) for array in arrays)
    axes, points, used = (call.facts[name] for name in ("axes", "points", "used"))
    result: np.ndarray[Any, Any] = np.zeros(call.shape, wide)
    reach = [range(1 - taps, taps) for taps in used]
    with np.errstate(invalid="ignore"):
        for lags in itertools.product(*reach):
            distance = _index(weights.ndim, axes, [slice(abs(lag), abs(lag) + 1) for lag in lags])
            there = _index(result.ndim, axes, [_part(lag, n) for lag, n in zip(lags, points, strict=True)])
            here = _index(signal.ndim, axes, [_part(-lag, n) for lag, n in zip(lags, points, strict=True)])
            result[there] += weights[distance] * signal[here]
    return result.astype(call.dtype)


def cases(primitive: Primitive, dtype: str) -> Iterator[Case]:
    """Each relation of the two lengths, batches, several axes, and memory layouts."""

    def case(name: str, weights: Any, signal: Any, differentiable: bool = False, **params: Any) -> Case:
        arrays = (samples(dtype, weights, 1), samples(dtype, signal, 2))
        return Case(name, arrays, params, differentiable)

    yield case("plain", 16, 16, True)
    yield case("one point", 1, 1, True)
    yield case("one tap", 1, 4)
    yield case("short weights", 5, 24, True)
    yield case("long weights", 90, 50, True)
    yield case("batched", 20, (3, 4, 20), True)
    yield case("broadcast weights", (3, 1, 16), (4, 16), True)
    yield case("more axes in the weights", (2, 1, 8), 8)
    yield case("several blocks of taps", 1500, 1500)
    yield case("along the first axis", (9, 1, 1), (9, 2, 3), True, axes=0)
    yield case("along the middle axis", (4, 7, 1), (4, 7, 3), axes=1)
    yield case("two axes", (6, 7), (2, 6, 7), True, axes=(-2, -1))
    yield case("two axes apart", (5, 1, 4), (6, 3, 7), axes=(0, 2))
    yield case("three axes", (3, 4, 5), (3, 4, 5), True, axes=(0, 1, 2))
    yield case("no points", 4, 0)
    yield case("no rows", 4, (0, 6))
    yield case("no taps", 0, 6)
    weights, signal = samples(dtype, 24, 3), samples(dtype, (3, 40), 4)
    yield Case("strided", (strided_view(weights), strided_view(signal)))
    yield Case("reversed", (reversed_view(weights), reversed_view(signal)))
    yield Case("transposed", (weights, np.ascontiguousarray(signal.T).T))
    yield Case("repeated rows", (weights, np.broadcast_to(signal[0], (4, 40))))
    if dtype == "float64":
        yield Case("integers", (weights, np.arange(-8, 9)))
    elif dtype.startswith("complex"):
        real = "float64" if dtype == "complex128" else "float32"
        yield Case("complex weights alone", (weights, samples(real, 40, 7)))
        yield Case("complex signal alone", (samples(real, 24, 8), signal))
