"""Operations: the callables of the engine.

Every call follows one path. Its plan is found by a key (:meth:`Operation.plan_for`) and run (:meth:`Operation.run`). A
call of a known kind (types, shapes, dtypes, settings) costs a dict lookup and a counter in addition to its kernel.
"""

from __future__ import annotations

import contextlib
import copyreg
import inspect
import math
import threading
from dataclasses import replace
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import is_chunked, wraps_chunks
from hpfracc._config import check_backend, current_context, state
from hpfracc._interrupts import Guarded, after_fork
from hpfracc.engine.execution.bind import queue_of
from hpfracc.engine.execution.decision_log import Mode, current, current_mode, last_recorded, record
from hpfracc.engine.execution.learn import run_and_learn
from hpfracc.engine.execution.plan import Plan, hashable_options, make_plan, make_request, plan_key, zeros_for
from hpfracc.engine.memory.host import memory_spans, span
from hpfracc.engine.primitives import OWN_PRIMITIVES, PRIMITIVES
from hpfracc.engine.primitives.base import Primitive
from hpfracc.engine.selection.decide import decide
from hpfracc.engine.selection.decision import Decision
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.engine.selection.request import Request
from hpfracc.errors import InvalidInputError, OutOfMemoryError, UnknownOperationError
from hpfracc.profiling.recorder import shared as spans

#: Maximum number of plans per operation. Above it the table is cleared; creating a plan takes about 50 us, and keeping
#: one some 6 KiB.
_MAX_PLANS = 512

_ndarray = np.ndarray


