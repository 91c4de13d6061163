"""Sums over the past and the gradients of their weights, by products and by transforms, against the sums themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpfracc._xp import array_namespace
from hpfracc.solvers.ode.tensors import sums

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("orders", [(), (3,), (2, 3)], ids=["one", "each component", "each number"])
def test_gradients_of_weights(monkeypatch: pytest.MonkeyPatch, orders: tuple[int, ...], library: str):
    """``out[k, l] = sum_n bar[n, k] f[n - l]``, summed over what shares an order; 0 at l = 0."""
    monkeypatch.setattr(sums, "WORKSPACE", 1 << 11)  # several groups of columns
    generator = np.random.default_rng(0)
    bar, values = generator.standard_normal((12, 2, 2, 3)), generator.standard_normal((12, 2, 3))
    right = np.zeros((2, 13, *orders))
    for kind in range(2):
        for lag in range(1, 13):
            whole = sum(bar[n - 1, kind] * values[n - lag] for n in range(lag, 13))
            right[kind, lag] = (
                np.asarray(whole).sum(()) if len(orders) == 2 else np.asarray(whole).sum(0 if orders else None)
            )
    if library == "jax":
        jax = pytest.importorskip("jax")
        with jax.enable_x64(True):
            given = [jax.numpy.asarray(each) for each in (bar[::-1], values)]
            found = np.asarray(sums.correlations(array_namespace(given[1]), *given, orders))
    else:
        given = [torch.tensor(each.copy()) for each in (bar[::-1], values)]
        found = sums.correlations(array_namespace(given[1]), *given, orders).numpy()
    np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("complex_values", [False, True])
@pytest.mark.parametrize("orders", [(), (2,)])
@pytest.mark.parametrize(("length", "reach"), [(1, 1), (8, 3), (8, 8), (16, 1), (13, 13)])
def test_products_and_transforms_agree(
    length: int, reach: int, orders: tuple[int, ...], complex_values: bool, monkeypatch: pytest.MonkeyPatch
):
    """For several sums of one value and one sum of several values, for segments of any length, also beyond the end."""
    generator = np.random.default_rng(3)
    weights = generator.standard_normal((2, 21, *orders))
    values = generator.standard_normal((length, 2, 5, 2)) + 1j * generator.standard_normal((length, 2, 5, 2))
    values = values if complex_values else values.real
    first, second = (torch.tensor(each) for each in weights)
    for layout in (((first,), (second,)), ((first, second),)):
        given: Any = values[:, : len(layout[0])]
        expected = np.zeros((reach, len(layout), 5, 2), values.dtype)
        for s, row in enumerate(layout):
            for v, sequence in enumerate(row):
                for i in range(reach):
                    for j in range(length):
                        if length + i - j <= 20:
                            expected[i, s] += sequence.numpy()[length + i - j] * given[j, v]
        tensor = torch.tensor(given)
        for longest in (2048, 0):
            monkeypatch.setattr(sums, "LONGEST_PRODUCT", longest)
            monkeypatch.setattr(sums, "WORKSPACE", 1)
            found = sums.segment_sums(array_namespace(tensor), layout, reach, tensor)
            assert found.numpy() == pytest.approx(expected, rel=1e-11, abs=1e-13)
