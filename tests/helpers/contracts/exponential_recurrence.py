"""Reference and test cases of ``exponential_recurrence``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc._xp import NUMPY
from hpfracc.engine.numerics.recurrence import arrival
from hpfracc.engine.primitives.base import Primitive
from tests.helpers.contracts import Case, reversed_view, samples, strided_view


def reference(primitive: Primitive, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
    """Step by step in extended precision."""
    call = primitive.describe(*arrays, **params)
    wide = np.clongdouble if call.dtype.startswith("complex") else np.longdouble
    rates, weights, steps = (np.asarray(array).astype(np.longdouble) for array in arrays[:3])
    batch, n = call.shape[:-1], call.length
    x = np.broadcast_to(np.asarray(arrays[3]).astype(wide), (*batch, n))
    state = np.broadcast_to(np.asarray(arrays[4]).astype(wide), (*batch, call.facts["terms"])).copy()
    state[~np.isfinite(state).all(-1)] = np.nan
    steps = np.broadcast_to(steps.reshape(-1), (n,))
    result: np.ndarray[Any, Any] = np.zeros((*batch, n), wide)
    for k in range(n):
        z = rates * steps[k]
        state = np.exp(-z) * state
        before = state @ weights
        state = state + arrival(NUMPY, z, params.get("degree")) * x[..., k, None]
        state[~np.isfinite(x[..., k])] = np.nan
        result[..., k] = before if params.get("lagged") else state @ weights
    return (np.concatenate([result, state], -1) if call.facts["final"] else result).astype(call.dtype)


def cases(primitive: Primitive, dtype: str) -> Iterator[Case]:
    """Uniform and non-uniform steps, each degree, initial and final states, and lengths beyond one segment."""

    def case(
        name: str,
        terms: int,
        signal: tuple[int, ...],
        steps: int | None = None,
        *,
        start: tuple[int, ...] = (),
        smooth: bool = False,
        **params: Any,
    ) -> Case:
        rates = np.geomspace(0.01, 30.0, terms) if terms else np.zeros(0)
        taken = np.array(0.1) if steps is None else 0.02 + 0.2 * np.abs(samples("float64", steps, 7))
        operands = (rates, samples("float64", terms, 1), taken, samples(dtype, signal, 2))
        initial = samples(dtype, (*start, terms), 3) if start or "final" in params else np.zeros(terms, dtype)
        return Case(name, (*operands, initial), params, differentiable=smooth)

    yield case("plain", 5, (12,), smooth=True)
    yield case("final states", 4, (3, 9), start=(3,), smooth=True, final=True)
    yield case("own steps", 4, (10,), 10, smooth=True, final=True, degree=0)
    yield case("lagged, own steps", 3, (2, 8), 8, smooth=True, lagged=True, degree=1)
    yield case("lagged, spread", 6, (2, 40), lagged=True, degree=0, final=True)
    yield case("long", 7, (2, 1500), start=(2,), final=True)
    yield case("longest, one term", 1, (20_000,), final=True)
    yield case("long, own steps", 7, (2, 1500), 1500, start=(2,), final=True, degree=0)
    yield case("lagged, long, own steps", 5, (1100,), 1100, lagged=True, degree=3)
    yield case("one point, states broadcast", 3, (2, 1, 1), 1, start=(4,), final=True)
    yield case("no points", 3, (2, 0), final=True)
    yield case("no rows", 3, (0, 6), final=True)
    yield case("no terms", 0, (2, 5), final=True)
    for name, steps in (("one step", None), ("own steps", 9)):
        lost = case(f"lagged, not finite, {name}", 3, (2, 9), steps, lagged=True, final=True)
        lost.arrays[3][0, 4] = lost.arrays[3][1, 8] = np.nan
        yield lost
    plain = case("strided", 4, (3, 10), 10, start=(3,), final=True)
    yield Case("strided", tuple(map(strided_view, plain.arrays)), plain.params)
    yield Case("reversed", tuple(map(reversed_view, plain.arrays)), plain.params)
    if dtype == "float64":
        whole = np.arange(-3, 6)
        yield Case("whole numbers", (np.array([1, 2]), np.array([1, -1]), np.array(1), whole, np.array([0, 1])))
