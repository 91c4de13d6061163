"""Delays of reactions, against the method of steps."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.pde import Diffusion

X = np.linspace(0.0, 1.0, 9)
ONE = np.ones_like(X)
BOX = {"x": X, "space": Diffusion(1.0), "boundary": "neumann"}
RATE = 1.2


def exact(t, alpha, before=1.0):
    """``D^alpha u = -k u(t - 1)``, u0 = 1, with a constant history: u is the same everywhere."""
    t = np.asarray(t)
    # The response to the history up to t = 1, and to u itself, whose first part is 1, behind.
    total = 1.0 - RATE * before * (t**alpha - np.maximum(t - 1.0, 0.0) ** alpha) / math.gamma(1.0 + alpha)
    for j in range(1, 4):
        gone, power = np.maximum(t - j, 0.0), j * alpha
        total = total + (-RATE) ** j * gone**power / math.gamma(1.0 + power)
        part = (-RATE) ** (j + 1) * before / math.gamma(1.0 + power + alpha)
        total = total + part * (gone ** (power + alpha) - np.maximum(gone - 1.0, 0.0) ** (power + alpha))
    return total


def delayed(t, u, then):
    return -RATE * then[0]


@pytest.mark.parametrize(("alpha", "before"), [(0.6, 1.0), (1.0, 1.0), (1.5, 1.0), (0.6, 0.5)])
def test_method_of_steps(alpha, before):
    """To a tolerance, also with a history that jumps to u0."""
    given = {"du0": 0.0} if alpha > 1.0 else {}
    found = hf.solve_fpde(
        delayed, (0.0, 2.5), ONE, alpha=alpha, delays=[1.0], history=before, rtol=1e-3, **given, **BOX
    )
    assert found.success
    error = np.abs(found.u[:, 4] - exact(found.t, alpha, before)).max()
    assert error <= max(3.0 * found.error_estimate.time, 1e-10)
    assert error < 5e-3


@pytest.mark.parametrize("method", ["l1", "l2_1sigma", "convolution_quadrature"])
def test_given_steps_and_a_delay_shorter_than_one(method):
    """The delayed state lies within the step that is being solved; a tiny delay hardly changes the decay."""
    given = {**BOX, "alpha": 0.6, "method": method, "step": 0.05, "save": "last"}
    found = hf.solve_fpde(delayed, (0.0, 1.0), ONE, delays=[1e-6], history=lambda t: ONE, **given)
    plain = hf.solve_fpde(lambda t, u: -RATE * u, (0.0, 1.0), ONE, **given)
    np.testing.assert_allclose(found.u, plain.u, atol=1e-4)


def test_several_delays_coordinates_arguments_and_jac():
    def reaction(t, u, then, x, rate):
        return -rate * u + 0.5 * then[0] * np.cos(x) - 0.25 * then[1]

    def jac(t, u, then, x, rate):
        return -rate + 0.0 * u

    given = {**BOX, "alpha": 0.7, "delays": [0.3, 0.4], "history": lambda t: (1.0 + t) * ONE, "step": 0.02}
    found = hf.solve_fpde(reaction, (0.0, 1.0), ONE, args=(2.0,), jac=jac, **given)
    plain = hf.solve_fpde(reaction, (0.0, 1.0), ONE, args=(2.0,), **given)
    np.testing.assert_allclose(found.u, plain.u, atol=1e-6)
    assert np.isfinite(found.error_estimate.space)  # the history on coarser grids, too


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"history": None}, InvalidInputError, "need a history"),
        ({"delays": [0.0]}, InvalidInputError, "delays"),
        ({"delays": []}, InvalidInputError, "give all, or none"),
        ({"history": np.ones(3)}, ShapeError, "history"),
        ({"history": math.nan}, ShapeError, "finite"),
        ({"method": "adaptive"}, InvalidInputError, "does not take delays"),
        ({"method": "convolution_quadrature", "history": 0.5}, InvalidInputError, "does not end with u0"),
        ({"reaction": None}, InvalidInputError, "for a reaction"),
        ({"reaction": lambda t, u: -u}, InvalidInputError, "delayed"),
    ],
)
def test_refusals(change, kind, words):
    given = {"reaction": delayed, "delays": [1.0], "history": 1.0, "alpha": 0.6, **BOX, **change}
    with pytest.raises(kind, match=words):
        hf.solve_fpde(given.pop("reaction"), (0.0, 2.0), ONE, **given)


def test_steps_end_where_delays_add_up():
    """The solution bends at each delay, and at the sums of them."""
    found = hf.solve_fpde(
        lambda t, u, then: -then[0] - then[1], (0.0, 1.5), ONE, alpha=0.6, delays=[0.3, 0.5], history=1.0, rtol=1e-3,
        **BOX,
    )  # fmt: skip
    assert found.success
    assert all(np.abs(found.t - bend).min() < 1e-9 for bend in (0.3, 0.5, 0.6, 0.8))
