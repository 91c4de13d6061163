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
