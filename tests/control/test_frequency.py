"""Poles, stability, frequency responses, margins and norms."""

from __future__ import annotations

import math
from itertools import pairwise

import matplotlib as mpl
import mpmath as mp
import numpy as np
import pytest
from scipy import signal
from scipy.special import lambertw

from hpfracc import control
from hpfracc.errors import InvalidInputError, ShapeError

mpl.use("agg")
s = control.s


def test_poles_of_commensurate_systems():
    found = control.poles(1 / (s**1.5 + 1))
    assert np.allclose(found, np.exp(np.array([2j, -2j]) * math.pi / 3))
    assert control.poles(1 / (s**0.5 + 1)).size == 0
    assert np.allclose(control.poles(1 / ((s + 1) * (s + 2))), [-1.0, -2.0])
    with pytest.raises(InvalidInputError, match="infinitely many"):
        control.poles(1 / (s + control.delay(1.0)))


def test_poles_at_the_origin():
    """Those of integer systems as roots of their polynomials; a fractional power has a branch point there."""
    found = control.poles(1 / (s**2 * (s + 1e-13) * (s + 2e-13)))
    np.testing.assert_allclose(found, -np.sort(-np.roots([1.0, 3e-13, 2e-26, 0.0, 0.0])), rtol=1e-12)
    assert control.poles(1 / s**1.5).size == 0


@pytest.mark.parametrize(
    ("system", "gain", "sensitivity"),
    [
        (-0.5 / (s + 1), 2.0, 2.0),
        (-0.25 * s / (s**0.5 + 1) ** 2, 4.0, 4.0 / 3.0),
        (1 / s**0.1, math.inf, 1.0),
        (0.5 / (s**0.05 + 1), math.inf, 1.0),
    ],
)
def test_margins_at_both_ends(system, gain: float, sensitivity: float):
    """The curve may end on the negative axis, and |1 + G| be smallest at 0 or at infinity, however slowly G falls."""
    found = control.margins(system)
    assert (found.gain, found.sensitivity) == pytest.approx((gain, sensitivity), rel=1e-12)


def test_bandwidth_of_small_powers():
    """|1 + (i w)^0.05|^2 = 10^0.3, a quadratic equation in w^0.05."""
    cosine = math.cos(0.025 * math.pi)
    root = -cosine + math.sqrt(cosine**2 + 10**0.3 - 1.0)
    assert control.bandwidth(1 / (s**0.05 + 1)) == pytest.approx(root**20, rel=1e-9)


@pytest.mark.parametrize("powers", [(math.sqrt(2.0), 0.3), (1.2345, 0.6789), (2.71, 1.6789), (1.05, math.pi / 3)])
def test_poles_of_others_are_zeros_of_the_denominator(powers: tuple[float, float]):
    plant = 1 / (s ** powers[0] + 0.3 * s ** powers[1] + 1)
    found = control.poles(plant)
    assert found.size == 2
    assert np.all(np.abs(1 / plant(found)) < 1e-10)


@pytest.mark.parametrize(
    ("plant", "stable", "criterion"),
    [
        (1 / (s - 2 * s**0.5 + 4), True, "Matignon"),
        (1 / (s - 2 * s**0.5 + 1), False, "Matignon"),
        (1 / s, False, "Matignon"),
        (1 / (s**1.9 + 1), True, "Matignon"),
        (1 / (s**2.1 + 1), False, "Matignon"),
        (1 / (s ** math.sqrt(2) + s**0.3 + 1), True, "argument principle"),
        (1 / (s**2.71 + 0.1 * s**1.6789 + s ** (1 / math.pi) + 1), False, "argument principle"),
        (control.feedback(2 / (s + 1) * control.delay(0.5)), True, "argument principle"),
        (control.feedback(5 / (s + 1) * control.delay(0.5)), False, "argument principle"),
    ],
)
def test_stability(plant, stable: bool, criterion: str):
    found = control.is_stable(plant)
    assert (bool(found), found.criterion) == (stable, criterion)


def test_frequency_response_as_scipy():
    w = np.geomspace(0.01, 100.0, 50)
    above, below = [1, 2], [1, 0.5, 3]
    found = control.bode(control.TransferFunction.from_polynomials(above, below), w)
    _, decibels, degrees = signal.bode((above, below), w)
    assert np.allclose(found.decibels, decibels)
    assert np.allclose(found.degrees, degrees)
    assert np.allclose(control.bode(1 / s**0.5, w).degrees, -45.0)


