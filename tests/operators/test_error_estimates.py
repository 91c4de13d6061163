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
    """At order 5.5 the message says so; at order 0.5 it says where there is none; nan among samples does not matter."""
    t = np.linspace(0.0, 1.0, 2001)
    f = np.exp(t)
    assert "rounding of the samples alone causes an error of up to" in hf.caputo(f, t, 5.5, full_output=True).message
    assert "rounding of the samples" in hf.grunwald_letnikov(t**6, t, 5.5, full_output=True).message
    f[1500] = np.nan
    found = hf.caputo(f, t, 0.5, full_output=True)
    assert found.message == "no error estimate at 503 of 2001 points"  # at the first two, and from the nan on
    assert np.isfinite(found.error_estimate[2:1500]).all()


@pytest.mark.parametrize(
    ("alpha", "p", "make"), [(2.174, 2.268, hf.Caputo), (1.058, 1.757, hf.Caputo), (1.425, 1.765, hf.RiemannLiouville)]
)
def test_callables_like_a_power(alpha: float, p: float, make: Any):
    """Coefficients that fall like a power of k: all that are left out count, converged or not."""
    t = np.array([0.3, 0.7, 1.0])
    found = make(alpha)(lambda s: s**p, t, full_output=True)
    exact = math.gamma(p + 1.0) / math.gamma(p + 1.0 - alpha) * t ** (p - alpha)
    assert np.abs(found.value - exact).max() <= 3.0 * float(np.max(found.error_estimate))


@pytest.mark.parametrize("place", [0.1, 0.25, 0.5, 0.75, 0.95])
@pytest.mark.parametrize("method", ["l1", "fast"])
def test_a_kink_between_samples_on_any_grid(method: str, place: float):
    """Wherever it is between two points, of even or odd number; every other sample may see nothing of it."""
    steps = np.random.default_rng(2).uniform(0.5, 1.5, 120)
    t = np.concatenate([[0.0], np.cumsum(steps)]) / 60.0
    rounding = 1e-13 if method == "l1" else 1e-11  # exponentials have a tolerance
    for cell in (60, 61):
        at = t[cell] + place * (t[cell + 1] - t[cell])
        after = np.maximum(t - at, 0.0)
        found = hf.caputo(after - t, t, 0.65, method=method, full_output=True)
        exact = (after**0.35 - t**0.35) / math.gamma(1.35)
        known = np.isfinite(found.error_estimate)
        assert known[2:].all()
        assert (np.abs(found.value - exact)[known] <= 3.0 * found.error_estimate[known] + rounding).all()


def test_a_jump_of_grunwald():
    """Whether or not the first sample after it is one of every other."""
    t = np.linspace(0.0, 1.0, 201)
    for cell in (80, 81):
        at = 0.5 * (t[cell] + t[cell + 1])
        found = hf.grunwald_letnikov((t > at).astype(float), t, 0.6, full_output=True)
        exact = np.where(t > at, np.maximum(t - at, 1e-3), np.inf) ** -0.6 / math.gamma(0.4)
        known = np.isfinite(found.error_estimate)
        assert (np.abs(found.value - exact)[known] <= 3.0 * found.error_estimate[known] + 1e-13).all()


def test_the_message_says_where_an_estimate_is_missing():
    """At the first points, at the last ones of a right-sided derivative, and behind a sample that is not finite."""
    t = np.linspace(0.0, 1.0, 33)
    x = np.sin(t)
    assert hf.caputo(x, t, 0.5, full_output=True).message == "no error estimate at 2 of 33 points, the first"
    right = hf.Caputo(1.5, side="right")(x, t, full_output=True).message
    assert right == "no error estimate at 5 of 33 points, the last"
    x[20] = math.nan
    assert "no error estimate at 15 of 33 points" in hf.caputo(x, t, 0.5, full_output=True).message
    assert "no error estimate" in hf.caputo(x * math.nan, t, 0.5, full_output=True).message
    assert hf.riesz(np.sin(t), t, 1.5, full_output=True).message == ""


