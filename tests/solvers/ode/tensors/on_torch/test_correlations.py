"""Gradients of the weights of history sums, by a product and by transforms, against the sum itself."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from hpfracc.solvers.ode.tensors.on_torch import correlations as module  # noqa: E402


@pytest.mark.parametrize("orders", [(), (3,), (2, 3)], ids=["one", "each component", "each number"])
@pytest.mark.parametrize("longest", [0, 600], ids=["transforms", "product"])
def test_the_sum_over_the_steps(monkeypatch: pytest.MonkeyPatch, orders: tuple[int, ...], longest: int):
    """``out[k, l] = sum_n bar[n, k] f[n - l]``, summed over what shares an order; 0 at l = 0."""
    monkeypatch.setattr(module, "_LONGEST_PRODUCT", longest)
    torch.manual_seed(0)
    bar, values = torch.randn(12, 2, 2, 3, dtype=torch.float64), torch.randn(12, 2, 3, dtype=torch.float64)
    like = torch.zeros(12, *orders, dtype=torch.float64)
    found = module.correlations(bar.flip(0), values, like)
    assert found.shape == (2, 12, *orders)
    for kind in range(2):
        for lag in range(12):
            right: Any = torch.zeros(2, 3, dtype=torch.float64)
            for n in range(lag, 12 if lag else 0):
                right = right + bar[n, kind] * values[n - lag]
            torch.testing.assert_close(found[kind, lag], right.sum_to_size(orders), rtol=1e-12, atol=1e-12)
