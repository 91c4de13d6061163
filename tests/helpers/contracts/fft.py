"""Reference and test cases of ``fft``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc.engine.primitives.base import Primitive
from hpfracc.engine.primitives.fft import NORMS
from tests.helpers.contracts import Case, reversed_view, samples, strided_view


def _spectrum(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    """The frequencies of a real signal: libraries disagree about an ``irfft`` of anything else."""
    return np.fft.rfft(samples("float64", shape, seed)).astype(dtype)


def reference(primitive: Primitive, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
    """The sum by definition, in extended precision."""
    call = primitive.describe(*arrays, **params)
    kind, norm = call.facts["kind"], params.get("norm", "backward")
    points = call.length
    x = np.moveaxis(np.asarray(arrays[0]).astype(call.dtype), params.get("axis", -1), -1).astype(np.clongdouble)
    wanted = call.facts["frequencies"] if kind == "irfft" else points
    x = x[..., :wanted]
    x = np.concatenate([x, np.zeros((*x.shape[:-1], wanted - x.shape[-1]), x.dtype)], axis=-1)
    if kind == "irfft" and points:
        tail = np.conj(x[..., 1 : points - wanted + 1][..., ::-1])
        ends = x.copy()
        ends[..., 0] = ends[..., 0].real  # imaginary parts that a real signal cannot have are ignored
        if points % 2 == 0:
            ends[..., -1] = ends[..., -1].real
        x = np.concatenate([ends, tail], axis=-1)
    index = np.arange(points, dtype=np.int64)
    turn = 2 * np.arccos(np.longdouble(-1))
    angles = turn * ((index[:, None] * index) % max(1, points)).astype(np.longdouble) / max(1, points)
    forward = kind in ("fft", "rfft")
    result = np.matmul(x, np.exp((-1j if forward else 1j) * angles))
    scale = {"backward": not forward, "forward": forward}.get(norm)
    result = result / (np.sqrt(np.longdouble(max(1, points))) if scale is None else max(1, points) if scale else 1)
    if kind == "rfft":
        result = result[..., : call.facts["frequencies"]]
    elif kind == "irfft":
        result = result.real
    return np.moveaxis(result.astype(call.facts["result"]), -1, params.get("axis", -1))


def cases(primitive: Primitive, dtype: str) -> Iterator[Case]:
    """Each kind that takes the dtype, over lengths, axes, scalings and memory layouts."""
    real = not dtype.startswith("complex")
    for kind in ("fft", "ifft", "rfft" if real else "irfft"):
        half = kind == "irfft"
        for points in (1, 2, 12, 31, 64, 101):
            x = _spectrum(dtype, (points,), 1) if half else samples(dtype, points, 1)
            yield Case(
                f"{kind} of {points}", (x,), {"kind": kind, "n": points} if half else {"kind": kind}, points == 12
            )
        x = _spectrum(dtype, (3, 4, 15), 2) if half else samples(dtype, (3, 4, 15), 2)
        odd = {"kind": kind, "n": 15} if half else {"kind": kind}
        for norm in NORMS:
            yield Case(f"{kind} batched, {norm}", (x,), {**odd, "norm": norm}, norm == "ortho")
        yield Case(f"{kind} along the first axis", (np.ascontiguousarray(np.moveaxis(x, -1, 0)),), {**odd, "axis": 0})
        yield Case(f"{kind} along the middle axis", (np.moveaxis(x, -1, 1),), {**odd, "axis": -2})
        yield Case(f"{kind} cut", (x,), {"kind": kind, "n": 9}, differentiable=True)
        yield Case(f"{kind} padded", (x,), {"kind": kind, "n": 21}, differentiable=True)
        yield Case(f"{kind} strided", (strided_view(x),), odd)
        yield Case(f"{kind} reversed", (reversed_view(x),), odd)
        yield Case(f"{kind} of no points", (samples(dtype, (2, 0), 3),), {"kind": kind})
        yield Case(f"{kind} of no rows", (samples(dtype, (0, 5), 3),), {"kind": kind})
        yield Case(f"{kind} of points out of nothing", (samples(dtype, (2, 0), 3),), {"kind": kind, "n": 5})
    if dtype == "float64":
        yield Case("fft of integers", (np.arange(-3, 9),), {"kind": "fft"})
