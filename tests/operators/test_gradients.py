"""Derivatives with respect to the samples, the order and the step, for PyTorch and JAX."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from tests.helpers.definitions import BELOW_ONE
from tests.helpers.thinned import thinned

T = np.linspace(0.0, 1.0, 12)
X = np.cos(3.0 * T) + T**2
STEP = 1.0 / 11
RULES = [
    *((hf.Caputo, method) for method in hf.Caputo.rules),
    *((hf.RiemannLiouville, method) for method in ("l1-2", "cq2", "cq4")),
    *((hf.GrunwaldLetnikov, method) for method in hf.GrunwaldLetnikov.rules),
    *((hf.RiemannLiouvilleIntegral, method) for method in ("simpson", "trapezoid", "cq3")),
    (hf.Marchaud, "l1-2"),
    *((operator, method) for operator in (hf.CaputoFabrizio, hf.AtanganaBaleanu) for method in operator.rules),
    (hf.AtanganaBaleanuRiemann, "quadratic"),
    (hf.AtanganaBaleanuIntegral, "simpson"),
    (hf.CaputoFabrizioIntegral, "simpson"),
    *((hf.TemperedCaputo, method) for method in hf.TemperedCaputo.rules),
    (hf.TemperedRiemannLiouville, "cq2"),
    (hf.TemperedIntegral, "simpson"),
    (hf.VariableOrder, "l1-2"),
]
#: Long enough for the tails of the weights, which are made in another way than their heads.
LONG = 700


def slope(operator: Any, method: str, alpha: float, x: np.ndarray, step: float) -> np.ndarray:
    """The derivative in the order, by differences of the NumPy answer."""
    small = 1e-5
    up, down = (operator(alpha + e, method=method)(x, step=step)[..., 1:] for e in (small, -small))
    return (up - down) / (2.0 * small)


@pytest.mark.parametrize("alpha", [0.4, 1.6])
@pytest.mark.parametrize(("operator", "method"), RULES)
@thinned(lambda alpha: alpha == 0.4)
def test_torch_gradcheck(operator: Any, method: str, alpha: float):
    """gradcheck in samples, order and step, in float64, beyond the origin."""
    torch = pytest.importorskip("torch")
    if operator in BELOW_ONE and alpha > 1.0:
        alpha = 0.8
    inputs = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (X, alpha, STEP)]
    assert torch.autograd.gradcheck(
        lambda x, a, h: operator(a, method=method)(x, step=h)[..., 1:], inputs, atol=1e-5, rtol=1e-4, fast_mode=True
    )


@pytest.mark.parametrize(
    "operator",
    [
        hf.Caputo,
        hf.GrunwaldLetnikov,
        hf.RiemannLiouvilleIntegral,
        hf.CaputoFabrizio,
        hf.AtanganaBaleanu,
        hf.TemperedCaputo,
        hf.VariableOrder,
    ],
)
@thinned(lambda operator: operator in (hf.Caputo, hf.AtanganaBaleanu, hf.VariableOrder))
def test_torch_second_derivatives(operator: Any):
    """gradgradcheck in samples and order."""
    torch = pytest.importorskip("torch")
    inputs = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (X, 0.4)]
    assert torch.autograd.gradgradcheck(
        lambda x, a: operator(a)(x, step=STEP), inputs, atol=1e-4, rtol=1e-3, fast_mode=True
    )


@pytest.mark.parametrize(
    ("operator", "method"),
    [
        (hf.Caputo, "l1-2"),
        (hf.RiemannLiouville, "cq2"),
        (hf.GrunwaldLetnikov, "wsgl"),
        (hf.RiemannLiouvilleIntegral, "simpson"),
        (hf.CaputoFabrizio, "quadratic"),
        (hf.AtanganaBaleanu, "quadratic"),
        (hf.TemperedCaputo, "l1-2"),
    ],
)
@thinned(lambda operator: operator is hf.Caputo)
def test_the_order_has_the_same_slope_in_torch_and_jax_over_many_points(operator: Any, method: str):
    """Far beyond the heads of the sequences the slope in alpha agrees with differences of the NumPy answer."""
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    t = np.linspace(0.0, 1.0, LONG)
    x = np.cos(3.0 * t) + t**2
    right = slope(operator, method, 0.4, x, 1.0 / (LONG - 1))
    scale = np.abs(right).max()

    def by_torch(a: Any) -> Any:
        return operator(a, method=method)(torch.tensor(x), step=1.0 / (LONG - 1))[1:]

    one = torch.tensor(1.0, dtype=torch.float64)
    _, tangent = torch.func.jvp(by_torch, (torch.tensor(0.4, dtype=torch.float64),), (one,))
    np.testing.assert_allclose(tangent.numpy(), right, atol=1e-7 * scale, rtol=0)
    with jax.enable_x64(True):
        by_jax = jax.jit(lambda a: operator(a, method=method)(x, step=1.0 / (LONG - 1))[1:])
        _, tangent = jax.jvp(by_jax, (0.4,), (1.0,))
    np.testing.assert_allclose(np.asarray(tangent), right, atol=1e-7 * scale, rtol=0)


def test_rates_orders_in_time_and_callables_carry_gradients():
    """The rate of tempering, an order for each point in all three types, and a callable under an exponential memory."""
    torch = pytest.importorskip("torch")

    def tracked(value: Any) -> Any:
        return torch.tensor(value, dtype=torch.float64, requires_grad=True)

    x, rate, orders = tracked(X), tracked(1.5), tracked(0.3 + 0.4 * T)
    check = functools.partial(torch.autograd.gradcheck, atol=1e-5, fast_mode=True)
    for operator in (hf.tempered, hf.tempered_caputo, hf.tempered_integral):
        assert check(lambda r, h, op=operator: op(X, None, 0.4, r, step=h)[1:], (rate, tracked(0.1)))
    assert check(lambda r: hf.tempered(x.detach(), T, 1.4, r, centred=True)[1:], (rate,))
    for at in ("t", "s", "t-s"):
        assert check(lambda x, a, h, at=at: hf.variable_order(x, step=h, alpha=a, at=at), (x, orders, tracked(STEP)))
    at = torch.linspace(0.0, 1.0, 4, dtype=torch.float64)
    assert check(lambda c, a: hf.caputo_fabrizio(lambda s: torch.cos(c * s), at, a), (tracked(2.0), tracked(0.4)))
    assert check(lambda c, r: hf.tempered(lambda s: torch.sin(c * s), at, 0.4, r)[1:], (tracked(2.0), rate))


@pytest.mark.parametrize(
    ("operator", "outside"),
    [
        (hf.CaputoFabrizio, 1.2),
        (hf.AtanganaBaleanu, 1.2),
        (hf.AtanganaBaleanu, 0.01),
        (hf.TemperedCaputo, 1.2),
        (hf.VariableOrder, 1.2),
    ],
)
@thinned(lambda operator: operator is hf.VariableOrder)
def test_a_traced_order_outside_the_definition_is_nan_not_wrong(operator: Any, outside: float):
    """Where the value of an order cannot be looked at and is not served, the answer is nan; where it is, right."""
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        traced = jax.jit(lambda a: operator(a)(X, step=STEP))
        assert np.isnan(np.asarray(traced(outside))[1:]).all()
        np.testing.assert_allclose(np.asarray(traced(0.6)), operator(0.6)(X, step=STEP), atol=1e-11)


def test_torch_func_transforms():
    """grad, vmap over orders, hessian and vmap of grad go through."""
    torch = pytest.importorskip("torch")
    x = torch.tensor(X)
    orders = torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64)

    def loss(a: Any) -> Any:
        return (hf.caputo(x, T, a) ** 2).sum()

    rows = torch.func.vmap(lambda a: hf.caputo(x, T, a))(orders)
    for row, order in zip(rows, orders, strict=True):
        np.testing.assert_allclose(row.numpy(), hf.caputo(X, T, float(order)), atol=1e-12)
    slopes = torch.func.vmap(torch.func.grad(loss))(orders)
    bends = torch.func.hessian(loss)(orders[1])
    small = 1e-4
    up, middle, down = (float(loss(orders[1] + e)) for e in (small, 0.0, -small))
    assert float(slopes[1]) == pytest.approx((up - down) / (2 * small), rel=1e-5)
    assert float(bends) == pytest.approx((up - 2 * middle + down) / small**2, rel=1e-3)


def test_jax_transforms():
    """jit, grad and vmap over orders."""
    jax = pytest.importorskip("jax")
    orders = (0.2, 0.5, 0.8)
    with jax.enable_x64(True):

        def loss(a: Any) -> Any:
            row = hf.caputo(X, T, a)
            return (row**2).sum(), row

        # One program for all three: compiling is what takes time.
        slopes, rows = jax.jit(jax.vmap(jax.grad(loss, has_aux=True)))(jax.numpy.asarray(orders))
    small = 1e-4
    for order, slope_, row in zip(orders, slopes, rows, strict=True):
        np.testing.assert_allclose(np.asarray(row), hf.caputo(X, T, order), atol=1e-12)
        up, down = (float(loss(order + e)[0]) for e in (small, -small))
        assert float(slope_) == pytest.approx((up - down) / (2 * small), rel=1e-5)


@pytest.mark.slow
def test_second_derivatives_in_jax_and_a_ceiling():
    """grad of grad; the order may lie above 1 if its ceiling is said."""
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):

        def loss(a: Any) -> Any:
            return (hf.caputo(X, T, a) ** 2).sum()

        small = 1e-4
        up, middle, down = (float(loss(0.5 + e)) for e in (small, 0.0, -small))
        assert float(jax.jit(jax.grad(jax.grad(loss)))(0.5)) == pytest.approx(
            (up - 2 * middle + down) / small**2, rel=1e-3
        )
        above = jax.jit(lambda a: hf.caputo(X, T, a, ceiling=2))(1.4)
        np.testing.assert_allclose(np.asarray(above), hf.caputo(X, T, 1.4), atol=1e-9)


def test_a_learnable_order_is_learnt():
    """Gradient descent on the order of a torch Parameter finds the one that made the data."""
    torch = pytest.importorskip("torch")
    order = torch.nn.Parameter(torch.tensor(0.3))
    target = torch.tensor(hf.caputo(X, T, 0.62))
    optimiser = torch.optim.Adam([order], lr=0.05)
    for _ in range(120):
        optimiser.zero_grad()
        loss = ((hf.caputo(torch.tensor(X), T, order) - target) ** 2).mean()
        loss.backward()
        optimiser.step()
    assert float(order.detach()) == pytest.approx(0.62, abs=5e-3)


def test_callables_carry_gradients_of_their_parameters_and_of_the_order():
    """A tensor-valued callable: derivative of the result in a parameter of f and in the order, against differences."""
    torch = pytest.importorskip("torch")
    t = torch.linspace(0.0, 1.0, 5, dtype=torch.float64)
    rate = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    order = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)

    def total(rate: Any, order: Any) -> Any:
        return hf.caputo(lambda s: torch.exp(rate * s), t, order).sum()

    slopes = torch.autograd.grad(total(rate, order), (rate, order))
    small = 1e-6
    for slope_, moved in zip(slopes, ((small, 0.0), (0.0, small)), strict=True):
        up, down = (float(total(rate.detach() + e * moved[0], order.detach() + e * moved[1])) for e in (1, -1))
        assert float(slope_) == pytest.approx((up - down) / (2 * small), rel=1e-7)


def from_below(apply: Any, last: np.ndarray, step: float) -> np.ndarray:
    """The one-sided derivative of ``apply`` at the order where its value is ``last``, from three orders beside it."""
    one, two, three = (apply(k * step) for k in (1, 2, 3))
    with np.errstate(invalid="ignore"):
        return (-11.0 / 6.0 * last + 3.0 * one - 1.5 * two + three / 3.0) / step


@pytest.mark.parametrize("method", ["quadratic", "linear"])
@pytest.mark.parametrize("operator", [hf.CaputoFabrizio, hf.AtanganaBaleanu, hf.AtanganaBaleanuRiemann])
@thinned(one_in=2)
def test_memories_of_order_one_carry_the_derivative_from_below(operator: Any, method: str):
    """At a tensor order of exactly 1 the value is that of a plain 1, and the slope the limit of those below 1."""
    torch = pytest.importorskip("torch")
    beside = operator(1.0 - 1e-12, method)(X, step=STEP)[1:]

    def by_torch(a: Any) -> Any:
        return operator(a, method)(torch.tensor(X), step=STEP)[1:]

    one = torch.tensor(1.0, dtype=torch.float64)
    value, slope_ = torch.func.jvp(by_torch, (one,), (one,))
    np.testing.assert_allclose(value.numpy(), operator(1.0, method)(X, step=STEP)[1:], atol=1e-12)
    right = -from_below(lambda room: operator(1.0 - room, method)(X, step=STEP)[1:], beside, 1e-4)
    np.testing.assert_allclose(slope_.numpy(), right, atol=1e-5)
    order = one.clone().requires_grad_()
    (back,) = torch.autograd.grad(by_torch(order).sum(), order)
    assert float(back) == pytest.approx(right.sum(), abs=1e-5)


def test_a_callable_of_order_one_carries_the_derivative_from_below():
    """Caputo-Fabrizio of sin 2t: f'' - f' beyond the origin; Atangana-Baleanu refuses, as at every other tensor."""
    torch = pytest.importorskip("torch")
    at = torch.linspace(0.0, 1.0, 5, dtype=torch.float64)
    one = torch.tensor(1.0, dtype=torch.float64)
    _, slope_ = torch.func.jvp(lambda a: hf.caputo_fabrizio(lambda s: torch.sin(2 * s), at, a), (one,), (one,))
    np.testing.assert_allclose(slope_[1:], (-4 * torch.sin(2 * at) - 2 * torch.cos(2 * at))[1:], atol=1e-9)
    for operator in (hf.atangana_baleanu, hf.atangana_baleanu_riemann):
        with pytest.raises(hf.errors.InvalidInputError, match="takes a plain order, which carries no derivative"):
            operator(torch.sin, at, one.clone().requires_grad_())


