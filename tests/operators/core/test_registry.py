"""Definitions by name."""

from __future__ import annotations

import numpy as np
import pytest

import hpfracc as hf

T = np.linspace(0.0, 1.0, 33)


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("caputo", hf.Caputo),
        ("Caputo", hf.Caputo),
        ("RL", hf.RiemannLiouville),
        ("riemann_liouville", hf.RiemannLiouville),
        ("Riemann-Liouville", hf.RiemannLiouville),
        ("GL", hf.GrunwaldLetnikov),
        ("grünwald-letnikov", hf.GrunwaldLetnikov),
        ("Marchaud", hf.Marchaud),
        ("Caputo-Fabrizio", hf.CaputoFabrizio),
        ("CF", hf.CaputoFabrizio),
        ("Atangana-Baleanu", hf.AtanganaBaleanu),
        ("ABC", hf.AtanganaBaleanu),
        ("ABR", hf.AtanganaBaleanuRiemann),
        ("tempered", hf.TemperedRiemannLiouville),
        ("tempered Caputo", hf.TemperedCaputo),
        ("variable-order", hf.VariableOrder),
        ("Coimbra", hf.VariableOrder),
    ],
)
def test_derivatives_by_full_and_short_name(name: str, operator: type):
    """``D(f, x)`` takes a function or samples, and is the operator of that name with its options."""
    derivative = hf.create_fractional_derivative(0.5, name, method="auto")
    assert derivative == operator(0.5)
    np.testing.assert_array_equal(derivative(T**2, T), operator(0.5)(T**2, T))
    np.testing.assert_array_equal(derivative(np.sin, T[1:]), operator(0.5)(np.sin, T[1:]))


@pytest.mark.parametrize("name", ["riemann_liouville", "RL"])
def test_integrals_by_name(name: str):
    """The same name means the integral to the other factory."""
    assert hf.create_fractional_integral(0.5, name) == hf.RiemannLiouvilleIntegral(0.5)
    assert hf.create_fractional_integral(0.5) == hf.RiemannLiouvilleIntegral(0.5)


def test_definitions_with_a_variable_of_their_own_by_name():
    """Those of log t and psi take their options the same way, and the integrals have their names too."""
    assert hf.create_fractional_derivative(0.5, "Hadamard") == hf.Hadamard(0.5)
    assert hf.create_fractional_derivative(0.5, "CH") == hf.CaputoHadamard(0.5)
    assert hf.create_fractional_derivative(0.5, "psi-Caputo", psi=np.log) == hf.PsiCaputo(0.5, np.log)
    assert hf.create_fractional_derivative(0.5, "tempered", rate=2.0) == hf.TemperedRiemannLiouville(0.5, 2.0)
    for name, operator in (
        ("hadamard", hf.HadamardIntegral),
        ("CF", hf.CaputoFabrizioIntegral),
        ("AB", hf.AtanganaBaleanuIntegral),
        ("tempered", hf.TemperedIntegral),
    ):
        assert hf.create_fractional_integral(0.5, name) == operator(0.5)
