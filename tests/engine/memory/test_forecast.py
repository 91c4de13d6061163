"""Predictions are kept beside what came of them, and corrected by it: upwards at once, downwards with care."""

from __future__ import annotations

import pytest

from hpfracc.engine.memory.forecast import Forecasts

KEY = ("fft", "torch:default", "cuda", "float64 rfft")
MIB = 2**20


def test_too_little_is_corrected_at_once_and_too_much_after_three() -> None:
    """One call that took twice as much doubles the next prediction; one that took half changes nothing yet."""
    seen = Forecasts()
    seen.observe(KEY, 100 * MIB, 200 * MIB)
    assert seen.correction(KEY) == pytest.approx(2.0)
    seen = Forecasts()
    for count in range(3):
        assert seen.correction(KEY) == 1.0, count
        seen.observe(KEY, 100 * MIB, 50 * MIB)
    assert seen.correction(KEY) == pytest.approx(0.5)


def test_the_worst_of_late_calls_counts() -> None:
    """Between calls that took 1.1 and 1.4 times as much, the next is expected to be like the latter."""
    seen = Forecasts()
    for ratio in (1.1, 1.4, 1.2):
        seen.observe(KEY, 100 * MIB, int(ratio * 100 * MIB))
    assert seen.correction(KEY) == pytest.approx(1.4)
    for _ in range(16):
        seen.observe(KEY, 100 * MIB, 110 * MIB)
    assert seen.correction(KEY) == pytest.approx(1.1)


def test_what_is_not_exact_never_lowers() -> None:
    """The resident memory of a process may not show memory that is used again."""
    seen = Forecasts()
    for _ in range(5):
        seen.observe(KEY, 100 * MIB, 30 * MIB, exact=False)
    assert seen.correction(KEY) == 1.0
    seen.observe(KEY, 100 * MIB, 150 * MIB, exact=False)
    assert seen.correction(KEY) == pytest.approx(1.5)


def test_small_calls_and_nonsense_are_left_out() -> None:
    """A call of a megabyte says nothing; a disturbance of a hundredfold is not believed."""
    seen = Forecasts()
    seen.observe(KEY, MIB, 5 * MIB)
    seen.observe(KEY, 100 * MIB, 0)
    assert seen.rows() == []
    seen.observe(KEY, 100 * MIB, 10_000 * MIB)
    assert seen.correction(KEY) == 8.0


def test_the_error_is_reported_with_and_without_the_correction() -> None:
    """A model that is always off by a quarter is right once it is corrected, and the row says both."""
    seen = Forecasts()
    for _ in range(9):
        seen.observe(KEY, 100 * MIB, 125 * MIB)
    (row,) = seen.rows()
    assert (row.operation, row.kernel, row.samples) == ("fft", "torch:default", 9)
    assert row.error == pytest.approx(0.2)
    assert row.corrected_error == pytest.approx(0.0)
    assert row.to_dict()["correction"] == pytest.approx(1.25)
