"""Applying a rule to samples: choosing it, running it, and repeating a call without reading its arguments again."""

from __future__ import annotations

import math
import weakref
from collections.abc import Hashable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from hpfracc._arrays import device_of, is_traced, is_transformed, library_of, may_be_cached, quick_kind
from hpfracc._config import current_context, state
from hpfracc._xp import namespace_of
from hpfracc.engine.execution.api import causal_convolution
from hpfracc.engine.execution.plan import Plan
from hpfracc.engine.execution.replay import ReplayedFunction
from hpfracc.errors import InvalidInputError, OutOfMemoryError
from hpfracc.operators.core.grids import Grid
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.reporting import Outcome, rounding_note, rounding_of
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.values import Finish, RecordedSum, Samples, join

__all__ = [
    "FAST",
    "UNIFORM",
    "CachedApplication",
    "LearnedApplication",
    "apply_rule",
    "cache_application",
    "cached_applications",
    "learned_key",
    "order_beside",
    "pick_rule",
    "streamed_rule",
]

#: The names of the method that keeps its memory as a sum of exponentials.
FAST = ("fast", "soe")
#: A uniform grid, to choose a rule where there are no samples yet.
UNIFORM = Grid(2, 0.0, 1.0)

#: How to apply an operator to samples of a kind seen before, by operator and kind (:func:`quick_kind`): reading and
#: checking a call again takes longer than the work on some thousand points.
cached_applications: dict[Any, CachedApplication | LearnedApplication] = {}
_MAX_APPLICATIONS = 256
#: Sums kept by one application, and the samples up to which their operands are kept alive.
_MAX_SUMS, _MAX_POINTS = 16, 65_536
_DOUBLE = "torch.float64"


class HasRules(Protocol):
    """An operator, as far as choosing its rule needs it."""

    @property
    def rules(self) -> Mapping[str, Rule]:
        """The rules for uniform grids by name."""

    @property
    def any_grid_rules(self) -> Mapping[str, Rule]:
        """The rules for any increasing grid by name."""


class _CachedConvolution(NamedTuple):
    """A causal convolution of samples with weights that are kept: its plan, its other operands and what follows it."""

    plan: Plan
    #: The weights and, where the rule has them, the starting weights; empty where there are references instead.
    operands: tuple[Any, ...]
    key: Hashable
    options: dict[str, Any]
    finish: Finish | None
    #: Where operands are not kept alive: references to them.
    references: tuple[weakref.ref[Any], ...] = ()


class CachedApplication:
    """A rule of a plain order for samples of one kind, whose call needs no reading and checking.

    Where the rule is one sum over the samples themselves, the plan of its engine call is kept for each step.
    """

    __slots__ = ("_order", "_rule", "_sums")

    def __init__(self, rule: Rule, order: Order) -> None:
        self._rule = rule
        self._order = order
        self._sums: dict[Any, _CachedConvolution] = {}

    def repeat(self, values: Any, step: float, grid: Grid | None, backend: Any) -> Any:
        """The operator at every point of ``values``, samples on a uniform grid, which is made if it is not given."""
        if backend is None:
            kept = self._sums.get((step, current_context()))
            if kept is not None and kept.plan.version == state.version:
                weights, *starts = kept.operands or [reference() for reference in kept.references]
                if weights is not None and (not starts or starts[0] is not None):
                    result = causal_convolution.run(kept.plan, (weights, values, *starts), kept.key, kept.options)
                    return result if kept.finish is None else kept.finish(result, values)
        return self._apply(values, grid or Grid(values.shape[-1], 0.0, step), backend)

    def _apply(self, values: Any, grid: Grid, backend: Any) -> Any:
        """Apply the rule, and keep its sum if it is the only one and over the samples themselves."""
        sums: list[RecordedSum] = []
        # Non-finite samples are data: inf - inf needs no warning.
        with np.errstate(invalid="ignore"):
            result = self._rule.apply(Samples(values, grid, backend, recorded=sums), self._order)
        if backend is None and len(sums) == 1 and sums[0].result is result and sums[0].signal is values:
            self._keep(sums[0], values, grid)
        return result

    def _keep(self, made: RecordedSum, values: Any, grid: Grid) -> None:
        operands: tuple[Any, ...] = (made.weights, *made.starts)
        if is_traced(values) or not may_be_cached(operands):
            return
        try:
            plan = causal_convolution.plan_for((made.weights, values, *made.starts), None, made.key, made.options)
        except OutOfMemoryError:  # such calls are done in chunks
            return
        if len(self._sums) >= _MAX_SUMS:
            self._sums.clear()
        references: tuple[weakref.ref[Any], ...] = ()
        if values.shape[-1] > _MAX_POINTS:
            operands, references = (), tuple(map(weakref.ref, operands))
        kept = _CachedConvolution(plan, operands, made.key, made.options, made.finish, references)
        self._sums[grid.step, current_context()] = kept


