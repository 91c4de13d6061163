"""Responses against Mittag-Leffler functions, scipy.signal, solve_fode and the method of steps."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from scipy import signal
from scipy.special import gammainc, rgamma

import hpfracc as hf
from hpfracc import control
from hpfracc.errors import InvalidInputError, ShapeError

s = control.s


def test_impulse_and_partial_fractions():
    t = np.geomspace(1e-3, 20.0, 50)
    # 1/((w + 1)(w + 3)) with w = s^0.4
    found = control.impulse_response(1 / ((s**0.4 + 1) * (s**0.4 + 3)), t).y

    def part(rate: float):
        return t**-0.6 * hf.mittag_leffler(-rate * t**0.4, 0.4, 0.4)

    assert np.allclose(found, 0.5 * (part(1.0) - part(3.0)), rtol=1e-9)
    # A double pole beside the cut, and one on the imaginary axis.
    assert np.allclose(
        control.impulse_response(1 / (s**2 + 1) ** 2, t).y, 0.5 * (np.sin(t) - t * np.cos(t)), atol=1e-12
    )
    assert control.impulse_response(1 / (s**0.5 + 1), [0.0, 1.0]).y[0] == math.inf
    assert control.impulse_response(2 / (s + 1), [0.0, 1.0]).y[0] == 2.0


def test_podlubny_plant_against_the_solver():
    """The plant of Podlubny (1999), 0.8 D^2.2 y + 0.5 D^0.9 y + y = u; incommensurate orders too."""
    t = np.linspace(0.0, 20.0, 41)
    for high, low in ((2.2, 0.9), (math.sqrt(2.0), 0.45)):
        plant = 1 / (0.8 * s**high + 0.5 * s**low + 1)
        found = control.step_response(plant, t)
        zeros = [[0.0]] * (math.ceil(high) - 1)
        solved = hf.solve_fode(
            lambda t, y: (1.0 - y) / 0.8,
            (0.0, 20.0),
            [0.0],
            high,
            dy0=zeros,
            terms=[(0.5 / 0.8, low)],
            rtol=1e-8,
            atol=1e-10,
            t_eval=t,
        )
        assert np.abs(found.y - solved.y[0]).max() < 3e-8
        plain = control.inverse_laplace(lambda z, plant=plant: plant(z) / z, t[1:])
        assert np.abs(found.y[1:] - plain).max() < 1e-7


@pytest.mark.parametrize(("above", "below"), [([1, 2], [1, 0.5, 3]), ([2, 1, 1], [1, 1, 4]), ([1], [1, 0])])
def test_integer_orders_as_scipy(above, below):
    t = np.linspace(0.0, 10.0, 101)
    plant = control.TransferFunction.from_polynomials(above, below)
    assert np.allclose(control.step_response(plant, t).y, signal.step((above, below), T=t)[1], atol=1e-9)
    u = np.sin(3.0 * t) + 0.5
    found = control.lsim(plant, u, t)
    assert np.abs(found.y - signal.lsim((above, below), u, t)[1]).max() < 1e-8


def test_a_loop_with_a_delay_by_the_method_of_steps():
    t = np.linspace(0.0, 6.0, 61)
    loop = control.feedback(control.delay(0.5) / s)
    exact = sum((-1) ** k * np.maximum(t - 0.5 * (k + 1), 0.0) ** (k + 1) / math.factorial(k + 1) for k in range(12))
    found = control.step_response(loop, t)
    assert np.abs(found.y - exact).max() < 1e-9
    late = control.step_response(loop, np.array([5.9, 40.0]))
    assert late.method == "contour and de Hoog"
    assert late.y[0] == control.step_response(loop, np.array([5.9])).y[0]
    assert abs(late.y[1] - 1.0) < 1e-6


def test_times_that_are_rounds_of_a_loop_but_for_rounding():
    """What rounding leaves of a time less seven delays is no time: values there lie between those beside it."""
    law = control.FOPID(3.0159923684905574, 3.4096763669925774, 0.9738372375567113, 0.56329919415656, 0.62306, 0.005)
    t = np.linspace(0.0, 2.0, 1001)[680:721]
    found = control.step_response(law.closed_loop(control.delay(0.2) / (s + 1)), t)
    assert found.error_estimate < 1e-9
    assert np.abs(np.diff(found.y, 2)).max() < 1e-3


def test_late_times_of_a_growing_loop_leave_early_ones_alone():
    """An unstable loop overflows at late times, with an infinite error; early values are those of early times alone."""
    loop = control.feedback(6.0 / (s**0.5 + 0.1) * control.delay(0.5))
    early = np.array([0.2, 0.7, 1.0, 3.0])
    alone = control.step_response(loop, early)
    found = control.step_response(loop, np.append(early, 400.0))
    np.testing.assert_array_equal(found.y[:4], alone.y)
    assert found.error_estimate == math.inf
    assert alone.error_estimate < 1e-9


def test_sampled_inputs():
    t = np.linspace(0.0, 40.0, 4001)
    plant = (s**0.5 + 2) / (s**1.5 + 0.3 * s**0.7 + 1) * control.delay(0.137) + 0.25
    constant = control.lsim(plant, np.ones_like(t), t)
    step = control.step_response(plant, t)
    # The delayed direct part of a constant is the same; a jump of the input is a line over one step.
    assert np.abs(constant.y - step.y).max() < 1e-8
    ramp = control.lsim(1 / s**0.5, t, t).y
    assert np.allclose(ramp, t**1.5 / math.gamma(2.5), atol=1e-8)
    batch = control.lsim(np.array([1 / (s + 1), 1 / (s**0.5 + 1)]), np.stack([t, np.sin(t), t * 0]), t)
    assert batch.y.shape == (2, 3, 4001)
    assert not batch.y[:, 2].any()


def test_what_passes_at_once_keeps_all_digits():
    """Gains without a delay, with one of whole steps, and with one between two samples."""
    t = np.linspace(0.0, 1.0, 11)
    u = 1e3 + np.arange(11.0)
    assert (control.lsim(3 * s / s, u, t).y == 3 * u).all()
    found = control.lsim(3 * control.delay(0.3), u, t).y
    assert not found[:3].any() and (found[3:] == 3 * u[:-3]).all()
    np.testing.assert_allclose(control.lsim(control.delay(0.25), u, t).y[3:], u[3:] - 2.5, rtol=1e-12)


def test_several_inputs_and_outputs():
    systems = np.array([[1 / (s + 1), 2 / (s**0.5 + 1)], [control.delay(1.0) / (s + 1), s / (s + 1)]], dtype=object)
    y = control.step_response(systems, [0.0, 1.0, 2.0]).y
    assert y.shape == (2, 2, 3)
    assert np.allclose(y[0, 0], 1 - np.exp([0.0, -1.0, -2.0]))
    assert np.allclose(y[1, 0], [0.0, 0.0, 1 - math.exp(-1.0)])
    assert np.allclose(y[1, 1], np.exp([0.0, -1.0, -2.0]))


def test_default_times_show_the_transient():
    found = control.step_response(1 / (5 * s**0.8 + 1))
    assert found.t.size == 500
    assert found.y[-1] > 0.7
    t, y = found
    assert t is found.t
    assert y is found.y


def test_inverse_laplace_knows_its_error():
    t = np.array([0.01, 1.0, 50.0])
    for transform, exact in (
        (lambda z: 1 / (z + 1), np.exp(-t)),
        (lambda z: z**-0.5 / (z**0.5 + 1), hf.mittag_leffler(-(t**0.5), 0.5)),
        (lambda z: 1 / (z * z + 1), np.sin(t)),
        (lambda z: 1 / (z - 1), np.exp(t)),
        (lambda z: np.exp(-np.sqrt(z)), np.exp(-0.25 / t) / (2 * math.sqrt(math.pi) * t**1.5)),
    ):
        value, error = control.inverse_laplace(transform, t, abscissa=1.0 if exact[-1] > 1 else 0.0, full_output=True)
        assert np.all(np.abs(value - exact) <= 3.0 * error)
    assert control.inverse_laplace(lambda z: 1 / (z + 1), [1e-300, 1e300]) == pytest.approx([1.0, 0.0])
    assert control.inverse_laplace(lambda z: 1 / z, []).size == 0


def test_inverse_laplace_hears_fast_oscillations():
    """De Hoog's fractions alone give 0 for sin(100 t), and claim 1e-15."""
    t = np.array([0.5, 1.0, 2.0])
    for frequency in (1.0, 100.0, 300.0):
        found, error = control.inverse_laplace(lambda z, w=frequency: w / (z * z + w * w), t, full_output=True)
        assert np.all(np.abs(found - np.sin(frequency * t)) <= 10.0 * error + 1e-9)
        assert np.abs(found - np.sin(frequency * t)).max() < 1e-4
    with pytest.raises(InvalidInputError, match="not real"):
        control.inverse_laplace(lambda z: 1 / (z + 1j), 1.0)


