"""Systems are found again from their data, with standard errors that cover."""

from __future__ import annotations

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import control
from hpfracc.errors import InvalidInputError, ShapeError

s = control.s
W = np.geomspace(0.01, 100.0, 80)


def test_frequency_data_without_noise():
    truth = (3 * s**0.4 + 1) / (2 * s**1.3 + 0.5 * s**0.4 + 1)
    found = control.fit_frequency(W, truth(1j * W), (s**0.5 + 1) / (s**1.2 + s**0.5 + 1))
    assert found.success
    assert found.residual < 1e-7
    assert np.allclose(found.system(1j * W), truth(1j * W), rtol=1e-6)
    assert found.identifiable


def test_standard_errors_cover():
    truth, rng = 3 / (2 * s**0.7 + 1), np.random.default_rng(0)
    exact, inside = truth(1j * W), 0
    for _ in range(40):
        noise = rng.normal(size=W.size) + 1j * rng.normal(size=W.size)
        found = control.fit_frequency(W, exact * (1 + 0.01 * noise), 1 / (s**0.5 + 1))
        inside += np.abs(found.values - [3.0, 2.0, 0.7]) < 1.96 * found.standard_errors
    assert np.all(inside >= 33)  # 38 expected; fewer than 33 in 1 of 200 cases


def test_fixed_orders_and_what_is_not_identified():
    data = (3 / (2 * s**0.7 + 1))(1j * W)
    fixed = control.fit_frequency(W, data, 1 / (s**0.7 + 1), orders="fixed")
    assert np.allclose(fixed.values, [3.0, 2.0])
    twice = control.fit_frequency(W, data, (s**0.2 + 1) / (s**0.9 + s**0.7 + s**0.2 + 1))
    assert not twice.identifiable or twice.standard_errors.max() > 1e-3
    high = control.fit_frequency(W[-10:], (1 / s**0.5)(1j * W[-10:]), 1 / (s**0.5 + 1), orders="fixed")
    assert high.standard_errors is not None


def test_signals():
    t, rng = np.linspace(0.0, 10.0, 401), np.random.default_rng(1)
    u = np.sign(np.sin(t))
    y = control.lsim(3 / (2 * s**0.7 + 1), u, t).y + 0.01 * rng.normal(size=t.size)
    found = control.fit_time(u, y, t, 1 / (s**0.5 + 1))
    assert np.all(np.abs(found.values - [3.0, 2.0, 0.7]) < 4.0 * found.standard_errors)
    assert found.residual == pytest.approx(0.01, rel=0.2)
    assert "±" in repr(found)


@pytest.mark.parametrize("guess", [0.05, 0.4, 3.0])
def test_delays_are_parameters(guess: float):
    """From guesses that are wrong by several turns of the highest frequency; held if that is asked for."""
    rng = np.random.default_rng(2)
    data = (3 / (2 * s**0.7 + 1) * control.delay(0.5))(1j * W)
    noisy = data * (1.0 + 0.01 * (rng.normal(size=W.size) + 1j * rng.normal(size=W.size)))
    model = 1 / (s**0.5 + 1) * control.delay(guess)
    found = control.fit_frequency(W, noisy, model)
    assert found.names[-1] == f"delay({guess:g})"
    assert np.all(np.abs(found.values - [3.0, 2.0, 0.7, 0.5]) < 4.0 * found.standard_errors)
    held = control.fit_frequency(W, noisy, model, delays="fixed")
    assert len(held.names) == 3 and held.residual > 10.0 * found.residual


def test_delays_of_signals():
    """In time, of two terms whose delays stay equal."""
    t = np.linspace(0.0, 10.0, 301)
    y = control.lsim((s**0.5 + 3) / (2 * s**1.2 + 1) * control.delay(0.52), np.sin(t), t).y
    found = control.fit_time(np.sin(t), y, t, (s**0.5 + 1) / (s**1.2 + 1) * control.delay(0.3), orders="fixed")
    np.testing.assert_allclose(found.values, [1.0, 3.0, 2.0, 0.52], rtol=1e-3)
    assert found.names == ("b(0.5)", "b(0)", "a(1.2)", "delay(0.3)")


@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_an_offset_leaves_the_gain_alone(offset: float):
    """It is found by itself, and only if there is one."""
    t, rng = np.linspace(0.0, 10.0, 201), np.random.default_rng(3)
    u = np.sign(np.sin(t))
    y = control.lsim(3 / (2 * s**0.7 + 1), u, t).y + 0.01 * rng.normal(size=t.size) + offset
    found = control.fit_time(u, y, t, 1 / (s**0.5 + 1))
    exact = [3.0, 2.0, 0.7, 1.0] if offset else [3.0, 2.0, 0.7]
    assert np.all(np.abs(found.values - exact) < 4.0 * found.standard_errors)
    assert ("offset" in found.names) == bool(offset) == ("offset" in found.message)
    assert "offset" in control.fit_time(u, y, t, 1 / (s**0.5 + 1), offset=True).names


def test_an_initial_value_is_a_parameter():
    """That of a relaxation, which decays like a Mittag-Leffler function; with an offset and unequal steps."""
    t = np.concatenate([[0.0], np.geomspace(0.01, 20.0, 120)])
    u = np.sin(2.0 * t) * (t > 0.5)
    y = control.lsim(3 / (2 * s**0.7 + 1), u, t).y + 1.5 * hf.mittag_leffler(-0.5 * t**0.7, 0.7) + 0.25
    found = control.fit_time(u, y, t, 1 / (s**0.5 + 1), offset=True, initial=True)
    assert found.names[-2:] == ("offset", "y(0)")
    np.testing.assert_allclose(found.values, [3.0, 2.0, 0.7, 0.25, 1.5], rtol=1e-5)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: control.fit_frequency(W[::-1], W, 1 / s),
        lambda: control.fit_frequency(W, W[:-1], 1 / s),
        lambda: control.fit_frequency(W, W * np.nan, 1 / s),
        lambda: control.fit_frequency(W, W, 1 / (s + 1j)),
        lambda: control.fit_frequency(W, W, "x"),
        lambda: control.fit_frequency(W, W, 1 / (s + 1), orders="fre"),
        lambda: control.fit_frequency(W[:1], W[:1], 1 / (s**0.5 + s**0.2 + 1)),
        lambda: control.fit_frequency(W, W + 0j, 1 / (s + 1), delays="no"),
        lambda: control.fit_frequency(W, np.ma.masked_array(W, W > 1.0), 1 / (s + 1)),
        lambda: control.fit_time(W, W, W, 1 / (s + control.delay(1.0)), initial=True),
        lambda: control.fit_time(W, W, W, 1 / (s + 1), offset=1.0),
        lambda: control.fit_time([1.0], [1.0, 2.0], [0.0, 1.0], 1 / (s + 1)),
    ],
)
def test_bad_input(wrong):
    with pytest.raises((InvalidInputError, ShapeError)):
        wrong()
