"""Relaxation, creep and complex modulus belong together by transform, and have the classical limits."""

from __future__ import annotations

import numpy as np
import pytest

from hpfracc import control, models
from hpfracc.engine.execution.operation import get_operation
from hpfracc.errors import InvalidInputError

T = np.geomspace(0.01, 50.0, 9)
MATERIALS = [
    models.springpot(2.0, 0.3),
    models.maxwell(2.0, 0.7, 3.0, 0.2),
    models.maxwell(3.0, 0.2, 2.0, 0.7),
    models.maxwell(2.0, 0.4, 3.0, 0.4),
    models.maxwell(2.0, 0.9, 3.0, 0.0),
    models.kelvin_voigt(2.0, 0.7, 3.0, 0.2),
    models.kelvin_voigt(3.0, 0.1, 2.0, 0.6),
    models.kelvin_voigt(2.0, 0.4, 3.0, 0.4),
    models.zener(1.5, 4.0, 0.7, 0.6),
    models.poynting_thomson(1.5, 4.0, 0.7, 0.6),
]


@pytest.mark.parametrize("material", MATERIALS, ids=lambda each: f"{each.name} {list(each.values.values())}")
def test_relaxation_and_creep_are_inverse_transforms_of_the_modulus(material):
    """G(t) and J(t) from G*(s)/s and 1/(s G*(s))."""
    relaxation = control.inverse_laplace(lambda s: material(s) / s, T)
    creep = control.inverse_laplace(lambda s: 1.0 / (s * material(s)), T)
    np.testing.assert_allclose(material.relaxation(T), relaxation, rtol=1e-9)
    np.testing.assert_allclose(material.creep(T), creep, rtol=1e-9)


@pytest.mark.parametrize("material", [MATERIALS[1], MATERIALS[8], MATERIALS[9]], ids=lambda each: each.name)
def test_relaxation_convolved_with_creep_is_time(material):
    """int G(t - u) J(u) du = t, without any transform."""
    # Gauss's rule for both halves, in powers that take the singularity of G at its end away.
    x, w = np.polynomial.legendre.leggauss(60)
    v, weight = 0.5 * (x + 1.0), 0.5 * w
    u = 0.5 * v**5
    near = np.sum(weight * 2.5 * v**4 * material.relaxation(u) * material.creep(1.0 - u))
    far = np.sum(weight * 2.5 * v**4 * material.relaxation(1.0 - u) * material.creep(u))
    assert near + far == pytest.approx(1.0, rel=1e-8)


@pytest.mark.parametrize("unit", [1e-12, 1e9])
def test_fit_of_data_in_other_units(unit):
    """From values of 1: data in pascals of a material in gigapascals, and the other way round."""
    truth = models.zener(unit, 5.0 * unit, 0.3, 0.6)
    found = models.zener().fit(T, truth.simulate(T, "modulus"))
    np.testing.assert_allclose(found.estimates, list(truth.values.values()), rtol=1e-6)


def test_order_one_is_the_classical_material():
    """Exponentials instead of Mittag-Leffler functions."""
    np.testing.assert_allclose(models.maxwell(2.0, 1.0, 3.0).relaxation(T), 3.0 * np.exp(-1.5 * T), rtol=1e-11)
    np.testing.assert_allclose(models.maxwell(2.0, 1.0, 3.0).creep(T), 1.0 / 3.0 + T / 2.0)
    np.testing.assert_allclose(models.kelvin_voigt(2.0, 1.0, 3.0).creep(T), -np.expm1(-1.5 * T) / 3.0, rtol=1e-11)
    np.testing.assert_allclose(models.kelvin_voigt(2.0, 1.0, 3.0).relaxation(T), 3.0)
    solid = models.zener(1.0, 2.0, 0.5, 1.0)
    np.testing.assert_allclose(solid.relaxation(T), 1.0 + 2.0 * np.exp(-T / 0.5), rtol=1e-12)
    np.testing.assert_allclose(solid.creep(T), 1.0 - 2.0 / 3.0 * np.exp(-T / 1.5), rtol=1e-12)
    np.testing.assert_allclose(models.springpot(2.0, 1.0).relaxation(T), 0.0)
    np.testing.assert_allclose(models.springpot(2.0, 0.0).relaxation(T), 2.0)


def test_limits_of_the_zener_model():
    """Glassy modulus at short times and high frequencies, rubbery at long times and low ones."""
    solid = models.zener(1.0, 2.0, 0.5, 0.7)
    np.testing.assert_allclose(solid.relaxation([0.0, 1e12]), [3.0, 1.0], atol=1e-7)
    np.testing.assert_allclose(solid.creep([0.0, 1e12]), [1.0 / 3.0, 1.0], atol=1e-7)
    np.testing.assert_allclose(solid.modulus([0.0, 1e-12, 1e12]), [1.0, 1.0, 3.0], atol=1e-6)


