"""Weights that come back are transformed once, under the key their maker gives."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import hpfracc as hf
from hpfracc.engine.execution.prepared import PreparedOperands, prepared_operands
from hpfracc.engine.memory.host import HostMemory, HostProbe, MemoryLimit

RNG = np.random.default_rng(3)
W, X = RNG.standard_normal(500), RNG.standard_normal((3, 500))
Y = np.stack([np.convolve(W, row)[:500] for row in X])


@pytest.mark.parametrize("backend", ["numpy", "numba", "torch", "jax", "auto"])
def test_same_answer_with_and_without_a_key(backend: str) -> None:
    """Whatever the arm, whether it prepares anything or not, at the first call and at later ones."""
    for _ in range(3):
        np.testing.assert_allclose(hf.causal_convolution(W, X, weights_key="w", backend=backend), Y, atol=1e-11)
    np.testing.assert_allclose(hf.causal_convolution(W, X, backend=backend), Y, atol=1e-11)


def test_the_transform_is_made_once() -> None:
    """Five calls on one arm: one miss, four hits; another key or another length is another transform."""
    with hf.config(deterministic=True):
        for _ in range(5):
            hf.causal_convolution(np.ones(5000), np.ones(5000), weights_key="ones", backend="torch")
    assert (prepared_operands.misses, prepared_operands.hits) == (1, 4)
    hf.causal_convolution(np.ones(5000), np.ones(5000), weights_key="other", backend="torch")
    hf.causal_convolution(np.ones(6000), np.ones(6000), weights_key="ones", backend="torch")
    assert prepared_operands.misses == 3


def test_weights_that_carry_a_gradient_are_never_kept() -> None:
    """A kept transform would be cut off from the derivative."""
    w = torch.tensor(W, requires_grad=True)
    for _ in range(2):
        w.grad = None
        hf.causal_convolution(w, torch.tensor(X), weights_key="learned").sum().backward()
        assert w.grad is not None and float(w.grad.abs().sum()) > 0
    assert len(prepared_operands) == 0


def test_an_operation_that_prepares_nothing_refuses_a_key() -> None:
    """An option is obeyed or refused, never ignored."""
    with pytest.raises(hf.errors.InvalidInputError, match="matmul.*omit weights_key"):
        hf.matmul(np.eye(3), np.eye(3), weights_key="eye")


def test_bounded_in_bytes_and_oldest_out_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not used for longest goes; what takes too much of the memory is not kept at all."""
    monkeypatch.setattr(HostProbe, "read", lambda _: HostMemory((MemoryLimit("ram", 32 * 1999, 0),)))
    cache = PreparedOperands(capacity=1000)
    made: list[str] = []

    def make(name: str, size: int) -> np.ndarray:
        def maker() -> np.ndarray:
            made.append(name)
            return np.zeros(size, np.uint8)

        return cache.get(name, maker)

    make("a", 400)
    make("b", 400)
    make("a", 400)
    make("c", 400)
    assert made == ["a", "b", "c"] and cache.bytes == 800
    make("a", 400)
    make("b", 400)
    assert made == ["a", "b", "c", "b"]
    make("huge", 2000)
    make("huge", 2000)
    assert made[-2:] == ["huge", "huge"]
    assert cache.clear() == 800 and len(cache) == 0


def test_a_key_on_two_devices_of_jax() -> None:
    """Each device has its own transform."""
    program = """
import jax, numpy as np, hpfracc as hf
weights, signal = np.arange(1.0, 2001.0, dtype="float32"), np.ones((3, 2000), "float32")
for device in jax.devices():
    w, x = jax.device_put(weights, device), jax.device_put(signal, device)
    for _ in range(2):
        found = hf.causal_convolution(w, x, weights_key="two", backend="jax")
        assert found.devices() == {device}, found.devices()
        np.testing.assert_allclose(found, np.cumsum(weights)[None].repeat(3, 0), atol=2.0, rtol=0)
"""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, **flags}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
