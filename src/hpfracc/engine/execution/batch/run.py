"""Many items through one function: stacked if possible, as many at a time as fit, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from hpfracc import _reading
from hpfracc._arrays import is_chunked, wraps_chunks
from hpfracc._clusters import cluster_support
from hpfracc._frames import label_rows
from hpfracc._interrupts import interrupt_scope
from hpfracc._optional import import_optional
from hpfracc.engine.execution.batch.driver import ChunkTooLargeError, Progress, progress_of, run_chunks
from hpfracc.engine.execution.batch.items import Batch, PieceSeed, calls_of, item_error, random_stream, stacking_of
from hpfracc.engine.execution.batch.stacked import StackedFunction, StackedOperation
from hpfracc.engine.execution.operation import Operation
from hpfracc.engine.memory.budget import parse_bytes
from hpfracc.engine.primitives.operands import shape_of
from hpfracc.engine.selection.request import place
from hpfracc.engine.workers import available_cores, run_items
from hpfracc.errors import BatchItemError, HpfraccError, InvalidInputError, OutOfMemoryError
from hpfracc.profiling.recorder import shared as spans

__all__ = ["run"]

_Stacked = StackedOperation | StackedFunction


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
    with interrupt_scope(), progress_of(progress, len(calls), name) as advance:
        if executor is not None:
            if workers != 1 or processes:
                raise InvalidInputError("workers= and processes= are for this machine; leave them out with an executor")
            # If items are listed, the common arguments are already part of each item.
            piece = partial(_run_piece, func, () if calls.listed else common, options, seed, params)
            remote: Any = list(calls) if calls.listed else items
            return cluster_support().run_pieces(executor, piece, remote, name, advance)
        job = _LocalBatch(func, calls, params, backend, seed, batch_size, limit)
        if isinstance(func, Operation) or batched:
            return job.run_grouped(advance)
        return job.run_each(workers, processes, advance)


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


class _LocalBatch(Batch):
    """Runs a batch on this machine."""

    __slots__ = ()

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

    def run_grouped(self, advance: Callable[[int], None]) -> list[Any]:
        """Run the groups one after another, each in chunks."""
        results: list[Any] = [None] * len(self.calls)
        for indices in self.calls.groups():
            stacked = self._stacked(indices)
            for index in indices if stacked is None else ():
                results[index] = self._alone(index)
                advance(1)
            if stacked is not None:
                self._run_group(stacked, indices, results, advance)
        return results

    def _run_group(
        self, stacked: _Stacked, indices: Sequence[int], results: list[Any], advance: Callable[[int], None]
    ) -> None:
        """Run items that can be stacked."""

        def source(begin: int, end: int) -> list[Any]:
            return self._chunk(stacked, indices[begin:end], stacked.run)

        def sink(begin: int, end: int, found: list[Any]) -> None:
            for index, result in zip(indices[begin:end], found, strict=True):
                results[index] = result
            advance(end - begin)

        def stuck(begin: int, end: int, short: ChunkTooLargeError) -> list[Any]:
            return self._chunk(stacked, indices[begin:end], partial(stacked.run_smaller, short=short))

        run_chunks(len(indices), stacked.sizer, source, sink, stuck=stuck)
        stacked.finish()

    def _stacked(self, indices: Sequence[int]) -> _Stacked | None:
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

    def _chunk(self, stacked: _Stacked, part: Sequence[int], run: Callable[[Sequence[int]], list[Any]]) -> list[Any]:
        try:
            with spans.span(getattr(self.func, "__name__", "batch"), "batch", metadata={"items": len(part)}):
                return run(part)
        except (OutOfMemoryError, ChunkTooLargeError):
            raise
        except Exception as error:
            for index in part:
                try:
                    _ = self.call(index) if isinstance(self.func, Operation) else stacked.run([index])
                except Exception as alone:
                    raise item_error(index, len(self.calls), alone) from alone
            raise item_error(part[0], len(self.calls), error) from error

    def run_each(self, workers: int, processes: bool, advance: Callable[[int], None]) -> list[Any]:
        """Call item by item, on several threads or processes.

        A call that runs out of memory beside others is repeated alone after them.
        """
        count = len(self.calls)
        results: list[Any] = [_MISSING] * count
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
        return results


#: In place of results that are computed one by one.
_MISSING = object()


def _outcome(index: int, call: Callable[..., Any], *arguments: Any, **extra: Any) -> list[Any]:
    """The result of a call, perhaps in another process; empty if there was no memory for it."""
    try:
        with interrupt_scope():
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
