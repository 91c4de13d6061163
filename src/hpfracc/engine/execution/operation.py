"""An operation one can call: the hot path, and what happens when a call needs attention.

A call whose exact kind (types, shapes, dtypes, settings) was seen before costs one dict lookup and one count beyond its
kernel. Everything else, deciding, timing, learning, falling back, is off that path.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from hpfracc._arrays import dtype_name, library_of
from hpfracc._config import current_context, state
from hpfracc.engine.execution import trail
from hpfracc.engine.execution.plan import Plan
from hpfracc.engine.execution.planning import make_plan, make_request, zeros_for
from hpfracc.engine.execution.recovery import recover
from hpfracc.engine.execution.review import attend
from hpfracc.engine.primitives.base import Primitive
from hpfracc.engine.selection.decide import decide
from hpfracc.engine.selection.decision import Decision
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.engine.selection.placement import place

__all__ = ["Operation"]

#: Kinds of call whose plans are kept per operation; past it the table starts anew (a plan is made again in some 50 us).
_MOST_PLANS = 4096

_ndarray = np.ndarray


class Operation:
    """A callable operation: ``op(*arrays, backend=None, weights_key=None, **params)``.

    Parameters
    ----------
    primitive : Primitive
        The contract: shapes, dtypes, work and memory.

    Notes
    -----
    The result has the caller's array type, on the caller's device. ``backend`` is obeyed or refused with the reason.
    ``weights_key``, for operations that have an operand worth transforming once (the weights of a convolution), is a
    hashable name of that operand: calls with the same key must pass the same operand.
    """

    def __init__(self, primitive: Primitive) -> None:
        self.primitive = primitive
        self.name = primitive.name
        self.__name__ = primitive.name
        self.__doc__ = type(primitive).__doc__
        self._plans: dict[Any, Plan] = {}
        self._retired_calls = 0
        self._lock = threading.Lock()

    def __call__(self, *arrays: Any, backend: Any = None, weights_key: Any = None, **params: Any) -> Any:
        """Do the work where it is done soonest; the result is an array of the caller's own kind."""
        context = current_context()
        # Written out for the common numbers of operands: building the key is half of what a cached decision costs.
        key: Any = None
        if len(arrays) == 2:
            one, two = arrays
            if type(one) is _ndarray and type(two) is _ndarray:
                key = (one.shape, one.dtype, two.shape, two.dtype, backend, weights_key is None, context)
        elif len(arrays) == 1:
            (one,) = arrays
            if type(one) is _ndarray:
                key = (one.shape, one.dtype, backend, weights_key is None, context)
        if key is None:
            key = _slow_key(arrays, backend, weights_key, context)
        if params:
            key = (key, tuple(params.items()))
        mode = trail.mode()
        if mode is not None and mode.dry:
            return self._pretend(mode, arrays, backend, weights_key, params)
        plan = self._plans.get(key)
        if plan is None or plan.version != state.version:
            plan = self._new_plan(key, arrays, backend, weights_key, params)
        if mode is not None:
            return self._call_noted(mode, plan, arrays, weights_key, params)
        if weights_key is not None:
            params["weights_key"] = weights_key
        count = plan.tick()
        trail.note(plan)
        if count >= plan.attention:
            return attend(plan, count, arrays, params)
        try:
            return plan.run(*arrays, **params)
        except Exception as error:
            return recover(plan, arrays, params, error)

    def _new_plan(self, key: Any, arrays: Any, backend: Any, weights_key: Any, params: Any) -> Plan:
        plan = make_plan(self.primitive, arrays, params, backend=backend, prepared=weights_key is not None)
        with self._lock:
            if len(self._plans) >= _MOST_PLANS:
                self._retire(list(self._plans))
            elif key in self._plans:
                self._retire([key])
            self._plans[key] = plan
        return plan

    def _retire(self, keys: list[Any]) -> None:
        for key in keys:
            self._retired_calls += self._plans.pop(key).calls()

    def _pretend(self, mode: trail.Mode, arrays: Any, backend: Any, weights_key: Any, params: Any) -> Any:
        """Decide, and hand back zeros of the right kind: nothing is run and nothing is remembered."""
        request = make_request(self.primitive, arrays, params, backend=backend, prepared=weights_key is not None)
        mode.decisions.append(decide(request, knowledge_for(request.settings), frozen=True).decision)
        return zeros_for(request)

    def _call_noted(self, mode: trail.Mode, plan: Plan, arrays: Any, weights_key: Any, params: Any) -> Any:
        """Call, and add the decision to those of the composite call around it."""
        if weights_key is not None:
            params["weights_key"] = weights_key
        count = plan.tick()
        trail.note(plan)
        try:
            if count >= plan.attention:
                return attend(plan, count, arrays, params)
            try:
                return plan.run(*arrays, **params)
            except Exception as error:
                return recover(plan, arrays, params, error)
        finally:
            last = trail.last_decision()
            if isinstance(last, Decision):
                mode.decisions.append(last)

    def decide(self, *arrays: Any, backend: Any = None, weights_key: Any = None, **params: Any) -> Decision:
        """The decision for such a call, without running it; ``arrays`` may be :class:`ArraySpec`."""
        request = make_request(self.primitive, arrays, params, backend=backend, prepared=weights_key is not None)
        return decide(request, knowledge_for(request.settings), frozen=True).decision

    def calls(self) -> int:
        """How often this operation was called in this process."""
        with self._lock:
            return self._retired_calls + sum(plan.calls() for plan in self._plans.values())

    def reset_plans(self) -> None:
        """Decide anew at the next call of each kind; counts are kept."""
        with self._lock:
            self._retire(list(self._plans))

    def reset(self) -> None:
        """Forget all plans and counts."""
        with self._lock:
            self._plans.clear()
            self._retired_calls = 0

    def renew_lock(self) -> None:
        """Make a new lock: a forked child must not wait for one that a thread of its parent held."""
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<hpfracc operation {self.name!r}>"


def _slow_key(arrays: tuple[Any, ...], backend: Any, weights_key: Any, context: Any) -> Any:
    """What the plan of a call depends on, for operands of any kind and number."""
    kinds: list[Any] = []
    for array in arrays:
        if type(array) is _ndarray:
            kinds.append((array.shape, array.dtype))
        elif library_of(array) == "python":
            made = np.asarray(array)
            kinds.append((type(array), made.shape, made.dtype))
        else:
            kinds.append((type(array), tuple(array.shape), dtype_name(array), place((array,))))
    return (tuple(kinds), backend, weights_key is None, context)
