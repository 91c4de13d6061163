"""Moves between NumPy and CUDA: right bytes at every size, bounded pinned memory, no waiting for other work."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no CUDA device", allow_module_level=True)

from hpfracc.engine.backends.torch import transfers  # noqa: E402
from hpfracc.engine.backends.torch.adapter import ADAPTER  # noqa: E402
from hpfracc.engine.memory.staging import CHUNK_BYTES, SLOTS, SMALL_BYTES, PinnedLedger  # noqa: E402

pytestmark = pytest.mark.gpu
DEVICE = "cuda:0"
#: Around the plain way's end, a chunk, the ring, and well beyond; in doubles.
SIZES = [0, 1, 1000, SMALL_BYTES // 8 - 1, SMALL_BYTES // 8, CHUNK_BYTES // 8 + 1, SLOTS * CHUNK_BYTES // 8 + 7, 10**7]


def numbers(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size)


@pytest.mark.parametrize("size", SIZES)
def test_round_trip(size: int):
    """Whatever the size, the bytes that go in come out, in a writable array."""
    array = numbers(size)
    tensor = ADAPTER.from_host(array, DEVICE)
    assert tensor.device == torch.device(DEVICE)
    back = ADAPTER.to_host(tensor)
    assert back.flags.writeable
    np.testing.assert_array_equal(back, array)


def test_source_may_change_after_upload():
    """The array is its owner's again when ``from_host`` returns, pinned or not, though the GPU may still copy."""
    torch.cuda._sleep(200_000_000)  # keep the caller's stream busy
    pageable = numbers(4 * 10**6)
    pinned = ADAPTER.to_host(ADAPTER.from_host(pageable, DEVICE))
    for array in (pageable, pinned, pageable[:1000].copy(), pinned[:1000]):
        expected = array.copy()
        tensor = ADAPTER.from_host(array, DEVICE)
        array[:] = 0
        np.testing.assert_array_equal(ADAPTER.to_host(tensor), expected)


def test_upload_does_not_wait_for_the_callers_stream():
    """A large upload finishes while a kernel queued before it still runs."""
    ADAPTER.from_host(numbers(4 * 10**6), DEVICE)  # makes the ring
    torch.cuda.synchronize()
    array = numbers(4 * 10**6)
    torch.cuda._sleep(2_000_000_000)  # about a second
    event = torch.cuda.Event()
    event.record()
    tensor = ADAPTER.from_host(array, DEVICE)
    assert not event.query()
    np.testing.assert_array_equal(ADAPTER.to_host(tensor), array)


def test_memory_is_not_given_away_while_kernels_read_it():
    """Uploads whose tensors die while queued kernels still need them do not overwrite each other."""
    for seed in range(8):
        array = numbers(2 * 10**6, seed)
        torch.cuda._sleep(20_000_000)
        total = ADAPTER.from_host(array, DEVICE).sum()  # the tensor is gone before the sum has run
        ADAPTER.from_host(np.full(2 * 10**6, np.nan), DEVICE)
        np.testing.assert_allclose(float(total), array.sum(), rtol=1e-9, atol=1e-6)


def test_pinned_results_are_bounded():
    """Results are pinned up to the bound and pageable beyond it, equal either way, and counted back when they die."""
    lane = transfers.lane(torch.device(DEVICE))
    lane.ledger, kept = PinnedLedger(3 * 2**24), lane.ledger
    try:
        array = numbers(2 * 10**6)  # 16 MB, which PyTorch rounds to 2**24 bytes
        tensor = ADAPTER.from_host(array, DEVICE)
        results = [ADAPTER.to_host(tensor) for _ in range(5)]
        assert [torch.from_numpy(result).is_pinned() for result in results] == [True] * 3 + [False] * 2
        for result in results:
            np.testing.assert_array_equal(result, array)
        view = results[0][5:10]
        del results, result
        gc.collect()
        assert lane.ledger.held == 2**24  # the view keeps its array
        np.testing.assert_array_equal(view, array[5:10])
        del view
        gc.collect()
        assert lane.ledger.held == 0
    finally:
        lane.ledger = kept


def test_threads():
    """Eight threads moving arrays of mixed sizes at once, each on a stream of its own, get what they sent."""
    wrong: list[int] = []

    def work(seed: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for turn, size in enumerate((1000, 3 * 10**6, 200_000, 10**6)):
                array = numbers(size, 10 * seed + turn)
                if (ADAPTER.to_host(ADAPTER.from_host(array, DEVICE) * 2) != 2 * array).any():
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_timer_never_waits():
    """A timer says nothing while the device is busy, then its time, once, and its events are used again."""
    timer = ADAPTER.timer(DEVICE)
    assert timer is not None
    assert timer.seconds() is None
    timer.start()
    torch.cuda._sleep(200_000_000)
    timer.stop()
    begin = time.perf_counter()
    first = timer.seconds()
    assert first is None
    assert time.perf_counter() - begin < 0.01
    ADAPTER.synchronize(DEVICE)
    elapsed = timer.seconds()
    assert elapsed is not None
    assert 0.01 < elapsed < 10
    assert timer.seconds() is None
    again = ADAPTER.timer(DEVICE)
    assert again is not None
    again.start()
    again.stop()
    ADAPTER.synchronize(DEVICE)
    assert 0 <= (again.seconds() or 0.0) < elapsed


def test_free_bytes_counts_the_pool():
    """Memory that PyTorch holds but does not use counts as free, and can be given back."""
    torch.cuda.empty_cache()
    before = ADAPTER.free_bytes(DEVICE)
    block = torch.empty(2**28, dtype=torch.uint8, device=DEVICE)
    during = ADAPTER.free_bytes(DEVICE)
    del block
    after = ADAPTER.free_bytes(DEVICE)
    assert before is not None
    assert during is not None
    assert after is not None
    assert before - during >= 2**28 - 2**21
    assert abs(after - before) < 2**26
    ADAPTER.release_memory(DEVICE)
    assert torch.cuda.memory_reserved(DEVICE) < 2**28


def test_out_of_memory_is_recognised():
    """What the GPU raises when asked for too much."""
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50, dtype=torch.uint8, device=DEVICE)
    assert ADAPTER.is_out_of_memory(caught.value)
