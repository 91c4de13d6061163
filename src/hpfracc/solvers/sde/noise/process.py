"""Base classes of random processes, and common methods of Gaussian ones."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import linalg

from hpfracc import _reading
from hpfracc._arrays import is_tracer, library_of, to_host, tracks_gradient
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.solvers.sde.noise.source import RandomSource, make_source, read_size

#: Maximum size of covariance matrices that are factorised: 4,096 points take 130 MiB and a second.
MAX_POINTS = 4096


@dataclass(frozen=True, slots=True)
class TimeGrid:
    """Times on the host; ``step`` is that of a uniform grid from 0 on, otherwise None."""

    times: np.ndarray
    step: float | None

    @property
    def steps(self) -> int:
        """Number of steps."""
        return int(self.times.size) - 1


def read_grid(t: Any, name: str = "t", *, first: float = 0.0) -> TimeGrid:
    """Check times: one axis, finite, increasing, not before ``first``."""
    if is_tracer(t):
        raise InvalidInputError(
            f"{name} is traced, and the times must be known; create them outside the traced function"
        )
    try:
        times = np.array(to_host(t), dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(f"{name}={_reading.shown(t)}: give an array of times") from None
    if times.ndim != 1 or not times.size:
        raise ShapeError(f"{name} has shape {times.shape}; give the times along one axis, at least one")
    if not np.all(np.isfinite(times)) or times[0] < first or np.any(np.diff(times) <= 0):
        raise InvalidInputError(f"{name} must be finite, increasing, and not start before {first:g}")
    step = None
    if times.size > 1 and times[0] == 0:
        guess = float(times[-1]) / (times.size - 1)
        # Up to rounding of the times, or of decimal times.
        if np.allclose(times, guess * np.arange(times.size), rtol=rounding_of_times(t), atol=1e-9 * guess):
            step = guess
    return TimeGrid(times, step)


def rounding_of_times(*given: Any) -> float:
    """Relative differences that are rounding: those of single precision if some numbers or arrays are of it."""
    each = (one for value in given for one in (value if isinstance(value, tuple | list) else (value,)))
    single = any(str(getattr(one, "dtype", "")).endswith("float32") for one in each)
    return 4.0 * float(np.finfo(np.float32).eps) if single else 1e-12


def read_parameter(name: str, value: Any) -> tuple[Any, float | None]:
    """One number: a float, or a scalar of PyTorch or JAX as it is; and its value, or None if it is traced."""
    if library_of(value) not in ("torch", "jax"):
        number = _reading.number(name, value, infinite=True)
        return number, number
    if tuple(value.shape) != ():
        raise ShapeError(f"{name} has shape {tuple(value.shape)}; give one number, and call once for each")
    return value, None if is_tracer(value) else plain_number(value)


def read_hurst(hurst: Any) -> Any:
    """Check 0 < H < 1; a scalar array of PyTorch or JAX may have a gradient."""
    found, value = read_parameter("H", hurst)
    if value is not None and not 0.0 < value < 1.0:
        raise InvalidInputError(f"H={value}: the Hurst index lies strictly between 0 and 1; 0.5 is Brownian motion")
    return found


def plain_number(value: Any) -> float:
    """H, a scalar of any library, as a number."""
    if is_tracer(value):
        raise InvalidInputError("H is traced, and its value is needed; call this outside the traced function")
    return float(value.detach()) if library_of(value) == "torch" else float(value)


def read_fields(law: Any, *names: str, above: float | None = 0.0, **limits: Any) -> None:
    """Read the named fields of a frozen dataclass as finite numbers within limits, positive by default."""
    for name in names:
        object.__setattr__(law, name, _reading.number(name, getattr(law, name), above=above, **limits))


class Noise(ABC):
    """A random process that can be sampled at given times."""

    def sample(
        self,
        t: Any,
        size: int | tuple[int, ...] = (),
        rng: Any = None,
        *,
        key: Any = None,
        first_path: int = 0,
        dtype: Any = None,
    ) -> Any:
        r"""Values at the times ``t``.

        Parameters
        ----------
        t : array_like, shape (n,)
            Increasing times from 0 on. With an array of PyTorch, JAX or CuPy the paths are of that library, on its
            device.
        size : int or tuple of int
            Shape of the batch of paths.
        rng : int, numpy.random.Generator, numpy.random.SeedSequence or torch.Generator, optional
            A seed gives the same paths each time, for any ``size`` up to rounding; a generator gives new ones. With a
            ``torch.Generator`` the paths are tensors on its device.
        key : jax key, optional
            JAX key; the paths are JAX arrays. May be traced.
        first_path : int
            Number of the first path: with the same seed, ``size=10, first_path=10`` continues ``size=10``.
        dtype : str, optional
            ``"float64"`` or ``"float32"``.

        Returns
        -------
        array, shape (\*size, n)
        """
        grid = read_grid(t)
        shape = read_size(size)
        count = math.prod(shape)
        source = make_source(rng, key, t, *self._parameters(), dtype=dtype, first_path=first_path, count=count)
        source.check_room(f"{type(self).__name__}.sample", count, grid.times.size)
        return self._sample(source, grid, count).reshape(*shape, *self._components, grid.times.size)

    @abstractmethod
    def _sample(self, source: RandomSource, grid: TimeGrid, count: int) -> Any:
        """``count`` paths at the times of the grid, shape ``(count, n)``."""

    @property
    def _components(self) -> tuple[int, ...]:
        """Axes of a path before that of the time."""
        return ()

    def _parameters(self) -> tuple[Any, ...]:
        """Parameters that may be arrays, which determine the library of the paths."""
        return ()

    def covariance(self, s: Any, t: Any) -> np.ndarray:
        """Covariance of ``X_s`` and ``X_t``, for arrays that broadcast; an error if it is infinite or unknown."""
        raise InvalidInputError(f"the covariance of {self!r} is not known in closed form; estimate it from a sample")

    def refine(self, path: Any, t: Any, factor: int = 2, rng: Any = None, *, first_path: int = 0) -> Any:
        """Points between those of a path, from the law of the process given the path.

        For Gaussian processes, a path is drawn on the fine grid and corrected by kriging on the given one, so the fine
        and the coarse path have exactly the joint law of the process. For symmetric stable motion with an index of at
        least 0.3, increments are divided by rejection sampling from products of stable densities, which are computed to
        a relative accuracy of about 1e-8: a jump remains a jump, and falls into one of the parts. Other processes have
        no bridge here.

        Parameters
        ----------
        path : array_like, shape (..., n)
            Values at the times ``t``; points are drawn on the host.
        t : array_like, shape (n,)
            Increasing times.
        factor : int
            Number of parts of each step.
        rng, first_path
            As in :meth:`sample`. The random numbers differ from those of :meth:`sample` with the same seed.

        Returns
        -------
        times : ndarray, shape (factor * (n - 1) + 1,)
        path : array, shape (..., factor * (n - 1) + 1)
            In the library and on the device of the given path, and equal to it at every ``factor``-th point.
        """
        if self._no_bridge is not None:
            raise InvalidInputError(
                f"there is no bridge for {self!r}: {self._no_bridge}; sample it on the fine grid and take a subset"
            )
        grid = read_grid(t)
        if tracks_gradient(path):
            raise InvalidInputError("refined paths are not differentiable; give path.detach()")
        coarse = np.asarray(to_host(path), dtype=np.float64)
        if coarse.ndim < 1 or coarse.shape[-1] != grid.times.size:
            raise ShapeError(f"path has shape {coarse.shape} for {grid.times.size:,} times; time is the last axis")
        parts = _reading.whole("factor", factor, least=1)
        between = grid.times[:-1, None] + np.diff(grid.times)[:, None] * (np.arange(parts) / parts)
        fine = read_grid(np.append(between.ravel(), grid.times[-1]))
        rows = coarse.reshape(-1, grid.times.size)
        source = make_source(rng, None, path, first_path=first_path, count=rows.shape[0])
        result = self._refine(source.on_host(), rows, grid, fine, parts)
        result[:, ::parts] = rows
        return fine.times, source.array(result.reshape(*coarse.shape[:-1], fine.times.size))

    #: Why there is no bridge, or None.
    _no_bridge: ClassVar[str | None] = "its law between two points is not known here"

    def _refine(self, source: RandomSource, rows: np.ndarray, grid: TimeGrid, fine: TimeGrid, parts: int) -> np.ndarray:
        """The rows at the finer times; those at the given ones are replaced by the given values."""
        raise NotImplementedError


class LevyNoise(Noise):
    """A process with independent, stationary increments, from 0 on."""

    def covariance(self, s: Any, t: Any) -> np.ndarray:
        """The variance at time 1 times the earlier time, for arrays that broadcast."""
        return np.asarray(self._finite_moments(self)[1] * ordered_times(s, t)[0])

    def _finite_moments(self, process: Noise) -> tuple[float, float]:
        """Mean and variance at time 1; an error that names ``process`` if the variance is infinite."""
        moments = self._moments()
        if moments is None:
            raise InvalidInputError(
                f"{process!r} has no finite covariance; compare quantiles or characteristic functions"
            )
        return moments

    def _moments(self) -> tuple[float, float] | None:
        """Mean and variance at time 1; None if the variance is infinite."""
        return None

    @abstractmethod
    def _increments(self, source: RandomSource, steps: np.ndarray, count: int, stream: int = 0) -> Any:
        """Increments of ``count`` paths over ``steps``, shape ``(n,)``, or one row for each path."""

    def _sample(self, source: RandomSource, grid: TimeGrid, count: int) -> Any:
        steps = np.diff(grid.times, prepend=0.0)
        return source.in_chunks(
            count, 8 * steps.size, lambda part, rows: self._increments(part, steps, rows).cumsum(-1)
        )


class GaussianNoise(Noise):
    """A Gaussian process with mean 0, determined by its covariance."""

    @abstractmethod
    def covariance(self, s: Any, t: Any) -> np.ndarray:
        """``E X_s X_t``, for arrays that broadcast."""

    def _sample(self, source: RandomSource, grid: TimeGrid, count: int) -> Any:
        return self._by_cholesky(source, grid, count)

    def _by_cholesky(self, source: RandomSource, grid: TimeGrid, count: int, stream: int = 0) -> Any:
        """Exact on any grid, by the factor of the covariance matrix."""
        times = grid.times
        random = self.covariance(times, times) > 0  # without the start of a process that is 0 there
        if np.count_nonzero(random) > MAX_POINTS:
            raise InvalidInputError(
                f"{times.size:,} times that are not uniform from 0 on need a matrix of that size; use at most "
                f"{MAX_POINTS:,}, or a uniform grid"
            )
        factor = np.zeros((times.size, int(np.count_nonzero(random))))
        factor[random] = self._factor(times[random])
        return source.numbers(0, count, factor.shape[1], stream=stream) @ source.array(factor.T)

    def _factor(self, times: np.ndarray) -> np.ndarray:
        matrix = self.covariance(times[:, None], times[None, :])
        try:
            return np.asarray(linalg.cholesky(matrix, lower=True))
        except linalg.LinAlgError:
            raise InvalidInputError(
                f"the covariance matrix of {self!r} at these {times.size:,} times is not positive definite in double "
                "precision; some times are too close together: use fewer"
            ) from None

    _no_bridge = None

    def _refine(self, source: RandomSource, rows: np.ndarray, grid: TimeGrid, fine: TimeGrid, parts: int) -> np.ndarray:
        drawn: np.ndarray = self._by_cholesky(source, fine, rows.shape[0], stream_of(fine))
        kept = self.covariance(grid.times, grid.times) > 0
        times = grid.times[kept]
        given = linalg.cho_factor(self.covariance(times[:, None], times[None, :]), lower=True)
        gain = linalg.cho_solve(given, self.covariance(times[:, None], fine.times[None, :]))
        return np.asarray(drawn + (rows - drawn[:, ::parts])[:, kept] @ gain)


def ordered_times(s: Any, t: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The earlier and the later time of a covariance, and their ratio (0 if both are 0), in the broadcast shape."""
    one, two = np.broadcast_arrays(np.asarray(s, float), np.asarray(t, float))
    if not (np.all(one >= 0.0) and np.all(two >= 0.0)):
        raise InvalidInputError("a time of the covariance is negative or nan; use times from 0 on")
    low, high = np.minimum(one, two), np.maximum(one, two)
    return low, high, np.divide(low, high, out=np.zeros_like(high), where=high > 0.0)


def stream_of(fine: TimeGrid) -> int:
    """The stream of refinements to this number of points, so that levels of refinement are independent."""
    return 2**32 + int(fine.times.size)
