"""Equations with the user's own kernel, beside Caputo's, several terms and the Laplace transform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.special import exp1, gamma

import hpfracc as hf
from hpfracc.errors import InvalidInputError
from hpfracc.special import mittag_leffler
from tests.helpers.convergence import observed_order


def _power(alpha: float) -> Callable[[Any], Any]:
    return lambda t: t**-alpha / gamma(1.0 - alpha)


def _two(t: Any) -> Any:
    return _power(0.5)(t) + 2.0 * _power(0.2)(t)


def _tempered(t: Any) -> Any:
    return np.exp(-3.0 * t) * _power(0.5)(t)


_ORDERS, _MASSES = np.polynomial.legendre.leggauss(40)


def _distributed(t: Any) -> Any:
    """Orders from 0.2 to 0.8, equally."""
    orders = 0.5 + 0.3 * _ORDERS
    return np.power.outer(t, -orders) / gamma(1.0 - orders) @ (0.3 * _MASSES)


def _solve(kernel: Any, fun: Any = lambda t, y: -y, end: float = 2.0, **options: Any) -> Any:
    return hf.solve_fode(fun, (0.0, end), [1.0], None, derivative=hf.SonineDerivative(kernel), **options)


@pytest.mark.parametrize("alpha", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_power_is_caputos_derivative(alpha: float):
    """The same steps as with derivative='caputo', the same solution and estimate."""
    tolerance = {"rtol": 1e-6, "atol": 1e-9}
    found = _solve(_power(alpha), **tolerance)
    caputo = hf.solve_fode(lambda t, y: -y, (0.0, 2.0), [1.0], alpha, **tolerance)
    assert found.success and found.stats["steps"] == caputo.stats["steps"]
    assert found.y == pytest.approx(caputo.y, abs=1e-10)
    assert found.error_estimate == pytest.approx(caputo.error_estimate, rel=1e-3)
    exact = mittag_leffler(-(found.t**alpha), alpha)
    assert np.abs(found.y[0] - exact).max() <= found.error_estimate


def test_two_powers_are_two_terms():
    """The kernel of D^0.5 + 2 D^0.2, with a forcing, dense output and a breakpoint."""

    def fun(t: float, y: Any) -> Any:
        return -y + np.sin(t) + (t >= 0.7)

    t = np.linspace(0.0, 2.0, 9)
    found = _solve(_two, fun, t_eval=t, breakpoints=[0.7], dense_output=True)
    other = hf.solve_fode(
        fun, (0.0, 2.0), [1.0], 0.5, terms=[(2.0, 0.2)], t_eval=t, breakpoints=[0.7], rtol=1e-9, atol=1e-11
    )
    assert np.abs(found.y - other.y).max() <= found.error_estimate < 2e-6
    assert found.sol(t) == pytest.approx(found.y, abs=1e-8)


@pytest.mark.parametrize(
    ("kernel", "transform", "rtol"),
    [
        (_tempered, lambda s: (s + 3) ** mpmath.mpf(-0.5), 1e-6),
        (_distributed, lambda s: (s ** mpmath.mpf(0.8) - s ** mpmath.mpf(0.2)) / mpmath.log(s) / s, 1e-6),
        # Logarithms at 0: of an exponential integral, and times a power.
        (exp1, lambda s: mpmath.log(1 + s) / s, 1e-4),
        pytest.param(exp1, lambda s: mpmath.log(1 + s) / s, 1e-6, marks=pytest.mark.slow),
        (
            lambda t: t**-0.5 * (3.0 - np.log(t)),
            lambda s: mpmath.gamma(0.5) * s**-0.5 * (3 + mpmath.log(s) - mpmath.digamma(0.5)),
            1e-6,
        ),
    ],
)
def test_other_kernels_by_their_transforms(kernel: Any, transform: Any, rtol: float):
    """Tempered, of distributed orders, logarithmic: the inverse Laplace transform, within tolerance and estimate."""
    t = np.array([1e-4, 0.1, 1.0, 2.0])
    found = _solve(kernel, t_eval=t, rtol=rtol, atol=1e-3 * rtol)
    with mpmath.workdps(30):
        exact = [
            float(mpmath.invertlaplace(lambda s: transform(s) / (s * transform(s) + 1), each, method="talbot"))
            for each in t
        ]
    error = np.abs(found.y[0] - exact).max()
    assert found.success and error < rtol and error <= found.error_estimate < 3.0 * rtol


def test_a_stiff_system_and_an_event():
    """A system whose fast component is damped, and the time at which the slow one halves."""

    def halved(t: float, y: Any) -> float:
        return float(y[1]) - 0.5

    halved.terminal = True  # type: ignore[attr-defined]
    found = hf.solve_fode(
        lambda t, y: np.array([-1e6 * (y[0] - y[1]), -y[1]]), (0.0, 4.0), [1.0, 1.0], None,
        derivative=hf.SonineDerivative(_power(0.5)), events=halved,
    )  # fmt: skip
    caputo = hf.solve_fode(lambda t, y: -y, (0.0, 4.0), [1.0], 0.5, events=lambda t, y: float(y[0]) - 0.5)
    assert found.t_events[0] == pytest.approx(caputo.t_events[0], rel=1e-5)
    assert found.y[0, -1] == pytest.approx(0.5, abs=1e-5)


def test_the_error_follows_the_steps():
    """With steps of equal length behind the start the order is at least 2, as for Caputo's derivative."""
    steps, errors = [0.08, 0.04, 0.02], []
    with mpmath.workdps(30):
        exact = float(mpmath.invertlaplace(lambda s: (s + 3) ** -0.5 / (s * (s + 3) ** -0.5 + 1), 2.0, method="talbot"))
    for step in steps:
        found = _solve(_tempered, max_step=step, rtol=0.1 * step**3, atol=1e-2 * step**3, method="adaptive_local")
        errors.append(abs(float(found.y[0, -1]) - exact))
    assert observed_order(steps, errors) > 1.8


@pytest.mark.parametrize(
    ("kernel", "options", "complaint"),
    [
        (_power(0.5), {"alpha": 0.5}, "give alpha=None"),
        (_power(0.5), {"step": 0.1}, "takes adaptive steps; omit step"),
        (_power(0.5), {"method": "bdf2"}, "takes adaptive steps"),
        (_power(0.5), {"terms": [(1.0, 0.2)]}, "omit terms"),
        (_power(0.5), {"compile": True}, "not compiled"),
        (_power(0.5), {"backend": "numba"}, "not compiled here: its derivative is not Caputo's; omit Numba"),
        (_power(0.5), {"rate": 1.0}, "belongs to derivative='tempered_caputo'"),
        (_tempered, {"rtol": 1e-11}, "as a sum of exponentials has an error of .* give rtol="),
        (lambda t: np.exp(-t), {}, "has no associated kernel"),
        (lambda t: t**-1.2, {}, "not integrable"),
        (lambda t: t**0.5, {}, "increases"),
    ],
)
def test_what_cannot_be_solved(kernel: Any, options: dict[str, Any], complaint: str):
    """It is refused before the first step, in words."""
    given = {"alpha": None} | options
    with pytest.raises(InvalidInputError, match=complaint):
        hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], derivative=hf.SonineDerivative(kernel), **given)


@pytest.mark.parametrize("derivative", [hf.Caputo(0.5), 3, None])
def test_other_objects_are_no_derivative(derivative: Any):
    """Only a name, or a derivative with its kernel."""
    with pytest.raises(InvalidInputError, match="neither a name, such as 'caputo', nor a hf.SonineDerivative"):
        hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], 0.5, derivative=derivative)
