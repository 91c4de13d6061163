"""Blocks dealt to the engine's threads: none is lost, and none still runs when the caller goes on."""

from __future__ import annotations

import queue
import signal
import sys
import threading
import time

import pytest

from hpfracc.engine import workers
from hpfracc.engine.workers import run_blocks, run_items


def test_the_caller_does_all_where_no_thread_can_be_started(monkeypatch):
    """Nothing is left in the queue for a thread that may never come, and every block is done."""

    def refuse(*arguments):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(workers, "_started", 0)
    monkeypatch.setattr(workers, "_tasks", queue.SimpleQueue())
    monkeypatch.setattr(workers, "start_thread", refuse)
    assert run_blocks(lambda block: block * block, range(4), 2) == [0, 1, 4, 9]
    assert run_items(lambda item: item + 1, range(3), 4) == [1, 2, 3]
    assert workers._tasks.empty()


@pytest.mark.skipif(sys.platform == "win32", reason="signals go to a thread as POSIX has it")
def test_an_interrupt_waits_for_the_blocks_that_run(interruptible: None):
    """They write into the caller's arrays, which are another's when the interrupt has gone through."""
    ended, caller = threading.Event(), threading.current_thread()
    both = threading.Barrier(2)

    def work(block: int) -> None:
        both.wait(300.0)
        if threading.current_thread() is not caller:
            time.sleep(0.1)
            signal.pthread_kill(caller.ident, signal.SIGINT)  # while the caller waits
            time.sleep(0.2)
            ended.set()

    with pytest.raises(KeyboardInterrupt):
        run_blocks(work, range(2), 2)
    assert ended.is_set()


@pytest.mark.skipif(sys.platform == "win32", reason="signals go to a thread as POSIX has it")
def test_interrupts_while_the_caller_waits_do_not_end_the_waiting(interruptible: None):
    """Any number of them: running blocks are waited for, blocks that have not started are dropped."""
    ended, caller = threading.Event(), threading.current_thread()
    begun: list[int] = []

    def work(block: int) -> None:
        begun.append(block)
        if threading.current_thread() is caller:
            while len(begun) < 2:
                time.sleep(0.001)
            raise KeyboardInterrupt
        for _ in range(5):
            time.sleep(0.02)
            signal.pthread_kill(caller.ident, signal.SIGINT)
        time.sleep(0.1)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        run_blocks(work, range(50), 2)
    assert ended.is_set() and len(begun) == 2


def test_items_end_with_the_first_error_and_tell_how_many_are_done():
    """Items not started by then are not started; progress is reported in the caller's thread."""
    told: list[tuple[int, int]] = []
    assert run_items(abs, [-1, -2, -3], 2, advance=lambda more: told.append((more, threading.get_ident()))) == [1, 2, 3]
    assert sum(more for more, _ in told) == 3
    assert {ident for _, ident in told} == {threading.get_ident()}
    begun: list[int] = []

    def fail(item: int) -> None:
        begun.append(item)
        raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match="item 0"):
        run_items(fail, range(1000), 2, until_error=True)
    assert len(begun) <= 4


def test_the_first_error_in_order_is_raised_once_all_blocks_have_ended():
    """Whichever thread met it, and with every other block done."""
    done: list[int] = []

    def work(block: int) -> int:
        if block in (2, 5):
            raise ValueError(f"block {block}")
        time.sleep(0.001)
        done.append(block)
        return block

    with pytest.raises(ValueError, match="block 2"):
        run_blocks(work, range(8), 3)
    assert sorted(done) == [0, 1, 3, 4, 6, 7]