def test_poles_in_clusters_and_far_apart():
    """Twenty equal poles, three decades of poles, and growth with an honest error."""
    t = np.linspace(0.0, 40.0, 81)
    found = control.step_response(1 / (s + 1) ** 20, t)
    assert np.abs(found.y - gammainc(20.0, t)).max() < 1e-9
    found = control.step_response(1e18 / (s + 1e6) ** 3, 1e-6 * t)
    assert np.abs(found.y - gammainc(3.0, t)).max() < 1e-9
    growing = control.step_response(1 / (s - 1), [40.0, 300.0])
    assert np.all(np.abs(growing.y / np.expm1([40.0, 300.0]) - 1.0) < 1e-11)
    assert growing.error_estimate > 1e-16 * growing.y[1]


@pytest.mark.parametrize("apart", [1e-2, 1e-3, 3e-4, 1e-4, 1e-6, 1e-8])
def test_poles_that_are_close_but_not_equal(apart: float):
    """Beats of two frequencies, and two growing exponentials: the difference of the poles shows at late times."""
    mp.mp.dps = 40
    t, a, b = np.array([1.0, 10.0, 100.0, 3000.0]), mp.mpf(1), 1 + mp.mpf(apart)
    found = control.step_response(1 / ((s**2 + 1) * (s**2 + (1.0 + apart) ** 2)), t)
    exact = [1 / b**2 - (mp.cos(x) - mp.cos(b * x) / b**2) / (b**2 - 1) for x in map(mp.mpf, t.tolist())]
    errors = np.abs(found.y - np.array(exact, float))
    assert errors.max() <= found.error_estimate < 1e-4 * np.abs(found.y).max()
    t = np.array([1.0, 10.0, 100.0])
    found = control.step_response(1 / ((s - 1) * (s - (1.0 + apart))), t)
    exact = [1 / b + (mp.exp(x) - mp.exp(b * x) / b) / (a - b) for x in map(mp.mpf, t.tolist())]
    errors = np.abs(found.y - np.array(exact, float))
    assert errors.max() <= found.error_estimate and errors[-1] < 1e-10 * found.y[-1]


