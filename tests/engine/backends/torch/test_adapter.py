"""PyTorch's adapter: what it says of itself, moves on the host, and no global state touched."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from hpfracc.engine.backends.torch.adapter import ADAPTER

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


def test_host_memory_is_shared():
    """No copy is made of a writable array, there or back."""
    array = np.arange(6.0)
    tensor = ADAPTER.from_host(array, "cpu")
    assert tensor.data_ptr() == array.ctypes.data
    assert ADAPTER.to_host(tensor).ctypes.data == array.ctypes.data


def test_to_host_lets_go_of_gradient_and_views():
    """Tensors with a gradient, lazily conjugated and lazily negated ones become plain arrays."""
    tensor = torch.tensor([1 + 2j, 3 - 4j], requires_grad=True)
    np.testing.assert_array_equal(ADAPTER.to_host(tensor), [1 + 2j, 3 - 4j])
    np.testing.assert_array_equal(ADAPTER.to_host(tensor.conj()), [1 - 2j, 3 + 4j])
    np.testing.assert_array_equal(ADAPTER.to_host(tensor.conj().imag), [-2, 4])


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


def test_adapter_imports_no_torch():
    """Listing what PyTorch could do does not import it."""
    code = (
        "import sys; from hpfracc.engine.backends.torch.adapter import ADAPTER;"
        "ADAPTER.declaration.specs, ADAPTER.declaration.version();"
        "ADAPTER.is_out_of_memory(RuntimeError('x')), ADAPTER.release_memory('cuda:0');"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(p for p in sys.path if p)})
