"""An operation one can call: the hot path, and what happens when a call needs attention.

A call whose exact kind (types, shapes, dtypes, settings) was seen before costs one dict lookup and one count beyond its
kernel. Everything else, deciding, timing, learning, falling back, is off that path.
"""

from __future__ import annotations

import inspect
import threading
from collections import deque
from typing import Any

import numpy as np

from hpfracc._arrays import PAIR_KINDS, library_of, quick_kind
from hpfracc._config import check_backend, current_context, state
from hpfracc.engine.execution import trail
from hpfracc.engine.execution.observed import observe_call
from hpfracc.engine.execution.plan import Plan
from hpfracc.engine.execution.planning import as_array, hashable_options, make_plan, make_request, zeros_for
from hpfracc.engine.execution.rescue import cut_or_raise, make_room, rescue
from hpfracc.engine.execution.review import attend
from hpfracc.engine.memory.spans import spans as growth
from hpfracc.engine.primitives.base import Primitive
from hpfracc.engine.selection.decide import decide
from hpfracc.engine.selection.decision import Decision
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.errors import InvalidInputError, OutOfMemoryError
from hpfracc.profiling.recorder import shared as spans

__all__ = ["Operation", "describe_options"]

#: Kinds of call whose plans are kept per operation; past it the table starts anew (a plan is made again in some 50 us).
_MOST_PLANS = 4096

#: Replaced plans that are still asked for their counts.
_RETIRED = 64

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
        self.__signature__ = _signature(primitive)
        self._plans: dict[Any, Plan] = {}
        self._retired_calls = 0
        #: Plans replaced lately: a call that found one before that is counted there after it.
        self._retired: deque[Plan] = deque()
        self._lock = threading.Lock()

    def __copy__(self) -> Operation:
        """The operation itself: there is one of each name in a process, with what it has learned."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Operation:
        return self

    def __call__(self, *arrays: Any, backend: Any = None, weights_key: Any = None, **params: Any) -> Any:
        """Do the work where it is done soonest; the result is an array of the caller's own kind."""
        if spans.on:
            return observe_call(self, arrays, backend, weights_key, params)
        # The commonest calls, written out: what they cost beyond their kernel is what everybody pays.
        if len(arrays) == 2 and backend is None and not params:
            one, two = arrays
            kind = type(one)
            key: Any = None
            if kind is type(two):
                if kind is _ndarray:
                    key = (one.shape, one.dtype, two.shape, two.dtype, weights_key is None, current_context())
                else:
                    pair = PAIR_KINDS.get(kind)
                    found = None if pair is None else pair(one, two)
                    if found is not None:
                        key = (found, weights_key is None, current_context())
            if key is not None:
                plan = self._plans.get(key)
                if plan is not None and plan.version == state.version:
                    guard = plan.guard
                    if guard is not None and (growth.active or not guard()):
                        return self._call(arrays, backend, weights_key, params)
                    last = trail.current()
                    bound = plan.bound
                    if last is not bound:
                        if type(last) is trail.Mode:
                            return self._call_in_mode(last, arrays, backend, weights_key, params)
                        trail.replace_last(bound)
                    count = plan.tick()
                    if count >= plan.attention:
                        return attend(plan, count, arrays, _with_key(self.name, weights_key, params))
                    bare = bound.bare
                    try:
                        if weights_key is None:
                            return bound.run(one, two) if bare is None else bare(one, two)
                        hash(weights_key)
                        return bound.run(one, two, weights_key=weights_key) if bare is None else bare(one, two)
                    except Exception as error:
                        return rescue(plan, bound, arrays, _with_key(self.name, weights_key, params), error)
        mode = trail.current()
        if type(mode) is trail.Mode:
            return self._call_in_mode(mode, arrays, backend, weights_key, params)
        return self._call(arrays, backend, weights_key, params)

    def _call(self, arrays: tuple[Any, ...], backend: Any, weights_key: Any, params: dict[str, Any]) -> Any:
        if not growth.active:
            return self._planned(arrays, backend, weights_key, params)
        growth.enter()
        try:
            return self._planned(arrays, backend, weights_key, params)
        finally:
            growth.leave(self.name)

    def _planned(self, arrays: tuple[Any, ...], backend: Any, weights_key: Any, params: dict[str, Any]) -> Any:
        try:
            plan = self.plan_for(arrays, backend, weights_key, params)
        except OutOfMemoryError as error:
            return cut_or_raise(self.primitive, arrays, _with_key(self.name, weights_key, params), backend, error)
        params = _with_key(self.name, weights_key, params)
        bound = plan.bound
        trail.note(bound)
        count = plan.tick()
        if count >= plan.attention:
            return attend(plan, count, arrays, params)
        try:
            return bound.run(*arrays, **params)
        except Exception as error:
            return rescue(plan, bound, arrays, params, error)

    def call_plainly(self, arrays: tuple[Any, ...], backend: Any, weights_key: Any, params: dict[str, Any]) -> Any:
        """The same as calling it, without a span around it."""
        mode = trail.current()
        if type(mode) is trail.Mode:
            return self._call_in_mode(mode, arrays, backend, weights_key, params)
        return self._call(arrays, backend, weights_key, params)

    def plan_for(self, arrays: tuple[Any, ...], backend: Any, weights_key: Any, params: dict[str, Any]) -> Plan:
        """The plan for such a call, made if there is none."""
        key = _key(arrays, backend, weights_key, params)
        try:
            plan = self._plans.get(key)
        except TypeError:  # a list or a dict among the parameters
            check_backend(backend if backend is not None else "auto", auto=True)
            options = dict(enumerate(hashable_options(self.name, params)))
            key = _key(arrays, backend, weights_key, options)
            plan = self._plans.get(key)
        if plan is not None and plan.guard is not None and not plan.guard() and not make_room(plan):
            plan = None
        if plan is None or plan.version != state.version:
            plan = self._new_plan(key, arrays, backend, weights_key, params)
        return plan

    def known_plan(self, key: Any) -> Plan | None:
        """The plan under a key that :func:`_key` would make."""
        return self._plans.get(key)

    def _call_in_mode(
        self, mode: trail.Mode, arrays: tuple[Any, ...], backend: Any, weights_key: Any, params: dict[str, Any]
    ) -> Any:
        """Only decide, and hand back zeros; or call, and add the decision to those of the call around this one."""
        if mode.is_over:
            trail.leave(mode)
            return self.call_plainly(arrays, backend, weights_key, params)
        if mode.dry:
            request = make_request(self.primitive, arrays, params, backend=backend, prepared=weights_key is not None)
            mode.decisions.append(decide(request, knowledge_for(request.settings), frozen=True).decision)
            return zeros_for(request)
        try:
            return self._call(arrays, backend, weights_key, params)
        finally:
            last = trail.last_decision()
            if isinstance(last, Decision):
                mode.decisions.append(last)

    def _new_plan(self, key: Any, arrays: Any, backend: Any, weights_key: Any, params: Any) -> Plan:
        with spans.span(f"choose for {self.name}", "decide"):
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
            plan = self._plans.pop(key)
            plan.version = -1  # whoever kept it asks anew
            self._retired.append(plan)
        while len(self._retired) > _RETIRED:
            self._retired_calls += self._retired.popleft().calls()

    def decide(self, *arrays: Any, backend: Any = None, weights_key: Any = None, **params: Any) -> Decision:
        """The decision for such a call, without running it; ``arrays`` may be :class:`ArraySpec`."""
        request = make_request(self.primitive, arrays, params, backend=backend, prepared=weights_key is not None)
        return decide(request, knowledge_for(request.settings), frozen=True).decision

    def calls(self) -> int:
        """How often this operation was called in this process."""
        with self._lock:
            plans = (*self._plans.values(), *self._retired)
            return self._retired_calls + sum(plan.calls() for plan in plans)

    def reset_plans(self) -> None:
        """Decide anew at the next call of each kind; counts are kept."""
        with self._lock:
            self._retire(list(self._plans))

    def reset(self) -> None:
        """Forget all plans and counts."""
        with self._lock:
            self._retire(list(self._plans))
            self._retired.clear()
            self._retired_calls = 0

    def renew_lock(self) -> None:
        """Make a new lock: a forked child must not wait for one that a thread of its parent held."""
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<hpfracc operation {self.name!r}>"


