"""Callables that cannot be followed: what is missed is looked for, what diverges is refused, the rest is warned of."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss

import hpfracc as hf
from hpfracc.errors import DivergenceError, HpfraccError, InvalidInputError

MIDWAY = 0.5 + 0.25 * float(leggauss(16)[0][7] + leggauss(16)[0][8])


def pulse(width: float, centre: float) -> Any:
    return lambda t: t + np.exp(-(((t - centre) / width) ** 2))


def test_a_pulse_between_the_points_is_seen() -> None:
    """Midway between two of the 16 points of the first look it used to be missed, with an estimate of 5e-15."""
    found = hf.caputo(pulse(0.008, MIDWAY), 1.0, 0.5, full_output=True)
    finer = hf.caputo(pulse(0.008, MIDWAY), np.array([MIDWAY - 0.05, MIDWAY, MIDWAY + 0.05, 1.0]), 0.5)
    assert found.value == pytest.approx(1.11706, abs=1e-5)
    assert found.value == pytest.approx(finer[-1], abs=1e-9)
    assert found.converged and found.error_estimate < 1e-12


@pytest.mark.parametrize("width", [0.02, 0.01, 0.005])
def test_pulses_of_a_two_hundredth_are_seen_everywhere(width: float) -> None:
    """The integral of a pulse as wide as the documentation says, wherever it lies."""
    for centre in np.linspace(0.1, 0.9, 23):
        value = hf.riemann_liouville_integral(pulse(width, centre), 1.0, 1.0)
        assert value == pytest.approx(0.5 + width * math.sqrt(math.pi), abs=1e-8)


def test_pulses_of_other_methods_are_seen() -> None:
    """The bounded kernels say that they are not sure, the periodic ones go on until it is resolved."""
    found = hf.caputo_fabrizio(pulse(0.008, 0.503), 1.0, 0.5, full_output=True)
    assert not found.converged or found.error_estimate < 1e-9
    wave = hf.weyl(lambda t: np.exp(-(((t % 1.0 - 0.53125) / 0.006) ** 2)), 0.3, 0.5, period=1.0, full_output=True)
    assert "1024 samples" in wave.message


def test_the_second_look_costs_seventeen_values() -> None:
    """f is asked for 33 values where it took 16, and for 17 more where it took more."""
    for f, count in ((np.sin, 33), (lambda t: 1.0 / (1.0 + 25.0 * t * t), 129)):
        seen = []

        def counted(t: Any, f: Any = f, seen: list[int] = seen) -> Any:
            seen.append(len(t))
            return f(t)

        hf.caputo(counted, 1.0, 0.5)
        assert sum(seen) == count


DIVERGENT = [
    (hf.caputo, 0.5, lambda s: 1.0 / s),
    (hf.caputo, 0.5, lambda s: s**-0.3),
    (hf.caputo, 0.5, np.log),
    (hf.caputo, 1.5, np.sqrt),
    (hf.caputo, 1.5, lambda s: s * np.log(s)),
    (hf.caputo, 0.5, lambda s: 1e-3 / s + 100.0 * np.sin(s)),
    (hf.riemann_liouville, 0.5, lambda s: 1.0 / s),
    (hf.grunwald_letnikov, 0.5, lambda s: 1.0 / s),
    (hf.riemann_liouville_integral, 0.5, lambda s: 1.0 / s),
    (hf.tempered, 0.5, lambda s: 1.0 / s),
    (hf.marchaud, 0.5, lambda s: 1.0 / s),
]


@pytest.mark.parametrize(("operator", "alpha", "f"), DIVERGENT)
def test_divergent_integrals_are_refused(operator: Any, alpha: float, f: Any) -> None:
    """A typed error names the place; 1/t used to give -5e102."""
    with pytest.raises(DivergenceError, match="the integral diverges.*near t="):
        operator(f, 1.0, alpha)
    assert issubclass(DivergenceError, InvalidInputError) and issubclass(DivergenceError, HpfraccError)


@pytest.mark.parametrize(
    ("operator", "alpha", "f", "right"),
    [
        (hf.riemann_liouville_integral, 0.5, lambda s: s**-0.3, math.gamma(0.7) / math.gamma(1.2)),
        (hf.riemann_liouville_integral, 0.5, np.log, (2.0 * math.log(2.0) - 2.0) / math.gamma(1.5)),
        (hf.caputo, 0.5, lambda s: s**0.1, math.gamma(1.1) / math.gamma(0.6)),
        (hf.caputo, 0.5, lambda s: np.abs(s - 0.4), (4.0 * 0.6**0.5 - 2.0) / math.gamma(0.5)),
        (hf.caputo, 1.5, lambda s: np.abs(s - 0.4), 2.0 * 0.6**-0.5 / math.gamma(0.5)),
        (hf.caputo, 0.5, lambda s: np.where(s > 0.4, 1.0, 0.0), 0.6**-0.5 / math.gamma(0.5)),
        (hf.caputo, 0.5, lambda s: np.where(s > 0.4, 1.0, 0.0) + np.sin(s), 1.57442240711887),
        (hf.caputo, 0.5, lambda s: 1.0 / (1e-6 + s), -564193.307702439),
        (hf.caputo, 0.5, lambda s: np.exp(-1.0 / np.maximum(s, 1e-300)), 0.441582959582748),
        (
            hf.caputo,
            0.5,
            lambda s: np.sqrt(s) + np.abs(s - 0.7),
            math.gamma(1.5) + (4.0 * 0.3**0.5 - 2.0) / math.gamma(0.5),
        ),
    ],
)
def test_what_converges_is_not_warned_of(operator: Any, alpha: float, f: Any, right: float) -> None:
    """Weak singularities, kinks and jumps are integrable: no error, no warning, the right value (by mpmath)."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value = operator(f, 1.0, alpha)
    assert value == pytest.approx(right, rel=1e-9)


