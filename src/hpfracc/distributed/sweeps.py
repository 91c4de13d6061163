"""``hf.sweep``: one function over many parameters, on one or many machines."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from hpfracc import _reading
from hpfracc._config import get_settings
from hpfracc.distributed.driver import SweepDriver, SweepProgress
from hpfracc.distributed.executors import InProcess, Pool, Runner, is_dask_client, require_executor
from hpfracc.distributed.functions import digest_of, dump
from hpfracc.distributed.outputs import check_output
from hpfracc.distributed.parameters import SweepParameters, read_parameters
from hpfracc.distributed.results import SweepOutcome, SweepResult
from hpfracc.distributed.stores import SweepStore, plain
from hpfracc.distributed.tasks import Caller, SweepJob, refuse_nesting
from hpfracc.distributed.worker import versions
from hpfracc.engine.execution.batch.driver import progress_of
from hpfracc.engine.execution.batch.items import random_stream
from hpfracc.errors import BatchItemError, InvalidInputError
from hpfracc.profiling.clocks import energy_counters
from hpfracc.profiling.energy import EnergyMeter

__all__ = ["check_options", "stacked", "sweep"]

F = TypeVar("F", bound=Callable[..., Any])

#: Shortest duration of a task in seconds, so that a millisecond of scheduling and a journal line stay below one per
#: cent.
_TASK_SECONDS = 0.25
#: Fewest tasks per worker, so that all of them end at about the same time.
_TASKS_A_WORKER = 4
#: Most items in a task.
_MAX_ITEMS = 4096
#: Number of items with which a stacked call is timed, and the size of stacks if timings must not decide.
_TRIAL_STACK, _FIXED_STACK = 32, 256
#: Seconds above which a first call is not repeated to time it without compilation.
_LONG_CALL = 2.0


def stacked(func: F) -> F:
    """Declare that a function takes many items in one call, for :func:`hpfracc.sweep`.

    Such a function gets each parameter as an array with the items along the first axis, and returns its results with
    the items along the first axis. Row i of the result must depend on row i of the parameters alone. With ``seed=`` it
    gets ``rng``, a list of generators.

    Parameters
    ----------
    func : callable
        The function; it is marked, not wrapped.

    Returns
    -------
    callable
        ``func`` itself.

    Raises
    ------
    AttributeError
        If ``func`` is an object that takes no attributes, such as a builtin function.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> @hf.distributed.stacked
    ... def relax(alpha, rate):
    ...     fall = rate[:, None]
    ...     y0 = np.ones((len(alpha), 1))
    ...     return hf.solve_fode(lambda t, y: -fall * y, (0.0, 1.0), y0, alpha[:, None], step=0.1).y[:, 0, -1]
    >>> hf.sweep(relax, hf.grid(alpha=[0.5, 0.9], rate=[1.0, 2.0, 3.0])).values.shape
    (2, 3)
    """
    _reading.function("func", func, "one array for each parameter")
    func.hpfracc_stacked = True  # type: ignore[attr-defined]
    return func


def sweep(
    func: Callable[..., Any],
    params: SweepParameters | Sequence[Mapping[str, Any]],
    *,
    executor: Any = None,
    store: Any = None,
    version: str | int | None = None,
    seed: int | None = None,
    output: Any = None,
    on_error: str = "raise",
    retries: int = 2,
    timeout: float | None = None,
    batch: int | str = "auto",
    resources: Mapping[str, float] | None = None,
    progress: bool | Callable[[SweepProgress], Any] = False,
) -> SweepResult:
    """Call a function for every item of a set of parameters, on this machine or on a cluster.

    Parameters
    ----------
    func : callable
        Called as ``func(**item)``. It must be picklable (by cloudpickle, if installed). A function declared by
        :func:`hpfracc.distributed.stacked` gets many items in one call, which is often much faster than any number of
        machines.
    params : grid, points or list of dicts
        The items: :func:`hpfracc.grid`, :func:`hpfracc.points`, or dicts with the same names.
    executor : optional
        Where to run: None for this process; a ``dask.distributed.Client`` or the address of its scheduler; an executor
        of ``concurrent.futures``. Inside a task only None is allowed.
    store : path, optional
        Folder for the results. An interrupted sweep continues from there when it is called again in the same way; a
        call with another function, parameters, seed or settings is refused. Several processes may work on one store.
    version : str or int, optional
        Stands for the function and its captured values where a store compares them: change it when they change. By
        default they are hashed; ``result.uncompared`` names captured values for which that is not possible.
    seed : int, optional
        Gives each call ``rng=``, a ``numpy.random.Generator`` from ``SeedSequence(seed, spawn_key=(i,))``: item i gets
        the same random numbers wherever it runs.
    output : str, tuple of str or callable, optional
        What to keep of each result: its fields by name, or a function of it. By default numbers, arrays and dicts of
        arrays are kept unchanged, and of a solution the array ``y``. All items must have the same shapes.
    on_error : {"raise", "keep"}
        Whether the first failure ends the sweep, or failures are kept in ``result.failed``, with nan in their place.
    retries : int
        Further attempts for an item whose worker died, or that raised ``OSError`` or ``MemoryError``. Other errors are
        not retried.
    timeout : float, optional
        Time limit for one item in seconds. Python code is interrupted; a worker process of a pool or of a Dask nanny
        that is stuck in a library call is terminated.
    batch : int or "auto"
        Items per task; for a stacked function the size of the stack, on which the last digits may depend. ``"auto"``
        measures the first items. A store keeps the number that was used.
    resources : mapping, optional
        Resources that a task needs on a Dask worker, such as ``{"GPU": 1}``.
    progress : bool or callable
        True shows a progress bar with the remaining time; a function is called with a
        :class:`~hpfracc.distributed.SweepProgress`.

    Returns
    -------
    SweepResult
        ``.values``, ``.failed``, ``.to_xarray()``, ``.cost()``, ``.plot()``, ``.resume()``; print it for a summary.

    Raises
    ------
    BatchItemError
        If an item fails with ``on_error="raise"``; its ``index`` names the item.
    ClusterError
        If the cluster cannot be used or is lost. With a store the sweep can be continued.
    StoreError
        If the store belongs to another sweep.

    Notes
    -----
    Results are bitwise equal to those of ``[func(**item) for item in params]``, whichever workers run them, unless
    their hardware or versions differ; for stacked functions the size of the stack must also be the same. The engine
    chooses backends for large calls by timings, which differ between workers: fix the choice with ``with
    hf.use_backend("numpy")`` or ``hf.config(deterministic=True)``. Both settings are sent to the workers and kept in a
    store.

    Examples
    --------
    >>> import hpfracc as hf
    >>> def relax(alpha, rate):
    ...     solution = hf.solve_fode(lambda t, y: -rate * y, (0.0, 1.0), [1.0], alpha, step=0.1)
    ...     return solution.y[0, -1]
    >>> result = hf.sweep(relax, hf.grid(alpha=[0.5, 0.7, 0.9], rate=[1.0, 2.0]))
    >>> result.values.shape, len(result.failed)
    ((3, 2), 0)
    """
    options = _Options(on_error, retries, timeout, batch, resources, progress, version)
    if not callable(func):
        raise InvalidInputError(f"func={func!r} is not callable; give the function to sweep")
    require_executor(executor)
    if resources is not None and _is_here(executor):
        raise InvalidInputError(
            f"resources={resources!r} are those of Dask workers; give executor= a client, or leave them out"
        )
    if store is not None and not isinstance(store, str | os.PathLike):
        raise InvalidInputError(f"store={store!r} is not a folder; give its path")
    if executor is not None:
        refuse_nesting("sweep")
    if seed is not None:
        random_stream(seed, 0)
    items = read_parameters(params)
    if seed is not None and "rng" in items.values:
        raise InvalidInputError("seed= gives each call rng=, and there is a parameter 'rng'; rename it")
    is_stacked = bool(getattr(func, "hpfracc_stacked", False))
    caller = Caller.here(away=executor is not None)
    job = SweepJob(func, items, check_output(output), seed, is_stacked, timeout, caller)
    return _Sweep(job, executor, store, options).run()


def check_options(given: Mapping[str, Any]) -> None:
    """Raise an error for options, read from a problem file, that :func:`sweep` would refuse."""
    _Options(**{name: each for name, each in given.items() if name not in ("output", "seed")})
    check_output(given.get("output"))
    if given.get("seed") is not None:
        random_stream(given["seed"], 0)


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of a sweep, checked."""

    on_error: Any = "raise"
    retries: Any = 2
    timeout: Any = None
    batch: Any = "auto"
    resources: Any = None
    progress: Any = False
    version: Any = None

    def __post_init__(self) -> None:
        checks = {
            "on_error": (isinstance(self.on_error, str) and self.on_error in ("raise", "keep"), "'raise' or 'keep'"),
            "retries": (_is_number(self.retries, int, 0), "an int of at least 0, a number of attempts"),
            "timeout": (self.timeout is None or _is_number(self.timeout, float), "seconds above 0, or None"),
            "batch": (
                (isinstance(self.batch, str) and self.batch == "auto") or _is_number(self.batch, int, 1),
                "an int of at least 1, or 'auto'",
            ),
            "resources": (
                self.resources is None
                or (isinstance(self.resources, Mapping) and all(_is_number(x, float) for x in self.resources.values())),
                "a mapping of names to amounts above 0, such as {'GPU': 1}",
            ),
            "progress": (isinstance(self.progress, bool) or callable(self.progress), "True, False or a function"),
            "version": (
                self.version is None or isinstance(self.version, str) or _is_number(self.version, int, -math.inf),
                "a string or an int",
            ),
        }
        for name, (right, wanted) in checks.items():
            if not right:
                raise InvalidInputError(f"{name}={getattr(self, name)!r}: use {wanted}")


