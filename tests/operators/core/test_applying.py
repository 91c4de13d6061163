"""Cached applications of operators: the same plans, results, counts and errors as uncached calls."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch

import hpfracc as hf
from hpfracc._arrays import quick_kind
from hpfracc._config import state
from hpfracc.engine import Decision, causal_convolution
from hpfracc.engine.backends import registry
from hpfracc.operators.core.applying import cached_applications
from hpfracc.operators.core.grids import cached_grid
from tests.helpers.forked import run_in_child

N = 50
STEP = 0.1
#: Maximum number of Python functions that a settled call enters, including NumPy's, and of files of hpfracc.
MAX_CALLS, MAX_FILES = 40, 10


def made(library: str) -> tuple[Callable[[Any], Any], Any, Any]:
    """An operator with a fixed step that has a cached application, samples for it, and its answer."""
    signal = np.random.default_rng(4).standard_normal((2, N))
    expected = hf.Caputo(0.37)(signal[:, ::-1][:, ::-1], np.arange(N) * STEP)
    if library == "torch":
        signal = torch.from_numpy(signal)

    def call(values: Any) -> Any:
        return hf.caputo(values, alpha=0.37, step=STEP)

    for _ in range(3):
        call(signal)
    return call, signal, expected


def plan_of(signal: Any) -> Any:
    """The plan that the cached application of ``made`` keeps for such samples."""
    application = cached_applications[hf.Caputo(0.37), quick_kind(signal)]
    (plan,) = {plan for plan, _, _ in application._sums.values() if plan.version == state.version}
    return plan


def last() -> Decision:
    decision = hf.last_decision()
    assert isinstance(decision, Decision)
    return decision


def test_steps_and_points_give_the_same_values() -> None:
    """Whether the call is cached or not, for arrays and tensors, and for non-finite samples."""
    operator = hf.Caputo(0.37)
    rng = np.random.default_rng(1)
    for _ in range(3):
        for step in (0.1, 0.2):
            for dtype in ("float32", "float64"):
                f = rng.standard_normal((3, 60)).astype(dtype)
                f[1, 30] = np.nan
                t = step * np.arange(60)
                expected = operator(f, t)
                np.testing.assert_allclose(operator(f, step=step), expected, rtol=1e-4, atol=1e-4)
                found = operator(torch.from_numpy(f), step=step).numpy()
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("with_numba")
def test_a_forked_child_keeps_no_plan_of_a_library_whose_threads_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a call would hang; neither the operation nor a cached application makes it."""
    pytest.importorskip("numba")
    monkeypatch.setattr(registry, "_OWN_MEMORY", (*registry._OWN_MEMORY, "numba"))  # which would not hang
    call, signal, expected = made("numpy")
    plan = plan_of(signal)
    with hf.use_backend("numba"):
        call(signal)
        application = cached_applications[hf.Caputo(0.37), quick_kind(signal)]
        other = next(kept for kept, _, _ in application._sums.values() if kept is not plan)
    plan.bound = other.bound
    plan.review_at = math.inf
    call(signal)
    assert last().backend == "numba"

    def child() -> None:
        np.testing.assert_allclose(call(signal), expected, rtol=0, atol=1e-12)
        assert last().backend != "numba"

    run_in_child(child)
    causal_convolution.reset_plans()


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_one_point_changed_in_place_is_another_grid(library: str) -> None:
    """Whichever point it is, for samples on the host and for those whose points are compared after the launch."""
    t, f = np.linspace(0.0, 1.0, N), np.random.default_rng(2).standard_normal(N)
    samples = torch.from_numpy(f) if library == "torch" else f
    strided = np.repeat(t, 2)[::2]
    for _ in range(3):
        first = np.asarray(hf.caputo(samples, t, 0.4))
        np.testing.assert_array_equal(hf.caputo(samples, strided, 0.4), first)
    for j in (1, 7, N // 2 - 1, N // 2, N - 2):
        moved = t.copy()
        hf.caputo(samples, moved, 0.4)
        moved[j] += 0.3 * t[1]
        found = np.asarray(hf.caputo(samples, moved, 0.4))
        np.testing.assert_array_equal(found, np.asarray(hf.caputo(samples, list(moved), 0.4)))
        assert not np.allclose(found, first), j
        strided[j] = np.nan
        with pytest.raises(hf.errors.InvalidInputError, match="finite"):
            hf.caputo(samples, strided, 0.4)
        strided[j] = t[j]


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_other_arguments_are_read_again(axis: int | None) -> None:
    """An axis, an origin, labels and a full account do not take the cached way."""
    f, t = np.random.default_rng(1).standard_normal((N, N)), np.linspace(0.0, 1.0, N)
    hf.caputo(f, t, 0.4)
    found = hf.caputo(f, t, 0.4, axis=axis)
    expected = hf.caputo(f.T.copy(), t, 0.4).T if axis == 0 else hf.caputo(f, t, 0.4)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert hf.caputo(f, t, 0.4, full_output=True).method == "l1-2"
    with pytest.raises(hf.errors.InvalidInputError, match="origin"):
        hf.caputo(f, t, 0.4, origin=-1.0)
    with pytest.raises(hf.errors.InvalidInputError, match="both t and step"):
        hf.caputo(f, t, 0.4, step=0.1)
    with pytest.raises(hf.errors.ShapeError, match="points"):
        hf.caputo(f[:, 1:], t, 0.4)


@pytest.mark.parametrize("spelling", ["t", "step"])
def test_a_settled_call_is_short(spelling: str) -> None:
    """It passes at most 40 Python functions in at most 10 files."""
    n = 1000
    t, f = np.linspace(0.0, 1.0, n), np.sin(np.linspace(0.0, 3.0, n))
    options: dict[str, Any] = {"t": t} if spelling == "t" else {"step": 0.001}
    with hf.use_backend("numpy"), hf.config(enable_learning=False):
        for _ in range(5):
            hf.caputo(f, alpha=0.5, **options)
        seen: list[str] = []

        def count(frame: FrameType, event: str, _: Any) -> None:
            if event == "call":
                seen.append(frame.f_code.co_filename)

        sys.setprofile(count)
        try:
            hf.caputo(f, alpha=0.5, **options)
        finally:
            sys.setprofile(None)
    assert len(seen) <= MAX_CALLS, seen
    package = str(Path(hf.__file__).parent)
    assert len({name for name in seen if name.startswith(package)}) <= MAX_FILES


def test_read_only_points_are_known_by_their_identity() -> None:
    """Only while they are read-only: made writable and changed, they are read again."""
    t, f = np.linspace(0.0, 1.0, N), np.random.default_rng(2).standard_normal(N)
    t.flags.writeable = False
    first = hf.caputo(f, t, 0.45)
    assert cached_grid(t) is cached_grid(t)
    np.testing.assert_array_equal(hf.caputo(f, t, 0.45), first)
    t.flags.writeable = True
    t *= 2.0
    np.testing.assert_allclose(hf.caputo(f, t, 0.45), first * 2.0**-0.45, rtol=1e-12)
    view = t[:]
    view.flags.writeable = False
    hf.caputo(f, view, 0.45)
    t *= 2.0  # through the array that owns the memory
    np.testing.assert_allclose(hf.caputo(f, view, 0.45), first * 4.0**-0.45, rtol=1e-12)


@pytest.mark.parametrize("ample_first", [False, True])
def test_repeated_calls_in_little_memory_are_done_in_chunks(ample_first: bool) -> None:
    """A call that has no plan for the whole is not refused when it is repeated."""
    rows = np.tile(np.sin(0.1 * np.arange(5000)), (20, 1))
    operator = hf.Caputo(0.5)
    expected = np.stack([operator(row, step=0.1) for row in rows[:1]])
    if ample_first:
        operator(rows, step=0.1)
    with hf.memory.limit("cpu", 1 << 20):
        for _ in range(3):
            np.testing.assert_allclose(operator(rows, step=0.1)[:1], expected, rtol=1e-10, atol=1e-12)
