"""Reference and test cases of ``spectral_multiply``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc.engine.primitives.base import Primitive
from hpfracc.engine.primitives.spectral_multiply import KINDS, is_half
from tests.helpers.contracts import Case, reversed_view, samples, strided_view


def _at(axis: int, kind: str) -> dict[str, Any]:
    return {"axes": axis, "kinds": kind}


def _even_symbol(dtype: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Real numbers that do not change when all frequencies of ``axes`` change sign."""
    symbol = samples(dtype, shape, 9)
    mirrored = symbol
    for axis in axes:
        mirrored = np.roll(np.flip(mirrored, axis), 1, axis)
    return np.asarray((symbol + mirrored) / np.asarray(2, dtype))


def _hermitian(dtype: str, n: int) -> np.ndarray[Any, Any]:
    """The frequencies of a real signal."""
    return np.fft.fft(samples("float64", n, 10)).astype(dtype)


def _whole_symbol(half: np.ndarray[Any, Any], n: int, turns: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """All frequencies from the non-negative ones along the last of ``turns``, by Hermitian symmetry."""
    axis = turns[-1]
    tail = np.conj(np.take(half, range(n - n // 2 - 1, 0, -1), axis=axis))
    for other in turns[:-1]:
        if half.ndim >= -other:
            tail = np.roll(np.flip(tail, other), 1, other)
    return np.concatenate([half, tail], axis=axis)


def _along(x: np.ndarray[Any, Any], axis: int, matrix: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.moveaxis(np.matmul(np.moveaxis(x, axis, -1), matrix.T), -1, axis)


def _transform_matrix(kind: str, n: int) -> np.ndarray[Any, Any]:
    """``M[k, j]`` of the transform."""
    pi = np.arccos(np.longdouble(-1))
    j = np.arange(n, dtype=np.longdouble)
    k = j[:, None]
    if kind == "fft":
        return np.asarray(np.exp(-2j * pi * ((k * j) % max(n, 1)) / max(n, 1)))
    if kind == "dct1":
        ends = np.where((j == 0) | (j == n - 1), 1, 2)
        return np.asarray(ends * np.cos(pi * k * j / max(n - 1, 1)))
    if kind == "dct2":
        return np.asarray(2 * np.cos(pi * k * (j + 0.5) / max(n, 1)))
    if kind == "dst1":
        return np.asarray(2 * np.sin(pi * (k + 1) * (j + 1) / (n + 1)))
    return np.asarray(2 * np.sin(pi * (k + 1) * (j + 0.5) / max(n, 1)))


def _inverse_matrix(kind: str, n: int) -> np.ndarray[Any, Any]:
    """``M[j, k]`` of the inverse: the transpose, divided by the squared norms of the rows."""
    forward = _transform_matrix(kind, n)
    if kind == "fft":
        return forward.conj().T / max(n, 1)
    if kind == "dct1":
        return forward / (2 * max(n - 1, 1))
    # Rows of a cosine or sine matrix are orthogonal.
    return np.asarray(forward.T / (forward * forward).sum(axis=1))


def reference(primitive: Primitive, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
    """A product with the matrix of each transform, and with its inverse, in extended precision."""
    call = primitive.describe(*arrays, **params)
    precision = np.finfo(call.dtype).dtype
    symbol, signal = (
        np.asarray(array).astype(np.result_type(precision, array.dtype) if array.dtype.kind == "c" else precision)
        for array in map(np.asarray, arrays)
    )
    symbol, signal = symbol.astype(np.clongdouble), signal.astype(np.clongdouble)
    chosen = [*call.facts["waves"], *((axis, "fft") for axis in call.facts["turns"])]
    if call.facts["real"] and call.facts["turns"]:
        axis = call.facts["turns"][-1]
        if symbol.ndim >= -axis and is_half(signal.shape[axis], symbol.shape[axis]):
            symbol = _whole_symbol(symbol, signal.shape[axis], call.facts["turns"])
    with np.errstate(all="ignore"):
        for axis, kind in chosen:
            signal = _along(signal, axis, _transform_matrix(kind, signal.shape[axis]))
        signal = signal * symbol
        for axis, kind in chosen:
            signal = _along(signal, axis, _inverse_matrix(kind, signal.shape[axis]))
    signal = np.broadcast_to(signal, call.shape)
    return np.ascontiguousarray(signal.real if call.facts["real"] else signal).astype(call.dtype)


def cases(primitive: Primitive, dtype: str) -> Iterator[Case]:
    """Each kind and mixtures of them, odd and even lengths, batches, layouts, and symbols of every shape."""
    real = not dtype.startswith("complex")
    number = "float32" if dtype in ("float32", "complex64") else "float64"
    for kind in KINDS:
        for points in (2 if kind == "dct1" else 1, 7, 12):
            symbol = _even_symbol(number, (points,), (-1,) if kind == "fft" else ())
            yield Case(f"{kind} of {points}", (symbol, samples(dtype, points, 1)), {"kinds": kind}, points in (7, 12))
        x = samples(dtype, (3, 2, 9), 2)
        symbol = _even_symbol(number, (9,), (-1,) if kind == "fft" else ())
        yield Case(f"{kind} batched", (symbol, x), {"kinds": kind}, differentiable=True)
        yield Case(f"{kind} along the first axis", (symbol[:, None, None], np.moveaxis(x, -1, 0)), _at(0, kind))
        yield Case(f"{kind} strided", (strided_view(symbol), strided_view(x)), {"kinds": kind})
        yield Case(f"{kind} reversed", (reversed_view(symbol), reversed_view(x)), {"kinds": kind})
        yield Case(f"{kind} of no rows", (symbol, samples(dtype, (0, 9), 3)), {"kinds": kind})
        yield Case(f"{kind} of no points", (samples(number, 1, 3), samples(dtype, (2, 0), 3)), {"kinds": kind})
    x = samples(dtype, (2, 5, 6, 4), 4)
    symbol = _even_symbol(number, (5, 6, 4), (-3, -2, -1))
    yield Case("three axes", (symbol, x), {"axes": (-3, -2, -1)}, differentiable=True)
    yield Case("four axes", (_even_symbol(number, (2, 5, 6, 4), (0, 1, 2, 3)), x), {"axes": (0, 1, 2, 3)})
    mixed = {"axes": [1, 3, 2], "kinds": ["dst1", "fft", "dct2"]}
    yield Case("mixed", (_even_symbol(number, (5, 6, 4), (-1,)), x), mixed, differentiable=True)
    yield Case("a symbol each", (_even_symbol(number, (2, 5, 6, 4), (-1,)), x), {})
    yield Case("more axes in the symbol", (_even_symbol(number, (3, 1, 4), (-1,)), x[0, 0]), {}, True)
    yield Case("one factor for all", (samples(number, 1, 5), x), {"axes": (-1, -2)})
    yield Case("a number", (samples(number, (), 5), x), {"kinds": "dst1"})
    if real:
        half = _even_symbol(number, (5, 6, 3), (-3, -2))
        yield Case("half a symbol", (half, x), {"axes": (-3, -2, -1)}, differentiable=True)
        wave = _hermitian("complex64" if number == "float32" else "complex128", 9)
        yield Case("a Hermitian symbol", (wave, samples(dtype, (2, 9), 6)), {"real": True}, differentiable=True)
        yield Case("half a Hermitian symbol", (wave[:5], samples(dtype, (2, 9), 6)), {"real": True})
        both = {"axes": (-2, -1), "kinds": ("dct2", "fft"), "real": True}
        yield Case("Hermitian and cosines", (wave, samples(dtype, (4, 9), 6)), both)
        if dtype == "float64":
            yield Case("integers", (symbol[0, 0], np.arange(-2, 2)), {})
            yield Case("a symbol of integers", (np.array([3, 1, 2, 1]), x), {})
    else:
        yield Case("a complex symbol", (samples(dtype, (6, 4), 7), x), {"axes": (-2, -1)}, differentiable=True)
        yield Case("a complex symbol of cosines", (samples(dtype, 4, 7), x), {"kinds": "dct2"})
        yield Case("a complex symbol of a real signal", (samples(dtype, 4, 7), samples(number, (3, 4), 8)), {})
        asked = {"real": False}
        yield Case("a one-sided symbol", (samples(number, 4, 7), samples(number, (3, 4), 8)), asked)
