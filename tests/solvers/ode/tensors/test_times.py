"""Derivatives of a solution in its times, against difference quotients of an accurate solve."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hpfracc import fdeint
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode import L1, L2Sigma

torch = pytest.importorskip("torch")

TIMES, WEIGHTS, ORDER = np.array([0.2, 0.55, 0.9, 1.3]), np.array([1.0, 2.0, 3.0, 4.0]), 0.6
#: Difference quotients, of width 2e-4, of NumPy's adaptive solution with rtol=1e-11.
SLOPES = np.array([1.83449775, -0.01183117, 0.58320709, 0.71745012])


def of_torch(t: Any, **options: Any) -> Any:
    y = fdeint(lambda t, y: -y + torch.sin(t), torch.ones(1, dtype=torch.float64), t, ORDER, **options)
    return (torch.tensor(WEIGHTS) * y[:, 0]).sum()


def test_the_reference():
    """The numbers above."""

    def total(t: Any) -> float:
        y = fdeint(lambda t, y: -y + np.sin(t), np.ones(1), t, ORDER, rtol=1e-10, atol=1e-12)
        return float((WEIGHTS * y[:, 0]).sum())

    moved = 1e-4 * np.eye(4)[1]
    assert (total(TIMES + moved) - total(TIMES - moved)) / 2e-4 == pytest.approx(SLOPES[1], abs=1e-6)


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        ({"rtol": 1e-8}, 1e-6),
        ({"method": "pece", "step": 0.011}, 2e-3),
        ({"method": "implicit_trapezoid", "step": 0.011}, 2e-3),
        ({"method": "l1", "step": 0.02}, 6e-3),
        ({"method": "l2_1sigma", "step": 0.02}, 1e-3),
    ],
)
def test_gradients_in_the_times(options: dict[str, Any], tolerance: float):
    """By autograd and by ``torch.func``: the start, where the memory begins, the end, and the times between."""
    t = torch.tensor(TIMES, requires_grad=True)
    of_torch(t, **options).backward()
    np.testing.assert_allclose(t.grad, SLOPES, atol=tolerance)
    if options.get("method") != "implicit_trapezoid":
        found = torch.func.grad(lambda t: of_torch(t, **options))(torch.tensor(TIMES))
        np.testing.assert_allclose(found, t.grad, rtol=1e-9)


def test_a_plain_time_under_torch_func():
    """Times that carry no gradient are read inside a transform too, in reverse and in forward mode."""
    t = torch.linspace(0.0, 1.0, 3)

    def last(y0: Any) -> Any:
        return fdeint(lambda s, y: -y, y0, t, ORDER, step=0.1)[-1].sum()

    slope = torch.func.grad(last)(torch.ones(1))
    value, moved = torch.func.jvp(last, (torch.ones(1),), (torch.ones(1),))
    assert float(slope) == pytest.approx(float(value)) and float(moved) == pytest.approx(float(value))


def test_the_gradient_of_orders_above_one():
    """With an initial slope, which is scaled with time."""
    t = torch.tensor([0.0, 0.4, 1.0], dtype=torch.float64, requires_grad=True)
    one = torch.ones(1, dtype=torch.float64)

    def last(t: Any) -> Any:
        return fdeint(lambda t, y: -y, one, t, 1.5, dy0=[0.5 * one], rtol=1e-9)[:, 0]

    last(t)[-1].backward()
    ahead, behind = (last(t.detach() + by * torch.tensor([0.0, 0.0, 1.0]))[-1] for by in (1e-3, -1e-3))
    assert float(t.grad[2]) == pytest.approx(float(ahead - behind) / 2e-3, rel=1e-5)
    assert float(t.grad[0]) == pytest.approx(-float(t.grad[2]), rel=1e-6)  # nothing depends on time itself


class TestJAX:
    @pytest.fixture(autouse=True)
    def double(self) -> Iterator[None]:
        jax = pytest.importorskip("jax")
        with jax.enable_x64(True):
            yield

    def total(self, t: Any, **options: Any) -> Any:
        jnp = pytest.importorskip("jax").numpy
        y = fdeint(lambda t, y: -y + jnp.sin(t), jnp.ones(1), t, ORDER, **options)
        return (jnp.array(WEIGHTS) * y[:, 0]).sum()

    def test_gradients_in_the_times(self):
        """With a step under ``jax.grad``, and adaptively under ``jit``, where the times are not known."""
        jax = pytest.importorskip("jax")
        t = jax.numpy.array(TIMES)
        found = jax.grad(lambda t: self.total(t, method="pece", step=0.022))(t)
        np.testing.assert_allclose(found, SLOPES, atol=5e-3)
        with pytest.raises(InvalidInputError, match="leave step out"):
            jax.jit(lambda t: self.total(t, step=0.011))(t)

    @pytest.mark.slow
    def test_gradients_in_traced_times(self):
        """One program for all times."""
        jax = pytest.importorskip("jax")
        found = jax.jit(jax.grad(lambda t: self.total(t, rtol=1e-7)))(jax.numpy.array(TIMES))
        np.testing.assert_allclose(found, SLOPES, atol=1e-5)


@pytest.mark.parametrize("kind", [L1, L2Sigma])
def test_the_mesh_does_not_move_with_the_order(kind: Any):
    """The derivative in the order is that on a fixed mesh: of the difference quotient with that ``grading``."""
    y0 = torch.ones(1, dtype=torch.float64)

    def last(alpha: Any, method: Any) -> Any:
        return fdeint(lambda t, y: -y, y0, [0.0, 1.0], alpha, method=method, step=0.05)[-1, 0]

    alpha = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(last(alpha, kind()), alpha)
    grading = {"l1": 3.0, "l2_1sigma": 4.0}[kind.name]  # the default at 0.5
    held = [float(last(0.5 + by, kind(grading))) for by in (1e-5, -1e-5)]
    assert float(slope) == pytest.approx((held[0] - held[1]) / 2e-5, rel=1e-6)
    moving = [float(last(0.5 + by, kind())) for by in (1e-5, -1e-5)]
    assert abs(float(slope) - (moving[0] - moving[1]) / 2e-5) > 1e-5
