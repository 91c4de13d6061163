"""The engine's knowledge: the packaged prior, measured times, and what is kept at the end of a process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hpfracc as hf
from hpfracc._config import get_settings
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Arm, KernelSpec
from hpfracc.engine.execution import state
from hpfracc.engine.execution.plan import make_request
from hpfracc.engine.selection.decide import decide
from hpfracc.engine.selection.knowledge import knowledge_for, prior_knots
from hpfracc.engine.selection.wisdom_sharing import export_wisdom
from tests.helpers.own_operations import double, own_operation

W, X = np.ones(300), np.arange(300.0)


def rows(op: hf.Operation, *arrays: np.ndarray) -> dict[str, tuple[int, str]]:
    decision = hf.explain(op, *arrays).decision
    return {row.arm: (row.samples, row.source) for row in decision.candidates if row.refused is None}


def test_samples_survive_the_process() -> None:
    """Written at exit and read by the next process."""
    most = 0
    while most < 2:  # on a slow machine the first times are spread over several arms
        for _ in range(1000):
            hf.causal_convolution(W, X)
        arm, (most, _) = max(rows(hf.causal_convolution, W, X).items(), key=lambda item: item[1][0])
    knowledge_for(get_settings()).wisdom.flush()
    state.reset()
    assert rows(hf.causal_convolution, W, X)[arm][0] > 1


def test_a_changed_kernel_invalidates_only_its_own_times(monkeypatch: pytest.MonkeyPatch) -> None:
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
    export_wisdom(knowledge_for(get_settings()).wisdom, file)
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
        assert {samples for samples, _ in rows(op, X).values()} == {0}


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
    """A damaged file causes a warning, never an error."""
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


def test_a_first_call_far_beyond_its_prediction_counts_as_a_run() -> None:
    """Where nothing is compiled, the next call would take as long: the arm is abandoned."""
    grid, signal, order = np.linspace(0.0, 1.0, 4000) ** 2, np.ones(4000), np.array(-0.5)
    request = make_request(hf.history_sum.primitive, (grid, signal, order), {})
    knowledge = knowledge_for(get_settings())
    first = decide(request, knowledge)
    knowledge.observe(request, first.option, 60.0, first=True, calls=1)
    assert decide(request, knowledge).arm != first.arm


OPERATIONS = ("causal_convolution", "matmul", "fft", "elementwise", "reduction", "bitwise_xor")


def arm(backend: str, algorithm: str, device: str = "cpu", workers: int = 1) -> Arm:
    return Arm(backend, KernelSpec("fft", algorithm, frozenset()), device, workers)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_host_arm_has_a_prior(operation: str):
    """Each has knots with increasing work and time, in the operation's usual dtype."""
    dtype = "int64" if operation == "bitwise_xor" else "float64"
    arms = [each for each in registry.arms(operation) if each.on_host]
    assert "numpy" in {each.backend for each in arms}
    for each in arms:
        knots = prior_knots(operation, each, "host", dtype)
        assert knots, f"{each} of {operation} is not in the prior; run benchmarks/make_prior.py"
        works, times = zip(*knots, strict=True)
        assert list(works) == sorted(set(works))
        assert list(times) == sorted(times)
        assert min(times) > 0.0


def test_the_first_choice_is_reasonable():
    """Without calibration: a direct sum for 16 points, an FFT for a million; a matrix product never by loops."""
    with hf.config(never={name: ["torch", "jax", "cupy"] for name in OPERATIONS}):
        assert hf.explain("causal_convolution", shape=(16,)).decision.algorithm == "direct"
        for points in (10_000, 100_000, 1_000_000):
            assert hf.explain("causal_convolution", shape=(points,)).decision.algorithm == "fft"
        assert hf.explain("matmul", shape=(512, 512)).decision.backend == "numpy"


def test_the_first_call_imports_no_library():
    """One small call is not worth an import or a compilation."""
    for operation in OPERATIONS:
        assert hf.explain(operation, shape=(8, 8)).decision.backend == "numpy"
