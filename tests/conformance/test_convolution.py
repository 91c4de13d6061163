"""What every algorithm of the causal convolution must have in common, beyond the right answers."""

from __future__ import annotations

import numpy as np
import pytest

from hpfracc.engine.primitives import PRIMITIVES
from tests.helpers.conformance import Subject, each, solved
from tests.helpers.contracts import reference
from tests.helpers.thinned import thinned
from tests.helpers.tolerance import bound, disagreement

NAME = "causal_convolution"
PRIMITIVE = PRIMITIVES[NAME]


def convolve(subject: Subject, weights: np.ndarray, signal: np.ndarray) -> np.ndarray:
    return subject.run(PRIMITIVE.describe(weights, signal), (weights, signal), {})


def size(weights: np.ndarray, signal: np.ndarray) -> np.ndarray:
    """The error allowed at these operands."""
    return bound(PRIMITIVE.describe(weights, signal), (weights, signal), {}, signal)


def small_enough(subject: Subject, weights: np.ndarray, signal: np.ndarray) -> bool:
    return subject.serves(PRIMITIVE.describe(weights, signal))


def kernel_weights(n: int, dtype: str) -> np.ndarray:
    """Weights as operators have them: large at first, then a long tail."""
    return (np.arange(1, n + 1) ** -0.5 - np.arange(2, n + 2) ** -0.5).astype(dtype)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("taps", [40, 6])
@each(NAME)
@thinned(lambda bad, taps: taps == 6 or bad != bad)
def test_non_finite_samples_stay_causal(subject: Subject, taps: int, bad: float) -> None:
    """A bad sample reaches every output whose sum involves it, and leaves all others right."""
    n, place = (40, 11) if subject.spec.algorithm != "blocked" else (4200, 2100)
    weights = np.random.default_rng(1).standard_normal(taps)
    signal = np.random.default_rng(2).standard_normal((3, n))
    if not small_enough(subject, weights, signal):
        assert subject.spec.refuses is not None
        return
    allowed = size(weights, signal)
    answer = reference(PRIMITIVE, weights, signal)
    signal[1, place] = bad
    touched = np.zeros(signal.shape, bool)
    touched[1, place : place + taps] = True
    result = convolve(subject, weights, signal)
    assert not np.isfinite(result[touched]).any()
    assert disagreement(np.where(touched, 0, result), np.where(touched, 0, answer), allowed) is None


@each(NAME, prepared=True)
def test_prepared_weights_give_the_same_answer(subject: Subject) -> None:
    """A transform that is kept changes the time, not the result, however the weights broadcast."""
    names = PREPARED_CASES[: 2 if subject.spec.compiles == "shape" else None]
    cases = [each for each in solved(NAME, "float64") if each.case.name in names and subject.serves(each.call)]
    assert cases
    for solution in cases:
        case, call = solution.case, solution.call
        result = subject.run_prepared(call, case.arrays, case.params)
        words = disagreement(result, solution.answer, bound(call, case.arrays, case.params, solution.answer))
        assert words is None, case.name


PREPARED_CASES = ("several blocks", "broadcast weights", "no taps", "plain", "short weights", "long weights", "no rows")


@each(NAME, prepared=True)
def test_kept_weights_do_not_change_with_the_caller_s(subject: Subject) -> None:
    """What was prepared is a copy: the caller may use its array for something else."""
    n = 40 if subject.spec.algorithm != "blocked" else 4200
    weights, signal = kernel_weights(10, "float64"), np.ones(n)
    call = PRIMITIVE.describe(weights, signal)
    answer = reference(PRIMITIVE, weights, signal)
    assert subject.kernel.prepare is not None
    assert subject.kernel.apply is not None
    with subject.scope(call):
        operand, samples = subject.place(call, (weights, signal))
        prepared = subject.kernel.prepare(operand, call)
        weights[:] = 1e6
        result = subject.adapter.to_host(subject.kernel.apply(prepared, samples))
    assert disagreement(result, answer, size(np.ones(10), signal)) is None