def test_double_poles_on_the_limit_of_stability():
    """``1/(s - 2^(1/2) s^(1/2) + 1)^2``, whose double poles the rounding of its coefficients parts."""
    plant = 1 / (s - math.sqrt(2.0) * s**0.5 + 1) ** 2
    found = control.step_response(plant, [10.0, 40.0])
    mp.mp.dps = 60
    exact = [
        mp.invertlaplace(
            lambda z: 1 / z / sum(mp.mpf(v) * z ** mp.mpf(p) for (p, _), v in plant.denominator.items()),
            mp.mpf(x),
            method="talbot",
            degree=120,
        )
        for x in (10, 40)
    ]
    assert np.abs(found.y - np.array(exact, float)).max() <= found.error_estimate < 1e-8


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: control.step_response(s**2 / (s + 1)),
        lambda: control.impulse_response(s / (s + 1)),
        lambda: control.step_response(1 / (s * control.delay(1.0)), [1.0]),
        lambda: control.step_response(1 / (s + 1), [-1.0]),
        lambda: control.lsim(1 / s, [1.0, 2.0], [0.0, 1.0, 2.0]),
        lambda: control.lsim(1 / s, [1.0, 2.0, 3.0], [0.0, 1.0, 1.0]),
        lambda: control.lsim(1 / s, [1.0, 2.0, 3.0], [0.0, 2.0, 1.0]),
        lambda: control.inverse_laplace(lambda z: 1 / z, 0.0),
        lambda: control.inverse_laplace(None, 1.0),
    ],
)
def test_bad_input(wrong):
    with pytest.raises((InvalidInputError, ShapeError)):
        wrong()


def test_dense_samples_keep_their_digits():
    """Near 0 the response is far smaller than the exponentials of the poles, which would cancel."""
    plant, t = 1 / (s**1.6 + 0.5 * s**0.8 + 1), np.linspace(0.0, 10.0, 100_001)
    found = control.lsim(plant, np.ones(t.size), t)
    apart = np.abs(found.y - control.step_response(plant, t).y).max()
    assert apart < 1e-12
    assert 0.1 * apart < found.error_estimate < 1e-11


