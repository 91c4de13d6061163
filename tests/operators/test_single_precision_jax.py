"""JAX as it comes, with x64 off: gradients of every kind go back through weights and kernels in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from tests.helpers.thinned import thinned

X = np.sin(1.0 + 0.1 * np.arange(12)).astype("float32")
BENT = np.linspace(0.0, 1.1, 12) ** 2
STEP = 1e-4
ORDER = 0.4

#: In the order, from samples; NumPy's answer by differences is what they are held to.
IN_ORDER: dict[str, Callable[[Any, Any], Any]] = {
    "caputo": lambda x, a: hf.caputo(x, step=0.1, alpha=a),
    "caputo, any grid": lambda x, a: hf.caputo(x, BENT, a),
    "caputo, fast": lambda x, a: hf.caputo(x, BENT, a, method="fast"),
    "riemann_liouville, cq3": lambda x, a: hf.riemann_liouville(x, step=0.1, alpha=a, method="cq3")[1:],
    "grunwald_letnikov": lambda x, a: hf.grunwald_letnikov(x, step=0.1, alpha=a),
    "riesz": lambda x, a: hf.riesz(x, step=0.1, alpha=a),
    "caputo_fabrizio": lambda x, a: hf.caputo_fabrizio(x, step=0.1, alpha=a),
    "atangana_baleanu": lambda x, a: hf.atangana_baleanu(x, step=0.1, alpha=a),
    "tempered_caputo": lambda x, a: hf.tempered_caputo(x, step=0.1, alpha=a),
    "variable_order": lambda x, a: hf.variable_order(x, step=0.1, alpha=a),
    "fractional_difference": lambda x, a: hf.fractional_difference(x, a, window=5, inverse=True),
    "frft": lambda x, a: abs(hf.frft(x, a)),
}


@pytest.mark.parametrize("name", IN_ORDER)
@thinned(lambda name: name == "grunwald_letnikov")
def test_gradients_in_the_order(name):
    """The gradient of float32 samples in a float32 order is that of NumPy's answer in double precision."""
    jax = pytest.importorskip("jax")
    apply = IN_ORDER[name]
    wide = X.astype("float64")
    expected = (apply(wide, ORDER + STEP).sum() - apply(wide, ORDER - STEP).sum()) / (2.0 * STEP)
    found = jax.grad(lambda a: apply(X, a).sum())(ORDER)
    assert found.dtype == "float32"
    assert float(found) == pytest.approx(float(expected), rel=1e-3)


@pytest.mark.parametrize(
    "name", ["caputo, any grid", "caputo_fabrizio", "atangana_baleanu", "tempered_caputo", "variable_order"]
)
@pytest.mark.slow
def test_second_derivatives_and_maps(name):
    """Back twice, forward over back, compiled and mapped: the same numbers."""
    jax = pytest.importorskip("jax")
    apply, wide = IN_ORDER[name], X.astype("float64")
    step = 1e-3
    bend = sum(sign * apply(wide, ORDER + k * step).sum() for k, sign in ((1, 1.0), (0, -2.0), (-1, 1.0))) / step**2

    def total(a: Any) -> Any:
        return apply(X, a).sum()

    assert float(jax.grad(jax.grad(total))(ORDER)) == pytest.approx(bend, rel=1e-3)
    assert float(jax.jit(jax.hessian(total))(ORDER)) == pytest.approx(bend, rel=1e-3)
    both = jax.vmap(jax.grad(total))(np.array([ORDER, 0.6], "float32"))
    assert float(both[0]) == pytest.approx(float(jax.grad(total)(ORDER)), rel=1e-5)


@pytest.mark.parametrize("name", ["caputo, any grid", pytest.param("caputo, fast", marks=pytest.mark.slow)])
def test_gradients_in_the_samples(name):
    """They are linear in the samples: the gradient's product with the samples is the value."""
    jax = pytest.importorskip("jax")
    apply = IN_ORDER[name]
    slope = jax.grad(lambda x: apply(x, ORDER).sum())(jax.numpy.asarray(X))
    assert float(slope @ X) == pytest.approx(float(apply(X.astype("float64"), ORDER).sum()), rel=1e-4)