def _is_number(value: Any, kind: type, least: float = 5e-324) -> bool:
    kinds = int if kind is int else int | float
    return isinstance(value, kinds) and not isinstance(value, bool) and least <= value < math.inf


class _Sweep:
    """One call of :func:`sweep`; its result keeps it in order to continue."""

    def __init__(self, job: SweepJob, executor: Any, store: Any, options: _Options) -> None:
        self._job, self._executor, self._path, self._options = job, executor, store, options
        self._batch: int | None = None if options.batch == "auto" else options.batch
        self.name = getattr(job.func, "__name__", type(job.func).__name__)

    def run(self, failed: bool = False) -> SweepResult:
        """Run the missing items; with ``failed`` also the failed ones."""
        job, options = self._job, self._options
        payload = None if self._executor is None else dump(job, f"the function {self.name!r}")
        manifest, uncompared = ({}, []) if self._path is None else self._manifest()
        store = None if self._path is None else SweepStore.find(self._path)
        outcome = SweepOutcome(len(job.params), keep=self._path is None)
        if store is not None:
            store.require(manifest)
            outcome = SweepOutcome.of(store, keep=False)
        before = outcome.ended - (len(outcome.failures) if failed else 0)
        batch = self._batch if store is None else store.batch
        begin = time.perf_counter()
        workers, overhead, work, learned = 1, 0.0, 0.0, 0
        meter = EnergyMeter({})
        if before < len(job.params):
            name = f"{self.name}-{np.random.SeedSequence().entropy:032x}"
            with contextlib.ExitStack() as stack:
                meter = stack.enter_context(EnergyMeter(None if _is_here(self._executor) else {}))
                runner = _make_runner(self._executor, job, name, payload, options.resources)
                stack.push(lambda kind, *_: runner.close(cancel=kind is not None))
                driver = SweepDriver(
                    job,
                    runner,
                    keep=options.on_error == "keep",
                    retries=options.retries,
                    advance=stack.enter_context(_shown(options.progress, len(job.params), self.name)),
                    before=(before, 0 if failed else len(outcome.failures)),
                )
                try:
                    if batch is None:
                        batch = choose_batch(job, runner, driver)
                    if self._path is not None and store is None:
                        store = SweepStore.create(self._path, {**manifest, "batch": batch}, job.params)
                        store.require(manifest)  # another process may have been first
                        batch = store.batch
                    tasks = _tasks(len(job.params), batch, store, outcome, driver, failed)
                    driver.run(
                        tasks, outcome.write, *([] if store is None else [store.write])
                    )  # shapes are compared first
                except (BatchItemError, KeyboardInterrupt) as error:
                    if store is not None:
                        error.add_note(f"completed items are in {store.path}; call sweep with this store to continue")
                    raise
                workers, overhead, work = runner.workers, runner.overhead, driver.seconds
                learned = driver.learned
        if store is not None and outcome.ended < len(job.params):  # another process has done the others
            outcome = SweepOutcome.of(store, keep=False)
        return SweepResult(
            job.params,
            outcome,
            name=self.name,
            store=store,
            ran=len(job.params) - before,
            seconds=time.perf_counter() - begin,
            work=work,
            workers=workers,
            batch=batch or 1,
            overhead=overhead,
            learned=learned,
            stacked=job.stacked,
            uncompared=uncompared,
            energy=_energy(meter, self._executor),
            rerun=None if store is None else self.run,
        )

    def _manifest(self) -> tuple[dict[str, Any], list[str]]:
        """What identifies the sweep, and the captured values that could not be compared."""
        job, uncompared = self._job, list[str]()
        function: dict[str, Any] = {"name": self.name}
        if self._options.version is not None:
            function["version"] = self._options.version
        else:
            function["digest"], uncompared = digest_of(job.func, job.output if callable(job.output) else None)
        manifest = {
            "name": self.name,
            "function": function,
            "uncompared": uncompared,
            "kind": job.params.kind,
            "parameters": job.params.digest(),
            "seed": job.seed,
            "output": "function" if callable(job.output) else plain(job.output),
            "settings": plain(dict(job.caller.settings)),
            "backend": job.caller.backend,
            "stacked": job.stacked,
            "batch": self._batch,
            "versions": versions(),
        }
        return manifest, uncompared


