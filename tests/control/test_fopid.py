"""Fractional PID controllers: in real time against operators, in a loop, and tuned."""

from __future__ import annotations

import json
import math
import sys

import mpmath as mp
import numpy as np
import pytest
from scipy.special import rgamma

import hpfracc as hf
from hpfracc import control
from hpfracc.errors import InvalidInputError

s = control.s


@pytest.mark.parametrize(("lam", "mu"), [(0.7, 0.4), (1.0, 1.0), (1.4, 0.9)])
def test_real_time_as_the_operators(lam: float, mu: float):
    law = control.FOPID(2.0, 1.0, lam, 0.5, mu)
    errors = []
    for n in (500, 1000, 2000):
        t = np.linspace(0.0, 10.0, n + 1)
        e = np.sin(t) + 0.3
        controller = law.controller(t[1])
        found = np.array([controller.push(each) for each in e.tolist()])
        # From rest: the jump to 0.3 is differentiated too.
        slope = np.cos(t) if mu == 1.0 else hf.caputo(lambda x: np.sin(x) + 0.3, t, mu)
        slope[1:] += 0.3 * t[1:] ** -mu * rgamma(1.0 - mu)
        exact = 2.0 * e + hf.riemann_liouville_integral(lambda x: np.sin(x) + 0.3, t, lam) + 0.5 * slope
        errors.append(np.abs(found - exact)[n // 5 :].max())
    assert errors[2] < 3e-3
    assert errors[0] > 1.7 * errors[1] > 2.8 * errors[2]


def test_a_closed_loop_in_samples_is_the_loop_in_s():
    law = control.FOPID(1.5, 1.0, 0.8, 0.2, 0.5)
    dt, n = 0.002, 5000
    controller, y = law.controller(dt), np.zeros(n + 1)
    for k in range(n):
        y[k + 1] = y[k] + dt * (controller.push(1.0 - y[k]) - y[k])  # the plant 1/(s + 1)
    t = dt * np.arange(n + 1)
    exact = control.step_response(law.closed_loop(1 / (s + 1)), t).y
    assert np.abs(y - exact)[500:].max() < 0.01


@pytest.mark.parametrize(("mu", "filtered", "pole"), [(0.5, 0.05, 1.0), (1.0, 0.1, 1.3)])
def test_one_loop_three_ways(mu: float, filtered: float, pole: float):
    """In continuous time through solve_fode, by its transfer function, and by the controller in real time."""
    law, plant = control.FOPID(1.5, 1.0, 0.8, 0.2, mu, filtered), 1 / (s**pole + 1)
    t = np.linspace(0.0, 5.0, 51)
    found = law.simulate(plant, t)
    exact = control.step_response(law.closed_loop(plant), t)
    assert found.method == "solve_fode"
    assert np.abs(found.y[0] - exact.y).max() < 1e-5
    inner = control.feedback(law.transfer_function(), plant)
    assert np.abs(found.y[1] - control.step_response(inner, t).y)[1:].max() < 1e-3
    if pole == 1.0:
        dt, y = 0.002, np.zeros(2501)
        controller = law.controller(dt, derivative_weight=1.0)
        for k in range(2500):
            y[k + 1] = y[k] + dt * (controller.push(1.0 - y[k]) - y[k])
        assert np.abs(y[::50] - found.y[0])[5:].max() < 0.01


def test_loops_with_disturbances_and_limits():
    law, plant, t = control.FOPID(1.5, 1.0, 0.8), 1 / (s + 1), np.linspace(0.0, 20.0, 41)
    load = control.feedback(plant, law.transfer_function())
    found = law.simulate(plant, t, setpoint=0.0, disturbance=math.sin)
    fine = np.linspace(0.0, 20.0, 4001)
    exact = control.lsim(load, np.sin(fine), fine).y[::100]
    assert np.abs(found.y[0] - exact).max() < 1e-4
    bounded = law.simulate(plant, t, limits=(0.0, 1.05))
    assert bounded.y[1].max() == 1.05 and bounded.y[0].max() <= 1.05
    free = law.simulate(plant, t)
    assert free.y[1].max() > 1.4 and 0.9 < bounded.y[0][-1] < 1.0
    for wrong in (
        lambda: law.simulate(s / (s + 1), t),
        lambda: law.simulate(control.delay(1.0) / (s + 1), t),
        lambda: control.FOPID(1.0, Kd=1.0, mu=0.5).simulate(plant, t, limits=(0.0, 2.0)),
        lambda: control.FOPID(1.0, Kd=1.0, mu=1.15, Tf=0.1).simulate(plant, t, setpoint=math.sin),
        lambda: law.simulate(plant, t[::-1]),
        lambda: law.simulate(plant, t, limits=(1.0, 0.0)),
    ):
        with pytest.raises(InvalidInputError):
            wrong()


def test_pushes_cost_the_same_at_any_time():
    """The memory has the same number of states after a minute and after a year, and no value that slows it down."""
    controller = control.FOPID(2.0, 1.0, 0.7, 0.5, 0.4, 0.01).controller(0.01)
    sizes = [len(controller.state()["integral"])]
    for k in range(20_000):
        controller.push(1.0 if k < 10 else 0.0)
    sizes.append(len(controller.state()["integral"]))
    assert sizes[0] == sizes[1] < 200
    states = np.abs([*controller.state()["integral"], *controller.state()["derivative"]])
    assert not np.any((states > 0.0) & (states < np.finfo(float).tiny))


@pytest.mark.parametrize(("lam", "mu"), [(0.7, 0.4), (1.4, 1.0), (0.5, 1.3)])
def test_compiled_as_in_python(lam: float, mu: float):
    """Over 1e4 samples with limits that are reached, weights, a change of gains and a restored state."""
    pytest.importorskip("numba")
    law, changed = control.FOPID(2.0, 1.0, lam, 0.05, mu, 0.02), control.FOPID(3, 0.5, lam, 0.1, mu, 0.05)
    words = {"limits": (-1.5, 1.5), "setpoint_weight": 0.7, "derivative_weight": 0.2}
    signals = np.random.default_rng(0).standard_normal((10_000, 2)).cumsum(axis=0) * 0.03

    def outputs(compile: bool) -> np.ndarray:
        controller, found = law.controller(0.01, **words, compile=compile), []
        for k, (setpoint, measurement) in enumerate(signals.tolist()):
            if k == 3000:
                controller.gains = changed
            if k == 6000:
                saved = json.loads(json.dumps(controller.state()))
                controller = changed.controller(0.01, **words, compile=compile)
                controller.restore(saved)
            if k % 3:
                found.append(controller.push(setpoint - measurement, measurement, setpoint))
            else:
                found.append(controller.push(setpoint - measurement))
        return np.array(found)

    plain = outputs(False)
    limited = np.abs(plain) == 1.5
    assert 100 < limited.sum() < 9900
    assert np.abs(outputs(True) - plain).max() < 1e-10


def test_compiling_needs_numba(monkeypatch):
    with pytest.raises(InvalidInputError, match="compile"):
        control.FOPID(1.0).controller(0.01, compile="yes")
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(ImportError, match="numba"):
        control.FOPID(1.0).controller(0.01, compile=True)


def test_limits_do_not_wind_up():
    law = control.FOPID(1.0, 2.0, 0.9)

    def run(limits):
        controller, y, out = law.controller(0.01, limits=limits), 0.0, []
        for k in range(3000):
            target = 2.0 if k < 1000 else 0.5  # beyond reach, then within
            y += 0.01 * (controller.push(target - y) - y)
            out.append(y)
        return np.array(out)

    bounded = run((0.0, 1.0))
    assert bounded.max() <= 1.0 + 1e-9
    assert abs(bounded[1400] - 0.5) < 0.1  # it comes back at once


def test_weights_gains_and_state():
    law = control.FOPID(2.0, 1.0, 0.7, 0.5, 0.4, 0.05)
    one = law.controller(0.01, setpoint_weight=0.5)
    assert one.push(1.0, measurement=0.0, setpoint=1.0) == pytest.approx(1.0)
    plain = law.controller(0.01)
    for k in range(50):
        last = plain.push(math.sin(0.1 * k))
    other = law.controller(0.01)
    other.restore(json.loads(json.dumps(plain.state())))
    other.gains = control.FOPID(8.0, 5.0, 0.7, 0.5, 0.4, 0.05)
    # Bumpless: only the change of the error has the new gains.
    assert abs(other.push(math.sin(4.9)) - last) < 0.3
    assert plain.push(0.3) == pytest.approx(law_after(law, plain))
    with pytest.raises(InvalidInputError, match="orders"):
        plain.gains = control.FOPID(2.0, 1.0, 0.8)
    with pytest.raises(InvalidInputError, match="finite"):
        plain.push(math.nan)
    with pytest.raises(InvalidInputError, match="state"):
        plain.restore({})
    before = plain.state()
    for wrong in ({"error": "x"}, {"error": 1.0, "measurement": math.nan}, {"error": math.inf}):
        with pytest.raises(InvalidInputError):
            plain.push(**wrong)
    assert plain.state() == before


def law_after(law: control.FOPID, used: control.FOPIDController) -> float:
    """The output of a controller that saw the same samples as the one above."""
    fresh = law.controller(0.01)
    for k in range(50):
        fresh.push(math.sin(0.1 * k))
    return fresh.push(0.3)


def test_podlubny_controller_beats_the_integer_one():
    """Podlubny (1999): the fractional PD controller of his plant is better damped than the integer one."""
    plant = 1 / (0.8 * s**2.2 + 0.5 * s**0.9 + 1)
    t = np.linspace(0.0, 10.0, 501)
    fractional = control.step_response(control.FOPID(20.5, Kd=3.7343, mu=1.15).closed_loop(plant), t).y
    integer = control.step_response(control.FOPID(20.5, Kd=2.7343, mu=1.0).closed_loop(plant), t).y
    assert np.allclose([fractional[-1], integer[-1]], 20.5 / 21.5, atol=0.02)
    assert fractional.max() < integer.max()


@pytest.mark.parametrize("filtered", [0.0, 0.01])
def test_podlubny_controller_in_its_loop(filtered: float):
    """Its derivative is improper, with and without a filter: output and control by mpmath's inversion of the loop."""
    law = control.FOPID(20.5, Kd=3.7343, mu=1.15, Tf=filtered)
    t = np.array([0.0, 0.05, 0.3, 1.0, 4.0])
    found = law.simulate(1 / (0.8 * s**2.2 + 0.5 * s**0.9 + 1), t, setpoint=2.0, disturbance=0.7)

    def loop(z):
        plant = 1 / (0.8 * z**2.2 + 0.5 * z**0.9 + 1)
        c = 20.5 + 3.7343 * z**1.15 / (1 + filtered * z)
        return plant * (2 * c + 0.7) / (1 + plant * c) / z, c * (2 - 0.7 * plant) / (1 + plant * c) / z

    for k, row in enumerate(found.y):
        exact = [float(mp.invertlaplace(lambda z, k=k: loop(z)[k], each, method="talbot")) for each in t[1:].tolist()]
        np.testing.assert_allclose(row[1:], exact, rtol=1e-7)
    assert found.y[0, 0] == 0.0 and found.y[1, 0] == math.inf
    with pytest.raises(InvalidInputError, match=r"mu=1\.15, Tf=0"):
        law.simulate(1 / (s**2 + 1), t, limits=(-5.0, 5.0))


def test_tuning_holds_its_constraints():
    plant = control.delay(0.2) / (s + 1)
    found = control.tune(plant, "ise", horizon=5.0, starts=1, fixed={"mu": 0.5})
    assert found.success, found.message
    assert found.sensitivity < 2.03
    assert found.controller.mu == 0.5
    t = np.linspace(0.0, 10.0, 101)
    assert abs(control.step_response(found.controller.closed_loop(plant), t).y[-1] - 1.0) < 0.05
    for wrong in ({"objective": "itea"}, {"fixed": {"K": 1.0}}, {"horizon": -1.0}, {"rng": -1}):
        with pytest.raises(InvalidInputError):
            control.tune(plant, **{"horizon": 5.0, **wrong})


@pytest.mark.parametrize(
    ("plant", "words"),
    [(1 / (s - 1), {}), (-2 * control.delay(0.1) / (s + 1), {"max_control": 20.0}), (1 / (s * (s + 1)), {})],
)
def test_tuning_of_plants_that_are_unstable_or_negative(plant, words):
    """Only stable loops are accepted: the line of the inverse transform does not see poles to its right."""
    found = control.tune(plant, "itae", horizon=5.0, starts=1, **words)
    assert found.success, found.message
    assert control.is_stable(found.controller.closed_loop(plant))


def test_tuning_of_a_plant_that_takes_any_gain():
    """The phase of s^-1.5 allows a crossover anywhere: it stays where the search looks at the constraints."""
    plant = 1 / (s**1.5 + s + 1)
    found = control.tune(plant, "itae", horizon=10.0, starts=1, fixed={"lam": 1.0, "mu": 1.0, "Kd": 0.0})
    assert found.success, found.message
    assert control.margins(found.controller.transfer_function() * plant).w_gain_crossing < 1e4


@pytest.mark.parametrize(
    ("plant", "horizon", "fixed"),
    [(1 / (s + 1) ** 3, 15.0, {"mu": 1.0}), (1 / (s + 1), 100.0, {}), (control.delay(0.2) / (s + 1), 1.0, {"mu": 0.5})],
)
def test_the_objective_is_that_of_the_whole_step(plant, horizon: float, fixed):
    """From 0 on, for loops that settle in 1e-5 of the horizon too: the integral of the step response itself."""
    found = control.tune(plant, "ise", horizon=horizon, starts=1, fixed=fixed)
    t = np.unique(np.concatenate([[0.0], np.geomspace(1e-10, 1.0, 4001), np.linspace(0.0, 1.0, 4001)])) * horizon
    response = control.step_response(found.controller.closed_loop(plant), t)
    assert response.error_estimate < 1e-6
    assert found.objective == pytest.approx(np.trapezoid((1.0 - response.y) ** 2, t), rel=2e-3)


def test_tuning_holds_margins_from_several_starts():
    """A phase margin and a bound of the sensitivity, for two objectives; more starts are never worse."""
    plant = control.delay(0.2) / (s + 1)
    words = {"horizon": 5.0, "fixed": {"lam": 1.0, "mu": 1.0, "Kd": 0.1}}
    for objective in ("ise", "itae"):
        held = control.tune(plant, objective, starts=1, min_phase_margin=1.1, max_sensitivity=1.5, **words)
        assert held.success and held.phase_margin >= 0.99 * 1.1 and held.sensitivity <= 1.01 * 1.5
        # The bound of the sensitivity costs something.
        assert control.tune(plant, objective, starts=1, max_sensitivity=3.0, **words).objective < held.objective
    one, three = (control.tune(plant, "itae", starts=count, **words) for count in (1, 3))
    assert three.evaluations > one.evaluations and three.objective <= one.objective


def test_tuning_for_an_objective_of_ones_own():
    """The largest |T| beside a crossover at 1 rad/s."""
    plant = 1 / (s * (s + 2))

    def objective(law: control.FOPID) -> float:
        loop = law.transfer_function() * plant
        return abs(math.log(abs(loop(1j)))) + float(abs(loop(10j) / (1 + loop(10j))))

    found = control.tune(plant, objective, horizon=10.0, starts=1, fixed={"Ki": 0.0, "Kd": 0.0, "lam": 1.0, "mu": 1.0})
    assert found.success and found.controller.Kp == pytest.approx(math.sqrt(5.0), rel=0.01)
    fixed = {"Ki": 0.0, "Kd": 0.0, "lam": 1.0, "mu": 1.0}
    one, same = (
        control.tune(plant, objective, horizon=10.0, fixed=fixed, rng=r) for r in (3, np.random.default_rng(3))
    )
    assert one == same


def test_nothing_to_tune():
    plant = 1 / (s + 1)
    for fixed in (dict.fromkeys(("Kp", "Ki", "Kd", "lam", "mu"), 1.0), {"mu": 3.0}):
        with pytest.raises(InvalidInputError):
            control.tune(plant, "itae", horizon=5.0, fixed=fixed)


def test_bad_gains():
    for wrong in ({"lam": 2.0}, {"mu": 0.0}, {"Kp": "x"}, {"Tf": -1.0}):
        with pytest.raises(InvalidInputError):
            control.FOPID(**{"Kp": 1.0, **wrong})
