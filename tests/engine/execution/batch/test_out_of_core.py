"""Arrays larger than memory: exact to rounding, within the budget, from and to files, in place too."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import hpfracc as hf
from hpfracc import batch
from hpfracc.engine.execution.batch.planning import Job
from hpfracc.engine.memory.budget import get_budget
from hpfracc.errors import DiskFullError, InvalidInputError, OutOfMemoryError, ShapeError
from tests.helpers.processes import run_python
from tests.helpers.source import REPOSITORY
from tests.helpers.thinned import thinned

random = np.random.default_rng(11)
SHAPES = [
    ((1000,), (60_000,), "1MiB"),
    ((20_000,), (60_000,), "1MiB"),
    ((60_000,), (60_000,), "1MiB"),
    ((90_000,), (60_000,), "2MiB"),
    ((1,), (60_000,), "100KiB"),
    ((300,), (50, 1500), "300KiB"),
    ((50,), (3, 4, 2000), "100KiB"),
    ((4, 1, 30), (5, 300), "30KiB"),
]


def chunks() -> int:
    decision = hf.last_decision()
    assert decision is not None
    return decision.chunks


@pytest.fixture(autouse=True)
def numpy_alone() -> Any:
    """No other library is imported or compiled for here: where blocks run is the engine's affair, tested elsewhere."""
    never = {name: ["torch", "jax", "numba", "cupy"] for name in ("causal_convolution", "elementwise")}
    with hf.config(never=never, exploration_budget=0.0):
        yield


@pytest.mark.parametrize(("weights", "signal", "budget"), SHAPES)
@thinned(one_in=2)
def test_a_convolution_in_blocks_is_the_convolution(weights: Any, signal: Any, budget: str) -> None:
    """Few weights, many, more than points; rows; rows of weights: in several blocks, and in place."""
    kind = "float64" if len(signal) == 1 else "complex128"
    w, x = random.standard_normal(weights).astype(kind), random.standard_normal(signal).astype(kind)
    whole = hf.causal_convolution(w, x)
    found = batch.causal_convolution(w, x, budget=budget)
    assert chunks() > 1
    scale = np.abs(w).sum(axis=-1).max() * np.abs(x).max()
    np.testing.assert_allclose(found, whole, rtol=0, atol=1e-14 * scale)
    if whole.shape == x.shape:
        target = x.copy()
        assert batch.causal_convolution(w, target, out=target, budget=budget) is target
        np.testing.assert_allclose(target, whole, rtol=0, atol=1e-14 * scale)


def test_bad_samples_reach_what_they_should_and_no_more() -> None:
    """Across the edges of blocks, as in one piece."""
    w, x = random.standard_normal(500), random.standard_normal(20_000)
    x[[4000, 9999]] = np.nan, np.inf
    found = batch.causal_convolution(w, x, budget="200KiB")
    assert chunks() > 2
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(hf.causal_convolution(w, x)))
    assert not np.isfinite(found[4000:4500]).any() and np.isfinite(found[:4000]).all()


def test_files(tmp_path: Path) -> None:
    """A mapped signal, a mapped result, read-only input left as it was, progress from 0 to all."""
    n = 200_000
    x = np.memmap(tmp_path / "x", np.float64, "w+", shape=(n,))
    x[:] = random.standard_normal(n)
    x.flush()
    given = np.memmap(tmp_path / "x", np.float64, "r")
    out = np.memmap(tmp_path / "y", np.float64, "w+", shape=(n,))
    w = random.standard_normal(700)
    seen: list[tuple[int, int]] = []
    result = batch.causal_convolution(w, given, out=out, budget="1MiB", progress=lambda *now: seen.append(now))
    assert result is out
    np.testing.assert_allclose(np.asarray(out), hf.causal_convolution(w, np.asarray(x)), atol=1e-11)
    assert seen[-1] == (n, n) and len(seen) > 3
    del out, result
    again = np.memmap(tmp_path / "y", np.float64, "r")
    np.testing.assert_allclose(np.asarray(again), hf.causal_convolution(w, np.asarray(x)), atol=1e-11)
    private = np.memmap(tmp_path / "x", np.float64, "c")
    private[:] = 1.0
    batch.elementwise("2*x", x=private, out=private, budget="200KiB")
    assert (np.asarray(private) == 2.0).all()  # whose pages are all there is of it


def test_a_result_may_replace_its_operand() -> None:
    """The operand itself and a view of exactly its elements; the same start with other strides is refused."""
    x = np.arange(1000.0)
    batch.elementwise("2*x", x=x, out=x[:], budget="2KiB")
    np.testing.assert_array_equal(x, 2 * np.arange(1000.0))
    with pytest.raises(InvalidInputError, match="overlaps"):
        batch.elementwise("2*x", x=x[:500], out=x[::2], budget="2KiB")
    back = x[::-1]
    with pytest.raises(InvalidInputError, match="overlaps"):
        batch.elementwise("2*x", x=x, out=back, budget="2KiB")
    batch.elementwise("x/2", x=back, out=x[::-1], budget="2KiB")
    np.testing.assert_array_equal(x, np.arange(1000.0))