class LearnedApplication:
    """A rule for samples of one length and dtype, and for orders of PyTorch's in one interval between whole numbers."""

    __slots__ = ("_ceiling", "_functions", "_hidden", "_rule", "_value")

    def __init__(self, rule: Rule, order: Order) -> None:
        self._rule = rule
        self._ceiling = order.ceiling
        self._hidden = order.known is None
        self._value: Any = order.value
        self._functions: dict[Any, ReplayedFunction] = {}

    def is_of(self, alpha: Any) -> bool:
        """Whether the rule was applied with this very order, not with one made from it; asked once."""
        value, self._value = self._value, None
        return value is alpha

    def repeat(self, values: Any, step: float, grid: Grid | None, backend: Any, alpha: Any) -> Any:
        """The operator at every point of ``values``; None where the call has to be read again."""
        if values.device != alpha.device or is_transformed(alpha) or is_transformed(values):
            return None
        known = None
        if not self._hidden:
            known = float(alpha.detach())
            # Whole orders are read again: some operators have none.
            if not self._ceiling - 1 < known < self._ceiling:
                return None
        if backend is None and values.is_cuda and alpha.requires_grad and type(step) is float:
            result = self._replay(values, step, alpha)
            if result is not None:
                return result
        samples = Samples(values, grid or Grid(values.shape[-1], 0.0, step), backend)
        return self._rule.apply(samples, Order(alpha, known, self._ceiling, namespace_of(alpha)))

    def _replay(self, values: Any, step: float, alpha: Any) -> Any:
        """The same by replaying its launches on a GPU; None where they are not replayed."""
        key = (step, current_context(), state.version)
        function = self._functions.get(key)
        if function is None:

            def apply(values: Any, alpha: Any) -> Any:
                # The order's value is not read: another call has another one.
                samples = Samples(values, Grid(values.shape[-1], 0.0, step), None)
                return self._rule.apply(samples, Order(alpha, None, self._ceiling, namespace_of(alpha)))

            if len(self._functions) >= _MAX_SUMS:
                self._functions.clear()
            function = self._functions[key] = ReplayedFunction(apply)
        return function.replay(values, alpha)


@cache
def _other_fields(operator: type) -> tuple[str, ...]:
    """The names of its fields but for the order."""
    return tuple(field.name for field in fields(operator) if field.name != "alpha")


def learned_key(operator: Any, values: Any) -> Hashable:
    """What a :class:`LearnedApplication` is kept under: all but the order; None where there is none."""
    alpha = operator.alpha
    if library_of(alpha) != "torch" or library_of(values) != "torch" or alpha.shape or str(alpha.dtype) != _DOUBLE:
        return None
    others = tuple([getattr(operator, name) for name in _other_fields(operator.__class__)])
    return (type(operator), others, values.shape[-1], values.dtype, values.device, alpha.requires_grad)


def cache_application(operator: Any, values: Any, application: Any) -> None:
    """Keep how an operator was applied to ``values`` for the next samples of their kind."""
    key: Any = None
    if is_traced(values):
        return
    if isinstance(application, CachedApplication):
        key = (operator, quick_kind(values))
    elif isinstance(application, LearnedApplication) and application.is_of(operator.alpha):
        key = learned_key(operator, values)
    if key is None:
        return
    if len(cached_applications) >= _MAX_APPLICATIONS:
        cached_applications.clear()
    try:
        cached_applications[key] = application
    except TypeError:  # an array among the operator's fields cannot be hashed
        return


def order_beside(order: Order, values: Any) -> Order:
    """The order on the device of the samples."""
    if library_of(values) == "torch" and not order.plain and device_of(order.value) != device_of(values):
        return Order(order.value.to(values.device), order.known, order.ceiling, namespace_of(values))
    return order


def pick_rule(operator: HasRules, method: str, who: str, grid: Grid) -> Rule:
    """The rule that ``method`` names on this grid, the first one for ``"auto"``, or an error with the names there are.

    A fast memory is approximate, so it is taken only where it is asked for by name.
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


def streamed_rule(operator: HasRules, method: str, who: str, order: Order) -> tuple[Rule, Order]:
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
    # Non-finite samples are data: inf - inf needs no warning.
    with np.errstate(invalid="ignore"):
        value = rule.apply(samples, order)
    companion = rule.companion

    def error() -> Any:
        assert companion is not None
        with np.errstate(invalid="ignore"):
            distance = abs(value - companion.apply(samples, order)) + rounding_of(rule, samples, order)
        blind = min(rule.measured_from(order), samples.n)
        return join([distance[..., :blind] + math.nan, distance[..., blind:]]) if blind else distance

    return Outcome(
        value,
        rule.name,
        None if companion is None else error,
        note=lambda: rounding_note(rule, samples, order, value),
        reusable=_reusable(rule, order),
    )


def _reusable(rule: Rule, order: Order) -> CachedApplication | LearnedApplication | None:
    if not rule.one_call:
        return None
    if order.plain:
        return CachedApplication(rule, order)
    return LearnedApplication(rule, order) if order.xp.library == "torch" else None
