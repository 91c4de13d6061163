"""``max_step`` and ``first_step``: what an adaptive method may do, as in SciPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import gamma

import hpfracc as hf
from hpfracc.errors import InvalidInputError

WIDTH, AT, ALPHA = 0.02, 7.3, 0.8


def pulse(t: float, y: Any) -> Any:
    """A bump with smooth ends, and nothing elsewhere."""
    x = (t - AT) / WIDTH
    return np.full_like(y, math.cos(0.5 * math.pi * x) ** 4 if abs(x) < 1.0 else 0.0)


def after_the_pulse(t: float) -> float:
    """The fractional integral of the pulse by quadrature."""
    x, weights = np.polynomial.legendre.leggauss(40)
    s = AT + WIDTH * x
    values = np.cos(0.5 * np.pi * x) ** 4
    return float(WIDTH * np.sum(weights * values * (t - s) ** (ALPHA - 1.0)) / gamma(ALPHA))


def solve(**options: Any) -> Any:
    return hf.solve_fode(pulse, (0.0, 10.0), [0.0], ALPHA, **options)


@pytest.mark.parametrize("method", ["adaptive", "adaptive_local"])
def test_a_narrow_pulse_is_not_stepped_over(method: str):
    """Without a limit no step ever sees it, with one of its width it is taken to the tolerance."""
    blind = solve(method=method)
    assert np.all(blind.y == 0.0)  # what the limit is for
    seeing = solve(method=method, max_step=WIDTH)
    assert seeing.success
    assert seeing.y[0, -1] == pytest.approx(after_the_pulse(10.0), rel=1e-4)
    assert np.max(np.diff(seeing.t)) <= WIDTH * (1.0 + 1e-12)


def test_the_first_step_is_the_one_that_was_asked_for():
    """Where its error allows: the first time after t0 is that far away."""
    result = hf.solve_fode(lambda t, y: -y, (1.0, 2.0), [1.0], 0.9, first_step=1e-7)
    assert result.success and result.t[1] - 1.0 == pytest.approx(1e-7, rel=1e-6)
    assert hf.solve_fode(lambda t, y: -y, (1.0, 2.0), [1.0], 0.9, first_step=0.5).t[1] < 1.4  # rejected, and shortened


def test_both_limits_hold_with_delays_and_in_batches():
    """Steps that other reasons shorten are shortened from there."""
    result = hf.solve_fode(
        lambda t, y, past: -past[0], (0.0, 2.0), [[1.0, 2.0]], 0.8, delays=[0.5], history=lambda t: 1.0,
        max_step=0.03, first_step=1e-6,
    )  # fmt: skip
    assert result.success and np.max(np.diff(result.t)) <= 0.03 * (1.0 + 1e-12)
    assert result.t[1] == pytest.approx(1e-6)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_step": 0.0}, "max_step=0.0: give a number above 0"),
        ({"max_step": -1.0}, "max_step"),
        ({"max_step": math.nan}, "max_step"),
        ({"max_step": "short"}, "max_step='short'"),
        ({"max_step": True}, "max_step=True"),
        ({"first_step": 0.0}, "first_step=0.0: give a number above 0"),
        ({"first_step": 11.0}, "longer than the interval, 10"),
        ({"first_step": 0.2, "max_step": 0.1}, "longer than max_step=0.1"),
        ({"max_step": 0.1, "step": 0.01}, "makes them equal"),
        ({"max_step": 0.1, "method": "bdf2"}, "method='bdf2' takes equal steps"),
        ({"first_step": 0.1, "method": "l1"}, "first_step=0.1 is for methods with adaptive"),
    ],
)
def test_limits_that_make_no_sense_are_refused(options: dict[str, Any], reason: str):
    """Never ignored: bad values, contradictions, and methods whose steps do not adapt."""
    with pytest.raises(InvalidInputError, match=reason):
        solve(**options)


def test_no_limit_is_no_limit():
    """``max_step=inf``, as SciPy has it by default, changes nothing."""
    one, other = solve(max_step=math.inf), solve()
    assert np.array_equal(one.t, other.t)
    assert hf.solve_fode(pulse, (0.0, 1.0), [0.0], ALPHA, step=0.1, max_step=math.inf).success
