"""A process with a limit of its own: stacks of threads count against it in full, so few are started."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tests.helpers.source import REPOSITORY

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the process as Linux does"),
]

#: A process that sees sixteen cores; ``limit(more)`` bounds its memory to ``more`` bytes above the current use.
PROLOGUE = r"""
import os, re, resource
os.sched_getaffinity = lambda process: set(range(16))
import numpy as np
import hpfracc as hf
from hpfracc.engine.memory.budget import get_budget
from hpfracc.engine.memory.host import thread_bytes
from hpfracc.engine import workers

def data():
    return int(re.search(r"VmData:\s+(\d+)", open("/proc/self/status").read())[1]) * 1024

def limit(more):
    bound = data() + more
    resource.setrlimit(resource.RLIMIT_DATA, (bound, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    get_budget().invalidate()
    return bound
"""


def run_limited(body: str) -> str:
    place = f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}"
    done = subprocess.run(
        [sys.executable, "-c", PROLOGUE + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, "PYTHONPATH": place, "HPFRACC_WISDOM": "off", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_thread_takes_its_stack_where_the_process_is_limited() -> None:
    """Nothing without a limit; the whole stack, as the system counts it, with one."""
    out = run_limited(
        """
        import threading
        print(thread_bytes())
        limit(100 << 20)
        before, event = data(), threading.Event()
        threads = [threading.Thread(target=event.wait) for _ in range(4)]
        [thread.start() for thread in threads]
        print(thread_bytes(), (data() - before) / 4)
        event.set()
        """
    )
    unlimited, limited, counted = map(float, out.split())
    assert unlimited == 0.0
    assert limited == pytest.approx(counted, rel=0.15)


def test_arms_with_more_threads_than_there_is_room_for_are_refused() -> None:
    """With 48 MiB no sixteen stacks of 8 MiB, and no library that takes 90 once imported."""
    out = run_limited(
        """
        def refused():
            decision = hf.explain("causal_convolution", shape=(1 << 16,)).decision
            found = {row.arm: row.refused or "" for row in decision.candidates}
            return ["to start" in found[name] for name in ("numpy:fft@cpu", "numpy:fft@cpux16", "numba:direct@cpu")]
        print(*refused())
        limit(48 << 20)
        print(*refused())
        """
    )
    assert out.splitlines() == ["False False False", "False True True"]


def test_every_block_is_done_once_by_the_threads_that_can_be_started() -> None:
    """Sixteen are asked for and two or three fit: no block is done twice, none is lost, the limit holds."""
    out = run_limited(
        """
        import collections, threading, time
        bound = limit(24 << 20)
        counts, lock = collections.Counter(), threading.Lock()
        def work(block):
            with lock:
                counts[block] += 1
            time.sleep(0.001)
            return block * block
        for _ in range(3):
            assert workers.run_blocks(work, range(40), 16) == [n * n for n in range(40)]
        print(set(counts.values()), len(counts), workers.started_workers(), data() <= bound)
        """
    )
    times, blocks, started, within = out.split()
    assert (times, blocks, within) == ("{3}", "40", "True")
    assert 0 < int(started) < 15
