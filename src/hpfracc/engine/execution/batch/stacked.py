"""A group of items of one kind, run in chunks by an operation of the engine or by a function that takes stacks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hpfracc._arrays import device_of, dtype_name, library_of, tracks_gradient
from hpfracc._config import current_context, get_settings
from hpfracc.engine.backends import registry
from hpfracc.engine.execution import decision_log
from hpfracc.engine.execution.batch import driver
from hpfracc.engine.execution.batch.driver import ChunkSizer, ChunkTooLargeError
from hpfracc.engine.execution.batch.in_memory import run_in_chunks
from hpfracc.engine.execution.batch.items import Batch, Stacking, kind_of, random_stream
from hpfracc.engine.execution.batch.planning import Job, decision_in_chunks
from hpfracc.engine.execution.batch.probing import fit_line, measure_peak
from hpfracc.engine.execution.operation import Operation
from hpfracc.engine.execution.plan import make_request
from hpfracc.engine.execution.pressure.ladder import ladder
from hpfracc.engine.execution.pressure.pool import staging_pool
from hpfracc.engine.execution.recover import Failure, classify, drop_frames
from hpfracc.engine.memory.budget import get_budget
from hpfracc.engine.memory.buffers import BufferPool
from hpfracc.engine.primitives.base import INEXACT, INTEGERS, ArraySpec, dtype_of
from hpfracc.engine.primitives.operands import shape_of
from hpfracc.engine.selection.call_memory import HOST_SHARE
from hpfracc.engine.selection.request import place
from hpfracc.errors import InvalidInputError, OutOfMemoryError

__all__ = ["StackedFunction", "StackedOperation", "remembered_kernels"]

#: The kernel of each kind of batch, in this process.
remembered_kernels: dict[Hashable, str] = {}
#: Initial number of items for a function with unknown memory needs.
_BEGIN_WITH = 64


def rows_of(stacked: Any, count: int) -> list[Any]:
    """The results of single items, as views of the stacked ones."""
    library, rows = library_of(stacked), []
    if library == "python" or (stacked.shape and stacked.shape[0] == count):
        if library == "torch" and not tracks_gradient(stacked):
            # All views in one call; autograd would forbid writing to them, so with gradients each is made separately.
            rows = list(stacked.unbind(0))
        else:
            rows = list(stacked) if library in ("python", "numpy") else [stacked[index] for index in range(count)]
    if len(rows) != count:
        raise InvalidInputError(
            f"a batched function returned a result of shape {shape_of(stacked)} for {count} items; "
            "the first axis of its result is that of the items"
        )
    return rows


def _sizer(batch: Batch, total: int, most: int, *key: Hashable) -> ChunkSizer:
    """Chunks of at most ``most`` of ``total`` items, in few sizes."""
    cap = total if batch.batch_size is None else min(batch.batch_size, total)
    first = total if most >= total else driver.round_size(max(1, most))
    return ChunkSizer(min(first, cap), cap, (*key, batch.limit), rounds=True)


class StackedOperation:
    """A group of calls of an engine operation: the source of its chunks, all of which run on one kernel."""

    def __init__(self, batch: Batch, operation: Operation, indices: Sequence[int], how: Stacking) -> None:
        self._calls = calls = batch.calls
        self._how = how
        first, total = calls[indices[0]], len(indices)
        #: Whether each operand is the same object in every item, and so passed once.
        self._shared = calls.shared(indices)
        if all(self._shared):
            self._shared = (*(True,) * (len(first) - 1), False)
        params = dict(how.params)
        request = make_request(operation.primitive, self._specs(first, total), params, backend=batch.backend)
        self._job = Job(operation.primitive, params, replace(request, placement=place(first)), batch.limit)
        self._job.options["kernel"] = self._kernel(first, total)
        most = driver.largest_that_fits(lambda count: self._fits(first, count, total), total)
        self.sizer = _sizer(batch, total, most, operation.name, kind_of(first), self._job.options["kernel"])

    def _specs(self, first: tuple[Any, ...], count: int) -> tuple[ArraySpec, ...]:
        return tuple(
            ArraySpec(shape if shared else (count, *shape), dtype_of(value))
            for value, shape, shared in zip(first, self._how.shapes, self._shared, strict=True)
        )

    def _fits(self, first: tuple[Any, ...], count: int, total: int) -> bool:
        """Whether ``count`` items fit together, beside all results and, on the host, the buffer for stacking."""
        specs = self._specs(first, count)
        whole = self._job.request.call.output_bytes
        reserved = whole - whole * count // max(1, total)
        if self._job.request.placement.library == "numpy" and self._calls.listed:
            reserved += sum(
                spec.size * np.dtype(spec.dtype).itemsize
                for spec, shared in zip(specs, self._shared, strict=True)
                if not shared
            )
        return self._job.fits(specs, reserved)

    def _kernel(self, first: tuple[Any, ...], count: int) -> str | None:
        """The kernel for the whole group: the same for chunks of any size, so that the size changes no result."""
        request = self._job.request
        call = (request.call.operation, request.placement, request.shapes, request.preference, kind_of(first), count)
        # Remembered, so that what is learned in the meantime does not change the result of the same batch.
        key = (*call, request.settings.version, current_context())
        if key not in remembered_kernels:
            selection = self._job.select(self._specs(first, count), ignore_memory=True)
            if selection is None:
                return None
            driver.keep_bounded(remembered_kernels, key, f"{selection.arm.backend}:{selection.arm.algorithm}")
        return remembered_kernels[key]

    def run(self, part: Sequence[int]) -> list[Any]:
        """The results of these items."""
        return self._run(part, self._job.run)

    def run_smaller(self, part: Sequence[int], short: ChunkTooLargeError) -> list[Any]:
        """The results of a single item that does not fit as a whole."""

        def in_chunks(operands: tuple[Any, ...]) -> Any:
            self._job.options["kernel"] = None
            job = self._job
            found = run_in_chunks(job.primitive, operands, job.params, backend=job.backend, why=str(short))
            if found is None:
                raise OutOfMemoryError(str(short)) from None
            return found

        return self._run(part, in_chunks)

    def _run(self, part: Sequence[int], call: Callable[[tuple[Any, ...]], Any]) -> list[Any]:
        pool = staging_pool()
        held: list[Any] = []
        operands = []
        for number, (shape, shared) in enumerate(zip(self._how.shapes, self._shared, strict=True)):
            values = self._calls.operand(number, part[:1] if shared else part)
            if shared:
                value = values[0] if library_of(values[0]) != "python" else np.asarray(values[0])
                operands.append(value.reshape(shape))
            else:
                stacked = _laid_out(values, pool, held) if isinstance(values, list | tuple) else values
                operands.append(stacked.reshape((len(part), *shape)))
        try:
            stacked = call(tuple(operands))
        finally:
            operands.clear()
            while held:
                pool.release(held.pop())
        for axis in self._how.drops:
            stacked = stacked[(..., 0, *(slice(None),) * (-axis - 1))]
        return rows_of(stacked, len(part))

    def finish(self) -> None:
        """Record the decision."""
        if self._job.decision is not None:
            decision_log.record(
                decision_in_chunks(self._job, f"{self._job.chunks} chunks of at most {self.sizer.size} items")
            )


def _laid_out(values: Sequence[Any], pool: BufferPool, held: list[Any]) -> Any:
    """Stack the values of one operand; on the host into a buffer, because fresh memory costs page faults."""
    library, first = library_of(values[0]), values[0]
    on_host = library in ("numpy", "python")
    name = str(np.asarray(first).dtype) if on_host else dtype_name(first)
    if not on_host and (
        library != "torch" or device_of(first) != "cpu" or tracks_gradient(first) or name not in INEXACT | INTEGERS
    ):
        return registry.adapter(library).stack(values)
    buffer = pool.allocate((len(values), *shape_of(first)), np.asarray(first).dtype if on_host else name, clear=False)
    held.append(buffer)
    if not on_host:
        return registry.adapter(library).stack_on(values, buffer)
    if not shape_of(first):
        buffer[...] = [np.asarray(value) for value in values]
    else:
        # Concatenation is stacking here: one call, regardless of leading axes of length one.
        np.concatenate(values, axis=0, out=buffer.reshape((len(values) * buffer.shape[1], *buffer.shape[2:])))
    return buffer


class StackedFunction:
    """A group of calls of a function that takes stacks: the source of its chunks. Two trials measure its memory."""

    def __init__(self, batch: Batch, indices: Sequence[int]) -> None:
        self._batch = batch
        first, total = batch.calls[indices[0]], len(indices)
        self._library = next((library_of(value) for value in first if library_of(value) != "python"), "numpy")
        self._device = next((device for value in first if (device := device_of(value)) != "cpu"), "cpu")
        most = self._predicted(indices, batch.limit)
        self.sizer = _sizer(batch, total, most, batch.func, kind_of(first))

    def _predicted(self, indices: Sequence[int], limit: int | None) -> int:
        """``(free - headroom) / slope``."""
        if len(indices) < 4:
            return len(indices)
        one = measure_peak(lambda: self._call(indices[:1]), self._device, self._library)
        two = measure_peak(lambda: self._call(indices[:3]), self._device, self._library)
        line = None if one is None or two is None else fit_line(1, one, 3, two)
        share = HOST_SHARE if self._device == "cpu" else get_settings().gpu_memory_limit
        allowed = get_budget().allowed(self._device, share, None if self._device == "cpu" else self._library)
        allowed = limit if allowed is None else allowed if limit is None else min(limit, allowed)
        if line is None or allowed is None or line.slope <= 0:
            return _BEGIN_WITH
        return max(1, int((allowed - line.base) / line.slope))

    def _call(self, part: Sequence[int]) -> Any:
        calls, seed = self._batch.calls, self._batch.seed
        operands = [_stack(calls.operand(number, part)) for number in range(len(calls[part[0]]))]
        own = {} if seed is None else {"rng": [random_stream(seed, index) for index in part]}
        return self._batch.func(*operands, **self._batch.params, **own)

    def run(self, part: Sequence[int]) -> list[Any]:
        """The results of these items."""
        try:
            stacked = self._call(part)
        except Exception as error:
            adapter = registry.adapter(self._library)
            if classify(error, adapter) is not Failure.MEMORY:
                raise
            drop_frames(error)
            ladder.climb(self._device, highest="library caches")
            raise ChunkTooLargeError(registry.describe_failure(error)) from error
        return rows_of(stacked, len(part))

    def run_smaller(self, part: Sequence[int], short: ChunkTooLargeError) -> list[Any]:
        """A single item cannot be made smaller."""
        raise OutOfMemoryError(f"one item alone runs out of memory ({short}); use smaller items") from short.__cause__

    def finish(self) -> None:
        """The engine made no decision here."""


def _stack(values: Any) -> Any:
    if not isinstance(values, list | tuple):
        return values  # rows of an array
    library = library_of(values[0])
    if library not in ("numpy", "python"):
        return registry.adapter(library).stack(values)
    # np.stack would drop the masks.
    return np.ma.stack(values) if isinstance(values[0], np.ma.MaskedArray) else np.stack(values)