def test_margins():
    found = control.margins(1 / (s * (s + 1) * (s + 2)))
    assert found.gain == pytest.approx(6.0, rel=1e-9)
    assert found.w_phase_crossing == pytest.approx(math.sqrt(2.0), rel=1e-9)
    # Bode's ideal loop: its phase margin does not depend on the gain.
    for gain in (0.1, 1.0, 30.0):
        ideal = control.margins(gain / s**1.2)
        assert ideal.phase == pytest.approx(math.pi * (1.0 - 0.6), rel=1e-9)
        assert ideal.w_gain_crossing == pytest.approx(gain ** (1 / 1.2), rel=1e-9)
    delayed = control.margins(2 / (s + 1) * control.delay(0.5))
    assert delayed.delay == pytest.approx((math.pi - math.atan(math.sqrt(3))) / math.sqrt(3) - 0.5, rel=1e-8)
    assert control.bandwidth(1 / (s + 1)) == pytest.approx(math.sqrt(10**0.3 - 1))


def test_norms():
    assert control.h2_norm(1 / (s + 1)) ** 2 == pytest.approx(0.5, rel=1e-9)
    assert control.h2_norm(1 / (s**2 + 0.1 * s + 1)) ** 2 == pytest.approx(5.0, rel=1e-9)
    # The energy of the impulse response of 1/(s^0.8 + 1), in time.
    t = np.geomspace(1e-9, 1e7, 20001)
    g = control.impulse_response(1 / (s**0.8 + 1), t).y
    energy = np.trapezoid(g**2 * t, np.log(t)) + g[0] ** 2 * t[0] / 0.6
    assert control.h2_norm(1 / (s**0.8 + 1)) ** 2 == pytest.approx(energy, rel=1e-5)
    assert control.hinf_norm(1 / (s**2 + 0.1 * s + 1)) == pytest.approx(1 / (0.1 * math.sqrt(1 - 0.0025)), rel=1e-9)
    several = np.array([[1 / (s + 1), 2 / (s**0.5 + 1)], [0, 1 / (s + 1)]], dtype=object)
    assert control.hinf_norm(several) == pytest.approx(1.0 + math.sqrt(2.0))
    for wrong in (lambda: control.h2_norm(1 / (s - 1)), lambda: control.h2_norm(1 / (s**0.4 + 1))):
        with pytest.raises(InvalidInputError):
            wrong()
    with pytest.raises(ShapeError):
        control.hinf_norm([[[1 / (s + 1)]]])


def test_norms_at_the_edges():
    """Sharp peaks, delays, negative frequencies, gains at infinity, and nothing."""
    assert control.h2_norm(1 / (s**2 + 1e-6 * s + 1)) ** 2 == pytest.approx(5e5, rel=1e-8)
    for lag in (0.01, 1.0, 50.0, 1000.0):  # a decay that is switched off
        expected = 1.0 - math.exp(-lag)
        assert control.h2_norm((1 - control.delay(lag)) / (s + 1)) ** 2 == pytest.approx(expected, rel=1e-7)
    assert control.h2_norm(control.delay(1000.0) / (s + 1)) ** 2 == pytest.approx(0.5, rel=1e-9)
    assert control.h2_norm(1 / (s + 1 + 5j)) ** 2 == pytest.approx(0.5, rel=1e-9)
    assert control.hinf_norm(1 / (s + 1 + 5j)) == pytest.approx(1.0, rel=1e-9)
    assert control.hinf_norm((2 * s + 1) / (s + 1)) == 2.0
    assert control.hinf_norm((s * control.delay(1.0) - 2 * s + 1) / (s + 1)) == pytest.approx(3.0, rel=1e-3)
    assert control.h2_norm(0 * s) == control.hinf_norm(0 * s) == 0.0


