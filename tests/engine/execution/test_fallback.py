"""Failures: each class has its cure, the same inputs go to the next arm, and no error is lost."""

from __future__ import annotations

import logging
import sys
import time

import jax  # noqa: F401  # imported, so that the engine need not weigh importing it
import numba  # noqa: F401
import numpy as np
import pytest
import torch

import hpfracc as hf
from hpfracc.engine.backends import registry
from hpfracc.engine.selection import knowledge as breaker
from hpfracc.errors import AllBackendsFailedError, BackendUnavailableError, OutOfMemoryError
from tests.helpers.own_operations import Failing, double, numbers, own_operation


def last() -> hf.engine.selection.decision.Decision:  # type: ignore[name-defined]
    decision = hf.last_decision()
    assert decision is not None
    return decision


def slow_double(x: np.ndarray) -> np.ndarray:
    time.sleep(0.0005)
    return x * 2


ERRORS = {
    "raises": lambda: RuntimeError("driver went away"),
    "unsupported": lambda: NotImplementedError("no such kernel"),
    "host memory": lambda: MemoryError("no room"),
    "device memory": lambda: torch.OutOfMemoryError("CUDA out of memory"),
    "xla memory": lambda: RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate"),
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("backend", ["numpy", "torch", "jax", "numba"])
def test_another_arm_does_the_work(error: object, backend: str, caplog: pytest.LogCaptureFixture) -> None:
    """The failing arm's inputs go to another, the result is right, and the decision says what happened."""
    failing = Failing(error)  # type: ignore[arg-type]
    with own_operation(slow_double) as op, caplog.at_level(logging.INFO, "hpfracc"):
        op.kernel(backend, compiles="never")(failing)
        if backend == "numpy":
            op.kernel("torch")(slow_double)
        x = numbers()
        for _ in range(60):
            np.testing.assert_array_equal(op(x), 2 * x)
        assert failing.calls, hf.explain(op, x)
        # Told once, not at every call; and the arm is not tried at every call.
        assert sum("falling back" in message for message in caplog.messages) == 1
        assert failing.calls < 10


def test_decision_carries_the_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a fallback ``last_decision`` names the arm that failed, how, and what it said."""
    monkeypatch.setattr(breaker, "_FIRST_REST", 600.0)  # a busy machine may take more than the usual second
    failing = Failing(lambda: RuntimeError("driver went away"), times=1)
    with own_operation(failing) as op:
        op.kernel("torch")(double)
        x = numbers()
        np.testing.assert_array_equal(op(x), 2 * x)
        decision = last()
        assert decision.backend == "torch"
        assert [(row.arm, row.kind) for row in decision.fallbacks] == [("numpy:default@cpu", "failed")]
        assert "driver went away" in decision.fallbacks[0].error
        assert "driver went away" in str(hf.explain(op, x)) or "failed 1 time" in str(hf.explain(op, x))


class SilentError(RuntimeError):
    def __str__(self) -> str:
        raise KeyError("nothing to say")


def test_an_error_without_a_message_falls_back_too() -> None:
    """Also if asking for the message raises."""
    failing = Failing(SilentError)
    with own_operation(failing) as op:
        op.kernel("torch")(double)
        x = numbers()
        np.testing.assert_array_equal(op(x), 2 * x)
        assert "no message: its __str__ raised KeyError" in last().fallbacks[0].error


@pytest.mark.parametrize("error", [TypeError, ValueError, IndexError, KeyError, ZeroDivisionError])
def test_the_callers_mistake_is_raised_unchanged(error: type[Exception]) -> None:
    """Never swallowed, never run again elsewhere, at the first call and at later ones."""
    raised = error("this is mine")
    other = Failing(lambda: AssertionError("must not run"))

    def wrong(x: np.ndarray, fail: bool = False) -> np.ndarray:
        if x[0] > 0:
            raise raised
        return x

    with own_operation(wrong) as op:
        with pytest.raises(error) as caught:
            op(np.ones(3))
        assert caught.value is raised
        op.kernel("torch")(other)
        with hf.use_backend("numpy"):
            for _ in range(50):
                op(-np.ones(3))
            with pytest.raises(error) as caught:
                op(np.ones(3))
        assert caught.value is raised
        assert other.calls == 0


def test_a_forced_backend_does_not_fall_back() -> None:
    """An explicit wish is obeyed or fails with its own error."""
    with own_operation(double) as op:
        op.kernel("torch")(Failing(lambda: RuntimeError("driver went away")))
        with pytest.raises(RuntimeError, match="driver went away"):
            op(numbers(), backend="torch")
        with hf.use_backend("torch"), pytest.raises(RuntimeError, match="driver went away"):
            op(numbers())


def test_everything_failed() -> None:
    """One error that carries each arm's own, as a group."""
    with own_operation(Failing(lambda: RuntimeError("first"))) as op:
        op.kernel("torch")(Failing(lambda: RuntimeError("second")))
        with pytest.raises(AllBackendsFailedError) as caught:
            op(numbers())
        assert {str(error) for error in caught.value.failures.values()} == {"first", "second"}
        assert isinstance(caught.value.__cause__, ExceptionGroup)
        assert len(caught.value.__cause__.exceptions) == 2


def test_every_arm_out_of_memory() -> None:
    """Then the error is an out-of-memory one that names the need and what is free."""
    with own_operation(Failing(MemoryError)) as op:
        op.kernel("torch")(Failing(lambda: torch.OutOfMemoryError("CUDA out of memory")))
        with pytest.raises(OutOfMemoryError, match=r"needs about .* and .* are free on the host"):
            op(numbers())


def test_out_of_memory_lets_go_of_frames() -> None:
    """The error that is kept holds no frame, for frames hold the buffers that filled the memory."""
    import gc
    import weakref

    class Buffer:
        pass

    watched: list[weakref.ref[Buffer]] = []

    def greedy(x: np.ndarray) -> np.ndarray:
        buffer = Buffer()
        watched.append(weakref.ref(buffer))
        raise MemoryError

    with own_operation(greedy) as op:
        op.kernel("torch")(double)
        op(numbers())
        gc.collect()
        assert watched and all(reference() is None for reference in watched)


def test_breaker_lets_the_arm_try_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transient fault does not exclude an arm permanently: it is probed later, and a success closes the breaker."""
    failing = Failing(lambda: RuntimeError("passing"), times=1)
    with own_operation(failing) as op:
        op.kernel("torch")(double)
        x = numbers()
        op(x)
        assert failing.calls == 1
        from hpfracc._config import get_settings
        from hpfracc.engine.selection.knowledge import knowledge_for

        breaker = knowledge_for(get_settings()).breaker
        assert breaker.allows((op.name, "numpy:default@cpu")) is not None
        monkeypatch.setattr(breaker, "_clock", lambda: 1e9)
        assert breaker.allows((op.name, "numpy:default@cpu")) is None


def test_library_that_fails_half_way_through_its_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is marked broken with the reason, and the work is done elsewhere."""

    real = registry._import_library

    def broken(name: str) -> None:
        if name != "torch":
            return real(name)
        raise ImportError("libsomething.so.1: cannot open shared object file")

    monkeypatch.setattr(registry, "_import_library", broken)
    registry.reset()
    x = numbers(2048)
    for _ in range(5):
        np.testing.assert_allclose(hf.fft(x), np.fft.fft(x), atol=1e-11)
    for _ in range(2):
        with pytest.raises((ImportError, BackendUnavailableError), match="libsomething"):
            hf.fft(x, backend="torch")
    rows = {row.backend: row.refused for row in hf.explain(hf.fft, x).decision.candidates}
    assert "cannot be imported" in str(rows["torch"])
    assert "torch" in sys.modules  # the real one is untouched
