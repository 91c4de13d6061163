"""Reading values that may be unknown while a function is transformed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpfracc.operators.core import grids
from hpfracc.operators.core.grids import known_values


def test_values_of_arrays_are_known():
    """Of NumPy, numbers, and tensors that track a gradient."""
    torch = pytest.importorskip("torch")
    assert known_values(2.5) == 2.5
    for value in (np.arange(3.0), torch.arange(3.0, requires_grad=True)):
        np.testing.assert_array_equal(known_values(value), [0.0, 1.0, 2.0])


@pytest.mark.parametrize("transform", ["jit", "grad", "vmap"])
def test_values_of_tracers_are_unknown(transform: str):
    """Under every transformation of JAX."""
    jax = pytest.importorskip("jax")
    seen: list[Any] = []

    def function(x: Any) -> Any:
        seen.append(known_values(x))
        return x * 2.0

    getattr(jax, transform)(function)(jax.numpy.ones(2) if transform == "vmap" else 1.0)
    assert seen == [None]


def test_values_of_mapped_tensors_are_unknown():
    """Under ``torch.func.vmap``; those of ``grad`` can be read."""
    torch = pytest.importorskip("torch")
    seen: list[Any] = []

    def function(x: Any) -> Any:
        seen.append(known_values(x))
        return x * 2.0

    torch.func.vmap(function)(torch.ones(2))
    torch.func.grad(function)(torch.tensor(1.0))
    assert seen == [None, 1.0]


@pytest.mark.parametrize("error", [RuntimeError("CUDA error: device-side assert"), MemoryError(), TypeError("wrong")])
def test_errors_of_plain_arrays_are_raised(error: Exception, monkeypatch: pytest.MonkeyPatch):
    """A failing device is no transformation: the values are not taken for unknown."""

    def fail(value: Any) -> Any:
        raise error

    monkeypatch.setattr(grids, "to_host", fail)
    with pytest.raises(type(error)):
        known_values(np.ones(2))
