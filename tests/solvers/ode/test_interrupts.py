"""Ctrl-C in the very first call of the right-hand side: the initial value comes back, with success=False."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf

WAYS: dict[str, dict[str, Any]] = {
    "auto": {},
    "auto with a step": {"step": 0.1},
    "adaptive": {"method": "adaptive"},
    "halved steps": {"method": "bdf2"},
    "bdf2": {"method": "bdf2", "step": 0.01},
    "pece": {"method": "pece", "step": 0.01},
    "implicit": {"method": "implicit_trapezoid", "step": 0.01},
    "graded": {"method": "l1", "step": 0.01},
    "mittag_leffler": {"method": "mittag_leffler", "step": 0.01},
    "compiled": {"method": "pece", "step": 0.01, "compile": True},
    "numba": {"method": "pece", "step": 0.01, "compile": False, "backend": "numba"},
    "infinite": {"derivative": "riemann_liouville"},
    "infinite with a step": {"derivative": "riemann_liouville", "step": 0.01},
    "terms": {"terms": [(1.0, 0.2)], "step": 0.01},
    "delays": {"delays": [0.1], "history": lambda t: 0.0},
    "events": {"step": 0.1, "events": lambda t, y: y[0]},
}


def interrupted(t: float, y: Any, *more: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("way", WAYS)
def test_in_the_first_call(way: str):
    """Whoever makes it: the method, the look for stiffness, the compilation, the look at the start."""
    if way in ("compiled", "numba"):
        pytest.importorskip("numba")
    result = hf.solve_fode(interrupted, (0.0, 1.0), [1.0, 2.0], 0.6, **WAYS[way])
    assert not result.success and "Interrupted at t = 0" in result.message
    assert result.t.tolist() == [0.0] and result.y.shape == (2, 1)
    expected = [np.inf, np.inf] if "infinite" in way else [1.0, 2.0]
    assert result.y[:, 0].tolist() == expected
    assert (result.t_events is None) == ("events" not in WAYS[way])


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_with_tensors(library: str):
    """The initial value as it was given, in its own library."""
    xp = pytest.importorskip(library)
    y0 = xp.asarray([1.0, 2.0])
    result = hf.solve_fode(interrupted, (0.0, 1.0), y0, 0.6, step=0.1)
    assert not result.success and type(result.y) is type(y0) and result.y[:, 0].tolist() == [1.0, 2.0]


def test_times_asked_for():
    """The start is among them or it is not."""
    for step in (None, 0.1):
        assert hf.solve_fode(interrupted, (0.0, 1.0), [1.0], 0.6, step=step, t_eval=[0.5, 1.0]).y.shape == (1, 0)
        assert hf.solve_fode(interrupted, (0.0, 1.0), [1.0], 0.6, step=step, t_eval=[0.0, 1.0]).y.shape == (1, 1)
