"""Applying a rule to samples: choosing it, running it, and repeating a call without reading its arguments again."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, replace
from functools import cache, partial, reduce
from typing import Any, final

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import device_of, is_traced, is_transformed, library_of, may_be_cached, quick_kind, tracks_gradient
from hpfracc._config import current_context, state
from hpfracc._xp import array_namespace, namespace_of
from hpfracc.engine.execution.api import causal_convolution
from hpfracc.engine.execution.plan import Plan
from hpfracc.errors import InvalidInputError, OutOfMemoryError
from hpfracc.operators.core.function import FAST
from hpfracc.operators.core.grids import Grid
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.reporting import Outcome, rounding_note, rounding_of
from hpfracc.operators.core.rule import DelegatingRule, Rule
from hpfracc.operators.core.values import RecordedSum, Samples, join, zeros
from hpfracc.operators.rules.differences import DIFFERENCE_ORDER, Differences

#: A uniform grid, to choose a rule where there are no samples yet.
UNIFORM = Grid(1 << 30, 0.0, 1.0)

#: How to apply an operator to samples of a kind seen before, by operator and kind (:func:`quick_kind`): reading and
#: checking a call again takes longer than the work on some thousand points.
cached_applications: dict[Any, CachedApplication | LearnedApplication] = {}
_MAX_APPLICATIONS = 256
#: Sums kept by one application.
_MAX_SUMS = 16
_DOUBLE = "torch.float64"
#: Without a companion that suffices, the distance from every other sample is multiplied by this: both may miss part of
#: a jump.
_ALONE = 2.0


class CachedApplication:
    """A rule of a plain order for samples of one kind, whose call needs no reading and checking.

    Where the rule is one sum over the samples themselves, the plan of its engine call is kept for each step, with
    references to its weights, which live as long as the caches of weights keep them.
    """

    __slots__ = ("_order", "_rule", "_sums")

    def __init__(self, rule: Rule, order: Order) -> None:
        self._rule = rule
        self._order = order
        self._sums: dict[Any, tuple[Plan, tuple[weakref.ref[Any], ...], RecordedSum]] = {}

    def repeat(self, values: Any, step: float, grid: Grid | None, backend: Any) -> Any:
        """The operator at every point of ``values``, samples on a uniform grid, which is made if it is not given."""
        if backend is None:
            plan, references, made = self._sums.get((step, current_context()), (None, (), None))
            if plan is not None and made is not None and plan.version == state.version:
                weights, *starts = [reference() for reference in references]
                if weights is not None and (not starts or starts[0] is not None):
                    result = causal_convolution.run(plan, (weights, values, *starts), made.key, made.options)
                    return result if made.finish is None else made.finish(result, values)
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
        operands = (made.weights, *made.starts)
        if is_traced(values) or not may_be_cached(operands):
            return
        try:
            plan = causal_convolution.plan_for((made.weights, values, *made.starts), None, made.key, made.options)
        except OutOfMemoryError:  # such calls are done in chunks
            return
        if len(self._sums) >= _MAX_SUMS:
            self._sums.clear()
        bare = made._replace(weights=None, signal=None, starts=(), result=None)
        self._sums[grid.step, current_context()] = plan, tuple(map(weakref.ref, operands)), bare


class LearnedApplication:
    """A rule for samples of one length and dtype, and for orders of PyTorch's in one interval between whole numbers."""

    __slots__ = ("_ceiling", "_hidden", "_rule", "_value")

    def __init__(self, rule: Rule, order: Order) -> None:
        self._rule = rule
        self._ceiling = order.ceiling
        self._hidden = order.known is None
        self._value: Any = order.value

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
        samples = Samples(values, grid or Grid(values.shape[-1], 0.0, step), backend)
        return self._rule.apply(samples, Order(alpha, known, self._ceiling, namespace_of(alpha)))


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


def learned_application(operator: Any, values: Any) -> Callable[..., Any] | None:
    """The cached application of an operator with a learned order to samples like ``values``, if there is one."""
    key = learned_key(operator, values)
    found: Any = None if key is None else cached_applications.get(key)
    return None if found is None else partial(found.repeat, alpha=operator.alpha)


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


