"""Sequences behind the weights keep their digits at any length, against mpmath."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

from hpfracc._xp import NUMPY
from hpfracc.operators.core import sequences

FAR = [1e3, 12345.0, 1e5, 1e7, 1e9]
NEAR = [1, 2, 3, 7, 8, 63, 64, 65, 127, 128, 129, 200]


def relative(value: float, right: Any) -> float:
    return float(abs(mpmath.mpf(float(value)) / right - 1))


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(60):
        yield


def power_difference(p: Any, k: Any) -> Any:
    return (k + 1) ** p - k**p


def second_difference(p: Any, k: Any) -> Any:
    return (k + 1) ** p - 2 * k**p + (k - 1) ** p


def tangent_defect(p: Any, k: Any) -> Any:
    return (k + 1) ** p - k**p - p * k ** (p - 1)


def trapezoid_defect(p: Any, k: Any) -> Any:
    return ((k + 1) ** (p + 1) - k ** (p + 1)) / (p + 1) - ((k + 1) ** p + k**p) / 2


CASES = [
    ("power_differences", "power_difference", power_difference, [0.01, 0.1, 0.5, 0.9, 1.5], ()),
    ("second_differences", "second_difference", second_difference, [1.1, 1.5, 1.9, 2.5, 3.5], ()),
    ("tangent_defects", "tangent_defect", tangent_defect, [1.1, 1.5, 1.9, 2.5, 3.5], (9,)),
    ("trapezoid_defects", "trapezoid_defect", trapezoid_defect, [0.01, 0.1, 0.5, 0.9], (4,)),
]


@pytest.mark.parametrize(("whole", "at", "right", "powers", "terms"), CASES)
def test_powers_keep_their_digits(whole: str, at: str, right: Any, powers: list[float], terms: tuple[int, ...]):
    """Differences of powers are right to 3e-14 from k = 1 to 1e9, where written out they have no digit left."""
    for p in powers:
        exact = mpmath.mpf(p)
        sequence = getattr(sequences, whole)(NUMPY, p, 300)
        far = getattr(sequences, at)(NUMPY, p, np.array(FAR), *terms)
        assert max(relative(sequence[k], right(exact, mpmath.mpf(k))) for k in NEAR) <= 3e-14
        assert max(relative(value, right(exact, mpmath.mpf(k))) for value, k in zip(far, FAR, strict=True)) <= 3e-14


@pytest.mark.parametrize("p", [1.0001, 1.01, 1.1, 1.5, 2.0, 2.5, 4.7, 6.0])
def test_tangent_defects_of_powers_close_to_one(p: float):
    """Nor do those of an order close to 0 lose digits, which are all small; across both seams of the pieces."""
    sequence = sequences.tangent_defects(NUMPY, p, 1001)
    for k in (1, 2, 3, 5, 6, 7, 8, 9, 63, 64, 510, 511, 512, 513, 1000):
        assert relative(sequence[k], tangent_defect(mpmath.mpf(p), mpmath.mpf(k))) <= 6e-15


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9, 1.3, 1.8, 2.5, 3.7, 5.2, -0.5, -1.5, -4.5])
def test_binomials_keep_their_digits(alpha: float):
    """``(-1)^k binom(alpha, k)`` is right to 3e-14 from k = 1 to 1e9."""
    sequence = sequences.binomials(NUMPY, alpha, 300)
    far = sequences.binomial(NUMPY, alpha, np.array(FAR), sequence[128])
    for k in NEAR:
        assert relative(sequence[k], (-1) ** k * mpmath.binomial(mpmath.mpf(alpha), k)) <= 3e-14
    for value, k in zip(far, FAR, strict=True):
        exact = mpmath.gammaprod([k - mpmath.mpf(alpha)], [-mpmath.mpf(alpha), mpmath.mpf(k) + 1])
        assert relative(value, exact) <= 3e-14


@pytest.mark.parametrize("alpha", [0.0, 1.0, 3.0])
def test_binomials_of_whole_orders_end(alpha: float):
    """``(1 - z)^m`` has m + 1 coefficients and then exact zeros, also beyond the recurrence."""
    sequence = sequences.binomials(NUMPY, alpha, 400)
    m = int(alpha)
    assert sequence[: m + 1].tolist() == [(-1) ** k * float(mpmath.binomial(m, k)) for k in range(m + 1)]
    assert not sequence[m + 1 :].any()
