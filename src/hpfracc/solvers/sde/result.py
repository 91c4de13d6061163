"""Results of a simulation: paths, their moments, and the progress of Monte Carlo methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic

import numpy as np

from hpfracc._arrays import library_of, to_host
from hpfracc._choices import ArrayOut
from hpfracc._interrupts import live_bar
from hpfracc._results import LabelledArrays, Result, new_axes
from hpfracc._xp import namespace
from hpfracc.errors import InvalidInputError

if TYPE_CHECKING:
    from hpfracc._results import Axes


@dataclass(slots=True, eq=False)
class Moments:
    """Mean and squared deviations of values that are not stored, accumulated chunk by chunk.

    Attributes
    ----------
    count : int
        Number of values so far; antithetic pairs count as one.
    mean, deviations : array
        Their mean, and the sum of squared deviations from it.
    """

    count: int = 0
    mean: Any = None
    deviations: Any = None

    def add(self, values: Any, antithetic: bool) -> None:
        """Add values of further paths, along the first axis."""
        values = 0.5 * (values[::2] + values[1::2]) if antithetic else values
        count = int(values.shape[0])
        if not count:
            return
        mean = values.mean(0)
        deviations = ((values - mean) ** 2).sum(0)
        if not self.count:
            self.count, self.mean, self.deviations = count, mean, deviations
            return
        total = self.count + count
        gap = mean - self.mean
        self.mean = self.mean + gap * (count / total)
        self.deviations = self.deviations + deviations + gap * gap * (self.count * count / total)
        self.count = total

    @property
    def standard_error(self) -> Any:
        """Standard error of the mean; nan for fewer than two values."""
        if self.count < 2:
            return self.deviations * float("nan")
        return (self.deviations / ((self.count - 1) * self.count)) ** 0.5


@dataclass(frozen=True, repr=False, eq=False)
class FSDEResult(Result, Generic[ArrayOut]):
    """Paths of a stochastic equation, or saved values of them.

    Arrays are of the library of the call: NumPy, PyTorch or JAX.

    Attributes
    ----------
    t : ndarray, shape (n,)
        Times.
    y : array or None
        ``save="all"``: shape ``(paths, d, n)``; ``"last"``: ``(paths, d)``; a function: its values, one row per path.
        None with ``keep="moments"``.
    noise : array, shape (paths, m, n), or None
        The driving noise, with ``save="all"``.
    method : str
        The method that was used.
    paths : int
        Number of paths that were finished.
    antithetic : bool
        Whether neighbouring paths have opposite noise.
    success : bool
        Whether all paths were finished and none diverged: explicit steps may be unstable.
    message : str
        How the simulation ended.
    stats : dict
        ``steps``, ``step``, ``chunks``, ``seconds``, and ``diverged``, the number of paths for which explicit steps
        were unstable.
    moments : object or None
        With ``keep="moments"``: ``count``, ``mean`` and ``standard_error`` of the saved values.
    """

    t: np.ndarray
    y: ArrayOut
    noise: Any
    method: str
    paths: int
    antithetic: bool
    success: bool = True
    message: str = "All paths were finished."
    stats: dict[str, Any] = field(default_factory=dict)
    moments: Moments | None = field(default=None, repr=False)

    _parts: ClassVar[tuple[type, ...]] = (Moments,)

    def _labelled(self) -> LabelledArrays:
        found = {"y": self.y}
        first: tuple[str, ...] = ("path",)
        if self.y is None:
            assert self.moments is not None
            found, first = {"mean": self.moments.mean, "standard_error": self.moments.standard_error}, ()
        shape = np.shape(next(iter(found.values())))[len(first) :]
        over_time = len(shape) == 2 and shape[-1] == self.t.size
        rest = ("component", "t") if over_time else ("component", *(f"value_{axis}" for axis in range(1, len(shape))))
        dims = (*first, *rest[: len(shape)])
        variables = {name: (dims, values) for name, values in found.items()}
        if self.noise is not None:
            variables["noise"] = (("path", "noise_component", "t"), self.noise)
        coords = {"t": self.t} if over_time else {}
        return LabelledArrays(variables, coords, "t" if over_time else dims[0], tuple(found))

    def _facts(self) -> dict[str, Any]:
        facts = {"method": self.method, "paths": self.paths, "steps": int(self.t.size - 1)}
        return {**facts, "success": self.success, "message": self.message}

    def mean(self) -> Any:
        """Mean over the paths."""
        if self.moments is not None:
            return self.moments.mean
        y: Any = self.y
        return y.mean(0)

    @property
    def standard_error(self) -> Any:
        """Standard error of :meth:`mean`; antithetic pairs count as one value each."""
        if self.moments is not None:
            return self.moments.standard_error
        y: Any = self.y
        found = Moments()
        found.add(y, self.antithetic)
        return found.standard_error if found.count else y.sum(0) * float("nan")

    def quantile(self, q: Any) -> Any:
        """Quantiles over the paths, as ``numpy.quantile``."""
        if self.y is None:
            raise InvalidInputError("keep='moments' stores no values for quantiles; use keep='values'")
        y: Any = self.y
        module = namespace(library_of(y)).module
        if library_of(y) == "torch":
            return module.quantile(y, module.as_tensor(q, dtype=y.dtype, device=y.device), dim=0)
        return module.quantile(y, module.asarray(q), axis=0)

    def plot(self, component: int = 0, *, kind: str = "auto", ax: Axes | None = None, most: int = 50) -> Axes:
        """Plot a component over time.

        Parameters
        ----------
        component : int
            Index of the component.
        kind : {"auto", "fan", "paths", "mean"}
            Bands of 50, 80 and 95 % of the paths around their median, single paths, or the mean with a band of two
            standard errors. ``"auto"`` is ``"fan"``, and ``"mean"`` with ``keep="moments"``.
        ax : matplotlib axes, optional
            Axes for the plot; new ones by default.
        most : int
            Maximum number of paths in the plot.

        Returns
        -------
        matplotlib axes
        """
        if kind not in ("auto", "fan", "paths", "mean"):
            raise InvalidInputError(f"kind={kind!r}: use 'auto', 'fan', 'paths' or 'mean'")
        if kind == "auto":
            kind = "fan" if self.y is not None else "mean"
        if self.y is None and kind != "mean":
            raise InvalidInputError(f"keep='moments' stores no paths for kind={kind!r}; use 'mean', or keep='values'")
        mean = to_host(self.mean())
        if mean.ndim != 2 or mean.shape[-1] != self.t.size or (self.y is not None and len(self.y.shape) != 3):
            raise InvalidInputError("there are no values over time to plot; solve with save='all'")
        if not -mean.shape[0] <= component < mean.shape[0]:
            raise InvalidInputError(f"component={component!r} of {mean.shape[0]}; use 0 to {mean.shape[0] - 1}")
        ax = new_axes(ax)
        if kind == "mean":
            middle, error = mean[component], to_host(self.standard_error)[component]
            band: dict[str, Any] = {"color": "tab:blue", "alpha": 0.2, "linewidth": 0, "label": "two standard errors"}
            ax.fill_between(self.t, middle - 2.0 * error, middle + 2.0 * error, **band)
            ax.plot(self.t, middle, color="tab:blue", label="mean")
            ax.legend()
        elif kind == "paths":
            ax.plot(self.t, to_host(self.y)[:most, component].T, linewidth=0.8)
        else:
            values = to_host(self.y)[:, component]
            for share in (0.95, 0.8, 0.5):
                low, high = np.quantile(values, [0.5 - 0.5 * share, 0.5 + 0.5 * share], axis=0)
                ax.fill_between(self.t, low, high, color="tab:blue", alpha=0.2, linewidth=0, label=f"{share:.0%}")
            ax.plot(self.t, np.median(values, axis=0), color="tab:blue", label="median")
            ax.legend()
        ax.set_xlabel("t")
        return ax

    def __repr__(self) -> str:
        kept = "moments" if self.y is None else tuple(self.y.shape)
        state = ", diverged" if self.stats.get("diverged") else "" if self.success else ", stopped"
        return f"FSDEResult(method={self.method!r}, paths={self.paths:,}, steps={self.t.size - 1:,}, y={kept}{state})"


#: Minimum number of chunks if progress is shown.
MIN_REPORTS = 20


def read_progress(progress: Any) -> None:
    """Raise an error unless ``progress`` is True, False or a function."""
    if not (isinstance(progress, bool) or callable(progress)):
        raise InvalidInputError(f"progress={progress!r}: use True, False, or a function")


def run_path_chunks(
    count: int,
    rows: int,
    chunk: Callable[[int, int], tuple[float, float] | None],
    progress: bool | Callable[..., Any],
    title: str,
) -> int:
    """Follow all paths in chunks, and show the progress; Ctrl-C ends at the finished ones, which the caller raises.

    Parameters
    ----------
    count, rows : int
        Number of paths, and of those in a chunk.
    chunk : callable
        ``chunk(low, high)`` follows these paths, and returns the mean so far with its standard error, or None.
    progress : bool or callable
        What the user asked for.
    title : str
        Title of the progress bar.

    Returns
    -------
    int
        Number of finished paths.
    """
    done = 0
    with _progress(progress, count, title) as report:
        try:
            while done < count:
                high = min(count, done + rows)
                found = chunk(done, high)
                if found is not None:
                    report(high, *found)
                done = high
        except KeyboardInterrupt:
            return done
    return done


@contextmanager
def _progress(wish: bool | Callable[..., Any], count: int, title: str) -> Iterator[Callable[[int, float, float], None]]:
    """Reports finished paths, and the mean so far with its standard error, while the block runs."""
    if callable(wish):
        yield lambda done, mean, error: wish(done, count, mean, error)
        return
    if not wish:
        yield lambda done, mean, error: None
        return
    with live_bar(title, count, "{task.fields[found]}", found="") as update:
        yield lambda done, mean, error: update(completed=done, found=f"mean {mean:.5g} +- {error:.2g}")
