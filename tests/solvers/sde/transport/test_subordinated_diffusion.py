"""Subdiffusion in a force field against the fractional Fokker-Planck equation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

import hpfracc as hf
from hpfracc import transport
from hpfracc.errors import InvalidInputError, ShapeError, SolveError
from tests.helpers.law import mean_error


def test_harmonic_potential() -> None:
    """Mean x0 E_a(-k t^a), mean square x0^2 E_a(-2k t^a) + (1 - E_a(-2k t^a)) g^2 / 2k."""
    rate, size, start = 1.5, 0.8, 1.2
    process = transport.SubordinatedDiffusion(lambda x: -rate * x, size, 0.7, step=0.005, start=start)
    t = np.array([0.3, 2.0])
    paths = process.sample(t, 6000, rng=1)
    for column, time in zip(paths.T, t, strict=True):
        once, twice = (float(hf.mittag_leffler(-k * rate * time**0.7, 0.7)) for k in (1, 2))
        assert abs(mean_error(column, start * once)) < 4
        assert abs(mean_error(column**2, start**2 * twice + (1 - twice) * size**2 / (2 * rate))) < 4


def test_constant_force() -> None:
    """Mean F t^a / Gamma(1+a), exact in any step; g may be a function."""
    process = transport.SubordinatedDiffusion(lambda x: 2.0, np.ones_like, 0.6, step=10.0)
    paths = process.sample([0.5, 1.5], 6000, rng=2)
    for column, time in zip(paths.T, (0.5, 1.5), strict=True):
        assert abs(mean_error(column, 2.0 * time**0.6 / special.gamma(1.6))) < 4


def test_paths_do_not_depend_on_the_batch() -> None:
    """Alone and with others, to the bit."""
    process = transport.SubordinatedDiffusion(lambda x: -x, 1.0, 0.5, step=0.02)
    t = np.linspace(0.0, 1.0, 4)
    paths = process.sample(t, 4100, rng=3)
    np.testing.assert_array_equal(process.sample(t, 5, rng=3, first_path=4094), paths[4094:4099])


@pytest.mark.parametrize(
    ("run", "kind", "words"),
    [
        (lambda make: make(1.0, 1.0, 0.5, step=0.1), InvalidInputError, "drift=1.0"),
        (lambda make: make(np.sin, -1.0, 0.5, step=0.1), InvalidInputError, "diffusion=-1.0"),
        (lambda make: make(np.sin, 1.0, 1.0, step=0.1), InvalidInputError, "alpha=1.0"),
        (lambda make: make(np.sin, 1.0, 0.5, step=0.0), InvalidInputError, "step=0.0"),
        (lambda make: make(lambda x: x[:1], 1.0, 0.5, step=0.1).sample([1.0], 3, rng=1), ShapeError, "drift returned"),
        (lambda make: make(lambda x: 1e9 * x**3, 1.0, 0.5, step=0.1).sample([9.0], 9, rng=1), SolveError, "smaller"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_refusals(run: Callable[[Any], object], kind: type[Exception], words: str) -> None:
    """Typed, with the remedy."""
    with pytest.raises(kind, match=words):
        run(transport.SubordinatedDiffusion)