@pytest.mark.parametrize("operator", [hf.RiemannLiouvilleIntegral, hf.TemperedIntegral])
@pytest.mark.parametrize("method", ["simpson", "trapezoid", "cq3"])
@thinned(one_in=2)
def test_integrals_of_order_zero_carry_the_derivative_from_above(operator: Any, method: str):
    """At a tensor order of exactly 0: the samples beyond the origin, and the slope from above."""
    torch = pytest.importorskip("torch")
    nothing, one = torch.tensor(0.0, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)
    value, slope_ = torch.func.jvp(
        lambda a: operator(a, method=method)(torch.tensor(X), step=STEP)[1:], (nothing,), (one,)
    )
    np.testing.assert_allclose(value.numpy(), X[1:], atol=1e-13)
    right = from_below(lambda mu: operator(mu, method=method)(X, step=STEP)[1:], X[1:], 1e-4)
    np.testing.assert_allclose(slope_.numpy(), right, atol=1e-6)


def test_what_the_fast_integral_cannot_differentiate_is_said():
    """A whole order with a derivative is refused; a traced one outside what was prepared for is nan."""
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    bent = T**2
    with pytest.raises(hf.errors.InvalidInputError, match="alpha=1 is differentiable, but the fast integral"):
        hf.riemann_liouville_integral(X, bent, torch.tensor(1.0, dtype=torch.float64), method="fast")
    with jax.enable_x64(True):
        traced = jax.jit(lambda a: hf.riemann_liouville_integral(X, bent, a, method="fast"))
        assert np.isnan(np.asarray(traced(1.3))[1:]).all()
        np.testing.assert_allclose(traced(0.6), hf.riemann_liouville_integral(X, bent, 0.6), rtol=1e-8)


