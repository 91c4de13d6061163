"""Sine series of many rows, against SciPy's transform."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft

pytest.importorskip("numba")

import hpfracc as hf
from hpfracc.pde import Diffusion
from hpfracc.solvers.pde.compiled.sines import sine_values


@pytest.mark.parametrize("points", [*range(1, 10), 127, 128, 130, 999, 1000])
def test_values_are_those_of_scipy(points: int) -> None:
    rng = np.random.default_rng(points)
    for rows in (1, 2, 5):
        c = rng.standard_normal((rows, points))
        whole = np.full((rows, points + 2), np.nan)
        sine_values(c, whole[:, 1:-1])
        expected = scipy.fft.idst(c, 1, axis=-1)
        np.testing.assert_allclose(whole[:, 1:-1], expected, rtol=0.0, atol=1e-14 * np.abs(expected).max())
        assert np.isnan(whole[:, [0, -1]]).all()


def test_rounding_does_not_grow_with_the_length_for_smooth_values() -> None:
    for points in (200, 4000):
        c = 1.0 / np.arange(1.0, points + 1.0)[None] ** 2
        found = np.empty_like(c)
        sine_values(c, found)
        expected = scipy.fft.idst(c, 1, axis=-1)
        assert np.abs(found - expected).max() < 2e-14 * np.abs(expected).max()


def test_frames_that_are_written_in_place_are_those_of_numpy() -> None:
    x = np.linspace(0.0, 3.0, 24)
    given = {"x": x, "space": Diffusion(0.7), "boundary": "dirichlet", "alpha": 0.45, "step": 1.0 / 90}
    made = [
        hf.solve_fpde(None, (0.0, 1.0), x * (x - 3.0), method="l1", compile=compiled, **given)
        for compiled in (False, True)
    ]
    assert made[1].stats["compiled"]
    np.testing.assert_allclose(made[1].u, made[0].u, rtol=0.0, atol=1e-13)
    assert made[1].error_estimate.space == pytest.approx(made[0].error_estimate.space, rel=1e-6)
