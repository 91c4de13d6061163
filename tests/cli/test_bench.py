"""``hpfracc bench selection`` compares the engine's choices with all arms, measured here."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from hpfracc.cli import main
from hpfracc.cli.bench import live
from hpfracc.cli.bench.live import BenchOutcome, BenchRow


def row(seconds: float = 1.0, least: float = 1.0, spread: float = 1.0, numpy: float = 10.0) -> BenchRow:
    return BenchRow("fft", (64,), "numpy:a@cpu", seconds, seconds, "numpy:b@cpu", least, spread, numpy)


def test_this_machine_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The result has a row for each operation and size, and the summary metrics."""
    for name in ("NUMBA", "TORCH", "JAX", "CUPY"):
        monkeypatch.setenv(f"HPFRACC_DISABLE_{name}", "1")
    monkeypatch.setattr(live, "_EXPONENTS", (5, 9))
    assert main(["bench", "selection", "--operations", "reduction,bitwise_xor", "--budget", "600", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["operation"], row["shape"]) for row in found["rows"]] == [
        ("reduction", [32]),
        ("reduction", [512]),
        ("bitwise_xor", [32]),
        ("bitwise_xor", [512]),
    ]
    for measured in found["rows"]:
        assert measured["ratio"] == pytest.approx(measured["seconds"] / measured["best_seconds"])
        assert measured["ratio"] >= 1.0
        assert measured["call_seconds"] > 0.0
    assert len(found["metrics"]) == 4
    assert main(["bench", "selection", "--operations", "reduction", "--budget", "2"]) == 0
    text = capsys.readouterr().out
    for word in ("reduction", "best arm", "time lost", "<= 3%"):
        assert word in text


def test_the_figures_are_what_they_say():
    """Regret is weighted by time; 10 % slower counts as slow unless the samples vary as much."""
    outcome = BenchOutcome([row(), row(2.0), row(1.2, spread=1.3), row(99.0, 100.0)])
    found = {what: (value, met) for what, value, _, met in outcome.metrics()}
    assert found["time lost against the best arm, in total"] == ("0.2%", True)
    assert found["sizes more than 10 % slower than the best arm"] == ("25.0%", False)
    slower = BenchOutcome([row(numpy=0.5)])
    assert ("sizes slower than NumPy by more than 5 % + 3 us", "1", "0", False) in slower.metrics()
    assert BenchOutcome().metrics() == []


def test_operations_are_timed_on_their_typical_operands(monkeypatch: pytest.MonkeyPatch):
    """A distance map is timed with one source, not with a random price at every point."""
    seen: list[Any] = []

    class SeenError(Exception):
        pass

    def watched(operation: str, arrays: Any, params: Any) -> None:
        seen.append(arrays)
        raise SeenError

    monkeypatch.setattr(live, "ArmTrial", watched)
    monkeypatch.setattr(live, "_EXPONENTS", (6,))
    with pytest.raises(SeenError):
        live.measure(["stencil_relax"], 2.0, lambda share, text: None)
    assert [int(np.isfinite(array).sum()) for array in seen[0]] == [64, 1]
    assert seen[0][0].min() >= 1


def test_sizes_beyond_the_budget_are_reported():
    """Sizes for which no time is left are listed as skipped."""
    outcome = live.measure(["bitwise_xor"], 1e-6, lambda share, text: None)
    assert outcome.rows == []
    assert len(outcome.skipped) == len(live._EXPONENTS)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--operations", "fftt"], "did you mean 'fft'"),
        (["--budget", "-1"], "budget=-1.0"),
        (["--budget", "nan"], "budget=nan"),
    ],
)
def test_bad_options_are_typed_errors(options: list[str], words: str, capsys: pytest.CaptureFixture[str]):
    """The exit status is 2, and the error is one line."""
    assert main(["bench", "selection", *options]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert len(err.splitlines()) == 1
