"""Four levels of pressure, entered at one mark and left a little below it."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from hpfracc.errors import InvalidInputError

__all__ = ["Levels", "Pressure"]

#: Shares of memory in use at which moderate, high and critical begin, and how much lower each is left.
MARKS, BELOW = (0.60, 0.75, 0.90), 0.05


class Pressure(enum.StrEnum):
    """How full memory is."""

    LOW = "low"
    MODERATE = "moderate"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 for low to 3 for critical."""
        return list(Pressure).index(self)


class Levels:
    """The level of a series of readings.

    Parameters
    ----------
    marks : sequence of float
        Shares in use at which moderate, high and critical begin.
    below : float
        How much lower than its mark a level is left, so that a reading that trembles changes nothing.
    """

    def __init__(self, marks: Sequence[float] = MARKS, below: float = BELOW) -> None:
        marks = tuple(marks)
        if len(marks) != 3 or not 0.0 < marks[0] < marks[1] < marks[2] <= 1.0:
            raise InvalidInputError(f"thresholds={marks!r} are not three rising shares; use such as (0.6, 0.75, 0.9)")
        if not 0.0 <= below < marks[0]:
            raise InvalidInputError(f"hysteresis={below!r} is not a share below {marks[0]}; use such as 0.05")
        self.marks = marks
        self.below = below
        self.level = Pressure.LOW

    def update(self, usage: float) -> Pressure:
        """The level after a reading of ``usage``, a share from 0 to 1."""
        order = list(Pressure)
        rank = self.level.rank
        while rank < 3 and usage >= self.marks[rank]:
            rank += 1
        while rank > 0 and usage < self.marks[rank - 1] - self.below:
            rank -= 1
        self.level = order[rank]
        return self.level