def pick_rule(operator: Any, method: str, who: str, grid: Grid) -> Rule:
    """The rule that ``method`` names on this grid, the first one for ``"auto"``, or an error with the names there are.

    A fast memory is approximate, so it is taken only where it is asked for by name.
    """
    anywhere: Mapping[str, Rule] = operator.any_grid_rules
    if method in FAST and "fast" in anywhere:
        return anywhere["fast"]
    rules: Mapping[str, Rule] = operator.rules if grid.uniform or not anywhere else anywhere
    if method == "auto":
        return next(iter(rules.values()))
    found = rules.get(method) if isinstance(method, str) else None
    if found is None:
        names = ", ".join(dict.fromkeys([*rules, *(["fast"] if "fast" in anywhere else [])]))
        kind = "a uniform grid" if rules is operator.rules else "a grid that is not uniform"
        raise InvalidInputError(
            f"{who} has no method {_reading.shown(method)} for samples on {kind}; use 'auto' or one of {names}"
        )
    return found


def apply_rule(rule: Rule, samples: Samples, order: Order, who: str) -> Outcome:
    """Apply a rule to samples, with an error estimate from its companion and from every other sample."""
    if not rule.any_grid:
        samples.grid.require_uniform(f"{who} by {rule.name!r}")
    order = order_beside(order, samples.values)
    rule.check(samples, order, who)
    # Non-finite samples are data: inf - inf needs no warning.
    with np.errstate(invalid="ignore"):
        value = rule.apply(samples, order)

    rounding = cache(partial(rounding_of, rule, samples, order))

    def error() -> Any:
        with np.errstate(invalid="ignore"):
            distance = estimated_distance(rule, samples, order, value)
            distance = distance + rounding() + rule.start_error(samples, order)
        return largest_nearby(unmeasured(distance, rule.measured_from(order)), two_sided=not rule.halves)

    return Outcome(
        value,
        rule.name,
        None if no_estimate(rule, samples, order) else error,
        note=lambda: "; ".join(filter(None, [no_estimate(rule, samples, order), rounding_note(rounding(), value)])),
        reusable=_reusable(rule, order),
    )


def derivative_of_whole_order(samples: Samples, n: int, who: str) -> Outcome:
    """The ordinary derivative of order n; the samples for n = 0."""
    return apply_rule(Differences(), samples, read_order(float(n)), who)


@final
class _ExceptAtWhole(DelegatingRule):
    """A rule with the values of another method at the whole order ``at``, for orders whose values are unknown."""

    def __init__(self, rule: Rule, whole: Callable[[Samples], Outcome], at: int) -> None:
        super().__init__(rule)
        self.whole, self.at = whole, at

    def linear(self) -> Rule:
        """The rule itself."""
        return self.rule.linear()

    def apply(self, samples: Samples, order: Order) -> Any:
        """The rule; at the whole order the other values, with the rule's derivatives."""
        return self.chosen(self.rule.apply(samples, order), samples, order)

    def chosen(self, value: Any, samples: Samples, order: Order) -> Any:
        """``value``; at the whole order the other values, with the derivatives of ``value``."""
        if samples.n < self.at + DIFFERENCE_ORDER:
            return value
        xp, there = array_namespace(value), self.whole(samples).value
        found = xp.where(xp.isfinite(value), value + xp.stop_gradient(there - value), there)
        with order.xp.scope():
            whole = order.value == self.at
        return xp.where(whole, found, value)


def apply_beside_whole(
    rule: Rule,
    samples: Samples,
    order: Order,
    who: str,
    whole: Callable[[Samples], Outcome],
    *,
    at: int,
    complete: Callable[[Outcome, Order], Outcome] = lambda outcome, order: outcome,
) -> Outcome:
    """Apply a rule, but ``whole`` at the whole order ``at``, where the rule is a limit with an error of its own.

    An order that carries a gradient gets the same value there, and the derivative of the limit in the order.
    ``complete`` changes the outcome of the rule.
    """
    if order.is_integer and order.value == at:
        return whole(samples)

    def limit(order: Order, rule: Rule = rule) -> Outcome:
        return complete(apply_rule(rule, samples, order, who), order)

    served = samples.grid.traced is None and samples.n >= at + DIFFERENCE_ORDER
    if order.plain or order.known not in (None, at) or not served:
        return limit(order)
    if order.known is None:
        beside = _ExceptAtWhole(rule, whole, at)
        outcome = limit(order, beside)
        # What completes a rule is a limit too.
        return replace(outcome, value=beside.chosen(outcome.value, samples, order))
    outcome = whole(samples)
    if not tracks_gradient(order.value):
        return outcome
    fixed = replace(order, value=order.xp.stop_gradient(order.value))
    value, same = limit(order).value, limit(fixed).value
    xp = array_namespace(value)
    change = xp.where(xp.isfinite(value), value - same, zeros(value, samples.n))
    return replace(outcome, value=outcome.value + change, reusable=None)


