"""The tolerance of adaptive steps, and the chosen mesh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

__all__ = ["MAX_PASSES", "Chosen", "Tolerance", "next_share"]

Array = np.ndarray[Any, Any]

#: Maximum number of passes to bring the global error below the tolerance.
MAX_PASSES = 6


class Chosen(NamedTuple):
    """A chosen mesh.

    Attributes
    ----------
    taus : array, shape (N + 1,)
        Times after t0.
    degrees : array of int, shape (N,)
        Degree of the polynomial of each step.
    ratio, error : float
        The estimated global error, relative to the tolerance and absolute.
    passes, rejected : int
        Number of passes over the interval, and of rejected steps in the last pass.
    message : str or None
        Why the end was not reached.
    hopeless : bool
        Whether the pass was stopped because its error was too large.
    rules : tuple
        The rule of each step, if they are stored.
    interrupted : bool
        Whether the user interrupted it.
    """

    taus: Array
    degrees: Array
    ratio: float
    error: float
    passes: int
    rejected: int
    message: str | None = None
    hopeless: bool = False
    rules: tuple[Any, ...] = ()
    interrupted: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Tolerance:
    """The tolerance and limits of adaptive steps."""

    rtol: float
    atol: Any
    first_step: float | None
    max_step: float
    max_steps: int
    shortest: float
    rounding: float
    globally: bool
    share: float = 1.0

    def too_short(self, t: float, step: float, stiff: bool) -> str:
        """The message if steps became too short."""
        return (
            f"The tolerance cannot be reached beyond t = {t:.6g}: steps of {step:.1e} would be needed there. "
            f"Loosen rtol={self.rtol:g} or atol, or check whether the solution ends there{_STIFF if stiff else '.'}"
        )

    def too_many(self, t: float, stiff: bool) -> str:
        """The message if there were too many steps."""
        return (
            f"max_steps={self.max_steps} steps reach t = {t:g}: raise max_steps, or loosen rtol={self.rtol:g}"
            f"{_STIFF if stiff else '.'}"
        )


_STIFF = "; the equation seems stiff: use method='l1', 'l2_1sigma' or 'implicit_trapezoid' with a step."


def next_share(share: float, ratio: float) -> float:
    """Fraction of the tolerance for a step, after a pass whose error was ``ratio`` times the tolerance."""
    return share * min(max(0.5 / ratio, 0.02), 0.7)