@pytest.mark.parametrize("alpha", [pytest.param(0.04, marks=pytest.mark.slow), 1e-6])
def test_small_orders_of_a_mittag_leffler_memory_have_a_series(alpha: float):
    """As many points of quadrature as 1/alpha took all memory there was; value and slope are those of plain orders."""
    torch = pytest.importorskip("torch")
    t = np.linspace(0.0, 1.0, 40)
    x = np.cos(3.0 * t) + t**2

    for operator in (hf.atangana_baleanu, hf.atangana_baleanu_riemann):
        order = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
        value = operator(torch.tensor(x), t, order)
        np.testing.assert_allclose(value.detach().numpy(), operator(x, t, alpha), atol=1e-12)
        (slope_,) = torch.autograd.grad((value * torch.tensor(t)).mean(), order)
        small = 0.01 * alpha
        up, down = ((operator(x, t, alpha + e) * t).mean() for e in (small, -small))
        assert float(slope_) == pytest.approx((up - down) / (2.0 * small), abs=1e-4 + 1e-15 / small, rel=1e-3)


@pytest.mark.parametrize("n", [50, 20_001])
@pytest.mark.parametrize(
    "operator", [hf.caputo, hf.riemann_liouville, hf.riemann_liouville_integral, hf.grunwald_letnikov]
)
@thinned(one_in=2)
def test_operands_beside_a_transform(operator: Any, n: int) -> None:
    """A transform of ``torch.func`` maps something else; PyTorch refuses autograd functions without its rules there."""
    torch = pytest.importorskip("torch")
    x = torch.linspace(0.1, 1.0, n, dtype=torch.float64, requires_grad=True)
    alpha = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
    scales = torch.tensor([1.0, 2.0], dtype=torch.float64)
    found = torch.func.vmap(lambda scale: operator(x, alpha=alpha, step=0.1)[1:] * scale)(scales)
    expected = operator(x, alpha=alpha, step=0.1)[1:] * scales[:, None]
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12 * float(expected.detach().abs().max()))
    slopes = [torch.autograd.grad(each.sum(), (x, alpha)) for each in (found, expected)]
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9 * float(other.abs().max()))


