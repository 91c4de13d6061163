"""Calls are counted once each, whichever thread makes them and whatever happens to the plan meanwhile."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.engine.selection.knowledge import Knowledge
from hpfracc.errors import AllBackendsFailedError
from tests.helpers.own_operations import Failing, numbers, own_operation


def test_calls_that_get_attention_together_stand_for_themselves_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight calls under way at once are eight: what they stand for decides how much a compilation would have saved."""
    gate: list[threading.Barrier] = []

    def kernel(x: np.ndarray) -> np.ndarray:
        if gate:
            gate[0].wait(300.0)
        return x * 2

    counted: list[int] = []
    real = Knowledge.observe

    def observe(self: Knowledge, *args: Any, calls: int, **options: Any) -> None:
        counted.append(calls)
        real(self, *args, calls=calls, **options)

    with own_operation(kernel) as op:
        x = numbers()
        op(x)
        next(iter(op._plans.values())).review_after(0)
        monkeypatch.setattr(Knowledge, "observe", observe)
        gate.append(threading.Barrier(8))
        threads = [threading.Thread(target=op, args=(x,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert op.calls() == 9
    assert len(counted) == 8 and 8 <= sum(counted) <= 12  # two may overtake each other on the way to the count


def test_when_everything_failed_the_decision_says_what_was_tried() -> None:
    """The error points to ``last_decision``; there stands each arm with what it said."""
    pytest.importorskip("torch")
    with own_operation(Failing(lambda: RuntimeError("first"))) as op:
        op.kernel("torch")(Failing(lambda: RuntimeError("second")))
        with pytest.raises(AllBackendsFailedError):
            op(numbers())
        decision = hf.last_decision()
        assert decision is not None
        assert [row.error for row in decision.fallbacks] == ["RuntimeError: first", "RuntimeError: second"]
