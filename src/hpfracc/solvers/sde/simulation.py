"""Simulation in chunks of paths: saved values, memory, progress, and interrupts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc._arrays import is_transformed, library_of, to_host, tracks_gradient
from hpfracc._interrupts import interrupt_scope, raise_if_nested
from hpfracc.errors import OutOfMemoryError, ShapeError
from hpfracc.solvers.sde.driving import Driving
from hpfracc.solvers.sde.methods import PathMethod
from hpfracc.solvers.sde.methods.exponentials import count_rates
from hpfracc.solvers.sde.noise.process import plain_hurst
from hpfracc.solvers.sde.noise.source import NEGLIGIBLE_BYTES
from hpfracc.solvers.sde.placement import StatePlacement
from hpfracc.solvers.sde.problem import NoisyProblem
from hpfracc.solvers.sde.progress import MIN_REPORTS, path_progress
from hpfracc.solvers.sde.result import FSDEResult, Moments
from hpfracc.solvers.sde.stepping import integrate
from hpfracc.solvers.sde.stiffness import Divergence, find_divergence, refuse_infinite, warn_of_stiffness

__all__ = ["Forecast", "Simulation"]

#: Bytes of all arrays of a chunk: small enough for the caches of a core, and large enough for a GPU.
_CHUNK_ON_HOST, _CHUNK_ON_GPU = 1 << 25, 1 << 33
#: Maximum fraction of free memory for a chunk.
_CHUNK_SHARE = 0.25
#: Number of arrays of a chunk with all times of all paths: noise, its increments, the states, and copies.
_FULL_ARRAYS = 3


@dataclass(frozen=True, slots=True)
class Forecast:
    """Memory of a simulation.

    Attributes
    ----------
    rows : int
        Paths per chunk.
    chunks : int
        Number of chunks.
    kept_bytes : int
        Bytes of the result, as far as known: not for a function of the paths.
    chunk_bytes : int
        Additional bytes of a chunk.
    """

    rows: int
    chunks: int
    kept_bytes: int
    chunk_bytes: int


@dataclass(frozen=True, slots=True)
class Simulation:
    """A simulation with all its settings.

    Attributes
    ----------
    problem, method, alpha, t, h, start
        The equation, the method, the order, the times, the step, and initial values of shape ``(1 or paths, d)``.
    driving, placement
        The noise, and the placement of arrays.
    count : int
        Number of paths.
    save : str or callable
        What is saved of a path.
    moments : bool
        Whether only the mean and the standard error are stored.
    places : ndarray of int, optional
        Indices of the saved times; all by default.
    """

    problem: NoisyProblem
    method: PathMethod
    alpha: Any
    t: np.ndarray
    h: float
    start: Any
    driving: Driving
    placement: StatePlacement
    count: int
    save: str | Callable[[Any, Any], Any]
    moments: bool
    progress: bool | Callable[..., Any]
    places: np.ndarray | None = None

    @property
    def saved(self) -> np.ndarray:
        """Times of the result."""
        return self.t if self.places is None else self.t[self.places]

    @property
    def traced(self) -> bool:
        """Whether values are traced or differentiable. Then all paths are one chunk."""
        values = (self.start, self.problem.constant, self.alpha, self.driving.factor, self.placement.source.key)
        given = (*values, *self.problem.args, *self.driving.noise._parameters())
        return any(library_of(value) in ("torch", "jax") and tracks_gradient(value) for value in given)

    def forecast(self) -> Forecast:
        """Number of chunks and bytes, from shapes and free memory."""
        traits, method = self.problem.traits, self.method
        item = 4 if traits.dtype == "float32" else 8
        fine = self.driving.times.size
        row = item * (_FULL_ARRAYS * fine * traits.noises * method.sets(traits) + 2 * self.t.size * traits.dimension)
        if method.remembers:
            row += 3 * item * count_rates(fine) * traits.dimension
        least = 2 if self.driving.antithetic else 1
        kept = 0
        if not self.moments and self.save == "all":
            kept = item * self.count * self.saved.size * (traits.dimension + traits.noises)
        elif not self.moments and self.save == "last":
            kept = item * self.count * traits.dimension
        if self.traced or (self.placement.library != "numpy" and self.save == "all"):
            rows = self.count
        else:
            size = _CHUNK_ON_HOST if self.placement.device == "cpu" else _CHUNK_ON_GPU
            if size > NEGLIGIBLE_BYTES:
                free = self.placement.source.free_bytes()
                size = size if free is None else min(size, int(_CHUNK_SHARE * free))
            rows = min(self.count, max(least, size // row))
            if self.progress:
                rows = min(rows, -(-self.count // MIN_REPORTS))
        rows = max(least, rows // least * least)
        return Forecast(rows, -(-self.count // rows), kept, rows * row)

    def check_memory(self, forecast: Forecast, kept_bytes: int) -> None:
        """Raise an error if the simulation does not fit into memory.

        Raises
        ------
        OutOfMemoryError
            With the required memory, the free memory, and a remedy.
        """
        need = kept_bytes + forecast.chunk_bytes
        if need < NEGLIGIBLE_BYTES:
            return
        free = self.placement.source.free_bytes()
        if free is None or need <= free:
            return
        what = "one chunk" if forecast.chunks > 1 else "all paths at once"
        raise OutOfMemoryError(
            f"solve_fsde: {self.count:,} paths of {self.t.size:,} times need {kept_bytes:,} bytes for the result and "
            f"{forecast.chunk_bytes:,} for {what}, and {free:,} are free; give save= a function of the paths, or "
            "keep='moments', which need little memory, use fewer paths, or save='last'"
        )

    def run(self) -> FSDEResult:
        """Simulate all paths; after Ctrl-C return those that were finished."""
        begun = time.perf_counter()
        forecast = self.forecast()
        self.check_memory(forecast, forecast.kept_bytes)
        kept = _SavedValues(self, forecast)
        interrupted = False
        with interrupt_scope(), path_progress(self.progress, self.count, self.method.name) as report:
            try:
                for low in range(0, self.count, forecast.rows):
                    high = min(self.count, low + forecast.rows)
                    values, noise, diverged = self._chunk(low, high, forecast.rows)
                    kept.add(values, noise, high, diverged)
                    if self.progress:
                        report(high, *kept.summary())
            except KeyboardInterrupt:
                raise_if_nested()
                interrupted = True
        messages = []
        if interrupted:
            messages.append(f"Interrupted after {kept.done:,} of {self.count:,} paths: the result has these.")
        if kept.diverged is not None:
            messages.append(kept.diverged.describe(kept.done, self.h, _number(self.alpha)))
        stats = {
            "steps": self.t.size - 1,
            "step": self.h,
            "chunks": forecast.chunks,
            "diverged": 0 if kept.diverged is None else kept.diverged.paths,
            "seconds": time.perf_counter() - begun,
        }
        values, noise = kept.joined()
        return FSDEResult(
            self.saved,
            values,
            noise,
            self.method.name,
            kept.done,
            self.driving.antithetic,
            not messages,
            " ".join(messages) or "All paths were finished.",
            stats,
            kept.moments,
        )

    def _chunk(self, low: int, high: int, rows: int) -> tuple[Any, Any, Divergence | None]:
        """Saved values of the paths ``low`` to ``high``, their noise, and the number of them that diverged."""
        # JAX compiles for one shape: the last chunk is as long as the others, and truncated.
        drawn = low + rows if self.placement.library == "jax" else high
        start, xp = self.start, self.placement.xp
        if start.shape[0] == 1:
            begin = xp.module.broadcast_to(start, (drawn - low, start.shape[1]))
        else:
            begin = start[low:high]
            if drawn > high:
                begin = xp.concatenate([begin, xp.module.broadcast_to(begin[-1:], (drawn - high, begin.shape[1]))])
        driving = self.driving.paths(self.placement, low, drawn)
        keep = self.save != "last"
        y = integrate(
            self.problem, self.method, self.alpha, self.t, self.h, begin, driving, keep=keep, hurst=self._hurst
        )
        y = self._masked(y)
        if drawn > high:
            y, driving, begin = y[: high - low], driving[: high - low], begin[: high - low]
        refuse_infinite(self.t, y)
        diverged = None
        if "implicit" not in self.method.name:
            order = _number(self.alpha)
            diverged = find_divergence(self.problem, order, self.t, self.h, begin, y, driving)
            if low == 0:
                warn_of_stiffness(self.problem, order, self.t, self.h, y)
        if self.save == "all":
            parts = self.method.parts(self.problem.traits, self.t.size - 1)
            noise = driving[:, : self.problem.traits.noises, ::parts]
            if self.places is not None:
                y, noise = y[..., self.places], noise[..., self.places]
            return y, noise, diverged
        return (_functional(self.save, self.t, y) if callable(self.save) else y), None, diverged

    @property
    def _hurst(self) -> Any:
        """H as given; it may be a tensor."""
        given = self.driving.noise._parameters()
        return given[0] if given else None

    def _masked(self, y: Any) -> Any:
        """Set paths to nan if H is traced and the method does not converge for its value."""
        traits = self.problem.traits
        if traits.hurst is not None:
            return y
        lowest = self.method.lowest_hurst(traits)
        if traits.interpretation == "young":
            lowest = max(lowest, 0.5)
        if self.method.remembers:
            lowest = 1.0 - self.alpha
        return self.placement.xp.where(self._hurst > lowest, y, float("nan"))


def _number(alpha: Any) -> float:
    return 1.0 if is_transformed(alpha) else plain_hurst(alpha)


def _functional(save: Callable[[Any, Any], Any], t: np.ndarray, y: Any) -> Any:
    values = save(t, y)
    if library_of(y) == "numpy":
        values = np.asarray(values)
    shape = tuple(getattr(values, "shape", ()))
    if shape[:1] != (y.shape[0],):
        raise ShapeError(f"save returned shape {shape} for {y.shape[0]:,} paths; return one row for each path")
    return values


class _SavedValues:
    """Saved values of the paths so far."""

    def __init__(self, simulation: Simulation, forecast: Forecast) -> None:
        self._simulation, self._forecast = simulation, forecast
        self._parts: list[Any] = []
        self._noises: list[Any] = []
        self._whole: np.ndarray | None = None
        self._noise: np.ndarray | None = None
        self._summary = Moments()
        self.moments = Moments() if simulation.moments else None
        self.diverged: Divergence | None = None
        self.done = 0

    def add(self, values: Any, noise: Any, high: int, diverged: Divergence | None) -> None:
        """Add the values of the paths up to ``high``."""
        antithetic = self._simulation.driving.antithetic
        if self.moments is not None:
            self.moments.add(values, antithetic)
        elif self._simulation.placement.library == "numpy":
            self._store(values, noise, high)
        else:
            self._parts.append(values)
            self._noises.append(noise)
        if self._simulation.progress and not is_transformed(values):
            self._summary.add(_first_number(values), antithetic)
        if diverged is not None:
            self.diverged = diverged if self.diverged is None else self.diverged.joined(diverged)
        self.done = high

    def _store(self, values: np.ndarray, noise: Any, high: int) -> None:
        """Store into arrays of the final size, so that nothing is held twice."""
        count = self._simulation.count
        if self._whole is None:
            if callable(self._simulation.save):
                size = values.nbytes // values.shape[0] * count
                self._simulation.check_memory(self._forecast, size)
            self._whole = np.empty((count, *values.shape[1:]), values.dtype)
            if noise is not None:
                self._noise = np.empty((count, *noise.shape[1:]))
        self._whole[self.done : high] = values
        if self._noise is not None:
            self._noise[self.done : high] = noise

    def summary(self) -> tuple[float, float]:
        """Mean and standard error of the first saved number of each path."""
        if not self._summary.count:  # traced values
            return float("nan"), float("nan")
        return float(self._summary.mean), float(self._summary.standard_error)

    def joined(self) -> tuple[Any, Any]:
        """All values and noises."""
        if self.moments is not None:
            return None, None
        if self._simulation.placement.library == "numpy" and self._whole is not None:
            noise = None if self._noise is None else self._noise[: self.done]
            return self._whole[: self.done], noise
        if not self._parts:
            return self._nothing()
        xp = self._simulation.placement.xp
        if len(self._parts) == 1:
            return self._parts[0], self._noises[0]
        return xp.concatenate(self._parts), None

    def _nothing(self) -> tuple[Any, Any]:
        """Values of zero paths."""
        simulation = self._simulation
        traits, n = simulation.problem.traits, simulation.saved.size
        array = simulation.placement.array
        if simulation.save == "all":
            return array(np.empty((0, traits.dimension, n))), array(np.empty((0, traits.noises, n)))
        return array(np.empty((0, traits.dimension) if simulation.save == "last" else (0,))), None


def _first_number(values: Any) -> np.ndarray:
    """The first component, at the last time, of each path; on the host."""
    rows = to_host(values)
    if rows.ndim == 3:
        rows = rows[:, :, -1]
    return rows.reshape(rows.shape[0], -1)[:, 0]
