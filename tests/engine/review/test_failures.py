"""Failures: the right arm is blamed, no error and no result is lost, and nothing is refused that could be tried."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc._config import get_settings
from hpfracc.engine.backends import registry
from hpfracc.engine.memory.budget import get_budget
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.errors import AllBackendsFailedError, BackendUnavailableError, OutOfMemoryError
from tests.helpers.own_operations import Failing, double, numbers, own_operation


def last() -> Any:
    decision = hf.last_decision()
    assert decision is not None
    return decision


def test_a_failure_does_not_bar_the_only_arm_there_is() -> None:
    """A kernel that fails for some data and has no alternative is tried again for other data at once."""

    def picky(x: np.ndarray) -> np.ndarray:
        if x[0] < 0:
            raise RuntimeError("did not converge")
        return x

    with own_operation(picky) as op:
        for _ in range(3):
            with pytest.raises(AllBackendsFailedError, match="did not converge"):
                op(-np.ones(3))
            np.testing.assert_array_equal(op(np.ones(4)), np.ones(4))


def test_an_explicit_wish_is_tried_while_the_arm_rests() -> None:
    """An automatic choice leaves a failed arm alone for a while; the user's own word is obeyed."""
    pytest.importorskip("torch")
    failing = Failing(lambda: RuntimeError("once"), times=1)
    with own_operation(failing) as op:
        op.kernel("torch")(double)
        double(registry.adapter("torch").from_host(numbers(), "cpu"))  # imports torch, so that no rest ends meanwhile
        op(numbers())
        assert last().backend == "torch"
        np.testing.assert_array_equal(op(numbers(7), backend="numpy"), 2 * numbers(7))


def test_an_import_that_a_users_kernel_lacks_does_not_break_the_backend() -> None:
    """Only the library itself can be broken; a kernel that imports something else and fails is a kernel that fails."""
    pytest.importorskip("torch")

    def lacking(x: np.ndarray) -> np.ndarray:
        import surely_not_installed_anywhere  # noqa: F401

        return x

    with own_operation(lacking) as op:
        op.kernel("torch")(double)
        np.testing.assert_array_equal(op(numbers()), 2 * numbers())
    assert registry.unavailable("numpy") is None
    np.testing.assert_allclose(hf.fft(numbers(), backend="numpy"), np.fft.fft(numbers()))


@pytest.mark.parametrize(
    "error", [OSError("libcudart.so.12: cannot open shared object file"), RuntimeError("old jaxlib")]
)
def test_a_library_may_fail_to_import_with_any_error(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Shared objects and version checks raise what they like: the backend is broken, the work is done elsewhere."""
    pytest.importorskip("torch")
    real = registry.load_kernels

    def broken(operation: str, backend: str) -> Any:
        if backend == "torch":
            raise error
        return real(operation, backend)

    registry.reset()
    monkeypatch.setattr(registry, "load_kernels", broken)
    with hf.config(never={"fft": ["numpy", "numba", "jax"]}), pytest.raises(BackendUnavailableError):
        hf.fft(numbers(333))  # nothing but torch is left, and that is broken
    with pytest.raises((ImportError, BackendUnavailableError), match=str(error)):
        hf.fft(numbers(335), backend="torch")
    np.testing.assert_allclose(hf.fft(numbers(334)), np.fft.fft(numbers(334)), atol=1e-12)
    assert "cannot be imported" in str(registry.unavailable("torch"))


@pytest.mark.parametrize("error", [FloatingPointError, OverflowError, NameError, RuntimeWarning, UnboundLocalError])
def test_mistakes_and_wishes_of_the_caller_are_not_covered_up(error: type[Exception]) -> None:
    """``np.errstate(all="raise")``, ``-W error`` and a misspelt name speak to the user, not to the breaker."""
    raised, other = error("mine"), Failing(lambda: AssertionError("must not run"))

    def wrong(x: np.ndarray) -> np.ndarray:
        raise raised

    with own_operation(wrong) as op:
        op.kernel("torch")(other)
        with pytest.raises(error) as caught:
            op(numbers())
        assert caught.value is raised and other.calls == 0


def test_a_result_that_is_there_is_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choosing again for later calls may find that nothing fits into memory now; this call is done anyway."""
    x = np.ones(300_000)
    calls: list[int] = []

    def kernel(y: np.ndarray) -> np.ndarray:
        calls.append(1)
        return y * 2

    monkeypatch.setattr(get_budget(), "free", lambda *_: 0 if calls else 2**40)
    with own_operation(kernel) as op:
        np.testing.assert_array_equal(op(x), 2 * x)
        with pytest.raises(OutOfMemoryError, match="no arm fits"):
            op(x)
    assert len(calls) == 1


@pytest.mark.parametrize("mode", [{"deterministic": True}, {"enable_learning": False}], ids=["deterministic", "off"])
def test_a_fallback_does_not_switch_learning_on(mode: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing may be learned nothing is, before and after a failure; the failed arm gets its second chance."""
    pytest.importorskip("torch")
    failing = Failing(lambda: RuntimeError("once"), times=1)
    with hf.config(**mode), own_operation(failing) as op:
        op.kernel("torch")(double)
        x = numbers()
        for _ in range(20):
            np.testing.assert_array_equal(op(x), 2 * x)
        assert all(row.samples == 0 for row in hf.explain(op, x).decision.candidates)
        assert failing.calls == 1
        monkeypatch.setattr(knowledge_for(get_settings()).breaker, "_clock", lambda: 1e9)
        for _ in range(600):
            op(x)
        assert all(row.samples == 0 and row.refused != "failed" for row in hf.explain(op, x).decision.candidates)
        if mode.get("deterministic"):  # without it the arm that did the work stays until something speaks against it
            assert last().backend == "numpy" and failing.calls > 1


def test_a_library_that_another_thread_is_importing_is_not_asked() -> None:
    """``sys.modules`` holds a module from the moment its import begins; it has no attributes then."""
    import types

    import torch

    from hpfracc import _arrays

    half = types.ModuleType("jax")
    real = sys.modules.get("jax")
    sys.modules["jax"] = half
    try:
        assert not _arrays.is_tracer(torch.ones(2))
        assert _arrays.library_of(type("Unheard", (), {"dtype": None})()) == "python"
    finally:
        if real is not None:
            sys.modules["jax"] = real
        else:
            del sys.modules["jax"]