def test_margins_far_away_and_with_long_delays():
    """Crossings at very high and low frequencies, and within one of thousands of turns."""
    for gain in (1e10, 1e-9):
        found = control.margins(gain / s)
        assert found.w_gain_crossing == pytest.approx(gain, rel=1e-9)
        assert found.phase == pytest.approx(0.5 * math.pi)
    for gain in (2.0, 100.0):
        found = control.margins(gain * control.delay(1000.0) / (s + 1))
        crossing = math.sqrt(gain**2 - 1.0)
        assert found.w_gain_crossing == pytest.approx(crossing, rel=1e-9)
        # The first turn at which the gain is below 1.
        turns = 1000.0 * crossing + math.atan(crossing)
        w = crossing + ((math.pi - turns) % (2.0 * math.pi)) / 1000.0
        assert found.gain == pytest.approx(math.hypot(w, 1.0) / gain, rel=1e-5)
        assert found.sensitivity > 0.9 / abs(found.gain - 1.0)
    with pytest.raises(InvalidInputError, match="complex"):
        control.margins(1 / (s + 1j))


@pytest.mark.parametrize(
    ("plant", "stable", "criterion"),
    [
        (1 / (s**2 + 1e-9 * s + 1), True, "Matignon"),
        (1 / (s**2 - 1e-9 * s + 1), False, "Matignon"),
        (1 / (s**2 + 1) ** 2 / (s + 1), False, "argument principle"),
        (1 / (s + 1) ** 20, True, "Matignon"),
        (1 / (s + 1e6) ** 3, True, "Matignon"),
        (1 / (s**1e-3 + 1), True, "Matignon"),
        (1 / (s**1.000001 + s**0.5 + 1), True, "argument principle"),
        ((s - 1) / ((s - 1) * (s + 1)), False, "Matignon"),
    ],
)
def test_stability_near_the_limit(plant, stable: bool, criterion: str):
    """Within rounding of the limit the argument principle decides."""
    found = control.is_stable(plant)
    assert (bool(found), found.criterion) == (stable, criterion)


@pytest.mark.parametrize(
    ("system", "stable"),
    [
        (1 / (1 + 1.1 * control.delay(1.0) * s / (s + 1)), False),
        (1 / (1 + 0.9 * control.delay(1.0) * s / (s + 1)), True),  # a loop of a gain below 1
        (1 / (1 + control.delay(1.0) * s / (s + 1)), False),
        (1 / (s * (1 + 0.9 * control.delay(1.0) + 0.5 * control.delay(2.0)) + 1), True),
        (1 / (s * (1 + 0.9 * control.delay(1.0) + 0.5 * control.delay(2.0)) - 1), False),
        (1 / (s * (1 + 1.9 * control.delay(1.0) + 0.5 * control.delay(2.0)) + 1), False),
        (1 / (s * (1 + 0.9 * control.delay(1.0) + 0.5 * control.delay(math.pi)) + 1), False),
        (1 / (s**0.5 * (1 + 0.5 * control.delay(1.0)) + 1), True),
    ],
)
def test_stability_of_neutral_loops(system, stable: bool):
    """Delays in the highest power: chains of poles tend to zeros of 1 + 0.9 w + 0.5 w^2 with w = exp(-s)."""
    assert bool(control.is_stable(system)) is stable
    if not stable:  # a pole right of the axis, or as near to it as one likes
        guesses = [mp.mpc(x, y) for x in (0.05, 0.5, 1.0) for y in (0.0, 3.0, 9.0, 60.0)]
        found = [newton(system.denominator, guess) for guess in guesses]
        assert max(z.real for z in found if z is not None) > -1e-3


def newton(terms, guess):
    """A zero near a guess, by mpmath; None if there is none."""
    try:
        return mp.findroot(lambda z: sum(v * z**p * mp.exp(-lag * z) for (p, lag), v in terms.items()), guess)
    except ValueError:
        return None


def test_stability_of_powers_close_to_each_other():
    """The zeros of such sums lie far apart, at 1e150 and more: mpmath follows the argument along the axis."""
    for a, b, c, stable in ((10.0, 0.0, 0.0, False), (10.0, 40.0, 50.0, True)):
        terms = {3.17984: 1.0, 3.17325: a, 2.0: b, 1.0: c, 0.0: 30.0}
        found = control.is_stable(control.TransferFunction({0.0: 1.0}, terms))
        values = [
            mp.fsum(v * mp.expj(mp.pi * p / 2) * mp.exp(p * x) for p, v in terms.items())
            for x in [*mp.linspace(-30, 30, 601), *mp.linspace(31, 1500, 500)]
        ]
        turned = float(mp.fsum(mp.arg(y / x) for x, y in pairwise(values)))
        count = (0.5 * math.pi * 3.17984 - turned) / math.pi
        assert (round(count, 3), bool(found)) == (0.0 if stable else 2.0, stable)