@pytest.mark.parametrize(
    "operator", [hf.caputo, hf.grunwald_letnikov, hf.riemann_liouville, hf.riemann_liouville_integral]
)
@pytest.mark.parametrize("bad", [False, True], ids=["finite", "not finite"])
def test_results_may_be_changed_in_place(operator: Any, bad: bool):
    """A result that autograd records is an array of its own, not a view of a longer one."""
    torch = pytest.importorskip("torch")
    alpha = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    x = torch.linspace(0.0, 1.0, 1000, dtype=torch.float64)
    if bad:
        x[500] = torch.nan
    result = operator(x, alpha=alpha, step=0.1)
    assert result.untyped_storage().nbytes() == 8 * 1000
    (expected,) = torch.autograd.grad(2.0 * result[1:400].sum(), alpha, retain_graph=True)
    result *= 2.0
    (slope,) = torch.autograd.grad(result[1:400].sum(), alpha)
    torch.testing.assert_close(slope, expected)


@pytest.mark.parametrize("name", ["caputo", "riemann_liouville_integral", "riesz", "fractional_difference", "frft"])
@pytest.mark.parametrize("mapped", [0, 1, 2])
def test_vmap_along_another_axis_than_the_last(name: str, mapped: int):
    """The operator along the first axis of each element, whichever axis of the batch is mapped."""
    torch = pytest.importorskip("torch")
    own = {
        "fractional_difference": lambda x: hf.fractional_difference(x, 0.4, axis=0),
        "frft": lambda x: hf.frft(x, 0.4, 0),
    }
    apply = own.get(name, lambda x: getattr(hf, name)(x, step=0.5, alpha=0.4, axis=0))
    x = torch.tensor(np.random.default_rng(3).standard_normal((3, 5, 8)))
    right = torch.stack([apply(each) for each in x.unbind(mapped)])
    torch.testing.assert_close(torch.func.vmap(apply, in_dims=mapped)(x), right, rtol=1e-12, atol=1e-12)
    slope = torch.func.vmap(torch.func.grad(lambda x: apply(x).abs().square().sum()), in_dims=mapped)(x)
    y = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(sum(apply(each).abs().square().sum() for each in y.unbind(mapped)), y)
    torch.testing.assert_close(slope, found.movedim(mapped, 0), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "operator",
    [
        hf.Caputo,
        hf.RiemannLiouville,
        lambda alpha: hf.PsiCaputo(alpha, lambda t: t + t**2),
        lambda alpha: hf.Katugampola(alpha, 1.5),
        hf.ErdelyiKober,
    ],
)
def test_a_learned_order_of_zero(operator: Any):
    """The value is f, and the gradient that of the orders around 0: it was wrong, as was Erdelyi-Kober's value."""
    torch = pytest.importorskip("torch")
    alpha = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    t = np.linspace(0.0, 1.0, 65)
    value = operator(alpha)(torch.tensor(t**3), torch.tensor(t))[50]
    value.backward()
    around = [operator(order)(t**3, t)[50] for order in (-1e-5, 1e-5)]
    assert float(value.detach()) == pytest.approx(t[50] ** 3, abs=1e-13)
    assert float(alpha.grad) == pytest.approx((around[1] - around[0]) / 2e-5, rel=1e-5)


