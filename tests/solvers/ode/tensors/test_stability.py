"""Stability of fixed steps on tensors: implicit steps where explicit ones explode, and no success of what exploded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hpfracc import fdeint, solve_fode
from hpfracc.errors import SolveError
from hpfracc.special import mittag_leffler

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
jnp = jax.numpy


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def one(library: str, *shape: int) -> Any:
    return torch.ones(shape, dtype=torch.float64) if library == "torch" else jnp.ones(shape)


def decay(t: Any, y: Any) -> Any:
    return -5.0 * y


def fast(t: Any, y: Any) -> Any:
    return -500.0 * y


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize(("fun", "rate", "alpha"), [(decay, 5.0, 0.1), (fast, 500.0, 0.6)])
def test_auto_takes_steps_that_are_stable(library: str, fun: Any, rate: float, alpha: float):
    """Where PECE gave 1e98: the graded mesh below order 1/4, and the implicit trapezoid above; NumPy's digits."""
    result = solve_fode(fun, (0.0, 1.0), one(library, 1), alpha, step=0.02)
    wanted = solve_fode(fun, (0.0, 1.0), np.ones(1), alpha, step=0.02).y[0]
    assert result.success and float(result.y[0, -1]) == pytest.approx(wanted[-1], rel=1e-6)
    assert wanted[-1] == pytest.approx(float(mittag_leffler(-rate, alpha)), rel=0.2)
    assert result.decision.method == ("l1" if alpha < 0.25 else "implicit_trapezoid")


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_an_equation_that_is_not_stiff_keeps_pece(library: str):
    """The same digits as with PECE by name."""
    found = solve_fode(decay, (0.0, 1.0), one(library, 2, 1), 0.9, step=0.02)
    assert found.decision.method == "pece" and "not stiff" in found.decision.reason
    named = solve_fode(decay, (0.0, 1.0), one(library, 2, 1), 0.9, step=0.02, method="pece")
    assert bool((found.y == named.y).all())


def test_rotations_and_large_systems():
    """Eigenvalues off the real axis, of one member of a batch; and of more components than a matrix is made for."""
    turn = torch.tensor([[0.0, -1e3], [1e3, 0.0]], dtype=torch.float64)
    rates = torch.tensor([1.0, 1e-3], dtype=torch.float64)[:, None]
    found = fdeint(lambda t, y: rates * (y @ turn.T), one("torch", 2, 2), [0.0, 1.0], 0.9, step=0.02)
    assert float(found[-1, 0].abs().max()) < 1.0
    large = solve_fode(lambda t, y: -100.0 * y, (0.0, 1.0), torch.ones(100), 0.9, step=0.05)
    assert large.decision.method == "implicit_trapezoid" and float(large.y.abs().max()) <= 1.0
    small = solve_fode(lambda t, y: -0.01 * y, (0.0, 1.0), torch.ones(100), 0.9, step=0.05)
    assert small.decision.method == "pece"


def test_rates_that_appear_later():
    """PECE is stable at first, and not at the end: the whole is repeated by implicit steps."""
    found = solve_fode(lambda t, y: -(1.0 + 400.0 * t**4) * y, (0.0, 1.0), one("torch", 1), 0.8, step=0.02)
    assert found.decision.method == "implicit_trapezoid" and float(found.y.abs().max()) <= 1.0


@pytest.mark.parametrize("method", ["pece", "explicit_rectangle"])
def test_growth_beyond_the_equation_is_a_failure(method: str):
    """By name too; a solution that the equation lets grow is none."""
    result = solve_fode(decay, (0.0, 1.0), one("torch", 1), 0.2, step=0.01, method=method)
    assert not result.success and "grows by more than the equation" in result.message
    grown = solve_fode(lambda t, y: 7.0 * y, (0.0, 1.0), one("torch", 1), 1.0, step=0.01, method=method)
    assert grown.success and float(grown.y[0, -1]) > 500.0


