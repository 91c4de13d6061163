"""The search of a fit: it ends at the minimum in any units, and does not leave the orders that an equation can have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.solvers.fitting.search import LeastSquares

T = np.linspace(0.0, 2.0, 12)
CLEAN = np.asarray(hf.mittag_leffler(-(T**0.7), 0.7))
DATA = CLEAN + 1e-3 * np.random.default_rng(0).standard_normal(T.size)


def decay(t: float, y: Any, rate: Any) -> Any:
    return -rate * y


@pytest.mark.parametrize(
    "options",
    [{"rtol": 1e-3, "alpha": 0.7}, {"step": 0.1, "halve": False}, {"step": 0.1, "halve": False, "loss": "soft_l1"}],
)
def test_estimates_do_not_depend_on_the_units_of_the_data(options: dict[str, Any]):
    """A current in amperes is 1e-12 where it is 1 in picoamperes."""
    found = []
    for unit in (1.0, 1e-12):
        robust = {"f_scale": 1e-3 * unit} if "loss" in options else {}
        fit = hf.fit_fode(decay, T, unit * DATA, parameters={"rate": 0.5}, **options, **robust)
        units = [unit if name == "y0[0]" else 1.0 for name in fit.names]
        found.append([fit.estimates / units, fit.standard_errors / units])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-3)


@pytest.mark.parametrize("unit", [1e-150, 1e-9, 1.0, 1e150])
def test_a_search_ends_at_the_minimum(unit: float):
    """The bound of the gradient is relative to the first residuals; the cost is that of the residuals as given."""

    def values(x: Any) -> Any:
        return unit * x[0] * np.exp(-x[1] * T)

    def slopes(x: Any) -> Any:
        return unit * np.exp(-x[1] * T)[:, None] * np.stack([np.ones_like(T), -x[0] * T], axis=1)

    free = np.full(2, np.inf)
    problem = LeastSquares(("a", "k"), values, slopes, values([2.0, 1.5]) + unit * (DATA - CLEAN), -free, free)
    found = problem.minimise(np.array([1.0, 1.0]))
    np.testing.assert_allclose(found.x, [2.0, 1.5], atol=5e-3)
    assert found.cost == pytest.approx(0.5 * float(np.sum(problem.residuals(found.x) ** 2)))


@pytest.mark.filterwarnings("ignore::hpfracc.AccuracyWarning")
@pytest.mark.parametrize(("alpha", "order", "seed"), [("free", 0.7, 3), ("free", "free", 8), (0.75, "free", 5)])
def test_the_order_of_a_term_stays_below_alpha(alpha: Any, order: Any, seed: int):
    """Noisy data draw the orders together; the search neither fails there nor crosses over."""
    t, start = np.linspace(0.0, 4.0, 30), [1.0]
    truth = hf.solve_fode(lambda t, y: -1.5 * y, (0.0, 4.0), start, 0.75, terms=[(0.6, 0.7)], t_eval=t, step=0.1).y[0]
    fit = hf.fit_fode(
        decay, t, truth + 0.06 * np.random.default_rng(seed).standard_normal(t.size), parameters={"rate": 0.5},
        alpha=alpha, y0=start, terms=[("free" if alpha == order else 0.6, order)], step=0.2, halve=False,
        guess={"orders": [0.79 if alpha == order else 0.5]},
    )  # fmt: skip
    assert fit.success and fit.terms[0][1] < fit.alpha
