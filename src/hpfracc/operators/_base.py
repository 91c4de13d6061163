"""One way to call every operator: samples or a callable, points or a step, and a full account if asked for."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict

import numpy as np

from hpfracc._arrays import PAIR_KINDS, device_of, library_of
from hpfracc._frames import Opened, has_labels, open_samples
from hpfracc._xp import namespace_of
from hpfracc.engine.execution.api import composite
from hpfracc.engine.selection.decision import Decision
from hpfracc.errors import InvalidInputError
from hpfracc.operators._again import Again
from hpfracc.operators._estimates import LOST, meets, rounding_note, rounding_of, warn_of
from hpfracc.operators._exponentials import LEAST_TOLERANCE
from hpfracc.operators._function import Function, read_function, read_reflected_function
from hpfracc.operators._grids import Grid, read_grid, read_number
from hpfracc.operators._memory import hint_at_fast
from hpfracc.operators._order import Order
from hpfracc.operators._rule import Rule
from hpfracc.operators._values import Samples, as_values, check_axis, flip, join, move_axis
from hpfracc.profiling.recorder import shared as spans

if TYPE_CHECKING:
    from hpfracc.operators._stream import OperatorStream

__all__ = [
    "FAST",
    "UNIFORM",
    "CallOptions",
    "FractionalOperator",
    "OperatorResult",
    "Outcome",
    "apply_rule",
    "order_beside",
    "pick_rule",
    "relabelled",
    "streamed_rule",
]

#: The names of the method that keeps its memory as a sum of exponentials.
FAST = ("fast", "soe")


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
    #: The error that was asked for, relative to the largest value, where one was.
    rtol: float | None = None
    #: What an operator of this order makes of functions as large as f: the measure of errors where the answer is 0.
    scale: float = 0.0
    #: What is to be said beside the message, found only if asked for.
    note: Callable[[], str] | None = None
    #: Whether values could be looked at: where they are traced nothing is known of the error.
    looked: bool = True
    #: Where it is the same for every such call: the value from samples of this length and dtype, whatever their step.
    again: Again | None = None


#: What to do with samples that were met before, by operator, length and dtype: reading and checking everything anew
#: takes longer than the work on some thousand points.
_again: dict[Any, Again] = {}
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
        is none: at the first points, or for a method that has none at all. That of a derivative of samples includes
        what becomes of their rounding, some eps step^-alpha times the largest of them: from order 5 on it is often all
        there is, and the message then says so.
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


class CallOptions(TypedDict, total=False):
    """The options of a call of an operator, for type checkers; see :meth:`FractionalOperator.__call__`."""

    step: Any
    axis: Any
    dim: Any
    time_unit: str | None
    origin: float | None
    factor: float | None
    rtol: float | None
    backend: Any
    full_output: bool


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
    #: The rules for any increasing grid, in the same way; ``"fast"`` among them serves uniform grids too.
    any_grid_rules: ClassVar[Mapping[str, Rule]] = {}
    #: The grids it takes.
    grids: ClassVar[tuple[str, ...]] = ("uniform",)
    #: ``"left"`` from the origin on, or ``"right"`` up to the end; a field of the operators that have both.
    side = "left"
    #: Where it starts if neither ``origin`` nor samples' points say so; None for 0.
    usual_origin: ClassVar[float | None] = None

    def __call__(
        self,
        f: Any,
        t: Any = None,
        *,
        step: Any = None,
        axis: int | None = None,
        dim: Any = None,
        time_unit: str | None = None,
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
            Samples, with any leading shape, or a function of an array of points. Samples may be a pandas ``Series`` or
            ``DataFrame`` or an xarray ``DataArray``; then the result is one too, with the same labels.
        t : array_like, optional
            The points: those of the samples, or those at which a callable's result is wanted. Those of samples may be
            dates (``datetime64``). Labelled samples need neither ``t`` nor ``step`` where their labels are dates, time
            differences, floating numbers, or whole numbers under a name.
        step : float, optional
            Distance of the samples, instead of ``t``; may carry a derivative.
        axis : int, optional
            The axis of the samples along which the points lie: the last one by default, the index of a frame.
        dim : hashable, optional
            For a ``DataArray``: the name of that axis, needed where there are several.
        time_unit : str, optional
            What dates are counted in: ``"s"`` by default, or ``"ns"``, ``"us"``, ``"ms"``, ``"min"``, ``"h"``,
            ``"D"``, ``"W"``. They count from the first one; a derivative of order alpha is per unit to the power alpha.
        origin : float, optional
            Where the operator starts: ``t[0]`` for samples, 0 for callables. With ``side="right"`` the end b up to
            which it reaches: the last point of ``t``.
        factor : float, optional
            For a callable: it is ``(t - origin)**factor`` times a smooth function, which is kept exact.
        rtol : float, optional
            For a callable: tolerance relative to the largest value; for ``method="fast"``: that of the kernel. 1e-10
            by default.
        backend : str, optional
            Where the engine is to do the work.
        full_output : bool
            Give an :class:`OperatorResult` instead of the value alone.

        Returns
        -------
        array or OperatorResult
            An array of the caller's own kind, shaped like the samples (like ``t`` for a callable; a number where ``t``
            is one).

        Raises
        ------
        DivergenceError
            Where the integral of a callable does not exist, such as that of 1/t from 0.

        Warns
        -----
        AccuracyWarning
            Where the method did not converge on a callable, or where rounding leaves an error above ``rtol`` (above
            1e-3 of the largest value, if none is given); not with ``full_output``, which says so itself.

        Notes
        -----
        A callable is known by its values at some points: 33 at first, more until they agree. A feature that all of them
        miss, one narrower than about 1/200 of the way from the origin to the last point of ``t``, cannot be seen;
        give points of ``t`` up to it and beyond, or samples.
        """
        if type(step) is float and t is None and origin is None and factor is None and rtol is None:
            plain = not (full_output or spans.on) and dim is None and time_unit is None
            again = self._met_before(f, step, axis) if plain else None
            if again is not None:
                return again(f, step, backend)
        if spans.on:
            with spans.span(type(self).__name__):
                return self._opened(f, t, step, axis, dim, time_unit, origin, factor, rtol, backend, full_output)
        return self._opened(f, t, step, axis, dim, time_unit, origin, factor, rtol, backend, full_output)

    def _opened(self, f: Any, t: Any, step: Any, axis: Any, dim: Any, time_unit: Any, origin: Any, *more: Any) -> Any:
        """Apply to samples without their labels, which come back."""
        if dim is None and time_unit is None and not has_labels(f, None if callable(f) else t):
            return self._read_and_run(f, t, step, -1 if axis is None else axis, origin, *more)
        opened = open_samples(f, t, step=step, axis=axis, dim=dim, time_unit=time_unit)
        return relabelled(opened, self._read_and_run(opened.values, opened.t, step, opened.axis, origin, *more))

    def _read_and_run(
        self, f: Any, t: Any, step: Any, axis: Any, origin: Any, factor: Any, rtol: Any, backend: Any, full_output: bool
    ) -> Any:
        """Read samples or a callable with their points, and run what the operator does to them."""
        problem: Samples | Function
        right = self._is_right()
        if origin is None and (t is None or callable(f)):
            origin = self.usual_origin
        if callable(f) and not hasattr(f, "dtype"):
            if step is not None:
                raise InvalidInputError(
                    "step= is for samples; give the points t at which a callable's result is wanted"
                )
            if right:
                read: Callable[..., Function] = read_reflected_function
            else:
                read, origin = read_function, self._start_of(t, origin)
            problem = read(f, t, origin=origin, factor=factor, rtol=rtol, axis=axis, backend=backend)
            run: Callable[[Any], Outcome] = self._of_function
            start = problem.start
        else:
            if factor is not None:
                raise InvalidInputError(f"factor={factor!r} is for callables; samples have no use for it")
            tolerance = None if rtol is None else self._tolerance(rtol)
            values = as_values(f, self._order_like(), step)
            axis = check_axis(axis, values.ndim)
            values = move_axis(values, axis, -1)
            grid = read_grid(t, step, origin, values.shape[-1], from_end=right)
            start = grid.origin
            if right:
                values, grid = flip(values), grid.reflected()
            problem = Samples(values, self._own_grid(grid, t), backend, tolerance)
            if not problem.grid.uniform and getattr(self, "method", None) not in FAST:
                hint_at_fast(self, problem)
            run = self._of_samples
        # A JAX order is float64 inside, whatever the user's setting: the samples keep their dtype.
        with namespace_of(self._order_like()).scope(), composite() as decisions:
            outcome = run(problem)
            made = list(decisions)  # those of the answer, without what the estimate of its error takes
            estimate: Any = math.nan
            checked = isinstance(problem, Function) and outcome.looked
            if (full_output or checked) and outcome.error is not None:
                estimate = outcome.error()
        value = outcome.value
        if right:
            value = flip(value)
            estimate = flip(estimate) if getattr(estimate, "ndim", 0) else estimate
        if outcome.again is not None and isinstance(problem, Samples) and problem.values is f:
            if len(_again) >= _MOST_REMEMBERED:
                _again.clear()
            with contextlib.suppress(TypeError):  # an operator with an array among its fields is met anew every time
                _again[self, f.shape[-1], f.dtype] = outcome.again
        if isinstance(problem, Function):
            value = problem.shaped(value)
        elif axis != -1:
            value = move_axis(value, -1, axis)
        if not (full_output or checked):
            return value
        converged, message = outcome.converged, outcome.message
        # Of a tolerance that nobody named only the loss of nearly all digits is worth a warning.
        limit, scale = outcome.rtol, 0.0
        if limit is not None and rtol is None and not full_output:
            limit, scale = LOST, outcome.scale
        if converged and limit is not None and not meets(value, estimate, limit, scale):
            converged = False
            message += f"; rounding leaves an error above rtol={limit:g} of the largest value"
        if not full_output:
            if not converged:
                warn_of(self, value, estimate, message)
            return value
        decision = made[0] if len(made) == 1 else made or None
        if outcome.note is not None:
            message = "; ".join(part for part in (message, outcome.note()) if part)
        if isinstance(problem, Samples) and problem.grid.note:
            message = "; ".join(part for part in (message, problem.grid.note) if part)
        return OperatorResult(value, outcome.method, estimate, decision, start, converged, message)

    def _is_right(self) -> bool:
        if self.side not in ("left", "right"):
            raise InvalidInputError(f"side={self.side!r} is not known; use 'left' or 'right'")
        return self.side == "right"

    def _start_of(self, t: Any, origin: Any) -> Any:
        """Where the operator starts on a callable, None for 0; those that look to both sides say it themselves."""
        return origin

    def _tolerance(self, rtol: Any) -> float:
        """The tolerance of a fast memory; no other method for samples has one."""
        if getattr(self, "method", None) not in FAST:
            raise InvalidInputError(
                f"rtol={rtol!r} is for callables and for method='fast'; other methods for samples have no use for it"
            )
        number = read_number("rtol", rtol)
        if not LEAST_TOLERANCE <= number < 1.0:
            raise InvalidInputError(f"rtol={number:g} is out of reach; use {LEAST_TOLERANCE:g} up to 1, such as 1e-10")
        return number

    def stream(self, step: float, *, rtol: float = 1e-6, axis: int | None = None, dim: Any = None) -> OperatorStream:
        """The same operator for a signal that comes in chunks, with a memory that does not grow.

        Parameters
        ----------
        step : float
            Distance of the samples.
        rtol : float
            How far the values may be from those of the whole signal, relative to their maximum.
        axis : int, optional
            The axis of each chunk along which the points lie: the last one by default, the index of a frame.
        dim : hashable, optional
            The name of that axis, for chunks that are a ``DataArray``.

        Returns
        -------
        OperatorStream
            ``push(chunk)`` gives the values at the chunk's points.

        Examples
        --------
        >>> import numpy as np
        >>> import hpfracc as hf
        >>> f = np.sin(np.linspace(0.0, 20.0, 2001))
        >>> stream = hf.Caputo(0.5).stream(0.01)
        >>> values = np.concatenate([stream.push(chunk) for chunk in np.array_split(f, 7)])
        >>> bool(np.allclose(values, hf.caputo(f, step=0.01, alpha=0.5), atol=1e-6))
        True
        """
        from hpfracc.operators._stream import OperatorStream

        if self._is_right():
            raise InvalidInputError("side='right' looks ahead, to samples that a stream does not have; use side='left'")
        return OperatorStream(self, step, rtol=rtol, axis=axis, dim=dim)

    def _streamed(self) -> tuple[Rule, Order]:
        """The rule and the order of a stream of this operator."""
        raise InvalidInputError(f"{type(self).__name__} has no streaming form; give it the whole signal")

    def _met_before(self, f: Any, step: float, axis: Any) -> Again | None:
        """What to do with samples of a kind met before, along the last axis and with a step that is one."""
        kind = type(f)
        if not (kind is np.ndarray or kind in PAIR_KINDS) or not f.ndim or not 0.0 < step < math.inf:
            return None
        # A bool is no axis, though it counts as a number.
        if axis is not None and (type(axis) is not int or axis not in (-1, f.ndim - 1)):
            return None
        if type(self._order_like()) is not float:
            return None
        try:
            return _again.get((self, f.shape[-1], f.dtype))
        except TypeError:  # as where it was met
            return None

    def _order_like(self) -> Any:
        """What decides the library beside the samples: the order."""
        return getattr(self, "alpha", None)

    def _own_grid(self, grid: Grid, t: Any) -> Grid:
        """The grid in the operator's own variable, where that is not the caller's ``t``."""
        return grid

    @abstractmethod
    def _of_samples(self, samples: Samples) -> Outcome:
        """Apply to samples, on a grid that may or may not be uniform."""

    @abstractmethod
    def _of_function(self, function: Function) -> Outcome:
        """Apply to a callable."""


