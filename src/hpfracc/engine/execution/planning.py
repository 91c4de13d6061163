"""Making a plan: describe the call, decide, bind the arm that was chosen."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from hpfracc._arrays import dtype_name, is_array, library_of
from hpfracc._config import current_context
from hpfracc._frames import refuse_tables
from hpfracc.engine.backends import registry
from hpfracc.engine.execution.binding import Bound, bind
from hpfracc.engine.execution.plan import Plan
from hpfracc.engine.execution.timing import log_transfer
from hpfracc.engine.primitives.base import ArraySpec, Primitive
from hpfracc.engine.selection.decide import Selection, decide
from hpfracc.engine.selection.exploration import MAX_WARMUP_CALLS
from hpfracc.engine.selection.knowledge import Knowledge, knowledge_for
from hpfracc.engine.selection.request import Placement, Request, find_preference, place
from hpfracc.errors import InvalidInputError, ShapeError

__all__ = [
    "as_array",
    "bind_verdict",
    "hashable_options",
    "learns",
    "make_plan",
    "make_request",
    "without",
    "zeros_for",
]


def make_request(
    primitive: Primitive,
    arrays: Sequence[Any],
    params: Mapping[str, Any],
    *,
    backend: Any = None,
    prepared: bool = False,
    placement: Placement | None = None,
    limit: int | None = None,
    kernel: str | None = None,
    short: bool = False,
) -> Request:
    """Check the operands and say what is asked; raises the primitive's typed errors."""
    context = current_context()
    settings = context.settings()
    if placement is None:
        placement = place(arrays)
    if prepared and primitive.prepared_operand is None:
        raise InvalidInputError(f"{primitive.name} has no operand that could be kept prepared; leave weights_key out")
    kinds = tuple((_dtype(array), tuple(array.shape)) for array in map(as_array, arrays))
    options = hashable_options(primitive.name, params)
    return Request(
        primitive=primitive,
        call=primitive.describe(*arrays, **params),
        placement=placement,
        settings=settings,
        signature=(tuple((dtype, len(shape)) for dtype, shape in kinds), options),
        shapes=(kinds, options),
        preference=find_preference(primitive.name, settings, argument=backend, context=context.backend),
        prepared=prepared,
        banned=context.banned,
        limit=limit,
        kernel=kernel,
        plain=not params,
        short=short,
    )


def make_plan(
    primitive: Primitive,
    arrays: Sequence[Any],
    params: Mapping[str, Any],
    *,
    backend: Any = None,
    prepared: bool = False,
    limit: int | None = None,
    kernel: str | None = None,
    short: bool = False,
) -> Plan:
    """The plan for such a call, which may take ``limit`` bytes in all and, if one is named, runs on that ``kernel``.

    ``short`` says that it is a piece of a call for which memory was short.
    """
    request = make_request(
        primitive, arrays, params, backend=backend, prepared=prepared, limit=limit, kernel=kernel, short=short
    )
    knowledge = knowledge_for(request.settings)
    verdict, bound = bind_verdict(request, knowledge, arrays)
    plan = Plan(request, knowledge, bound, verdict.decision, verdict.option, request.settings.version)
    plan.fresh = verdict.arm.spec.compiles != "never" and _is_new(request.compile_key(verdict.arm), _compiled)
    plan.backend = backend
    plan.slowdown = verdict.slowdown
    if verdict.in_chunks is not None:
        plan.in_chunks = verdict.in_chunks
        plan.attention = 0  # every call is looked at
    elif learns(request):
        # While something is to be learned the first call of a kind is looked at: it may be the only one.
        tells = knowledge.is_first(verdict.option) or verdict.review_after <= MAX_WARMUP_CALLS
        plan.keep_for(0 if tells else verdict.review_after, 0)
    return plan


#: What plans had to compile, so that the first call of the next one is known to, or not to; for the profiler.
_compiled: set[Hashable] = set()
#: What has been compiled in this process, out of the reach of interrupts.
_compiled_here: set[Hashable] = set()
_MOST_COMPILED = 8192


def _is_new(key: Hashable, known: set[Hashable]) -> bool:
    """Whether a key was not known; it is from now on."""
    if key in known:
        return False
    if len(known) >= _MOST_COMPILED:
        known.clear()
    known.add(key)
    return True


def learns(request: Request) -> bool:
    """Whether calls of this kind are timed: not while tracing, and not where decisions must stay as they are."""
    return request.settings.enable_learning and not request.settings.deterministic and not request.placement.traced


def bind_verdict(
    request: Request, knowledge: Knowledge, arrays: Sequence[Any], bound: Bound | None = None
) -> tuple[Selection, Bound]:
    """Decide and bind; an automatic choice whose library cannot be imported is left out and decided again.

    ``bound`` is what is in use now, and stays so if its arm is chosen again.
    """
    while True:
        verdict = decide(request, knowledge)
        if bound is not None and verdict.arm == bound.arm:
            return verdict, bound
        try:
            bound = bind(
                request.primitive,
                request.call,
                verdict.arm,
                request.placement,
                arrays,
                log_transfer(knowledge) if learns(request) else None,
                keyed=request.prepared,
                plain=request.plain,
            )
        except ImportError as error:
            registry.mark_broken(verdict.arm.backend, error)
            if request.preference is not None:
                raise
            knowledge.note_fallback(request.call.operation, verdict.arm.name, "another", "cannot be imported", error)
            continue
        key = request.compile_key(verdict.arm)
        if key not in _compiled_here and registry.shields_compilation(request.call.operation, verdict.arm):
            bound.compile_shielded(partial(_is_new, key, _compiled_here))
        if verdict.arm not in registry.arms(request.call.operation):
            # Only now imported, the library knows no such device: the machine's own word was wrong.
            continue
        return verdict, bound


def zeros_for(request: Request) -> Any:
    """What a call would hand back, but for the values: for looking at decisions without computing."""
    call, placement = request.call, request.placement
    empty = np.zeros(call.shape, call.facts.get("result", call.dtype))
    if placement.library == "numpy":
        return empty
    return registry.adapter(placement.library).from_host(empty, placement.device)


def without(request: Request, arm: str) -> Request:
    """The same request with one more arm that has failed."""
    return replace(request, tried=request.tried | {arm})


def as_array(array: Any) -> Any:
    """An operand as it is, or the array that a number or a list stands for."""
    if isinstance(array, ArraySpec) or library_of(array) != "python":
        return array
    refuse_tables("an operation of the engine", array)
    try:
        return np.asarray(array)
    except ValueError as error:
        raise ShapeError(f"a list that is no array was given ({error}); make its rows equally long") from None


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
            f"{operation}: {name}={value!r} cannot be told from other values; use numbers, text, tuples, lists or dicts"
        ) from None
    return value  # type: ignore[no-any-return]


def _dtype(array: Any) -> str:
    return array.dtype if isinstance(array, ArraySpec) else dtype_name(array)
