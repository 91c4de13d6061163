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
from hpfracc.engine.backends import registry
from hpfracc.engine.execution.api import causal_convolution
from hpfracc.engine.execution.decision_log import composite
from hpfracc.engine.selection.decision import Decision
from hpfracc.operators.core import applying, grids
from hpfracc.operators.core.applying import CachedApplication, cached_applications
from hpfracc.operators.core.base import operator_of
from hpfracc.operators.core.grids import cached_grid
from hpfracc.profiling.recorder import shared as spans
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


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_it_takes_the_plan_of_the_operation(library: str) -> None:
    """One plan serves both, and every call is counted there."""
    call, signal, expected = made(library)
    plans, calls = len(causal_convolution._plans), causal_convolution.calls()
    for _ in range(40):
        np.testing.assert_allclose(call(signal), expected, rtol=0, atol=1e-12)
    assert len(causal_convolution._plans) == plans
    assert causal_convolution.calls() == calls + 40
    assert plan_of(signal) in causal_convolution._plans.values()


def test_signals_of_any_kind() -> None:
    """Another dtype, one that autograd records, one inside a transform."""
    call, signal, expected = made("torch")
    found = call(signal[0].to(torch.float32))
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, expected[0], rtol=0, atol=1e-4)
    tracked = signal.clone().requires_grad_()
    (slope,) = torch.autograd.grad(call(tracked).sum(), tracked)
    mapped = torch.func.grad(lambda x: call(x).sum())(signal)
    torch.testing.assert_close(slope, mapped, rtol=0, atol=1e-12)
    np.testing.assert_allclose(torch.vmap(call)(signal), expected, rtol=0, atol=1e-12)


def test_settings_are_obeyed_at_the_next_call() -> None:
    """A backend that is asked for."""
    call, signal, expected = made("numpy")
    for backend in ("torch", "numpy"):
        with hf.use_backend(backend):
            np.testing.assert_allclose(call(signal), expected, rtol=0, atol=1e-12)
        assert last().backend == backend