@pytest.mark.parametrize(
    "operator",
    [
        hf.CaputoFabrizio(0.5),
        hf.CaputoFabrizio(0.5, "linear"),
        hf.TemperedCaputo(0.5),
        hf.TemperedIntegral(0.5),
        hf.RiemannLiouvilleIntegral(0.5),
        hf.RiemannLiouvilleIntegral(0.5, "fast"),
    ],
)
@pytest.mark.parametrize("f", [np.sin, np.square, np.exp, lambda t: np.cos(5.0 * t)])
def test_steps_of_random_length(operator: Any, f: Any):
    """After an interval much longer than its neighbours every other sample shows nothing of its error.

    At the first points, where a rule has a lower degree on the first interval, its companion must show that.
    """
    for seed in (3, 4, 17):
        steps = np.exp(0.7 * np.random.default_rng(seed).standard_normal(100))
        t = np.concatenate([[0.0], np.cumsum(steps)]) / steps.sum()
        found = operator(f(t), t, full_output=True)
        exact = type(operator)(0.5)(f, t, full_output=True).value
        known = np.isfinite(found.error_estimate)
        assert known[2:].all()
        rounding = 1e-9 if operator.method == "fast" else 1e-12
        error = np.abs(found.value - exact)[known]
        assert (error <= 2.5 * found.error_estimate[known] + rounding * np.abs(exact).max()).all()


@pytest.mark.parametrize("steps", [0.1, 3.0, 30.0, 300.0])
@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9, 1.5])
def test_tempered_samples_whose_step_is_long(alpha: float, steps: float):
    """Beside 1/rate: far from the origin the operator is (rate + i)^alpha of exp(it), and the estimate knows it."""
    t = np.linspace(0.0, 20.0, 201)
    rate = steps / t[1]
    for operator, power, f in (
        (hf.tempered, alpha, np.cos(t)),
        (hf.tempered_caputo, alpha, np.exp(1j * t)),
        (hf.tempered_integral, -alpha, np.cos(t)),
    ):
        found = operator(f, t, alpha, rate, full_output=True)
        exact = (rate + 1j) ** power * np.exp(1j * t)
        exact = exact if np.iscomplexobj(f) else exact.real
        far = t > 200.0 / rate + 2.0
        assert (np.abs(found.value - exact) <= 3.0 * found.error_estimate)[far].all()


def test_every_missing_estimate_has_a_reason():
    """Tempered derivatives of whole order have an estimate; over several axes the message says that there is none."""
    t = np.linspace(0.0, 2.0, 41)
    for alpha in (1.0, 2.0):
        found = hf.tempered(np.cos(t), t, alpha, 1.5, full_output=True)
        exact = (1.5 + 1j) ** alpha * np.exp(1j * t)
        assert (np.abs(found.value - exact.real) <= found.error_estimate)[5:].all()
    found = hf.fractional_laplacian(np.outer(t, t), (t, t), 1.5, axis=(0, 1), full_output=True)
    assert math.isnan(found.error_estimate)
    assert "no error estimate" in found.message


LOGARITHMIC = np.concatenate([[0.0], np.geomspace(0.1, 1.0, 300)])
UNIFORM = np.linspace(0.0, 1.0, 101)


def covered(found: Any, exact: np.ndarray, *, most: float = math.inf) -> None:
    """The error is at most three times the estimate at every point with one, whose median is at most ``most``."""
    known = np.isfinite(found.error_estimate) & np.isfinite(exact)
    assert known.sum() > exact.size / 2
    assert (np.abs(found.value - exact)[known] <= 3.0 * found.error_estimate[known]).all()
    assert np.median(found.error_estimate[known]) <= most


@pytest.mark.parametrize("alpha", [0.3, 1.3])
def test_a_first_step_much_longer_than_the_next(alpha: float):
    """Creep data: a logarithmic grid behind 0, of exp(-3t); every other sample has the same first step."""
    t, f = LOGARITHMIC, np.exp(-3.0 * LOGARITHMIC)
    covered(hf.caputo(f, t, alpha, full_output=True), caputo_of_exponential(-3.0, alpha, t).real)
    with np.errstate(divide="ignore", invalid="ignore"):
        covered(hf.riemann_liouville(f, t, alpha, full_output=True), of_exponential(-3.0, alpha, t).real)
    exact = t**alpha * np.asarray(hf.mittag_leffler(-3.0 * t, 1.0, 1.0 + alpha))
    covered(hf.riemann_liouville_integral(f, t, alpha, full_output=True), exact, most=0.01)


