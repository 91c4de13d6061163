"""What may go wrong while memory is short: callbacks, threads, memory itself; nothing hangs, nothing is corrupted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import memory
from hpfracc.engine.execution.operation import get_operation
from hpfracc.engine.execution.pressure.ladder import RUNGS, ladder
from hpfracc.engine.memory.buffers import BufferPool
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.errors import InvalidInputError


def run_threads(*work: Callable[[], Any]) -> None:
    """All at once; a failure, or one that does not come back, fails the test."""
    errors: list[BaseException] = []

    def guarded(each: Callable[[], Any]) -> None:
        try:
            each()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(each,), daemon=True) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300.0)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []


# Callbacks.


def test_a_callback_may_compute() -> None:
    """An engine call in pieces, inside a clean-up, gives its result; the clean-up it asks for itself is skipped."""
    found = []

    def compute() -> int:
        with memory.limit("cpu", "1MiB"):
            found.append(hf.fft(np.ones((400, 400)), kind="rfft", backend="numpy"))
        found.append(ladder.climb())
        return 1

    ladder.register(compute)
    report = ladder.climb(highest="own caches")
    assert report.rungs[0].released >= 1 and not report.rungs[0].error
    assert found[0].shape == (400, 201) and found[1].skipped


def test_a_callback_may_change_the_list_of_callbacks() -> None:
    """One that takes itself away and puts another in its place is called once, the other the next time."""
    calls = []

    def second() -> None:
        calls.append("second")

    def first() -> None:
        calls.append("first")
        ladder.unregister(first)
        ladder.register(second)

    ladder.register(first)
    ladder.climb(highest="own caches")
    ladder.climb(highest="own caches")
    assert calls == ["first", "second"]


def test_an_interrupt_inside_a_clean_up_leaves_it_usable() -> None:
    """Ctrl-C in a callback comes through, and the next clean-up, from any thread, is not locked out."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    ladder.register(interrupt)
    with pytest.raises(KeyboardInterrupt):
        ladder.climb()
    ladder.unregister(interrupt)
    reports: list[Any] = []
    run_threads(lambda: reports.append(ladder.climb(highest="garbage")))
    assert not reports[0].skipped and len(reports[0].rungs) == 2


# Memory that runs out inside a clean-up.


@pytest.mark.parametrize("rung", RUNGS)
def test_memory_runs_out_on_any_rung(rung: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rung is reported with its error, and the ones above it are climbed."""

    def fail(device: str) -> None:
        raise MemoryError("not even for this")

    monkeypatch.setattr(ladder, f"_{rung.replace(' ', '_')}".lower(), fail, raising=False)
    report = ladder.climb("cuda:0", highest=RUNGS[-1])
    assert [each.error for each in report.rungs if each.name == rung] == ["MemoryError: not even for this"]
    assert report.rungs[-1].name == RUNGS[-1]


# The pool.


def test_a_buffer_released_twice_from_two_threads_is_taken_once() -> None:
    """Of threads that give the same buffer back, one succeeds; it is lent to one owner afterwards."""
    pool = BufferPool()
    for _ in range(50):
        buffer, taken = pool.allocate(1000), []

        def give(buffer: Any = buffer, taken: list[int] = taken) -> None:
            try:
                pool.release(buffer)
                taken.append(1)
            except InvalidInputError:
                pass

        run_threads(*[give] * 4)
        assert taken == [1]
        del give, buffer
        one, two = pool.allocate(1000), pool.allocate(1000)
        assert not np.shares_memory(one, two)
        pool.release(one)
        pool.release(two)


# Many jobs, larger than their budget.

BUDGET = 2 * 2**20


def _job(random: np.random.Generator, number: int) -> Callable[[], Any]:
    """A call of any operation, on any backend, of any size up to three times the budget."""
    names = sorted(PRIMITIVES)
    size = int(10 ** random.uniform(3, np.log10(3 * BUDGET / 8)))
    rows = max(1, int(size // 2 ** random.integers(3, 14)))
    n = max(2, size // rows)
    dtype = random.choice(["float32", "float64", "complex128"])
    backend = random.choice(["numpy", "torch", ""]) or None
    name = names[number % len(names)]
    call = get_operation(name)
    if name in ("history_sum", "mittag_leffler", "stencil_relax"):
        n = min(n, 128)
    if name == "random":
        n = min(n, 4096)  # its rows are cut, and the numbers of one row are not
    x = np.ones((max(1, size // n), n), dtype)
    real = x.real.astype(np.float64)
    steps = np.full(n, 0.1) if number % 2 else np.array(0.1)
    side = max(2, int((size / 2) ** 0.5))
    maps = np.full((max(1, size // 144), 12, 12), np.inf)
    maps[:, 0, 0] = 0.0
    jobs: dict[str, Callable[[], Any]] = {
        "causal_convolution": lambda: call(x[0, :300], x, backend=backend),
        "fft": lambda: call(x, backend=backend),
        "elementwise": lambda: hf.elementwise("x*x + sin(x)", x=x, backend=backend),
        "reduction": lambda: call(x, kind="norm", axis=number % 2, backend=backend),
        "matmul": lambda: call(np.ones((side, side), dtype), np.ones((side, side), dtype), backend=backend),
        "bitwise_xor": lambda: call(real.astype(np.int64), real.astype(np.int64), backend=backend),
        "history_sum": lambda: call(np.arange(1.0, n + 1), x, np.array(-0.5), backend=backend),
        "exponential_recurrence": lambda: call(np.ones(9), np.ones(9), steps, x, np.zeros(9), backend=backend),
        "chirp_transform": lambda: call(x, np.array([0.0, 1e-3, 0.0]), backend=backend),
        "toeplitz_apply": lambda: call(x[0, :200], x, backend=backend),
        "tridiagonal_solve": lambda: call(x, 4.0 * x, x, x, backend=backend),
        "spectral_multiply": lambda: call(np.ones(n), x, backend=backend),
        "stencil_relax": lambda: call(np.ones((12, 12)), maps, backend="numpy"),
        "random": lambda: call(np.arange(max(1, size // n)), np.array([1, 2, 3, 4]), n=n, backend=backend),
        "mittag_leffler": lambda: call(-real[: max(1, 20_000 // n)], alpha=0.7, backend=backend),
    }
    return jobs[name]


@pytest.mark.parametrize("count", [91, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
def test_no_job_runs_out_of_memory(count: int) -> None:
    """Up to three times the budget, of every operation: all come back, and some were cut."""
    random = np.random.default_rng(count)
    cut = 0
    with memory.limit("cpu", BUDGET):
        for number in range(count):
            result = _job(random, number)()
            assert np.isfinite(np.asarray(result)).all()
            cut += getattr(hf.last_decision(), "chunks", 1) > 1
    assert cut > count // 10
