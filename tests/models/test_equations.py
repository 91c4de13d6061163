"""Drugs, epidemics, oscillators and transport against closed forms, transforms and SciPy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import hpfracc as hf
from hpfracc import control, models, pde
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.solvers.ode import problems

T = np.linspace(0.5, 20.0, 12)


def test_one_compartment_is_a_mittag_leffler_function():
    model = models.one_compartment(0.6, 8.0, 0.7, 40.0)
    expected = 5.0 * hf.mittag_leffler(-0.6 * T**0.7, 0.7)
    np.testing.assert_allclose(model.simulate(T)["concentration"], expected, rtol=1e-6)


def test_two_compartments_against_the_transform():
    """A1(s) = dose/(s + k12 + k s^(1-alpha) - k12 k21/(s + k21)); mass is conserved."""
    k, there, back, volume, alpha, dose = values = (0.5, 1.0, 0.4, 10.0, 0.7, 100.0)
    found = models.two_compartments(*values).simulate(T)
    blood = control.inverse_laplace(
        lambda s: dose / (s + there + k * s ** (1.0 - alpha) - there * back / (s + back)), T
    )
    np.testing.assert_allclose(volume * found["concentration"], blood, rtol=1e-6)
    np.testing.assert_allclose(volume * found["concentration"] + found["tissue"] + found["eliminated"], dose)


@pytest.mark.parametrize("make", [models.sir, models.seir])
def test_epidemics_of_order_one_are_the_classical_ones(make):
    """SciPy solves the same equation; the population does not change."""
    model = make(alpha=1.0)
    found = model.simulate(T)
    start = [model.values[each] for each in model.y0]
    fun = lambda t, y: model.fun(t, y, *model.values.values())  # noqa: E731
    expected = solve_ivp(fun, (0.0, T[-1]), start, t_eval=T, rtol=1e-10, atol=1e-12).y
    np.testing.assert_allclose(found.y, expected, rtol=1e-5)
    np.testing.assert_allclose(make(alpha=0.8).simulate(T).y.sum(axis=0), 1.0, rtol=1e-7)


def test_fit_of_concentrations_covers_the_truth():
    truth, rng = models.one_compartment(0.6, 8.0, 0.7), np.random.default_rng(4)
    data = truth.simulate(T)["concentration"]
    noisy = data + 0.02 * rng.normal(size=T.size)
    noisy[3] = np.nan
    fit = models.one_compartment().fit(T, noisy, rtol=1e-6)
    assert fit.names == ("elimination", "volume", "alpha")  # the dose is known
    assert (np.abs(fit.estimates - [0.6, 8.0, 0.7]) < 3.5 * fit.standard_errors).all()
    assert fit.degrees_of_freedom == T.size - 4


@pytest.mark.slow
def test_fit_observes_some_outputs_and_initial_values():
    """The infected alone, with the initial number of them unknown."""
    truth = models.sir(0.5, 0.2, 0.9, infected=0.02)
    t = np.linspace(2.0, 40.0, 12)
    fit = models.sir(0.4, 0.15, 0.8).fit(
        t, truth.simulate(t)["I"], observe=["I"], free=["infection", "recovery", "alpha", "infected"], rtol=1e-6
    )
    np.testing.assert_allclose(fit.estimates, [0.5, 0.2, 0.9, 0.02], rtol=0.02)


def test_an_oscillator_has_its_stored_solution():
    reference = problems.brusselator().reference
    assert reference is not None
    np.testing.assert_allclose(
        models.chaos("brusselator").simulate(reference.t[-3:], rtol=1e-7).y, reference.y[:, -3:], rtol=1e-4
    )


def test_bad_input_is_refused():
    with pytest.raises(ShapeError, match="observe"):
        models.sir().fit(T, np.ones(T.size))
    with pytest.raises(InvalidInputError, match="increase"):
        models.sir().simulate([1.0, 0.5])
    with pytest.raises(InvalidInputError, match="did you mean 'lorenz'"):
        models.chaos("lorentz")


def test_simulation_has_the_exact_solution():
    model = models.transport("subdiffusion").replace(alpha=0.7)
    found = model.simulate([0.3, 0.8], rtol=1e-6)
    np.testing.assert_allclose(found.u[-1], model.equation.exact(0.8), atol=2e-3)


def test_fit_of_the_order():
    """From the model's own field."""
    model = dataclasses.replace(
        models.transport("subdiffusion"), make=lambda alpha: pde.problems.subdiffusion(alpha, points=17)
    )
    t = np.array([0.2, 0.6])
    data = model.replace(alpha=0.8).simulate(t, rtol=1e-6).u
    assert model.fit(t, data).model.values["alpha"] == pytest.approx(0.8, abs=1e-4)
    with pytest.raises(ShapeError, match="the field at each time"):
        model.fit(t, data[:, 1:])
