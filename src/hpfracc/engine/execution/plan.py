"""Plans: how calls of one kind are run, and how a plan is created.

A call is described (:func:`make_request`), an arm is chosen and bound (:func:`choose_and_bind`), and the two are
stored as a :class:`Plan` until a review is due.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from hpfracc._arrays import KINDS, PAIR_KINDS, is_array, library_of, quick_kind
from hpfracc._config import current_context
from hpfracc._torch_transforms import is_deterministic
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.execution.bind import BoundArm, log_transfer
from hpfracc.engine.memory.budget import MemoryGuard, get_budget
from hpfracc.engine.primitives.base import ArraySpec, Primitive, dtype_of
from hpfracc.engine.selection.call_memory import (
    NEGLIGIBLE_BYTES,
    fresh_bytes,
    memory_share,
    predicted_bytes,
)
from hpfracc.engine.selection.decide import Selection, decide
from hpfracc.engine.selection.decision import Decision
from hpfracc.engine.selection.knowledge import Knowledge, knowledge_for
from hpfracc.engine.selection.policy import LONG_CALL_SECONDS, MAX_WARMUP_CALLS
from hpfracc.engine.selection.request import Placement, Request, find_preference, place
from hpfracc.errors import InvalidInputError, ShapeError

#: Maximum fraction of the time of calls that timing a settled plan may take, and likewise for reviewing it.
_SHARE = 0.01
#: Calls after which a plan that learns nothing is chosen again, once one of its arms has failed.
RECHECK = 256
#: Maximum number of calls between two timed ones.
MAX_CALLS_BETWEEN_LOOKS = 4096
#: A call shorter than timing and reviewing one is timed again after this many times as many calls as before it, until
#: that takes less than the share above. The call after a review is slow too, because caches are cold: with 5, six of
#: the first hundred calls (with 4, eight).
_PACE = 5
#: Seconds of timing a call and learning from it, and of choosing again, on an idle desktop.
_LOOK_SECONDS, _REVIEW_SECONDS = 50e-6, 200e-6


class Plan:
    """How calls of one kind are run: the bound arm, and the number of the call that reviews the choice (``review_at``).

    ``tick`` is an ``itertools.count``: one atomic C call, so every call is counted. Only this module changes a plan.
    """

    __slots__ = (
        "backend", "bound", "guard", "in_chunks", "in_pieces", "interval", "knowledge", "peeks", "request",
        "review_at", "run_seconds", "seen", "tick", "version", "warm",
    )  # fmt: skip

    def __init__(
        self,
        request: Request,
        knowledge: Knowledge,
        selection: Selection,
        bound: BoundArm,
        backend: Any,
        in_pieces: Callable[..., Any] | None,
    ) -> None:
        self.request = request
        self.knowledge = knowledge
        self.version = request.settings.version
        self.tick: Callable[[], int] = itertools.count(1).__next__
        self.review_at: float = math.inf
        #: The backend that the call requested, for planning its chunks.
        self.backend = backend
        #: Why the call should run in chunks, or None.
        self.in_chunks = None if in_pieces is None else selection.in_chunks
        #: Runs a call in chunks (:func:`.chunks.run_in_chunks`); None for a plan of one chunk of a larger call.
        self.in_pieces = in_pieces
        self.seen = self.peeks = self.interval = 0
        self.warm: set[str] = set()
        self.adopt(bound, selection, math.nan)

    def adopt(self, bound: BoundArm, selection: Selection, expected: float, decision: Decision | None = None) -> None:
        """Use the arm of a selection (or the same one, bound again), for calls of ``expected`` seconds."""
        bound.decision = selection.decision if decision is None else decision
        bound.option = selection.option
        bound.expected = expected
        self.run_seconds = 0.0
        self.bound = bound
        #: Checks before each call whether it fits into memory, from a recent reading; None for small calls.
        self.guard: MemoryGuard | None = None
        request, arm = self.request, bound.arm
        need = predicted_bytes(request.primitive, request.call, arm)
        if need >= NEGLIGIBLE_BYTES and not request.placement.traced:
            share, owner = memory_share(request.settings, arm), None if arm.on_host else arm.backend
            self.guard = get_budget().guard(fresh_bytes(request, arm, need), arm.device, share, owner)

    def has_room(self) -> bool:
        """Whether a call that fitted when it was planned still does; memory is freed if it does not."""
        guard = self.guard
        if guard is None or guard():
            return True
        from hpfracc.engine.execution.pressure.ladder import ladder

        ladder.climb(self.bound.arm.device, enough=guard, highest="library caches")
        return bool(guard())

    def expire(self) -> None:
        """Have the next call planned from scratch."""
        self.version = -1

    def run_whole(self) -> None:
        """Run the call as a whole again."""
        self.in_chunks = None

    def run_in_chunks(self, arrays: tuple[Any, ...], params: dict[str, Any], **options: Any) -> Any:
        """The result of a call in chunks, with the options of :func:`.chunks.run_in_chunks`, or None."""
        if self.in_pieces is None:
            return None
        return self.in_pieces(self.request.primitive, arrays, params, backend=self.backend, **options)

    def calls(self) -> int:
        """Number of calls so far. Reading takes a tick, which is subtracted."""
        self.peeks += 1
        return self.tick() - self.peeks

    def claim(self, count: int) -> int:
        """Number of unreported calls up to call ``count``, which count as reported from now on."""
        calls, self.seen = count - self.seen, max(count, self.seen)
        return max(1, calls)

    def keep_for(self, calls: int, now: int) -> None:
        """Keep the arm for ``calls`` further calls after call ``now``; the one after them is timed.

        Of short calls, geometrically fewer are timed and reviewed (:data:`_PACE`); a trial of another arm ends at once.
        """
        expected = self.bound.expected
        first: float = 0
        if calls > MAX_WARMUP_CALLS and expected > 0.0:  # settled, with a known time per call
            calls = max(calls, min(MAX_CALLS_BETWEEN_LOOKS, int(_LOOK_SECONDS / _SHARE / expected)))
        elif not (expected >= _LOOK_SECONDS + _REVIEW_SECONDS or self.bound.decision.explored):
            cheap = (_LOOK_SECONDS + _REVIEW_SECONDS) / _SHARE / expected if expected > 0.0 else math.inf
            first = now + min((_PACE - 1) * now, cheap)
        self.seen = max(now, self.seen)
        self.interval = calls
        self.review_at = max(now + calls + 1, first)

    def review_after(self, calls: int) -> None:
        """Review the choice after ``calls`` further calls, whatever they take."""
        self.review_at = self.seen + calls

    def warms_up(self, arm: Arm) -> bool:
        """Whether this is the arm's first call in this plan, which is slower; true only once.

        The first call transforms weights that are cached, and a GPU library creates its plans for the shape.
        """
        if arm.name in self.warm:
            return False
        self.warm.add(arm.name)
        return self.request.prepared or not arm.on_host

    def deserves_review(self, seconds: float, calls: int) -> bool:
        """Whether to choose again after a call that took ``seconds`` and represents ``calls``.

        Always while the plan learns or tries another arm. Later only after so much run time that a review costs little
        beside it. Long calls, which are all timed, count as later: with 13 arms a review takes 0.6 to 1 ms, a tenth of
        a call of 100,000 points on a busy machine.
        """
        self.run_seconds += seconds * calls
        expected = self.bound.expected
        learning = self.interval <= MAX_WARMUP_CALLS and not expected >= LONG_CALL_SECONDS
        return learning or self.bound.decision.explored or _SHARE * self.run_seconds >= _REVIEW_SECONDS


def make_request(
    primitive: Primitive,
    arrays: Sequence[Any],
    params: Mapping[str, Any],
    *,
    backend: Any = None,
    placement: Placement | None = None,
    **options: Any,
) -> Request:
    """Check the operands and describe the call; raises the primitive's typed errors.

    ``options`` are further attributes of the request: ``prepared``, ``limit``, ``kernel``, ``short``.
    """
    context = current_context()
    settings = context.settings()
    if placement is None:
        placement = place(arrays)
    if placement.library == "torch" and is_deterministic():
        settings = replace(settings, deterministic=True)
    if options.get("prepared") and primitive.prepared_operand is None:
        raise InvalidInputError(f"{primitive.name} has no operand that can be prepared; omit weights_key")
    kinds = tuple((dtype_of(array), tuple(array.shape)) for array in map(as_array, arrays))
    return Request(
        primitive,
        primitive.describe(*arrays, **params),
        placement,
        settings,
        shapes=(kinds, hashable_options(primitive.name, params)),
        preference=find_preference(primitive.name, settings, argument=backend, context=context.backend),
        banned=context.banned,
        **options,
    )


def make_plan(
    primitive: Primitive,
    arrays: Sequence[Any],
    params: Mapping[str, Any],
    *,
    backend: Any = None,
    in_pieces: Callable[..., Any] | None = None,
    **options: Any,
) -> Plan:
    """The plan for such a call, with the ``options`` of :func:`make_request`."""
    request = make_request(primitive, arrays, params, backend=backend, **options)
    knowledge = knowledge_for(request.settings)
    selection, bound = choose_and_bind(request, knowledge, arrays)
    plan = Plan(request, knowledge, selection, bound, backend, in_pieces)
    # While there is something to learn, the first call of a kind is timed, because it may be the only one.
    if plan.in_chunks is not None:
        plan.review_after(0)  # at every call
    elif learns(request) and (knowledge.is_first(selection.option) or selection.review_after <= MAX_WARMUP_CALLS):
        plan.review_after(1)
    elif learns(request):
        plan.keep_for(selection.review_after, 0)
    return plan


#: What was compiled in this process.
_compiled: set[Hashable] = set()
_MAX_COMPILED = 8192


def _note_compiled(key: Hashable) -> None:
    if len(_compiled) >= _MAX_COMPILED:
        _compiled.clear()
    _compiled.add(key)


def learns(request: Request) -> bool:
    """Whether calls of this kind are timed: not while tracing, and not if decisions must not change."""
    return request.settings.enable_learning and not request.settings.deterministic and not request.placement.traced


def choose_and_bind(
    request: Request, knowledge: Knowledge, arrays: Sequence[Any], bound: BoundArm | None = None
) -> tuple[Selection, BoundArm]:
    """Choose an arm and bind it. If the library of an automatic choice cannot be imported, another arm is chosen.

    ``bound`` is the current one, which is returned if its arm is chosen again.
    """
    while True:
        selection = decide(request, knowledge)
        if bound is not None and selection.arm == bound.arm:
            return selection, bound
        try:
            log = log_transfer(knowledge) if learns(request) else None
            work = request.primitive, request.call, selection.arm, request.placement
            bound = BoundArm(*work, arrays, log, keyed=request.prepared)
        except ImportError as error:
            registry.mark_broken(selection.arm.backend, error)
            if request.preference is not None:
                raise
            knowledge.note_fallback(request.call.operation, selection.arm.name, "another", "cannot be imported", error)
            continue
        key = request.compile_key(selection.arm)
        if selection.arm.spec.compiles != "never" and key not in _compiled and not request.placement.traced:
            shielded = registry.shields_compilation(request.call.operation, selection.arm)
            bound.compile_at_first(shielded, partial(_note_compiled, key))
        if selection.arm not in registry.arms(request.call.operation):
            # The library, imported only now, has no such device.
            continue
        return selection, bound


def zeros_for(request: Request) -> Any:
    """Zeros in place of the result of a call, for dry runs."""
    call, placement = request.call, request.placement
    empty = np.zeros(call.shape, call.facts.get("result", call.dtype))
    if placement.library == "numpy":
        return empty
    return registry.adapter(placement.library).from_host(empty, placement.device)


def as_array(array: Any) -> Any:
    """An operand, as a NumPy array if it is a number or a list."""
    if isinstance(array, ArraySpec) or library_of(array) != "python":
        return array
    if not isinstance(array, int | float | complex | list | tuple):
        from hpfracc._frames import refuse_tables

        refuse_tables("an operation of the engine", array)
    try:
        return np.asarray(array)
    except ValueError as error:
        raise ShapeError(f"a list has rows of different lengths ({error}); make them equal") from None


def plan_key(
    arrays: tuple[Any, ...], backend: Any, weights_key: Any, params: dict[Any, Any], free: frozenset[str] = frozenset()
) -> Any:
    """The key of a call's plan: what the plan depends on, without the values of ``free`` parameters."""
    if len(arrays) == 2 and backend is None and not params and type(arrays[0]) is type(arrays[1]):
        pair = PAIR_KINDS.get(type(arrays[0]))
        found = None if pair is None else pair(*arrays)
        if found is not None:
            return found, weights_key is None, current_context()
    kinds: list[Any] = []
    for array in arrays:
        read = KINDS.get(type(array))
        if read is not None:
            kinds += read(array)
        elif library_of(array) == "python":
            made = as_array(array)
            kinds += (type(array), made.shape, made.dtype)
        else:
            kinds += quick_kind(array)
    if backend is not None or params:
        # With the types: 1, 1.0 and True are equal, but not to every kernel.
        kinds += (backend, tuple([(name, type(value), name in free or value) for name, value in params.items()]))
    return (*kinds, weights_key is None, current_context())


def hashable_options(operation: str, params: Mapping[str, Any]) -> tuple[Hashable, ...]:
    """The parameters as part of a key, with their types: 1, 1.0 and True are equal, but not to every kernel."""
    return tuple((name, type(value), _hashable(operation, name, value)) for name, value in params.items())


def _hashable(operation: str, name: str, value: Any) -> Hashable:
    if isinstance(value, list | tuple):
        return tuple(_hashable(operation, name, each) for each in value)
    if isinstance(value, Mapping):
        return tuple((key, _hashable(operation, name, each)) for key, each in value.items())
    if is_array(value) and len(value.shape):
        raise InvalidInputError(f"{operation}: the array {name} was given by keyword; pass arrays first, by position")
    try:
        hash(value)
    except TypeError:
        raise InvalidInputError(
            f"{operation}: {name}={value!r} cannot be compared; use numbers, text, tuples, lists or dicts"
        ) from None
    return value  # type: ignore[no-any-return]
