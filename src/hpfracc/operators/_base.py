"""One way to call every operator: samples or a callable, points or a step, and a full account if asked for."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from hpfracc._arrays import PAIR_KINDS, device_of, library_of
from hpfracc.engine.execution.api import composite
from hpfracc.engine.selection.decision import Decision
from hpfracc.errors import InvalidInputError
from hpfracc.operators._function import Function, read_function
from hpfracc.operators._grids import Grid, read_grid
from hpfracc.operators._namespace import namespace_of
from hpfracc.operators._order import Order
from hpfracc.operators._rule import Rule
from hpfracc.operators._values import Samples, as_values, check_axis, join, move_axis

__all__ = ["FractionalOperator", "OperatorResult", "Outcome", "apply_rule", "order_beside", "pick_rule"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an operator hands to the base: the value with its points along the last axis, and how it was found.

    ``error`` makes the estimate of the absolute error, broadcastable to ``value``; it is called only if asked for.
    """

    value: Any
    method: str
    error: Callable[[], Any] | None = None
    converged: bool = True
    message: str = ""
    #: Where it is the same for every such call: the value from samples of this length and dtype, whatever their step.
    again: Callable[[Samples], Any] | None = None


#: What to do with samples that were met before, by operator, length and dtype: reading and checking everything anew
#: takes longer than the work on some thousand points.
_again: dict[Any, Callable[[Samples], Any]] = {}
_MOST_REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class OperatorResult:
    """What ``full_output=True`` gives.

    Attributes
    ----------
    value : array
        The answer, as without ``full_output``.
    method : str
        The method that ran.
    error_estimate : array or float
        Estimate of the absolute error, broadcastable to ``value`` with its points along the last axis; nan where there
        is none: at the first points, or for a method that has none at all.
    decision : Decision, list of Decision or None
        What the engine decided along the way.
    origin : float
        Where the operator starts.
    converged : bool
        Whether the tolerance was met, for callables; True for samples, which have none.
    message : str
        What the caller should know, in words.
    """

    value: Any
    method: str
    error_estimate: Any
    decision: Decision | list[Decision] | None
    origin: float
    converged: bool = True
    message: str = field(default="")


