"""Predictions are kept beside measured peaks, and corrected by them from the first one on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hpfracc.engine.selection.call_memory import Forecasts

KIND = ("fft", "torch:default", "cuda", "float64 rfft")
SIZE = (4, 20)
MIB = 2**20


@pytest.mark.parametrize("ratio", [0.6, 1.0, 1.9])
def test_the_first_peak_corrects_the_next_prediction(ratio: float) -> None:
    """Both ways for this size, and only upwards for others."""
    seen = Forecasts()
    assert seen.correction(KIND, SIZE) == 1.0
    seen.observe(KIND, SIZE, 100 * MIB, int(ratio * 100 * MIB))
    assert seen.correction(KIND, SIZE) == pytest.approx(ratio)
    assert seen.correction(KIND, (5, 20)) == pytest.approx(max(1.0, ratio))


def test_the_error_is_reported_with_and_without_the_correction() -> None:
    """A model that is always off by a quarter is right once it is corrected, and the row has both."""
    seen = Forecasts()
    for _ in range(9):
        seen.observe(KIND, SIZE, 100 * MIB, 125 * MIB)
    (row,) = seen.rows()
    assert (row.operation, row.kernel, row.samples) == ("fft", "torch:default", 9)
    assert row.error == pytest.approx(0.2)
    assert row.corrected_error == pytest.approx(0.0)
    assert row.to_dict()["correction"] == pytest.approx(1.25)


SCRIPT = """
import numpy as np
import hpfracc as hf
from hpfracc import memory

with hf.use_backend("numpy"):
    for n in (500_000, 550_000, 600_000):
        for _ in range(2):
            hf.causal_convolution(np.ones(n), np.ones((16, n)))
row = next(row for row in memory.report().forecasts if row.operation == "causal_convolution")
print(row.samples, row.predicted, row.actual, row.correction)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the process's high-water mark is read from /proc")
def test_a_real_call_is_predicted_within_a_quarter_after_the_first() -> None:
    """Larger and larger calls in a fresh process: each sets a new high-water mark.

    Arrays are mapped one by one. From a heap that keeps what was freed, they would raise no mark, and whether it keeps
    it depends on the C library and on what was imported before.
    """
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"}
    environment.pop("LD_PRELOAD", None)  # another allocator, perhaps
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=600, env=environment
    )
    samples, predicted, actual, correction = map(float, done.stdout.split())
    assert samples >= 1
    assert 0.5 < predicted / actual < 2.0
    assert predicted * correction == pytest.approx(actual, rel=0.25)
