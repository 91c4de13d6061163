"""Simulation in chunks of paths along their noise: saved values, memory, progress, and interrupts."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hpfracc._arrays import is_tracer, is_transformed, library_of, to_host, tracks_gradient
from hpfracc._interrupts import raise_interrupted
from hpfracc.errors import InvalidInputError, OutOfMemoryError, ShapeError
from hpfracc.solvers.sde.methods import PathMethod
from hpfracc.solvers.sde.methods.caputo_euler import count_rates
from hpfracc.solvers.sde.noise.process import GaussianNoise, Noise, plain_number, read_grid
from hpfracc.solvers.sde.noise.source import NEGLIGIBLE_BYTES, RandomSource
from hpfracc.solvers.sde.noise.stable import StableLevy
from hpfracc.solvers.sde.problem import NoisyProblem
from hpfracc.solvers.sde.result import MIN_REPORTS, FSDEResult, Moments, run_path_chunks
from hpfracc.solvers.sde.stepping import increments_of, prepare, step_along
from hpfracc.solvers.sde.stiffness import Divergence, find_divergence, refuse_infinite, warn_of_stiffness

#: Stream of the normal numbers of the second set; the processes use stream 0.
_APART = 1
#: Largest difference of a correlation matrix from its transpose, and of its diagonal from 1.
_ROUNDING = 1e-10


def refuse_antithetic(noise: Noise) -> None:
    """Raise an error for noise whose law is not symmetric."""
    if not (isinstance(noise, GaussianNoise) or (isinstance(noise, StableLevy) and not noise.beta)):
        raise InvalidInputError(f"antithetic=True with {noise!r}, whose law is not symmetric; omit it")


def read_correlation(correlation: Any, noise: Noise, noises: int, source: RandomSource) -> Any:
    """Check a correlation matrix C; returns the lower triangular factor L with ``L L^T = C``.

    Raises
    ------
    InvalidInputError
        If it is not symmetric, has no unit diagonal, or is not positive definite.
    """
    if correlation is None:
        return None
    if not isinstance(noise, GaussianNoise):
        raise InvalidInputError(f"correlation= with {noise!r}, which has no finite variance; mix it in the diffusion")
    try:
        matrix = source.array(correlation)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(f"correlation={correlation!r}: give a matrix of numbers") from None
    if tuple(matrix.shape) != (noises, noises):
        raise ShapeError(
            f"correlation has shape {tuple(matrix.shape)} for {noises} driving noises; give ({noises}, {noises})"
        )
    if not is_tracer(matrix):
        _check_correlation(matrix)
    return source.xp.module.linalg.cholesky(matrix)


def _check_correlation(matrix: Any) -> None:
    values = to_host(matrix).astype(np.float64)
    rounding = _ROUNDING if str(matrix.dtype).endswith("64") else 1e-6
    if not np.all(np.isfinite(values)):
        raise InvalidInputError("correlation has values that are not finite; give finite numbers")
    off = np.abs(values - values.T)
    if off.max() > rounding:
        i, j = np.unravel_index(int(off.argmax()), values.shape)
        raise InvalidInputError(
            f"correlation is not symmetric: entries ({i}, {j}) and ({j}, {i}) are {values[i, j]:.6g} and "
            f"{values[j, i]:.6g}; use (C + C.T) / 2"
        )
    if np.max(np.abs(np.diag(values) - 1.0)) > rounding:
        raise InvalidInputError(
            f"correlation has the diagonal {np.diag(values)}, which is not 1; divide a covariance matrix by the "
            "standard deviations, and give these in the diffusion"
        )
    least = float(np.linalg.eigvalsh(values)[0])
    if least <= rounding:
        raise InvalidInputError(
            f"correlation is not positive definite: its smallest eigenvalue is {least:.6g}; use the nearest matrix "
            "that is, or fewer noises if one determines another"
        )


@dataclass(frozen=True, slots=True)
class Driving:
    """The driving noise of an equation.

    Attributes
    ----------
    noise : Noise
        Process of one component.
    times : ndarray, shape (n,)
        Uniform times from 0 on.
    noises, sets : int
        Number of components, and of independent processes per component.
    factor : array, shape (m, m), or None
        Factor of the correlation matrix.
    antithetic : bool
        Whether every second path has the negative noise of the one before.
    apart : bool
        Whether the second set has independent normal increments of variance 1, for any process of the first.
    every : int
        The paths are drawn at ``times``; every one in this number is used.
    """

    noise: Noise
    times: np.ndarray
    noises: int
    sets: int
    factor: Any
    antithetic: bool
    apart: bool = False
    every: int = 1

    def paths(self, source: RandomSource, low: int, high: int) -> Any:
        """The paths ``low`` to ``high``, shape ``(paths, sets * m, (n - 1) / every + 1)``."""
        share, number = 2 if self.antithetic else 1, self.sets * self.noises
        drawn = self.noises if self.apart else number
        xp = source.xp
        count = (high - low) // share
        first = (source.first + low) // share * drawn
        own = dataclasses.replace(source, first=first)
        found = self.noise._sample(own, read_grid(self.times), count * drawn)
        found = xp.astype(found, source.dtype).reshape(count, drawn, self.times.size)
        if self.apart:
            normals = own.numbers(0, count * drawn, self.times.size - 1, stream=_APART).cumsum(-1) / self.every**0.5
            normals = xp.concatenate([xp.zeros_like(normals[:, :1]), normals], -1)
            found = xp.concatenate([found, normals.reshape(found.shape)], 1)
        if self.every > 1:
            found = found[..., :: self.every]
        if self.factor is not None:
            # Each set on its own.
            sets = found.reshape(count, self.sets, self.noises, found.shape[-1])
            found = xp.matmul(self.factor, sets).reshape(found.shape)
        if not self.antithetic:
            return found
        return xp.stack([found, -found], 1).reshape(high - low, number, found.shape[-1])


#: Bytes of all arrays of a chunk: small enough for the caches of a core, and large enough for a GPU.
_CHUNK_ON_HOST, _CHUNK_ON_GPU = 1 << 25, 1 << 33
#: Maximum fraction of free memory for a chunk.
_CHUNK_SHARE = 0.25
#: Number of arrays of a chunk with all times of all paths: noise, its increments, the states, and copies.
_FULL_ARRAYS = 3


class Forecast(NamedTuple):
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
    driving, source
        The noise, and its random numbers, with library, device and precision of the state.
    count : int
        Number of paths.
    save : str or callable
        What is saved of a path.
    moments : bool
        Whether only the mean and the standard error are stored.
    places : ndarray of int, optional
        Indices of the saved times; all by default.
    jumps : dict
        The times at which the functions jump, by the index of the step that begins there.
    """

    problem: NoisyProblem
    method: PathMethod
    alpha: Any
    t: np.ndarray
    h: float
    start: Any
    driving: Driving
    source: RandomSource
    count: int
    save: str | Callable[[Any, Any], Any]
    moments: bool
    progress: bool | Callable[..., Any]
    places: np.ndarray | None
    jumps: dict[int, float]

    @property
    def saved(self) -> np.ndarray:
        """Times of the result."""
        return self.t if self.places is None else self.t[self.places]

    @property
    def begins(self) -> np.ndarray:
        """The times that the steps begin at; beside a jump, moved by some roundings to the side of the step."""
        begins, single = self.t.copy(), self.source.library == "jax" and self.source.dtype == "float32"
        apart = 8.0 * float(np.finfo(np.float32 if single else np.float64).eps) * float(np.abs(self.t).max())
        for index, jump in self.jumps.items():
            begins[index - 1] = min(begins[index - 1], jump - self.h) - apart
            begins[index] = max(begins[index], jump) + apart
        return begins

    @property
    def traced(self) -> bool:
        """Whether values are traced or differentiable. Then all paths are one chunk."""
        values = (self.start, self.problem.constant, self.alpha, self.driving.factor, self.source.key)
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
        times = {"all": self.saved.size * (traits.dimension + traits.noises), "last": traits.dimension}
        # The size of values of a function is known after the first chunk.
        kept = 0 if self.moments or callable(self.save) else item * self.count * times[self.save]
        least = 2 if self.driving.antithetic else 1
        rows = self.count
        if not (self.traced or (self.source.library != "numpy" and self.save == "all")):
            size = _CHUNK_ON_HOST if self.source.device == "cpu" else _CHUNK_ON_GPU
            if size > NEGLIGIBLE_BYTES and (free := self.source.free_bytes()) is not None:
                size = min(size, int(_CHUNK_SHARE * free))
            rows = min(rows, size // row)
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
        free = self.source.free_bytes() if need >= NEGLIGIBLE_BYTES else None
        if free is None or need <= free:
            return
        what = "one chunk" if forecast.chunks > 1 else "all paths at once"
        raise OutOfMemoryError(
            f"solve_fsde: {self.count:,} paths of {self.t.size:,} times need {kept_bytes:,} bytes for the result and "
            f"{forecast.chunk_bytes:,} for {what}, and {free:,} are free; give save= a function of the paths, or "
            "keep='moments', which need little memory, use fewer paths, or save='last'"
        )

    def run(self) -> FSDEResult:
        """Simulate all paths; after Ctrl-C raise those that were finished."""
        begun = time.perf_counter()
        forecast = self.forecast()
        self.check_memory(forecast, forecast.kept_bytes)
        kept = _SavedValues(self, forecast)

        def chunk(low: int, high: int) -> tuple[float, float] | None:
            kept.add(*self._chunk(low, high, forecast.rows), high)
            return kept.summary() if self.progress else None

        run_path_chunks(self.count, forecast.rows, chunk, self.progress, self.method.name)
        messages = []
        if kept.done < self.count:
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
        told: tuple[Any, ...] = not messages, " ".join(messages) or "All paths were finished.", stats, kept.moments
        found = FSDEResult(self.saved, *kept.joined(), self.method.name, kept.done, self.driving.antithetic, *told)
        if kept.done < self.count:
            raise_interrupted(found.message, found)
        return found

    def _chunk(self, low: int, high: int, rows: int) -> tuple[Any, Any, Divergence | None]:
        """Saved values of the paths ``low`` to ``high``, their noise, and the number of them that diverged."""
        # JAX compiles for one shape: the last chunk is as long as the others, and truncated.
        drawn = low + rows if self.source.library == "jax" else high
        xp, begin = self.source.xp, self.start if self.start.shape[0] == 1 else self.start[low:high]
        more = xp.module.broadcast_to(begin[-1:], (drawn - low - begin.shape[0], begin.shape[1]))
        begin = xp.concatenate([begin, more]) if more.shape[0] else begin
        driving = self.driving.paths(self.source, low, drawn)
        steps = prepare(self.problem, self.method, self.alpha, self.begins, self.h, begin, self._hurst)
        y = self._masked(step_along(steps, increments_of(xp, driving), keep=self.save != "last"))
        if drawn > high:
            y, driving, begin = y[: high - low], driving[: high - low], begin[: high - low]
        refuse_infinite(self.t, y)
        diverged = None
        if not self.method.implicit:
            order = _number(self.alpha)
            diverged = find_divergence(self.problem, order, self.t, self.h, begin, y, driving)
            if low == 0:
                warn_of_stiffness(self.problem, order, self.t, self.h, y)
        if callable(self.save):
            values = np.asarray(self.save(self.t, y)) if library_of(y) == "numpy" else self.save(self.t, y)
            shape = tuple(getattr(values, "shape", ()))
            if shape[:1] != (y.shape[0],):
                raise ShapeError(f"save returned shape {shape} for {y.shape[0]:,} paths; return one row for each path")
            return values, None, diverged
        if self.save == "last":
            return y, None, diverged
        noise = driving[:, : self.problem.traits.noises, :: self.method.parts(self.problem.traits, self.t.size - 1)]
        saved = slice(None) if self.places is None else self.places
        return y[..., saved], noise[..., saved], diverged

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
        return self.source.xp.where(self._hurst > lowest, y, float("nan"))


def _number(alpha: Any) -> float:
    return 1.0 if is_transformed(alpha) else plain_number(alpha)


class _SavedValues:
    """Saved values of the paths so far."""

    def __init__(self, simulation: Simulation, forecast: Forecast) -> None:
        self._simulation, self._forecast = simulation, forecast
        #: Values and noise of each chunk; in NumPy those of all paths, so that nothing is held twice.
        self._parts: list[tuple[Any, Any]] = []
        self._summary = Moments()
        self.moments = Moments() if simulation.moments else None
        self.diverged: Divergence | None = None
        self.done = 0

    def add(self, values: Any, noise: Any, diverged: Divergence | None, high: int) -> None:
        """Add the values of the paths up to ``high``."""
        simulation = self._simulation
        antithetic = simulation.driving.antithetic
        if self.moments is not None:
            self.moments.add(values, antithetic)
        elif simulation.source.library == "numpy":
            if not self._parts:
                if callable(simulation.save):
                    size = values.nbytes // values.shape[0] * simulation.count
                    simulation.check_memory(self._forecast, size)
                whole = np.empty((simulation.count, *values.shape[1:]), values.dtype)
                self._parts = [(whole, None if noise is None else np.empty((simulation.count, *noise.shape[1:])))]
            for all_paths, part in zip(self._parts[0], (values, noise), strict=True):
                if part is not None:
                    all_paths[self.done : high] = part
        else:
            self._parts.append((values, noise))
        if simulation.progress and not is_transformed(values):
            rows = to_host(values)
            rows = rows[:, :, -1] if rows.ndim == 3 else rows
            self._summary.add(rows.reshape(rows.shape[0], -1)[:, 0], antithetic)
        if diverged is not None:
            self.diverged = diverged if self.diverged is None else self.diverged.joined(diverged)
        self.done = high

    def summary(self) -> tuple[float, float]:
        """Mean and standard error of the first saved number of each path; nan for traced values."""
        found = self._summary
        return (float(found.mean), float(found.standard_error)) if found.count else (math.nan, math.nan)

    def joined(self) -> tuple[Any, Any]:
        """All values and noises."""
        if self.moments is not None:
            return None, None
        simulation = self._simulation
        if len(self._parts) > 1:
            return simulation.source.xp.concatenate([values for values, _ in self._parts]), None
        if self._parts:
            values, noise = self._parts[0]
            return values[: self.done], None if noise is None else noise[: self.done]
        traits, array = simulation.problem.traits, simulation.source.array
        shape = {"all": (traits.dimension, simulation.saved.size), "last": (traits.dimension,)}
        values = array(np.empty((0, *(() if callable(simulation.save) else shape[simulation.save]))))
        return values, array(np.empty((0, traits.noises, simulation.saved.size))) if simulation.save == "all" else None
