"""Systems and controllers of the literature, by their published figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import signal

from hpfracc import control
from hpfracc.special import grunwald_weights

s = control.s
PODLUBNY = 1 / (0.8 * s**2.2 + 0.5 * s**0.9 + 1)


def test_podlubny():
    """Podlubny (1999): gains for poles at -2 +- 5i of the integer model, and what they do to the plant itself."""
    integer, fractional = control.FOPID(20.5, Kd=2.7343), control.FOPID(20.5, Kd=3.7343, mu=1.15)
    model = 1 / (0.7414 * s**2 + 0.2313 * s + 1)
    poles = control.poles(integer.closed_loop(model))
    np.testing.assert_allclose(sorted(poles, key=np.imag), [-2.0 - 5.0j, -2.0 + 5.0j], atol=1e-3)
    # The plant is damped less than its model; the fractional controller makes up for it.
    damping = [-(control.poles(law.closed_loop(PODLUBNY)).real[0]) for law in (integer, fractional)]
    assert damping[0] < 0.75 and damping[1] > 1.5
    t = np.linspace(0.0, 10.0, 501)
    settled, final = [], 20.5 / 21.5
    for law in (integer, fractional):
        y = control.step_response(law.closed_loop(PODLUBNY), t).y
        assert abs(y[-1] - final) < 0.02
        settled.append(t[np.flatnonzero(np.abs(y - final) > 0.05 * final)[-1]])
    assert settled[1] < 0.5 * settled[0]


def test_norms_of_the_fotf_toolbox():
    """Chen, Petráš and Xue (2009), an example of FOTF that FOMCON has too: stable, norms 2.7168 and 8.6115."""
    plant = (-2 * s**0.63 - 4) / (2 * s**3.501 + 3.8 * s**2.42 + 2.6 * s**1.798 + 2.5 * s**1.31 + 1.5)
    assert control.is_stable(plant)
    assert round(control.h2_norm(plant), 4) == 2.7168
    assert round(control.hinf_norm(plant), 4) == 8.6115


def test_stability_of_a_commensurate_system_of_fomcon():
    """FOMCON's commensurate order of Podlubny's plant is 0.1, by which Matignon's criterion is applied."""
    found = control.is_stable(PODLUBNY)
    assert found and found.criterion == "Matignon" and "s^0.1" in found.reason


#: The example systems of FOMCON, and their step responses as its authors plotted them (30 s in steps of 0.1 s): the
#: time and the value of the maximum, and values at 5, 15 and 25 s, read from the plots.
FOMCON = [
    (1 / (14994 * s**1.31 + 6009.5 * s**0.97 + 1.69), (30.0, 2.40e-3), (3.01e-4, 1.086e-3, 1.951e-3)),
    (PODLUBNY, (2.77, 1.465), (0.717, 0.991, 1.004)),
    (
        (-2 * s**0.63 + 4) / (2 * s**3.501 + 3.8 * s**2.42 + 2.6 * s**1.798 + 2.5 * s**1.31 + 1.5),
        (7.35, 3.825),
        (2.886, 2.102, 2.585),
    ),
]


def euler(plant: control.TransferFunction, step: float) -> np.ndarray:
    """The step response until 30 s by Grünwald's and Letnikov's sums, of first order, as FOMCON computes it."""
    count = round(30.0 / step) + 1
    rows = [
        sum(value * step**-power * grunwald_weights(power, count) for (power, _), value in terms.items())
        for terms in (plant.numerator, plant.denominator)
    ]
    return signal.lfilter(rows[0], rows[1], np.ones(count))


@pytest.mark.parametrize(("plant", "peak", "values"), FOMCON)
def test_step_responses_of_fomcon(plant, peak, values):
    """FOMCON's plots are those of its first-order sums, which converge to our response."""
    t, top = np.linspace(0.0, 30.0, 301), peak[1]
    theirs, ours = euler(plant, 0.1), control.step_response(plant, t).y
    k = int(theirs.argmax())
    assert t[k] == pytest.approx(peak[0], abs=0.2) and theirs[k] == pytest.approx(top, rel=0.005)
    # Curves in a plot of 400 points are read to some thousandths of its width and height.
    np.testing.assert_allclose(theirs[[50, 150, 250]], values, atol=0.025 * top)
    errors = [np.abs(euler(plant, 0.1 / m)[::m] - ours).max() for m in (1, 4, 16)]
    assert 3.0 < errors[0] / errors[1] < 5.0 and 3.5 < errors[1] / errors[2] < 4.5


