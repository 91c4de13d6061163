"""Binding an arm to one kind of call: operands are moved to the arm, the kernel runs, the result is moved back."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from hpfracc._arrays import dtype_name, is_transformed, library_of, nbytes, tracks_gradient
from hpfracc._shielded import run_shielded
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Adapter, Arm, Kernel
from hpfracc.engine.execution.prepared import PreparedOperand, prepared_operands
from hpfracc.engine.primitives.base import Call, Primitive
from hpfracc.engine.selection.request import Placement
from hpfracc.profiling.recorder import NullSpan
from hpfracc.profiling.recorder import shared as spans

__all__ = ["BoundArm", "TransferLog", "bind", "compilation_span", "queue_of"]

Converter = Callable[[Any], Any]


class TransferLog(Protocol):
    """A context around each copy between host and device."""

    def __call__(self, adapter: Adapter, route: str, size: int, device: str) -> contextlib.AbstractContextManager[Any]:
        """The context of a copy of ``size`` bytes along ``route``."""


class BoundArm:
    """An arm bound to one kind of call.

    ``run(*arrays, **params)`` runs the call; ``run(..., weights_key=key)`` uses the cached transform of the operand
    that the primitive can prepare. If nothing has to be moved or cached, ``run`` is the kernel itself. If only the
    cached operand would have to be moved, ``run_prepared(key, params, arrays)`` is a shorter form of the second.
    """

    __slots__ = (
        "_apply_special",
        "_call",
        "_converters",
        "_index",
        "_kernel",
        "_no_scope",
        "_recent",
        "_scope",
        "_tag",
        "_to_caller",
        "arm",
        "bare",
        "decision",
        "expected",
        "fresh",
        "moves",
        "option",
        "run",
        "run_prepared",
        "slowdown",
    )

    def __init__(
        self,
        kernel: Kernel,
        arm: Arm,
        call: Call,
        converters: Sequence[Converter | None],
        to_caller: Converter | None,
        scope: Callable[[], contextlib.AbstractContextManager[Any] | None] | None,
        no_scope: Callable[[], bool] | None,
        index: int | None,
        keyed: bool,
        moves: bool,
        kind: Hashable = None,
    ) -> None:
        self.arm = arm
        # Why the arm was chosen, set by its plan. Kept here, because a call's decision is read later, when the plan may
        # have another arm.
        self.decision: Any = None
        #: What was known about the arm.
        self.option: Any = None
        #: Predicted seconds of a call; nan if unknown.
        self.expected = math.nan
        #: Predicted time relative to the fastest arm that only lacks memory; 0 if there is none.
        self.slowdown = 0.0
        #: Whether no earlier plan has compiled what the arm compiles.
        self.fresh = False
        self.moves = moves
        self._call = call
        self._converters = tuple(converters)
        self._to_caller = to_caller
        self._scope = scope
        self._no_scope = no_scope
        self._kernel = kernel
        #: ``apply`` of the kernel for the parameters of such calls, which are part of a plan's key.
        self._apply_special = None if kernel.specialise is None else kernel.specialise(call)
        self._index = index if kernel.prepare is not None else None
        #: The key of the last call and the cached transform of its operand.
        self._recent: tuple[Any, PreparedOperand] | None = None
        #: Part of the key of a cached transform: another shape or dtype is another operand.
        self._tag = _tag_number(
            (call.operation, arm.name, call.dtype, call.facts.get("prepared_for", call.length), kind)
        )
        plain = to_caller is None and scope is None and not any(self._converters)
        # If nothing has to be moved, the caller calls the kernel directly.
        self.bare: Callable[..., Any] | None = kernel.run if plain and (self._index is None or not keyed) else None
        self.run: Callable[..., Any] = self._run
        if self.bare is not None:
            self.run = partial(_without_key, kernel.run) if keyed else kernel.run
        ready = keyed and self._index == 0 and to_caller is None and not any(self._converters[1:])
        self.run_prepared: Callable[..., Any] | None = self._run_prepared if ready else None

    def compile_shielded(self, done: Callable[[], Any]) -> None:
        """Make the first call, which compiles, shielded from interrupts; ``done`` is called after it."""
        run, bare, run_prepared = self.run, self.bare, self.run_prepared

        def first(*arrays: Any, **params: Any) -> Any:
            result = run_shielded(partial(run, *arrays, **params))
            self.run, self.bare, self.run_prepared = run, bare, run_prepared
            done()
            return result

        self.run, self.bare, self.run_prepared = first, None, None

    def _run_prepared(self, weights_key: Any, params: dict[str, Any], arrays: tuple[Any, ...]) -> Any:
        """Run if only the cached operand would have to be moved."""
        if self._no_scope is not None and not self._no_scope():
            return self._run(*arrays, weights_key=weights_key, **params)
        recent = self._recent
        if recent is not None and recent[0] is weights_key and (prepared := recent[1].value) is not None:
            # The same key as in the last call is not looked up: that takes 5 % of a row of 1,000 points.
            recent[1].used = True
            prepared_operands.hits += 1
        else:
            prepared, entry = prepared_operands.find((weights_key, self._tag), partial(self._prepare, arrays[0]))
            self._recent = None if entry is None else (weights_key, entry)
        if self._apply_special is not None:
            return self._apply_special(prepared, *arrays[1:])
        assert self._kernel.apply is not None  # a kernel that prepares also applies
        return self._kernel.apply(prepared, *arrays[1:], **params)

    def _run(self, *arrays: Any, weights_key: Any = None, **params: Any) -> Any:
        scope = None if self._scope is None else self._scope()
        if scope is None:
            return self._convert_and_run(arrays, weights_key, params)
        with scope:
            return self._convert_and_run(arrays, weights_key, params)

    def _convert_and_run(self, arrays: tuple[Any, ...], weights_key: Any, params: dict[str, Any]) -> Any:
        converters = self._converters
        if weights_key is None or self._index is None:
            operands = [a if c is None else c(a) for a, c in zip(arrays, converters, strict=True)]
            run = self._spanned(self._kernel.run) if spans.on else self._kernel.run
            result = run(*operands, **params)
        else:
            index = self._index
            prepared = prepared_operands.get((weights_key, self._tag), partial(self._prepare, arrays[index]))
            operands = [
                a if c is None else c(a)
                for position, (a, c) in enumerate(zip(arrays, converters, strict=True))
                if position != index
            ]
            assert self._kernel.apply is not None  # a kernel that prepares also applies
            apply = self._spanned(self._kernel.apply) if spans.on else self._kernel.apply
            result = apply(prepared, *operands, **params)
        if self._to_caller is None:
            return result
        if isinstance(result, tuple):  # a user's kernel may have several results
            return tuple(map(self._to_caller, result))
        return self._to_caller(result)

    def _spanned(self, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """The kernel in its own span if operands are copied; otherwise its time is that of the call."""
        return _with_span(kernel, self._call.operation, self.arm) if self.moves else kernel

    def _prepare(self, operand: Any) -> Any:
        assert self._index is not None and self._kernel.prepare is not None
        converter = self._converters[self._index]
        return self._kernel.prepare(operand if converter is None else converter(operand), self._call)


def bind(
    primitive: Primitive,
    call: Call,
    arm: Arm,
    placement: Placement,
    arrays: Sequence[Any],
    log: TransferLog | None = None,
    *,
    keyed: bool = False,
    plain: bool = False,
) -> BoundArm:
    """Bind ``arm`` to calls whose operands look like ``arrays``; loads the kernel, which may import its library.

    ``keyed`` calls have the ``weights_key`` of a prepared operand, ``plain`` ones have no parameters.
    """
    kernel = registry.kernel(call.operation, arm.backend, arm.algorithm)
    if plain and kernel.plain is not None and call.facts.get("plain"):
        kernel = kernel.plain
    worker = registry.adapter(arm.backend)
    home = "numpy" if arm.backend == "numba" else arm.backend
    if arm.spec.threads:
        kernel = _with_workers(kernel, arm.workers)
    converters = [_converter(array, primitive.casts, call, arm, worker, home, placement, log) for array in arrays]
    to_caller = _to_caller(arm, worker, home, placement, log)
    # Asked at every call, because the settings that a scope changes may differ.
    no_scope = None if placement.traced else worker.works_without_scope(call)
    scope = None if no_scope is None else partial(worker.scope, call)
    index = primitive.prepared_operand
    tracked = placement.gradient or placement.traced
    if tracked and index is not None and (tracks_gradient(arrays[index]) or any(map(is_transformed, arrays))):
        # A cached transform has no derivative, so it is used only if its operand is not differentiated.
        index = None
    kind = None
    if index is not None and keyed:
        operand = arrays[index]
        # A JAX array's sharding tells the devices of one host apart, which are one arm.
        kind = (np.shape(operand), dtype_name(operand), getattr(operand, "sharding", None))
    moves = _moves(arm, placement)
    return BoundArm(kernel, arm, call, converters, to_caller, scope, no_scope, index, keyed, moves, kind)


def _moves(arm: Arm, placement: Placement) -> bool:
    """Whether the operands are copied to a device for this call, and the result back."""
    return not arm.on_host and placement.device == "cpu"


def _with_workers(kernel: Kernel, workers: int) -> Kernel:
    apply = None if kernel.apply is None else partial(kernel.apply, workers=workers)
    return Kernel(partial(kernel.run, workers=workers), kernel.prepare, apply)


def _converter(
    array: Any,
    casts: bool,
    call: Call,
    arm: Arm,
    worker: Adapter,
    home: str,
    placement: Placement,
    log: TransferLog | None,
) -> Converter | None:
    owner = library_of(array)
    cast = casts and dtype_name(array) != call.dtype
    if owner == home and home != "numpy" and not _moves(arm, placement):
        return partial(worker.cast, dtype=call.dtype) if cast else None
    if owner in ("numpy", "python"):
        to_host: Converter | None = None if type(array) is np.ndarray else np.asarray
        if placement.library == home != "numpy" and worker.is_asynchronous("cpu") and not cast:
            # It shares host memory and computes after the call has returned, when the caller may change the array.
            to_host = np.array
    else:
        to_host = registry.adapter(owner).read
    to_dtype = partial(np.asarray, dtype=call.dtype) if cast else None
    there = None if home == "numpy" else partial(_send, worker, arm.device, log)
    steps = [step for step in (to_host, to_dtype, there) if step is not None]
    if not steps:
        return None
    return steps[0] if len(steps) == 1 else partial(_chain, steps)


def _to_caller(arm: Arm, worker: Adapter, home: str, placement: Placement, log: TransferLog | None) -> Converter | None:
    if placement.library == home and not _moves(arm, placement):
        return None
    fetch = None if home == "numpy" else partial(_fetch, worker, arm.device, log)
    give = None if placement.library == "numpy" else partial(_return_to, registry.adapter(placement.library))
    steps = [step for step in (fetch, give) if step is not None]
    return steps[0] if len(steps) == 1 else partial(_chain, steps)


def _without_key(run: Callable[..., Any], *arrays: Any, weights_key: Any = None, **params: Any) -> Any:
    """Call a kernel that prepares no operand, without the key."""
    return run(*arrays, **params)


_tags: dict[Hashable, int] = {}
_MAX_TAGS = 4096
_numbers = itertools.count()


def _tag_number(tag: Hashable) -> int:
    """A number for what a prepared operand depends on besides its key; faster to hash than the tag itself.

    A dropped tag gets another number, and its operand is prepared again.
    """
    known = _tags.get(tag)
    if known is None:
        if len(_tags) >= _MAX_TAGS:
            _tags.clear()
        known = _tags.setdefault(tag, next(_numbers))
    return known


def _chain(steps: Sequence[Converter], value: Any) -> Any:
    for step in steps:
        value = step(value)
    return value


def _send(worker: Adapter, device: str, log: TransferLog | None, array: np.ndarray) -> Any:
    if spans.on and device != "cpu":
        with _transfer_span(worker, f"host->{device}", array.nbytes, device):
            return worker.from_host(array, device)
    if log is None or device == "cpu":
        return worker.from_host(array, device)
    with log(worker, f"host->{device}", array.nbytes, device):
        return worker.from_host(array, device)


def _fetch(worker: Adapter, device: str, log: TransferLog | None, array: Any) -> np.ndarray:
    if spans.on and device != "cpu":
        with _transfer_span(worker, f"{device}->host", nbytes(array), device):
            return worker.to_host(array)
    if log is None or device == "cpu":
        return worker.to_host(array)
    with log(worker, f"{device}->host", nbytes(array), device):
        return worker.to_host(array)


def _return_to(owner: Adapter, array: np.ndarray) -> Any:
    return owner.from_host(np.asarray(array), "cpu")


# Spans of kernels, copies and first calls, while the profiler is on.


def queue_of(arm: Arm) -> str:
    """The profiler's name of the device queue that an arm's kernels go to."""
    return f"{arm.backend}:{arm.device}"


def compilation_span(arm: Arm) -> contextlib.AbstractContextManager[Any]:
    """A span around the first call of a kernel that compiles; no span for one that does not."""
    if arm.spec.compiles == "never":
        return contextlib.nullcontext()
    return spans.span(f"first call of {arm.name}", "compile")


def _with_span(kernel: Callable[..., Any], operation: str, arm: Arm) -> Callable[..., Any]:
    """The kernel in a span, timed by the clock of its device."""

    def run(*operands: Any, **params: Any) -> Any:
        with spans.span(f"{operation} on {arm.name}", "kernel", queue_of(arm)):
            return kernel(*operands, **params)

    return run


def _transfer_span(worker: Adapter, route: str, size: int, device: str) -> contextlib.AbstractContextManager[Any]:
    """A span around a copy between host and device."""
    span = spans.span(route, "transfer", f"{worker.name}:{device}")
    if not isinstance(span, NullSpan):
        span.size = size
    return span
