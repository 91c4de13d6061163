"""``hf.sweep``: one function over many parameters, on one or many machines."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from hpfracc import _reading
from hpfracc._config import get_settings
from hpfracc._files import to_json
from hpfracc._interrupts import raise_interrupted
from hpfracc.distributed.driver import Runner, SweepDriver, SweepProgress
from hpfracc.distributed.executors import is_cluster, make_runner, require_executor
from hpfracc.distributed.functions import digest_of
from hpfracc.distributed.items import SweepOutcome, SweepParameters, check_output, read_parameters
from hpfracc.distributed.results import SweepResult, SweepRun
from hpfracc.distributed.stores import SweepStore
from hpfracc.distributed.tasks import Caller, SweepJob, refuse_limit, refuse_nesting
from hpfracc.distributed.worker import versions
from hpfracc.engine.execution.batch.driver import progress_of
from hpfracc.engine.execution.batch.items import random_stream
from hpfracc.errors import BatchItemError, InvalidInputError
from hpfracc.profiling.clocks import EnergyMeter, energy_counters

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
        Time limit for one item in seconds, with an executor of processes: in a pool Python code is interrupted, and a
        process that is stuck in a library call is ended; a Dask worker is ended by itself, and replaced by its nanny.
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

    See Also
    --------
    grid, points, SweepResult, hpfracc.distributed.open_sweep

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
    check_options(
        on_error=on_error, retries=retries, timeout=timeout, batch=batch, resources=resources, progress=progress,
        version=version, output=output, seed=seed,
    )  # fmt: skip
    _reading.function("func", func, "the parameters of an item")
    require_executor(executor)
    if resources is not None and not is_cluster(executor):
        raise InvalidInputError(
            f"resources={resources!r} are those of Dask workers; give executor= a client, or leave them out"
        )
    path = None if store is None else _reading.path("store", store)
    if timeout is not None and not is_cluster(executor):
        refuse_limit(executor)
    if executor is not None:
        refuse_nesting("sweep")
    items = read_parameters(params)
    if seed is not None and "rng" in items.values:
        raise InvalidInputError("seed= gives each call rng=, and there is a parameter 'rng'; rename it")
    is_stacked = bool(getattr(func, "hpfracc_stacked", False))
    caller = Caller.here(away=executor is not None)
    job = SweepJob(func, items, check_output(output), seed, is_stacked, timeout)
    size = None if batch == "auto" else int(batch)
    name = str(getattr(func, "__name__", type(func).__name__))

    def run(failed: bool = False) -> SweepResult:
        """Run the missing items; with ``failed`` also the failed ones."""
        count, manifest, found = len(items), dict[str, Any](), None
        outcome = SweepOutcome(0, count, keep=path is None)
        if path is not None:
            manifest, found = _manifest(name, job, caller, version, size), SweepStore.find(path)
        if found is not None:
            found.require(manifest)
            outcome = found.outcome(keep=False)
        before = outcome.ended - (len(outcome.failures) if failed else 0)
        length = size if found is None else found.batch
        begin, meter, used = time.perf_counter(), EnergyMeter({}), dict[str, Any]()
        interrupted = False
        if before < count:
            try:
                with contextlib.ExitStack() as stack:
                    meter = stack.enter_context(EnergyMeter({} if is_cluster(executor) else None))
                    runner = stack.enter_context(
                        make_runner(executor, caller, job.run, name, resources, timeout is not None)
                    )
                    advance = stack.enter_context(_shown(progress, count, name))
                    known = before, 0 if failed else len(outcome.failures)
                    driver = SweepDriver(job, runner, on_error == "keep", retries, advance, known)
                    if length is None:
                        length = choose_batch(job, runner, driver)
                    if path is not None and found is None:
                        found = SweepStore.create(path, {**manifest, "batch": length}, items)
                        found.require(manifest)  # another process may have been first
                        length = found.batch
                    driver.run(_tasks(count, length, found, outcome, driver, failed), outcome, found)
                    used = {"workers": runner.workers, "overhead": runner.overhead}
                    used |= {"work": driver.seconds, "learned": runner.learned}
            except BatchItemError as error:
                if found is not None:
                    error.add_note(f"completed items are in {found.path}; call sweep with this store to continue")
                raise
            except KeyboardInterrupt:
                interrupted = True
        if found is not None and outcome.ended < count:  # another process has done the others
            outcome = found.outcome(keep=False)
        told = SweepRun(
            name, time.perf_counter() - begin, batch=length or 1, ran=count - before, stacked=is_stacked,
            uncompared=tuple(manifest.get("uncompared", ())), energy=_energy(meter, is_cluster(executor)),
            rerun=None if found is None else run, **used,
        )  # fmt: skip
        result = SweepResult(items, outcome, found, told)
        if interrupted:
            kept = "" if found is None else f" They are in {found.path}; call sweep with this store to continue."
            raise_interrupted(f"Interrupted after {outcome.ended:,} of {count:,} items.{kept}", result)
        return result

    return run()


def check_options(
    *, on_error: Any = "raise", retries: Any = 2, timeout: Any = None, batch: Any = "auto", resources: Any = None,
    progress: Any = False, version: Any = None, output: Any = None, seed: Any = None,
) -> None:  # fmt: skip
    """Raise an error for options that :func:`sweep` does not take."""
    _reading.choice("on_error", on_error, ("raise", "keep"))
    _reading.whole("retries", retries, least=0)
    if timeout is not None:
        _reading.number("timeout", timeout, above=0.0)
    if not (isinstance(batch, str) and batch == "auto"):
        _reading.whole("batch", batch, least=1)
    if resources is not None:
        _reading.instance("resources", resources, Mapping, "{'GPU': 1}")
        for name, amount in resources.items():
            _reading.number(f"resources[{name!r}]", amount, above=0.0)
    if not callable(progress):
        _reading.flag("progress", progress)
    if version is not None and not isinstance(version, str):
        _reading.whole("version", version, most=None)
    check_output(output)
    if seed is not None:
        random_stream(seed, 0)


def _manifest(name: str, job: SweepJob, caller: Caller, version: Any, batch: int | None) -> dict[str, Any]:
    """What identifies the sweep, and the captured values that could not be compared."""
    function: dict[str, Any] = {"name": name, "version": version}
    uncompared: list[str] = []
    if version is None:
        digest, uncompared = digest_of(job.func, job.output if callable(job.output) else None)
        function = {"name": name, "digest": digest}
    return {
        "name": name,
        "function": function,
        "uncompared": uncompared,
        "kind": job.params.kind,
        "parameters": job.params.digest(),
        "seed": job.seed,
        "output": "function" if callable(job.output) else to_json(job.output),
        "settings": to_json(caller.settings),
        "backend": caller.backend,
        "stacked": job.stacked,
        "batch": batch,
        "versions": versions(),
    }


def _energy(meter: EnergyMeter, remote: bool) -> tuple[float, str]:
    """Energy of a sweep in joules, or nan and the reason."""
    if math.isfinite(meter.total):
        return meter.total, ""
    if remote:
        return math.nan, "the counters of the machines of a cluster are not read"
    reason = energy_counters()[1]
    if meter.joules or math.isnan(meter.seconds) or not reason:
        return math.nan, "the sweep took less than a second, which energy counters do not resolve"
    return math.nan, f"no energy counter can be read: {reason}"


def _tasks(
    count: int, batch: int, store: SweepStore | None, outcome: SweepOutcome, driver: SweepDriver, failed: bool
) -> Iterator[tuple[int, int]]:
    """The items of each task to run. Tasks that another process has stored in the meantime are skipped."""
    present, failures, damaged = outcome.present.copy(), set(outcome.failures), set(outcome.damaged)
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
