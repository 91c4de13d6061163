"""The forecast of memory against the peak that NumPy's allocations reach."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.pde import CorrectedQuadrature, Diffusion, DiffusionL1, DiffusionL2Sigma, FractionalDiffusion
from tests.helpers.thinned import thinned

X = np.linspace(0.0, np.pi, 402)
Y = np.linspace(0.0, np.pi, 98)
Z = 2.0 * np.pi / 96 * np.arange(96)
LINE = {"u0": np.sin(X), "x": X, "space": Diffusion(1.0), "boundary": "dirichlet", "alpha": 0.5}
PLANE = {**LINE, "u0": np.outer(np.sin(Y), np.sin(Y)), "x": (Y, Y)}
PERIOD = {"u0": np.outer(np.cos(Z), np.sin(Z)), "x": (Z, Z), "space": FractionalDiffusion(1.5), "boundary": "periodic"}
LAST = {"save": "last", "estimate": False}
VARIED = {**PLANE, "space": Diffusion(lambda x, y: 1.0 + x + 0.0 * y)}


def square(t: float, u: np.ndarray) -> np.ndarray:
    return -u * u


CASES = {
    "direct, compiled, all": (None, {**LINE, "method": DiffusionL1(memory="direct"), "step": 1e-3, "compile": True}),
    "direct, all": (None, {**LINE, "method": DiffusionL1(memory="direct"), "step": 2e-3, "compile": False}),
    "exponentials, last": (
        None,
        {**PLANE, **LAST, "method": DiffusionL2Sigma(memory="exponentials"), "step": 0.02, "compile": True},
    ),
    "reaction, all": (square, {**PLANE, "method": DiffusionL1(reaction="imex"), "step": 0.02}),
    "quadrature, last": (None, {**PLANE, **LAST, "method": CorrectedQuadrature(2), "step": 0.02}),
    "exact": (None, {**PLANE, "t_eval": np.linspace(0.0, 1.0, 40)}),
    "etdrk4, estimated": (square, {**PERIOD, "method": "etdrk4", "step": 1.0 / 32, "save": "last"}),
    "imex_bdf2": (square, {**PERIOD, **LAST, "method": "imex_bdf2", "step": 0.1}),
    "finite volumes": (None, {**VARIED, **LAST, "method": DiffusionL1(memory="direct"), "step": 0.1}),
    "adaptive": (square, {**PERIOD, "method": "etdrk4", "rtol": 1e-3}),
}


@pytest.mark.parametrize("name", CASES)
@thinned(one_in=2)
def test_the_peak_is_within_a_factor_of_the_forecast(name: str):
    """1.3, either way."""
    reaction, given = CASES[name]
    options = dict(given)
    u0 = options.pop("u0")
    found = hf.solve_fpde(reaction, (0.0, 1.0), u0, **options)
    forecast = found.stats["forecast_bytes"]
    del found
    gc.collect()
    tracemalloc.start()
    try:
        hf.solve_fpde(reaction, (0.0, 1.0), u0, **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 1.0 / 1.3 < peak / forecast < 1.3
