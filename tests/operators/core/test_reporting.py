"""The share of noise in error estimates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError
from hpfracc.special import grunwald_weights

T = np.linspace(0.0, 2.0, 101)
UNEVEN = 2.0 * np.linspace(0.0, 1.0, 101) ** 1.5
OPERATORS: dict[str, Callable[..., Any]] = {
    "caputo": lambda f, **options: hf.caputo(f, T, 0.5, **options),
    "fitted start": lambda f, **options: hf.caputo(f, T, 1.5, **options),
    "given start": lambda f, **options: hf.caputo(f, T, 1.5, initial=[3.0], **options),
    "any grid": lambda f, **options: hf.caputo(f, UNEVEN, 0.5, **options),
    "right": lambda f, **options: hf.riemann_liouville(f, T, 0.5, side="right", **options),
    "integral": lambda f, **options: hf.riemann_liouville_integral(f, T, 0.5, **options),
    "hadamard": lambda f, **options: hf.hadamard(f, T + 1.0, 0.5, **options),
    "caputo_fabrizio": lambda f, **options: hf.caputo_fabrizio(f, T, 0.5, **options),
    "variable_order": lambda f, **options: hf.variable_order(f, T, lambda x: 0.4 + 0.1 * x, **options),
    "riesz": lambda f, **options: hf.riesz(f, T, 1.3, **options),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_noise_is_propagated(name: str):
    """What noise adds to the estimate is the scatter of the results of noisy samples."""
    apply, f = OPERATORS[name], np.sin(3.0 * (UNEVEN if name == "any grid" else T))
    added = apply(f, noise=0.1, full_output=True).error_estimate - apply(f, full_output=True).error_estimate
    random = np.random.default_rng(3)
    inside = slice(8, -8)  # first points may be infinite, or without an estimate
    scatter = np.std([apply(f + 0.1 * random.standard_normal(T.size))[inside] for _ in range(200)], axis=0)
    ratio = added[inside] / scatter
    assert ratio.min() > 0.7 and ratio.max() < 1.35 and abs(ratio.mean() - 1.0) < 0.1


def test_noise_of_weights():
    """The standard deviation is the norm of the weights times that of the noise; rows share it, and libraries too."""
    torch = pytest.importorskip("torch")
    f = np.stack([np.cos(T), T])
    norms = T[1] ** -0.4 * np.sqrt(np.cumsum(grunwald_weights(0.4, T.size) ** 2))
    for samples in (f, torch.as_tensor(f)):
        one, other = (
            hf.grunwald_letnikov(samples, step=T[1], alpha=0.4, full_output=True, **more).error_estimate
            for more in ({"noise": 0.01}, {})
        )
        added = np.asarray(one - other)
        assert added.shape == f.shape
        known = np.isfinite(added)
        np.testing.assert_allclose(added[known], np.broadcast_to(0.01 * norms, f.shape)[known], rtol=0.3)


@pytest.mark.parametrize(
    ("f", "options", "words"),
    [
        (T, {"noise": 0.1}, "noise=0.1: for samples in one piece, with full_output=True"),
        (T, {"noise": -0.1, "full_output": True}, "noise=-0.1"),
        (np.sin, {"noise": 0.1, "full_output": True}, "samples in one piece"),
    ],
)
def test_bad_noise(f: Any, options: dict[str, Any], words: str):
    """Errors name the value and what to give."""
    hf.caputo(T, T, 0.5)  # so that the next call could be a repeated one
    with pytest.raises(InvalidInputError, match=words):
        hf.caputo(f, T, 0.5, **options)
