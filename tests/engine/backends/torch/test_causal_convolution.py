"""Causal convolution in PyTorch: derivatives of every kind, and non-finite samples on every path."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from hpfracc.engine.backends.torch.kernels.causal_convolution import KERNELS  # noqa: E402
from hpfracc.engine.primitives import PRIMITIVES  # noqa: E402

CONTRACT = PRIMITIVES["causal_convolution"]
each_algorithm = pytest.mark.parametrize("algorithm", sorted(KERNELS))


def operands(shapes: tuple[tuple[int, ...], ...], dtype: Any = None, grad: bool = True) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(shape, dtype=dtype or torch.float64, generator=generator).requires_grad_(grad) for shape in shapes
    ]


@each_algorithm
def test_func_grad_and_vmap(algorithm: str):
    """``torch.func.grad`` mapped over rows, with ``vmap`` over signals and over weights, is the plain gradient."""
    run = KERNELS[algorithm].run
    weights, signal = operands(((3, 5), (3, 8)), grad=False)

    def loss(w: Any, x: Any) -> Any:
        return (run(w, x) ** 2).sum()

    mapped = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)))(weights, signal)
    for row in range(3):
        w, x = weights[row].clone().requires_grad_(), signal[row].clone().requires_grad_()
        loss(w, x).backward()
        torch.testing.assert_close(mapped[0][row], w.grad)
        torch.testing.assert_close(mapped[1][row], x.grad)


@each_algorithm
def test_kept_transform_lets_the_gradient_of_the_signal_through(algorithm: str):
    """With prepared weights the signal still gets its gradient."""
    kernel = KERNELS[algorithm]
    weights, signal = operands(((7,), (2, 20)))
    prepared = kernel.prepare(weights.detach(), CONTRACT.describe(weights.detach(), signal.detach()))
    assert torch.autograd.gradcheck(lambda x: kernel.apply(prepared, x), (signal,), fast_mode=True)


@pytest.mark.parametrize("algorithm", ["blocked", "fft"])
def test_memory_of_the_backward_pass_is_linear(algorithm: str):
    """What is kept for the backward pass grows with the points, not with their square."""
    kept = []
    for n in (2000, 8000):
        weights, signal = operands(((n // 8,), (n,)))
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, s=sizes: s.append(t.nbytes) or t, lambda t: t):
            KERNELS[algorithm].run(weights, signal)
        kept.append(sum(sizes))
    assert 0 < kept[1] < 8 * kept[0]


@each_algorithm
@pytest.mark.parametrize("requires_grad", [False, True])
def test_operands_stay_as_they_were(algorithm: str, requires_grad: bool):
    """Buffers that are written in place are the kernel's own."""
    kernel = KERNELS[algorithm]
    weights, signal = operands(((9,), (3, 40)), grad=requires_grad)
    before = weights.detach().clone(), signal.detach().clone()
    prepared = kernel.prepare(weights, CONTRACT.describe(weights.detach(), signal.detach()))
    kept = prepared[0].detach().clone()
    for _ in range(2):
        kernel.run(weights, signal)
        kernel.apply(prepared, signal)
    assert torch.equal(weights, before[0])
    assert torch.equal(signal, before[1])
    assert torch.equal(prepared[0], kept)


@pytest.mark.parametrize("algorithm", ["direct", "fft", "blocked"])
def test_weights_alone_may_be_mapped(algorithm: str):
    """``vmap`` over weights, with samples that are not mapped, some of which are not finite."""
    weights = torch.randn(3, 20, dtype=torch.float64)
    signal = torch.randn(2, 90, dtype=torch.float64)
    for bad in (None, 40):
        if bad is not None:
            signal[1, bad] = torch.nan
        found = torch.func.vmap(lambda w: KERNELS[algorithm].run(w, signal))(weights)
        for row, value in zip(weights, found, strict=True):
            torch.testing.assert_close(value, KERNELS[algorithm].run(row, signal), equal_nan=True, rtol=0, atol=1e-12)