@pytest.mark.parametrize("whole", [0.0, 1.0, 2.0])
@pytest.mark.parametrize(
    "make",
    [
        hf.Caputo,
        hf.RiemannLiouville,
        lambda a: hf.Caputo(a, "fast") if a else hf.Caputo(a),
        lambda a: hf.RiemannLiouville(a, "cq3"),
        hf.RiemannLiouvilleIntegral,
        lambda a: hf.TemperedCaputo(a, 0.7),
        lambda a: hf.TemperedRiemannLiouville(a, 0.7, centred=True),
        lambda a: hf.TemperedIntegral(a, 0.7),
        hf.CaputoFabrizio,
        lambda a: hf.Marchaud(a, 0.3),
        *(pytest.param(one, marks=pytest.mark.slow) for one in (hf.AtanganaBaleanu, hf.AtanganaBaleanuRiemann)),
    ],
)
@thinned(one_in=4)
def test_whole_orders_with_a_gradient_have_the_value_of_plain_ones(make: Any, whole: float):
    """On uniform and other grids, in PyTorch and in JAX, also where JAX traces; at the origin too."""
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    for t in (T, np.cumsum(np.random.default_rng(3).uniform(0.5, 1.5, len(T))) * STEP):
        try:
            right = make(whole)(X, t)
            order = torch.tensor(whole, dtype=torch.float64, requires_grad=True)
            value = make(order)(torch.tensor(X), t)
        except hf.errors.HpfraccError:
            continue  # this order or this grid is refused
        np.testing.assert_allclose(value.detach().numpy(), right, atol=1e-12)
        (slope,) = torch.autograd.grad(value[2:].sum(), order)
        assert float(slope) != 0.0
        if whole == make(1.0).kind.startswith("d"):  # the ceiling of a traced order is 1
            with jax.enable_x64(True):
                traced, _ = jax.jvp(lambda a, t=t: make(a)(X, t), (whole,), (1.0,))
            np.testing.assert_allclose(traced, right, atol=1e-12)
