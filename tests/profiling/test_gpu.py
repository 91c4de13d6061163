"""Device times on a real GPU: by CUDA's own events, and copies that add up to the bytes that were moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.profiling import Profiler, get_profiler
from hpfracc.profiling.analysis import calibrate

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)


@pytest.fixture
def operand() -> Any:
    return torch.randn(8192, 8192, device="cuda", dtype=torch.float32)


def long_kernel(a: Any) -> Any:
    for _ in range(6):
        a = (a @ a) * 1e-3
    return a


def test_device_time_is_that_of_events_by_hand(operand: Any):
    """A long kernel and a short host call after it: the device's time is within 3 %, and the host's spans are short."""
    long_kernel(operand)
    torch.cuda.synchronize()
    profiler = Profiler()
    with profiler.profile("first", device="gpu"):
        long_kernel(operand)
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with profiler.profile("kernel", device="gpu"):
        begin.record()
        long_kernel(operand)
        end.record()
    with profiler.profile("host"):
        sum(range(100))
    torch.cuda.synchronize()
    by_hand = begin.elapsed_time(end) / 1e3
    _, kernel, host = profiler.get_entries()
    assert by_hand > 0.02
    assert kernel.device_duration == pytest.approx(by_hand, rel=0.03)
    assert kernel.device.timing == "device"
    assert kernel.duration < 0.2 * by_hand
    assert host.duration < 0.2 * by_hand
    # The device began when it was asked to, to within a fraction of a millisecond.
    assert kernel.device.start == pytest.approx(kernel.start, abs=5e5)
    busy = profiler.get_breakdown()["devices"]["cuda:0"]
    assert busy["busy_ns"] >= kernel.device.duration


def test_streams_of_the_users_own(operand: Any):
    """Marks go to the current stream, and work on two of them at once counts once."""
    profiler = Profiler()
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    for number, stream in enumerate(streams):
        with torch.cuda.stream(stream), profiler.profile(f"stream {number}", device="gpu"):
            long_kernel(operand)
    torch.cuda.synchronize()
    entries = profiler.get_entries()
    total = sum(entry.device.duration for entry in entries)
    busy = profiler.get_breakdown()["devices"]["cuda:0"]["busy_ns"]
    assert max(entry.device.duration for entry in entries) <= busy <= total


def test_copies_add_up_to_the_bytes_moved():
    """Host arrays through the GPU: each way is a span with its bytes, and between them is one for the kernel."""
    signal = np.random.default_rng(0).standard_normal(2_000_000)
    profiler = get_profiler()
    result = hf.causal_convolution(signal, signal, backend="torch")
    decision = hf.last_decision()
    if decision.device == "cpu":
        pytest.skip(f"the engine kept it on the host: {decision.reason}")
    moved = [span for span in profiler.get_entries() if span.kind == "transfer"]
    assert sum(span.size for span in moved) == 2 * signal.nbytes + result.nbytes
    assert profiler.get_breakdown()["moved_bytes"] == 3 * signal.nbytes
    assert {span.name for span in moved} == {"host->cuda:0", "cuda:0->host"}
    (kernel,) = [span for span in profiler.get_entries() if span.kind == "kernel"]
    assert kernel.device is not None and kernel.device.device == "cuda:0"


def test_an_engine_call_on_the_gpu_is_timed_by_the_gpu():
    """Tensors that live there: the call's span carries the device's time."""
    signal = torch.randn(64, 4096 * 16, device="cuda", dtype=torch.float64)
    weights = torch.randn(4096 * 16, device="cuda", dtype=torch.float64)
    hf.causal_convolution(weights, signal, backend="torch")
    torch.cuda.synchronize()
    profiler = get_profiler()
    hf.causal_convolution(weights, signal, backend="torch")
    (call,) = [span for span in profiler.get_entries() if span.kind == "call"]
    assert call.device is not None and call.device.device == "cuda:0"
    assert call.device.duration or call.device.at_most


def test_memory_of_the_allocator():
    """Before, after, and the peak where this span set it."""
    torch.cuda.empty_cache()
    profiler = Profiler(memory="device")
    with profiler.profile("allocate", device="gpu"):
        block = torch.empty(torch.cuda.max_memory_allocated() + 2**26, dtype=torch.uint8, device="cuda")
    (entry,) = profiler.get_entries()
    assert entry.memory[0] == "cuda:0"
    assert entry.memory[2] - entry.memory[1] >= block.nbytes
    assert entry.memory[3] is not None and entry.memory[3] >= entry.memory[2]


def test_cupy_has_its_own_clock():
    """Its events go to its own stream."""
    cupy = pytest.importorskip("cupy")
    profiler = Profiler()
    x = cupy.random.standard_normal((4096, 4096))
    x @ x
    with profiler.profile("kernel", device="cupy:cuda:0"):
        for _ in range(5):
            x @ x
    (entry,) = profiler.get_entries()
    assert entry.device.timing == "device"
    assert entry.device_duration > entry.duration


@pytest.mark.bench
def test_a_span_with_events_is_cheap():
    """Below 12 us, marks, reading and all."""
    torch.zeros(1, device="cuda")
    assert sum(calibrate("gpu", rounds=40, spans=100)) < 12_000
