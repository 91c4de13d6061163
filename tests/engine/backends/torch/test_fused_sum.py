"""The derivative of the fused sum where it is composed: against autograd through the composed sum."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from hpfracc.engine.backends.torch.fused_sum import SumOptions, convolve_back_composed  # noqa: E402
from hpfracc.engine.backends.torch.kernels.causal_convolution import KERNELS  # noqa: E402
from hpfracc.engine.primitives import PRIMITIVES  # noqa: E402

CONTRACT = PRIMITIVES["causal_convolution"]


@pytest.mark.parametrize("differences", [False, True])
@pytest.mark.parametrize(("rows", "first"), [(0, 0), (1, 0), (1, 1), (2, 1)])
def test_it_is_what_autograd_finds(differences: bool, rows: int, first: int):
    """With differences and starting weights, and with a bad sample in one row."""
    torch.manual_seed(rows + first)
    n = 40
    weights, x, slope = (torch.randn(shape, dtype=torch.float64) for shape in ((n,), (3, n), (3, n)))
    x[1, 25] = torch.nan
    starts = torch.randn(rows, n, dtype=torch.float64) if rows else None
    kernel = KERNELS["fft"]
    prepared = kernel.prepare(weights, CONTRACT.describe(weights, x))
    signal = x.requires_grad_()
    more = () if starts is None else (starts,)
    value = kernel.apply(prepared, signal, *more, differences=differences, starts_from=first)
    (expected,) = torch.autograd.grad(value[:, :25], signal, slope[:, :25])
    reached = slope.clone()
    reached[[0, 2], 25:] = 0.0  # only the bad row is cut there by itself
    first_bad = torch.tensor([[n], [25], [n]])
    found = convolve_back_composed(reached, first_bad, prepared, SumOptions(differences, starts, first))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)
    many = torch.vmap(lambda s: convolve_back_composed(s, first_bad, prepared, SumOptions(differences, starts, first)))
    torch.testing.assert_close(many(torch.stack([reached, 2 * reached]))[1], 2 * expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("first", [0, 1])
def test_many_slopes_at_once_by_the_older_way_to_map(first: int):
    """``is_grads_batched`` hands over slopes that the fused kernels cannot read."""
    torch.manual_seed(3)
    n = 30
    weights, x, slope = (torch.randn(shape, dtype=torch.float64) for shape in ((n,), (2, n), (2, n)))
    starts = torch.randn(2, n, dtype=torch.float64)
    kernel = KERNELS["fft"]
    prepared = kernel.prepare(weights, CONTRACT.describe(weights, x))

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, signal):
            return kernel.apply(prepared, signal.detach(), starts, differences=True, starts_from=first)

        @staticmethod
        def backward(ctx, slope):
            return convolve_back_composed(slope, torch.full((2, 1), n), prepared, SumOptions(True, starts, first))

    signal = x.requires_grad_()
    (expected,) = torch.autograd.grad(
        kernel.apply(prepared, signal, starts, differences=True, starts_from=first), signal, slope
    )
    (found,) = torch.autograd.grad(Sum.apply(signal), signal, torch.stack([slope, -slope]), is_grads_batched=True)
    torch.testing.assert_close(found[1], -expected, rtol=0, atol=1e-11)
