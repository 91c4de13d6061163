"""The tolerance of adaptive steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["MAX_PASSES", "Tolerance", "next_share"]

#: Maximum number of passes to bring the global error below the tolerance.
MAX_PASSES = 6


@dataclass(frozen=True, slots=True)
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
