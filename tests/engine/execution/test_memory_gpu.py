"""Memory of a GPU: predicted, limited, shared with others, handed out again; nothing runs out before the caller."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

import hpfracc as hf
from hpfracc import batch, memory
from hpfracc.engine.backends import registry
from hpfracc.engine.execution.pressure.ladder import ladder
from hpfracc.engine.memory.budget import get_budget
from hpfracc.engine.selection.decision import Decision
from hpfracc.errors import InvalidInputError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

RNG = np.random.default_rng(9)


def decision() -> Decision:
    last = hf.last_decision()
    assert isinstance(last, Decision)
    return last


CALLS: dict[str, Any] = {
    "convolution": lambda x: hf.causal_convolution(x.flatten()[: x.shape[1]], x),
    "one long convolution": lambda x: hf.causal_convolution(x.flatten(), x.flatten()),
    "matmul": lambda x: hf.matmul(x, x.T.contiguous()),
    "rfft": lambda x: hf.fft(x, kind="rfft"),
    "fft": lambda x: hf.fft(x),
    "elementwise": lambda x: hf.elementwise("x*y + sin(x)", x=x, y=x),
    "norm": lambda x: hf.reduction(x, kind="norm", axis=0),
    "xor": lambda x: hf.bitwise_xor(x.to(torch.int64), x.to(torch.int64)),
}


@pytest.mark.parametrize("name", CALLS)
def test_predicted_peaks_are_within_15_percent_once_corrected(name: str) -> None:
    """From 1e8 bytes on, of every primitive: what one call took is what the next is expected to take."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    with hf.config(exploration_budget=0.0):
        for rows in (6000, 6600, 7400, 8200, 9000):
            x = torch.rand(rows, 2048, dtype=torch.float64, device="cuda")
            CALLS[name](x)
            torch.cuda.synchronize()
    rows = [row for row in memory.report().forecasts if row.device == "cuda" and row.predicted > 9e7]
    assert rows, "no call left a new highest mark"
    for row in rows:
        assert row.predicted * row.correction == pytest.approx(row.actual, rel=0.15), row


@pytest.mark.parametrize("backend", ["torch", "cupy", "jax"])
def test_a_job_many_times_the_budget(backend: str) -> None:
    """1 GiB through 128 MiB of the GPU: in pieces, and right."""
    if registry.unavailable(backend) is not None:
        pytest.skip(f"{backend} is not here")
    w, x = RNG.standard_normal(4096), RNG.standard_normal((4096, 4096)) * 8
    with memory.limit("cuda:0", "128MiB"):
        found = hf.causal_convolution(w, np.repeat(x, 8, axis=0), backend=backend)
    assert decision().backend == backend
    if decision().device == "cuda:0":
        assert decision().chunks >= 8 and "128 MiB" in decision().reason
    for row in (0, 4095, 20_000, 32_767):
        np.testing.assert_allclose(found[row], np.convolve(w, x[row // 8])[:4096], atol=1e-8)


FILLER = """
import sys, torch
free, total = torch.cuda.mem_get_info()
kept = torch.empty(int(free - 0.05 * total), dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("filled", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(
    int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1,
    reason="leaves little of the GPU's memory to tests in other processes; run this file with --numprocesses 0",
)
def test_a_gpu_that_another_process_has_filled() -> None:
    """95 % are taken: the work is done all the same, elsewhere or in pieces, and the decision says why."""
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    filler = subprocess.Popen([sys.executable, "-c", FILLER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert filler.stdout is not None and filler.stdout.readline().strip() == "filled"
        get_budget().invalidate()
        rows = max(8, int(0.05 * total) // (2**22 * 8 * 4))  # the whole call takes some three times what is free
        x = np.ones((rows, 2**22))
        found = hf.causal_convolution(np.ones(2**22), x)
        np.testing.assert_allclose(found[-1, :: 2**18], np.arange(1.0, 2**22 + 1)[:: 2**18], rtol=1e-9)
        told = [row.refused for row in decision().candidates if row.refused and "cuda:0" in row.refused]
        assert decision().chunks > 1 or any("are free on cuda:0" in why for why in told), decision()
        assert memory.get_memory_monitor(enable_auto_cleanup=False).get_snapshot().usage > 0.9
    finally:
        filler.communicate("")
        get_budget().invalidate()


def test_the_pool_and_the_librarys_own() -> None:
    """Device buffers come back from PyTorch's allocator; one owner, zeros unless asked, no release twice."""
    pool = memory.get_memory_pool(max_bytes="64MiB")
    for _ in range(5):
        buffer = pool.allocate((1000, 1000), "float32", device="cuda:0", library="torch")
        assert buffer.is_cuda and buffer.dtype == torch.float32 and not buffer.any()
        buffer.fill_(3.0)
        pool.release(buffer)
        with pytest.raises(InvalidInputError):
            pool.release(buffer)
        del buffer
    assert pool.get_stats().hit_rate >= 0.8
    host = pool.allocate((1000, 1000))
    assert torch.from_numpy(host).is_pinned() and pool.get_stats().pinned


def test_spilled_arrays_come_back() -> None:
    """Under pressure to the host, by the ladder too; the numbers are the same."""
    x = torch.rand(4_000_000, dtype=torch.float64, device="cuda")
    copy = x.clone()
    held = memory.Spillable(x)
    del x
    report = ladder.climb("cuda:0")
    assert held.spilled and any(rung.released >= 32_000_000 for rung in report.rungs)
    back = held.get()
    assert back.is_cuda and torch.equal(back, copy) and not held.spilled


def test_a_batch_on_the_gpu() -> None:
    """Tensors are stacked there; host arrays travel through page-locked buffers; both are right."""
    w = torch.rand(512, dtype=torch.float64, device="cuda")
    rows = list(torch.rand(700, 512, dtype=torch.float64, device="cuda"))
    found = batch.run(hf.causal_convolution, [(w, row) for row in rows])
    assert found[0].is_cuda
    torch.testing.assert_close(found[321], hf.causal_convolution(w, rows[321]), rtol=1e-10, atol=1e-10)
    host = [row.cpu().numpy() for row in rows]
    again = batch.run(hf.causal_convolution, [(w.cpu().numpy(), row) for row in host], backend="torch")
    np.testing.assert_allclose(again[321], found[321].cpu().numpy(), atol=1e-10)


def test_the_monitor_watches_the_gpu() -> None:
    """What tensors hold, what is free, and what a clean-up gives back to the driver."""
    monitor = memory.get_memory_monitor(0)
    x = torch.ones(30_000_000, dtype=torch.float64, device="cuda")
    stats = monitor.get_stats()
    assert monitor.device == "cuda:0" and stats.current_allocated_mb >= 228 and stats.total_mb > 1000
    del x
    free = torch.cuda.mem_get_info()[0]
    report = monitor.cleanup_memory()
    assert torch.cuda.mem_get_info()[0] >= free and report.rungs[-1].name == "library caches"
    driver = memory.report().devices["cuda:0"]
    assert driver is None or driver.total >= driver.free > 0
