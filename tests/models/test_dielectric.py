"""Permittivities, their arcs, and their decays in time."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

from hpfracc import control, models

T = np.geomspace(0.01, 20.0, 8)
W = np.geomspace(1e-4, 1e4, 41)


@pytest.mark.parametrize(
    "model",
    [
        models.cole_cole(2.0, 0.5, 0.6),
        models.davidson_cole(2.0, 0.5, 0.4),
        models.havriliak_negami(2.0, 0.5, 0.7, 0.4),
        models.havriliak_negami(2.0, 0.5, 0.7, 1.0),
        models.havriliak_negami(2.0, 0.5, 1.0, 0.3),
    ],
    ids=lambda each: f"{each.name} {list(each.values.values())}",
)
def test_decay_is_the_inverse_transform(model):
    """(eps(0) - eps(s))/s, relative to the strength."""
    static = model.values["strength"] + model.values["infinite"]
    expected = control.inverse_laplace(lambda s: (static - model(s)) / s, T)
    np.testing.assert_allclose(model.decay(T), expected, atol=1e-10)


def test_special_cases_of_havriliak_negami():
    """Cole-Cole, Davidson-Cole and Debye."""
    for one, two in (
        (models.havriliak_negami(2.0, 0.5, 0.7, 1.0), models.cole_cole(2.0, 0.5, 0.7)),
        (models.havriliak_negami(2.0, 0.5, 1.0, 0.7), models.davidson_cole(2.0, 0.5, 0.7)),
        (models.cole_cole(2.0, 0.5, 1.0), models.davidson_cole(2.0, 0.5, 1.0)),
    ):
        np.testing.assert_allclose(one.permittivity(W), two.permittivity(W), rtol=1e-12)
        np.testing.assert_allclose(one.decay(T), two.decay(T), atol=1e-12)
    np.testing.assert_allclose(models.cole_cole(2.0, 0.5, 1.0).decay(T), 2.0 * np.exp(-T / 0.5), rtol=1e-10)


def test_tail_of_havriliak_negami():
    """gamma x^-alpha/Gamma(1 - alpha) with x = t/tau, relative to itself."""
    t = np.array([1e12, 1e20, 1e100])
    tail = 2.0 * 0.6 * (t / 0.5) ** -0.8 / float(mp.gamma(0.2))
    np.testing.assert_allclose(models.havriliak_negami(2.0, 0.5, 0.8, 0.6).decay(t), tail, rtol=2e-9)


def test_arc_of_cole_cole_is_symmetric_and_part_of_a_circle():
    """About w tau = 1, with its centre below the axis."""
    alpha, value = 0.6, models.cole_cole(2.0, 1.0, 0.6, 1.0).permittivity(W)
    np.testing.assert_allclose(value.imag, value.imag[::-1], rtol=1e-9)
    np.testing.assert_allclose(value.real + value.real[::-1], 4.0)
    # eps' - i eps'': the centre is at (1 + 2/2) and the depth cot(alpha pi/2) of it.
    centre, radius = 2.0 + 1j / np.tan(alpha * np.pi / 2.0), 1.0 / np.sin(alpha * np.pi / 2.0)
    np.testing.assert_allclose(np.abs(value - centre), radius, rtol=1e-12)
    skewed = models.davidson_cole(2.0, 1.0, 0.6).permittivity(W)
    assert np.abs(skewed.imag - skewed.imag[::-1]).max() > 0.05


def test_fit_of_an_arc():
    """All five parameters of Havriliak and Negami from a noisy spectrum, with errors that cover."""
    truth, rng = models.havriliak_negami(3.0, 0.02, 0.8, 0.5, 2.0), np.random.default_rng(5)
    w = np.geomspace(0.1, 1e5, 60)
    noise = 0.005 * (rng.normal(size=w.size) + 1j * rng.normal(size=w.size))
    fit = models.havriliak_negami().fit(w, truth.permittivity(w) * (1.0 + noise))
    error = np.abs(fit.estimates - [truth.values[name] for name in fit.names])
    assert (error < 3.5 * fit.standard_errors).all() and (fit.standard_errors < 0.1 * np.abs(fit.estimates)).all()


@pytest.mark.parametrize(("alpha", "gamma"), [(0.5, 0.3), (0.999, 0.01), (1.0, 0.5), (0.05, 0.9), (0.8, 0.99)])
def test_decay_of_havriliak_negami_at_any_time(alpha: float, gamma: float):
    """Over twelve decades of time, against Talbot's method with 30 digits."""
    mp.mp.dps = 30
    t = [1e-6, 1e-3, 0.1, 1.0, 20.0] + [1e3, 1e6] * (alpha < 1.0)
    a, g = mp.mpf(alpha), mp.mpf(gamma)
    exact = [float(mp.invertlaplace(lambda s: (1 - 1 / (1 + s**a) ** g) / s, x, method="talbot", degree=40)) for x in t]
    np.testing.assert_allclose(
        models.havriliak_negami(2.0, 1.0, alpha, gamma).decay(t), 2.0 * np.array(exact), 1e-9, 1e-13
    )
    assert models.havriliak_negami(2.0, 1.0, alpha, gamma).decay(0.0) == 2.0