def relabelled(opened: Opened, result: Any) -> Any:
    """What an operator gave for samples without their labels, with them; a full account says what the points were."""
    if not isinstance(result, OperatorResult):
        return opened.close(result)
    message = "; ".join(part for part in (result.message, opened.note) if part)
    return replace(result, value=opened.close(result.value), message=message)


def order_beside(order: Order, values: Any) -> Order:
    """The order on the device of the samples."""
    if library_of(values) == "torch" and not order.plain and device_of(order.value) != device_of(values):
        return Order(order.value.to(values.device), order.known, order.ceiling, namespace_of(values))
    return order


#: A uniform grid to choose a rule for where there are no samples yet.
UNIFORM = Grid(2, 0.0, 1.0)


def pick_rule(operator: FractionalOperator, method: str, who: str, grid: Grid) -> Rule:
    """The rule that ``method`` names on this grid, the first one for ``"auto"``, or an error with the names there are.

    A fast memory is approximate, so it is never taken for its speed: it has to be asked for by its name.
    """
    anywhere = operator.any_grid_rules
    if method in FAST and "fast" in anywhere:
        return anywhere["fast"]
    rules = operator.rules if grid.uniform or not anywhere else anywhere
    if method == "auto":
        return next(iter(rules.values()))
    found = rules.get(method)
    if found is None:
        names = ", ".join(dict.fromkeys([*rules, *(["fast"] if "fast" in anywhere else [])]))
        kind = "a uniform grid" if rules is operator.rules else "a grid that is not uniform"
        raise InvalidInputError(f"{who} has no method {method!r} for samples on {kind}; use 'auto' or one of {names}")
    return found


