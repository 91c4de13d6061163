"""Orders that are functions of time, to a tolerance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import gamma

import hpfracc as hf
from hpfracc.special import mittag_leffler


def order(t: float) -> float:
    return 0.6 + 0.2 * float(np.sin(t))


def forced(t: float, y: Any) -> Any:
    """With the solution t^2."""
    return -y + t**2 + 2.0 * t ** (2.0 - order(t)) / gamma(3.0 - order(t))


@pytest.mark.parametrize("alpha", [0.4, 0.8, 1.0])
def test_a_constant_order_is_a_special_case(alpha: float):
    """Order 2 in the largest error for a solution that begins like t^alpha."""
    errors = []
    for steps in (40, 80, 160):
        found = hf.solve_fode(
            lambda t, y: -y, (0.0, 2.0), [1.0], lambda t: alpha, method="variable_order_l2", step=2.0 / steps
        )
        errors.append(float(np.abs(found.y[0] - mittag_leffler(-(found.t**alpha), alpha)).max()))
    assert np.log2(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.25)
    assert np.log2(errors[1] / errors[2]) == pytest.approx(2.0, abs=0.25)


def test_a_default_call_ends():
    """Without a step the second-order scheme is taken: some thousand steps, where L1 took a million."""
    found = hf.solve_fode(forced, (0.0, 1.0), [0.0], order, rtol=1e-5)
    assert found.success and found.decision.method == "variable_order_l2"
    assert found.stats["steps"] <= 4096
    assert np.all(np.abs(found.y[0] - found.t**2) <= 2e-9 + 2e-5 * found.t**2 + 1e-8)


def test_the_search_of_the_first_order_scheme_ends():
    """Orders for each component are left to L1, whose search gives up where that would take too long."""
    found = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0, 1.0], lambda t: [0.5, 0.6 + 0.1 * t], rtol=1e-9)
    assert not found.success and found.stats["steps"] <= 16384 and "max_steps" in found.message
