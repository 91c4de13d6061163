"""Causal convolution on a CUDA device: no waiting, no TF32, and the same answers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no CUDA device", allow_module_level=True)

from hpfracc.engine.backends.torch.kernels.causal_convolution import KERNELS  # noqa: E402
from hpfracc.engine.primitives import PRIMITIVES  # noqa: E402
from tests.helpers.contracts import reference  # noqa: E402

pytestmark = pytest.mark.gpu
CONTRACT = PRIMITIVES["causal_convolution"]
each_algorithm = pytest.mark.parametrize("algorithm", sorted(KERNELS))


@each_algorithm
@pytest.mark.parametrize("taps", [1, 7, 600])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("tracked", [False, True])
def test_non_finite_samples_stay_causal(algorithm: str, taps: int, dtype: str, tracked: bool):
    """Points whose sum involves a bad sample are not finite, all others are right."""
    rng = np.random.default_rng(2)
    weights, signal = rng.standard_normal(taps).astype(dtype), rng.standard_normal((4, 600)).astype(dtype)
    signal[1, 11], signal[2, 3], signal[2, 250], signal[3, -1] = np.nan, np.inf, -np.inf, np.nan
    answer = reference(CONTRACT, weights, signal)
    x = torch.from_numpy(signal).cuda().requires_grad_(tracked)
    result = KERNELS[algorithm].run(torch.from_numpy(weights).cuda(), x).detach().cpu().numpy()
    finite = np.isfinite(answer)
    assert (np.isfinite(result) == finite).all()
    allowed = 8 * np.finfo(dtype).eps * np.abs(weights).sum() * np.abs(signal[np.isfinite(signal)]).max()
    np.testing.assert_allclose(result[finite], answer[finite], rtol=0, atol=allowed)


@each_algorithm
@pytest.mark.parametrize("taps", [5, 800])
def test_no_synchronisation(algorithm: str, taps: int):
    """No kernel makes the host wait for the device, plain, prepared or tracked."""
    kernel = KERNELS[algorithm]
    weights, signal = torch.randn(taps, device="cuda"), torch.randn(3, 800, device="cuda")
    prepared = kernel.prepare(weights, CONTRACT.describe(weights, signal))
    kernel.run(weights, signal)  # plans and handles are made with a synchronisation, once
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "a prototype feature": it finds what it finds
        torch.cuda.set_sync_debug_mode("error")
    try:
        kernel.run(weights, signal)
        kernel.apply(prepared, signal)
        kernel.run(weights, signal.clone().requires_grad_()).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@each_algorithm
def test_single_precision_is_not_tf32(algorithm: str):
    """Float32 keeps its digits even where the user switched TF32 on."""
    rng = np.random.default_rng(5)
    weights, signal = rng.standard_normal(900).astype("float32"), rng.standard_normal((64, 900)).astype("float32")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        result = KERNELS[algorithm].run(torch.from_numpy(weights).cuda(), torch.from_numpy(signal).cuda())
    finally:
        torch.set_float32_matmul_precision(before)
    allowed = 8 * np.finfo("float32").eps * np.abs(weights).sum() * np.abs(signal).max()
    np.testing.assert_allclose(result.cpu().numpy(), reference(CONTRACT, weights, signal), rtol=0, atol=allowed)


@each_algorithm
def test_deterministic_mode(algorithm: str):
    """Kernels run where the user allows deterministic algorithms alone, and their results are right and repeatable."""
    weights, signal = torch.randn(20, device="cuda"), torch.randn(3, 400, device="cuda", requires_grad=True)
    torch.use_deterministic_algorithms(True)
    try:
        found = [
            KERNELS[algorithm].run(weights, given).detach() for given in (signal, signal.detach(), signal.detach())
        ]
    finally:
        torch.use_deterministic_algorithms(False)
    expected = reference(CONTRACT, weights.cpu().numpy(), signal.detach().cpu().numpy())
    allowed = 8 * np.finfo("float32").eps * float(weights.abs().sum() * signal.detach().abs().max())
    for each in found:
        np.testing.assert_allclose(each.cpu().numpy(), expected, rtol=0, atol=allowed)
    assert torch.equal(found[1], found[2])


@each_algorithm
def test_gradients(algorithm: str):
    """Once and twice, on the GPU."""
    pair = [torch.randn(shape, dtype=torch.float64, device="cuda", requires_grad=True) for shape in ((5,), (2, 12))]
    assert torch.autograd.gradcheck(KERNELS[algorithm].run, pair, fast_mode=True)
    assert torch.autograd.gradgradcheck(KERNELS[algorithm].run, pair, fast_mode=True)


@pytest.mark.parametrize("shape", [(700,), (3, 700), (2, 2, 1025)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_slopes_of_long_rows_are_those_of_the_sum(shape: tuple[int, ...], dtype: str):
    """Of signals that autograd records, against the sum as a matrix; once and twice differentiated."""
    n = shape[-1]
    weights = torch.randn(n, dtype=torch.float64)
    kernel = KERNELS["fft"]
    x = torch.randn(shape, dtype=torch.float64)
    prepared = kernel.prepare(
        weights.to(getattr(torch, dtype)).cuda(), CONTRACT.describe(weights, x.to(getattr(torch, dtype)))
    )
    lag = torch.arange(n)[:, None] - torch.arange(n)
    matrix = torch.where(lag >= 0, weights[lag.clamp(min=0)], torch.zeros((), dtype=torch.float64))
    slope = torch.randn(shape, dtype=torch.float64)
    signal = x.to(getattr(torch, dtype)).cuda().requires_grad_()
    result = kernel.apply(prepared, signal)
    assert "_CausalSum" in type(result.grad_fn).__name__  # by the fused kernels
    found = torch.autograd.grad(result, signal, slope.to(result), create_graph=True)[0]
    allowed = 50 * np.finfo(dtype).eps * float(weights.abs().sum() * slope.abs().max())
    torch.testing.assert_close(found.detach().cpu().double(), slope @ matrix, rtol=0, atol=allowed)
    # The slope of a quadratic form in the result, differentiated again: 2 M M^T v.
    square = torch.autograd.grad((kernel.apply(prepared, signal) ** 2).sum(), signal, create_graph=True)[0]
    again = torch.autograd.grad(square, signal, slope.to(result))[0].cpu().double()
    expected = 2 * (slope @ matrix.mT) @ matrix
    torch.testing.assert_close(
        again, expected, rtol=0, atol=100 * np.finfo(dtype).eps * float(matrix.abs().sum(0).max()) ** 2
    )


def test_a_bad_sample_gets_and_gives_no_slope_and_a_bad_slope_stays_behind_it():
    """Points that a bad sample reaches do not count; a bad slope reaches the samples up to its own point alone."""
    n = 600
    weights = torch.randn(n, dtype=torch.float64)
    kernel = KERNELS["fft"]
    x = torch.randn(2, n, dtype=torch.float64)
    x[1, 400] = torch.nan
    prepared = kernel.prepare(weights.cuda(), CONTRACT.describe(weights, x))
    signal = x.cuda().requires_grad_()
    slope = torch.randn(2, n, dtype=torch.float64)
    slope[0, 100] = torch.inf
    found = torch.autograd.grad(kernel.apply(prepared, signal), signal, slope.cuda())[0].cpu()
    lag = torch.arange(n)[:, None] - torch.arange(n)
    matrix = torch.where(lag >= 0, weights[lag.clamp(min=0)], torch.zeros((), dtype=torch.float64))
    assert torch.isnan(found[0, :101]).all()
    torch.testing.assert_close(found[0, 101:], (slope[0, 101:] @ matrix[101:])[101:], rtol=0, atol=1e-11)
    torch.testing.assert_close(found[1], slope[1, :400] @ matrix[:400], rtol=0, atol=1e-11)


@pytest.mark.parametrize("shape", [(3, 700), (5000,), (2, 300_000)])
@pytest.mark.parametrize("differences", [False, True])
@pytest.mark.parametrize(("rows", "first"), [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1)])
def test_slopes_with_starting_weights(shape: tuple[int, ...], differences: bool, rows: int, first: int):
    """Value and slope of the fused kernels, in rows of one block and of many, are those of compositions."""
    torch.manual_seed(1)
    n = shape[-1]
    weights = torch.randn(n, dtype=torch.float64).cuda() / n**0.5
    starts = (torch.randn(rows, n, dtype=torch.float64).cuda(),) if rows else ()
    kernel = KERNELS["fft"]
    x = torch.randn(shape, dtype=torch.float64).cuda().requires_grad_()
    slope = torch.randn(shape, dtype=torch.float64).cuda()
    options = {"differences": differences, "starts_from": first}
    prepared = kernel.prepare(weights, CONTRACT.describe(weights, x))
    fused = kernel.apply(prepared, x, *starts, **options)
    assert "_CausalSum" in type(fused.grad_fn).__name__
    composed = kernel.run(weights.clone().requires_grad_(), x, *starts, **options)
    torch.testing.assert_close(fused, composed, rtol=0, atol=1e-10)
    allowed = 1e-12 * n
    (expected,) = torch.autograd.grad(composed, x, slope)
    (found,) = torch.autograd.grad(fused, x, slope, retain_graph=True)
    torch.testing.assert_close(found, expected, rtol=0, atol=allowed)
    many = torch.autograd.grad(fused, x, torch.stack([slope, -slope]), is_grads_batched=True)[0]
    torch.testing.assert_close(many[1], -expected, rtol=0, atol=allowed)


def test_what_is_remembered_of_a_launch_fits_the_next():
    """Rows at addresses that 16 does not divide, other lengths and dtypes: in turns, on a stream of their own."""
    kernel = KERNELS["fft"]
    stream = torch.cuda.Stream()
    for _ in range(3):
        for n, skip, dtype in ((700, 0, "float32"), (700, 1, "float32"), (704, 1, "float64"), (700, 0, "float64")):
            whole = torch.randn(2 * n + skip, dtype=getattr(torch, dtype), device="cuda")
            signal, weights = whole[skip:].view(2, n), torch.randn(n, dtype=whole.dtype, device="cuda")
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                prepared = kernel.prepare(weights, CONTRACT.describe(weights, signal))
                found = kernel.apply(prepared, signal)
            stream.synchronize()
            expected = reference(CONTRACT, weights.cpu().numpy(), signal.cpu().numpy())
            allowed = 8 * np.finfo(dtype).eps * float(weights.abs().sum() * signal.abs().max())
            np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=0, atol=allowed)
