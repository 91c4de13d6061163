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
        print(set(counts.values()), len(counts), workers._started, data() <= bound)
        """
    )
    times, blocks, started, within = out.split()
    assert (times, blocks, within) == ("{3}", "40", "True")
    assert 0 < int(started) < 15
