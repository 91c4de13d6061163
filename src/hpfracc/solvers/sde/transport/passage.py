"""First passage: when and where a process leaves an interval or a half-line."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from hpfracc import _reading
from hpfracc._interrupts import raise_interrupted
from hpfracc._results import new_axes
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.noise.fractional_brownian import Brownian, FractionalBrownian
from hpfracc.solvers.sde.noise.process import Noise, plain_number, read_grid
from hpfracc.solvers.sde.noise.source import RandomSource, make_source
from hpfracc.solvers.sde.noise.stable import StableLevy, TemperedStable, one_sided
from hpfracc.solvers.sde.noise.subordinated import Subordinated
from hpfracc.solvers.sde.result import MIN_REPORTS, Moments, read_progress, run_path_chunks
from hpfracc.solvers.sde.transport.domains import Domain, brownian_exits, read_domain, read_start, stable_exits
from hpfracc.solvers.sde.transport.laws import FixedWaiting, Jumps, StableJumps, StableWaiting, TemperedJumps
from hpfracc.solvers.sde.transport.random_walk import ROUNDING, ContinuousTimeRandomWalk, walk_until

if TYPE_CHECKING:
    from hpfracc._results import Axes

#: Stream of the clock of subordinated motion.
_CLOCK = 1 << 53
#: Paths that are simulated between two progress reports, and jumps of a walk that are drawn together.
_TOGETHER, _JUMPS = 1 << 14, 64
#: Points of a plotted curve.
_POINTS = 200

#: Function that returns times and positions of a number of paths of a source, in columns.
_Follow = Callable[[RandomSource, int], np.ndarray]


class PassageEstimate(NamedTuple):
    """A mean over paths and its standard error, of the same shape."""

    value: Any
    standard_error: Any


@dataclass(frozen=True, repr=False, eq=False)
class FirstPassage:
    """When and where paths left a domain.

    Attributes
    ----------
    times : ndarray, shape (paths,)
        First passage times; inf for paths that were still inside at the end. With ``method="spheres"`` the mean time
        given the intervals that a path went through, which is valid for means only.
    places : ndarray, shape (paths,)
        Where the paths landed: an end of the domain, or beyond it; nan for paths that were still inside.
    domain : tuple of float
        The ends.
    until : float
        The time limit; inf if all paths were simulated until they left.
    method : str
        ``"exact"``, ``"walk"``, ``"steps"``, ``"spheres"`` or ``"grid"``.
    infinite_mean : bool
        Whether the mean first passage time is known to be infinite.
    success : bool
        Whether all paths were simulated; after Ctrl-C the result has the finished ones.
    message : str
        How the simulation ended.
    coarse : FirstPassage or None
        With ``method="grid"``: the same paths, observed half as often.
    order : float
        With ``method="grid"``: the order of the error in the step, which is H. Standard errors then include the
        discretisation: the change against ``coarse``, divided by :math:`2^H - 1`.
    """

    times: np.ndarray
    places: np.ndarray
    domain: tuple[float, float]
    until: float
    method: str
    infinite_mean: bool = False
    success: bool = True
    message: str = "All paths were followed."
    coarse: FirstPassage | None = None
    order: float = 1.0

    @property
    def paths(self) -> int:
        """Number of paths."""
        return int(self.times.size)

    def survival(self, t: Any) -> PassageEstimate:
        """Probability of being inside after the time t, for any shape of t."""
        self._need("a survival probability")
        t = _reading.numbers("t", t, finite=False)
        if np.any(np.isnan(t)) or np.any(t > self.until * ROUNDING):
            raise InvalidInputError(f"the paths end at until={self.until:g}, before t={t.max():g}; use a larger until=")
        alive = self.paths - np.searchsorted(np.sort(self.times), t * ROUNDING, side="right")
        return self._counted(_share(alive, self.paths), lambda coarse: coarse.survival(t))

    def mean(self) -> PassageEstimate:
        """Mean first passage time."""
        self._need()
        inside = int(np.count_nonzero(np.isnan(self.places)))
        if self.infinite_mean:
            raise InvalidInputError("the mean first passage time is infinite here; use survival() or quantile()")
        if inside:
            raise InvalidInputError(
                f"{inside:,} of {self.paths:,} paths were still inside at until={self.until:g}, so the mean is "
                "not known; use a larger until=, survival() or quantile()"
            )
        error = self.times.std(ddof=1) / math.sqrt(self.paths) if self.paths > 1 else math.nan
        found = PassageEstimate(float(self.times.mean()), float(error))
        return self._counted(found, lambda coarse: coarse.mean())

    def quantile(self, q: Any) -> np.ndarray:
        """Times by which a fraction q of the paths has left; inf if that is after the end."""
        self._need("a quantile")
        share = _reading.numbers("q", q, least=0.0)
        if np.any(share > 1.0):
            raise InvalidInputError(f"q={_reading.shown(q)}: give fractions of the paths, at most 1")
        return np.asarray(np.quantile(self.times, share, method="inverted_cdf"))

    def exit_probability(self, side: Literal["left", "right"] = "right") -> PassageEstimate:
        """Probability of leaving through the lower (``"left"``) or the upper end before ``until``."""
        _reading.choice("side", side, ("left", "right"))
        self._need()
        low, high = self.domain
        gone = self.places <= low if side == "left" else self.places >= high
        return self._counted(_share(np.count_nonzero(gone), self.paths), lambda coarse: coarse.exit_probability(side))

    def tail_exponent(self, after: float) -> PassageEstimate:
        r"""The exponent :math:`\theta` of a survival probability that decays like :math:`t^{-\theta}`.

        The maximum likelihood estimate for a Pareto tail [1]; paths that are still inside count as censored. A
        symmetric walk on a half-line has :math:`\theta = 1/2` for any jumps (Sparre Andersen), fractional Brownian
        motion :math:`1 - H`.

        Parameters
        ----------
        after : float
            Start of the tail.

        References
        ----------
        1. B. M. Hill, "A simple general approach to inference about the tail of a distribution", Ann. Statist. 3,
           1975.
        """
        self._need("an exponent")
        after = _reading.number("after", after, above=0)
        late = self.times[self.times > after]
        gone = int(np.count_nonzero(np.isfinite(late)))
        if gone < 2:
            raise InvalidInputError(f"{gone} paths left after {after:g}; an exponent needs more: use a smaller after=")
        # Times beyond the largest number count as censored too.
        last = min(self.until, np.finfo(float).max)
        value = gone / float(np.sum(np.log(np.minimum(late, last) / after)))
        return self._counted(PassageEstimate(value, value / math.sqrt(gone)), lambda each: each.tail_exponent(after))

    def plot(self, *, ax: Axes | None = None, log: bool = True, **style: Any) -> Axes:
        """Plot the survival probability over time, with a band of two standard errors.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes for the plot; new ones by default.
        log : bool
            Whether both axes are logarithmic, in which power laws are straight lines.
        **style
            Style of the line, for ``Axes.plot``.

        Returns
        -------
        matplotlib.axes.Axes
        """
        self._need("a survival curve")
        ax = new_axes(ax)
        gone = self.times[np.isfinite(self.times)]
        if not gone.size:
            raise InvalidInputError("no path has left, so there is no curve; use a larger until=")
        last = float(self.until if math.isfinite(self.until) else np.quantile(gone, 0.999))
        first = min(float(np.quantile(gone, 0.002)), 0.5 * last)
        t = np.geomspace(first, last, _POINTS) if log else np.linspace(0.0, last, _POINTS)
        value, error = self.survival(t)
        (line,) = ax.plot(t, value, **{"label": "survival probability", **style})
        low, high = np.clip(value - 2.0 * error, 0.3 / self.paths, 1.0), np.minimum(value + 2.0 * error, 1.0)
        ax.fill_between(t, low, high, color=line.get_color(), alpha=0.25, linewidth=0.0)
        if log:
            ax.set_xscale("log")
            ax.set_yscale("log")
        ax.set_xlabel("time t")
        ax.set_ylabel("probability to be inside")
        ax.grid(alpha=0.25)
        return ax

    def _counted(self, found: PassageEstimate, estimate: Callable[[FirstPassage], PassageEstimate]) -> PassageEstimate:
        """The estimate, with the discretisation in its error."""
        if self.coarse is None:
            return found
        rest = np.abs(found.value - estimate(self.coarse).value) / (2.0**self.order - 1.0)
        return PassageEstimate(found.value, np.hypot(found.standard_error, rest)[()])

    def _need(self, what: str = "") -> None:
        """Raise an error without paths, or if ``what`` needs the law of their times and that is unknown."""
        if not self.paths:
            raise InvalidInputError("no path was finished before the interrupt; start again")
        if what and self.method == "spheres":
            raise InvalidInputError(
                f"{what} needs the law of the times, which walks on spheres do not provide; use step= for stable motion"
            )

    def __repr__(self) -> str:
        gone = int(np.count_nonzero(~np.isnan(self.places)))
        low, high = self.domain
        return (
            f"FirstPassage(method={self.method!r}, paths={self.paths:,}, left={gone:,}, domain=({low:g}, {high:g}), "
            f"until={self.until:g})"
        )


def _share(hits: Any, paths: int) -> PassageEstimate:
    """A fraction of the paths. Its error assumes one more path of each kind, so it is not 0 for none or all."""
    smoothed = (np.asarray(hits) + 1.0) / (paths + 2.0)
    return PassageEstimate(np.asarray(hits / paths)[()], np.sqrt(smoothed * (1.0 - smoothed) / paths)[()])


def first_passage(
    process: Noise,
    domain: tuple[float, float],
    *,
    start: float | None = None,
    paths: int = 10_000,
    until: float = math.inf,
    step: float | None = None,
    rng: Any = None,
    key: Any = None,
    first_path: int = 0,
    progress: bool | Callable[..., Any] = False,
) -> FirstPassage:
    r"""First passage: when and where a process leaves an interval or a half-line with absorbing ends.

    Parameters
    ----------
    process : Noise
        A :class:`ContinuousTimeRandomWalk`, whose own ``domain`` may have reflecting ends;
        :class:`~hpfracc.noise.Brownian`, :class:`~hpfracc.noise.StableLevy`, :class:`~hpfracc.noise.TemperedStable`, or
        one of them :class:`~hpfracc.noise.Subordinated`; :class:`~hpfracc.noise.FractionalBrownian`.
    domain : tuple of float
        The ends ``(low, high)``, one of which may be infinite. A path has left when it is at an end or beyond.
    start : float, optional
        Start of the paths, inside the domain; by default 0, or the start of the walk.
    paths : int
        Number of paths.
    until : float
        Time limit of the simulation of each path.
    step : float, optional
        For stable motion with an index below 2; required for tempered and for fractional motion. The motion is observed
        in steps of this length (of the parent's time, if subordinated). Passages between the steps are missed, so times
        are too long, by a power of the step.
    rng, key, first_path
        As in :meth:`hpfracc.noise.Noise.sample`. Paths are simulated on the host in double precision, for a generator
        or key of any library, because each has a different number of jumps.
    progress : bool or callable
        Whether to show a progress bar with the finished paths, the remaining time, and a mean with its standard error:
        the fraction of paths inside at ``until``, or without ``until`` the mean time (nan if that is infinite). Or
        ``progress(done, paths, mean, standard_error)``.

    Returns
    -------
    FirstPassage
        ``.survival(t)``, ``.mean()``, ``.exit_probability(side)``, ``.quantile(q)``, ``.tail_exponent(after)``, each
        with its standard error; ``.times``, ``.places``, ``.plot()``. Ctrl-C raises
        :class:`~hpfracc.errors.Interrupted` with that of the finished paths.

    Notes
    -----
    The following are exact:

    - random walks: every jump is drawn (``"walk"``);
    - Brownian motion, subordinated or not: times and ends are drawn from their laws (``"exact"``). With the first
      passage time :math:`\tau` of the parent, that of the subordinated motion is :math:`\tau^{1/\alpha} S`, S one-sided
      stable;
    - symmetric stable motion without ``step``: the landing position and the mean time, by walks on spheres [1]
      (``"spheres"``), but not the law of the time.

    Stable and tempered motion in steps (``"steps"``) is a walk, exact as such. Stable motion leaves an interval by a
    jump over the end, not through it.

    Fractional Brownian motion is drawn exactly at multiples of ``step`` up to ``until``; it counts as gone at the first
    of them at which it is outside (``"grid"``). What it does in between is missed, of the order :math:`h^H`; standard
    errors of all estimates but quantiles include that.

    References
    ----------
    1. A. E. Kyprianou, A. Osojnik, T. Shardlow, "Unbiased 'walk-on-spheres' Monte Carlo methods for the fractional
       Laplacian", IMA J. Numer. Anal. 38, 2018.

    Examples
    --------
    >>> from math import gamma
    >>> from hpfracc import noise, transport
    >>> left = transport.first_passage(noise.StableLevy(1.5), (-1, 1), start=0.5, rng=1)
    >>> mean, error = left.mean()
    >>> bool(abs(mean - 0.75**0.75 / gamma(2.5)) < 4 * error)
    True
    """
    ends = read_domain(domain)
    count = _reading.whole("paths", paths, least=1)
    if until != math.inf:
        until = _reading.number("until", until, above=0)
    read_progress(progress)
    source = make_source(rng, key, first_path=first_path, count=count).on_host()
    source.check_room("first_passage", count, 2)
    follow, method, infinite = _read_process(process, ends, start, until, step)
    rows = _TOGETHER if not progress else min(_TOGETHER, -(-count // MIN_REPORTS))
    found = np.empty((count, 4 if method == "grid" else 2))
    summary = Moments()

    def chunk(low: int, high: int) -> tuple[float, float] | None:
        found[low:high] = follow(replace(source, first=source.first + low), high - low)
        if not progress:
            return None
        times = found[low:high, 0]
        shown = np.isinf(times) * 1.0 if until != math.inf else np.where(infinite, np.nan, times)
        summary.add(shown, False)
        return float(summary.mean), float(summary.standard_error)

    done = run_path_chunks(count, rows, chunk, progress, "first passage")
    message = f"Interrupted after {done:,} of {count:,} paths: the result has these."
    outcome = (True, "All paths were followed.") if done == count else (False, message)
    columns, limits = np.ascontiguousarray(found[:done].T), (ends.low, ends.high)
    parts = [
        FirstPassage(columns[k], columns[k + 1], limits, until, method, infinite, *outcome)
        for k in range(0, len(columns), 2)
    ]
    passage = parts[0]
    if method == "grid":
        assert isinstance(process, FractionalBrownian)
        passage = replace(passage, coarse=parts[1], order=plain_number(process.H))
    if done < count:
        raise_interrupted(message, passage)
    return passage


def _read_process(process: Any, ends: Domain, start: Any, until: float, step: Any) -> tuple[_Follow, str, bool]:
    """The simulation function, its name, and whether the mean time is infinite."""
    if isinstance(process, ContinuousTimeRandomWalk):
        if step is not None:
            raise InvalidInputError(f"step={step!r}: a random walk has its own waiting times; omit step")
        walk = process if start is None else replace(process, start=start)
        return _by_walk(walk, ends, until, "walk")
    parent, clock = (process.process, process.alpha) if isinstance(process, Subordinated) else (process, None)
    place = read_start(0.0 if start is None else start, ends)
    infinite = clock is not None or not ends.bounded
    length = None if step is None else _reading.number("step", step, above=0)
    if isinstance(parent, Brownian) or (isinstance(parent, StableLevy) and parent.alpha == 2.0):
        scale = math.sqrt(2.0) * parent.scale if isinstance(parent, StableLevy) else 1.0
        if step is not None:
            raise InvalidInputError(f"step={step!r}: Brownian motion is simulated without steps; omit step")

        def exactly(source: RandomSource, count: int) -> np.ndarray:
            times, places = brownian_exits(source, ends, place, count)
            times /= scale**2
            if clock is not None:  # the value of a stable subordinator then
                uniform = source.numbers(0, count, 2, kind="uniform", stream=_CLOCK)
                with np.errstate(over="ignore"):
                    times = one_sided(clock, uniform[:, 0], -np.log(uniform[:, 1]), times)
            return _until(times, places, until)

        return exactly, "exact", infinite
    if isinstance(process, FractionalBrownian):
        if length is None or until == math.inf:
            raise InvalidInputError(f"{process!r} is observed in steps: give step= and until=")
        return _on_grid(process, ends, place, until, length), "grid", infinite
    if not isinstance(parent, StableLevy | TemperedStable):
        raise InvalidInputError(
            f"process={process!r}: first passages are available for ContinuousTimeRandomWalk, Brownian, StableLevy, "
            "TemperedStable, Subordinated(one of the last three, alpha), and FractionalBrownian"
        )
    if length is not None:
        return _by_walk(_stepped(parent, clock, length, place), ends, until, "steps")
    if isinstance(parent, TemperedStable) or parent.beta:
        raise InvalidInputError(f"{parent!r} is not symmetric, and is simulated in steps: give step=")
    if until != math.inf:
        raise InvalidInputError(
            f"until={until:g}: stable motion without step= gives only positions and mean times; give step= too"
        )
    speed = parent.scale**parent.alpha

    def on_spheres(source: RandomSource, count: int) -> np.ndarray:
        times, places = stable_exits(source, parent.alpha, ends, place, count)
        return np.stack([np.where(infinite, np.nan, times / speed), places], -1)

    return on_spheres, "spheres", infinite


def _until(times: np.ndarray, places: np.ndarray, until: float) -> np.ndarray:
    """Both in columns; inf and nan for paths that left later."""
    late = times > until * ROUNDING
    return np.stack([np.where(late, np.inf, times), np.where(late, np.nan, places)], -1)


def _on_grid(process: FractionalBrownian, ends: Domain, start: float, until: float, step: float) -> _Follow:
    """Fractional motion at multiples of a step, and of two."""
    steps = 2 * math.ceil(0.5 * until / step / ROUNDING)
    grid = read_grid(step * np.arange(steps + 1.0))

    def follow(source: RandomSource, count: int) -> np.ndarray:
        paths = start + process._sample(source, grid, count)
        columns = []
        for every in (1, 2):
            outside = ends.outside(paths[:, ::every])
            first = outside.argmax(-1)
            times = np.where(outside.any(-1), every * step * first, np.inf)
            # A continuous path leaves through an end.
            side = np.where(paths[np.arange(count), every * first] <= ends.low, ends.low, ends.high)
            columns.append(_until(times, side, until))
        return np.concatenate(columns, -1)

    return lambda source, count: source.in_chunks(count, steps, follow)


def _by_walk(walk: ContinuousTimeRandomWalk, ends: Domain, until: float, method: str) -> tuple[_Follow, str, bool]:
    if walk._components:
        raise InvalidInputError("first_passage follows walks on a line, and this one has several components")
    read_start(walk.start, ends)
    low, high = walk.domain or (-math.inf, math.inf)
    inside = Domain(max(low, ends.low), min(high, ends.high))
    # Upward jumps with a positive mean pass any upper end.
    sure = inside.bounded or (walk.jumps.mean > 0.0 and math.isfinite(inside.high))
    if until == math.inf and not sure:
        raise InvalidInputError("on a half-line some paths never end in practice; give until=, the time limit")
    if walk.boundary == "absorb":
        raise InvalidInputError("the walk has absorbing ends of its own; give them as the domain of first_passage only")
    centred = walk.jumps.symmetric or walk.jumps.mean == 0.0
    infinite = walk.waiting.infinite_mean or (centred and not inside.bounded)

    def follow(source: RandomSource, count: int) -> np.ndarray:
        return np.stack(walk_until(walk, source, ends, until, count), -1)

    return (lambda source, count: source.in_chunks(count, _JUMPS, follow)), method, infinite


def _stepped(
    parent: StableLevy | TemperedStable, clock: float | None, step: float, start: float
) -> ContinuousTimeRandomWalk:
    """The motion at multiples of a step."""
    waiting = FixedWaiting(step) if clock is None else StableWaiting(clock, step ** (1.0 / clock))
    scale = parent.scale * step ** (1.0 / parent.alpha)
    jumps: Jumps
    if isinstance(parent, TemperedStable):
        jumps = TemperedJumps(parent.alpha, parent.rate, scale)
    else:
        jumps = StableJumps(parent.alpha, parent.beta, scale)
    return ContinuousTimeRandomWalk(waiting, jumps, start)