def streamed_rule(operator: FractionalOperator, method: str, who: str, order: Order) -> tuple[Rule, Order]:
    """The rule for uniform grids that a stream keeps to; orders that have no fading memory are refused."""
    if not order.plain or order.known is None:
        raise InvalidInputError(f"the order of a stream of {who} is a plain number; give float(alpha)")
    if order.is_integer:
        raise InvalidInputError(f"alpha={order.known:g}: {who} of whole order has no memory to stream; use differences")
    if method in FAST:
        raise InvalidInputError(f"{who}: a stream is fast by itself; leave method='fast' out, or name a uniform rule")
    return pick_rule(operator, method, who, UNIFORM), order


def apply_rule(rule: Rule, samples: Samples, order: Order, who: str) -> Outcome:
    """Apply a rule to samples, with its distance from its companion as the error estimate."""
    if not rule.any_grid:
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
            distance = abs(value - companion.apply(samples, order)) + rounding_of(rule, samples, order)
        blind = min(rule.measured_from(order), samples.n)
        return join([distance[..., :blind] + math.nan, distance[..., blind:]]) if blind else distance

    again = Again(rule, order) if rule.one_call and order.plain else None
    return Outcome(
        value,
        rule.name,
        None if companion is None else error,
        note=lambda: rounding_note(rule, samples, order, value),
        again=again,
    )
