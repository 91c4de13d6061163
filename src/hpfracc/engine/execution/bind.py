"""Binding an arm to one kind of call: operands are moved to the arm, the kernel runs, the result is moved back.

Copies and asynchronous work are timed by a pair of marks in the device's queue, which is read when the device has
passed them; until then the pair is pending here.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from hpfracc._arrays import dtype_name, is_transformed, library_of, nbytes, tracks_gradient
from hpfracc._interrupts import Guarded, after_fork, run_shielded
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Adapter, Arm, DeviceTimer, Kernel
from hpfracc.engine.primitives.base import Call, Primitive
from hpfracc.engine.selection.knowledge import Knowledge
from hpfracc.engine.selection.request import Placement
from hpfracc.profiling.recorder import NullSpan
from hpfracc.profiling.recorder import shared as spans

logger = logging.getLogger("hpfracc.engine")

Converter = Callable[[Any], Any]
#: A context around each copy, from the adapter, the route, the bytes and the device.
TransferLog = Callable[[Adapter, str, int, str], contextlib.AbstractContextManager[Any]]


class BoundArm:
    """An arm bound to one kind of call.

    ``run(*arrays, **params)`` runs the call; ``run(..., weights_key=key)`` uses the cached transform of the operand
    that the primitive can prepare. If nothing has to be moved or cached, ``run`` is the kernel itself. If only the
    cached operand would have to be moved, ``run_prepared(key, params, arrays)`` is a shorter form of the second.

    Parameters
    ----------
    primitive, call, arm, placement
        The work, where it runs, and where its operands are. The kernel is loaded, which may import its library.
    arrays : sequence
        Operands that look like those of the calls.
    log : callable, optional
        A context around each copy.
    keyed : bool
        Whether calls have the ``weights_key`` of a prepared operand.
    """

    __slots__ = (
        "_cached", "_call", "_converters", "_index", "_kernel", "_no_scope", "_scope", "_tag",
        "_to_caller", "arm", "asynchronous", "bare", "decision", "expected", "moves", "option", "run", "run_prepared",
    )  # fmt: skip

    def __init__(
        self,
        primitive: Primitive,
        call: Call,
        arm: Arm,
        placement: Placement,
        arrays: Sequence[Any],
        log: TransferLog | None = None,
        *,
        keyed: bool = False,
    ) -> None:
        kernel = registry.kernel(call.operation, arm.backend, arm.algorithm)
        if arm.spec.threads:
            workers = {"workers": arm.workers}
            apply = None if kernel.apply is None else partial(kernel.apply, **workers)
            kernel = Kernel(partial(kernel.run, **workers), kernel.prepare, apply)
        worker = registry.adapter(arm.backend)
        self.arm = arm
        # Why the arm was chosen, set by its plan. Kept here, because a call's decision is read later, when the plan may
        # have another arm.
        self.decision: Any = None
        #: What was known about the arm.
        self.option: Any = None
        #: Predicted seconds of a call; nan if unknown.
        self.expected = math.nan
        #: Whether the operands are copied to a device for this call, and the result back.
        self.moves = not arm.on_host and placement.device == "cpu"
        #: Whether work may still be running when the call returns.
        self.asynchronous = placement.library == arm.backend and not self.moves and worker.is_asynchronous(arm.device)
        self._call, self._kernel = call, kernel
        home = "numpy" if arm.backend == "numba" else arm.backend
        rest = primitive.casts, call, arm, home, placement, log
        self._converters = tuple(_converter(array, *rest) for array in arrays)
        stays = placement.library == home and not self.moves
        self._to_caller = None if stays else _to_caller(arm, worker, home, placement, log)
        # Asked at every call, because the settings that a scope changes may differ.
        self._no_scope = None if placement.traced else worker.works_without_scope(call)
        self._scope = None if self._no_scope is None else partial(worker.scope, call)
        index = primitive.prepared_operand if kernel.prepare is not None else None
        tracked = placement.gradient or placement.traced
        if tracked and index is not None and (tracks_gradient(arrays[index]) or any(map(is_transformed, arrays))):
            # A cached transform has no derivative, so it is used only if its operand is not differentiated.
            index = None
        self._index = index
        if index is not None:
            from hpfracc.engine.execution.prepared import prepared_operands  # most first calls prepare nothing

            self._cached = prepared_operands.get
        kind = None
        if index is not None and keyed:
            operand = arrays[index]
            # A JAX array's sharding tells the devices of one host apart, which are one arm.
            kind = (np.shape(operand), dtype_name(operand), getattr(operand, "sharding", None))
        #: Part of the key of a cached transform: another shape or dtype is another operand. Text is hashed only once.
        self._tag = repr((call.operation, arm.name, call.dtype, call.facts.get("prepared_for", call.length), kind))
        direct = self._to_caller is None and self._scope is None and not any(self._converters)
        # If nothing has to be moved, the caller calls the kernel directly.
        self.bare: Callable[..., Any] | None = kernel.run if direct and (index is None or not keyed) else None
        self.run: Callable[..., Any] = self._run
        if self.bare is not None:
            # A kernel that prepares no operand has no use for the key.
            self.run = (lambda *arrays, weights_key, **params: kernel.run(*arrays, **params)) if keyed else kernel.run
        ready = keyed and index == 0 and self._to_caller is None and not any(self._converters[1:])
        self.run_prepared: Callable[..., Any] | None = self._run_prepared if ready else None

    def compile_at_first(self, shielded: bool, done: Callable[[], Any]) -> None:
        """Make the next call as the one that compiles: with a span, ``shielded`` from interrupts; then ``done()``."""
        run, bare, run_prepared = self.run, self.bare, self.run_prepared

        def first(*arrays: Any, **params: Any) -> Any:
            call = partial(run, *arrays, **params)
            with spans.span(f"first call of {self.arm.name}", "compile"):
                result = run_shielded(call) if shielded else call()
            self.run, self.bare, self.run_prepared = run, bare, run_prepared
            done()
            return result

        self.run, self.bare, self.run_prepared = first, None, None

    def _run_prepared(self, weights_key: Any, params: dict[str, Any], arrays: tuple[Any, ...]) -> Any:
        """Run if only the cached operand would have to be moved."""
        if self._no_scope is not None and not self._no_scope():
            return self._run(*arrays, weights_key=weights_key, **params)
        prepared = self._cached((weights_key, self._tag), self._prepare, arrays[0])
        assert self._kernel.apply is not None  # a kernel that prepares also applies
        return self._kernel.apply(prepared, *arrays[1:], **params)

    def _run(self, *arrays: Any, weights_key: Any = None, **params: Any) -> Any:
        with (self._scope and self._scope()) or _UNTIMED:
            return self._convert_and_run(arrays, weights_key, params)

    def _convert_and_run(self, arrays: tuple[Any, ...], weights_key: Any, params: dict[str, Any]) -> Any:
        index = None if weights_key is None else self._index
        operands = [
            a if c is None else c(a)
            for position, (a, c) in enumerate(zip(arrays, self._converters, strict=True))
            if position != index
        ]
        run: Callable[..., Any] | None = self._kernel.run
        if index is not None:
            run = self._kernel.apply
            operands.insert(0, self._cached((weights_key, self._tag), self._prepare, arrays[index]))
        assert run is not None  # a kernel that prepares also applies
        span: contextlib.AbstractContextManager[Any] = _UNTIMED
        if spans.on and self.moves:  # otherwise its time is that of the call
            span = spans.span(f"{self._call.operation} on {self.arm.name}", "kernel", queue_of(self.arm))
        with span:
            result = run(*operands, **params)
        if self._to_caller is None:
            return result
        if isinstance(result, tuple):  # a user's kernel may have several results
            return tuple(map(self._to_caller, result))
        return self._to_caller(result)

    def _prepare(self, operand: Any) -> Any:
        assert self._index is not None and self._kernel.prepare is not None
        converter = self._converters[self._index]
        return self._kernel.prepare(operand if converter is None else converter(operand), self._call)


def _converter(
    array: Any, casts: bool, call: Call, arm: Arm, home: str, placement: Placement, log: TransferLog | None
) -> Converter | None:
    """How an operand gets to the arm's library, on its device and in its dtype; None if it is there."""
    owner, worker = library_of(array), registry.adapter(arm.backend)
    cast = casts and dtype_name(array) != call.dtype
    if owner == home and home != "numpy" and (arm.on_host or placement.device != "cpu"):
        return partial(worker.cast, dtype=call.dtype) if cast else None
    if owner not in ("numpy", "python"):
        to_host: Converter | None = registry.adapter(owner).read
    elif placement.library == home != "numpy" and worker.is_asynchronous("cpu") and not cast:
        # It shares host memory and computes after the call has returned, when the caller may change the array.
        to_host = np.array
    else:
        to_host = None if type(array) is np.ndarray else np.asarray
    to_dtype = partial(np.asarray, dtype=call.dtype) if cast else None
    return _chain(to_host, to_dtype, None if home == "numpy" else partial(_send, worker, arm.device, log))