def test_moduli_at_frequency_0():
    """A spring-pot flows, a spring holds."""
    for material, static in (
        (models.maxwell(), 0.0),
        (models.maxwell(2.0, 0.0, 3.0, 0.0), 1.2),
        (models.springpot(), 0.0),
    ):
        assert material.modulus(0.0) == pytest.approx(static)
    assert models.maxwell(2.0, 0.2, 3.0, 0.7).modulus(0.0) == 0.0


def test_poynting_thomson_is_a_zener_material():
    """The same material in other parameters."""
    e0, e1, tau, alpha = 3.0, 2.0, 0.8, 0.6
    one = models.poynting_thomson(e0, e1, tau, alpha)
    rubber = e0 * e1 / (e0 + e1)
    two = models.zener(rubber, e0 - rubber, tau * (e1 / (e0 + e1)) ** (1.0 / alpha), alpha)
    for quantity in one.quantities:
        np.testing.assert_allclose(one.simulate(T, quantity), two.simulate(T, quantity), rtol=1e-11)


def test_fit_of_noisy_relaxation_and_modulus():
    """The truth lies within a few standard errors, from far starts; and the modulus agrees without noise."""
    truth, rng = models.zener(1.0, 2.0, 0.5, 0.6), np.random.default_rng(1)
    t = np.geomspace(1e-3, 1e2, 60)
    fit = models.zener().fit(t, truth.relaxation(t) + 0.01 * rng.normal(size=t.size))
    assert fit.success and fit.quantity == "relaxation"
    assert (np.abs(fit.estimates - list(truth.values.values())) < 3.5 * fit.standard_errors).all()
    assert fit.spread == pytest.approx(0.01, rel=0.3)
    assert "alpha" in str(fit)
    modulus = models.zener(50.0, 50.0, 50.0, 0.3).fit(t, truth.modulus(t))
    np.testing.assert_allclose(modulus.estimates, list(truth.values.values()), rtol=1e-6)


def test_weights_of_a_fit_are_those_of_the_noise():
    """Noise that is equal at all frequencies, and noise in proportion: intervals cover in both (83 % before)."""
    material, w, random = models.zener(1.0, 20.0), np.geomspace(1e-2, 1e2, 40), np.random.default_rng(3)
    exact, inside, equal = material(1j * w), [], []
    for size in (0.02 * np.abs(exact), 0.1):
        for _ in range(15):
            data = exact + size * (random.standard_normal(40) + 1j * random.standard_normal(40))
            fit = material.fit(w, data)
            intervals = fit.confidence_intervals()
            inside += [intervals[name][0] <= material.values[name] <= intervals[name][1] for name in fit.names]
            equal.append("Equal standard deviations" in fit.message)
    assert np.mean(inside) > 0.85 and not any(equal[:15]) and all(equal[15:])


def test_a_wrong_value_is_refused():
    with pytest.raises(InvalidInputError, match="alpha=1.5"):
        models.zener(alpha=1.5)
    with pytest.raises(InvalidInputError, match="did you mean 'tau'"):
        models.zener().replace(tua=1.0)
    with pytest.raises(InvalidInputError, match="relaxation"):
        models.zener().simulate([1.0], "relaxtion")
    with pytest.raises(InvalidInputError, match="at least 0"):
        models.zener().relaxation([-1.0])


def test_a_fit_asks_for_few_values():
    """Residuals like noise end the search, its differences are one-sided, and all orders are one kind of call."""
    t, operation = np.geomspace(0.01, 100.0, 50), get_operation("mittag_leffler")
    noise = 1.0 + 0.01 * np.random.default_rng(0).standard_normal(t.size)
    data = models.zener(1.0, 2.0, 3.0, 0.6).relaxation(t) * noise
    operation.reset()
    fit = models.zener().fit(t, data, "relaxation")
    assert operation.calls() < 90 and len(operation._plans) == 1
    assert np.allclose(fit.estimates, [1.0, 2.0, 3.0, 0.6], atol=3.0 * fit.standard_errors)


@pytest.mark.parametrize("alpha", [0.6, 1.0])
@pytest.mark.parametrize("name", ["burgers", "jeffreys", "liquid_zener"])
def test_liquids(name, alpha):
    """Creep and relaxation are the transforms of the modulus, by mpmath's inversion."""
    mpmath = pytest.importorskip("mpmath")
    material = getattr(models, name)(alpha=alpha, tau=0.7).replace(viscosity=2.0)

    def modulus(s):
        return mpmath.mpmathify(complex(material(complex(s))))

    for t in (0.3, 2.0):
        creep = mpmath.invertlaplace(lambda s: 1 / (s * modulus(s)), t, method="talbot", degree=18)
        assert np.isclose(material.creep(t), float(creep), rtol=1e-9)
        if not (name == "jeffreys" and alpha == 1.0):  # which has an impulse at 0
            relaxation = mpmath.invertlaplace(lambda s: modulus(s) / s, t, method="talbot", degree=18)
            assert np.isclose(material.relaxation(t), float(relaxation), rtol=1e-8)
