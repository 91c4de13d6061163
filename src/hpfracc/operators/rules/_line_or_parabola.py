"""What rules share that interpolate by lines or, with the line as their companion, by parabolas."""

from __future__ import annotations

from hpfracc.operators._order import Order
from hpfracc.operators.core.rule import Rule

__all__ = ["LineOrParabola"]


class LineOrParabola(Rule):
    """A rule in two degrees: ``"linear"`` of order 2, and ``"quadratic"`` of order 3 whose first interval is a line."""

    def __init__(self, *, quadratic: bool) -> None:
        self.quadratic = quadratic

    @property
    def name(self) -> str:  # type: ignore[override]
        """``"linear"`` or ``"quadratic"``."""
        return "quadratic" if self.quadratic else "linear"

    @property
    def companion(self) -> Rule | None:  # type: ignore[override]
        """The linear rule, of the quadratic one."""
        return type(self)(quadratic=False) if self.quadratic else None

    def accuracy(self, alpha: float) -> float:
        """2 or 3."""
        return 3.0 if self.quadratic else 2.0

    def least_points(self, order: Order) -> int:
        """Two."""
        return 2

    def measured_from(self, order: Order) -> int:
        """Two, where the first parabola is drawn."""
        return 2