def _to_caller(arm: Arm, worker: Adapter, home: str, placement: Placement, log: TransferLog | None) -> Converter | None:
    fetch = None if home == "numpy" else partial(_fetch, worker, arm.device, log)
    if placement.library == "numpy":
        return fetch
    give = registry.adapter(placement.library).from_host
    return _chain(fetch, lambda array: give(np.asarray(array), "cpu"))


def _chain(*steps: Converter | None) -> Converter | None:
    """The steps that are not None, one after the other; None without any."""
    given = [step for step in steps if step is not None]
    if len(given) < 2:
        return given[0] if given else None
    return lambda value: functools.reduce(lambda found, step: step(found), given, value)


def _send(worker: Adapter, device: str, log: TransferLog | None, array: np.ndarray) -> Any:
    with _around(worker, f"host->{device}", array, device, log):
        return worker.from_host(array, device)


def _fetch(worker: Adapter, device: str, log: TransferLog | None, array: Any) -> np.ndarray:
    with _around(worker, f"{device}->host", array, device, log):
        return worker.to_host(array)


def _around(
    worker: Adapter, route: str, array: Any, device: str, log: TransferLog | None
) -> contextlib.AbstractContextManager[Any]:
    """The context of a copy: a span while the profiler is on, otherwise that of the log."""
    if device == "cpu":
        return _UNTIMED
    if spans.on:
        span = spans.span(route, "transfer", f"{worker.name}:{device}")
        if not isinstance(span, NullSpan):
            span.size = nbytes(array)
        return span
    return _UNTIMED if log is None else log(worker, route, nbytes(array), device)