def _make_runner(executor: Any, job: SweepJob, name: str, payload: bytes | None, resources: Any) -> Runner:
    """The runner for a checked executor."""
    if executor is None:
        return InProcess(job)
    assert payload is not None
    if isinstance(executor, str) or is_dask_client(executor):
        from hpfracc.distributed.dask_runner import DaskRunner

        return DaskRunner(executor, name, payload, resources, job.timeout is not None)
    return Pool(executor, name, payload)


def _is_here(executor: Any) -> bool:
    """Whether the work is certainly done on this machine."""
    return not (isinstance(executor, str) or is_dask_client(executor))


def _energy(meter: EnergyMeter, executor: Any) -> tuple[float, str]:
    """Energy of a sweep in joules, or nan and the reason."""
    if math.isfinite(meter.total):
        return meter.total, ""
    if not _is_here(executor):
        return math.nan, "the counters of the machines of a cluster are not read"
    reason = energy_counters()[1]
    if meter.joules or math.isnan(meter.seconds) or not reason:
        return math.nan, "the sweep took less than a second, which energy counters do not resolve"
    return math.nan, f"no energy counter can be read: {reason}"


def _tasks(
    count: int, batch: int, store: SweepStore | None, outcome: SweepOutcome, driver: SweepDriver, failed: bool
) -> Iterator[tuple[int, int]]:
    """The items of each task to run. Tasks that another process has stored in the meantime are skipped."""
    present, failures, damaged = outcome.found.present.copy(), set(outcome.failures), set(outcome.damaged)
    for begin in range(0, count, batch):
        end = min(count, begin + batch)
        lost = {index for index in range(begin, end) if not present[index]}
        if not lost or (lost <= failures and not failed):
            continue
        if store is not None and store.has(begin, end) and (begin, end) not in damaged and not lost & failures:
            driver.found(end - begin)
        else:
            yield begin, end


