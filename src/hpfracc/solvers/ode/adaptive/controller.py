"""Step size control."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Step sizes form a geometric sequence with this number per factor of 2, so that their tables can be cached.
LEVELS_PER_OCTAVE = 4
_SAFETY = 0.85
_MAX_GROWTH = 2.0
_MIN = 0.1


@dataclass(slots=True)
class Controller:
    """A proportional-integral controller over a ladder of step sizes.

    The error of a step of degree k behaves like ``step^(k + alpha)``.

    Attributes
    ----------
    unit : float
        The step size of level 0.
    alpha : float
        The smallest order.
    level : int
        Level of the next step.
    """

    unit: float
    alpha: float
    level: int = 0
    _previous: float = 1.0

    @property
    def step(self) -> float:
        """The next step."""
        return float(self.unit * 2.0 ** (self.level / LEVELS_PER_OCTAVE))

    def limit(self, longest: float) -> None:
        """Limit the next step to this length."""
        highest = LEVELS_PER_OCTAVE * (math.log2(longest) - math.log2(self.unit)) + 1e-9
        self.level = min(self.level, math.floor(highest))

    def growth(self, error: float, degree: float) -> float:
        """Factor by which the step could have been longer with this degree."""
        return float(_SAFETY * max(error, 1e-10) ** (-1.0 / (degree + self.alpha)))

    def accept(self, error: float, degree: int, most: float = math.inf) -> None:
        """Choose the next step after one with this error, in units of the tolerance; ``most`` bounds its growth."""
        power = 1.0 / (degree + self.alpha)
        error = max(error, 1e-10)
        factor = _SAFETY * error ** (-0.7 * power) * self._previous ** (0.4 * power)
        factor = min(max(min(factor, most), _MIN), _MAX_GROWTH)
        self._previous = max(error, 1e-4)
        self.level += math.floor(LEVELS_PER_OCTAVE * math.log2(factor) + 0.25)

    def reject(self, error: float, degree: float) -> None:
        """Choose a shorter step after a rejected one."""
        factor = min(max(self.growth(error, degree), _MIN), 0.8)
        self.level += min(math.floor(LEVELS_PER_OCTAVE * math.log2(factor)), -1)

    def shrink(self) -> None:
        """Choose a quarter of the step because the equation of a step could not be solved."""
        self.level -= 2 * LEVELS_PER_OCTAVE

    def restart(self) -> None:
        """Restart with the length of the first step."""
        self.level = min(self.level, 0)
        self._previous = 1.0

    def start_with(self, step: float) -> None:
        """Try this length next."""
        self.level = math.floor(LEVELS_PER_OCTAVE * math.log2(step / self.unit))