def queue_of(arm: Arm) -> str:
    """The profiler's name of the device queue that an arm's kernels go to."""
    return f"{arm.backend}:{arm.device}"


#: Maximum number of pending marks. Older ones are dropped unread, which loses one sample each.
_MAX_PENDING = 256


class PendingTimes(Guarded):
    """Pending timers, and the callback for each time."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[tuple[DeviceTimer, Callable[[float], None]]] = deque(maxlen=_MAX_PENDING)

    def add(self, timer: DeviceTimer, then: Callable[[float], None]) -> None:
        """Call ``then(seconds)`` in a later :meth:`settle`."""
        with self._lock:
            self._waiting.append((timer, then))

    def settle(self) -> None:
        """Report the times that have become known; never waits for a device."""
        if not self._waiting:
            return
        with self._lock:
            entries = list(self._waiting)
            self._waiting.clear()
        for timer, then in entries:
            try:
                seconds = timer.seconds()
                if seconds is not None:
                    then(seconds)
            except Exception:  # a sample is lost; the current call is unrelated to it
                logger.debug("a timer could not be read", exc_info=True)
                continue
            if seconds is None:
                self.add(timer, then)

    def reset(self) -> None:
        """Discard pending timers, because a forked child must not read its parent's marks."""
        self._waiting.clear()


pending_times = PendingTimes()

after_fork(pending_times.reset)


#: Number of first copies that are all timed, and interval of timed copies afterwards. Marks in a queue cost little, but
#: reading and storing hundreds of them is measurable in calls of a millisecond (``benchmarks/convolution.py``).
_TIMED_AT_FIRST, _ONE_IN = 16, 64
_UNTIMED = contextlib.nullcontext()


def log_transfer(knowledge: Knowledge) -> TransferLog:
    """A transfer log that learns the cost of copies."""
    number = itertools.count()

    def log(adapter: Adapter, route: str, size: int, device: str) -> contextlib.AbstractContextManager[Any]:
        count = next(number)
        if count >= _TIMED_AT_FIRST and count % _ONE_IN:
            return _UNTIMED
        timer = adapter.timer(device)
        return _UNTIMED if timer is None else _timed(timer, knowledge, route, size)

    return log


@contextlib.contextmanager
def _timed(timer: DeviceTimer, knowledge: Knowledge, route: str, size: int) -> Iterator[None]:
    timer.start()
    yield
    timer.stop()
    pending_times.add(timer, lambda seconds: knowledge.observe_transfer(route, size, seconds))