def test_all_poles_of_a_long_delay_are_counted():
    """The zeros of s + 1 + c exp(-s) are W_k(-c e) - 1 with the branches of Lambert's function."""
    roots = lambertw(-1e4 * math.e, np.arange(-2500, 2501)) - 1.0
    found = control.is_stable(1 / (s + 1 + 1e4 * control.delay(1.0)))
    assert found.reason.startswith(f"{np.sum(roots.real > 0.0)} poles")


def test_plots_are_drawn_with_their_margins():
    plant = 3 / (s**1.5 + 0.3 * s**0.7 + 1) * control.delay(0.2)
    held = control.margins(plant)
    words = [f"gain margin {20.0 * math.log10(held.gain):.3g} dB", f"phase margin {math.degrees(held.phase):.3g}°"]
    upper, lower = control.bode(plant).plot()
    assert [each.get_text() for ax in (upper, lower) for each in ax.texts] == words
    for kind in (control.nyquist, control.nichols):
        ax = kind(plant).plot()
        assert [each.get_text() for each in ax.texts] == words
        gain, phase = (each.xy for each in ax.texts)
        if kind is control.nyquist:
            np.testing.assert_allclose(gain, (-1.0 / held.gain, 0.0), atol=1e-9)
            assert math.hypot(*phase) == pytest.approx(1.0)
        else:
            np.testing.assert_allclose(gain, (-180.0, -20.0 * math.log10(held.gain)), atol=0.1)
            np.testing.assert_allclose(phase, (math.degrees(held.phase) - 180.0, 0.0), atol=0.1)
    assert control.step_response(plant).plot().lines
    with pytest.raises(InvalidInputError, match="two"):
        control.bode(plant).plot(ax=control.nyquist(plant).plot())


def test_negative_frequencies_of_complex_coefficients():
    """Nyquist's plot has the curve of -w, which is the mirror image of that of w for real coefficients only."""
    for plant in (1 / (s + 1), 1 / (s + 1 - 2j)):
        found = control.nyquist(plant, [0.5, 1.0, 2.0])
        x, y = found.plot().lines[1].get_data()
        np.testing.assert_allclose(x + 1j * y, plant(-1j * found.w))


@pytest.mark.parametrize("w", [[2.0, 1.0], [0.0, 1.0], [], "x"])
def test_frequencies_out_of_order(w):
    with pytest.raises((InvalidInputError, ValueError, TypeError)):
        control.bode(1 / s, w)


def test_the_phase_of_a_delay_is_known_between_frequencies():
    """A delay turns many times between two frequencies: its phase is -w times it, and no multiple of a turn is lost."""
    w = np.geomspace(1e-2, 1e4, 200)
    plain = 2.0 / (s**1.5 + 0.8 * s**0.7 + 1.0)
    delayed = control.bode(plain * control.delay(0.2), w)
    np.testing.assert_allclose(delayed.phase, control.bode(plain, w).phase - 0.2 * w, rtol=0, atol=1e-8)
    several = np.array([plain * control.delay(0.2), plain])
    np.testing.assert_allclose(control.nichols(several, w).phase[0], delayed.phase, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("system", "degrees"),
    [
        (1 / s**3, lambda w: -270.0 + 0 * w),
        (control.delay(1.0) / s**2.5, lambda w: -225.0 - np.degrees(w)),
        (-1 / (s + 1), lambda w: 180.0 - np.degrees(np.arctan(w))),
        (s**2 / (s + 1), lambda w: 180.0 - np.degrees(np.arctan(w))),
        (1 / (s**2 + 1), lambda w: np.where(w < 1.0, 0.0, -180.0)),
        (1 / ((s + 1) ** 4 * (s + 3)), lambda w: -4 * np.degrees(np.arctan(w)) - np.degrees(np.arctan(w / 3))),
        ((s - 1) / (s**1.5 * (s + 1)), lambda w: 45.0 - 2 * np.degrees(np.arctan(w))),
        ((1 - control.delay(0.1)) / s, lambda w: -np.degrees(0.05 * w)),
    ],
)
def test_phases_are_those_of_the_right_branch(system, degrees):
    """From the power at 0 on, whichever frequencies are asked for: the sums of the angles of their factors."""
    for w in (np.geomspace(1e-3, 50.0, 40), np.array([0.3, 20.0]), np.array([30.0])):
        np.testing.assert_allclose(control.bode(system, w).degrees, degrees(w), atol=1e-9)


