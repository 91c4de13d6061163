"""Brownian motion, fractional Brownian motion of Mandelbrot and van Ness, and the Riemann-Liouville (Volterra) process.

On long uniform grids the Riemann-Liouville process is sampled by the hybrid scheme with one exact cell [1]: the
integral over the newest step is drawn jointly with the increment of the Brownian motion; on older steps the kernel is
replaced by its mean.

References
----------
1. M. Bennedsen, A. Lunde, M. S. Pakkanen, "Hybrid scheme for Brownian semistationary processes", Finance Stoch. 21,
   2017.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, Unpack, final, overload

import numpy as np
from numpy.typing import NDArray
from scipy import fft, special

from hpfracc import _reading
from hpfracc._arrays import library_of, tracks_gradient
from hpfracc._choices import OrderNumber
from hpfracc._xp import NUMPY, namespace_of, of_variables
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.noise import circulant
from hpfracc.solvers.sde.noise.circulant import HoskingStream, autocovariance, kept_weights, noise_weights
from hpfracc.solvers.sde.noise.process import (
    MAX_POINTS,
    GaussianNoise,
    LevyNoise,
    TimeGrid,
    ordered_times,
    plain_number,
    read_hurst,
    stream_of,
)
from hpfracc.solvers.sde.noise.source import RandomSource, first_normals, make_source, read_size

#: Numbers stored per step in addition to the paths: eigenvalues, normal numbers and their transform.
_NUMBERS_A_STEP = 12
#: Number of steps above which free memory is checked.
_LONG = 1 << 20


@final
@dataclass(frozen=True)
class FractionalBrownian(GaussianNoise):
    r"""Fractional Brownian motion with Hurst index H.

    ``kind="fbm"`` is the process of Mandelbrot and van Ness, with stationary increments [1],

    .. math:: E\,B_s B_t = \tfrac12 \left(s^{2H} + t^{2H} - |t - s|^{2H}\right);

    ``kind="volterra"`` is the Riemann-Liouville process, whose increments are not stationary,

    .. math:: Y_t = \sqrt{2H} \int_0^t (t-s)^{H-1/2}\,dW_s, \qquad E\,Y_s Y_t =
        \frac{2H}{H+\frac12}\,s^{H+1/2}\,t^{H-1/2}\,{}_2F_1\!\left(\tfrac12-H, 1; H+\tfrac32; \tfrac{s}{t}\right),
        \quad s < t.

    Both have the variance :math:`t^{2H}` and are Brownian motion at H = 1/2; otherwise they are different processes.

    Parameters
    ----------
    H : float, or a scalar of PyTorch or JAX
        Between 0 and 1. With a tensor or JAX array the paths are of its library and differentiable in H (for
        ``kind="fbm"`` on uniform grids).
    kind : {"fbm", "volterra"}
        The process.

    Notes
    -----
    On uniform grids from 0 on ``"fbm"`` is drawn exactly by circulant embedding, in O(n log n). On other grids, and for
    ``"volterra"``, the covariance matrix is factorised, which is exact, up to 4,096 points. Longer Volterra paths on
    uniform grids are drawn by the hybrid scheme [2], whose variance has an error of at most 4e-4 of that at the last
    time.

    References
    ----------
    1. B. B. Mandelbrot, J. W. van Ness, "Fractional Brownian motions, fractional noises and applications", SIAM
       Rev. 10, 1968.
    2. M. Bennedsen, A. Lunde, M. S. Pakkanen, "Hybrid scheme for Brownian semistationary processes", Finance Stoch.
       21, 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from hpfracc import noise
    >>> rough = noise.FractionalBrownian(0.1)
    >>> rough.sample(np.linspace(0, 1, 101), size=(2, 3), rng=7).shape
    (2, 3, 101)
    >>> bool(np.isclose(rough.covariance(1.0, 1.0), 1.0))
    True
    """

    H: Any
    kind: Literal["fbm", "volterra"] = "fbm"

    def __post_init__(self) -> None:
        object.__setattr__(self, "H", read_hurst(self.H))
        # Stationary increments, or the Riemann-Liouville integral.
        _reading.choice("kind", self.kind, ("fbm", "volterra"))

    def _parameters(self) -> tuple[Any, ...]:
        return (self.H,)

    def covariance(self, s: Any, t: Any) -> np.ndarray:
        """``E X_s X_t``, for arrays that broadcast."""
        hurst = plain_number(self.H)
        low, high, ratio = ordered_times(s, t)
        if self.kind == "fbm":
            return np.asarray(0.5 * (low ** (2 * hurst) + high ** (2 * hurst) - (high - low) ** (2 * hurst)))
        factor = 2 * hurst / (hurst + 0.5) * special.hyp2f1(0.5 - hurst, 1.0, hurst + 1.5, ratio)
        return np.asarray(factor * ratio ** (hurst + 0.5) * high ** (2 * hurst))

    def stream(
        self, step: float = 1.0, size: int | tuple[int, ...] = (), rng: Any = None, *, first_path: int = 0
    ) -> HoskingStream:
        """Paths that can be continued at any time, in steps of ``step``, exactly (``kind="fbm"``).

        Parameters
        ----------
        step : float
            Time between values.
        size, rng, first_path
            As in :meth:`sample`. The random numbers differ from those of :meth:`sample` with the same seed.

        Returns
        -------
        HoskingStream
            ``.draw(count)`` returns the next values, at O(n) each.

        Examples
        --------
        >>> from hpfracc import noise
        >>> path = noise.FractionalBrownian(0.3).stream(0.01, rng=1)
        >>> path.draw(100).shape, path.draw(5).shape
        ((100,), (5,))
        """
        if self.kind == "volterra":
            raise InvalidInputError("the steps of the Volterra kind are not stationary; sample it on a grid instead")
        width, shape = _reading.number("step", step, above=0), read_size(size)
        source = make_source(rng, None, dtype="float64", first_path=first_path, count=math.prod(shape))
        return HoskingStream(plain_number(self.H), width, shape, source)

    def _sample(self, source: RandomSource, grid: TimeGrid, count: int) -> Any:
        if grid.step is None or (self.kind == "volterra" and grid.steps <= MAX_POINTS):
            if library_of(self.H) == "jax" or tracks_gradient(self.H):
                raise InvalidInputError(
                    "paths are differentiable in H for kind='fbm' on uniform grids from 0 on; give H as a number here"
                )
            return self._by_cholesky(source, grid, count)
        if self.kind == "volterra":
            return sample_hybrid(source, plain_number(self.H), grid.steps, grid.step, count)
        return _sums(source, self.H, grid.steps, grid.step, count)

    def _refine(self, source: RandomSource, rows: np.ndarray, grid: TimeGrid, fine: TimeGrid, parts: int) -> np.ndarray:
        """On uniform grids by kriging of the steps, whose covariances are Toeplitz matrices."""
        if self.kind == "volterra" or grid.step is None or fine.step is None:
            return super()._refine(source, rows, grid, fine, parts)
        hurst, n = plain_number(self.H), fine.steps
        drawn = circulant.sample(source, kept_weights(hurst, n, 1.0), n, rows.shape[0], stream=stream_of(fine))
        given = np.diff(rows) / fine.step**hurst
        error = given - drawn.reshape(rows.shape[0], grid.steps, parts).sum(-1)
        coarse = autocovariance(hurst, grid.steps)[:-1] * parts ** (2 * hurst)
        gain = np.repeat(circulant.solve(coarse, error), parts, axis=-1)
        drawn += circulant.multiply(circulant.eigenvalues(autocovariance(hurst, n)), gain)
        result = np.zeros((rows.shape[0], n + 1))
        np.cumsum(drawn * fine.step**hurst, -1, out=result[:, 1:])
        # Rounding errors of the sums and of the solution, spread over each step.
        return _pinned(result, rows, parts)


def _pinned(fine: np.ndarray, rows: np.ndarray, parts: int) -> np.ndarray:
    """Add to the fine rows what they differ from the given ones, linearly between the given times."""
    off = rows - fine[:, ::parts]
    between = off[:, :-1, None] + np.diff(off)[:, :, None] * (np.arange(parts) / parts)
    fine[:, :-1] += between.reshape(rows.shape[0], -1)
    return fine


def _sums(source: RandomSource, hurst: Any, n: int, step: Any, count: int, *, sums: bool = True) -> Any:
    """Fractional Gaussian noise of ``n`` steps, or its sums, scaled to the step."""
    xp, plain = namespace_of(hurst), library_of(step) == "python"
    if xp.library == "numpy":
        weights = kept_weights(float(hurst), n, float(step) if plain else 1.0)
    else:
        plain = False
        with xp.scope():
            weights = of_variables(xp, lambda h: noise_weights(xp, h, n))(xp.array(hurst))
    paths = circulant.sample(source, weights, n, count, sums=sums)
    return paths if plain else paths * step**hurst


@_reading.corrects_keywords
def fgn(
    n: int,
    H: Any,
    *,
    step: Any = 1.0,
    size: int | tuple[int, ...] = (),
    rng: Any = None,
    key: Any = None,
    first_path: int = 0,
    dtype: Any = None,
    method: str = "auto",
) -> Any:
    r"""Fractional Gaussian noise: the increments of fractional Brownian motion, drawn exactly.

    .. math:: E\,x_j x_{j+k} = \tfrac12 h^{2H} \left(|k+1|^{2H} - 2|k|^{2H} + |k-1|^{2H}\right).

    Parameters
    ----------
    n : int
        Number of increments.
    H : float, or a scalar of PyTorch or JAX
        Hurst index, between 0 and 1; 1/2 is white noise. With a tensor or JAX array the paths are differentiable in H.
    step : float
        The step h; 1 gives variance 1.
    size, rng, key, first_path, dtype
        As in :meth:`hpfracc.noise.Noise.sample`.
    method : {"auto", "circulant", "cholesky"}
        ``"auto"`` is ``"circulant"``: one transform of length 2 n [1].

    Returns
    -------
    array, shape (\*size, n)

    See Also
    --------
    fbm, hurst, fractional_difference

    References
    ----------
    1. R. B. Davies, D. S. Harte, "Tests for Hurst effect", Biometrika 74, 1987.

    Examples
    --------
    >>> import hpfracc as hf
    >>> hf.fgn(1000, 0.7, size=5, rng=1).shape
    (5, 1000)
    """
    return _draw(False, n, H, step, size, (rng, key), first_path, dtype, method)


class _PathOptions(TypedDict, total=False):
    T: Any
    size: int | tuple[int, ...]
    rng: Any
    first_path: int
    dtype: Any
    method: str


@overload
def fbm(n: int, H: float, *, key: None = None, **options: Unpack[_PathOptions]) -> NDArray[Any]: ...
@overload
def fbm(n: int, H: OrderNumber, *, key: Any = None, **options: Unpack[_PathOptions]) -> Any: ...
@_reading.corrects_keywords
def fbm(
    n: int,
    H: Any,
    *,
    T: Any = 1.0,
    size: int | tuple[int, ...] = (),
    rng: Any = None,
    key: Any = None,
    first_path: int = 0,
    dtype: Any = None,
    method: str = "auto",
) -> Any:
    r"""Fractional Brownian motion on ``n`` equal steps of [0, T], drawn exactly.

    .. math:: E\,B_s B_t = \tfrac12 \left(s^{2H} + t^{2H} - |t - s|^{2H}\right).

    Parameters
    ----------
    n : int
        Number of steps; the path has ``n + 1`` points, the first of which is 0.
    H : float, or a scalar of PyTorch or JAX
        Hurst index, between 0 and 1; 1/2 is Brownian motion. With a tensor or JAX array the paths are differentiable in
        H.
    T : float
        End of the interval.
    size, rng, key, first_path, dtype
        As in :meth:`hpfracc.noise.Noise.sample`.
    method : {"auto", "circulant", "cholesky"}
        ``"auto"`` is ``"circulant"``: one transform of length 2 n.

    Returns
    -------
    array, shape (\*size, n + 1)

    See Also
    --------
    hpfracc.noise.FractionalBrownian : the process as an object: any grid, refinement, the Volterra kind.
    hurst : estimates the index from a path.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> paths = hf.fbm(1024, 0.3, size=4, rng=1)
    >>> paths.shape
    (4, 1025)
    >>> bool(np.allclose(paths[2:], hf.fbm(1024, 0.3, size=2, rng=1, first_path=2)))
    True
    """
    return _draw(True, n, H, T, size, (rng, key), first_path, dtype, method)


def _draw(
    sums: bool, n: Any, H: Any, length: Any, size: Any, seeds: Any, first_path: Any, dtype: Any, method: Any
) -> Any:
    """Increments over steps of ``length``, or their sums over ``n`` parts of it; ``seeds`` are ``rng`` and ``key``."""
    rng, key = seeds
    if (
        # The most common call, one valid NumPy path, takes half the time without the rest.
        type(n) is type(first_path) is int
        and type(H) is type(length) is float
        and type(size) is tuple
        and type(method) is str
        and (rng is None or type(rng) in (int, np.random.Generator))
        and key is dtype is None
        and (size, first_path, method) == ((), 0, "auto")
        and (0 < n < _LONG and 0.0 < H < 1.0 and 0.0 < length < math.inf)
    ):
        weights = kept_weights(H, n, length / n if sums else length)
        return circulant.to_steps(NUMPY, weights, first_normals(rng, 2 * n + 2), n, sums)
    n = _reading.count("n", n)
    _reading.choice("method", method, ("auto", "circulant", "cholesky"))
    if library_of(length) in ("python", "numpy"):
        _reading.number("the length of the interval", length, above=0)
    hurst, step, shape = read_hurst(H), length / n if sums else length, read_size(size)
    count = math.prod(shape)
    source = make_source(rng, key, hurst, length, dtype=dtype, first_path=first_path, count=count)
    source.check_room("fractional Brownian motion", count, n + 1, more=_NUMBERS_A_STEP * n)
    if method == "cholesky":
        times = TimeGrid(np.arange(n + 1, dtype=np.float64), None)
        paths = FractionalBrownian(hurst)._by_cholesky(source, times, count) * step**hurst
        paths = paths if sums else paths[:, 1:] - paths[:, :-1]
    else:
        paths = _sums(source, hurst, n, step, count, sums=sums)
    return paths.reshape(*shape, n + sums)


class HybridScheme:
    """The Riemann-Liouville process on ``n`` steps of one length: a sum over standard normal increments.

    Attributes
    ----------
    kernel : ndarray, shape (n,)
        Factors of the increments by their age, the newest first: older steps have the mean of the kernel.
    across : float
        Factor of other numbers, with which the newest cell has its exact law.
    """

    def __init__(self, hurst: float, n: int, step: float) -> None:
        power, age = hurst + 0.5, np.arange(1.0, n)
        # Without cancellation: (k + 1)^p - k^p.
        older = age**power * np.expm1(power * np.log1p(1.0 / age))
        self.kernel = math.sqrt(2.0 * hurst) * step**hurst / power * np.concatenate([[1.0], older])
        self.across = abs(0.5 - hurst) / power * step**hurst  # with kernel[0]^2 the variance step^(2H)
        self._length = fft.next_fast_len(2 * n - 1, real=True)
        self._transform = fft.rfft(self.kernel, self._length)

    def values(self, source: RandomSource, normals: Any, cells: Any) -> Any:
        """The process at the end of each step, from normal numbers of shape ``(paths, n)``."""
        # One algorithm for any number of paths: an engine call would select by it, and change the last digits.
        xp = source.xp
        real, imaginary = source.array(np.stack([self._transform.real, self._transform.imag]))
        transform = xp.fft.rfft(normals, self._length) * (real + 1j * imaginary)
        return xp.fft.irfft(transform, self._length)[:, : self.kernel.size] + self.across * cells


def sample_hybrid(source: RandomSource, hurst: float, n: int, step: float, count: int) -> Any:
    """The process at ``n + 1`` points, shape ``(count, n + 1)``.

    The numbers are drawn in float64 on the host and converted to the precision and library of the source.
    """
    scheme = HybridScheme(hurst, n, step)

    def draw(part: RandomSource, rows: int) -> np.ndarray:
        normals = part.numbers(0, rows, 2 * n)
        return np.insert(scheme.values(part, normals[:, :n], normals[:, n:]), 0, 0.0, -1)

    return source.array(source.on_host().in_chunks(count, 4 * n, draw))


@final
@dataclass(frozen=True, slots=True)
class Brownian(LevyNoise, GaussianNoise):
    r"""Standard Brownian motion: independent increments, :math:`E\,W_s W_t = \min(s, t)`.

    Exact on any grid.

    Examples
    --------
    >>> import numpy as np
    >>> from hpfracc import noise
    >>> noise.Brownian().sample(np.linspace(0, 1, 5), size=3, rng=1).shape
    (3, 5)
    """

    def _moments(self) -> tuple[float, float]:
        return 0.0, 1.0

    def _increments(self, source: RandomSource, steps: np.ndarray, count: int, stream: int = 0) -> Any:
        return source.numbers(0, count, steps.shape[-1], stream=stream) * source.array(np.sqrt(steps))

    def _refine(self, source: RandomSource, rows: np.ndarray, grid: TimeGrid, fine: TimeGrid, parts: int) -> np.ndarray:
        """An independent bridge within each step."""
        steps = np.diff(fine.times, prepend=0.0)
        drawn: np.ndarray = self._increments(source, steps, rows.shape[0], stream_of(fine)).cumsum(-1)
        return _pinned(drawn, rows, parts)
