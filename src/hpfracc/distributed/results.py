"""The result of a sweep: values, failures, costs, and how to continue it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hpfracc import _reading
from hpfracc._optional import import_optional
from hpfracc._results import SmallCurve, as_html
from hpfracc.distributed.items import VALUE, ParameterGrid, SweepOutcome, SweepParameters
from hpfracc.distributed.stores import SweepStore
from hpfracc.errors import InvalidInputError, StoreError, warn

if TYPE_CHECKING:
    from hpfracc._results import Axes, DataFrame, Dataset

#: Fraction of the scheduler's time above which a cluster spends more on scheduling than on work.
_BUSY = 0.5
#: Seconds of a sweep below which it gets no advice about its scheduler, and of work from which about its function.
_SHORT, _LONG = 1.0, 60.0
#: Seconds per item below which, and number of items from which, a stacked call pays off: 268,000 Brusselators a second
#: in stacks on an H200, and 1,478 one by one on 16 cores.
_QUICK_ITEM, _MANY_ITEMS = 0.1, 1000


_KINDS = ("auto", "line", "map", "surface", "scatter")
#: Ratio of the ends of a geometric range from which a logarithmic axis is used.
_WIDE = 20.0


@dataclass(frozen=True, slots=True)
class SweepCost:
    """Time and resources used by a sweep.

    Attributes
    ----------
    items, failed : int
        Number of completed items, and of failed ones among them.
    work_seconds : float
        Time of the calls, summed over the workers. For a continued sweep, only since it was continued.
    wall_seconds : float
        Time from the first task to the last; nan for a sweep read from a store.
    workers : int
        Number of tasks that could run at the same time.
    batch : int
        Number of items per task.
    overhead : float
        Fraction of the workers' time in which they did not run calls; nan if unknown.
    scheduler_load : float
        Predicted fraction of the time that the scheduler is busy, ``workers * cost / seconds per task``. Near 1
        further workers gain nothing.
    joules : float
        Energy used by this machine during the sweep, over all devices whose counters can be read; nan if none can, for
        sweeps shorter than a second, and for those on a Dask cluster.
    energy_note : str
        Why there is no energy, as a sentence; otherwise empty.
    advice : str
        What would reduce the cost, as a sentence; otherwise empty.
    """

    items: int
    failed: int
    work_seconds: float
    wall_seconds: float
    workers: int
    batch: int
    overhead: float
    scheduler_load: float
    joules: float = math.nan
    energy_note: str = ""
    advice: str = ""

    @property
    def core_hours(self) -> float:
        """Time of the calls in core-hours."""
        return self.work_seconds / 3600.0

    def to_dict(self) -> dict[str, Any]:
        """The cost as plain data."""
        return {**asdict(self), "core_hours": self.core_hours}


@dataclass(frozen=True, slots=True)
class SweepRun:
    """How a sweep ran: its duration, the work of all workers, and what its result says about it."""

    name: str
    seconds: float
    batch: int
    #: Number of items that the times refer to; the others were already in the store.
    ran: int
    work: float = 0.0
    workers: int = 1
    overhead: float = 0.0
    learned: int = 0
    stacked: bool = False
    uncompared: tuple[str, ...] = ()
    energy: tuple[float, str] = (math.nan, "a sweep that was read from a store has no energy")
    #: Runs the missing items; with True also the failed ones.
    rerun: Callable[[bool], SweepResult] | None = None


class SweepResult:
    """The results of a sweep.

    Attributes
    ----------
    params : SweepParameters
        The parameters of all items.
    failed : list of ItemFailure
        Items without a result, each with ``index``, ``parameters``, ``error`` and ``worker``.
    seconds : float
        Duration of the sweep; nan if it was read from a store.
    learned : int
        Measurements of the workers' engines that were new to this process, and were added to its wisdom.
    uncompared : tuple of str
        Captured values of the function whose changes a store cannot notice. ``version=`` stands for them.
    """

    def __init__(self, params: SweepParameters, outcome: SweepOutcome, store: SweepStore | None, run: SweepRun) -> None:
        self.params = params
        self.failed = [outcome.failures[index] for index in sorted(outcome.failures)]
        self.name, self.seconds, self.learned, self.uncompared = run.name, run.seconds, run.learned, run.uncompared
        self._found = outcome if store is None else None
        self._store, self._ended, self._run = store, outcome.ended, run

    @property
    def label(self) -> str:
        """A name for a single result: that of the function, or ``"value"`` if it has none."""
        return VALUE if self.name == "<lambda>" else self.name

    @property
    def complete(self) -> bool:
        """Whether every item has ended."""
        return self._ended == len(self.params)

    @property
    def values(self) -> Any:
        """The results, with the shape of the sweep first: an array, or a dict of arrays if there are several names.

        Read from the store at first use. Items that failed or have not run are nan; integers and bools are then
        converted to float.
        """
        found = {name: self._shaped(array) for name, array in self.arrays().items()}
        return next(iter(found.values())) if len(found) == 1 else found

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The results by name, with the items along the first axis."""
        if self._found is None:
            assert self._store is not None
            self._found = self._store.outcome(keep=True)
        if not self._found.arrays:
            why = f"the first failed with {self.failed[0].error}" if self.failed else "none has run"
            raise InvalidInputError(f"no item of the sweep gave a result; {why}")
        return self._found.with_gaps()

    def _shaped(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return array.reshape(*self.params.shape, *array.shape[1:])

    def __len__(self) -> int:
        return len(self.params)

    def to_xarray(self) -> Dataset:
        """The results as an xarray ``Dataset``, or a ``DataArray`` for a single result without a name.

        The parameters of a grid are dimensions with coordinates; those of points are coordinates along ``item``. A
        result with the name of a parameter is called ``NAME_result``.
        """
        xarray = import_optional("xarray")
        is_grid = isinstance(self.params, ParameterGrid)
        dims = tuple(self.params.values) if is_grid else ("item",)
        coords = {
            name: (name if is_grid else "item", values)
            for name, values in self.params.values.items()
            if values.ndim == 1
        }
        made = {}
        for given, array in self.arrays().items():
            name = f"{given}_result" if given in self.params.values or given in dims else given
            more = tuple(f"{name}_{axis}" for axis in range(array.ndim - 1))
            made[name] = xarray.DataArray(self._shaped(array), coords=coords, dims=(*dims, *more), name=name)
        if set(made) == {VALUE}:
            return made[VALUE].rename(self.label)
        return xarray.Dataset(made)

    def to_dataframe(self) -> DataFrame:
        """The results as a pandas ``DataFrame``, with the parameters of a grid, or the items, as its index.

        Needs xarray (``pip install hpfracc[frames]``).
        """
        return self.to_xarray().to_dataframe()

    def _repr_html_(self) -> str:
        facts = {
            "parameters": ", ".join(self.params.values),
            "done": f"{self._ended:,} of {len(self.params):,}",
            "failed": len(self.failed),
        }
        curves: list[SmallCurve] = []
        # Not read from the store only to be drawn.
        if self._found is not None and self._found.arrays and len(self.params.values) == 1:
            (points,) = self.params.values.values()
            drawable = points.ndim == 1 and points.dtype.kind in "iuf"
            found = self.arrays().values() if drawable else ()
            curves = [SmallCurve(points, array) for array in found if array.ndim == 1 and array.dtype.kind in "biuf"]
        return as_html(f"SweepResult of {self.name}", facts, curves)

    def resume(self, *, failed: bool = False) -> SweepResult:
        """Run the items that have not ended, and with ``failed`` also those that failed.

        Only for a sweep with a store, in the process that started it; elsewhere call :func:`hpfracc.sweep` with the
        same arguments.
        """
        if self._run.rerun is None:
            raise StoreError(
                "this sweep cannot be continued from here; call hf.sweep with the same function, parameters and store="
            )
        return self._run.rerun(failed)

    def cost(self) -> SweepCost:
        """Time and resources of the sweep, and what would reduce them."""
        run = self._run
        seconds_a_task = run.work / max(1, math.ceil(run.ran / run.batch))
        load = run.workers * run.overhead / seconds_a_task if seconds_a_task > 0.0 else math.nan
        busy = run.work / (run.workers * run.seconds) if run.seconds > 0.0 else math.nan
        idle = max(0.0, 1.0 - busy) if math.isfinite(busy) else math.nan
        advice = ""
        if load > _BUSY and not run.seconds < _SHORT:
            fewer = max(1, int(run.workers * _BUSY / load))
            advice = (
                f"the scheduler is busy {load:.0%} of the time; {_counted(fewer, 'worker')} would be as fast, or batch="
                f"{math.ceil(run.batch * load / _BUSY)}"
            )
        elif run.work > _LONG and run.ran >= _MANY_ITEMS and run.work < _QUICK_ITEM * run.ran and not run.stacked:
            advice = (
                f"an item takes {1e3 * run.work / run.ran:.2g} ms; a function declared by hf.distributed.stacked "
                "does many in one call, and one machine or GPU may then be enough"
            )
        elif run.work > _LONG and run.workers == 1:
            advice = "one process did all the work; executor=ProcessPoolExecutor() or a Dask client uses further cores"
        done = self._ended, len(self.failed), run.work, run.seconds, run.workers, run.batch
        return SweepCost(*done, idle, load, *run.energy, advice=advice)

    def plot(self, output: str | None = None, *, kind: str = "auto", ax: Any = None) -> Axes:
        """Draw a result with one number per item, over one or two parameters.

        Parameters
        ----------
        output : str, optional
            The result to draw, if there are several.
        kind : {"auto", "line", "map", "surface", "scatter"}
            ``"auto"``: a line over one parameter, a heat map over the two of a grid, coloured points over the two of
            points. Geometric ranges get a logarithmic axis, except in a surface.
        ax : matplotlib axes, optional
            Axes to draw on; new ones by default.

        Returns
        -------
        matplotlib axes
        """
        _reading.choice("kind", kind, _KINDS)
        name, values = self._chosen(output)
        varied = {key: axis for key, axis in self.params.values.items() if len(np.unique(axis)) > 1}
        if any(axis.ndim > 1 or axis.dtype.kind not in "biuf" for axis in varied.values()):
            raise InvalidInputError("only parameters that are real numbers can be drawn; draw result.values yourself")
        is_grid = isinstance(self.params, ParameterGrid)
        if kind == "auto":
            kind = "line" if len(varied) == 1 else "map" if is_grid else "scatter"
        wanted = 1 if kind == "line" else 2
        if len(varied) != wanted or (kind != "line" and is_grid != (kind != "scatter")):
            items = "" if kind == "line" else " of a grid" if kind != "scatter" else " of points"
            raise InvalidInputError(
                f"kind={kind!r} needs {_counted(wanted, 'parameter')}{items} with several values, and there are "
                f"{len(varied)}: {', '.join(varied) or 'none'}; draw result.values yourself"
            )
        pyplot = import_optional("matplotlib.pyplot")
        if kind == "surface" and ax is not None and not hasattr(ax, "plot_surface"):
            raise InvalidInputError(
                "kind='surface' has three dimensions and ax has two; omit ax, or use plt.subplot(projection='3d')"
            )
        if ax is None:
            ax = pyplot.figure().add_subplot(projection="3d" if kind == "surface" else None)
        (first, rows), *others = varied.items()
        if kind == "line":
            order = np.argsort(rows, kind="stable")
            ax.plot(rows[order], values[order])
            ax.set(xlabel=first, ylabel=name, xscale=_scale(rows))
            return ax
        ((second, columns),) = others
        if kind == "surface":
            x, y = np.meshgrid(rows, columns, indexing="ij")
            ax.plot_surface(x, y, values.reshape(x.shape), cmap="viridis")
            ax.set(xlabel=first, ylabel=second, zlabel=name)
            return ax
        if kind == "scatter":
            drawn = ax.scatter(rows, columns, c=values)
        else:  # rows upwards
            drawn = ax.pcolormesh(columns, rows, values.reshape(len(rows), len(columns)), shading="nearest")
            first, rows, second, columns = second, columns, first, rows
        ax.figure.colorbar(drawn, ax=ax, label=name)
        ax.set(xlabel=first, ylabel=second, xscale=_scale(rows), yscale=_scale(columns))
        return ax

    def _chosen(self, output: str | None) -> tuple[str, Any]:
        """The name of a result and its values, one real number per item."""
        found = self.arrays()
        name = next(iter(found)) if output is None and len(found) == 1 else output
        if name not in found:
            raise InvalidInputError(f"output={output!r}: the results are {', '.join(found)}; name one of them")
        values = found[name]
        if values.size != len(self.params) or values.dtype.kind == "c":
            raise InvalidInputError(
                f"{name} has shape {values.shape[1:]} per item; only one real number per item can be drawn"
            )
        return str(self.label if name == VALUE else name), values.reshape(-1)

    def __getstate__(self) -> dict[str, Any]:
        # The function may be one that cannot be pickled.
        return {**self.__dict__, "_run": replace(self._run, rerun=None)}

    def __repr__(self) -> str:
        state = "complete" if self.complete else f"{self._ended} of {len(self.params)} items done"
        return f"SweepResult({self.name}: {len(self.params)} items, {state}, {len(self.failed)} failed)"

    def __str__(self) -> str:
        """A summary for printing."""
        cost, run = self.cost(), self._run
        lines = [
            f"sweep of {self.name} over {', '.join(self.params.values)}",
            f"  items     {self._ended:,} of {len(self.params):,} done, {len(self.failed):,} failed",
        ]
        if math.isfinite(self.seconds):
            rate = run.ran / self.seconds if self.seconds > 0.0 else math.nan
            told = f"{self.seconds:.3g} s, {rate:.4g} items a second on {_counted(run.workers, 'worker')}"
            if run.ran < self._ended:
                told = f"{told}; {self._ended - run.ran:,} were in the store" if run.ran else "nothing was left to run"
            lines.append(f"  time      {told}")
        if run.ran:
            lines.append(f"  work      {cost.work_seconds:.3g} s in tasks of {_counted(run.batch, 'item')}")
        if self._store is not None:
            lines.append(f"  store     {self._store.path}")
        if self.uncompared:
            told = ", ".join(self.uncompared[:5])
            lines.append(f"  store     could not be compared: {told}; give version= and change it with them")
        lines += [f"  failed    item {each.index}: {each.error.partition(chr(10))[0][:90]}" for each in self.failed[:5]]
        if len(self.failed) > 5:
            lines.append(f"            and {len(self.failed) - 5} more")
        return "\n".join([*lines, *([f"  advice    {cost.advice}"] if cost.advice else [])])


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def open_sweep(store: Any) -> SweepResult:
    """The results in the store of a sweep, finished or not.

    Parameters
    ----------
    store : path
        The folder that was given to :func:`hpfracc.sweep`.

    Returns
    -------
    SweepResult
        ``.values``, ``.failed``, ``.to_xarray()``, ``.cost()`` as after the sweep itself.
    """
    found = SweepStore.open(store)
    outcome = found.outcome(keep=False)
    if outcome.damaged:
        told = ", ".join(f"{begin} to {end - 1}" for begin, end in outcome.damaged[:5])
        warn(
            f"items {told} in {str(found.path)!r} are damaged and count as not done; call sweep with this store to "
            "recompute them",
            UserWarning,
        )
    manifest = found.manifest
    run = SweepRun(
        str(manifest.get("name", "sweep")), math.nan, found.batch, outcome.ended, outcome.seconds,
        len(outcome.workers) or 1, stacked=bool(manifest.get("stacked", False)),
        uncompared=tuple(map(str, manifest["uncompared"])),
    )  # fmt: skip
    return SweepResult(found.params, outcome, found, run)


def _scale(points: Any) -> str:
    """``"log"`` for values that grow by equal factors over a wide range."""
    found = np.unique(points).astype(np.float64)
    if len(found) < 3 or found[0] <= 0.0 or found[-1] < _WIDE * found[0]:
        return "linear"
    ratios = np.diff(np.log(found))
    return "log" if np.ptp(ratios) < 1e-6 * ratios.max() else "linear"
