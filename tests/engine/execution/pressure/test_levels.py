"""Four levels, entered at a mark and left five points below it."""

from __future__ import annotations

from hpfracc.engine.execution.pressure.monitor import Levels, Pressure


def test_levels_are_left_lower_than_they_are_entered() -> None:
    """Up at 60, 75 and 90 %; down only below 85, 70 and 55 %."""
    levels = Levels()
    series = [0.59, 0.60, 0.56, 0.549, 0.80, 0.71, 0.69, 0.95, 0.86, 0.849, 0.5]
    seen = [str(levels.update(usage)) for usage in series]
    assert seen == [
        "low", "moderate", "moderate", "low", "high", "high", "moderate", "critical", "critical", "high", "low",
    ]  # fmt: skip


def test_a_trembling_reading_changes_nothing() -> None:
    """A reading that goes to and fro across a mark enters the level once."""
    levels = Levels()
    seen = [levels.update(0.75 + (0.01 if step % 2 else -0.01)) for step in range(20)]
    assert seen[1:] == [Pressure.HIGH] * 19
