"""Moves between NumPy and CUDA, on a GPU that is played by the host: order of streams, bounds, what is shared."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from hpfracc.engine.backends.torch import transfers  # noqa: E402
from hpfracc.engine.execution.operation import get_operation  # noqa: E402
from hpfracc.engine.memory.staging import PinnedLedger, StagingRing  # noqa: E402


class FakeGPU:
    """Streams and events that do everything at once and keep a diary."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.diary: list[tuple[str, ...]] = []
        self.current = "caller"
        self.pinned: set[int] = set()
        self.lockable = True
        gpu = self

        class Stream:
            def __init__(self, name: Any) -> None:
                self.name = str(name)

            def wait_event(self, event: Any) -> None:
                gpu.diary.append((self.name, "waits for", event.after))

            def wait_stream(self, other: Any) -> None:
                gpu.diary.append((self.name, "waits for", other.name))

        class Event:
            after = "nothing"

            def record(self) -> None:
                self.after = gpu.current

            def synchronize(self) -> None:
                gpu.diary.append(("host", "waits for", self.after))

        @contextlib.contextmanager
        def stream(entered: Any) -> Iterator[None]:
            before, gpu.current = gpu.current, entered.name
            yield
            gpu.current = before

        empty = torch.empty

        def allocate(*shape: Any, pin_memory: bool = False, **options: Any) -> Any:
            if pin_memory and not gpu.lockable:
                raise RuntimeError("CUDA error: out of memory")
            made = empty(*shape, **options)
            if pin_memory:
                gpu.pinned.add(made.data_ptr())
            return made

        def record_stream(tensor: Any, entered: Any) -> None:
            gpu.diary.append((entered.name, "uses what was made on", gpu.current))

        monkeypatch.setattr(torch.cuda, "Stream", Stream)
        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "stream", stream)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream(gpu.current))
        monkeypatch.setattr(torch, "empty", allocate)
        monkeypatch.setattr(torch.Tensor, "record_stream", record_stream)
        monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: tensor.data_ptr() in gpu.pinned)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGPU:
    return FakeGPU(monkeypatch)


@pytest.fixture
def lane(gpu: FakeGPU) -> transfers.Lane:
    ring = StagingRing(transfers.CudaLink(), slots=2, chunk=4096)
    made = transfers.Lane(torch.device("cpu"), ring, PinnedLedger(2**20))
    made.inward.name, made.outward.name = "inward", "outward"
    return made


def test_upload_through_the_ring(gpu: FakeGPU, lane: transfers.Lane):
    """Bytes arrive; the caller's stream waits for the copies and for nothing else, and owns a share in the memory."""
    source = torch.arange(2000, dtype=torch.float64)
    target = lane.upload(source)
    assert torch.equal(target, source)
    assert target.data_ptr() != source.data_ptr()
    assert ("caller", "uses what was made on", "inward") in gpu.diary
    assert gpu.diary[-1] == ("caller", "waits for", "inward")
    assert ("inward", "waits for", "caller") not in gpu.diary


def test_download_into_pinned_memory(gpu: FakeGPU, lane: transfers.Lane):
    """The result is the pinned memory itself, written after the caller's work and complete on return."""
    source = torch.arange(2000, dtype=torch.float64).reshape(20, 100)
    result = lane.download(source)
    np.testing.assert_array_equal(result, source.numpy())
    assert result.ctypes.data in gpu.pinned
    assert result.flags.writeable
    assert gpu.diary[0] == ("outward", "waits for", "caller")
    assert gpu.diary[-1] == ("host", "waits for", "outward")


def test_downloads_are_counted_until_the_last_view_dies(lane: transfers.Lane):
    """The ledger counts what PyTorch's allocator takes for a result, as long as anything looks at it."""
    result = lane.download(torch.arange(2000, dtype=torch.float64).reshape(20, 100))
    assert lane.ledger.held == 16_384
    view = result[3:5, ::7].T
    del result
    gc.collect()
    assert lane.ledger.held == 16_384
    del view
    gc.collect()
    assert lane.ledger.held == 0


@pytest.mark.parametrize("why", ["bound", "system"])
def test_download_without_pinned_memory(gpu: FakeGPU, lane: transfers.Lane, why: str):
    """Where the bound or the system refuses pinned memory, the ring brings the same bytes into fresh memory."""
    if why == "bound":
        lane.ledger = PinnedLedger(1000)
    else:
        gpu.lockable = False
    source = torch.randn(2000, dtype=torch.complex128)
    result = lane.download(source)
    np.testing.assert_array_equal(result, source.numpy())
    assert result.ctypes.data not in gpu.pinned
    assert result.flags.owndata
    assert lane.ledger.held == 0


def locked(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def beginning_at(offset: int, values: np.ndarray) -> np.ndarray:
    """The same values, beginning at ``offset`` bytes after a multiple of 64."""
    memory = np.empty(values.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    made = memory[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    made[...] = values
    return made


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("locks", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "int16"])
def test_memory_that_is_not_aligned_is_copied(dtype: str, locks: bool, shared: bool):
    """PyTorch assumes that elements begin at multiples of their size, NumPy's complex numbers at half of it."""
    values = np.arange(1, 22).astype(dtype).reshape(3, 7)
    for offset in (1, 2, 4, 8, 16):
        array = beginning_at(offset, values)
        array.flags.writeable = not locks
        for view in (array, array[:, ::2], array[::-1].T):
            tensor = transfers.as_tensor(view, shared=shared)
            assert tensor.data_ptr() % array.itemsize == 0
            np.testing.assert_array_equal(tensor.numpy(), view, strict=True)


@pytest.mark.parametrize("offset", [1, 8])
def test_sums_over_memory_that_is_not_aligned(offset: int):
    """A process once ended here with a segmentation fault."""
    x = np.random.default_rng(0).standard_normal((3, 1001, 2)).view("complex128")[..., 0]
    found = get_operation("causal_convolution")(np.ones(1001), beginning_at(offset, x), backend="torch")
    np.testing.assert_allclose(found, np.cumsum(x, axis=-1), rtol=0, atol=1e-10)


@pytest.mark.filterwarnings("error")
def test_a_reader_copies_where_read_only_memory_cannot_be_shared(monkeypatch: pytest.MonkeyPatch):
    """An older NumPy refuses to export it; the tensor then has memory of its own."""

    def refuse(array: np.ndarray) -> Any:
        raise BufferError("Cannot export readonly array")

    monkeypatch.setattr(torch, "from_dlpack", refuse)
    array = locked(np.arange(5.0))
    tensor = transfers.as_tensor(array, shared=False)
    np.testing.assert_array_equal(tensor.numpy(), array)
    assert not np.shares_memory(tensor.numpy(), array)