def test_a_kernel_that_fails_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The samples go to another arm."""
    call, signal, expected = made("numpy")
    plan = plan_of(signal)
    plan.review_at = math.inf

    def fail(*arrays: Any, **params: Any) -> Any:
        raise RuntimeError("went away")

    monkeypatch.setattr(plan.bound, "run", fail)
    monkeypatch.setattr(plan.bound, "bare", None)
    monkeypatch.setattr(plan.bound, "run_prepared", None)
    np.testing.assert_allclose(call(signal), expected, rtol=0, atol=1e-12)
    assert last().fallbacks


def test_wrappers_see_it() -> None:
    """A composite call collects its decision, a dry run computes nothing, and the profiler has its span."""
    call, signal, _ = made("numpy")
    with composite() as decisions:
        call(signal)
    assert len(decisions) == 1
    before = causal_convolution.calls()
    assert hf.explain(call, signal).decision.operation == "causal_convolution"
    assert causal_convolution.calls() == before
    spans.enable()
    try:
        call(signal)
    finally:
        spans.disable()
    kept, _, _ = spans.session.snapshot()
    assert any(span.kind == "call" and "causal_convolution" in span.name for span in kept)


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


def test_points_changed_in_place_are_another_grid() -> None:
    """The points are compared, not the array's identity: a wrong grid is never used."""
    t, f = np.linspace(0.0, 1.0, N), np.random.default_rng(2).standard_normal(N)
    for _ in range(3):
        first = hf.caputo(f, t, 0.4)
    t *= 2.0
    np.testing.assert_allclose(hf.caputo(f, t, 0.4), first * 2.0**-0.4, rtol=1e-12)
    t[N // 2] += 0.01  # the ends are as before
    moved = hf.caputo(f, t, 0.4)
    np.testing.assert_array_equal(moved, hf.caputo(f, list(t), 0.4))
    assert not np.allclose(moved, first * 2.0**-0.4)
    t[N // 2] = np.nan
    with pytest.raises(hf.errors.InvalidInputError, match="finite"):
        hf.caputo(f, t, 0.4)


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


def test_equal_operators_are_made_once() -> None:
    """For orders that are plain numbers, by type as well as value; a field that has no hash keeps its own error."""
    assert operator_of(hf.Caputo, 0.4, "l1") is operator_of(hf.Caputo, 0.4, "l1")
    assert operator_of(hf.Caputo, 0.4, "l1", 1) is not operator_of(hf.Caputo, 0.4, "l1", True)
    assert operator_of(hf.Caputo, np.float64(0.4)) is not operator_of(hf.Caputo, np.float64(0.4))
    assert operator_of(hf.Caputo, 0.4, ["l1"]).method == ["l1"]  # type: ignore[arg-type]


def test_grids_are_known_by_their_points_and_bounded() -> None:
    """Another array with the same points is the same grid; points of another dtype are not; few are kept."""
    t = np.linspace(0.0, 3.0, N)
    hf.caputo(np.ones(N), t, 0.4)
    kept = cached_grid(t.copy())
    assert kept is not None and kept.step == pytest.approx(3.0 / (N - 1))
    assert kept.points is not t and not kept.points.flags.writeable
    assert cached_grid(t.astype(np.float32)) is None
    assert cached_grid(t[:-1]) is None
    assert cached_grid(t.reshape(2, -1)) is None
    for n in range(2, 300):
        hf.caputo(np.ones(n), np.arange(float(n)), 0.4)
    assert sum(cached_grid(np.arange(float(n))) is not None for n in range(2, 300)) <= 64


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_points_of_other_libraries_are_read_once(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recognised by identity; mutable ones are compared, and read again after a change in place."""
    xp = pytest.importorskip(library)
    t, f = xp.linspace(0.0, 2.0, N), xp.ones(N)
    first = hf.caputo(f, t, 0.4)
    kept = cached_grid(t)
    assert kept is not None and kept.n == N and cached_grid(xp.linspace(0.0, 2.0, N)) is None
    with monkeypatch.context() as patch:
        patch.setattr(grids, "read_points", lambda t: pytest.fail("the points were read again"))
        np.testing.assert_array_equal(hf.caputo(f, t, 0.4), first)
        hf.riemann_liouville(f, t, 0.3)
    if library != "torch":
        return
    t[N // 2] += 1e-3
    assert cached_grid(t) is None
    t.requires_grad_(True)
    hf.riemann_liouville(f, t, 0.3).sum().backward()
    assert t.grad is not None and cached_grid(t) is None
    for n in range(2, 60):
        hf.caputo(xp.ones(n), xp.arange(n), 0.4)
    assert len(grids._array_grids) <= 8


def test_what_is_cached_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In applications, and in the sums of each, which keep no operands alive."""
    monkeypatch.setattr(applying, "_MAX_APPLICATIONS", 5)
    monkeypatch.setattr(applying, "_MAX_SUMS", 3)
    for n in range(20, 40):
        f = np.random.default_rng(n).standard_normal(n)
        for step in (0.1, 0.2, 0.3, 0.4, 0.5):
            for _ in range(2):
                found = hf.caputo(f, alpha=0.4, step=step)
            np.testing.assert_allclose(found, hf.caputo(f, np.arange(n) * step, 0.4), rtol=1e-9, atol=1e-9)
    assert len(cached_applications) <= 5
    for application in cached_applications.values():
        assert len(application._sums) <= 3
        assert all(made.weights is None and not made.starts for _, _, made in application._sums.values())


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


def test_orders_that_carry_a_derivative_are_not_cached() -> None:
    """A tensor of the same value as a float has its own way, with its gradient."""
    f, t = np.sin(np.linspace(0.0, 1.0, N)), np.linspace(0.0, 1.0, N)
    hf.caputo(f, t, 0.4)
    alpha = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(hf.caputo(torch.from_numpy(f), t, alpha).sum(), alpha)
    assert slope != 0.0


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


def test_an_application_is_not_kept_for_what_cannot_be_hashed() -> None:
    """An operator with an array among its fields is read again at every call."""
    applying.cache_application(np.ones(3), np.ones(3), CachedApplication(None, None))  # type: ignore[arg-type]
    assert np.ones not in cached_applications


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
