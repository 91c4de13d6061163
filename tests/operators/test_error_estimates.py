"""Error estimates against true errors: of callables on short and long intervals, and of samples that are rounding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from tests.helpers.exact import caputo_of_exponential, of_exponential

PLACES = np.linspace(0.0, 1.0, 7)[1:]


def held(result: Any, exact: np.ndarray, rtol: float) -> None:
    """The error is within twice its estimate, and within the tolerance wherever the result says so."""
    error, largest = float(np.abs(result.value - exact).max()), float(np.abs(exact).max())
    assert error <= 2.0 * float(np.max(result.error_estimate))
    if result.converged:
        assert error <= rtol * largest
    else:
        assert "rounding leaves an error above rtol" in result.message


@pytest.mark.parametrize("alpha", [0.3, 1.0, 1.5, 2.5])
@pytest.mark.parametrize("length", [1e-8, 1e-6, 1e-3, 1.0, 1e4, 1e8])
def test_callables_on_intervals_of_any_length(length: float, alpha: float):
    """exp, hardly moving on a short interval, where a derivative is rounding; and exp on the interval's own scale."""
    t = length * PLACES
    if length <= 1.0:
        found = hf.caputo(np.exp, t, alpha, full_output=True)
        held(found, caputo_of_exponential(1.0, alpha, t).real, 1e-10)
        held(hf.riemann_liouville(np.exp, t, alpha, full_output=True), of_exponential(1.0, alpha, t).real, 1e-10)
    own = hf.caputo(lambda s: np.exp(-3.0 * s / length), t, alpha, full_output=True)
    assert own.converged
    held(own, caputo_of_exponential(-3.0 / length, alpha, t).real, 1e-10)


@pytest.mark.parametrize("length", [1e-8, 1e-4, 1.0])
def test_quadrature_counts_the_rounding_of_differences(length: float):
    """Caputo-Fabrizio of exp, where f(t) - f(s) has few digits on a short interval."""
    t = length * PLACES
    exact = 2.0 * np.exp(t) * -np.expm1(-2.0 * t) / 2.0  # at alpha = 1/2
    held(hf.caputo_fabrizio(np.exp, t, 0.5, full_output=True), exact, 1e-10)
    assert hf.caputo_fabrizio(np.exp, t, 0.5, full_output=True).converged is (length > 1e-6)


def test_a_looser_tolerance_is_met_where_the_default_is_not():
    """What rounding leaves is compared with the tolerance that was asked for."""
    t = 1e-6 * PLACES
    assert not hf.caputo(np.exp, t, 0.5, full_output=True).converged
    assert hf.caputo(np.exp, t, 0.5, rtol=1e-6, full_output=True).converged
    assert math.isfinite(float(hf.caputo(np.exp, t, 0.5)[-1]))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("alpha", [0.5, 1.5, 2.5, 3.5, 5.5])
@pytest.mark.parametrize(
    ("operator", "method", "known"),
    [
        (hf.Caputo, "l1-2", caputo_of_exponential),
        (hf.RiemannLiouville, "l1-2", of_exponential),
        (hf.RiemannLiouville, "cq4", of_exponential),
    ],
)
def test_samples_that_are_rounding(operator: Any, method: str, known: Any, alpha: float, dtype: str):
    """Derivatives of exp from samples so fine that their rounding is what is left: the estimate is never below it."""
    t = np.linspace(0.0, 1.0, 2001)
    found = operator(alpha, method)(np.exp(t).astype(dtype), t, full_output=True)
    # Not at the first points, where the start of the rule is not measured by its companion.
    places = np.arange(200, 2001, 180)
    error = np.abs(found.value[places] - known(1.0, alpha, t[places]).real)
    assert (error <= 2.0 * found.error_estimate[places]).all()


def test_rounding_that_is_all_there_is_is_told():
    """At order 5.5 the message says so; at order 0.5 there is nothing to say, and nan among samples is no hindrance."""
    t = np.linspace(0.0, 1.0, 2001)
    f = np.exp(t)
    assert "rounding of the samples alone causes an error of up to" in hf.caputo(f, t, 5.5, full_output=True).message
    assert "rounding of the samples" in hf.grunwald_letnikov(t**6, t, 5.5, full_output=True).message
    f[1500] = np.nan
    found = hf.caputo(f, t, 0.5, full_output=True)
    assert found.message == ""
    assert np.isfinite(found.error_estimate[2:1500]).all()
