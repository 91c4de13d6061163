"""Many items through one function: stacked if possible, as many at a time as fit, in order."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hpfracc._arrays import is_chunked, wraps_chunks
from hpfracc._clusters import cluster_support
from hpfracc._frames import label_rows
from hpfracc._interrupts import interrupt_scope
from hpfracc._optional import import_optional
from hpfracc.engine.execution.batch.driver import ChunkTooLargeError, Progress, progress_of, run_chunks
from hpfracc.engine.execution.batch.items import (
    Calls,
    PieceSeed,
    Rows,
    calls_of,
    first_failing,
    item_error,
    random_stream,
    stacking_of,
)
from hpfracc.engine.execution.batch.stacked import StackedFunction, StackedOperation
from hpfracc.engine.execution.operation import Operation
from hpfracc.engine.memory.budget import parse_bytes
from hpfracc.engine.primitives.operands import shape_of
from hpfracc.engine.selection.request import place
from hpfracc.engine.workers import available_cores, run_items
from hpfracc.errors import BatchItemError, HpfraccError, InvalidInputError, OutOfMemoryError
from hpfracc.profiling.recorder import shared as spans

__all__ = ["run"]

logger = logging.getLogger("hpfracc.batch")

#: Intended seconds per task of a process: long enough to hide the cost of sending it, short enough to balance the work.
_TASK_SECONDS = 0.5


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
    called once for many stacked items: as many as free memory allows. If memory runs out anyway, the number is halved,
    then the largest that fits is found to within a tenth, and remembered. Any other function is called item by item, on
    ``workers`` threads or processes.

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
    form = getattr(func, "stacked_form", None)
    if wraps_chunks(items):
        labelled: Any = items
        found = run(
            func, labelled.data, common=common, batched=batched, batch_size=batch_size, workers=workers,
            processes=processes, backend=backend, budget=budget, seed=seed, progress=progress, executor=executor,
            **params,
        )  # fmt: skip
        return label_rows(labelled, found)
    if is_chunked(items):
        if executor is not None or form is not None:
            raise InvalidInputError("items are a Dask array, which runs on its own cluster; leave executor= out")
        given = {"batched": batched, "batch_size": batch_size, "backend": backend, "budget": budget}
        given |= {"workers": workers, "processes": processes}
        return cluster_support().run_rows(_Piece(func, common, given, seed, params), items)
    if form is None:
        calls = calls_of(items, common)
    else:
        func, items, params = form(items, common, params)
        calls = calls_of(items)
    if batch_size is not None and (isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1):
        raise InvalidInputError(f"batch_size={batch_size!r} is not a number of items; use at least 1, or None")
    if workers == -1:
        workers = available_cores()
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise InvalidInputError(f"workers={workers!r} is not a number of workers; use at least 1, or -1 for all cores")
    if seed is not None:
        random_stream(seed, 0)
    limit = None if budget is None else parse_bytes("budget", budget)
    job = _Batch(func, calls, params, backend, seed, batch_size, limit)
    if not isinstance(func, Operation) and not callable(func):
        raise InvalidInputError(f"{func!r} is not callable; give an operation or a function")
    if executor is not None:
        if workers != 1 or processes:
            raise InvalidInputError("workers= and processes= are for this machine; leave them out with an executor")
        remote: Any = items if isinstance(calls, Rows) else list(calls)
        # If items are listed, the common arguments are already part of each item.
        shared = common if isinstance(calls, Rows) else ()
        options = {"batched": batched, "batch_size": batch_size, "backend": backend, "budget": limit}
        piece = _Piece(func, shared, options, seed, params)
        with progress_of(progress, len(calls), getattr(func, "__name__", "batch")) as advance:
            return cluster_support().run_pieces(executor, piece, remote, getattr(func, "__name__", "batch"), advance)
    with interrupt_scope(), progress_of(progress, len(calls), getattr(func, "__name__", "batch")) as advance:
        if isinstance(func, Operation) or batched:
            return job.run_grouped(advance)
        return job.run_each(workers, processes, advance)


class _Piece:
    """A batch of some of the items, in another process."""

    def __init__(
        self,
        func: Callable[..., Any],
        common: tuple[Any, ...],
        options: dict[str, Any],
        seed: int | None,
        params: dict[str, Any],
    ) -> None:
        self._func, self._common, self._options, self._seed, self._params = func, common, options, seed, params

    def __call__(self, items: Any, first: int, count: int) -> list[Any]:
        seed: Any = None if self._seed is None else PieceSeed(self._seed, first)
        try:
            found: list[Any] = run(self._func, items, common=self._common, seed=seed, **self._options, **self._params)
            return found
        except BatchItemError as error:
            cause = error if error.__cause__ is None else error.__cause__
            raise item_error(first + error.index, count, cause) from error.__cause__


class _Batch:
    """One call of :func:`run`, small enough to be sent to a process."""

    def __init__(
        self,
        func: Callable[..., Any],
        calls: Calls,
        params: dict[str, Any],
        backend: str | None,
        seed: int | None,
        batch_size: int | None,
        limit: int | None,
    ) -> None:
        self.func = func
        self.calls = calls
        self.params = params
        self.backend = backend
        self.seed = seed
        self.batch_size = batch_size
        self.limit = limit

    def call(self, index: int) -> Any:
        """Call one item alone."""
        extra = dict(self.params)
        if self.seed is not None:
            extra["rng"] = random_stream(self.seed, index)
        if isinstance(self.func, Operation):
            return self.func(*self.calls[index], backend=self.backend, **extra)
        return self.func(*self.calls[index], **extra)

    def run_grouped(self, advance: Callable[[int], None]) -> list[Any]:
        """Run the groups one after another, each in chunks."""
        results: list[Any] = [None] * len(self.calls)
        chunks = 0
        for indices in self.calls.groups():
            stacked = self._stacked(indices)
            if stacked is None:
                for index in indices:
                    results[index] = self._alone(index)
                    advance(1)
                continue
            chunks += self._run_group(stacked, indices, results, advance)
            stacked.finish()
        logger.debug("batch of %d items in %d chunks", len(self.calls), chunks)
        return results

    def _run_group(
        self,
        stacked: StackedOperation | StackedFunction,
        indices: Sequence[int],
        results: list[Any],
        advance: Callable[[int], None],
    ) -> int:
        """Run items that can be stacked; returns the number of chunks."""
        chunks = 0

        def source(begin: int, end: int) -> list[Any]:
            return self._chunk(stacked, indices[begin:end], stacked.run)

        def sink(begin: int, end: int, found: list[Any]) -> None:
            nonlocal chunks
            part = indices[begin:end]
            if isinstance(part, range):
                results[part.start : part.stop] = found
            else:
                for index, result in zip(part, found, strict=True):
                    results[index] = result
            chunks += 1
            advance(len(part))

        def stuck(begin: int, end: int, short: ChunkTooLargeError) -> list[Any]:
            return self._chunk(stacked, indices[begin:end], lambda part: stacked.run_smaller(part, short))

        run_chunks(len(indices), stacked.sizer, source, sink, stuck=stuck)
        return chunks

    def _stacked(self, indices: Sequence[int]) -> StackedOperation | StackedFunction | None:
        first = self.calls[indices[0]]
        if not isinstance(self.func, Operation):
            return StackedFunction(self.func, self.calls, indices, self.params, self.seed, self.batch_size, self.limit)
        shapes = [shape_of(value) for value in first]
        try:
            self.func.primitive.describe(*first, **self.params)
            place(first)
        except (HpfraccError, TypeError):
            return None  # the call itself reports the error and the item
        how = stacking_of(self.func.primitive, shapes, self.params)
        if how is None or self.seed is not None:
            return None
        return StackedOperation(self.func, self.calls, indices, how, self.backend, self.batch_size, self.limit)

    def _alone(self, index: int) -> Any:
        try:
            return self.call(index)
        except Exception as error:
            raise item_error(index, len(self.calls), error) from error

    def run_each(self, workers: int, processes: bool, advance: Callable[[int], None]) -> list[Any]:
        """Call item by item, on several threads or processes.

        A call that runs out of memory beside others is repeated alone after them.
        """
        count = len(self.calls)
        results: list[Any] = [None] * count
        short: list[int] = []

        def keep(done: list[tuple[int, Any]], missing: list[int]) -> None:
            for index, result in done:
                results[index] = result
            short.extend(missing)

        alone = count if workers <= 1 else min(1, count)
        begin = time.perf_counter()
        for index in range(alone):
            results[index] = self._alone(index)
            advance(1)
        seconds, rest = time.perf_counter() - begin, range(alone, count)
        try:
            if processes and rest:
                size = calls_together(seconds, len(rest), workers)
                tasks = [rest[begin : begin + size] for begin in range(0, len(rest), size)]
                joblib = import_optional("joblib")
                parallel = joblib.Parallel(n_jobs=workers, backend="loky", return_as="generator")
                for done, missing in parallel(joblib.delayed(_several)(self.call, task) for task in tasks):
                    keep(done, missing)
                    advance(len(done) + len(missing))
            elif rest:
                run_items(
                    lambda index: keep(*_several(self.call, (index,))), rest, workers, advance=advance, until_error=True
                )
        except _ItemFailedError as failed:
            raise item_error(failed.index, count, failed.error) from failed.error
        for index in short:
            results[index] = self._alone(index)
        return results

    def _chunk(
        self,
        stacked: StackedOperation | StackedFunction,
        part: Sequence[int],
        run: Callable[[Sequence[int]], list[Any]],
    ) -> list[Any]:
        try:
            with spans.span(getattr(self.func, "__name__", "batch"), "batch", metadata={"items": len(part)}):
                return run(part)
        except (OutOfMemoryError, ChunkTooLargeError):
            raise
        except Exception as error:
            if isinstance(self.func, Operation):
                found = first_failing(self.call, part)
            else:
                found = first_failing(lambda index: stacked.run([index]), part)
            if found is not None:
                raise item_error(found[0], len(self.calls), found[1]) from found[1]
            raise item_error(part[0], len(self.calls), error) from error


# Calls distributed over threads or processes.


def calls_together(seconds: float, left: int, workers: int) -> int:
    """How many calls of ``seconds`` each form one task."""
    if seconds <= 0.0:
        return max(1, left // workers)
    fair = max(1, -(-left // workers))
    return max(1, min(fair, int(_TASK_SECONDS / seconds) or 1))


def _several(call: Callable[[int], Any], task: Sequence[int]) -> tuple[list[tuple[int, Any]], list[int]]:
    """Results, and items that ran out of memory; the first other error ends the task."""
    done: list[tuple[int, Any]] = []
    short: list[int] = []
    for index in task:
        try:
            with interrupt_scope():  # this may be another process
                done.append((index, call(index)))
        except MemoryError:
            short.append(index)
        except Exception as error:
            raise _ItemFailedError(index, error) from error
    return done, short


class _ItemFailedError(Exception):
    """An item failed; carries its index, and can be sent between processes."""

    def __init__(self, index: int, error: Exception) -> None:
        super().__init__(index, error)
        self.index = index
        self.error = error
