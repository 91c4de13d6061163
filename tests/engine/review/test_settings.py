"""Settings under threads, forks and repetition: settings of one block do not affect or slow down others."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import _config
from hpfracc._config import current_backend, get_settings
from hpfracc.engine.execution import operation as operation_module
from tests.helpers.forked import run_in_child

X = np.arange(32.0)


@pytest.mark.parametrize(
    "block",
    [lambda: hf.use_backend("numpy"), lambda: hf.config(deterministic=True)],
    ids=["use_backend", "config"],
)
def test_one_object_serves_several_threads_at_once(block: Any) -> None:
    """Entered in one thread while another is inside, each thread gets its own settings back at its own end."""
    shared = block()
    if isinstance(shared, hf.config):
        with shared:
            pass  # from now on it is no process-wide setting
    inside, leave = threading.Event(), threading.Event()
    errors: list[BaseException] = []
    left: list[tuple[str | None, bool]] = []

    def other() -> None:
        try:
            with shared:
                inside.set()
                leave.wait(300.0)
            left.append((current_backend(), get_settings().deterministic))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=other)
    with shared:
        thread.start()
        assert inside.wait(300.0)
    assert (current_backend(), get_settings().deterministic) == (None, False)
    leave.set()
    thread.join()
    assert not errors and left == [(None, False)]


def plans_made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    made: list[int] = []
    real = operation_module.make_plan

    def counted(*args: Any, **options: Any) -> Any:
        made.append(1)
        return real(*args, **options)

    monkeypatch.setattr(operation_module, "make_plan", counted)
    return made


def test_a_block_does_not_void_the_plans_outside_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entering ``with config`` changes nothing for calls outside, so what they decided stands."""
    hf.fft(X)
    made = plans_made(monkeypatch)
    for _ in range(3):
        with hf.config(exploration_budget=0.0):
            pass
        hf.fft(X)
    assert made == []


def test_equal_blocks_share_their_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block entered again with the same settings finds what was decided in the first one."""
    made = plans_made(monkeypatch)
    for _ in range(4):
        with hf.config(deterministic=True, never={"fft": ["jax"]}, pin={"matmul": "numpy"}):
            hf.fft(X)
    assert len(made) == 1
    with hf.config(deterministic=True, never={"fft": ["jax", "torch"]}, pin={"matmul": "numpy"}):
        hf.fft(X)
    assert len(made) == 2


def test_a_plan_made_while_another_thread_opens_a_block_is_not_kept() -> None:
    """Between making ``config(...)`` and entering it its settings hold everywhere; what was decided then is void."""
    hf.fft(X)
    window = hf.config(pin={"fft": "torch"})
    hf.fft(X)
    decision = hf.last_decision()
    assert decision is not None and decision.backend == "torch"
    with window:
        pass
    for _ in range(2):
        hf.fft(X)
        decision = hf.last_decision()
        assert decision is not None and decision.wish is None


def seen_elsewhere() -> dict[str, str]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(dict(get_settings().pin)))
    thread.start()
    thread.join()
    return found[0]  # type: ignore[no-any-return]


def test_what_is_meant_for_a_block_never_reaches_another_thread() -> None:
    """Not even in the moment between making ``config(...)`` and entering it."""
    block = hf.config(pin={"fft": "torch"})
    assert seen_elsewhere() == {}
    with block:
        assert seen_elsewhere() == {} and dict(get_settings().pin) == {"fft": "torch"}
    assert seen_elsewhere() == dict(get_settings().pin) == {}


def test_an_object_that_is_kept_holds_from_the_next_call_on() -> None:
    """A notebook keeps the value of a cell's last line: the next engine call shows that it was not for a block."""
    kept = hf.config(pin={"fft": "torch"})
    hf.fft(X)
    assert dict(get_settings().pin) == seen_elsewhere() == {"fft": "torch"}
    del kept
    assert seen_elsewhere() == {"fft": "torch"}


def test_a_reset_is_not_undone_by_an_object_that_is_let_go_later() -> None:
    """What was asked for before a reset is forgotten with the rest."""
    kept = hf.config(pin={"fft": "torch"})
    _config.reset()
    del kept
    assert dict(get_settings().pin) == seen_elsewhere() == {}


def test_a_bad_environment_is_refused_where_settings_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when the object is dropped, where it would go unnoticed."""
    monkeypatch.setenv("HPFRACC_GPU_MEMORY_LIMIT", "2")
    _config.reset()
    with pytest.raises(hf.errors.ConfigurationError, match="HPFRACC_GPU_MEMORY_LIMIT"):
        hf.config(deterministic=True)


def test_settings_read_during_a_change_are_not_kept_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that reads the old settings while they change must not take them for the new ones."""

    class Interrupted(type(_config.state)):  # type: ignore[misc]
        """Lets another thread change the settings at the moment they were read."""

        @property
        def base(self) -> Any:
            found = self.__dict__["base"]
            if threading.current_thread() is reader and not started:
                started.append(1)
                changer.start()
                changer.join(0.2)
            return found

        @base.setter
        def base(self, value: Any) -> None:
            self.__dict__["base"] = value

    started: list[int] = []
    context = _config.Context()
    changer = threading.Thread(target=lambda: hf.config(performance_threshold=0.4))
    reader = threading.Thread(target=context.settings)
    get_settings()
    monkeypatch.setattr(_config.state, "__class__", Interrupted)
    reader.start()
    reader.join()
    changer.join()
    assert started and context.settings().performance_threshold == 0.4


def test_a_forked_child_can_change_settings() -> None:
    """A thread of the parent may be changing settings at the moment of the fork."""
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with _config.state.lock:
            held.set()
            release.wait(300.0)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(300.0)

    def child() -> None:
        hf.config(performance_threshold=0.3)
        assert get_settings().performance_threshold == 0.3

    try:
        run_in_child(child, timeout=500)
    finally:
        release.set()
        thread.join()
