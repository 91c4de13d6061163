"""Circuits in time, against closed forms."""

from __future__ import annotations

from math import gamma

import numpy as np
import pytest
from scipy import signal

import hpfracc as hf
from hpfracc import lab, models
from hpfracc.errors import InvalidInputError, ShapeError, UnsupportedDtypeError

CELL = models.circuit("R0-p(R1,CPE1)-W1", R0=10.0, R1=50.0, CPE1_Q=1e-3, CPE1_alpha=0.8, W1=10.0)


def test_step_of_current() -> None:
    """The voltage after a step is that of Mittag-Leffler's function and of a root of the time."""
    states = lab.circuit_states(CELL, 1e-3, 1e4)
    t = 1e-3 * np.arange(50_001)
    arc = 50.0 * (1.0 - hf.mittag_leffler(-(t**0.8) / 0.05, 0.8))
    exact = 10.0 + arc + np.sqrt(2.0) * 10.0 * np.sqrt(t) / gamma(1.5)
    np.testing.assert_allclose(states.voltage(np.ones(t.size), 1e-3)[1:], exact[1:], rtol=1e-5)


def test_state_space() -> None:
    """It has the impedance of the circuit, and SciPy simulates its matrices to the same voltage."""
    states, w = lab.circuit_states(CELL, 1e-2, 1e3), np.geomspace(1e-2, 1e3, 50)
    np.testing.assert_allclose(states.impedance(w), CELL.impedance(w), rtol=1e-4)
    assert states.error < 1e-4
    t = 0.01 * np.arange(300)
    current = np.sin(3.0 * t) + 0.2 * t
    voltage = states.voltage(current, 0.01) - states.L * np.gradient(current, 0.01)
    np.testing.assert_allclose(signal.lsim(states.matrices(), current, t)[1], voltage, rtol=1e-6, atol=1e-7)


def test_elements_with_charge_and_inductance() -> None:
    """A capacitor integrates the current, an inductor differentiates it."""
    states = lab.circuit_states(models.circuit("C1-R0-L1", C1=0.5, R0=2.0, L1=1e-3), 1e-2, 1e3)
    t = 0.01 * np.arange(200)
    np.testing.assert_allclose(states.voltage(t, 0.01), t**2 + 2.0 * t + 1e-3, atol=1e-5)


def test_refusals() -> None:
    """What cannot be had is refused."""
    with pytest.raises(InvalidInputError, match="larger rtol"):
        lab.circuit_states(CELL, 1e-3, 1e4, rtol=1e-15)
    with pytest.raises(InvalidInputError, match="low < high"):
        lab.circuit_states(CELL, 1.0, 0.1)
    with pytest.raises(InvalidInputError, match="no Impedance"):
        lab.circuit_states(models.zener(), 0.1, 1.0)  # type: ignore[arg-type]
    states = lab.circuit_states(CELL, 1e-2, 1e3)
    with pytest.raises(ShapeError, match="at least 2"):
        states.voltage([1.0], 0.1)
    with pytest.raises((InvalidInputError, UnsupportedDtypeError)):
        states.voltage(["1", "2"], 0.1)
