"""PyTorch's adapter: what it says of itself, moves on the host, and no global state touched."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from hpfracc.engine.backends.torch.adapter import ADAPTER
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import INEXACT, INTEGERS, ArraySpec

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def layouts() -> dict[str, np.ndarray]:
    grid = np.arange(24.0).reshape(4, 6)
    locked = grid.copy()
    locked.flags.writeable = False
    return {
        "contiguous": grid,
        "read-only": locked,
        "repeated": np.broadcast_to(np.arange(3.0), (4, 3)),
        "transposed": grid.T,
        "strided": grid[::2, 1::3],
        "backwards": grid[::-1, ::-1],
        "no elements": grid[:0],
        "no elements, backwards": grid[:0, ::-1],
        "no axes": np.array(3.5),
        "other byte order": grid.astype(">f8"),
        "a field of records": np.zeros(5, [("a", "i1"), ("b", "f8")])["b"],
    }


@pytest.mark.parametrize("layout", layouts())
def test_round_trip(layout: str):
    """Any array comes back as it was, and moving it warns about nothing."""
    array = layouts()[layout]
    tensor = ADAPTER.from_host(array, "cpu")
    assert isinstance(tensor, torch.Tensor)
    back = ADAPTER.to_host(tensor)
    assert back.dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize("dtype", sorted(INEXACT | INTEGERS))
def test_round_trip_of_dtypes(dtype: str):
    """Every dtype that a primitive takes goes through unchanged."""
    array = np.arange(6).astype(dtype)
    back = ADAPTER.to_host(ADAPTER.from_host(array, "cpu"))
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_host_memory_is_shared():
    """No copy is made of a writable array, there or back."""
    array = np.arange(6.0)
    tensor = ADAPTER.from_host(array, "cpu")
    assert tensor.data_ptr() == array.ctypes.data
    assert ADAPTER.to_host(tensor).ctypes.data == array.ctypes.data


def test_read_only_memory_is_not_shared():
    """A tensor cannot be made read-only, so it gets memory of its own."""
    array = np.arange(6.0)
    array.flags.writeable = False
    ADAPTER.from_host(array, "cpu").zero_()
    np.testing.assert_array_equal(array, np.arange(6.0))


def test_to_host_lets_go_of_gradient_and_views():
    """Tensors with a gradient, lazily conjugated and lazily negated ones become plain arrays."""
    tensor = torch.tensor([1 + 2j, 3 - 4j], requires_grad=True)
    np.testing.assert_array_equal(ADAPTER.to_host(tensor), [1 + 2j, 3 - 4j])
    np.testing.assert_array_equal(ADAPTER.to_host(tensor.conj()), [1 - 2j, 3 + 4j])
    np.testing.assert_array_equal(ADAPTER.to_host(tensor.conj().imag), [-2, 4])


def test_cast():
    """A tensor that has the dtype is itself; a gradient goes through a real cast."""
    tensor = torch.ones(3, dtype=torch.float32, requires_grad=True)
    assert ADAPTER.cast(tensor, "float32") is tensor
    ADAPTER.cast(tensor, "complex128").real.sum().backward()
    np.testing.assert_array_equal(tensor.grad, np.ones(3))


def test_host_device():
    """The host is always there, synchronous, and its memory is somebody else's to count."""
    assert ADAPTER.devices()[0] == "cpu"
    assert not ADAPTER.is_asynchronous("cpu")
    assert ADAPTER.timer("cpu") is None
    assert ADAPTER.free_bytes("cpu") is None
    ADAPTER.synchronize("cpu")
    ADAPTER.release_memory("cpu")
    assert torch.__version__.startswith(ADAPTER.declaration.version() or "none")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"), True),
        (MemoryError(), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_out_of_memory_is_told_apart(error: Exception, expected: bool):
    """Every way in which PyTorch says that memory ran out, and nothing else."""
    assert ADAPTER.is_out_of_memory(error) is expected


def test_out_of_memory_for_real():
    """What PyTorch raises on the host when asked for too much is recognised."""
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**62, dtype=torch.uint8)
    assert ADAPTER.is_out_of_memory(caught.value)


@pytest.mark.parametrize(
    ("algorithm", "weights", "signal", "refused"),
    [
        ("direct", (1024,), (1024,), False),
        ("direct", (1025,), (1025,), True),
        ("direct", (100, 1000), (100, 1000), True),
        ("direct", (1000,), (10_000, 1000), False),
        ("blocked", (250,), (1000,), False),
        ("blocked", (251,), (1000,), True),
        ("fft", (10**7,), (10**7,), False),
    ],
)
def test_refusals(algorithm: str, weights: tuple[int, ...], signal: tuple[int, ...], refused: bool):
    """Direct sums are for short signals, blocks for short weights, and the reason is a sentence."""
    (spec,) = [spec for spec in ADAPTER.declaration.specs["causal_convolution"] if spec.algorithm == algorithm]
    call = PRIMITIVES["causal_convolution"].describe(ArraySpec(weights), ArraySpec(signal))
    reason = spec.refuses(call) if spec.refuses else None
    assert (reason is not None) == refused
    assert reason is None or f"{signal[-1]:,} points" in reason


def test_adapter_imports_no_torch():
    """Listing what PyTorch could do does not import it."""
    code = (
        "import sys; from hpfracc.engine.backends.torch.adapter import ADAPTER;"
        "ADAPTER.declaration.specs, ADAPTER.declaration.version();"
        "ADAPTER.is_out_of_memory(RuntimeError('x')), ADAPTER.release_memory('cuda:0');"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(p for p in sys.path if p)})
