"""Reference and test cases of ``chirp_transform``."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from hpfracc.engine.primitives.base import Primitive
from tests.helpers.contracts import Case, reversed_view, samples, strided_view


def reference(primitive: Primitive, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
    """The sum by definition, in extended precision, with phases as exact fractions."""
    call = primitive.describe(*arrays, **params)
    first, second = (round(2 * offset) for offset in call.facts["offsets"])
    x = np.asarray(arrays[0]).astype(call.dtype).astype(np.clongdouble)
    rates = np.asarray(arrays[1], np.float64)
    n = 2 * np.arange(call.length).astype(object)[:, None] + first
    k = 2 * np.arange(call.facts["points"]).astype(object) + second
    phases = np.zeros((*rates.shape[:-1], call.length, call.facts["points"]), np.longdouble)
    for row in np.ndindex(rates.shape[:-1]):
        r = [sum(map(Fraction, map(float, rates[row][i::3]))) / 4 for i in range(3)]
        phases[row] = (n * n * r[0] + n * k * r[1] + k * k * r[2]) % 1
    kernel = np.exp(-2j * np.arccos(np.longdouble(-1)) * phases)
    result = (x[..., :, None] * kernel).sum(-2)
    return np.asarray(np.broadcast_to(result, call.shape).astype(call.facts["result"]))


def cases(primitive: Primitive, dtype: str) -> Iterator[Case]:
    """Rates of every size and sign, more and fewer points than samples, offsets, batches, memory layouts."""
    rates = np.array([0.013, 0.1, -0.027])
    x = samples(dtype, 12, 1)
    yield Case("a few", (samples(dtype, 3, 11), rates), {"offsets": (-1.0, -0.5)}, differentiable=True)
    yield Case("Fourier", (samples(dtype, 40, 2), np.array([0.0, 1 / 40, 0.0])))
    yield Case("large rates", (samples(dtype, 33, 3), np.array([7.3, -12.9, 101.7])))
    yield Case("one point", (x[:1], rates))
    yield Case("more points", (x, rates), {"points": 31})
    yield Case("fewer points", (samples(dtype, 101, 4), rates), {"points": 5})
    yield Case("centred", (x, rates), {"offsets": (-6.0, -5.5)})
    yield Case("far away", (x, rates), {"offsets": (-900.5, 4000.0), "points": 20})
    yield Case("batched", (samples(dtype, (3, 4, 15), 5), rates), {"offsets": (0.5, -7.0)})
    many = np.linspace(-0.4, 0.4, 12).reshape(4, 3)
    yield Case("rates for each row", (samples(dtype, (2, 4, 3), 12), many), {"offsets": (-1.0, -1.0)}, True)
    yield Case("rates in two parts", (x, np.concatenate([rates, 1e-9 * rates])))
    yield Case("no samples", (x[:0], rates), {"points": 4})
    yield Case("no points", (x, rates), {"points": 0})
    yield Case("no rows", (samples(dtype, (0, 6), 7), rates))
    yield Case("strided", (strided_view(samples(dtype, (3, 20), 8)), rates))
    yield Case("reversed", (reversed_view(samples(dtype, (3, 20), 9)), rates))
    yield Case("transposed", (samples(dtype, (20, 3), 10).T, rates))
    if dtype == "float64":
        yield Case("integers", (np.arange(-3, 9), np.array([1, 2, 3])))
