"""Functions mapped over items on an executor: ``batch.run(executor=)``, and ``workers=`` of SciPy's optimisers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, final

from hpfracc._config import current_backend
from hpfracc.distributed.executors import is_dask_client, require_executor
from hpfracc.distributed.learning import merge_records, process_id, start_sharing, take_records
from hpfracc.distributed.pickling import dump
from hpfracc.distributed.sweeps import caller_settings
from hpfracc.distributed.tasks import Caller, job_of, refuse_nesting
from hpfracc.distributed.worker import versions
from hpfracc.engine.execution.batch.items import item_error
from hpfracc.engine.workers import available_cores
from hpfracc.errors import BatchItemError, ClusterError, InvalidInputError

__all__ = ["Mapper", "mapper", "run_pieces"]

#: Pieces per worker: enough to balance the load.
_PIECES_A_WORKER = 4
#: How often a piece whose worker died, or that was lost, is resubmitted.
_MAX_LOSSES = 3


def mapper(executor: Any) -> Mapper:
    """A function ``map(func, items)`` that runs on a cluster, for ``workers=`` of SciPy's optimisers.

    Parameters
    ----------
    executor : Client or executor
        A ``dask.distributed.Client``, or an executor of ``concurrent.futures``.

    Returns
    -------
    Mapper
        Called as ``mapped(func, items)``; returns the list of results in the order of the items.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import hpfracc as hf
    >>> from scipy.optimize import differential_evolution, rosen
    >>> with ThreadPoolExecutor(2) as pool:
    ...     found = differential_evolution(
    ...         rosen, [(0, 2), (0, 2)], rng=1, workers=hf.distributed.mapper(pool), updating="deferred"
    ...     )
    >>> bool(abs(found.x - 1).max() < 1e-4)
    True
    """
    if executor is None or isinstance(executor, str):
        raise InvalidInputError(f"executor={executor!r}: mapper needs a client or an executor, which stays open")
    require_executor(executor)
    return Mapper(executor)


@final
class Mapper:
    """``map`` on an executor; created by :func:`mapper`."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor

    def __call__(self, func: Callable[..., Any], items: Iterable[Any]) -> list[Any]:
        """``[func(item) for item in items]``."""
        given = list(items)
        return run_pieces(self._executor, partial(_each, func), given, getattr(func, "__name__", "function"))

    def __reduce__(self) -> Any:
        raise TypeError("a Mapper belongs to the process of its client; make one there with hf.distributed.mapper")


def _each(func: Callable[..., Any], items: Sequence[Any], first: int, count: int) -> list[Any]:
    found = []
    for number, item in enumerate(items):
        try:
            found.append(func(item))
        except Exception as error:
            raise item_error(first + number, count, error) from error
    return found


class _MappedFunction:
    """A function of pieces of items, with the caller's settings."""

    def __init__(self, run: Callable[..., list[Any]], caller: Caller) -> None:
        self.run, self.caller = run, caller


def _run_piece(name: str, payload: bytes, items: Sequence[Any], first: int, count: int) -> tuple[list[Any], bytes]:
    """The results of a piece, and the records that the worker learned."""
    work: _MappedFunction = job_of(name, payload)
    away = start_sharing(work.caller.process)
    with work.caller.adopted():
        found = work.run(items, first, count)
    return found, take_records() if away else b""


def run_pieces(
    executor: Any,
    run: Callable[..., list[Any]],
    items: Sequence[Any],
    what: str,
    advance: Callable[[int], None] | None = None,
) -> list[Any]:
    """The results of ``run(items[a:b], a, count)`` for all pieces, joined; the pieces run on the executor."""
    from hpfracc.distributed.dask_runner import connect

    refuse_nesting(what)
    require_executor(executor)
    if not len(items):
        return []
    caller = Caller(caller_settings(), current_backend(), versions(), process_id())
    payload = dump(_MappedFunction(run, caller), f"the function {what!r}")
    name = f"{what}-{time.time_ns():x}"
    with connect(executor) as target:
        threads = sum(target.nthreads().values()) if is_dask_client(target) else available_cores()
        size = max(1, math.ceil(len(items) / (_PIECES_A_WORKER * max(1, threads))))
        starts = range(0, len(items), size)

        def submit(first: int) -> Any:
            options = {"pure": False} if is_dask_client(target) else {}
            return target.submit(_run_piece, name, payload, items[first : first + size], first, len(items), **options)

        futures = {first: submit(first) for first in starts}
        found: list[Any] = []
        try:
            for first in starts:
                piece, learned = _result(futures, first, submit)
                found += piece
                merge_records(learned)
                if advance is not None:
                    advance(len(piece))
        except BaseException:  # after an interrupt too, the remaining tasks are not run
            for future in futures.values():
                future.cancel()
            raise
    return found


def _result(futures: dict[int, Any], first: int, submit: Callable[[int], Any]) -> tuple[list[Any], bytes]:
    for attempt in range(_MAX_LOSSES + 1):
        try:
            found: tuple[list[Any], bytes] = futures[first].result()
            return found
        except BatchItemError:
            raise
        except Exception as error:
            name = type(error).__name__
            if name == "KilledWorker":
                raise ClusterError(f"items from {first} on ended their worker ({error}); try them alone") from error
            if name not in ("FutureCancelledError", "CancelledError") or attempt == _MAX_LOSSES:
                raise
            futures[first] = submit(first)
    raise AssertionError("unreachable")