class Operation(Guarded):
    """A callable operation: ``op(*arrays, backend=None, weights_key=None, **params)``.

    Parameters
    ----------
    primitive : Primitive
        The contract: shapes, dtypes, work and memory.

    Notes
    -----
    The result has the caller's array type, on the caller's device. A requested ``backend`` is
    used, or an error says why it cannot be. ``weights_key``, for operations with an operand that can be transformed
    once (the weights of a convolution), is a hashable name of that operand: calls with the same key must pass the same
    operand.
    """

    def __init__(self, primitive: Primitive) -> None:
        super().__init__()
        self.primitive = _reading.instance("primitive", primitive, Primitive, "that of a registered operation")
        self.name = primitive.name
        self.__name__ = primitive.name
        self.__doc__ = type(primitive).__doc__
        self.__signature__ = _signature(primitive)
        #: Whether each operand must be given.
        self._operands = {
            name: parameter.default is parameter.empty
            for name, parameter in inspect.signature(primitive.describe).parameters.items()
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        }
        self._plans: dict[Any, Plan] = {}
        self._retired_calls = 0

    def __call__(self, *arrays: Any, backend: Any = None, weights_key: Any = None, **params: Any) -> Any:
        """Run the operation on the fastest arm; the result has the array type of the caller."""
        if len(arrays) == 2 and backend is None and not params:
            # The most common key, inlined from :func:`plan_key`.
            one, two = arrays
            if type(one) is _ndarray and type(two) is _ndarray:
                key: Any = (one.shape, one.dtype, two.shape, two.dtype, weights_key is None, current_context())
                plan = self._plans.get(key)
                if plan is not None and plan.version == state.version:
                    return self.run(plan, arrays, weights_key, params)
        if params and len(arrays) < len(self._operands):
            # Operands given by name; None is an optional one that is not given.
            given = [(name, params.pop(name)) for name in list(self._operands)[len(arrays) :] if name in params]
            arrays += tuple([each for name, each in given if each is not None or self._operands[name]])
        if _calls_are_wrapped():
            return _call_wrapped(self, arrays, backend, weights_key, params)
        return self.find_and_run(arrays, backend, weights_key, params)

    def find_and_run(self, arrays: tuple[Any, ...], backend: Any, weights_key: Any, params: dict[str, Any]) -> Any:
        """Find the plan of a call, or create one, and run it; in chunks if no arm has memory for the whole call."""
        try:
            plan = self.plan_for(arrays, backend, weights_key, params)
        except OutOfMemoryError as error:
            keyed = _with_key(self.name, weights_key, params)
            result = _run_in_chunks(self.primitive, arrays, keyed, backend=backend, why=str(error), whole=math.inf)
            if result is None:
                raise
            return result
        except InvalidInputError:
            if not any(is_chunked(each) or wraps_chunks(each) for each in arrays):
                raise
            from hpfracc._plugs import cluster_support

            return cluster_support().apply_operation(self, arrays, backend, params)
        return self.run(plan, arrays, weights_key, params, checked=True)

    def run(
        self, plan: Plan, arrays: tuple[Any, ...], weights_key: Any, params: dict[str, Any], checked: bool = False
    ) -> Any:
        """Run a current plan of this operation: ``plan.version == state.version``.

        ``checked`` means that memory was checked and wrappers are active already.
        """
        bound = plan.bound
        if current() is not bound:
            if not checked and _calls_are_wrapped():
                return _call_wrapped(self, arrays, plan.backend, weights_key, params)
            record(bound)
        if not checked:
            guard = plan.guard
            if guard is not None:
                reading = guard.reading  # as in guard(), without the call
                if not (guard.clock() < reading.until and guard.enough <= reading.free) and not guard():
                    return self.find_and_run(arrays, plan.backend, weights_key, params)
            if spans.on or memory_spans.active:
                return _call_wrapped(self, arrays, plan.backend, weights_key, params)
        count = plan.tick()
        if count >= plan.review_at:
            return run_and_learn(plan, count, arrays, _with_key(self.name, weights_key, params))
        try:
            if weights_key is None:
                return bound.run(*arrays, **params) if params else bound.run(*arrays)
            bare = bound.bare
            if bare is not None:
                hash(weights_key)  # rejected in the same way if the kernel does not use it
                return bare(*arrays, **params) if params else bare(*arrays)
            run_prepared = bound.run_prepared
            if run_prepared is not None:
                return run_prepared(weights_key, params, arrays)
            return bound.run(*arrays, weights_key=weights_key, **params)
        except Exception as error:
            from hpfracc.engine.execution.recover import recover

            return recover(plan, bound, arrays, _with_key(self.name, weights_key, params), error)

    def plan_for(self, arrays: tuple[Any, ...], backend: Any, weights_key: Any, params: dict[str, Any]) -> Plan:
        """The plan for such a call, created if there is none or its arm lacks memory."""
        key, plan = self._find_plan(arrays, backend, weights_key, params)
        if plan is None or not plan.has_room() or plan.version != state.version:
            plan = self._new_plan(key, arrays, backend, weights_key, params)
        return plan

    def _find_plan(
        self, arrays: Any, backend: Any, weights_key: Any, params: dict[str, Any]
    ) -> tuple[Any, Plan | None]:
        key = plan_key(arrays, backend, weights_key, params, self.primitive.free_parameters)
        try:
            plan = self._plans.get(key)
            if plan is not None and self.primitive.free_parameters and plan.bound.arm.spec.compiles == "shape":
                # It compiles for their values, too.
                key = plan_key(arrays, backend, weights_key, params)
                plan = self._plans.get(key)
            return key, plan
        except TypeError:  # a list or a dict among the parameters
            check_backend(backend if backend is not None else "auto", auto=True)
            options = dict(enumerate(hashable_options(self.name, params)))
            key = plan_key(arrays, backend, weights_key, options)
            return key, self._plans.get(key)

    def _new_plan(self, key: Any, arrays: Any, backend: Any, weights_key: Any, params: Any) -> Plan:
        with spans.span(f"choose for {self.name}", "decide"):
            keyed = weights_key is not None
            plan = make_plan(self.primitive, arrays, params, backend=backend, prepared=keyed, in_pieces=_run_in_chunks)
        with self._lock:
            self._retire(list(self._plans) if len(self._plans) >= _MAX_PLANS else [key] if key in self._plans else [])
            self._plans[key] = plan
        return plan

    def _retire(self, keys: list[Any]) -> None:
        for key in keys:
            plan = self._plans.pop(key)
            plan.expire()
            self._retired_calls += plan.calls()

    def decide(self, *arrays: Any, backend: Any = None, weights_key: Any = None, **params: Any) -> Decision:
        """The decision for such a call, without running it; ``arrays`` may be :class:`ArraySpec`."""
        return self.foresee(arrays, backend, weights_key, params)[1]

    def foresee(
        self, arrays: tuple[Any, ...], backend: Any, weights_key: Any, params: dict[str, Any]
    ) -> tuple[Request, Decision]:
        """The request of such a call, and its decision: if there is a plan, the arm that it keeps until its review."""
        request = make_request(self.primitive, arrays, params, backend=backend, prepared=weights_key is not None)
        decision = decide(request, knowledge_for(request.settings), frozen=True).decision
        plan = self._find_plan(arrays, backend, weights_key, params)[1]
        if plan is not None and plan.version == state.version:
            decision = replace(plan.bound.decision, rows=decision.rows)
        return request, decision

    def calls(self) -> int:
        """Number of calls of this operation in this process."""
        with self._lock:
            return self._retired_calls + sum(plan.calls() for plan in self._plans.values())

    def reset_plans(self) -> None:
        """Decide again at the next call of each kind; counts are kept."""
        with self._lock:
            self._retire(list(self._plans))

    def reset(self) -> None:
        """Discard all plans and counts."""
        with self._lock:
            self.reset_plans()
            self._retired_calls = 0

    def __repr__(self) -> str:
        return f"<hpfracc operation {self.name!r}>"


def _run_in_chunks(*call: Any, **options: Any) -> Any:
    from hpfracc.engine.execution.batch.chunks import run_in_chunks  # loaded with the first such call

    return run_in_chunks(*call, **options)