def test_modules_raise_an_error():
    """An order that learns its way down: an error in both libraries, NaN under jit, and none before."""
    from hpfracc.ml import NeuralFODE as OfTorch
    from hpfracc.ml.jax import NeuralFODE as OfJax

    times = [0.0, 1.0]
    with pytest.raises(SolveError, match="stable"):
        OfTorch(decay, 0.1, step=0.02)(one("torch", 3, 1), times)
    with pytest.raises(SolveError, match="stable"):
        OfJax(decay, 0.1, step=0.02)(one("jax", 3, 1), times)
    value = jax.jit(lambda alpha: OfJax(decay, alpha, step=0.02)(one("jax", 3, 1), times)[-1, 0, 0])
    assert math.isnan(float(value(0.1)))
    assert float(value(0.6)) == pytest.approx(float(mittag_leffler(-5.0, 0.6)), rel=0.1)


def test_a_traced_solve_decides_when_it_runs():
    """Implicit steps under jit, where neither the state nor the order is known, with a gradient."""
    last = jax.jit(jax.value_and_grad(lambda alpha: fdeint(fast, one("jax", 1), [0.0, 1.0], alpha, step=0.05)[-1, 0]))
    value, slope = last(0.6)
    wanted = solve_fode(fast, (0.0, 1.0), np.ones(1), 0.6, step=0.05).y[0, -1]
    assert float(value) == pytest.approx(wanted, rel=1e-6)
    assert np.isfinite(float(slope))


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_what_is_not_finite_at_the_start(library: str):
    """The start is named, not the first step, with a fixed step, on a graded mesh and with adaptive ones."""
    for options in ({"method": "pece", "step": 0.1}, {"method": "l1", "step": 0.1}, {}):
        result = solve_fode(lambda t, y: math.nan * y, (0.0, 1.0), one(library, 1), 0.6, **options)
        assert not result.success and "not finite at the start, t = 0" in result.message, options


def test_time_is_a_tensor():
    """As torchdiffeq gives it: on the device and in the precision of y, for every method."""
    for options in ({"step": 0.1}, {"method": "l1", "step": 0.1}, {"method": "implicit_rectangle", "step": 0.1}, {}):
        seen: list[Any] = []

        def fun(t: Any, y: Any, seen: list[Any] = seen) -> Any:
            seen.append(t)
            return -y + torch.sin(t)

        found = fdeint(fun, torch.ones(1), [0.0, 1.0], 0.6, **options)
        assert torch.isfinite(found).all()
        assert {(type(t), t.dtype, t.ndim) for t in seen} == {(torch.Tensor, torch.float32, 0)}


@pytest.mark.parametrize("options", [{"step": 0.25}, {"step": 0.25, "method": "l1"}, {}])
def test_batches_without_members(options: dict[str, Any]):
    """The shape of the result, in both libraries, with a gradient."""
    y0 = torch.ones(0, 2, requires_grad=True)
    found = fdeint(lambda t, y: -y, y0, [0.0, 0.5, 1.0], 0.6, **options)
    assert found.shape == (3, 0, 2)
    found.sum().backward()
    assert fdeint(lambda t, y: -y, jnp.ones((0, 2)), [0.0, 0.5, 1.0], 0.6, **options).shape == (3, 0, 2)


@pytest.mark.parametrize("method", ["auto", "implicit_trapezoid", "l1"])
def test_a_missing_estimate_is_said(method: str):
    """Steps that were given have none for tensors; chosen steps have one."""
    torch = pytest.importorskip("torch")
    y0 = torch.ones(1, dtype=torch.float64)
    found = solve_fode(lambda t, y: -y, (0.0, 1.0), y0, 0.6, step=0.1, method=method)
    assert found.success and np.isnan(found.error_estimate) and "No error is estimated" in found.message
    unasked = solve_fode(lambda t, y: -y, (0.0, 1.0), y0, 0.6, step=0.1, method=method, estimate=False)
    assert unasked.message == "The end of the interval was reached."
