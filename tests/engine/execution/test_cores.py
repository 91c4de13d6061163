"""Deterministic runs on one core and on several: the same bits on equal numbers, the same numbers up to rounding."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.processes import run_python

CODE = """
import os, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])
import numpy as np
import hpfracc as hf
random = np.random.default_rng(1)
rows, matrix = random.standard_normal((40, 3000)), random.standard_normal((300, 300))
with hf.config(deterministic=True, wisdom="off"):
    found = {
        "convolution": hf.causal_convolution(0.9 ** np.arange(3000), rows),
        "matmul": hf.matmul(matrix, matrix),
        "fft": np.abs(hf.fft(rows)),
        "sum": np.asarray(hf.reduction(rows, kind="sum")),
        "caputo": hf.caputo(rows, step=0.01, alpha=0.4),
        "fbm": hf.fbm(500, 0.3, size=20, rng=1),
        "paths": hf.solve_fsde(lambda t, y: -y, 0.5, (0, 1), 1.0, step=0.01, paths=50, rng=1).y,
    }
np.savez(sys.argv[2], **found)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two cores to choose from"
)
def test_deterministic_runs_on_one_and_two_cores(tmp_path: Path) -> None:
    """Another number of cores divides sums differently; nothing else changes."""
    results = []
    for number, cores in enumerate((1, 2, 2)):
        path = tmp_path / f"{number}.npz"
        run_python(CODE, cores, path)
        results.append(dict(np.load(path)))
    one, two, again = results
    for name, values in two.items():
        np.testing.assert_array_equal(values, again[name], err_msg=name)
        np.testing.assert_allclose(values, one[name], rtol=1e-10, atol=1e-10, err_msg=name)