def _calls_are_wrapped() -> bool:
    """Whether engine calls are profiled, run in a mode, or watched for memory growth."""
    return spans.on or memory_spans.active or type(current()) is Mode


# Wrappers of a call: a profiler's span, a dry run, a composite call, a record of memory growth. Each wraps the path of
# every call (:meth:`Operation.find_and_run`). Without them a call checks three flags and nothing here runs.


def _call_wrapped(
    operation: Operation, arrays: tuple[Any, ...], backend: Any, weights_key: Any, params: dict[str, Any]
) -> Any:
    """Run the call inside its wrappers; a dry run decides and returns zeros instead."""
    mode = current_mode()
    if mode is not None and mode.dry:
        request, decision = operation.foresee(arrays, backend, weights_key, params)
        mode.decisions.append(decision)
        return zeros_for(request)
    call = arrays, backend, weights_key, params
    with contextlib.ExitStack() as around:
        measured = _enter_span(around, operation, call) if spans.on else None
        if memory_spans.active:
            around.enter_context(span(operation.name))
        try:
            return operation.find_and_run(*call)
        finally:
            last = last_recorded()
            if mode is not None and isinstance(last, Decision):
                mode.decisions.append(last)
            if measured is not None and isinstance(last, Decision):
                from hpfracc.profiling.spans import SpanDecision

                facts = last.operation, last.arm, last.shape, last.dtype, last.start, last.library, last.wish
                measured.decision = SpanDecision((*facts, last.explored, last.fallbacks), last.to_dict)


def _enter_span(around: contextlib.ExitStack, operation: Operation, call: tuple[Any, ...]) -> Any:
    """Open a span, timed by the device's clock if the result stays there."""
    from hpfracc.profiling.spans import Span

    measured = around.enter_context(Span(spans, operation.name, "call"))
    try:
        plan = operation.plan_for(*call)
    except OutOfMemoryError:  # the call runs in chunks, or raises the error itself
        return measured
    bound, request = plan.bound, plan.request
    if bound.asynchronous and not request.placement.traced:
        measured.device = spans.device_time(queue_of(bound.arm))
        if measured.device is not None:
            measured.device.begin()
    return measured


def _signature(primitive: Primitive) -> inspect.Signature:
    """The signature of an operation: its operands, its parameters by name, and the common options."""
    named = list(inspect.signature(primitive.describe).parameters.values())
    added = ["backend", *(["weights_key"] if primitive.prepared_operand is not None else [])]
    keywords = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in added]
    after = next((n for n, each in enumerate(named) if each.kind is inspect.Parameter.VAR_KEYWORD), len(named))
    return inspect.Signature([*named[:after], *keywords, *named[after:]])


def _with_key(operation: str, weights_key: Any, params: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a kernel, with the key of its weights if there is one."""
    if weights_key is None:
        return params
    try:
        hash(weights_key)
    except TypeError:
        raise InvalidInputError(
            f"{operation}: weights_key={weights_key!r} cannot be hashed; use a tuple of what the weights depend on"
        ) from None
    return {**params, "weights_key": weights_key}


# Every operation by name: the built-in primitives and users' operations.

_lock = threading.Lock()
_operations: dict[str, Operation] = {}


def get_operation(name: str) -> Operation:
    """The operation of that name; raises :class:`UnknownOperationError` with similar names if there is none."""
    found = _operations.get(name)
    if found is None and name in PRIMITIVES:
        made = Operation(PRIMITIVES[name])
        with _lock:
            found = _operations.setdefault(name, made)
    if found is None:
        names = {*_operations, *PRIMITIVES}
        hint = _reading.hint(str(name), names)
        raise UnknownOperationError(f"unknown operation {name!r}; {hint}: {', '.join(sorted(names))}")
    return found


# A built-in operation is pickled by name, because every process has it; so a copy is the operation itself.
copyreg.pickle(Operation, lambda operation: (get_operation, (operation.name,)))


def all_operations() -> dict[str, Operation]:
    """Every operation by name."""
    return {name: get_operation(name) for name in dict.fromkeys((*PRIMITIVES, *_operations))}


def register(operation: Operation) -> Operation | None:
    """Add a user's operation; returns the one it replaces, if any.

    A built-in name cannot be replaced. A user's can, because notebook cells are run repeatedly.
    """
    with _lock:
        if operation.name in PRIMITIVES:
            raise InvalidInputError(f"operation name {operation.name!r} is built in; choose another")
        before = _operations.get(operation.name)
        _operations[operation.name] = operation
        OWN_PRIMITIVES[operation.name] = operation.primitive
        return before


def unregister(name: str) -> None:
    """Remove a user's operation."""
    with _lock:
        if name in PRIMITIVES:
            raise InvalidInputError(f"operation {name!r} is built in and cannot be removed")
        _operations.pop(name, None)
        OWN_PRIMITIVES.pop(name, None)


@after_fork
def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    for operation in _operations.values():
        operation.reset_plans()  # a plan may be bound to a library whose threads are not in this process