@pytest.mark.parametrize("pole", [1.0, 1.0 - 2.0j, 0.1 - 3.0j])
def test_many_times_in_any_order(pole: complex):
    """Double poles, real and complex ones and pairs, at times of equal steps and of others."""
    even = np.linspace(0.0, 20.0, 50_001)
    uneven = np.random.default_rng(0).permutation(even**2 / 20.0)
    p = np.conj(pole)
    for t in (even, uneven):
        double = control.step_response(1 / (s + 1) ** 2, t)
        assert np.abs(double.y - (1.0 - (1.0 + t) * np.exp(-t))).max() < 2e-12
        one = control.step_response(1 / (s + pole), t)
        assert np.abs(one.y - (1.0 - np.exp(-pole * t)) / pole).max() < 2e-12
        pair = control.step_response(1 / (s**2 + 2.0 * pole.real * s + abs(pole) ** 2), t)
        exact = (1.0 - np.exp(-pole * t)) / pole - (1.0 - np.exp(-p * t)) / p
        exact = np.real(exact / (p - pole)) if pole.imag else 1.0 - (1.0 + t) * np.exp(-t)
        assert np.abs(pair.y - exact).max() < 2e-12


def test_inputs_at_any_times():
    """Straight lines between unequal times: powers of t, an equation, and what passes at once, or later."""
    t = np.concatenate([[0.0], np.sort(np.random.default_rng(0).uniform(0.0, 6.0, 150)), [6.0]]) + 2.0
    found = control.lsim(3 / s**0.5, 2.0 + (t - 2.0), t)
    exact = 3.0 * ((t - 2.0) ** 1.5 * rgamma(2.5) + 2.0 * (t - 2.0) ** 0.5 * rgamma(1.5))
    assert np.abs(found.y - exact).max() <= max(found.error_estimate, 1e-14) < 1e-10
    u = np.sign(np.sin(3.0 * t)) + 0.1 * np.cos(t)
    several = control.lsim([1 / (s + 1), (1 + 2 * control.delay(0.7)) / (s + 1) + 4 * control.delay(0.3)], u, t)
    y = [0.0]
    for k in range(t.size - 1):  # y' = u - y over one interval
        h, slope = t[k + 1] - t[k], (u[k + 1] - u[k]) / (t[k + 1] - t[k])
        y.append(y[-1] * math.exp(-h) + (u[k] - slope) * -math.expm1(-h) + slope * h)
    np.testing.assert_allclose(several.y[0], y, atol=1e-11)
    fine = np.unique(np.concatenate([t, t[t >= 2.7] - 0.7]))
    late = np.interp(t - 0.7, fine, control.lsim(1 / (s + 1), np.interp(fine, t, u), fine).y, left=0.0)
    passed = 4.0 * np.interp(t - 0.3, t, u, left=0.0)
    np.testing.assert_allclose(several.y[1], several.y[0] + 2.0 * late + passed, atol=1e-10)
    steps = np.linspace(0.0, 3.0, 31)  # nothing has passed before the delay, between two times or at one
    for lag in (0.25, 0.3):
        for grid in (steps, np.append(steps[:-1], 2.99)):
            straight = control.lsim(control.delay(lag), 1.0 + grid, grid).y
            exact = np.where(grid > lag - 1e-9, 1.0 + grid - lag, 0.0)
            np.testing.assert_allclose(straight, exact, atol=1e-9)
    even = np.linspace(0.0, 6.0, 151)
    bent = np.append(even[:-1], 6.0 - 1e-4)  # all the same, but for the last step
    alike = control.lsim(1 / (s**1.3 + s**0.4 + 1), np.sin(even), even).y
    np.testing.assert_allclose(
        control.lsim(1 / (s**1.3 + s**0.4 + 1), np.sin(even), bent).y[:-1], alike[:-1], atol=1e-11
    )


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.9, 1.0, 1.2, 1.5, 1.9, 2.0])
def test_step_of_one_power(alpha: float):
    t = np.concatenate([[0.0], np.geomspace(1e-6, 60.0, 200)])
    found = control.step_response(1 / (s**alpha + 1), t)
    exact = t**alpha * hf.mittag_leffler(-(t**alpha), alpha, alpha + 1.0)
    assert np.abs(found.y - exact).max() < 1e-12
    assert found.error_estimate < 1e-11
    assert found.method == "contour"


@pytest.mark.parametrize("alpha", [1e-3, 0.05, 0.999999, 1.000001, 1.999999])
def test_orders_near_integers_and_near_0(alpha: float):
    t = np.geomspace(1e-3, 1e3, 13)
    exact = t**alpha * hf.mittag_leffler(-(t**alpha), alpha, alpha + 1.0)
    assert np.abs(control.step_response(1 / (s**alpha + 1), t).y - exact).max() < 1e-12
