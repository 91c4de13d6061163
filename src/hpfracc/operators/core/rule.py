"""The base class of methods for samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from hpfracc.errors import ShapeError
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.values import Samples, step_power

__all__ = ["DelegatingRule", "Rule"]


class Rule(ABC):
    """One method: stateless, one instance a module. Its docstring has the formula, the order and a citation."""

    #: What ``method=`` calls it.
    name: ClassVar[str]
    #: What it costs for n points.
    cost: ClassVar[str] = "O(n log n)"
    #: The rule whose distance from this one estimates the error, or None.
    companion: ClassVar[Rule | None] = None
    #: Whether it takes any increasing grid, or uniform ones only.
    any_grid: ClassVar[bool] = False
    #: Whether applying it makes a single engine call, so that there is nothing to collect around it.
    one_call: ClassVar[bool] = False

    #: Whether its answer depends on the step, even for one sample.
    needs_step: ClassVar[bool] = True

    @abstractmethod
    def accuracy(self, alpha: float) -> float:
        """The order of accuracy at a fixed point beyond the origin, for smooth samples: the error is O(h^accuracy)."""

    @abstractmethod
    def least_points(self, order: Order) -> int:
        """The fewest samples it works with."""

    def head(self, order: Order) -> tuple[int, int]:
        """How many first points come from how many first samples, later ones than their own among them.

        ``(0, 0)`` where every point takes the samples up to its own alone.
        """
        return 0, 0

    def measured_from(self, order: Order) -> int:
        """The first point at which it differs from its companion: before, their distance says nothing of the error."""
        return 0

    def magnification(self, alpha: float) -> float:
        """A bound of what it makes of rounding of the samples, in units of ``step**-alpha``: its weights' summed sizes.

        0 for a rule that integrates, which makes less of them.
        """
        return 0.0

    @abstractmethod
    def apply(self, samples: Samples, order: Order) -> Any:
        """The operator at every point, shaped like ``samples.values``."""

    def check(self, samples: Samples, order: Order, who: str) -> None:
        """Refuse too few samples."""
        least = self.least_points(order)
        if samples.n < least:
            raise ShapeError(
                f"{who} of order {order.known if order.known is not None else 'alpha'} by {self.name!r} needs at least "
                f"{least} sample{'s' * (least > 1)}, but {samples.n} {'was' if samples.n == 1 else 'were'} given; "
                "sample more finely, or give f as a callable"
            )
        grid = samples.grid
        if grid.step is None and grid.points is not None and order.known:
            # On a uniform grid the rule's own factor says so.
            for exponent in (-order.known, order.known):
                step_power((grid.points[-1] - grid.points[0]) / samples.n, exponent, samples.values)
        if samples.n == 1 and samples.grid.points is not None and self.needs_step and order.known != 0.0:
            raise ShapeError(
                f"{who} by {self.name!r} needs the step, which one point does not tell; give step= instead of t, or at "
                "least 2 points"
            )


class DelegatingRule(Rule):
    """A rule that does more than another one, ``rule``, and has its name and its orders."""

    rule: Rule

    @property
    def name(self) -> str:  # type: ignore[override]
        """That of the rule."""
        return self.rule.name

    def accuracy(self, alpha: float) -> float:
        """That of the rule."""
        return self.rule.accuracy(alpha)

    def least_points(self, order: Order) -> int:
        """That of the rule."""
        return self.rule.least_points(order)

    def head(self, order: Order) -> tuple[int, int]:
        """That of the rule."""
        return self.rule.head(order)

    def measured_from(self, order: Order) -> int:
        """That of the rule."""
        return self.rule.measured_from(order)

    def magnification(self, alpha: float) -> float:
        """That of the rule."""
        return self.rule.magnification(alpha)
