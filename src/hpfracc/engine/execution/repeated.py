"""An operation that is called again and again with operands that stay, all but one: those are described once."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc._arrays import quick_kind
from hpfracc._config import current_context, state
from hpfracc.engine.execution import trail
from hpfracc.engine.execution.operation import Operation, describe_options
from hpfracc.engine.execution.plan import Plan
from hpfracc.engine.execution.rescue import rescue
from hpfracc.engine.execution.review import attend
from hpfracc.engine.memory.spans import spans as growth
from hpfracc.profiling.recorder import shared as spans

__all__ = ["RepeatedCall"]

#: Kinds of the operand that changes whose plans are kept.
_MOST_KINDS = 16


class RepeatedCall:
    """``operation(*before, operand, *after, weights_key=..., **params)`` as a function of the operand.

    It finds the plan that the operation itself would find, by the same key, and keeps it under what can change of that
    key; everything out of the ordinary is left to the operation. Where operands are tensors and options are given that
    saves most of a call's own time.

    Parameters
    ----------
    operation : Operation
        What is called.
    before, after : tuple of arrays
        The operands that stay; the one that changes comes between them.
    weights_key : hashable
        As for the operation.
    params : dict
        Options, of which there is at least one, all hashable.
    """

    __slots__ = ("_after", "_before", "_head", "_key", "_operation", "_options", "_params", "_plans", "_tail")

    def __init__(
        self,
        operation: Operation,
        before: tuple[Any, ...],
        after: tuple[Any, ...],
        weights_key: Any,
        params: dict[str, Any],
    ) -> None:
        self._operation = operation
        self._before, self._after = before, after
        self._key, self._options = weights_key, params
        self._params = params if weights_key is None else {**params, "weights_key": weights_key}
        self._head = tuple(part for array in before for part in _kind(array))
        self._tail = (
            *(part for array in after for part in _kind(array)),
            *describe_options(None, params),
            weights_key is None,
        )
        self._plans: dict[Any, Plan] = {}

    def __call__(self, operand: Any) -> Any:
        """Call the operation."""
        if spans.on or growth.active:
            return self._at_length(operand)
        key = (*_kind(operand), current_context())
        plan = self._plans.get(key)
        if plan is None or plan.version != state.version:
            plan = self._find(key)
            if plan is None:
                return self._at_length(operand)
        last = trail.current()
        bound = plan.bound
        if last is not bound:
            if type(last) is trail.Mode:
                return self._at_length(operand)
            trail.replace_last(bound)
        guard = plan.guard
        if guard is not None and not guard():
            return self._at_length(operand)
        arrays = (*self._before, operand, *self._after)
        count = plan.tick()
        if count >= plan.attention:
            return attend(plan, count, arrays, self._params)
        try:
            return bound.run(*arrays, **self._params)
        except Exception as error:
            return rescue(plan, bound, arrays, self._params, error)

    def _find(self, key: tuple[Any, ...]) -> Plan | None:
        """The operation's own plan, if it is in force."""
        plan = self._operation.known_plan((*self._head, *key[:-1], *self._tail, key[-1]))
        if plan is None or plan.version != state.version:
            return None
        if len(self._plans) >= _MOST_KINDS:
            self._plans.clear()
        self._plans[key] = plan
        return plan

    def _at_length(self, operand: Any) -> Any:
        return self._operation(*self._before, operand, *self._after, weights_key=self._key, **self._options)


def _kind(array: Any) -> tuple[Any, ...]:
    return (array.shape, array.dtype) if type(array) is np.ndarray else quick_kind(array)