def no_estimate(rule: Rule, samples: Samples, order: Order) -> str:
    """Why the error of a rule cannot be estimated; empty if it can."""
    if rule.companion is not None or _can_halve(rule, samples, order):
        return ""
    if not rule.halves:
        return f"no error estimate: {rule.name!r} has none for samples"
    least = 2 * max(rule.least_points(order), 2) - 1
    return f"no error estimate: {samples.n} samples, and half of at least {least} are compared with all"


def _can_halve(rule: Rule, samples: Samples, order: Order) -> bool:
    return rule.halves and (samples.n + 1) // 2 >= max(rule.least_points(order), 2)


def estimated_distance(rule: Rule, samples: Samples, order: Order, value: Any) -> Any:
    """The larger one of the distances of ``value`` from the rule's companion and from the rule on every other sample.

    A companion alone can share the error of the rule, for example where f is singular. The second distance is at least
    as large as the error if halving the step halves it; between the points that are compared it is the larger one of
    its neighbours.
    """
    companion, xp = rule.companion, array_namespace(value)
    near = None if companion is None else abs(value - companion.apply(samples, order))
    if not _can_halve(rule, samples, order):
        return near
    coarse = replace(samples, values=samples.values[..., ::2], grid=samples.grid.every_other(), recorded=None)
    apart = abs(value[..., ::2] - rule.apply(coarse, order))
    first = min(max(rule.measured_from(order), 1), apart.shape[-1])
    # The first points of the coarse grid are not measured either.
    apart = join([zeros(apart, first), apart[..., first:]])
    later = join([apart[..., 1:], apart[..., -1:]])
    between = xp.where(later > apart, later, apart)
    apart = xp.stack([apart, between], -1).reshape(*apart.shape[:-1], 2 * apart.shape[-1])[..., : samples.n]
    if near is None or not rule.companion_suffices:
        apart = _ALONE * unmeasured(apart, 2 * first)
    if near is None:
        return apart
    return xp.where(near >= apart, near, xp.where(apart > near, apart, near + apart))


def largest_nearby(distance: Any, *, two_sided: bool = False) -> Any:
    """The largest finite ``distance`` from two thirds to one and a half times each point's place, or a little beyond.

    The difference of two approximations changes its sign here and there, where it says nothing about their errors. For
    a rule with two ends the place is counted from the nearer one. nan stays where it is.
    """
    n, xp = distance.shape[-1], array_namespace(distance)
    # Blocks of places whose ends differ by a half, each with both of its neighbours.
    ends = np.unique(np.concatenate([[0], 1.5 ** np.arange(math.ceil(math.log(n + 1, 1.5)))]).astype(int))
    cuts = np.unique(np.minimum([*ends, n], n))
    if two_sided:
        cuts = np.unique([*cuts[cuts <= n // 2], *(n - cuts[cuts <= n // 2])])
    known = xp.where(xp.isfinite(distance), distance, zeros(distance, n))
    largest = [xp.amax(known[..., begin:end], -1, keepdims=True) for begin, end in itertools.pairwise(cuts.tolist())]
    near = [reduce(xp.maximum, largest[max(i - 1, 0) : i + 2]) for i in range(len(largest))]
    spread = [near[i] + zeros(distance, size) for i, size in enumerate(np.diff(cuts).tolist())]
    return xp.where(xp.isfinite(distance), join(spread), distance)


def unmeasured(distance: Any, count: int) -> Any:
    """``distance`` with nan at the first ``count`` points."""
    count = min(count, distance.shape[-1])
    return join([distance[..., :count] + math.nan, distance[..., count:]]) if count else distance


def _reusable(rule: Rule, order: Order) -> CachedApplication | LearnedApplication | None:
    if not rule.can_repeat(order):
        return None
    if order.plain:
        return CachedApplication(rule, order)
    return LearnedApplication(rule, order) if order.xp.library == "torch" else None
