"""A child forked while a thread of its parent holds a lock goes on by itself."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.engine.execution.bind import pending_times
from hpfracc.engine.execution.prepared import prepared_operands
from tests.helpers.forked import run_in_child

X = np.arange(64.0)


@pytest.mark.parametrize("owner", [prepared_operands, pending_times], ids=["prepared operands", "pending times"])
def test_no_lock_is_inherited_held(owner: Any) -> None:
    """Neither the kept transforms nor the waiting timers keep a child waiting."""
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with owner._lock:
            held.set()
            release.wait(300.0)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(300.0)

    class Passed:
        def seconds(self) -> float:
            return 1.0

    def child() -> None:
        for _ in range(3):
            found = hf.causal_convolution(X, X, weights_key="w", backend="numpy")
            np.testing.assert_allclose(found, np.convolve(X, X)[: X.size], rtol=1e-12)
        seen: list[float] = []
        pending_times.add(Passed(), seen.append)  # type: ignore[arg-type]
        pending_times.settle()
        assert seen == [1.0]
        assert prepared_operands.get("another", lambda: np.zeros(3)).shape == (3,)

    try:
        run_in_child(child, timeout=500)
    finally:
        release.set()
        thread.join()


def test_timers_of_the_parent_are_not_read_in_the_child() -> None:
    """Marks in a device's queue belong to the process that set them."""

    class Parents:
        def seconds(self) -> float:
            raise AssertionError("read in the child")

    pending_times.add(Parents(), lambda seconds: None)  # type: ignore[arg-type]
    try:
        run_in_child(pending_times.settle, timeout=500)
    finally:
        pending_times.reset()
