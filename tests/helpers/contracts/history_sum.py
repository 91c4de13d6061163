"""Reference and test cases of ``history_sum``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc._xp import NUMPY
from hpfracc.engine.numerics.history_sums import block_of_weights
from hpfracc.engine.primitives.base import Primitive
from tests.helpers.contracts import Case, reversed_view, samples, strided_view


def reference(primitive: Primitive, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
    """The whole matrix of weights, in extended precision."""
    call = primitive.describe(*arrays, **params)
    wide = np.clongdouble if call.dtype.startswith("complex") else np.longdouble
    times, *parameters = (np.asarray(array).astype(np.longdouble) for array in (arrays[0], *arrays[2:]))
    x = np.asarray(arrays[1]).astype(wide)
    if call.facts["kernel"] != "tabulated":
        parameters = [parameter.reshape(()) for parameter in parameters]
    if not call.length:
        return x.astype(call.dtype)
    kernel, places = call.facts["kernel"], np.arange(call.length)
    weights, first = block_of_weights(NUMPY, kernel, times, tuple(parameters), times, places, call.facts["scaled"])
    bad = ~np.isfinite(x)
    bad[..., :first] = False
    result = np.where(bad | ~np.isfinite(x), 0, x)[..., first:] @ weights.T
    seen = np.logical_or.accumulate(bad, -1)
    return np.where(seen, np.nan, result).astype(call.dtype)


def cases(primitive: Primitive, dtype: str) -> Iterator[Case]:
    """Each kernel, graded and clustered grids, and more points than fit a block."""
    half = np.array(-0.5)

    def times(n: int, start: float = 0.0) -> np.ndarray[Any, Any]:
        return start + np.cumsum(0.3 + np.abs(samples("float64", n, 5)))

    # Steps not much below 1: the second derivative in the times is checked against differences.
    grid = np.arange(10) + 0.1 * samples("float64", 10, 6)
    yield Case("power", (grid, samples(dtype, (10,), 1), half), {"kernel": "power"}, differentiable=True)
    smooth = {"kernel": "tempered"}
    yield Case("tempered", (times(9), samples(dtype, (2, 9), 1), half, np.array([0.7])), smooth, True)
    yield Case("logarithmic", (times(9, 1.0), samples(dtype, (3, 9), 2), half), {"kernel": "logarithmic"}, True)
    newest = {"kernel": "power", "scaled": True}
    yield Case("scaled", (grid, samples(dtype, (10,), 1), half), newest, differentiable=True)
    yield Case("scaled, at its limit", (times(12), samples(dtype, (2, 12), 1), np.array(-1.0)), newest)
    table = (np.linspace(0.0, 5.0, 11), samples("float64", 11, 4))
    yield Case("tabulated", (times(15), samples(dtype, (2, 15), 2), *table), {"kernel": "tabulated"})
    graded = np.linspace(0.0, 1.0, 60) ** 8  # steps from 6e-15 to 0.1
    yield Case("graded, growing", (graded, samples(dtype, (2, 2, 60), 3), np.array(0.8)), {"kernel": "power"})
    yield Case("several blocks", (times(1050), samples(dtype, (1050,), 3), half), {"kernel": "power"})
    yield Case("one point", (times(1), samples(dtype, (3, 1), 3), half), {"kernel": "power"})
    yield Case("no points", (times(0), samples(dtype, (3, 0), 3), half), {"kernel": "power"})
    yield Case("no rows", (times(5), samples(dtype, (0, 5), 3), half), {"kernel": "power"})
    rows = samples(dtype, (3, 14), 3)
    yield Case("strided", (strided_view(times(14)), strided_view(rows), half), {"kernel": "power"})
    yield Case("reversed", (reversed_view(times(14)), reversed_view(rows), half), {"kernel": "power"})
    if dtype == "float64":
        yield Case("whole numbers", (np.arange(8), np.arange(8), np.array(1)), {"kernel": "power"})