@pytest.mark.parametrize("f", [lambda s: np.tan(2.0 * s), lambda s: 1.0 / np.abs(s - 0.4), lambda s: np.sin(1.0 / s)])
def test_what_may_diverge_is_warned_of_with_an_estimate_that_says_so(f: Any) -> None:
    """Between origin and t rounding of f hides how it goes on: the estimate counts all that is not sure."""
    found = hf.riemann_liouville_integral(f, 1.0, 0.5, full_output=True)
    assert not found.converged
    assert found.error_estimate > 1e-6 * abs(found.value)


def test_what_did_not_converge_is_warned_of() -> None:
    """With the estimate, at the caller's own line, once for every way in; not with full_output, which says it."""
    noise = np.random.default_rng(1)
    rough = lambda t: noise.standard_normal(np.shape(t))  # noqa: E731
    for call in (hf.caputo, lambda *a: hf.Caputo(a[2])(a[0], a[1]), hf.riemann_liouville_integral):
        with pytest.warns(hf.AccuracyWarning, match="its error may be .*full_output=True") as caught:
            call(rough, 1.0, 0.5)
        assert caught[0].filename == __file__
    for operator in (hf.caputo_fabrizio, hf.atangana_baleanu, hf.tempered_caputo):
        with pytest.warns(hf.AccuracyWarning):
            operator(rough, 1.0, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not hf.caputo(rough, 1.0, 0.5, full_output=True).converged


def test_rounding_is_warned_of_where_it_matters() -> None:
    """A tolerance that was asked for is held; one that was not only where nearly all digits are lost."""
    with pytest.warns(hf.AccuracyWarning, match="rounding leaves"):
        hf.caputo(np.exp, 1.0, 4.5, rtol=1e-12)
    with pytest.warns(hf.AccuracyWarning, match="rounding leaves"):
        hf.caputo(np.exp, 1e-3, 3.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hf.caputo(np.exp, 1.0, 4.5)
        assert hf.caputo(np.ones_like, 1.0, 0.5) == 0.0
        assert hf.caputo(np.ones_like, 1.0, 0.5, full_output=True).converged


def test_numbers_in_numbers_out() -> None:
    """At a single t every operator of a callable gives a NumPy number, real or complex, and so in full_output."""
    for operator in (hf.caputo, hf.riemann_liouville, hf.grunwald_letnikov, hf.riemann_liouville_integral):
        for t in (1.0, 1, np.float64(1.0), np.array(1.0)):
            assert type(operator(np.sin, t, 0.5)) is np.float64
        assert type(operator(lambda s: np.exp(1j * s), 1.0, 0.5)) is np.complex128
        assert type(operator(np.sin, 1.0, 0.5, full_output=True).value) is np.float64
    for operator in (hf.marchaud, hf.tempered, hf.tempered_caputo, hf.caputo_fabrizio, hf.atangana_baleanu):
        assert type(operator(np.sin, 1.0, 0.5)) is np.float64
    for operator in (hf.hadamard, hf.caputo_hadamard, hf.hadamard_integral):
        assert type(operator(np.sin, 2.0, 0.5)) is np.float64
    assert type(hf.variable_order(np.sin, 1.0, 0.5)) is np.float64
    assert type(hf.weyl(np.sin, 1.0, 0.5, period=2.0 * math.pi)) is np.float64
    assert hf.caputo(lambda s: np.stack([s, s * s]), 1.0, 0.5).shape == (2,)
    assert hf.caputo(np.sin, [1.0], 0.5).shape == (1,)
