"""Many items through one function: stacked where they can be, as many at a time as fit, in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hpfracc.engine.execution.batching.items import (
    Calls,
    calls_of,
    first_failing,
    item_error,
    random_stream,
)
from hpfracc.engine.execution.batching.parallel import map_items
from hpfracc.engine.execution.batching.progress import Progress, progress_of
from hpfracc.engine.execution.batching.stacked import StackedFunction, StackedOperation
from hpfracc.engine.execution.batching.stacking import stacking_of
from hpfracc.engine.execution.operation import Operation
from hpfracc.engine.memory.units import parse_bytes
from hpfracc.engine.primitives.operands import shape_of
from hpfracc.engine.selection.request import place
from hpfracc.engine.workers import available_cores
from hpfracc.errors import HpfraccError, InvalidInputError, OutOfMemoryError
from hpfracc.profiling.recorder import shared as spans

__all__ = ["run"]

logger = logging.getLogger("hpfracc.batch")


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
    **params: Any,
) -> list[Any]:
    """``[func(item, **params) for item in items]``, many at a time where that can be.

    Items are grouped by library, device, shapes and dtypes. An operation of the engine is called once for many of them,
    stacked; so is a function that is ``batched``. As many go together as free memory allows; where memory runs out all
    the same, the number is halved, then found to within a tenth, and remembered. Any other function is called item by
    item, on ``workers`` threads or processes.

    Results do not depend on how many go together: each item has random numbers of its own, and all chunks of a group
    run on the same kernel.

    Parameters
    ----------
    func : Operation or callable
        ``hf.causal_convolution``, ``hf.matmul``, ``hf.fft``, ``hf.bitwise_xor``, ``hf.reduction``, an operation of your
        own, or any function. An item that is a tuple is several arguments. The items of ``hf.elementwise`` are mappings
        from names to arrays, its ``expression=`` is one for all.
    items : iterable or array
        What to call it with. The rows of an array are items too, of which none is copied to be stacked.
    common : tuple
        Arguments that every call gets before those of its item.
    batched : bool, optional
        Whether ``func`` takes its arguments stacked along a new first axis, and gives its results so.
    batch_size : int, optional
        Items that go together at most; by default what fits.
    workers : int
        Threads or processes for a function that is not batched; -1 for as many as there are cores.
    processes : bool
        Whether workers are processes, by joblib: for functions that hold the interpreter's lock. Function and items are
        then sent to them, and must be picklable.
    backend : str, optional
        For an operation of the engine: where to run it.
    budget : int or str, optional
        Bytes that one chunk may take in all; text such as ``"2GiB"`` is read.
    seed : int, optional
        Gives each call ``rng=``, a ``numpy.random.Generator`` of its item's own; a batched function gets the list of
        those of its items.
    progress : bool or callable
        True shows a bar; a function is called with the items done and those in all.
    **params
        Passed on to every call.

    Returns
    -------
    list
        Results in the order of the items.

    Raises
    ------
    BatchItemError
        If a call fails: its ``index`` names the item, its cause is what the call raised.

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
    with progress_of(progress, len(calls), getattr(func, "__name__", "batch")) as advance:
        if isinstance(func, Operation) or batched:
            return job.run_grouped(advance)
        return map_items(job.call, range(len(calls)), workers, processes, advance)


class _Batch:
    """One call of :func:`run`; small enough to be sent to a process."""

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
        """One item alone."""
        extra = dict(self.params)
        if self.seed is not None:
            extra["rng"] = random_stream(self.seed, index)
        if isinstance(self.func, Operation):
            return self.func(*self.calls[index], backend=self.backend, **extra)
        return self.func(*self.calls[index], **extra)

    def run_grouped(self, advance: Callable[[int], None]) -> list[Any]:
        """Group by group, each in chunks."""
        results: list[Any] = [None] * len(self.calls)
        chunks = 0
        for indices in self.calls.groups():
            stacked = self._stacked(indices)
            if stacked is None:
                for index in indices:
                    results[index] = self._alone(index)
                    advance(1)
                continue
            position = 0
            while position < len(indices):
                part = indices[position : position + stacked.next_size(len(indices) - position)]
                found = self._chunk(stacked, part)
                if found is None:
                    continue  # memory ran out; the next chunk is smaller
                if isinstance(part, range):
                    results[part.start : part.stop] = found
                else:
                    for index, result in zip(part, found, strict=True):
                        results[index] = result
                chunks += 1
                position += len(part)
                advance(len(part))
            stacked.finish()
        logger.debug("batch of %d items in %d chunks", len(self.calls), chunks)
        return results

    def _stacked(self, indices: Sequence[int]) -> StackedOperation | StackedFunction | None:
        first = self.calls[indices[0]]
        if not isinstance(self.func, Operation):
            return StackedFunction(self.func, self.calls, indices, self.params, self.seed, self.batch_size, self.limit)
        shapes = [shape_of(value) for value in first]
        try:
            self.func.primitive.describe(*first, **self.params)
            place(first)
        except (HpfraccError, TypeError):
            return None  # the call itself says what is wrong, and with which item
        how = stacking_of(self.func.primitive, shapes, self.params)
        if how is None or self.seed is not None:
            return None
        return StackedOperation(self.func, self.calls, indices, how, self.backend, self.batch_size, self.limit)

    def _alone(self, index: int) -> Any:
        try:
            return self.call(index)
        except Exception as error:
            raise item_error(index, len(self.calls), error) from error

    def _chunk(self, stacked: StackedOperation | StackedFunction, part: Sequence[int]) -> Sequence[Any] | None:
        try:
            with spans.span(getattr(self.func, "__name__", "batch"), "batch", metadata={"items": len(part)}):
                return stacked.run(part)
        except OutOfMemoryError:
            raise
        except Exception as error:
            if isinstance(self.func, Operation):
                found = first_failing(self.call, part)
            else:
                found = first_failing(lambda index: stacked.run([index]), part)
            if found is not None:
                raise item_error(found[0], len(self.calls), found[1]) from found[1]
            raise item_error(part[0], len(self.calls), error) from error
