"""Fractional integrals among the terms in time, against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError
from hpfracc.pde import CorrectedQuadrature, Diffusion, DiffusionL1
from hpfracc.special import mittag_leffler as ml

X = np.linspace(0.0, math.pi, 9)
ONE = np.ones_like(X)
BOX = {"x": X, "space": Diffusion(1.0), "boundary": "neumann"}
RATE = 1.3


def exact(t, alpha, beta, velocity=0.0):
    """``D^alpha u + c I^beta u = 0`` from 1, the same everywhere: ``E_(alpha+beta)(-c t^(alpha+beta))``."""
    z = -RATE * t ** (alpha + beta)
    return ml(z, alpha + beta) + velocity * t * ml(z, alpha + beta, 2.0)


@pytest.mark.parametrize(
    ("method", "alpha", "beta", "order"),
    [
        (DiffusionL1(), 0.6, 0.7, 1.4),
        (DiffusionL1(), 1.0, 0.5, 1.0),
        (CorrectedQuadrature(2), 0.6, 0.7, 2.0),
        (CorrectedQuadrature(2), 1.5, 0.3, 2.0),
        (CorrectedQuadrature(3), 1.0, 0.5, 3.0),
        (CorrectedQuadrature(4), 0.6, 0.7, 4.0),
    ],
)
def test_order(method, alpha, beta, order):
    errors, velocity = [], {"du0": 0.5} if alpha > 1.0 else {}
    for steps in (32, 64, 128):
        found = hf.solve_fpde(
            None, (0.0, 2.0), ONE, alpha=alpha, terms=[(RATE, -beta)], method=method, step=2.0 / steps, save="last",
            **velocity, **BOX,
        )  # fmt: skip
        errors.append(abs(found.u[-1, 4] - exact(2.0, alpha, beta, velocity.get("du0", 0.0))))
    assert math.log2(errors[-2] / errors[-1]) == pytest.approx(order, abs=0.15)


@pytest.mark.parametrize(("alpha", "beta"), [(0.6, 0.7), (1.0, 0.5), (1.0, 2.0)])
def test_to_a_tolerance(alpha, beta):
    found = hf.solve_fpde(None, (0.0, 2.0), ONE, alpha=alpha, terms=[(RATE, -beta)], rtol=1e-4, **BOX)
    assert found.decision.method == "convolution_quadrature"
    error = np.abs(found.u[:, 4] - exact(found.t, alpha, beta)).max()
    assert error <= 3.0 * found.error_estimate.time < 1e-3


@pytest.mark.parametrize("reacts", [False, True])
def test_one_mode_is_a_damped_oscillator(reacts):
    """u' + u + c I u = 0: the transform s / (s^2 + s + c); the decay by diffusion of sin x, or by a reaction."""
    roots = np.roots([1.0, 1.0, 2.0])
    given = {**BOX, "boundary": "dirichlet"} if not reacts else BOX
    start = np.sin(X) if not reacts else ONE
    found = hf.solve_fpde(
        (lambda t, u: -u) if reacts else None, (0.0, 3.0), start, terms=[(2.0, -1.0)], rtol=1e-4, **given
    )
    shares = [roots[0] / (roots[0] - roots[1]), roots[1] / (roots[1] - roots[0])]
    truth = sum(c * np.exp(r * found.t) for c, r in zip(shares, roots, strict=True)).real
    assert np.abs(found.u[:, 4] - truth).max() <= 3.0 * found.error_estimate.time < 1e-3


def test_refusals():
    for terms, words in (
        ([(1.0, -2.5)], r"has to be in \(0, 2\]"),
        ([(1.0, 0.0)], r"has to be in \(0, 2\]"),
        ([(math.nan, -0.5)], "coefficient"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            hf.solve_fpde(None, (0.0, 1.0), ONE, terms=terms, **BOX)
    with pytest.raises(InvalidInputError, match="adaptive"):
        hf.solve_fpde(None, (0.0, 1.0), ONE, terms=[(1.0, -0.5)], method="adaptive", **BOX)
