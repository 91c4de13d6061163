"""Causal convolution in PyTorch: derivatives of every kind, and non-finite samples on every path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.helpers.thinned import thinned

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from hpfracc.engine.backends.torch.kernels.causal_convolution import KERNELS  # noqa: E402
from hpfracc.engine.primitives import PRIMITIVES  # noqa: E402
from tests.helpers.contracts import reference  # noqa: E402

CONTRACT = PRIMITIVES["causal_convolution"]
each_algorithm = pytest.mark.parametrize("algorithm", sorted(KERNELS))
#: (weights, signal): as many, fewer and more weights than points, rows of both.
each_shape = pytest.mark.parametrize(
    "shapes", [((6,), (6,)), ((3,), (2, 9)), ((8,), (5,)), ((2, 1, 4), (3, 6))], ids=str
)
# PyTorch's own forward mode loads decompositions that still use torch.jit.script.
forward_mode = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


def operands(shapes: tuple[tuple[int, ...], ...], dtype: Any = None, grad: bool = True) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(shape, dtype=dtype or torch.float64, generator=generator).requires_grad_(grad) for shape in shapes
    ]


@each_algorithm
@each_shape
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@thinned(one_in=2)
def test_first_and_second_derivatives(algorithm: str, shapes: tuple[tuple[int, ...], ...], dtype: Any):
    """Reverse mode agrees with finite differences in weights and signal, once and twice."""
    run, pair = KERNELS[algorithm].run, operands(shapes, dtype)
    assert torch.autograd.gradcheck(run, pair, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, pair, fast_mode=True)


@forward_mode
@each_algorithm
@each_shape
def test_forward_mode(algorithm: str, shapes: tuple[tuple[int, ...], ...]):
    """``torch.func.jvp`` is the convolution's own product rule."""
    run = KERNELS[algorithm].run
    weights, signal = operands(shapes, grad=False)
    change = [torch.ones_like(weights), torch.linspace(-1, 1, signal.numel(), dtype=signal.dtype).reshape(signal.shape)]
    value, derivative = torch.func.jvp(run, (weights, signal), tuple(change))
    torch.testing.assert_close(value, run(weights, signal))
    torch.testing.assert_close(derivative, run(change[0], signal) + run(weights, change[1]))


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


class OnAccelerator(torch.Tensor):  # type: ignore[misc]
    """A host tensor that says it is elsewhere: it takes the ways of a GPU's."""

    @property
    def is_cpu(self) -> bool:
        return False


def eagerly(run: Callable[..., Any], weights: Any, signal: Any) -> Any:
    return run(weights, signal)


def as_on_an_accelerator(run: Callable[..., Any], weights: Any, signal: Any) -> Any:
    return run(weights.as_subclass(OnAccelerator), signal.as_subclass(OnAccelerator)).as_subclass(torch.Tensor)


def prepared_on_an_accelerator(run: Callable[..., Any], weights: Any, signal: Any) -> Any:
    (kernel,) = [kernel for kernel in KERNELS.values() if kernel.run is run]
    prepared = kernel.prepare(weights.as_subclass(OnAccelerator), CONTRACT.describe(weights, signal))
    return kernel.apply(prepared, signal.as_subclass(OnAccelerator)).as_subclass(torch.Tensor)


def while_tracked(run: Callable[..., Any], weights: Any, signal: Any) -> Any:
    return run(weights, signal.clone().requires_grad_()).detach()


def while_tracked_elsewhere(run: Callable[..., Any], weights: Any, signal: Any) -> Any:
    return as_on_an_accelerator(run, weights, signal.clone().requires_grad_()).detach()


def inside_vmap(run: Callable[..., Any], weights: Any, signal: Any) -> Any:
    return torch.func.vmap(lambda x: run(weights, x))(signal)


@each_algorithm
@pytest.mark.parametrize(
    "way",
    [eagerly, as_on_an_accelerator, prepared_on_an_accelerator, while_tracked, while_tracked_elsewhere, inside_vmap],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("taps", [1, 5, 30, 4500])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@thinned(lambda dtype, taps: (dtype == "float64" and taps != 4500) or (dtype == "complex128" and taps == 5))
def test_non_finite_samples_stay_causal(algorithm: str, way: Callable[..., Any], taps: int, dtype: str):
    """Points whose sum involves a bad sample are not finite, all others are right, on every way through the kernel."""
    rng = np.random.default_rng(2)
    n = 40 if taps < 4500 else 600 if algorithm == "direct" else 4500
    weights, signal = rng.standard_normal(taps).astype(dtype), rng.standard_normal((4, n)).astype(dtype)
    signal[1, 11], signal[2, 3], signal[2, 25], signal[3, -1] = np.nan, np.inf, -np.inf, np.nan
    answer = reference(CONTRACT, weights, signal)
    result = way(KERNELS[algorithm].run, torch.from_numpy(weights), torch.from_numpy(signal)).numpy()
    finite = np.isfinite(answer)
    assert not finite.all()
    assert (np.isfinite(result) == finite).all()
    np.testing.assert_allclose(result[finite], answer[finite], rtol=0, atol=1e-13 * np.abs(weights).sum())


@each_algorithm
def test_gradient_beside_a_bad_sample(algorithm: str):
    """A loss over the points before a bad sample has the gradient it has without that sample."""
    run = KERNELS[algorithm].run
    weights, signal = operands(((12,), (12,)))
    with torch.no_grad():
        signal[7] = torch.nan
    run(weights, signal)[:7].square().sum().backward()
    w, x = (t.detach()[:7].clone().requires_grad_() for t in (weights, signal))
    run(w, x).square().sum().backward()
    torch.testing.assert_close(signal.grad, torch.cat([x.grad, torch.zeros(5, dtype=x.dtype)]))
    torch.testing.assert_close(weights.grad, torch.cat([w.grad, torch.zeros(5, dtype=w.dtype)]))


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


@each_algorithm
def test_integers_are_summed_in_double_precision(algorithm: str):
    """Integer operands, even of one dtype, give float64."""
    result = KERNELS[algorithm].run(torch.arange(1, 4), torch.arange(6))
    assert result.dtype == torch.float64
    np.testing.assert_allclose(result.numpy(), np.convolve(np.arange(1, 4), np.arange(6))[:6], atol=1e-12)


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
