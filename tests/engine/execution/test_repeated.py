"""A call whose operands stay, all but one: the same plans, answers, counts and errors as the operation's own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hpfracc.engine.execution.repeated import RepeatedCall

import hpfracc as hf
from hpfracc.engine.backends import registry
from hpfracc.engine.execution.api import causal_convolution
from hpfracc.engine.execution.decision_log import composite
from hpfracc.profiling.recorder import shared as spans
from tests.helpers.forked import run_in_child

N = 50
OPTIONS = {"differences": True, "starts_from": 1}


def made(library: str, key: Any = ("repeated", N)) -> tuple[RepeatedCall, Any, Any]:
    """The call, a signal, and the answer that the operation itself gives."""
    rng = np.random.default_rng(4)
    weights, signal, starts = rng.standard_normal(N), rng.standard_normal((2, N)), rng.standard_normal((1, N))
    if library == "torch":
        signal, starts = torch.from_numpy(signal), torch.from_numpy(starts)
    call = RepeatedCall(causal_convolution, (weights,), (starts,), key, OPTIONS)
    return call, signal, causal_convolution(weights, signal, starts, weights_key=key, **OPTIONS)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("key", [None, ("repeated", N)])
def test_it_takes_the_operation_s_own_plan(library: str, key: Any) -> None:
    """One plan serves both, and every call is counted there."""
    call, signal, expected = made(library, key)
    plans, calls = len(causal_convolution._plans), causal_convolution.calls()
    for _ in range(40):
        np.testing.assert_allclose(call(signal), expected, rtol=0, atol=1e-12)
    assert len(causal_convolution._plans) == plans
    assert causal_convolution.calls() == calls + 40


def test_signals_of_any_kind() -> None:
    """Another shape or dtype, one that autograd records, one inside a transform: each as the operation has it."""
    call, signal, expected = made("torch")
    found = call(signal[0].to(torch.float32))
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, expected[0], rtol=0, atol=1e-4)
    tracked = signal.clone().requires_grad_()
    (slope,) = torch.autograd.grad(call(tracked).sum(), tracked)
    mapped = torch.func.grad(lambda x: call(x).sum())(signal)
    torch.testing.assert_close(slope, mapped, rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.vmap(call)(signal), expected, rtol=0, atol=1e-12)


def test_settings_are_obeyed_at_the_next_call() -> None:
    """A backend that is asked for, and one that is switched off."""
    call, signal, expected = made("numpy")
    for backend in ("torch", "numpy"):
        with hf.use_backend(backend):
            np.testing.assert_allclose(call(signal), expected, rtol=0, atol=1e-12)
        decision = hf.last_decision()
        assert decision is not None and not isinstance(decision, list) and decision.backend == backend


def test_a_kernel_that_fails_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operand goes to another arm, as from the operation itself."""
    call, signal, expected = made("numpy")
    plan = causal_convolution.plan_for((call._before[0], signal, call._after[0]), None, call._key, OPTIONS)
    plan.review_at = math.inf
    failing = plan.bound

    def fail(*arrays: Any, **params: Any) -> Any:
        raise RuntimeError("went away")

    monkeypatch.setattr(failing, "run", fail)
    np.testing.assert_allclose(call(signal), expected, rtol=0, atol=1e-12)
    decision = hf.last_decision()
    assert decision is not None and not isinstance(decision, list) and decision.fallbacks


def test_what_watches_calls_sees_it() -> None:
    """A composite call collects its decision, and the profiler its span."""
    call, signal, _ = made("numpy")
    with composite() as decisions:
        call(signal)
    assert len(decisions) == 1
    spans.enable()
    try:
        call(signal)
    finally:
        spans.disable()
    kept, _, _ = spans.session.snapshot()
    assert any(span.kind == "call" and "causal_convolution" in span.name for span in kept)


def test_operators_keep_their_call_for_the_step_met_last() -> None:
    """The same values whether the step was met before or not, for arrays and tensors, and for bad samples."""
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


def test_a_forked_child_keeps_no_plan_of_a_library_whose_threads_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a call would wait for ever; neither the operation nor what kept its plan makes it."""
    pytest.importorskip("numba")
    monkeypatch.setattr(registry, "_OWN_MEMORY", (*registry._OWN_MEMORY, "numba"))  # which would not hang
    call, signal, expected = made("numpy")
    operands = call._before[0], signal, call._after[0]
    plan = causal_convolution.plan_for(operands, None, call._key, OPTIONS)
    with hf.use_backend("numba"):
        other = causal_convolution.plan_for(operands, None, call._key, OPTIONS)
    plan.adopt(other.bound, other.decision, other.option)
    plan.review_at = math.inf
    call(signal)

    def backend() -> str:
        decision = hf.last_decision()
        assert decision is not None and not isinstance(decision, list)
        return decision.backend

    def child() -> None:
        np.testing.assert_allclose(call(signal), expected, rtol=0, atol=1e-12)
        assert backend() != "numba"
        causal_convolution(*operands, weights_key=call._key, **OPTIONS)
        assert backend() != "numba"

    assert backend() == "numba"
    run_in_child(child)
    causal_convolution.reset_plans()
