"""The base class of methods for samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from importlib import import_module
from typing import Any, ClassVar, Self

from hpfracc.errors import ShapeError
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.values import Samples, step_power


class Rule(ABC):
    """One method: stateless, one instance per module. Its docstring has the formula, the order and a citation."""

    #: Its ``method=`` name.
    name: ClassVar[str]
    #: Its cost for n points.
    cost: ClassVar[str] = "O(n log n)"
    #: The rule whose difference from this one estimates the error, or None.
    companion: ClassVar[Rule | None] = None
    #: Whether that difference is an estimate by itself, at the first points too.
    companion_suffices: ClassVar[bool] = True
    #: Whether it accepts any increasing grid, or only uniform ones.
    any_grid: ClassVar[bool] = False
    #: Whether applying it makes a single engine call, so that no decisions need to be collected.
    one_call: ClassVar[bool] = False

    #: Whether its difference from itself on every other sample is an error estimate: for causal rules.
    halves: ClassVar[bool] = True
    #: Whether its result depends on the step, even for one sample.
    needs_step: ClassVar[bool] = True

    #: The order of its differences for derivatives of whole order, where it takes them.
    terms: int = 4

    #: Its order of accuracy, and the fewest samples it needs, where they are the same for every order.
    usual_accuracy: ClassVar[float]
    least: ClassVar[int] = 1

    def accuracy(self, alpha: float) -> float:
        """The order of accuracy at a fixed point beyond the origin, for smooth samples: the error is O(h^accuracy)."""
        return self.usual_accuracy

    def least_points(self, order: Order) -> int:
        """The fewest samples it needs."""
        return self.least

    def head(self, order: Order) -> tuple[int, int]:
        """The number of first points that depend on later samples than their own, and the number of those samples.

        ``(0, 0)`` if every point depends only on samples up to its own.
        """
        return 0, 0

    def can_repeat(self, order: Order) -> bool:
        """Whether it can be applied to other samples of the same kind without reading the call again."""
        return self.one_call

    def start_error(self, samples: Samples, order: Order) -> Any:
        """Estimate of the error at every point that comes from derivatives at the origin, where it uses them."""
        return 0.0

    def measured_from(self, order: Order) -> int:
        """The first point at which its error can be estimated."""
        return 0

    def linear(self) -> Rule:
        """The rule itself, or where its choices depend on the samples, the one that it corrects."""
        return self

    def changed(self, **parameters: Any) -> Self:
        """The same rule with other parameters."""
        found = copy(self)
        vars(found).update(parameters)
        return found

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
            # On a uniform grid the rule's own factor reports it.
            for exponent in (-order.known, order.known):
                step_power((grid.points[-1] - grid.points[0]) / samples.n, exponent, samples.values)
        if samples.n == 1 and samples.grid.points is not None and self.needs_step and order.known != 0.0:
            raise ShapeError(
                f"{who} by {self.name!r} needs the step, which one point does not define; give step= instead of t, or "
                "at least 2 points"
            )


#: What a rule that extends another one has of it.
_INHERITED = ("name", "cost", "any_grid", "one_call", "companion_suffices", "terms")
_METHODS = ("accuracy", "least_points", "head", "measured_from")


class DelegatingRule(Rule):
    """A rule that extends another one, ``rule``, and has its name, its orders and its companion, extended alike."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        own = [name for name in _METHODS if getattr(type(self), name) is not getattr(Rule, name)]
        vars(self).update({name: getattr(rule, name) for name in (*_INHERITED, *_METHODS) if name not in own})

    def around(self, rule: Rule) -> Rule:
        """Another rule, extended like this one."""
        found = copy(self)
        DelegatingRule.__init__(found, rule)
        return found

    @property
    def companion(self) -> Rule | None:  # type: ignore[override]
        """That of the rule, extended."""
        found = self.rule.companion
        return None if found is None else self.around(found)


Maker = Callable[[], Rule]


def later(path: str, *parts: Any, **options: Any) -> Maker:
    """Makes a rule, when it is called: that of ``module.Class`` in ``rules/``, of other such rules and parameters."""

    def make() -> Rule:
        module, _, name = path.partition(".")
        kind = getattr(import_module(f"hpfracc.operators.rules.{module}"), name)
        made: Rule = kind(*(part() if callable(part) else part for part in parts), **options)
        return made

    return make


def by_degree(path: str, **options: Any) -> RuleTable:
    """The rules of two degrees of a class."""
    return RuleTable({name: later(path, quadratic=name == "quadratic", **options) for name in ("quadratic", "linear")})


#: Convolution quadratures.
QUADRATURES = {f"cq{p}": later("quadrature.ConvolutionQuadrature", p) for p in range(2, 7)}


class RuleTable(Mapping[str, Rule]):
    """The rules of an operator by their ``method=`` names; each is imported and made when it is first used."""

    def __init__(self, makers: Mapping[str, Maker]) -> None:
        self._makers = makers
        self._made: dict[str, Rule] = {}

    def __getitem__(self, name: str) -> Rule:
        found = self._made.get(name)
        if found is None:
            found = self._made.setdefault(name, self._makers[name]())
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def wrapped(self, path: str, **options: Any) -> RuleTable:
        """Each of the rules in another one."""
        return RuleTable({name: later(path, make, **options) for name, make in self._makers.items()})
