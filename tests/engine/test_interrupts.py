"""Interrupts at any moment: the next call works, no lock is left held, no thread is left stuck."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.helpers.source import REPOSITORY

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="timers that end in signals are POSIX's")


def interrupt(job: str, times: int, timeout: int) -> dict[str, object]:
    """Run a job of :mod:`tests.helpers.interrupts` in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "tests" / "helpers" / "interrupts.py"), str(times), job],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={
            **os.environ,
            "PYTHONPATH": f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}",
            "HPFRACC_WISDOM": "off",
            "OPENBLAS_NUM_THREADS": "1",
        },
    )
    assert done.returncode == 0, done.stderr[-4000:]
    counts: dict[str, object] = json.loads(done.stdout)
    assert counts["interrupts"] == times
    return counts


@pytest.mark.parametrize(("job", "times"), [("blocks", 800), ("solves", 20)])
def test_the_next_call_works(job: str, times: int) -> None:
    """Of the version before, one of some hundred interrupts left a lock held, and the process hanging."""
    interrupt(job, times, 550)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("job", "times"),
    [
        ("blocks", 5000),
        ("batches", 2000),
        ("operators", 1500),
        ("learning", 1000),
        ("convolutions", 400),
        ("calibrations", 60),
        ("compiling", 40),
        ("solves", 1000),
        ("compiled solves", 1000),
        ("fields", 500),
    ],
)
def test_ten_thousand_interrupts(job: str, times: int) -> None:
    """Over blocks, batches, operators, backends, learning, calibrating, compiling, and solves with their parts."""
    interrupt(job, times, 3500)
