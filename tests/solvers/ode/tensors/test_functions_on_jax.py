"""Functions on JAX arrays see what was changed around them, although their programs are compiled and kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf

pytest.importorskip("jax")
import jax.numpy as jnp

TIMES = np.linspace(0.0, 1.0, 11)
RATE = 1.0


def rated(t: Any, y: Any) -> Any:
    return -RATE * y


class Model:
    def __init__(self) -> None:
        self.rate: Any = 1.0

    def __call__(self, t: Any, y: Any) -> Any:
        return -self.rate * y


def last(fun: Any) -> Any:
    return hf.fdeint(fun, jnp.array([1.0]), TIMES, 0.5, step=0.1)[-1, 0]


def test_a_global_changed_between_calls_is_seen(monkeypatch: pytest.MonkeyPatch):
    """The same function object twice."""
    for rate in (1.0, 3.0):
        monkeypatch.setitem(globals(), "RATE", rate)
        wanted = hf.solve_fode(rated, (0.0, 1.0), [1.0], 0.5, step=0.1, method="pece").y[0, -1]
        assert float(last(rated)) == pytest.approx(wanted, rel=1e-5)


def test_a_function_is_traced_once_where_nothing_changed():
    """The program is kept; that of an object, which may have changed, is made anew."""
    from hpfracc.solvers.ode.tensors.on_jax.blocks import _program_of

    def gentle(t: Any, y: Any) -> Any:
        return -RATE * jnp.sin(y)

    assert _program_of(gentle) is _program_of(gentle)
    model = Model()
    assert _program_of(model) is not _program_of(model)
