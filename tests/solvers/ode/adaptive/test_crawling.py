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