def choose_batch(job: SweepJob, runner: Runner, driver: SweepDriver) -> int:
    """Items per task, from the timing of the first ones.

    Tasks are long enough for the scheduler, whose load is ``workers * cost / seconds per task``, and short enough to
    balance the work.
    """
    count = len(job.params)
    if job.stacked and get_settings().deterministic:
        return min(_FIXED_STACK, count)
    if count <= _TASKS_A_WORKER * runner.workers:
        return 1
    trial = list(range(min(_TRIAL_STACK, count))) if job.stacked else [0]
    first, report = driver.measure([0])  # includes compilation, imports and caches
    # Only now, because the first call may have waited for the first workers of a batch system.
    seconds = max(_TASK_SECONDS, 4.0 * runner.workers * runner.overhead)
    even = max(1, count // (_TASKS_A_WORKER * runner.workers))
    if report.failures or first > max(_LONG_CALL, seconds):
        return 1
    taken = driver.measure(trial)[0] / len(trial)
    if not 0.0 < taken < math.inf:
        return 1 if taken else min(even, _MAX_ITEMS)
    fitting = max(1, min(even, _MAX_ITEMS, int(seconds / taken)))
    return 1 << (fitting.bit_length() - 1) if job.stacked else fitting


@contextlib.contextmanager
def _shown(progress: Any, total: int, what: str) -> Iterator[Callable[[SweepProgress], Any]]:
    """A function that shows the progress."""
    if callable(progress):
        yield progress
        return
    with progress_of(progress, total, what) as advance:
        shown = 0

        def show(state: SweepProgress) -> None:
            nonlocal shown
            advance(state.done - shown)
            shown = state.done

        yield show
