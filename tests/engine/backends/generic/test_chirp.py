"""Phases of chirps keep every digit, at any length."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from hpfracc._xp import NUMPY
from hpfracc.engine.backends.generic.chirp_transform import turns
from hpfracc.engine.backends.registry import load_kernels


@pytest.mark.parametrize("largest", [100, 8_000, 10**6, 2**26 + 1, 2**30])
@pytest.mark.parametrize("rate", [0.1, 1 / 3, 1e-9 / 3, -7.77, 123456.789, 2.0**-60 / 3])
def test_turns_against_exact_fractions(rate: float, largest: int):
    """``rate m^2`` less whole turns is right to 4e-16 turns, whatever the size of either factor."""
    index = np.concatenate([np.arange(20), largest - np.arange(20), np.linspace(0, largest, 50).astype(np.int64)])
    found = turns(NUMPY, np.array([rate]), np.array([1e-25]), index, largest)
    exact = [(Fraction(rate) + Fraction(1e-25)) * int(m) ** 2 for m in index]
    right = np.array([float(phase - round(phase)) for phase in exact])
    distance = found - right
    assert np.abs(distance - np.rint(distance)).max() < 4e-16 * (1 + 1e-25 * largest**2)


def test_many_points_against_the_sum():
    """Sampled outputs of many points agree with the sum, its phases exact: 1e-15 of the norm of x."""
    n, rate = 3 * 10**5, 0.000123456789012345
    x = np.random.default_rng(0).standard_normal(n)
    found = load_kernels("chirp_transform", "numpy")["fft"].run(x, np.array([0.0, rate, 0.0]))
    exact = Fraction(rate)
    period = exact.denominator
    for k in (233_333, n - 1):
        step = exact.numerator * k % period
        # In integers: the fraction of n k rate, its first 60 bits.
        phases = np.array([((step * m % period) << 60) // period for m in range(n)], dtype=np.float64) / 2.0**60
        right = np.sum(x * np.exp(-2j * np.pi * phases))
        assert abs(found[k] - right) < 4e-15 * np.linalg.norm(x)
