"""Adaptive steps over an interval, from stop to stop until the end or a failure, in several passes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

from hpfracc.solvers.stepping.options import Options
from hpfracc.solvers.stepping.step import AdaptiveStep
from hpfracc.solvers.stepping.system import FlatSystem, NotFiniteError

#: Maximum number of passes to bring the global error below the tolerance.
MAX_PASSES = 6
#: A pass is abandoned when its global error exceeds this multiple of the tolerance.
HOPELESS = 4.0
#: Multiple of the tolerance that counts as reached after the last pass, because error estimates are rough.
TOLERATED = 10.0


def smaller_share(share: float, ratio: float) -> float:
    """The share of the tolerance for a step in the pass after one with this ratio of the error to the tolerance."""
    return share * min(max(0.5 / ratio, 0.02), 0.7)


class AdaptiveWalk(ABC):
    """One pass over an interval, with a fixed fraction of the tolerance for each step.

    Parameters
    ----------
    system : FlatSystem
        The equation.
    options : Options
        Its ``max_steps`` and ``rtol``.
    end : float
        The end of the interval, as the user counts time.

    Attributes
    ----------
    step : AdaptiveStep or None
        Takes the steps; None before it has a first value.
    success, interrupted, message : bool, bool, str
        How the pass ended.
    longest : float
        The longest step that the equation allows.
    """

    longest = math.inf

    def __init__(self, system: FlatSystem, options: Options, end: float) -> None:
        self.system, self.options, self._end = system, options, end
        self.step: AdaptiveStep | None = None
        self.success, self.interrupted, self.message = True, False, "The end of the interval was reached."

    @abstractmethod
    def begin(self) -> AdaptiveStep:
        """Make the steps."""

    @abstractmethod
    def stops(self) -> Sequence[float]:
        """Times after the start at which steps end and start anew behind, and the end."""

    @abstractmethod
    def enter(self, number: int, stop: float) -> None:
        """Called before the steps to the stop of this number."""

    @abstractmethod
    def note(self, step: AdaptiveStep) -> bool:
        """Record the newest step; returns whether to go on."""

    def explain(self, failure: str) -> str:
        """The reason why a step failed, in words."""
        return failure

    @property
    def ratio(self) -> float:
        """The estimated global error over the tolerance."""
        return math.nan if self.step is None else self.step.ratio

    @property
    def jump(self) -> float | None:
        """Time of a jump of the right-hand side that was passed with longer steps than the tolerance allows."""
        return None if self.step is None or self.step.jumped is None else self.system.time(self.step.jumped)

    def fail(self, message: str) -> None:
        """End with a failure."""
        self.success, self.message = False, message

    def run(self, most_ratio: float) -> None:
        """Step until the end, a terminal event, a failure, or a ratio of the error to the tolerance."""
        try:
            failure = self._steps(most_ratio)
        except NotFiniteError as error:
            failure = f"{error}: check the right-hand side, the data and the initial values."
        if failure is not None:
            self.fail(failure)

    def _steps(self, most_ratio: float) -> str | None:
        """Take the steps; returns the reason if they fail."""
        options, stops = self.options, self.stops()
        step = self.step = self.begin()
        for number, stop in enumerate(stops):
            self.enter(number, stop)
            if number:
                step.restart()
            while step.tau < stop:
                if step.accepted >= options.max_steps:
                    return (
                        f"max_steps={options.max_steps} steps reach t = {self.system.time(step.tau):g} of "
                        f"{self._end:g}: raise max_steps, or loosen rtol={options.rtol:g}."
                    )
                failure = step.advance(min(stop, step.tau + self.longest))
                if failure is not None:
                    return self.explain(failure)
                if not self.note(step) or (step.ratio > most_ratio and step.jumped is None):
                    return None
        return None