def test_oustaloup_filter_of_fomcon():
    """T. Dehaeze's notes show FOMCON's filter of ``s^0.5``: 8 on each side, 0.1 to 1000 Hz, four digits."""
    found = control.oustaloup(s**0.5, (0.2 * math.pi, 2000.0 * math.pi), 8)
    above = "79.27 7.93e5 2.918e9 5.143e12 4.782e15 2.453e18 7.103e20 1.175e23 1.119e25"
    above += " 6.138e26 1.942e28 3.534e29 3.675e30 2.157e31 6.984e31 1.193e32 9.764e31 2.939e31"
    below = "1 1.312e4 6.327e7 1.462e11 1.783e14 1.199e17 4.553e19 9.877e21 1.232e24"
    below += " 8.866e25 3.678e27 8.775e28 1.196e30 9.208e30 3.909e31 8.755e31 9.395e31 3.707e31"
    np.testing.assert_allclose(found.numerator, list(map(float, above.split())), rtol=6e-4)
    np.testing.assert_allclose(found.denominator, list(map(float, below.split())), rtol=6e-4)


def test_monje():
    """Monje et al. (2008), a tank: crossover at 0.008 rad/s, phase margin 60 degrees, flat there; bounds of S and T."""
    plant = 3.13 / (433.33 * s + 1) * control.delay(50.0)
    law = control.FOPID(0.6152, 0.01, 0.8968, 4.3867, 0.4773)
    loop = law.transfer_function() * plant
    found = control.margins(loop)
    assert found.w_gain_crossing == pytest.approx(0.008, rel=0.005)
    assert math.degrees(found.phase) == pytest.approx(60.0, abs=0.2)
    w = 0.008 * np.array([0.999, 1.001])
    slope = np.diff(np.angle(loop(1j * w), deg=True)) / np.diff(np.log(w))
    assert abs(slope[0]) < 0.1  # robust to changes of the gain
    assert 20.0 * np.log10(abs(1.0 / (1.0 + loop(0.001j)))) < -20.0
    assert 20.0 * np.log10(abs(loop(10.0j) / (1.0 + loop(10.0j)))) < -20.0
    # The overshoot hardly depends on the gain.
    t = np.linspace(0.0, 3000.0, 601)
    peaks = [control.step_response(control.feedback(gain * loop), t).y.max() for gain in (0.8, 1.0, 1.2)]
    assert max(peaks) - min(peaks) < 0.04


#: Coefficients of 1, L, T, L^2, T^2, L T for S-shaped responses (gain 1, delay L, time constant T up to 5).
VALERIO = {
    "Kp": [-0.0048, 0.2664, 0.4982, 0.0232, -0.0720, -0.0348],
    "Ki": [0.3254, 0.2478, 0.1429, -0.1330, 0.0258, -0.0171],
    "lam": [1.5766, -0.2098, -0.1313, 0.0713, 0.0016, 0.0114],
    "Kd": [0.0662, -0.2528, 0.1081, 0.0702, 0.0328, 0.2202],
    "mu": [0.8736, 0.2746, 0.1489, -0.1557, -0.0250, -0.0323],
}


@pytest.mark.parametrize(("lag", "time"), [(0.1, 0.5), (0.1, 1.0), (0.1, 3.0), (0.5, 1.0)])
def test_valerio(lag: float, time: float):
    """Valério and Sá da Costa (2006): rules for a crossover at 0.5 rad/s and a phase margin of 2/3 rad; |S|, |T|."""
    powers = np.array([1.0, lag, time, lag**2, time**2, lag * time])
    law = control.FOPID(**{name: float(powers @ row) for name, row in VALERIO.items()})
    loop = law.transfer_function() * control.delay(lag) / (time * s + 1)
    found = control.margins(loop)
    assert found.w_gain_crossing == pytest.approx(0.5, rel=0.05)
    assert found.phase == pytest.approx(2.0 / 3.0, abs=0.06)
    assert 20.0 * np.log10(abs(1.0 / (1.0 + loop(0.01j)))) < -20.0
    assert 20.0 * np.log10(abs(loop(10.0j) / (1.0 + loop(10.0j)))) < -10.0


def test_python_control_agrees_at_integer_orders():
    """Frequency and step responses, margins and norms of an integer system are those of python-control."""
    other = pytest.importorskip("control")
    plant = (s + 2) / (s**3 + 2 * s**2 + 3 * s + 1)
    theirs = plant.to_control()
    w, t = np.geomspace(0.01, 100.0, 40), np.linspace(0.0, 20.0, 201)
    np.testing.assert_allclose(control.bode(plant, w).response, theirs(1j * w), rtol=1e-10)
    np.testing.assert_allclose(control.step_response(plant, t).y, other.step_response(theirs, t)[1], atol=1e-6)
    gain, phase = other.margin(theirs)[:2]
    assert control.margins(plant).phase == pytest.approx(math.radians(phase), rel=1e-6)
    assert control.margins(plant).gain == pytest.approx(gain, rel=1e-6)
    assert control.h2_norm(plant) == pytest.approx(other.norm(theirs, 2), rel=1e-6)
    back = control.TransferFunction.from_polynomials(theirs.num[0][0], theirs.den[0][0])
    np.testing.assert_allclose(back(1j * w), plant(1j * w), rtol=1e-12)
