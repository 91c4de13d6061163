"""What a call may look like: parameters of any type, keys that are misused, tensors that are no plain arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import hpfracc as hf
from hpfracc.errors import ConfigurationError, InvalidInputError, ShapeError
from tests.helpers.thinned import thinned

RNG = np.random.default_rng(11)
X = RNG.standard_normal((2, 3, 300))


def test_a_list_of_axes_is_a_list_of_axes() -> None:
    """``axis=[0, 1]`` means what ``axis=(0, 1)`` means, at the first call and at later ones."""
    for _ in range(3):
        np.testing.assert_allclose(hf.reduction(X, axis=[0, 1]), X.sum((0, 1)))
        np.testing.assert_allclose(hf.reduction(X, axis=[1]), X.sum(1))
    assert hf.explain(hf.reduction, X, axis=[0, 1]).decision.operation == "reduction"


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: hf.fft(X, backend=["numpy"]), ConfigurationError, r"\['numpy'\]"),
        (lambda: hf.causal_convolution(X, X, weights_key=[1]), InvalidInputError, r"weights_key=\[1\].*tuple"),
        (lambda: hf.causal_convolution([[1.0, 2.0], [3.0]], X), ShapeError, "make them equal"),
        (lambda: hf.matmul(torch.eye(3).to_sparse(), torch.eye(3)), InvalidInputError, r"sparse.*to_dense\(\)"),
    ],
    ids=["backend", "weights_key", "ragged", "sparse"],
)
def test_what_cannot_be_taken_is_refused_in_words(call: Any, error: type[Exception], words: str) -> None:
    """A typed error with the value and the remedy, not what a dict says of its keys."""
    for _ in range(2):
        with pytest.raises(error, match=words):
            call()


@pytest.mark.parametrize("n", [40, 300, 5000])
@pytest.mark.parametrize("backend", ["numpy", "numba", "torch", "jax", "auto"])
@thinned(lambda backend, n: backend in ("numpy", "auto") or n == 300)
def test_a_key_used_for_other_weights_than_before_is_no_trap(backend: str, n: int) -> None:
    """The same key with another shape, dtype or length: what was kept for the one is not used for the other."""
    x = RNG.standard_normal((2, 2, n))
    rows = RNG.standard_normal((2, n))
    for weights in (
        rows,
        rows[:, None, :],
        rows[None],
        rows[0],
        rows[0, : n // 2],
        rows[0].astype(np.float32),
        rows[0] + 0j,
    ):
        for _ in range(2):
            kept = hf.causal_convolution(weights, x, weights_key="mine", backend=backend)
            plain = hf.causal_convolution(weights, x, backend="numpy")
            assert kept.dtype == plain.dtype and kept.shape == plain.shape
            np.testing.assert_allclose(kept, plain, atol=1e-10 * n)


def test_the_same_weights_in_another_array_are_not_transformed_again() -> None:
    """What the key is for: equal shape and dtype under one key are one operand."""
    from hpfracc.engine.execution.prepared import prepared_operands

    weights = RNG.standard_normal(5000)
    with hf.config(deterministic=True):
        for _ in range(4):
            hf.causal_convolution(weights.copy(), weights, weights_key="w", backend="torch")
    assert (prepared_operands.misses, prepared_operands.hits) == (1, 3)