def test_all_margins_as_python_control():
    """Every crossing, of systems and of their data; between frequencies of data up to interpolation."""
    theirs = pytest.importorskip("control")
    for above, below in (
        ([40.0], [1, 3.1, 4.3, 4.3, 3.1, 1]),
        ([5.0, 1.0, 0.05], [1, 2, 0, 0, 0]),
        ([30.0], [1, 3, 2, 0]),
    ):
        other = theirs.tf(above, below)
        gains, phases, _, w_phase, w_gain, _ = theirs.stability_margins(other, returnall=True)
        found = control.margins(control.TransferFunction.from_polynomials(above, below))
        data = theirs.frd(other, np.geomspace(1e-2, 1e2, 300))
        for each, rtol in ((found, 1e-7), (control.margins(data), 1e-3), (control.bode(data).margins, 1e-3)):
            np.testing.assert_allclose(each.w_phase_crossings, w_phase, rtol=rtol)
            np.testing.assert_allclose(each.gain_margins, gains, rtol=rtol)
            np.testing.assert_allclose(each.w_gain_crossings, w_gain, rtol=rtol)
            np.testing.assert_allclose(np.degrees(each.phase_margins), phases, rtol=rtol)
            turned = np.radians(phases) % (2.0 * math.pi)
            np.testing.assert_allclose(each.delay_margins, turned / w_gain, rtol=rtol)
            assert each.sensitivity == pytest.approx(found.sensitivity, rel=1e-3)


def test_data_of_python_control():
    """Frequency responses are taken as they are, by the functions of data; the others refuse them."""
    theirs = pytest.importorskip("control")
    w = np.geomspace(0.01, 100.0, 60)
    truth = 3 / (2 * s**0.7 + 1) * control.delay(0.1)
    data = theirs.frd(truth(1j * w), w)
    for function in (control.bode, control.nyquist, control.nichols):
        np.testing.assert_allclose(function(data).response, truth(1j * w))
        assert function(data).plot() is not None
    several = control.bode(theirs.frd(np.ones((2, 1, 60)) * truth(1j * w), w))
    assert several.response.shape == (2, 1, 60) and several.margins is None and several.plot() is not None
    found = control.fit_frequency(None, data, 1 / (s**0.5 + 1) * control.delay(0.2))
    assert found.system(1j) == pytest.approx(truth(1j), rel=1e-6)
    for function in (control.is_stable, control.poles, control.step_response, control.hinf_norm, control.feedback):
        with pytest.raises(InvalidInputError, match="fit_frequency"):
            function(data)
    with pytest.raises(InvalidInputError, match="leave w out"):
        control.bode(data, w)
    with pytest.raises(ShapeError, match="one input"):
        control.margins(theirs.frd(np.ones((2, 1, 60)), w))
    with pytest.raises(InvalidInputError, match="discrete"):
        control.bode(theirs.frd(truth(1j * w), w, dt=0.1))


@pytest.mark.parametrize("beta", [0.501, 0.55, 0.8, 1.7])
def test_h2_norm_against_quadrature(beta: float):
    """``1/(s^beta + 1)``, whose energy lies over hundreds of decades as beta approaches 1/2."""
    ends = [-60, -30, *range(-20, 41, 4), 80, 160, 320, 640, 1000, 2000, 4000, 8000, 16000, 32000]
    density = lambda z: mp.exp(z) * abs(1 / ((1j * mp.exp(z)) ** mp.mpf(beta) + 1)) ** 2  # noqa: E731
    expected = float(mp.quad(density, ends) / mp.pi)
    assert control.h2_norm(1 / (s**beta + 1)) ** 2 == pytest.approx(expected, rel=1e-9)
