"""The transform of weights is kept under a key also where a derivative flows, but never for longer than it is right."""

from __future__ import annotations

import pytest

import hpfracc as hf
from hpfracc.engine.execution.prepared import prepared_operands

torch = pytest.importorskip("torch")

N = 300


def _pair(seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(N, dtype=torch.float64, generator=generator),
        torch.randn(3, N, dtype=torch.float64, generator=generator),
    )


def _dense(weights):
    index = torch.arange(N)
    lag = index[:, None] - index
    return torch.where(lag >= 0, weights[lag.clamp(min=0)], torch.zeros((), dtype=weights.dtype))


def test_it_is_kept_where_only_the_signal_carries_a_gradient() -> None:
    """The second call finds the transform, and both gradients are those of the sum."""
    weights, signal = _pair()
    signal.requires_grad_()
    slope = torch.randn_like(signal)
    with hf.config(deterministic=True):  # one arm for both calls: another keeps something else
        for _ in range(2):
            (gradient,) = torch.autograd.grad(hf.causal_convolution(weights, signal, weights_key="kept"), signal, slope)
            torch.testing.assert_close(gradient, slope @ _dense(weights), rtol=1e-12, atol=1e-11)
    assert prepared_operands.hits == 1


def test_weights_that_carry_a_gradient_get_it() -> None:
    """Under the same key, which an earlier call without a gradient has filled."""
    weights, signal = _pair()
    hf.causal_convolution(weights, signal, weights_key="kept")
    weights.requires_grad_()
    (gradient,) = torch.autograd.grad(hf.causal_convolution(weights, signal, weights_key="kept").sum(), weights)
    expected = torch.stack([signal[:, : N - k].sum() for k in range(N)])
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-11)


def test_inference_mode_leaves_nothing_that_training_cannot_use() -> None:
    """A transform first made in inference mode serves a recorded call afterwards."""
    weights, signal = _pair()
    with torch.inference_mode():
        hf.causal_convolution(weights, signal, weights_key="kept")
    signal.requires_grad_()
    hf.causal_convolution(weights, signal, weights_key="kept").sum().backward()
    assert torch.isfinite(signal.grad).all()


@pytest.mark.parametrize("transform", ["grad", "vmap", "jvp"])
def test_a_transform_leaves_nothing_of_itself(transform: str) -> None:
    """Two constants convolved inside a transform, then outside of it: the same numbers, and no dead wrapper."""
    weights, signal = _pair()

    def inside(x):
        return (hf.causal_convolution(weights, signal, weights_key="constant") * x).sum()

    x = torch.ones((), dtype=torch.float64)
    if transform == "grad":
        torch.func.grad(inside)(x)
    elif transform == "vmap":
        torch.func.vmap(inside)(torch.ones(4, dtype=torch.float64))
    else:
        torch.func.jvp(inside, (x,), (x,))
    after = hf.causal_convolution(weights, signal, weights_key="constant")
    torch.testing.assert_close(after, signal @ _dense(weights).mT, rtol=1e-12, atol=1e-11)
    signal.requires_grad_()
    hf.causal_convolution(weights, signal, weights_key="constant").sum().backward()
    assert torch.isfinite(signal.grad).all()
