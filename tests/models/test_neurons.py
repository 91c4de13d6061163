"""Spikes of the integrate-and-fire neuron."""

from __future__ import annotations

from math import gamma

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import models
from hpfracc.errors import InvalidInputError, SolveError


def test_order_one_is_the_classical_neuron():
    """Equal intervals tau log((E - V_r)/(E - threshold)), E the voltage without spikes."""
    found = models.integrate_and_fire(alpha=1.0, reset=-70.0).simulate(np.linspace(0.0, 300.0, 301))
    period = 20.0 * np.log((-40.0 + 70.0) / (-40.0 + 50.0))
    np.testing.assert_allclose(found.spikes, period * np.arange(1, found.spikes.size + 1), rtol=1e-9)
    assert found.spikes.size == int(300.0 / period)
    phase = found.t - np.concatenate([[0.0], found.spikes])[np.searchsorted(found.spikes, found.t, side="right")]
    np.testing.assert_allclose(found["voltage"], -40.0 - 30.0 * np.exp(-phase / 20.0), rtol=1e-9)


def test_voltage_between_resets_solves_the_equation():
    """V plus the jumps is continuous and solves tau^alpha D^alpha U = -(V - V_0) + R I, by product integration."""
    model = models.integrate_and_fire(alpha=0.7)
    spikes = model.simulate(np.linspace(0.0, 100.0, 1001)).spikes
    assert spikes.size >= 2

    def fun(t, u):
        voltage = u - 15.0 * np.count_nonzero(spikes <= t)
        return 20.0**-0.7 * (-(voltage + 65.0) + 25.0)

    t = np.linspace(5.0, 100.0, 20)
    solution = hf.solve_fode(fun, (0.0, 100.0), [-65.0], 0.7, t_eval=t, breakpoints=list(spikes), rtol=1e-8)
    expected = solution.y[0] - 15.0 * np.searchsorted(spikes, t, side="right")
    np.testing.assert_allclose(model.simulate(np.concatenate([[0.0], t])).y[0, 1:], expected, atol=1e-4)


def test_memory_slows_the_neuron_down():
    """Intervals grow at orders below 1; the first spike of many times does not depend on the grid."""
    model = models.integrate_and_fire(alpha=0.6)
    fine = model.simulate(np.linspace(0.0, 400.0, 4001)).spikes
    assert (np.diff(np.diff(fine)) > 0.0).all()
    np.testing.assert_allclose(model.simulate([0.0, 400.0]).spikes, fine, rtol=1e-8)


def test_a_constant_drive_is_a_constant_current():
    t = np.linspace(0.0, 120.0, 241)
    one = models.integrate_and_fire(current=2.5).simulate(t)
    two = models.integrate_and_fire(current=0.5, drive=lambda t: 2.0).simulate(t)
    np.testing.assert_allclose(two.spikes, one.spikes, rtol=1e-6)
    assert models.integrate_and_fire(current=1.0).simulate(t).spikes.size == 0  # stays below the threshold


def published_spikes(alpha, hold, end, step):
    """Spikes by the scheme of Teka, Marinov and Santamaria, eq. 6: explicit, with the memory of the whole path."""
    count, until = round(end / step), -1
    k, voltage, rises, spikes = np.arange(count + 1.0), -65.0, np.zeros(count), []
    weights = (k + 1.0) ** (1.0 - alpha) - k ** (1.0 - alpha)
    for n in range(1, count + 1):
        memory = rises[: n - 1] @ weights[n - 1 : 0 : -1]
        new = voltage + step**alpha * gamma(2.0 - alpha) * 20.0**-alpha * (-40.0 - voltage) - memory
        if n <= until:
            new = -65.0
        elif new >= -50.0:
            spikes.append((n - 1 + (-50.0 - voltage) / (new - voltage)) * step)
            new, until = -65.0, n + round(hold / step)
        rises[n - 1], voltage = new - voltage, new
    return np.array(spikes)


@pytest.mark.parametrize("alpha", [0.3, 0.6, pytest.param(0.9, marks=pytest.mark.slow)])
def test_refractory_period_is_the_published_rule(alpha):
    """The spikes are those of the published scheme as its step goes to 0, and their intervals shrink."""
    t = np.linspace(0.0, 120.0, 121)
    found = models.integrate_and_fire(alpha=alpha, refractory=5.0).simulate(t)
    coarse, fine = (published_spikes(alpha, 5.0, 120.0, step) for step in (0.1, 0.05))
    assert found.spikes.size == fine.size >= 4
    np.testing.assert_allclose(found.spikes, 2.0 * fine - coarse, atol=0.15)
    assert (np.abs(found.spikes - fine) < np.abs(found.spikes - coarse)).mean() > 0.7
    assert (np.diff(found.spikes, 2) < 0.0).all()
    held = ((t[:, None] >= found.spikes) & (t[:, None] <= found.spikes + 5.0)).any(axis=1)
    assert (found["voltage"][held] == -65.0).all() and (found["voltage"] < -50.0).all()


def test_refractory_period_of_the_classical_neuron():
    """At order 1 it is a dead time; a current that varies, and a neuron that does not fire."""
    t = np.linspace(0.0, 150.0, 16)
    found = models.integrate_and_fire(alpha=1.0, refractory=5.0).simulate(t)
    period = 20.0 * np.log(25.0 / 10.0)
    np.testing.assert_allclose(found.spikes, period + (period + 5.0) * np.arange(found.spikes.size), rtol=1e-4)
    varied = models.integrate_and_fire(alpha=1.0, refractory=5.0, current=0.5, drive=lambda t: 2.0).simulate(t)
    np.testing.assert_allclose(varied.spikes, found.spikes, rtol=1e-6)
    assert models.integrate_and_fire(current=1.0, refractory=5.0).simulate(t).spikes.size == 0


def test_fit_of_spike_times():
    truth, rng = models.integrate_and_fire(tau=25.0, alpha=0.7), np.random.default_rng(0)
    spikes = truth.simulate(np.linspace(0.0, 500.0, 501)).spikes[:10]
    fit = models.integrate_and_fire().fit(np.sort(spikes + 0.1 * rng.normal(size=spikes.size)))
    assert fit.names == ("tau", "alpha")
    assert (np.abs(fit.estimates - [25.0, 0.7]) < 3.5 * fit.standard_errors).all()


def test_bad_input_is_refused(monkeypatch):
    with pytest.raises(InvalidInputError, match="below threshold"):
        models.integrate_and_fire(reset=-40.0)
    with pytest.raises(InvalidInputError, match="increasing"):
        models.integrate_and_fire().fit([3.0, 2.0])
    with pytest.raises(InvalidInputError, match="refractory=-1"):
        models.integrate_and_fire(refractory=-1.0)
    monkeypatch.setattr("hpfracc.models.neurons._MAX_STEPS", 100)
    with pytest.raises(SolveError, match="more than 100 steps"):
        models.integrate_and_fire(refractory=5.0).simulate()
    monkeypatch.setattr("hpfracc.models.neurons._MAX_SPIKES", 3)
    with pytest.raises(SolveError, match="more than 3 spikes"):
        models.integrate_and_fire().simulate()