def _signature(primitive: Primitive) -> inspect.Signature:
    """How the operation is called: its operands, its parameters by name, and what every operation takes besides."""
    named = list(inspect.signature(primitive.describe).parameters.values())
    added = ["backend", *(["weights_key"] if primitive.prepared_operand is not None else [])]
    keywords = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in added]
    after = next((n for n, each in enumerate(named) if each.kind is inspect.Parameter.VAR_KEYWORD), len(named))
    return inspect.Signature([*named[:after], *keywords, *named[after:]])


def _with_key(operation: str, weights_key: Any, params: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a kernel, with the key of its weights where there is one."""
    if weights_key is None:
        return params
    try:
        hash(weights_key)
    except TypeError:
        raise InvalidInputError(
            f"{operation}: weights_key={weights_key!r} cannot be hashed; use a tuple of what the weights depend on"
        ) from None
    return {**params, "weights_key": weights_key}


def _key(arrays: tuple[Any, ...], backend: Any, weights_key: Any, params: dict[Any, Any]) -> Any:
    """What the plan of a call depends on; for two tensors as the hot path writes it."""
    if len(arrays) == 2 and backend is None and not params and type(arrays[0]) is type(arrays[1]):
        pair = PAIR_KINDS.get(type(arrays[0]))
        found = None if pair is None else pair(*arrays)
        if found is not None:
            return found, weights_key is None, current_context()
    kinds: list[Any] = []
    for array in arrays:
        if type(array) is _ndarray:
            kinds += (array.shape, array.dtype)
        elif library_of(array) == "python":
            made = as_array(array)
            kinds += (type(array), made.shape, made.dtype)
        else:
            kinds += quick_kind(array)
    if backend is not None or params:
        kinds += describe_options(backend, params)
    return (*kinds, weights_key is None, current_context())


def describe_options(backend: Any, params: dict[Any, Any]) -> tuple[Any, ...]:
    """The part of a plan's key that says what was asked for. Types too: 1, 1.0 and True are equal, but not to all."""
    return backend, tuple([(name, type(value), value) for name, value in params.items()])