@pytest.mark.parametrize(
    ("shapes", "budget"),
    [
        (((100_000,), (100_000,)), "500KiB"),
        (((300, 400), (400,)), "200KiB"),
        (((300, 1), (1, 400)), "200KiB"),
        (((50_000,), ()), "200KiB"),
        (((3, 20, 700), (20, 1)), "100KiB"),
    ],
)
def test_a_formula_in_blocks_is_the_formula(shapes: Any, budget: str) -> None:
    """Whatever broadcasts; and into an operand."""
    x, y = (random.standard_normal(shape) for shape in shapes)
    whole = x * y + np.sin(x)
    found = batch.elementwise("x*y + sin(x)", x=x, y=y, budget=budget)
    assert chunks() > 1
    np.testing.assert_allclose(found, whole, rtol=1e-14, atol=1e-14)
    if x.shape == whole.shape:
        target = x.copy()
        batch.elementwise("x*y + sin(x)", x=target, y=y, out=target, budget=budget)
        np.testing.assert_allclose(target, whole, rtol=1e-14, atol=1e-14)


def test_mistakes_are_refused(tmp_path: Path) -> None:
    """Where the result cannot go, what is no host array, a budget that holds no block, an overlap."""
    w, x = np.ones(3), np.ones(1000)
    with pytest.raises(ShapeError, match="out has shape"):
        batch.causal_convolution(w, x, out=np.empty(999))
    with pytest.raises(InvalidInputError, match="does not go into"):
        batch.causal_convolution(w, x, out=np.empty(1000, int))
    frozen, both = np.empty(1000), np.ones(1500)
    frozen.flags.writeable = False
    with pytest.raises(InvalidInputError, match="read-only"):
        batch.causal_convolution(w, x, out=frozen)
    with pytest.raises(InvalidInputError, match="give a NumPy array"):
        batch.elementwise("x", x=x, out=[0.0] * 1000)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="overlaps"):
        batch.causal_convolution(w, both[:1000], out=both[500:])
    with pytest.raises(InvalidInputError, match="array of torch"):
        batch.causal_convolution(w, torch.ones(10))
    with pytest.raises(OutOfMemoryError, match="not even the smallest block"):
        batch.causal_convolution(w, x, budget=16)
    with pytest.raises(OutOfMemoryError, match="not even the smallest block"):
        batch.elementwise("x*x", x=x, budget=8)
    with pytest.raises(InvalidInputError, match="budget="):
        batch.causal_convolution(w, x, budget="plenty")


def test_a_result_without_room_asks_for_a_file() -> None:
    """Not an error from the allocator, but what to do."""
    get_budget().cap("cpu", 2**20)
    with pytest.raises(OutOfMemoryError, match="numpy.memmap"):
        batch.causal_convolution(np.ones(3), np.ones(100_000))


def show(*arguments: str) -> str:
    script = REPOSITORY / "benchmarks" / "memory.py"
    done = subprocess.run(
        [sys.executable, str(script), "--no-json", *arguments],
        capture_output=True,
        text=True,
        timeout=1000,
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the process as Linux does")
def test_a_limited_process_convolves_a_file_larger_than_its_limit(tmp_path: Path) -> None:
    """64 MiB of samples with 2^14 weights in a process that may have 48 MiB more than it begins with."""
    out = show("--showcase", "small", "--folder", str(tmp_path))
    assert "under the limit: yes" in out and "right to 1e-12: yes" in out, out


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the process as Linux does")
def test_two_gigabytes_convolve_four(tmp_path: Path) -> None:
    """4 GiB of samples with 2^20 weights under RLIMIT_DATA of 2 GiB."""
    out = show("--showcase", "full", "--folder", str(tmp_path))
    assert "under the limit: yes" in out and "right to 1e-12: yes" in out, out


@pytest.mark.parametrize("told", [True, False])
def test_a_full_disk_is_an_error_before_anything_is_computed(
    tmp_path: Path, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The room of a mapped result is reserved first: need, have and folder are told, and the file stays as it was.

    A disk that says how little is free is not touched; one with a quota only says so when it is asked for room.
    """

    def full(file: int, offset: int, length: int) -> None:
        assert not told and length == 2**20
        raise OSError(errno.ENOSPC, "No space left on device")

    out = np.memmap(tmp_path / "y", np.float64, "w+", shape=(2**17,))
    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**19 if told else 2**30))
    monkeypatch.setattr(Job, "run", lambda *_: pytest.fail("computed all the same"))
    before = (tmp_path / "y").stat().st_blocks
    words = rf"needs 1\.0 MiB more, and {'0.5' if told else '1,024.0'} MiB are free in {re.escape(str(tmp_path))}; free"
    for call in (
        lambda: batch.causal_convolution(np.ones(10), np.ones(2**17), out=out),
        lambda: batch.elementwise("x + 1", x=np.ones(2**17), out=out),
    ):
        with pytest.raises(DiskFullError, match=words):
            call()
    assert (tmp_path / "y").stat().st_blocks == before


def test_a_full_disk_does_not_end_the_process(tmp_path: Path) -> None:
    """On a file system of one megabyte: an error where there was a SIGBUS."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", tmp_path], capture_output=True)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        found = run_python(
            "import sys, numpy as np; from hpfracc import batch\n"
            "out = np.memmap(sys.argv[1], np.float64, 'w+', shape=(2**18,))\n"
            "try:\n"
            "    batch.elementwise('x + 1', x=np.ones(2**18), out=out, backend='numpy')\n"
            "except OSError as error:\n"
            "    print(type(error).__name__, error)",
            tmp_path / "y",
        )
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)
    assert found.startswith("DiskFullError") and "needs 2.0 MiB more, and 1.0 MiB are free" in found
