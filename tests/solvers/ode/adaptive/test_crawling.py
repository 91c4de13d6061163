"""Solves that would not end, and numbers that would overflow."""

from __future__ import annotations

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError


@pytest.mark.parametrize("backend", ["numba", pytest.param("numpy", marks=pytest.mark.slow)])
def test_a_sliding_mode_ends_with_its_cause(backend: str):
    """Steps along the surface of a switching law shrink without end: told after a few thousand of them."""
    pytest.importorskip(backend)
    result = hf.solve_fode(lambda t, y: -np.sign(y), (0.0, 3.0), [1.0], 0.8, rtol=1e-3, backend=backend)
    assert not result.success and "jumps" in result.message and "tanh" in result.message
    assert result.t[-1] == pytest.approx(0.915, abs=1e-2) and result.nfev < 100_000


@pytest.mark.parametrize("alpha", [1.0, 0.9])
@pytest.mark.parametrize("rtol", [1e-3, pytest.param(1e-6, marks=pytest.mark.slow)])
def test_a_blow_up_is_called_so_with_its_time(alpha: float, rtol: float):
    """y' = y^2 from 1 ends at t = 1, and at 0.81 for the order 0.9."""
    result = hf.solve_fode(lambda t, y: y * y, (0.0, 2.0), [1.0], alpha, rtol=rtol, atol=rtol, backend="numpy")
    assert not result.success and f"blows up at about t = {result.t[-1]:.6g}" in result.message
    assert (
        result.t[-1] == pytest.approx(1.0 if alpha == 1.0 else 0.8105, abs=2e-3) and "switching" not in result.message
    )


def test_a_slow_blow_up_and_a_system():
    """e^y reaches only 30, and a system like Lorenz's with another sign is called by its largest component."""

    def system(t: float, y: np.ndarray) -> np.ndarray:
        return np.array([10.0 * (y[1] - y[0]), y[0] * (28.0 + y[2]) - y[1], y[0] * y[1] - 2.0 * y[2]])

    options = {"rtol": 1e-3, "atol": 1e-3, "backend": "numpy"}
    assert "blows up at about t = 0.56" in hf.solve_fode(lambda t, y: np.exp(y), (0, 3), [0.0], 0.7, **options).message
    with np.errstate(over="ignore"):
        assert "blows up at about t = 0.29" in hf.solve_fode(system, (0, 3), [1.0] * 3, 0.95, **options).message


def test_steps_that_grow_are_not_taken_for_crawling():
    """Over ten decades of time steps begin tiny and grow: the end is reached."""
    result = hf.solve_fode(lambda t, y: -y, (0.0, 1e10), [1.0], 0.5, rtol=1e-3)
    assert result.t[-1] == 1e10 and "reached" in result.message


@pytest.mark.parametrize("method", ["auto", "l1", "pece"])
def test_a_span_beyond_float64_is_refused(method: str):
    """In words, with the length and what to do."""
    with pytest.raises(InvalidInputError, match="1e\\+300.*other time units"):
        hf.solve_fode(lambda t, y: -y, (0.0, 1e300), [1.0], 0.5, method=method)
    with pytest.raises(InvalidInputError, match="larger step"):
        hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], 0.5, method=method, step=1e-320)


def test_a_short_delay_is_refused():
    """Adaptive steps stay below the delay. A solve that needs too many is refused; the message says what to do."""
    with pytest.raises(InvalidInputError, match="shortest delay, 1e-06"):
        hf.solve_fode(
            lambda t, y, past: -past[0], (0.0, 1.0), [1.0], 0.5, delays=[1e-6], history=lambda t: 1.0, max_steps=300
        )
