"""The causal sum as one node of autograd, against its composition."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.thinned import thinned

torch = pytest.importorskip("torch")


def operands(rows: tuple[int, ...], starts: int) -> list[Any]:
    generator = torch.Generator().manual_seed(5)
    shapes = [(9,), (*rows, 7), *([(starts, 7)] if starts else [])]
    return [torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_() for shape in shapes]


def sums(differences: bool, first: int) -> tuple[Any, Any]:
    from hpfracc.engine.backends.torch.kernels import causal_convolution as kernels

    options = {"differences": differences, "starts_from": first}
    return (
        lambda *tensors: kernels.KERNELS["fft"].run(*tensors, **options),
        lambda *tensors: kernels._GENERIC.run(*tensors, **options),
    )


@pytest.mark.parametrize("rows", [(), (3,), (2, 3)])
@pytest.mark.parametrize("differences", [False, True])
@pytest.mark.parametrize("starts", [0, 1, 3])
@thinned(one_in=3)
def test_sum_and_gradients_equal_the_composition(rows: tuple[int, ...], differences: bool, starts: int):
    """Value, gradients in all operands, and second derivatives."""
    ours, composed = sums(differences, 1 if starts else 0)
    given = operands(rows, starts)
    found, right = ours(*given), composed(*given)
    assert "CausalSum" in type(found.grad_fn).__name__
    torch.testing.assert_close(found, right, atol=1e-13, rtol=0)
    slope = torch.linspace(-1.0, 1.0, found.numel(), dtype=torch.float64).reshape(found.shape)
    for one, other in zip(
        torch.autograd.grad(found, given, slope), torch.autograd.grad(right, given, slope), strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)
    assert torch.autograd.gradgradcheck(ours, given)


@pytest.mark.parametrize("rows", [(), (3,)])
@pytest.mark.parametrize("starts", [1, 2])
def test_starting_weights_of_the_first_sample_multiply_it(rows: tuple[int, ...], starts: int):
    """It has no difference: its weights multiply the sample, and their gradients are those of the composition."""
    ours, composed = sums(True, 0)
    given = operands(rows, starts)
    found, right = ours(*given), composed(*given)
    assert "CausalSum" in type(found.grad_fn).__name__
    torch.testing.assert_close(found, right, atol=1e-13, rtol=0)
    torch.testing.assert_close(found[..., 0], given[1][..., 0] * given[2][0, 0], atol=1e-13, rtol=0)
    slope = torch.linspace(-1.0, 1.0, found.numel(), dtype=torch.float64).reshape(found.shape)
    for one, other in zip(
        torch.autograd.grad(found, given, slope), torch.autograd.grad(right, given, slope), strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)
    assert torch.autograd.gradgradcheck(ours, given)


def test_a_bad_sample_reaches_what_comes_after_it_and_gives_no_gradient():
    """nan from the bad sample on; gradients are those of the points before it."""
    ours, _ = sums(True, 1)
    weights, signal, starts = operands((2,), 1)
    bad = signal.detach().clone()
    bad[0, 4] = torch.nan
    bad.requires_grad_()
    found = ours(weights, bad, starts)
    assert torch.isnan(found[0, 4:]).all() and torch.isfinite(found[0, :4]).all() and torch.isfinite(found[1]).all()
    clean = ours(weights, signal, starts)
    keep = torch.ones_like(clean)
    keep[0, 4:] = 0.0
    right = torch.autograd.grad((clean * keep).sum(), (weights, signal, starts))
    for one, other in zip(
        torch.autograd.grad(found, (weights, bad, starts), torch.ones_like(found)), right, strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


def test_many_slopes_at_once():
    """``is_grads_batched`` gives the rows of the Jacobian."""
    ours, composed = sums(False, 0)
    weights, signal = operands((), 0)
    unit = torch.eye(7, dtype=torch.float64)
    many = torch.autograd.grad(ours(weights, signal), weights, unit, is_grads_batched=True)[0]
    single = torch.autograd.grad(composed(weights, signal), weights, unit[3])[0]
    torch.testing.assert_close(many[3], single, atol=1e-12, rtol=0)
