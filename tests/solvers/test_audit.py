"""``hf.audit`` judges solutions by their defect, whoever computed them."""

from __future__ import annotations

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError

T = np.linspace(0.0, 2.0, 101)


def decay(t, y):
    return -y


def exact(alpha, t=T):
    return np.asarray(hf.mittag_leffler(-(t**alpha), alpha))


@pytest.mark.parametrize("alpha", [0.3, 0.8, 1.0, 1.6])
def test_exact_values_pass_with_a_bound_near_rounding(alpha: float):
    found = hf.audit(decay, (T, exact(alpha)[None]), alpha=alpha, dy0=[0.0])
    assert found.ok
    assert found.error < 1e-8


@pytest.mark.parametrize("alpha", [0.3, 0.8, 1.6])
def test_spoiled_values_are_found(alpha: float):
    y = exact(alpha)
    changed = y.copy()
    changed[60] += 1e-4
    found = hf.audit(decay, (T, changed[None]), alpha=alpha, dy0=[0.0])
    assert not found.ok
    assert found.t == pytest.approx(T[60])
    assert 1e-4 <= found.error <= 2e-4
    assert not hf.audit(decay, (T, y[None]), alpha=alpha + 1e-3, dy0=[0.0]).ok
    assert not hf.audit(decay, (T[:-1], np.delete(y, 60)[None]), alpha=alpha, dy0=[0.0]).ok


def test_a_pulse_between_the_steps_is_found():
    """One of a hundredth of the interval, at any place; the solution knows nothing of it."""
    for start in np.random.default_rng(0).uniform(0.1, 1.9, 3):
        found = hf.audit(lambda t, y, s=start: -y + 1.0 * (s < t < s + 0.02), (T, exact(0.5)[None]), alpha=0.5)
        assert not found.ok
        assert found.t >= start


def test_the_bound_of_a_solve_holds_and_is_not_far():
    solution = hf.solve_fode(decay, (0.0, 2.0), [1.0], 0.6, rtol=1e-4, atol=1e-8, dense_output=True)
    t = np.geomspace(1e-6, 2.0, 500)
    error = np.abs(solution.sol(t)[0] - exact(0.6, t)).max()
    found = hf.audit(decay, solution)
    assert found.ok
    assert error <= found.error <= 10.0 * error


def test_the_tolerance_is_that_of_the_result():
    rough = hf.solve_fode(decay, (0.0, 2.0), [1.0], 0.6, step=0.1, method="implicit_trapezoid")
    assert not hf.audit(decay, rough).ok
    assert hf.audit(decay, rough, rtol=0.05).ok


def test_systems_of_several_orders_and_functions():
    """(t + 1, t^1.2 + 0.5), by a function of time, with its own orders."""

    def fun(t, y):
        return np.array([(t**0.5) / 0.886226925452758, 1.10180249087971 * (y[0] - 1.0)])

    right = hf.audit(fun, lambda t: np.array([t + 1.0, t**1.2 + 0.5]), alpha=[0.5, 0.2], t_span=(0.0, 5.0))
    assert right.ok, right
    wrong = hf.audit(fun, lambda t: np.array([t + 1.0, t**1.21 + 0.5]), alpha=[0.5, 0.2], t_span=(0.0, 5.0))
    assert not wrong.ok


@pytest.mark.parametrize(("options", "message"), [({}, "alpha"), ({"alpha": 1.5}, "dy0"), ({"alpha": -0.5}, "above 0")])
def test_what_cannot_be_judged_is_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        hf.audit(decay, (T, exact(0.5)[None]), **options)
