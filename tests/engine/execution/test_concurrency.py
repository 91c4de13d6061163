"""Threads, forks and our own workers."""

from __future__ import annotations

import asyncio
import contextvars
import multiprocessing
import threading
import time
from collections.abc import Callable

import jax  # noqa: F401  # imported before the forks below, as in many programs
import numpy as np
import pytest
import torch  # noqa: F401

import hpfracc as hf
from hpfracc._config import current_backend
from hpfracc.engine.execution.decision_log import composite, dry_run
from hpfracc.engine.execution.operation import get_operation
from hpfracc.engine.workers import run_blocks
from tests.helpers.own_operations import double, own_operation

ROUNDS = 40


def test_eight_threads_with_mixed_operations() -> None:
    """Right results throughout, and counters that add up to the calls made."""
    rng = np.random.default_rng(7)
    x = {n: rng.standard_normal(n) for n in (16, 200, 3000)}
    w = {n: rng.standard_normal(n) for n in x}
    a = rng.standard_normal((24, 24))
    expected = {n: np.convolve(x[n], w[n])[:n] for n in x}
    jobs: list[Callable[[], None]] = [
        *(lambda n=n: np.testing.assert_allclose(hf.causal_convolution(w[n], x[n]), expected[n], atol=1e-9) for n in x),
        lambda: np.testing.assert_allclose(hf.matmul(a, a), a @ a, atol=1e-11),
        lambda: np.testing.assert_allclose(hf.fft(x[200]), np.fft.fft(x[200]), atol=1e-11),
        lambda: np.testing.assert_allclose(hf.reduction(x[3000]), x[3000].sum(), atol=1e-10),
        lambda: np.testing.assert_allclose(hf.elementwise("2*x + 1", x=x[200]), 2 * x[200] + 1, atol=1e-14),
    ]
    operations = ["causal_convolution", "causal_convolution", "causal_convolution", "matmul", "fft", "reduction"]
    operations.append("elementwise")
    counts = [dict.fromkeys(operations, 0) for _ in range(8)]
    errors: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            for step in range(thread, thread + ROUNDS * len(jobs)):
                job = step % len(jobs)
                jobs[job]()
                counts[thread][operations[job]] += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]
    for name in set(operations):
        assert get_operation(name).calls() == sum(count[name] for count in counts), name


def _child(queue: multiprocessing.Queue[str]) -> None:
    x = np.linspace(0.0, 1.0, 500)
    for row in hf.explain(hf.causal_convolution, x, x).decision.candidates:
        # Libraries with threads of their own were imported by the parent: nothing sends work there unasked.
        assert row.backend not in ("torch", "jax") or "forked" in str(row.refused), row
    for _ in range(20):
        np.testing.assert_allclose(hf.causal_convolution(x, x), np.convolve(x, x)[:500], atol=1e-10)
    queue.put("done")


def test_fork_in_the_middle_of_learning() -> None:
    """A child forked while other threads learn goes on by itself: no lock of the parent's holds it."""
    stop = threading.Event()

    def learn() -> None:
        rng = np.random.default_rng()
        while not stop.is_set():
            n = int(rng.integers(8, 400))
            hf.causal_convolution(np.ones(n), np.ones(n))

    threads = [threading.Thread(target=learn) for _ in range(3)]
    for thread in threads:
        thread.start()
    context = multiprocessing.get_context("fork")
    try:
        for _ in range(4):
            queue: multiprocessing.Queue[str] = context.Queue()
            child = context.Process(target=_child, args=(queue,))
            child.start()
            assert queue.get(timeout=500) == "done"
            child.join(timeout=500)
            assert child.exitcode == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_use_backend_reaches_our_own_workers() -> None:
    """Blocks that run in the engine's threads see the caller's choice; other threads do not."""
    with hf.use_backend("numpy"):
        seen = run_blocks(lambda _: (threading.get_ident(), current_backend()), range(8), workers=4)
    assert {backend for _, backend in seen} == {"numpy"}


def test_first_error_of_a_block_is_raised_after_all_have_ended() -> None:
    """No block is left running behind the caller's back."""
    ended: list[int] = []

    def block(number: int) -> None:
        if number == 1:
            raise ValueError("block 1")
        time.sleep(0.01)
        ended.append(number)

    with pytest.raises(ValueError, match="block 1"):
        run_blocks(block, range(5), workers=3)
    assert sorted(ended) == [0, 2, 3, 4]


def test_decisions_belong_to_their_thread() -> None:
    """``last_decision`` tells what this thread did last."""
    with own_operation(double) as op:
        hf.matmul(np.eye(2), np.eye(2))
        thread = threading.Thread(target=lambda: op(np.ones(3)))
        thread.start()
        thread.join()
        decision = hf.last_decision()
        assert decision is not None
        assert decision.operation == "matmul"


def decided() -> str:
    """The operation of the last decision."""
    decision = hf.last_decision()
    assert decision is not None
    return decision.operation


def test_decisions_belong_to_their_task() -> None:
    """Tasks that take turns in one thread each see what they did themselves, nested blocks and all."""

    async def work(call: Callable[[], object], expected: str) -> None:
        for _ in range(5):
            call()
            await asyncio.sleep(0)
            assert decided() == expected

    async def both() -> None:
        x = np.ones(32)
        tasks = (
            work(lambda: hf.matmul(np.eye(2), np.eye(2)), "matmul"),
            work(lambda: hf.causal_convolution(x, x), "causal_convolution"),
            work(lambda: hf.caputo(np.arange(32.0), step=1.0, alpha=0.5), "causal_convolution"),
        )
        with composite():
            await asyncio.gather(*tasks)

    asyncio.run(both())


def test_decisions_of_helpers_inside_a_block_do_not_mix() -> None:
    """Threads that run in copies of the context add to one list, and each keeps its own last decision."""
    with composite() as decisions:
        first, second = contextvars.copy_context(), contextvars.copy_context()
        first.run(hf.matmul, np.eye(2), np.eye(2))
        second.run(hf.fft, np.ones(8))
        assert (first.run(decided), second.run(decided)) == ("matmul", "fft")
    assert [decision.operation for decision in decisions] == ["matmul", "fft"]


def test_a_block_that_never_ended_is_left_by_the_next_call() -> None:
    """An interrupt may come just before the end of a block runs: later calls must not stay in it."""
    hf.matmul(np.eye(2), np.eye(2))
    block = dry_run()
    decisions = block.__enter__()
    del block
    assert hf.matmul(2 * np.eye(2), np.eye(2))[0, 0] == 2.0
    with composite() as inside:
        assert hf.matmul(3 * np.eye(2), np.eye(2))[0, 0] == 3.0
    assert decisions == [] and len(inside) == 1
    assert decided() == "matmul"