class FractionalOperator(ABC):
    """An operator is pure data (a frozen dataclass) that can be called; subclasses are final.

    A subclass has the fields ``alpha`` and ``method`` (and its own), and says what it does to samples and to functions.
    """

    __slots__ = ()

    #: Full name of the definition, and the short ones it is also known by.
    definition: ClassVar[str]
    short_names: ClassVar[tuple[str, ...]] = ()
    #: ``"derivative"`` or ``"integral"``: which of the two factories makes it.
    kind: ClassVar[str] = "derivative"
    #: The formula, in LaTeX, for the reference page.
    formula: ClassVar[str]
    #: The rules for uniform grids by the name ``method=`` knows them by; the first is the default.
    rules: ClassVar[Mapping[str, Rule]] = {}
    #: The grids it takes.
    grids: ClassVar[tuple[str, ...]] = ("uniform",)

    def __call__(
        self,
        f: Any,
        t: Any = None,
        *,
        step: Any = None,
        axis: int = -1,
        origin: float | None = None,
        factor: float | None = None,
        rtol: float | None = None,
        backend: Any = None,
        full_output: bool = False,
    ) -> Any:
        """Apply the operator.

        Parameters
        ----------
        f : array_like or callable
            Samples, with any leading shape, or a function of an array of points.
        t : array_like, optional
            The points: those of the samples, or those at which a callable's result is wanted.
        step : float, optional
            Distance of the samples, instead of ``t``; may carry a derivative.
        axis : int
            The axis of the samples along which the points lie.
        origin : float, optional
            Where the operator starts: ``t[0]`` for samples, 0 for callables.
        factor : float, optional
            For a callable: it is ``(t - origin)**factor`` times a smooth function, which is kept exact.
        rtol : float, optional
            For a callable: tolerance relative to the largest value; 1e-10 by default.
        backend : str, optional
            Where the engine is to do the work.
        full_output : bool
            Give an :class:`OperatorResult` instead of the value alone.

        Returns
        -------
        array or OperatorResult
            An array of the caller's own kind, shaped like the samples (like ``t`` for a callable).
        """
        if type(step) is float and t is None and origin is None and factor is None and rtol is None:
            again = None if full_output else self._met_before(f, step, axis)
            if again is not None:
                with np.errstate(invalid="ignore"):
                    return again(Samples(f, Grid(f.shape[-1], 0.0, step), backend))
        problem: Samples | Function
        if callable(f) and not hasattr(f, "dtype"):
            if step is not None:
                raise InvalidInputError(
                    "step= is for samples; give the points t at which a callable's result is wanted"
                )
            problem = read_function(f, t, origin=origin, factor=factor, rtol=rtol, axis=axis, backend=backend)
            run: Callable[[Any], Outcome] = self._of_function
            start = problem.origin
        else:
            for name, option in (("factor", factor), ("rtol", rtol)):
                if option is not None:
                    raise InvalidInputError(f"{name}={option!r} is for callables; samples have no use for it")
            values = as_values(f, self._order_like(), step)
            axis = check_axis(axis, values.ndim)
            values = move_axis(values, axis, -1)
            problem = Samples(values, read_grid(t, step, origin, values.shape[-1]), backend)
            run = self._of_samples
            start = problem.grid.origin
        # A JAX order is float64 inside, whatever the user's setting: the samples keep their dtype.
        with namespace_of(self._order_like()).scope(), composite() as decisions:
            outcome = run(problem)
            made = list(decisions)  # those of the answer, without what the estimate of its error takes
            estimate: Any = math.nan
            if full_output and outcome.error is not None:
                estimate = outcome.error()
        value = outcome.value
        if outcome.again is not None and isinstance(problem, Samples) and problem.values is f:
            if len(_again) >= _MOST_REMEMBERED:
                _again.clear()
            _again[self, f.shape[-1], f.dtype] = outcome.again
        if isinstance(problem, Function):
            value = problem.shaped(value)
        elif axis != -1:
            value = move_axis(value, -1, axis)
        if not full_output:
            return value
        decision = made[0] if len(made) == 1 else made or None
        return OperatorResult(value, outcome.method, estimate, decision, start, outcome.converged, outcome.message)

    def _met_before(self, f: Any, step: float, axis: Any) -> Callable[[Samples], Any] | None:
        """What to do with samples of a kind met before, along the last axis and with a step that is one."""
        kind = type(f)
        if not (kind is np.ndarray or kind in PAIR_KINDS) or not f.ndim or not 0.0 < step < math.inf:
            return None
        # A bool is no axis, though it counts as a number.
        if type(axis) is not int or axis not in (-1, f.ndim - 1) or type(self._order_like()) is not float:
            return None
        return _again.get((self, f.shape[-1], f.dtype))

    def _order_like(self) -> Any:
        """What decides the library beside the samples: the order."""
        return getattr(self, "alpha", None)

    @abstractmethod
    def _of_samples(self, samples: Samples) -> Outcome:
        """Apply to samples, on a grid that may or may not be uniform."""

    @abstractmethod
    def _of_function(self, function: Function) -> Outcome:
        """Apply to a callable."""


def order_beside(order: Order, values: Any) -> Order:
    """The order on the device of the samples."""
    if library_of(values) == "torch" and not order.plain and device_of(order.value) != device_of(values):
        return Order(order.value.to(values.device), order.known, order.ceiling, namespace_of(values))
    return order


def pick_rule(rules: Mapping[str, Rule], method: str, who: str) -> Rule:
    """The rule that ``method`` names, the first one for ``"auto"``, or an error with the names there are."""
    if method == "auto":
        return next(iter(rules.values()))
    found = rules.get(method)
    if found is None:
        raise InvalidInputError(
            f"{who} has no method {method!r} for samples on a uniform grid; use 'auto' or one of {', '.join(rules)}"
        )
    return found


def apply_rule(rule: Rule, samples: Samples, order: Order, who: str) -> Outcome:
    """Apply a rule to samples on a uniform grid, with its distance from its companion as the error estimate."""
    samples.grid.require_uniform(f"{who} by {rule.name!r}")
    order = order_beside(order, samples.values)
    rule.check(samples, order, who)
    # Non-finite samples are data, and inf - inf is no accident.
    with np.errstate(invalid="ignore"):
        value = rule.apply(samples, order)
    companion = rule.companion

    def error() -> Any:
        assert companion is not None
        with np.errstate(invalid="ignore"):
            distance = abs(value - companion.apply(samples, order))
        blind = min(rule.measured_from(order), samples.n)
        return join([distance[..., :blind] + math.nan, distance[..., blind:]]) if blind else distance

    again = (lambda samples: rule.apply(samples, order)) if rule.one_call and order.plain else None
    return Outcome(value, rule.name, None if companion is None else error, again=again)
