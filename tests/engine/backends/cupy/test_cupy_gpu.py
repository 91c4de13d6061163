"""CuPy on a GPU: moves, timers, memory, and non-finite samples."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

from hpfracc.engine.backends.cupy.adapter import ADAPTER  # noqa: E402

if not ADAPTER.devices():
    pytest.skip("CuPy sees no CUDA device", allow_module_level=True)

from hpfracc.engine.backends.cupy import transfers  # noqa: E402
from hpfracc.engine.backends.cupy.kernels.causal_convolution import KERNELS  # noqa: E402
from hpfracc.engine.memory.staging import SMALL_BYTES, PinnedLedger  # noqa: E402
from hpfracc.engine.primitives import PRIMITIVES  # noqa: E402
from hpfracc.engine.primitives.base import INEXACT, INTEGERS  # noqa: E402
from tests.helpers.contracts import reference  # noqa: E402

pytestmark = pytest.mark.gpu
DEVICE = "cuda:0"
CONTRACT = PRIMITIVES["causal_convolution"]


def numbers(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size)


@pytest.mark.parametrize("size", [0, 1, 1000, SMALL_BYTES // 8 - 1, SMALL_BYTES // 8, 2**21 + 1, 10**7])
def test_round_trip(size: int):
    """Whatever the size, the bytes that go in come out, in a writable array."""
    array = numbers(size)
    placed = ADAPTER.from_host(array, DEVICE)
    array_before = array.copy()
    array[:] = 0
    back = ADAPTER.to_host(placed)
    assert back.flags.writeable
    np.testing.assert_array_equal(back, array_before)


@pytest.mark.parametrize("dtype", sorted(INEXACT | INTEGERS))
def test_dtypes_and_layouts(dtype: str):
    """Every dtype goes both ways; read-only, strided, backward and axis-free arrays too."""
    grid = (np.arange(24) % 100).astype(dtype).reshape(4, 6)
    locked = grid.copy()
    locked.flags.writeable = False
    large = (np.arange(2**21) % 100).astype(dtype).reshape(2**10, 2**11)
    for array in (grid, locked, grid.T, grid[::2, 1::3], grid[::-1], grid[:0], grid[0, 0, ...], large, large.T):
        back = ADAPTER.to_host(ADAPTER.from_host(array, DEVICE))
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)


def test_pinned_results_are_bounded(monkeypatch: pytest.MonkeyPatch):
    """Results are pinned up to the bound and pageable beyond it, and counted back when the last view dies."""
    ledger = PinnedLedger(2 * 16_000_000)
    monkeypatch.setattr(transfers, "pinned_ledger", lambda library: ledger)
    array = numbers(2 * 10**6)
    placed = ADAPTER.from_host(array, DEVICE)
    results = [ADAPTER.to_host(placed) for _ in range(3)]
    assert ledger.held == 32_000_000
    for result in results:
        np.testing.assert_array_equal(result, array)
    view = results[0][5:10]
    del results, result
    gc.collect()
    assert ledger.held == 16_000_000
    del view
    gc.collect()
    assert ledger.held == 0


def test_threads():
    """Threads moving arrays of mixed sizes at once, each on a stream of its own, get what they sent."""
    wrong: list[int] = []

    def work(seed: int) -> None:
        with cupy.cuda.Stream(non_blocking=True):
            for turn, size in enumerate((1000, 3 * 10**6, 200_000)):
                array = numbers(size, 10 * seed + turn)
                if (ADAPTER.to_host(ADAPTER.from_host(array, DEVICE) * 2) != 2 * array).any():
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("algorithm", sorted(KERNELS))
@pytest.mark.parametrize("taps", [1, 7, 600])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_non_finite_samples_stay_causal(algorithm: str, taps: int, dtype: str):
    """Points whose sum involves a bad sample are not finite, all others are right."""
    rng = np.random.default_rng(2)
    weights, signal = rng.standard_normal(taps).astype(dtype), rng.standard_normal((4, 600)).astype(dtype)
    signal[1, 11], signal[2, 3], signal[2, 250], signal[3, -1] = np.nan, np.inf, -np.inf, np.nan
    answer = reference(CONTRACT, weights, signal)
    result = cupy.asnumpy(KERNELS[algorithm].run(cupy.asarray(weights), cupy.asarray(signal)))
    finite = np.isfinite(answer)
    assert (np.isfinite(result) == finite).all()
    allowed = 8 * np.finfo(dtype).eps * np.abs(weights).sum() * np.abs(signal[np.isfinite(signal)]).max()
    np.testing.assert_allclose(result[finite], answer[finite], rtol=0, atol=allowed)


def test_timer_and_memory():
    """Timers resolve once the device is done; free memory is known and can be given back; too much is recognised."""
    timer = ADAPTER.timer(DEVICE)
    assert timer is not None
    timer.start()
    cupy.fft.fft(cupy.ones(10**6))
    timer.stop()
    ADAPTER.synchronize(DEVICE)
    elapsed = timer.seconds()
    assert elapsed is not None
    assert 0 < elapsed < 60
    free = ADAPTER.free_bytes(DEVICE)
    assert free is not None
    assert free > 0
    ADAPTER.release_memory(DEVICE)
    assert cupy.fft.config.get_plan_cache().get_curr_size() == 0
    with pytest.raises(MemoryError) as caught:
        cupy.empty(2**50, np.uint8)
    assert ADAPTER.is_out_of_memory(caught.value)
