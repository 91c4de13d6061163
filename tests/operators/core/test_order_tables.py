"""Weights of an order that learns, from tables, against exact values and against their formulas."""

from __future__ import annotations

from typing import Any

import mpmath
import pytest

import hpfracc as hf
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.order_tables import tabulated_weights
from hpfracc.operators.core.sequences import binomials, power_differences
from tests.helpers.recorded import operations
from tests.helpers.thinned import thinned

torch = pytest.importorskip("torch")

#: Across the edges of the head and of both lengths of blocks.
LAGS = (1, 2, 5, 129, 4095, 4096, 4352, 131_071, 131_072, 139_264, 1_000_003)


def tracked(value: float) -> Any:
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


def gl_weight(alpha: Any, k: int) -> Any:
    return mpmath.gamma(k - alpha) / mpmath.gamma(-alpha) / mpmath.factorial(k)


def l1_weight(beta: Any, k: int) -> Any:
    return mpmath.mpf(k + 1) ** (1 - beta) - mpmath.mpf(k) ** (1 - beta)


@pytest.mark.parametrize("n", [1_000_004, pytest.param(10_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("alpha", [1e-6, 0.003, 0.5, 0.999, 1.0001, 1.5, 1.97])
@pytest.mark.parametrize(
    ("make", "exact"),
    [(binomials, gl_weight), (lambda xp, beta, n: power_differences(xp, 1.0 - beta, n), l1_weight)],
    ids=["gl", "l1"],
)
@thinned(lambda alpha, exact: alpha in (0.003, 0.999) or (alpha == 1.5 and exact is gl_weight))
def test_weights_and_slopes_keep_thirteen_digits_up_to_ten_million(make: Any, exact: Any, alpha: float, n: int):
    """Relative to mpmath, at lags in every part of the table; slopes relative to the larger of slope and weight."""
    if exact is l1_weight and alpha > 1.0:
        pytest.skip("L1 weights belong to orders up to 1")
    order = tracked(alpha)
    found = tabulated_weights(
        ("test", exact.__name__), lambda xp, a, n: (make(xp, a, n),), read_order(order), n, few=True
    )
    assert found is not None
    (weights,) = found
    with mpmath.workdps(40):
        for k in (*(k for k in LAGS if k < n - 1), n - 1):
            right = exact(mpmath.mpf(alpha), k)
            slope = mpmath.diff(lambda a, k=k: exact(a, k), mpmath.mpf(alpha))
            assert abs(float(weights[k].detach()) / right - 1) < 1e-13, k
            if k in (5, 4352, n - 1):
                (ours,) = torch.autograd.grad(weights[k], order, retain_graph=True)
                assert abs(float(ours) - slope) < 1e-13 * max(abs(slope), abs(right)), k


def test_second_derivatives_and_transforms_go_through_long_tables():
    """grad, hessian, vmap over orders and differences agree, where lags are interpolated."""
    n = 5_000
    x = torch.cos(torch.linspace(0.0, 3.0, n, dtype=torch.float64))

    def loss(a: Any) -> Any:
        return (hf.grunwald_letnikov(x, alpha=a, step=0.01) ** 2).mean()

    order = tracked(0.6)
    (first,) = torch.autograd.grad(loss(order), order, create_graph=True)
    (second,) = torch.autograd.grad(first, order)
    first = first.detach()
    plain = torch.tensor(0.6, dtype=torch.float64)
    assert float(torch.func.grad(loss)(plain)) == pytest.approx(float(first), rel=1e-11)
    assert float(torch.func.hessian(loss)(plain)) == pytest.approx(float(second), rel=1e-10)
    mapped = torch.func.vmap(loss)(torch.stack([plain, plain - 0.1]))
    assert float(mapped[0]) == pytest.approx(float(loss(plain)), rel=1e-12)
    small = 1e-4
    up, middle, down = (float(loss(plain + e)) for e in (small, 0.0, -small))
    assert float(second) == pytest.approx((up - 2 * middle + down) / small**2, rel=1e-4)


@pytest.mark.parametrize(("n", "most"), [(1024, 14), (200_000, 28)])
def test_a_learnable_order_takes_few_operations_and_no_look_at_a_value(n: int, most: int):
    """Forward and backward of a table, however long, step included; no number is read."""
    order = read_order(tracked(0.4))

    def both() -> None:
        made = tabulated_weights("counted", lambda xp, a, n: (binomials(xp, a, n),), order, n, few=True, rate=0.7)
        assert made is not None
        made[0].backward(torch.ones_like(made[0]))

    seen = operations(both)
    assert len(seen) <= most
    assert not any("local_scalar" in name for name in seen)


@pytest.mark.parametrize(
    ("operator", "most"),
    [(hf.grunwald_letnikov, 55), (hf.caputo, 60), (hf.riemann_liouville, 80), (hf.riemann_liouville_integral, 70)],
)
def test_operators_with_a_learnable_order_take_few_operations(operator: Any, most: int):
    """Forward and backward on the host; a bare transform, product and transform back with gradients takes 22."""
    x, alpha = torch.linspace(0.0, 1.0, 500, dtype=torch.float64, requires_grad=True), tracked(0.6)

    def both() -> None:
        value = operator(x, alpha=alpha, step=0.5)
        torch.autograd.grad(value, [x, alpha], torch.ones_like(value))

    assert len(operations(both)) <= most


@pytest.mark.parametrize("strict", [False, True])
def test_a_hidden_order_is_nan_outside_its_interval(strict: bool):
    """An order whose value is not read gives the same weights and slopes within, and nan outside (``strict``: at 0)."""

    def weights(alpha: float, known: bool) -> tuple[Any, Any]:
        value = tracked(alpha)
        order = read_order(value)
        order = order if known else Order(order.value, None, 1, order.xp)
        made = tabulated_weights(
            "hidden", lambda xp, a, n: (binomials(xp, a, n),), order, 50, rate=0.7, shift=0.2, strict=strict
        )
        assert made is not None
        return made[0], torch.autograd.grad(made[0].sum(), value)[0]

    for one, other in zip(weights(0.3, True), weights(0.3, False), strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=0.0)
    for alpha in (-0.1, 1.1):
        assert torch.isnan(weights(alpha, False)[0]).all()
    assert torch.isfinite(weights(1.0, False)[0]).all()
    assert bool(torch.isnan(weights(0.0, False)[0]).all()) is strict
