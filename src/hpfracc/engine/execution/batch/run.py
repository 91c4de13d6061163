"""Many items through one function: stacked if possible, as many at a time as fit, in order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import device_of, is_chunked, library_of, wraps_chunks
from hpfracc._config import get_settings
from hpfracc._frames import label_rows
from hpfracc._interrupts import raise_interrupted
from hpfracc._optional import import_optional
from hpfracc._plugs import cluster_support
from hpfracc.engine.backends import registry
from hpfracc.engine.execution import decision_log
from hpfracc.engine.execution.batch import driver
from hpfracc.engine.execution.batch.chunks import run_in_chunks
from hpfracc.engine.execution.batch.driver import ChunkTooLargeError, Progress, run_chunks
from hpfracc.engine.execution.batch.items import (
    Calls,
    PieceSeed,
    Stacking,
    calls_of,
    item_error,
    random_stream,
    rows_of,
    stack,
    stacking_of,
)
from hpfracc.engine.execution.batch.planning import Job, decision_in_chunks
from hpfracc.engine.execution.custom import measure_peak
from hpfracc.engine.execution.operation import Operation
from hpfracc.engine.execution.plan import make_request
from hpfracc.engine.execution.pressure.ladder import ladder
from hpfracc.engine.execution.recover import Failure, classify, drop_frames
from hpfracc.engine.memory.budget import get_budget, parse_bytes
from hpfracc.engine.primitives.base import ArraySpec, dtype_of, shape_of
from hpfracc.engine.selection.call_memory import HOST_SHARE
from hpfracc.engine.selection.request import place
from hpfracc.engine.workers import available_cores, run_items
from hpfracc.errors import BatchItemError, HpfraccError, InvalidInputError, OutOfMemoryError
from hpfracc.profiling.recorder import shared as spans

Advance = Callable[[int], None]


def run(
    func: Callable[..., Any],
    items: Iterable[Any],
    *,
    common: tuple[Any, ...] = (),
    batched: bool | None = None,
    batch_size: int | None = None,
    workers: int = 1,
    processes: bool = False,
    backend: str | None = None,
    budget: int | str | None = None,
    seed: int | None = None,
    progress: Progress = False,
    executor: Any = None,
    **params: Any,
) -> Any:
    """``[func(item, **params) for item in items]``, many at a time if possible.

    Items are grouped by library, device, shapes and dtypes. An operation of the engine, or a ``batched`` function, is
    called once for many stacked items: as many as free memory allows. If memory runs out anyway, the number is halved.
    Any other function is called item by item, on ``workers`` threads or processes.

    Results do not depend on how many items are stacked: each item has its own random numbers, and all chunks of a group
    run on the same kernel.

    Parameters
    ----------
    func : Operation or callable
        ``hf.causal_convolution``, ``hf.matmul``, ``hf.fft``, ``hf.bitwise_xor``, ``hf.reduction``, an operation of your
        own, or any function. A tuple as an item contains several arguments. The items of ``hf.elementwise`` are
        mappings from names to arrays; its ``expression=`` is the same for all.
    items : iterable or array
        The arguments of the calls. The rows of an array are items too, and are not copied for stacking.
    common : tuple
        Arguments of every call before those of its item.
    batched : bool, optional
        Whether ``func`` takes its arguments stacked along a new first axis and returns its results in the same form.
    batch_size : int, optional
        Most items in one call; by default as many as fit.
    workers : int
        Threads or processes for a function that is not batched; -1 for one per core.
    processes : bool
        Whether workers are processes, by joblib: for functions that hold the GIL. Function and items are then sent to
        them, and must be picklable.
    backend : str, optional
        The backend, for an operation of the engine.
    budget : int or str, optional
        Bytes that one chunk may take in total; also text such as ``"2GiB"``.
    seed : int, optional
        Gives each call ``rng=``, a ``numpy.random.Generator`` for its item; a batched function gets the list of those
        of its items.
    progress : bool or callable
        True shows a progress bar; a function is called with the number of items done and in total.
    executor : optional
        Run parts of the items elsewhere: a ``dask.distributed.Client`` or the address of its scheduler, or an executor
        of ``concurrent.futures``. Each part is a separate batch there, stacked as here. Function and items must be
        picklable.
    **params
        Passed to every call.

    Returns
    -------
    list
        Results in the order of the items; a lazy Dask array of them if the items are the rows of one.

    Raises
    ------
    BatchItemError
        If a call fails: its ``index`` names the item, its cause is the error of the call.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> from hpfracc import batch
    >>> weights = np.array([1.0, 0.5])
    >>> batch.run(hf.causal_convolution, [(weights, np.ones(2)), (weights, np.ones(3))])
    [array([1. , 1.5]), array([1. , 1.5, 1.5])]
    >>> batch.run(hf.causal_convolution, np.eye(2), common=(weights,))
    [array([1. , 0.5]), array([0., 1.])]
    """
    if not isinstance(common, tuple):
        raise InvalidInputError(f"common={common!r} is not a tuple of arguments; use (argument,)")
    options: dict[str, Any] = {"batched": batched, "batch_size": batch_size, "backend": backend, "budget": budget}
    here: dict[str, Any] = {"workers": workers, "processes": processes}
    form, name = getattr(func, "stacked_form", None), getattr(func, "__name__", "batch")
    if wraps_chunks(items):
        labelled: Any = items
        rest: dict[str, Any] = {"common": common, "seed": seed, "progress": progress, "executor": executor}
        return label_rows(labelled, run(func, labelled.data, **rest, **options, **here, **params))
    if is_chunked(items):
        if executor is not None or form is not None:
            raise InvalidInputError("items are a Dask array, which runs on its own cluster; leave executor= out")
        piece = partial(_run_piece, func, common, {**options, **here}, seed, params)
        return cluster_support().run_rows(piece, items)
    if form is not None:
        func, items, params = form(items, common, params)
        common = ()
    calls = calls_of(items, common)
    if batch_size is not None:
        batch_size = _reading.whole("batch_size", batch_size, least=1)
    workers = available_cores() if workers == -1 else _reading.whole("workers", workers, least=1)
    if seed is not None:
        random_stream(seed, 0)
    limit = None if budget is None else parse_bytes("budget", budget)
    if not isinstance(func, Operation) and not callable(func):
        raise InvalidInputError(f"{func!r} is not callable; give an operation or a function")
    with driver.progress_of(progress, len(calls), name) as advance:
        if executor is not None:
            if workers != 1 or processes:
                raise InvalidInputError("workers= and processes= are for this machine; leave them out with an executor")
            # If items are listed, the common arguments are already part of each item.
            piece = partial(_run_piece, func, () if calls.listed else common, options, seed, params)
            remote: Any = list(calls) if calls.listed else items
            return cluster_support().run_pieces(executor, piece, remote, name, advance)
        job = Batch(func, calls, params, backend, seed, batch_size, limit)
        results: list[Any] = [_MISSING] * len(calls)
        try:
            if isinstance(func, Operation) or batched:
                job.run_grouped(results, advance)
            else:
                job.run_each(results, workers, processes, advance)
        except KeyboardInterrupt:
            found = [None if each is _MISSING else each for each in results]
            done = len(calls) - sum(each is _MISSING for each in results)
            raise_interrupted(f"Interrupted after {done:,} of {len(calls):,} items; the others are None.", found)
        return results


def _run_piece(
    func: Callable[..., Any],
    common: tuple[Any, ...],
    options: dict[str, Any],
    seed: int | None,
    params: dict[str, Any],
    items: Any,
    first: int,
    count: int,
) -> list[Any]:
    """A batch of the items from ``first`` on, of ``count`` in all, in another process."""
    own: Any = None if seed is None else PieceSeed(seed, first)
    try:
        found: list[Any] = run(func, items, common=common, seed=own, **options, **params)
        return found
    except BatchItemError as error:
        cause = error if error.__cause__ is None else error.__cause__
        raise item_error(first + error.index, count, cause) from error.__cause__


@dataclass(frozen=True, slots=True)
class Batch:
    """A function or operation, the arguments of its calls, and options of :func:`run`, to be run on this machine."""

    func: Callable[..., Any]
    calls: Calls
    params: dict[str, Any]
    backend: str | None
    seed: int | None
    batch_size: int | None
    limit: int | None

    def call(self, index: int) -> Any:
        """Call one item alone."""
        own = {"backend": self.backend} if isinstance(self.func, Operation) else {}
        return self.func(*self.calls[index], **own, **self._extra(index))

    def _extra(self, index: int) -> dict[str, Any]:
        """The parameters of one item."""
        return self.params if self.seed is None else {**self.params, "rng": random_stream(self.seed, index)}

    def _alone(self, index: int) -> Any:
        try:
            return self.call(index)
        except Exception as error:
            raise item_error(index, len(self.calls), error) from error

    def run_grouped(self, results: list[Any], advance: Advance) -> None:
        """Run the groups one after another, each in chunks."""
        for indices in self.calls.groups():
            stacked = self._stacked(indices)
            for index in indices if stacked is None else ():
                results[index] = self._alone(index)
                advance(1)
            if stacked is not None:
                self._run_group(stacked, indices, results, advance)

    def _run_group(self, stacked: Stacked, indices: Sequence[int], results: list[Any], advance: Advance) -> None:
        """Run items that can be stacked."""

        def run(begin: int, end: int, short: ChunkTooLargeError | None = None) -> list[Any]:
            return self._chunk(stacked, indices[begin:end], short)

        def sink(begin: int, end: int, found: list[Any]) -> None:
            for index, result in zip(indices[begin:end], found, strict=True):
                results[index] = result
            advance(end - begin)

        run_chunks(len(indices), stacked.sizer, run, sink, stuck=run)
        stacked.finish()

    def _stacked(self, indices: Sequence[int]) -> Stacked | None:
        first = self.calls[indices[0]]
        if not isinstance(self.func, Operation):
            return StackedFunction(self, indices)
        try:
            self.func.primitive.describe(*first, **self.params)
            place(first)
        except (HpfraccError, TypeError):
            return None  # the call itself reports the error and the item
        how = stacking_of(self.func.primitive, [shape_of(value) for value in first], self.params)
        return None if how is None or self.seed is not None else StackedOperation(self, self.func, indices, how)

    def _chunk(self, stacked: Stacked, part: Sequence[int], short: ChunkTooLargeError | None) -> list[Any]:
        try:
            with spans.span(getattr(self.func, "__name__", "batch"), "batch", metadata={"items": len(part)}):
                return stacked.run(part, short)
        except (OutOfMemoryError, ChunkTooLargeError):
            raise
        except Exception as error:
            for index in part:
                try:
                    _ = self.call(index) if isinstance(self.func, Operation) else stacked.run([index])
                except Exception as alone:
                    raise item_error(index, len(self.calls), alone) from alone
            raise item_error(part[0], len(self.calls), error) from error

    def run_each(self, results: list[Any], workers: int, processes: bool, advance: Advance) -> None:
        """Call item by item, on several threads or processes.

        A call that runs out of memory beside others is repeated alone after them.
        """
        count = len(self.calls)
        try:
            if processes and workers > 1:
                joblib = import_optional("joblib")
                parallel = joblib.Parallel(n_jobs=workers, backend="loky", return_as="generator")
                tasks = (joblib.delayed(_outcome)(k, self.func, *self.calls[k], **self._extra(k)) for k in range(count))
                for index, found in enumerate(parallel(tasks)):
                    results[index : index + 1] = found or [_MISSING]
                    advance(1)
            elif workers > 1 and count:
                # The first in this thread: its decision is that of the batch, whichever items run here later.
                results[0] = self._alone(0)
                advance(1)

                def work(index: int) -> None:
                    results[index : index + 1] = _outcome(index, self.call, index) or [_MISSING]

                run_items(work, range(1, count), workers, advance=advance, until_error=True)
        except _ItemFailedError as failed:
            raise item_error(failed.index, count, failed.error) from failed.error
        alone = workers == 1
        for index, found in enumerate(results):
            if found is _MISSING:
                results[index] = self._alone(index)
                advance(1 if alone else 0)


#: In place of results that are computed one by one.
_MISSING = object()


def _outcome(index: int, call: Callable[..., Any], *arguments: Any, **extra: Any) -> list[Any]:
    """The result of a call, perhaps in another process; empty if there was no memory for it."""
    try:
        return [call(*arguments, **extra)]
    except MemoryError:
        return []
    except Exception as error:
        raise _ItemFailedError(index, error) from error


class _ItemFailedError(Exception):
    """An item failed; carries its index, and can be sent between processes."""

    def __init__(self, index: int, error: Exception) -> None:
        super().__init__(index, error)
        self.index = index
        self.error = error


# Groups of items of one kind, which run in chunks.

#: Items of the first chunk of a function, whose memory is measured, and of later ones if it cannot be.
_MEASURED, _BEGIN_WITH = 4, 64


def _sizer(batch: Batch, total: int, most: int) -> driver.ChunkSizer:
    """Chunks of at most ``most`` of ``total`` items, in few sizes."""
    cap = total if batch.batch_size is None else min(batch.batch_size, total)
    first = total if most >= total else driver.round_size(max(1, most))
    return driver.ChunkSizer(min(first, cap), cap, rounds=True)


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
        # The same kernel for chunks of any size, so that the size changes no result.
        whole = self._job.select(self._specs(first, total), ignore_memory=True)
        self._job.kernel = None if whole is None else f"{whole.arm.backend}:{whole.arm.algorithm}"
        sizes = itertools.chain((total,), driver.sizes_below(total))
        most = next((count for count in sizes if self._fits(first, count, total)), 1)
        self.sizer = _sizer(batch, total, most)

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
        return self._job.predict(specs, reserved) < math.inf

    def run(self, part: Sequence[int], short: ChunkTooLargeError | None = None) -> list[Any]:
        """The results of these items; after a shortage, of a single one that does not fit as a whole."""
        operands = []
        for number, (shape, shared) in enumerate(zip(self._how.shapes, self._shared, strict=True)):
            values = self._calls.operand(number, part[:1] if shared else part)
            if shared:
                value = values[0] if library_of(values[0]) != "python" else np.asarray(values[0])
                operands.append(value.reshape(shape))
            else:
                operands.append(stack(values).reshape((len(part), *shape)))
        stacked = self._job.run(tuple(operands)) if short is None else self._in_chunks(tuple(operands), short)
        for axis in self._how.drops:
            stacked = stacked[(..., 0, *(slice(None),) * (-axis - 1))]
        return rows_of(stacked, len(part))

    def _in_chunks(self, operands: tuple[Any, ...], short: ChunkTooLargeError) -> Any:
        job = self._job
        found = run_in_chunks(job.primitive, operands, job.params, backend=job.backend, why=str(short))
        if found is None:
            raise OutOfMemoryError(str(short)) from None
        return found

    def finish(self) -> None:
        """Record the decision."""
        if self._job.decision is not None:
            decision_log.record(
                decision_in_chunks(self._job, f"{self._job.chunks} chunks of at most {self.sizer.size} items")
            )


class StackedFunction:
    """A group of calls of a function that takes stacks: the source of its chunks. The first measures its memory."""

    def __init__(self, batch: Batch, indices: Sequence[int]) -> None:
        self._batch = batch
        first, total = batch.calls[indices[0]], len(indices)
        self._library = next((library_of(value) for value in first if library_of(value) != "python"), "numpy")
        self._device = next((device for value in first if (device := device_of(value)) != "cpu"), "cpu")
        self.sizer = _sizer(batch, total, _MEASURED)
        #: Whether the memory of an item is still to be measured.
        self._unknown = total > _MEASURED

    def _predicted(self, peak: int | None, count: int) -> int:
        """The number of items that fit, if ``count`` of them took ``peak`` bytes."""
        share = HOST_SHARE if self._device == "cpu" else get_settings().gpu_memory_limit
        allowed = get_budget().allowed(self._device, share, None if self._device == "cpu" else self._library)
        limit = self._batch.limit
        allowed = limit if allowed is None else allowed if limit is None else min(limit, allowed)
        return _BEGIN_WITH if not peak or allowed is None else max(1, allowed * count // peak)

    def _call(self, part: Sequence[int]) -> Any:
        calls, seed = self._batch.calls, self._batch.seed
        operands = [stack(calls.operand(number, part)) for number in range(len(calls[part[0]]))]
        own = {} if seed is None else {"rng": [random_stream(seed, index) for index in part]}
        return self._batch.func(*operands, **self._batch.params, **own)

    def run(self, part: Sequence[int], short: ChunkTooLargeError | None = None) -> list[Any]:
        """The results of these items; a single one cannot be made smaller after a shortage."""
        if short is not None:
            why = f"one item alone runs out of memory ({short}); use smaller items"
            raise OutOfMemoryError(why) from short.__cause__
        try:
            if self._unknown:
                self._unknown = False
                stacked, peak = measure_peak(lambda: self._call(part), self._device, self._library)
                self.sizer.aim_at(driver.round_size(self._predicted(peak, len(part))))
            else:
                stacked = self._call(part)
        except Exception as error:
            adapter = registry.adapter(self._library)
            if classify(error, adapter) is not Failure.MEMORY:
                raise
            drop_frames(error)
            ladder.climb(self._device, highest="library caches")
            raise ChunkTooLargeError(registry.describe_failure(error)) from error
        return rows_of(stacked, len(part))

    def finish(self) -> None:
        """The engine made no decision here."""


Stacked = StackedOperation | StackedFunction
