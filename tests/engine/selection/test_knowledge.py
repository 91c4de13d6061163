"""What is learned in one process is there in the next; deterministic runs decide the same every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hpfracc as hf
from hpfracc._config import get_settings
from hpfracc.engine.execution import state
from hpfracc.engine.execution.plan import make_request
from hpfracc.engine.selection.decide import decide
from hpfracc.engine.selection.knowledge import knowledge_for
from tests.helpers.own_operations import double, own_operation

W, X = np.ones(300), np.arange(300.0)


def rows(op: hf.Operation, *arrays: np.ndarray) -> dict[str, tuple[int, str]]:
    decision = hf.explain(op, *arrays).decision
    return {row.arm: (row.samples, row.source) for row in decision.candidates if row.refused is None}


def test_samples_survive_the_process() -> None:
    """Written at exit, read by the next process: the arm starts with what was measured."""
    for _ in range(30):
        hf.causal_convolution(W, X)
    arm = max(rows(hf.causal_convolution, W, X).items(), key=lambda item: item[1][0])[0]
    assert rows(hf.causal_convolution, W, X)[arm][0] > 3
    knowledge_for(get_settings()).wisdom.flush()
    state.reset()
    assert rows(hf.causal_convolution, W, X)[arm][0] > 3


def test_a_changed_kernel_voids_its_own_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are kept under the arm's fingerprint."""
    for _ in range(30):
        hf.causal_convolution(W, X)
    knowledge_for(get_settings()).wisdom.flush()
    known = {arm for arm, (samples, _) in rows(hf.causal_convolution, W, X).items() if samples}
    state.reset()
    monkeypatch.setattr("hpfracc.engine.backends.registry.source_hash", lambda *key: "changed")
    assert known and not any(rows(hf.causal_convolution, W, X)[arm][0] for arm in known)


def test_deterministic_runs_learn_nothing(tmp_path: Path) -> None:
    """The same decision every time, whatever is measured meanwhile; the file is not written."""
    file = tmp_path / "fixed.json"
    for _ in range(20):
        hf.causal_convolution(W, X)
    knowledge_for(get_settings()).wisdom.export(file)
    before = file.read_bytes()
    with hf.config(deterministic=True, wisdom=file):
        first = hf.explain(hf.causal_convolution, W, X).to_dict()
        for _ in range(100):
            hf.causal_convolution(W, X)
        assert hf.explain(hf.causal_convolution, W, X).to_dict() == first
    assert file.read_bytes() == before


def test_learning_switched_off_keeps_the_choice() -> None:
    """``enable_learning=False``: nothing is timed, nothing is written."""
    with hf.config(enable_learning=False), own_operation(double) as op:
        op.kernel("torch")(double)
        for _ in range(50):
            op(X)
        assert all(samples == 0 for samples, _ in rows(op, X).values())


def test_wisdom_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """``HPFRACC_WISDOM=off`` writes no file anywhere."""
    monkeypatch.setenv("HPFRACC_WISDOM", "off")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    state.reset()
    for _ in range(20):
        hf.causal_convolution(W, X)
    knowledge_for(get_settings()).wisdom.flush()
    assert list(tmp_path.rglob("*")) == []


def test_corrupted_wisdom_is_set_aside(tmp_path: Path) -> None:
    """A damaged file costs a warning, never an answer."""
    folder = tmp_path / "wisdom"
    folder.mkdir()
    (folder / "wisdom.json").write_text('{"version": 1, "records": [{"id":')
    with pytest.warns(hf.errors.WisdomWarning, match="damaged"):
        y = hf.causal_convolution(W, X)
    np.testing.assert_allclose(y, np.convolve(W, X)[:300])
    assert any("damaged" in path.name for path in folder.iterdir())


def times(shape: tuple[int, ...]) -> dict[str, float]:
    decision = hf.explain("history_sum", shape=shape).decision
    return {row.arm: row.total for row in decision.candidates if row.refused is None}


def test_threads_that_wait_for_one_another_are_not_trusted_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unmeasured, such arms are expected to take longer with the load; others, and deterministic runs, are not."""
    pytest.importorskip("torch")
    quiet = times((4000,))
    state.reset()
    monkeypatch.setattr("hpfracc.engine.selection.knowledge.machine_load", lambda: 5.0)
    busy = times((4000,))
    assert busy["torch:direct@cpu"] == pytest.approx(6.0 * quiet["torch:direct@cpu"])
    assert busy["numpy:direct@cpu"] == pytest.approx(quiet["numpy:direct@cpu"])
    with hf.config(deterministic=True):
        assert times((4000,))["torch:direct@cpu"] == pytest.approx(quiet["torch:direct@cpu"])


def test_a_first_call_far_beyond_its_prediction_counts_as_a_run() -> None:
    """Where nothing is compiled the next call would take as long: the arm is left at once."""
    grid, signal, order = np.linspace(0.0, 1.0, 4000) ** 2, np.ones(4000), np.array(-0.5)
    request = make_request(hf.history_sum.primitive, (grid, signal, order), {})
    knowledge = knowledge_for(get_settings())
    first = decide(request, knowledge)
    knowledge.observe(request, first.option, 60.0, first=True, calls=1)
    assert decide(request, knowledge).arm != first.arm


def test_a_first_call_that_warms_up_is_no_run() -> None:
    """A second more than predicted may be what is loaded once."""
    grid, signal, order = np.linspace(0.0, 1.0, 4000) ** 2, np.ones(4000), np.array(-0.5)
    request = make_request(hf.history_sum.primitive, (grid, signal, order), {})
    knowledge = knowledge_for(get_settings())
    first = decide(request, knowledge)
    knowledge.observe(request, first.option, first.expected + 0.9, first=True, calls=1)
    assert decide(request, knowledge).arm == first.arm
