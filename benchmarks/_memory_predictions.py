"""Predicted against measured memory: each kernel's model before the first call, and corrected by a smaller call."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from _common import print_table, write_json
from _memory_cases import MemoryCase, cases, fresh, held_out, more_cases

from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.memory.buffers import host_buffers
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.selection.call_memory import MIN_BYTES, Forecasts, modelled_bytes
from hpfracc.engine.workers import available_cores
from hpfracc.engine.workload import Bucket

MIB = 2**20
#: Steps beyond which an algorithm whose work grows quadratically is left out: it would never be chosen there.
MAX_WORK = {"direct": 2e10, "relax": 6e9}
#: Of the sample of calls.
SEED = 20261117
HEAD = ("kernel", "call", "operands", "predicted MiB", "peak MiB", "model", "corrected")
#: Size of the call whose peak corrects the prediction, as a share of the call that is predicted.
SMALLER = 0.8


#: A call, the same with smaller operands, and the arm that runs both.
Row = tuple[MemoryCase, MemoryCase, Arm]


def status(name: str) -> int:
    """A line of the process's own status, in bytes."""
    found = re.search(rf"^{name}:\s+(\d+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def arms(case: MemoryCase, backend: str, device: str, threads: bool) -> Iterator[Arm]:
    """Those of a backend that serve a call in reasonable time; with ``threads`` those of several workers, too."""
    primitive = PRIMITIVES[case.name]
    call = primitive.describe(*case.arrays(), **case.params)
    for spec in registry.specs(case.name, backend):
        if call.dtype not in spec.dtypes or (spec.refuses is not None and spec.refuses(call)):
            continue
        if primitive.work(call, spec.algorithm) <= MAX_WORK.get(spec.algorithm, float("inf")):
            yield Arm(backend, spec, device)
            if threads and spec.threads and device == "cpu":
                yield Arm(backend, spec, device, max(2, available_cores()))


#: Sets of shapes: all calls of each, and what the name of its file ends in.
SETS: dict[str, tuple[Callable[[int], list[MemoryCase]], str]] = {
    "seen": (lambda size: [*cases(size), *more_cases(size)], ""),
    "held-out": (held_out, "_held_out"),
    "fresh": (fresh, "_fresh"),
}


def every_row(device: str, size: int, which: str, only: str) -> Iterator[Row]:
    """Every call of a set on every arm that serves it."""
    calls = SETS[which][0]
    for backend in backends_of(device):
        for case, smaller in zip(calls(size), calls(int(SMALLER * size)), strict=True):
            for arm in arms(case, backend, device, threads=which == "fresh"):
                if only in f"{backend}:{arm.algorithm} {case.call}":
                    yield case, smaller, arm


def sampled_rows(device: str, size: int, count: int) -> Iterator[Row]:
    """``count`` calls of all sets, each on one arm: in turn one of each backend and primitive, by a fixed seed."""
    draw = random.Random(SEED)
    groups: dict[tuple[str, str], list[tuple[str, MemoryCase, MemoryCase]]] = {}
    for backend in backends_of(device):
        for calls, _ in SETS.values():
            for case, smaller in zip(calls(size), calls(int(SMALLER * size)), strict=True):
                groups.setdefault((backend, case.name), []).append((backend, case, smaller))
    for group in groups.values():
        draw.shuffle(group)
    while count and any(groups.values()):
        for group in groups.values():
            if not group or not count:
                continue
            backend, case, smaller = group.pop()
            found = list(arms(case, backend, device, threads=True))
            if found:
                count -= 1
                yield case, smaller, draw.choice(found)


def backends_of(device: str) -> list[str]:
    """The backends with a memory of their own on this device, of those that are installed."""
    names = ("numpy", "numba", "torch") if device == "cpu" else ("torch", "cupy", "jax")
    return [name for name in names if registry.unavailable(name) is None]


def predictions(device: str, size: int, which: str = "seen", only: str = "", sample: int = 0) -> None:
    """The table of one device: a set of shapes, or a sample of all sets."""
    chosen = sampled_rows(device, size, sample) if sample else every_row(device, size, which, only)
    rows, figures = [], []
    for case, smaller, arm in chosen:
        figure = compare(case, smaller, arm)
        if figure is None:
            continue
        figures.append(figure)
        rows.append(
            (
                figure["kernel"],
                figure["call"],
                figure["operands"],
                f"{figure['predicted'] / MIB:,.0f}",
                f"{figure['actual'] / MIB:,.0f}",
                f"{figure['error']:+.0%}",
                f"{figure['corrected']:+.0%}",
            )
        )
        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    print_table(HEAD, rows)
    good = [row for row in figures if 0.5 <= row["predicted"] / row["actual"] <= 2.0]
    close = [row for row in figures if abs(row["corrected"]) <= 0.15]
    print(
        f"\n{'sample of all sets' if sample else which}: {len(good)} of {len(rows)} within a factor of 2 by the model, "
        f"{len(close)} within 15 % corrected by the peak of a smaller call"
    )
    if not only:
        suffix = "" if sample else SETS[which][1]
        write_json(f"memory_predictions_{device.partition(':')[0]}{suffix}", {"rows": figures})


def compare(case: MemoryCase, smaller: MemoryCase, arm: Arm) -> dict[str, Any] | None:
    """Prediction and peak of a call on an arm, in bytes; None where the peak could not be measured."""
    found, first = measure(case, arm), measure(smaller, arm)
    if found is None or first is None:
        return None
    predicted, actual, bucket = found
    seen = Forecasts()
    seen.observe(("", "", "", ""), first[2], max(first[0], MIN_BYTES), int(first[1] * max(1, MIN_BYTES / first[0])))
    corrected = predicted * seen.correction(("", "", "", ""), bucket)
    return {
        "kernel": f"{arm.backend}:{arm.algorithm}" + (f" x{arm.workers}" if arm.workers > 1 else ""),
        "call": case.call,
        "operands": case.operands,
        "predicted": predicted,
        "actual": actual,
        "error": predicted / actual - 1,
        "corrected": corrected / actual - 1,
    }


def measure(case: MemoryCase, arm: Arm) -> tuple[int, int, Bucket] | None:
    """Prediction, peak and size of one call on one arm."""
    primitive, arrays = PRIMITIVES[case.name], case.arrays()
    call = primitive.describe(*arrays, **case.params)
    adapter, kernel = registry.adapter(arm.backend), registry.kernel(case.name, arm.backend, arm.algorithm)
    operands = [
        adapter.from_host(array.astype(call.dtype) if primitive.casts else array, arm.device) for array in arrays
    ]
    del arrays
    spread = {"workers": arm.workers} if arm.spec.threads and arm.workers > 1 else {}

    def run() -> Any:
        result = kernel.run(*operands, **case.params, **spread)
        adapter.synchronize(arm.device)
        return getattr(result, "block_until_ready", lambda: result)()

    with adapter.scope(call) or contextlib.nullcontext():
        fresh = peak_on_host(run) if arm.on_host else peak_on_gpu(run, arm.backend, arm.device)
    if fresh is None:
        return None
    return modelled_bytes(primitive, call, arm), call.input_bytes + fresh, call.bucket


def peak_on_host(run: Callable[[], Any]) -> int:
    """Resident memory at its highest during a call, above what was there before: the middle one of three.

    In a process of its own, because what earlier calls left in the heap, and in the caches of MKL, changes its peak.
    """
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(theirs, str(_peak_here(run)).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    if not text:
        raise RuntimeError("the process that was to measure a call came to nothing")
    return int(text)


def _peak_here(run: Callable[[], Any]) -> int:
    found = []
    result = run()
    del result
    for _ in range(3):
        host_buffers.clear()  # what an earlier call left for the next is no part of what this one needs
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before = status("VmRSS")
        result = run()
        found.append(status("VmHWM") - before)
        del result
    return sorted(found)[1]


def peak_on_gpu(run: Callable[[], Any], backend: str, device: str) -> int | None:
    """What the library's pool handed out at once, as it counts itself."""
    adapter = registry.adapter(backend)
    result = run()
    del result
    gc.collect()
    if backend == "cupy":
        return cupy_peak(run)
    adapter.synchronize(device)
    adapter.reset_peak(device)
    before = adapter.memory(device)
    result = run()
    adapter.synchronize(device)
    after = adapter.memory(device)
    del result
    return None if before is None or after is None or after[1] <= max(before) else after[1] - before[0]


def cupy_peak(run: Callable[[], Any]) -> int:
    """CuPy's pool keeps no high-water mark, but calls a hook for every block; without plans of earlier transforms."""
    import cupy

    cupy.fft.config.get_plan_cache().clear()

    class Peak(cupy.cuda.MemoryHook):
        name = "peak"
        now = most = 0

        def malloc_postprocess(self, **block: Any) -> None:
            self.now += block["mem_size"]
            self.most = max(self.most, self.now)

        def free_postprocess(self, **block: Any) -> None:
            self.now -= block["mem_size"]

    with Peak() as hook:
        result = run()
    del result
    return hook.most
