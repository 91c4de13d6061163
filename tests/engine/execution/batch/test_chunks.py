"""Chunks of one call follow the path of a call: a plan is found and run, and its run is learned from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hpfracc as hf
from hpfracc import memory
from hpfracc._config import get_settings
from hpfracc.engine.backends import registry
from hpfracc.engine.execution.batch import chunks
from hpfracc.engine.execution.batch.chunks import Job
from hpfracc.engine.execution.batch.driver import ChunkTooLargeError
from hpfracc.engine.execution.operation import Operation, get_operation
from hpfracc.engine.execution.plan import Plan, make_request
from hpfracc.engine.primitives.base import ArraySpec
from hpfracc.engine.selection.call_memory import read_marks
from hpfracc.engine.selection.knowledge import Knowledge, knowledge_for
from tests.helpers.own_operations import double, numbers, own_operation

X = np.random.default_rng(5).standard_normal((64, 4096))
W = np.ones(4096)


def job_of(operation: Operation, *arrays: Any, backend: str | None = None, **params: Any) -> Job:
    return Job(operation.primitive, params, make_request(operation.primitive, arrays, params, backend=backend))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans that are created for chunks."""
    found: list[Plan] = []
    make = chunks.make_plan

    def watched(*args: Any, **options: Any) -> Plan:
        found.append(make(*args, **options))
        return found[-1]

    monkeypatch.setattr(chunks, "make_plan", watched)
    return found


@pytest.mark.parametrize("learning", [True, False])
def test_equal_chunks_share_a_plan(made: list[Plan], learning: bool) -> None:
    """Another shape, dtype or prepared operand is another kind of chunk."""
    with hf.config(enable_learning=learning):
        job = job_of(hf.causal_convolution, W, X, backend="numpy")
        for begin in range(0, 64, 16):
            part = X[begin : begin + 16]
            np.testing.assert_allclose(job.run((W, part)), np.cumsum(part, -1), atol=1e-9)
        assert len(made) == 1
        job.run((W, X[:3]))
        job.run((W, X[:16].astype(np.float32)))
        job.run((W, X[:16]), "key")
        job.run((W, X[16:32]), "key")
    assert len(made) == 4 and job.chunks == 8


def test_a_call_in_chunks_plans_few_of_them(made: list[Plan]) -> None:
    """Rows of one size, and a remainder; also where each row is cut along time."""
    with hf.use_backend("numpy"), memory.limit("cpu", "1500KiB"):
        hf.fft(X)
        rows = hf.last_decision()
        assert rows is not None
        assert len(made) <= 2 < rows.chunks
        made.clear()
        get_operation("causal_convolution")(X.ravel(), np.stack([X.ravel()] * 4))
        blocks = hf.last_decision()
    assert blocks is not None
    assert 4 * len(made) <= blocks.chunks


def test_memory_is_checked_before_each_chunk(made: list[Plan]) -> None:
    """A chunk that fitted and no longer does is cut, and fits again when there is memory."""
    job = job_of(hf.fft, X, backend="numpy")
    job.run((X,))
    with memory.limit("cpu", "1MiB"), pytest.raises(ChunkTooLargeError, match="no room|fits into memory"):
        job.run((X,))
    assert job.chunks == 1
    np.testing.assert_allclose(job.run((X,)), np.fft.fft(X), atol=1e-9)
    assert len(made) == 1


def test_changed_settings_are_followed(made: list[Plan]) -> None:
    """A plan of earlier settings is not current."""
    job = job_of(hf.fft, X, backend="numpy")
    job.run((X,))
    hf.config(performance_threshold=0.2)
    job.run((X,))
    assert len(made) == 2


def test_a_failed_plan_is_not_used_again(made: list[Plan]) -> None:
    """After an arm failed, the next chunk is planned from scratch."""
    fails = iter([False, True, False])

    def kernel(x: Any) -> Any:
        if next(fails):
            raise MemoryError
        return x * 2

    with own_operation(kernel, batchable=True) as op:
        job = job_of(op, X)
        job.run((X,))
        with pytest.raises(ChunkTooLargeError):
            job.run((X,))
        np.testing.assert_array_equal(job.run((X,)), 2 * X)
    assert len(made) == 2 and job.chunks == 2


def test_every_chunk_is_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call of a kind, and each later one."""
    seen: list[bool] = []
    observe = Knowledge.observe

    def watched(self: Knowledge, *args: Any, first: bool, calls: int) -> None:
        seen.append(first)
        assert calls == 1
        observe(self, *args, first=first, calls=calls)

    monkeypatch.setattr(Knowledge, "observe", watched)
    with own_operation(double, batchable=True) as op:
        job = job_of(op, X)
        for _ in range(4):
            job.run((X,))
    assert seen == [True, False, False, False]


def test_the_arm_is_chosen_again_after_a_chunk(made: list[Plan]) -> None:
    """What was learned counts for the rest of the job, with the same plan."""
    with own_operation(double, batchable=True) as op, hf.config(exploration_budget=0.0):
        op.kernel("torch")(lambda x: x * 2)
        x = numbers()
        for backend in ("numpy", "torch"):
            for _ in range(3):
                op(x, backend=backend)
        job = job_of(op, x)
        job.run((x,))
        assert job.decision is not None
        before, plan = job.decision.backend, made[0]
        knowledge = knowledge_for(get_settings())
        for arm in registry.arms(op.name):
            for _ in range(8):
                seconds = 0.5 if arm.backend == before else 1e-6
                knowledge.observe(plan.request, knowledge.option(plan.request, arm), seconds, first=False, calls=1)
        job.run((x,))  # its end is the next review
        job.run((x,))
        assert job.decision.backend != before
    assert made == [plan]


class Clock:
    """A timer of a device that has passed both marks."""

    def __init__(self) -> None:
        self.marks: list[str] = []

    def start(self) -> None:
        self.marks.append("start")

    def stop(self) -> None:
        self.marks.append("stop")

    def seconds(self) -> float:
        return 0.25


def test_asynchronous_chunks_are_timed_by_their_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's clock sees only the launch of their work."""
    adapter, clocks = type(registry.adapter("torch")), []

    def timer(self: Any, device: str) -> Clock:
        clocks.append(Clock())
        return clocks[-1]

    monkeypatch.setattr(adapter, "is_asynchronous", lambda self, device: True)
    monkeypatch.setattr(adapter, "timer", timer)
    with own_operation(double, batchable=True) as op:
        op.kernel("torch")(lambda x: x * 2)
        x = torch.ones(64, 16)
        job = job_of(op, x, backend="torch")
        for _ in range(4):
            job.run((x,))
        row = next(row for row in hf.explain(op, x, backend="torch").decision.candidates if row.backend == "torch")
    assert [clock.marks for clock in clocks] == [["start", "stop"]] * 3  # the first run was timed by the host
    assert row.samples >= 2 and row.seconds > 0.1


def test_peaks_of_mapped_files_are_not_measured(tmp_path: Path) -> None:
    """Their pages become resident while they are read, and would be counted twice."""
    request = make_request(hf.fft.primitive, (ArraySpec((64, 2**18), "float64"),), {}, backend="numpy")
    arm = next(arm for arm in registry.arms("fft") if arm.backend == "numpy")
    mapped = np.memmap(tmp_path / "x", np.float64, "w+", shape=(8,))
    assert read_marks(request, arm, (np.ones(8),)) is not None
    assert read_marks(request, arm, (mapped,)) is None
    assert read_marks(request, arm, (np.asarray(mapped)[2:],)) is None