@pytest.mark.parametrize("size", [1e4, 1e8])
@pytest.mark.parametrize("alpha", [1e-5, 0.1, 0.9])
def test_rounding_of_samples_with_an_offset(alpha: float, size: float):
    """A constant has no derivative, but its rounding has; all these rules are exact on straight lines."""
    t, eps = UNIFORM, float(np.finfo(float).eps)
    most = 20.0 * eps * size * 100.0**alpha / (1.0 - alpha)
    steps = np.random.default_rng(4).uniform(0.5, 1.5, 100)
    other = np.concatenate([[0.0], np.cumsum(steps)])
    covered(hf.caputo(size + other, other, alpha, full_output=True), other ** (1 - alpha) / math.gamma(2 - alpha))
    kernel = t ** (1.0 - alpha) * np.asarray(hf.mittag_leffler(-(t**0.7), 0.7, 2.0 - alpha, -2.0))
    covered(hf.prabhakar(size + t, t, alpha, 0.7, 2.0, -1.0, full_output=True), kernel, most=most)
    bent = t * np.asarray(hf.mittag_leffler(-alpha / (1.0 - alpha) * t**alpha, alpha, 2.0)) / (1.0 - alpha)
    if alpha >= 0.05:
        covered(hf.atangana_baleanu(size + t, t, alpha, full_output=True), bent, most=most)
    exact = -np.expm1(-alpha / (1.0 - alpha) * t) / alpha
    covered(hf.caputo_fabrizio(size + t, t, alpha, full_output=True), exact, most=most)


@pytest.mark.parametrize("operator", [hf.riemann_liouville, hf.caputo])
@pytest.mark.parametrize("alpha", [1.00001, 2.00001])
def test_orders_just_above_whole_ones(operator: Any, alpha: float):
    """There L1 and L1-2 have the same error, that of the differences; and the start can hardly be told from t^2."""
    t = np.linspace(0.0, 1.0, 18)
    known = of_exponential if operator is hf.riemann_liouville else caputo_of_exponential
    with np.errstate(divide="ignore", invalid="ignore"):
        covered(operator(np.exp(t), t, alpha, full_output=True), known(1.0, alpha, t).real, most=0.05)


@pytest.mark.parametrize("alpha", [1.7, 3.5, 4.8])
@pytest.mark.parametrize("fall", [4.0, 20.0])
def test_a_start_that_falls_within_a_step(fall: float, alpha: float):
    """exp(-fall t / h): its derivatives at the origin are far larger than differences of samples."""
    t = np.linspace(0.0, 1.0, 60)
    found = hf.caputo(np.exp(-fall * 59.0 * t), t, alpha, full_output=True)
    covered(found, caputo_of_exponential(-fall * 59.0, alpha, t).real)


@pytest.mark.parametrize(("t", "exact"), [(136.10749881, -1.5052396492539836e-05), (97.77013993, 0.007282191661700303)])
def test_callables_with_a_front_beside_the_result(t: float, exact: float):
    """A tanh far from the origin, behind the end or before it, where points are rounded; by mpmath, from the right."""

    def f(x: np.ndarray) -> np.ndarray:
        return np.tanh((x - 117.9) / 1.53)

    found = hf.riemann_liouville(f, [t], 1.109, side="right", origin=2966.0, full_output=True)
    assert abs(found.value[0] - exact) <= 3.0 * float(found.error_estimate) <= 1e-10


@pytest.mark.parametrize(
    ("alpha", "width", "middle", "t", "exact"),
    [
        (1.5, 0.0294469249656098, 193.44326448411786, 193.47100286, -55.41382338677463),
        (-0.7, 0.014971570126390504, 320.3652686005206, 320.36769335, -62.40301692518406),
    ],
)
def test_callables_with_a_front_at_the_end(alpha: float, width: float, middle: float, t: float, exact: float):
    """A tanh so narrow that all points of a panel miss it, but not the last point; by piecewise quadrature."""
    operator = hf.RiemannLiouville(alpha) if alpha > 0.0 else hf.RiemannLiouvilleIntegral(-alpha)
    found = operator(lambda x: np.tanh((x - middle) / width), [t], full_output=True)
    assert abs(found.value[0] - exact) <= 3.0 * float(found.error_estimate) + 1e-12 * abs(exact) <= 1e-5


@pytest.mark.parametrize("method", ["spectral", "graded"])
def test_callables_that_are_undefined_at_the_end(method: str):
    """0 / 0 at the last point alone: a quadrature needs no value there."""
    found = hf.riemann_liouville_integral(lambda t: np.sin(1.0 - t) / (1.0 - t), 1.0, 0.5, method=method)
    assert found == pytest.approx(1.0917942833866, rel=1e-12)
