"""The grid of a call: the points of the samples, their spacing, and where the operator starts."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpfracc._arrays import is_array, is_tracer, is_transformed, library_of, refuse_masked, to_host, tracks_gradient
from hpfracc._reading import count, number
from hpfracc._xp import namespace_of
from hpfracc.errors import InvalidInputError, ShapeError


@dataclass(frozen=True, slots=True)
class Grid:
    """The points at which samples were taken.

    Attributes
    ----------
    n : int
        Number of points.
    origin : float
        Where the operator starts: the first point.
    step : float or array, or None
        Spacing of a uniform grid (a scalar of the caller's library if it carries a gradient); None on any other.
    points : numpy.ndarray or None
        The points in float64, None if only a step was given.
    traced : array or None
        The caller's own points if they carry a gradient and are not uniform.
    note : str
        A remark on how the points were read, for the caller; may be empty.
    """

    n: int
    origin: float
    step: Any
    points: np.ndarray[Any, Any] | None = None
    traced: Any = None
    note: str = ""

    @property
    def uniform(self) -> bool:
        """Whether the points are equally spaced."""
        return self.step is not None

    def times(self) -> np.ndarray[Any, Any]:
        """The points, in float64."""
        if self.points is not None:
            return self.points
        if self.step is None or is_tracer(self.step):
            raise InvalidInputError(
                "step is being traced by jax, but this operator needs the points themselves; give step as a number"
            )
        return np.asarray(self.origin + np.arange(self.n) * float(to_host(self.step)))

    def known_times(self) -> np.ndarray[Any, Any] | None:
        """The points; None if the step is traced."""
        return None if self.points is None and is_transformed(self.step) else self.times()

    def reflected(self) -> Grid:
        """The same points as distances from the last one."""
        points = None if self.points is None else (self.points[-1] - self.points)[::-1]
        # An index array, because tensors do not support negative steps.
        last = np.arange(self.n - 1, -1, -1)
        traced = None if self.traced is None else (self.traced[-1] - self.traced)[last.tolist()]
        return Grid(self.n, 0.0, self.step, points, traced, self.note)

    def every_other(self) -> Grid:
        """The points 0, 2, 4, ..."""
        step = None if self.step is None else 2.0 * self.step
        points = None if self.points is None else self.points[::2]
        traced = None if self.traced is None else self.traced[::2]
        return Grid((self.n + 1) // 2, self.origin, step, points, traced, self.note)

    def require_uniform(self, who: str) -> Any:
        """The step, or an error that reports the range of the steps."""
        if self.step is None:
            assert self.points is not None
            steps = np.diff(self.points)
            raise InvalidInputError(
                f"{who} needs a uniform grid; the steps of t run from {steps.min():.6g} to {steps.max():.6g}: "
                "interpolate the samples onto np.linspace first"
            )
        return self.step


def read_grid(t: Any, step: Any, origin: Any, n: int, *, from_end: bool = False) -> Grid:
    """The grid of ``n`` samples, from points ``t`` or a ``step``.

    ``origin`` is where the operator starts: the first point or, with ``from_end``, the last.
    """
    start = None if origin is None else number("origin", origin)
    if (t is None) == (step is None):
        what = "both t and step" if t is not None else "neither t nor step"
        raise InvalidInputError(f"{what} given; the grid needs one of them: t, the points, or step, their spacing")
    if t is None:
        width = read_scalar("step", step, above=0.0)
        if start is None:
            start = (n - 1) * width if from_end and isinstance(width, float) else 0.0
        return Grid(n, start, width)
    if is_tracer(t):
        raise InvalidInputError(
            "t is being traced by jax, so that its points are unknown; give step= (it may be traced) instead"
        )
    kept = cached_grid(t) if start is None and not from_end else None
    if kept is not None and kept.n == n:
        return kept
    points = read_points(t)
    if points.ndim == 0:
        raise ShapeError(
            f"t={float(points):g} is a single number, and samples need their points or their step. If it is the order, "
            "it comes after the points: hf.caputo(samples, t, 0.5), or hf.caputo(samples, alpha=0.5, step=0.01)"
        )
    if points.ndim != 1:
        raise ShapeError(f"t has shape {points.shape}; samples need the points of one axis, as np.linspace gives them")
    if len(points) != n:
        raise ShapeError(
            f"t has {len(points)} points but f has {n} samples along its axis; the numbers must agree (see axis=)"
        )
    first, last = float(points[0]), float(points[-1])
    begin = last if from_end else first
    if start is not None and abs(start - begin) > 1e-12 * max(abs(start), abs(begin), last - first):
        what = f"end at t[-1]={begin:g}" if from_end else f"start at t[0]={begin:g}"
        raise InvalidInputError(
            f"origin={start:g} but the samples {what}: the memory in between is not known; "
            f"give samples {'up to' if from_end else 'from'} the origin{'' if from_end else ' on'}, or f as a callable"
        )
    step = uniform_step(points, rounding_of_points(t) * max(abs(first), abs(last)))
    tracked = library_of(t) in ("torch", "jax") and tracks_gradient(t)
    note = ""
    if step is None:
        require_increasing(points)
        rounded = None if tracked else rounded_step(points)
        if rounded is not None:
            step, note = rounded
    elif tracked:
        step = (t[-1] - t[0]) / (n - 1)
    grid = Grid(n, begin, step, points, t if step is None and tracked else None, note)
    if not from_end:
        _cache_grid(t, grid)
    return grid


#: Recent uniform grids given as points, by dtype, length, both ends and the middle; and limits of the cache.
_grids: dict[Any, tuple[Grid, bytes]] = {}
_MAX_GRIDS, _MAX_CACHED_POINTS, _MAX_CACHED_BYTES = 64, 2**20, 64 * 2**20
#: Grids given as points of other libraries, by identity: the points, a copy of them if they are mutable, the grid.
_array_grids: dict[int, tuple[weakref.ref[Any], Any, Grid]] = {}
_MAX_ARRAY_GRIDS = 8


def cached_grid(t: Any) -> Grid | None:
    """The uniform grid with these points, if it was read before; else None.

    The points are compared, because an array may have been changed in place since: one pass over them, on their own
    device. Only an immutable array of JAX's is recognised by its identity.
    """
    if type(t) is not np.ndarray:
        return _cached_by_identity(t)
    n = t.size
    if t.ndim != 1 or not n:
        return None
    grid, content = _grids.get((t.dtype, n, t.item(0), t.item(n // 2), t.item(-1)), (None, b""))
    return grid if grid is not None and content.startswith(t.data if t.flags.c_contiguous else t.tobytes()) else None


def _cached_by_identity(t: Any) -> Grid | None:
    found = _array_grids.get(id(t))
    if found is None:
        return None
    reference, copy, grid = found
    known = reference()
    if known is None or known is not t or tracks_gradient(t):
        return None
    if copy is not None and not (t.shape == copy.shape and bool((t == copy).all())):
        return None
    return grid


def _cache_grid(t: Any, grid: Grid) -> None:
    """Cache a uniform grid of at least two points, with an immutable copy of them."""
    n = grid.n
    if not isinstance(grid.step, float) or not 2 <= n <= _MAX_CACHED_POINTS:
        return
    if type(t) is not np.ndarray:
        _cache_by_identity(t, grid)
        return
    cached_points = sum(known.n for known, _ in list(_grids.values()))
    if len(_grids) >= _MAX_GRIDS or 8 * (n + cached_points) > _MAX_CACHED_BYTES:
        _grids.clear()
    content = t.tobytes()
    # In double precision one copy serves both purposes: an array over bytes is read-only.
    own = np.frombuffer(content, t.dtype)
    kept = replace(grid, points=own) if own.dtype == np.float64 else _with_own_points(grid)
    _grids[t.dtype, n, t.item(0), t.item(n // 2), t.item(-1)] = kept, content


def _cache_by_identity(t: Any, grid: Grid) -> None:
    library = library_of(t)
    if library not in ("torch", "jax", "cupy") or tracks_gradient(t):
        return
    if len(_array_grids) >= _MAX_ARRAY_GRIDS:
        _array_grids.clear()
    copy = None if library == "jax" else namespace_of(t).copy(t)
    _array_grids[id(t)] = weakref.ref(t), copy, _with_own_points(grid)


def _with_own_points(grid: Grid) -> Grid:
    points = np.array(grid.points)
    points.setflags(write=False)
    return replace(grid, points=points)


def rounding_of_points(t: Any) -> float:
    """The relative rounding error of the points as given."""
    single = is_array(t) and str(t.dtype).removeprefix("torch.") in ("float32", "float16", "bfloat16")
    return float(np.finfo("float32" if single else "float64").eps)


def read_points(t: Any) -> np.ndarray[Any, Any]:
    """Points in float64; refuses anything but real numbers."""
    refuse_masked(t, "t", "f")
    try:
        points = to_host(t)
        if points.dtype.kind not in "iuf":
            raise TypeError(f"dtype {points.dtype}")
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"t is not an array of real numbers ({error}); give points such as np.linspace(0, 1, 101), or dates as "
            "np.array(t, dtype='datetime64[us]')"
        ) from None
    points = points.astype(np.float64, copy=False)
    if points.size == 0:
        raise ShapeError("t has no points; give at least one")
    return points


def read_scalar(name: str, value: Any, *, least: float | None = None, above: float | None = None) -> Any:
    """A number within the limits, or a scalar of PyTorch's or JAX's, which may carry a gradient.

    The value of a scalar is checked where it is known and reading it does not make the host wait for a GPU.
    """
    if not is_array(value) or library_of(value) not in ("torch", "jax"):
        return number(name, value, least=least, above=above)
    if math.prod(value.shape) != 1:
        raise ShapeError(f"{name} has shape {tuple(value.shape)}; give one number")
    if "complex" in str(value.dtype):
        raise InvalidInputError(f"{name} has dtype {value.dtype}; use a real number")
    value = value.reshape(())
    known = None if getattr(value, "is_cuda", False) and tracks_gradient(value) else known_values(value)
    if known is not None:
        number(name, float(known), least=least, above=above)
    return value


def known_values(value: Any) -> np.ndarray[Any, Any] | None:
    """The values on the host; None if they are unknown: those of a JAX tracer, or of a tensor under ``vmap``.

    Other errors, such as those of a device, are raised.
    """
    try:
        return to_host(value)
    except (TypeError, RuntimeError):  # of JAX, and of PyTorch
        if is_transformed(value):
            return None
        raise


def uniform_step(points: np.ndarray[Any, Any], rounding: float) -> float | None:
    """The step of points that are equally spaced within their absolute ``rounding``, else None.

    ``linspace`` rounds each point once; a cumulative sum of steps drifts by up to n roundings. A drift of up to a
    thousandth of a step is accepted.
    """
    n = len(points)
    if n == 1:
        return 1.0  # a single point only defines the origin, and no rule needs the step
    first, last = float(points[0]), float(points[-1])
    step = (last - first) / (n - 1)
    if not (step > 0.0 and math.isfinite(step)):
        return None
    allowed = max(4.0 * rounding, min(n * rounding, 1e-3 * step))
    off = points - (first + np.arange(n) * step)
    return step if off.max() <= allowed and off.min() >= -allowed else None  # None also if a point is nan


#: Points that are uniform except for rounding: the fewest that are accepted as such, and the largest rounding relative
#: to the step (milliseconds at 60 Hz: 0.06).
_MIN_ROUNDED, _MAX_ROUNDED = 32, 0.1
#: Dates may be rounded to a fraction of a second and counted in minutes, hours or days.
_SECONDS = (1.0, 60.0, 3600.0, 86400.0)


def rounded_step(points: np.ndarray[Any, Any]) -> tuple[float, str] | None:
    """The step of increasing points that rounding to decimals has moved off a uniform grid, with a note; else None.

    For example timestamps at 60 Hz with three decimals: every point is a multiple of 0.001, and within that distance of
    the uniform grid. Whether the samples were taken at the rounded times or at the uniform ones is unknown.
    """
    n = len(points)
    if n < _MIN_ROUNDED:
        return None
    first = float(points[0])
    step = (float(points[-1]) - first) / (n - 1)
    most = _MAX_ROUNDED * step
    for stop in (_MIN_ROUNDED, n):  # most non-uniform grids are detected immediately
        off = float(np.abs(points[:stop] - (first + np.arange(stop) * step)).max())
        if not 0.0 < off <= most:
            return None
    for unit in _SECONDS:
        decimals = math.ceil(-math.log10(most * unit))
        while (quantum := 10.0**-decimals / unit) >= off * (1.0 - 1e-9):
            count = points * unit * 10.0**decimals if decimals >= 0 else points * unit / 10.0**-decimals
            if (np.abs(count - np.rint(count)) <= 1e-15 * np.abs(count) + 1e-9).all():
                return step, (
                    f"t is uniform but for its rounding to {quantum:.3g} (the largest deviation is {off:.2g}, "
                    f"{off / step:.1%} of a step) and is taken as uniform, with step {step:.10g}"
                )
            decimals += 1
    return None


def require_increasing(points: np.ndarray[Any, Any]) -> None:
    """Raise an error for points that are not finite, decrease or are repeated, and say where."""
    bad = np.flatnonzero(~np.isfinite(points))
    if bad.size:
        raise InvalidInputError(f"t[{bad[0]}] is {points[bad[0]]}; every point of the grid must be finite")
    steps = np.diff(points)
    wrong = np.flatnonzero(steps <= 0.0)
    if wrong.size:
        j = int(wrong[0])
        how = "is repeated" if steps[j] == 0.0 else "goes back"
        raise InvalidInputError(
            f"t must increase, but {how} at t[{j + 1}]={points[j + 1]:g} after t[{j}]={points[j]:g}; "
            "sort the points and drop repeated ones, with their samples"
        )


def graded_grid(end: float, n: int, exponent: float, *, origin: float = 0.0) -> np.ndarray[Any, Any]:
    r"""The points :math:`t_j = t_0 + (T - t_0) (j/n)^r`, j = 0 .. n.

    Parameters
    ----------
    end : float
        The last point T.
    n : int
        Number of steps, one less than the number of points.
    exponent : float
        r, at least 1 (uniform). For samples that start like :math:`t^s`, the Caputo derivative of order alpha below 1
        has its full order from ``r = (2 - alpha) / s`` on.
    origin : float
        The first point.

    Returns
    -------
    numpy.ndarray
        Shape ``(n + 1,)``, float64.

    See Also
    --------
    caputo, hpfracc.ml.graded_points

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> hf.graded_grid(1.0, 4, 2.0)
    array([0.    , 0.0625, 0.25  , 0.5625, 1.    ])
    >>> t = hf.graded_grid(1.0, 400, 3.0)
    >>> bool(abs(hf.caputo(np.sqrt(t), t, 0.5)[1:] - np.sqrt(np.pi) / 2)[200:].max() < 1e-4)
    True
    """
    last, start, power = number("end", end), number("origin", origin), number("exponent", exponent)
    n = count("n", n)
    if last <= start:
        raise InvalidInputError(f"end={last:g} does not lie beyond the origin {start:g}; give a larger one")
    if power < 1.0:
        raise InvalidInputError(f"exponent={power:g} would crowd the points at the end; use 1 (uniform) or more")
    points = start + (last - start) * np.linspace(0.0, 1.0, int(n) + 1) ** power
    if np.any(np.diff(points) <= 0.0):
        raise InvalidInputError(
            f"with exponent={power:g} and n={n} neighbouring points after the origin {start:g} coincide in double "
            "precision; use a smaller exponent, fewer steps, or an origin of 0"
        )
    return np.asarray(points)


#: Bisection steps that reduce any interval below the resolution of float64.
_HALVINGS = 64


def images_of(psi: Callable[[Any], Any], points: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The values of psi at points."""
    images = np.asarray(to_host(psi(points)))
    if images.shape != points.shape:
        raise ShapeError(
            f"psi returned shape {images.shape} for {len(points)} points; it must return one value per point: "
            "give np.vectorize(psi) if it takes single numbers only"
        )
    return images


def invert(
    psi: Callable[[Any], Any],
    inverse: Callable[[Any], Any] | None,
    images: np.ndarray[Any, Any],
    origin: float,
    end: float,
) -> np.ndarray[Any, Any]:
    """The points between the origin and the end at which psi has these values; by bisection without an inverse."""
    if inverse is not None:
        return np.asarray(to_host(inverse(images)), dtype=np.float64)
    # A single point at the origin gives an empty interval, which is widened as in the fit.
    low, high = np.zeros_like(images), np.full_like(images, end - origin or 1e-3)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        below = images_of(psi, origin + middle) < images
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(origin + 0.5 * (low + high))


def require_rising(images: np.ndarray[Any, Any], points: np.ndarray[Any, Any]) -> None:
    """Raise an error unless the values of psi at these points are real, finite and increase."""
    if images.dtype.kind not in "iuf":
        raise InvalidInputError(f"psi has values of dtype {images.dtype}; it must give real numbers")
    wrong = np.flatnonzero(~(np.diff(images) > 0.0) | ~np.isfinite(images[1:]))
    if wrong.size or not np.isfinite(images[:1]).all():
        j = int(wrong[0]) if wrong.size else 0
        later = min(j + 1, len(images) - 1)
        raise InvalidInputError(
            f"psi must be finite and increase, but is {images[j]:g} at t={points[j]:g} and {images[later]:g} at "
            f"t={points[later]:g}; use an increasing function such as np.log or np.sqrt"
        )
