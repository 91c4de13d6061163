"""Blocks dealt to the engine's threads: none is lost, and none still runs when the caller goes on."""

from __future__ import annotations

import signal
import sys
import threading
import time

import pytest

from hpfracc.engine import workers
from hpfracc.engine.workers import run_blocks


class _FullPool:
    """As the standard library's where no more threads can be started: what was submitted stays in its queue."""

    def __init__(self) -> None:
        self.left: list[threading.Thread] = []

    def submit(self, function, *arguments):
        # A thread that another caller has left free takes it from the queue.
        self.left.append(threading.Thread(target=function, args=arguments))
        self.left[-1].start()
        raise RuntimeError("can't start new thread")


def test_a_helper_that_joins_although_it_could_not_be_started_is_waited_for(monkeypatch):
    """What the pool could start no thread for may still be taken from its queue, and its blocks are results too."""
    pool = _FullPool()
    monkeypatch.setattr(workers, "_get_pool", lambda size: pool)
    caller = threading.current_thread()

    def work(block: int) -> int:
        time.sleep(0.005 if threading.current_thread() is caller else 0.05)
        return block * block

    assert run_blocks(work, range(4), 2) == [0, 1, 4, 9]
    pool.left[0].join()


@pytest.mark.skipif(sys.platform == "win32", reason="signals go to a thread as POSIX has it")
def test_an_interrupt_waits_for_the_blocks_that_run():
    """They write into the caller's arrays, which are another's when the interrupt has gone through."""
    ended, caller = threading.Event(), threading.current_thread()
    both = threading.Barrier(2)

    def work(block: int) -> None:
        both.wait(10.0)
        if threading.current_thread() is not caller:
            time.sleep(0.1)
            signal.pthread_kill(caller.ident, signal.SIGINT)  # while the caller waits
            time.sleep(0.2)
            ended.set()

    with pytest.raises(KeyboardInterrupt):
        run_blocks(work, range(2), 2)
    assert ended.is_set()


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
