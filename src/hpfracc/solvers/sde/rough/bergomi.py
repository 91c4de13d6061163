"""The rough Bergomi model: paths by the hybrid scheme, prices by conditional Monte Carlo with controls."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np
from scipy import linalg

from hpfracc import _reading
from hpfracc._arrays import to_host
from hpfracc._interrupts import raise_interrupted
from hpfracc.solvers.sde.noise.fractional_brownian import HybridScheme
from hpfracc.solvers.sde.noise.source import RandomSource, make_source
from hpfracc.solvers.sde.result import MIN_REPORTS, read_progress, run_path_chunks
from hpfracc.solvers.sde.rough.calibration import read_quotes
from hpfracc.solvers.sde.rough.model import RoughPaths, Valuation, VolatilityModel, read_path_times
from hpfracc.solvers.sde.rough.sampling import ConditionalEstimate, Terminal

#: Level of the timer option, as a multiple of the expected variance; paths that exceed it are stopped there.
_TIMER_LEVEL = 6.0
#: The same where prices have to be smooth in the parameters: no path is stopped, and the control is nearly the spot.
_NO_TIMER = 1e4
#: Minimum number of paths of a price, and those whose prices are evaluated together: with only a hundred, call overhead
#: would dominate.
_MIN_PATHS, _TOGETHER = 16, 2048
#: Maximum number of steps for which the convolution of a price is a product with a triangular matrix: at 312 steps that
#: takes half the time of FFTs, at 600 the same time (OpenBLAS, one thread, AVX-512).
_MAX_STEPS_BY_MATRIX = 512
#: Relative step of differences in the parameters.
_DIFFERENCE = 1e-4
#: Streams of random numbers: the Brownian motion of the variance, the first cells, the other Brownian motion.
_VARIANCE, _CELLS, _PRICE = 0, 1, 2


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Bergomi(VolatilityModel):
    r"""Rough Bergomi model of Bayer, Friz and Gatheral.

    .. math::
        dS_t &= (r - q) S_t\,dt + S_t \sqrt{V_t}\,dB_t, \qquad d\langle B, W\rangle_t = \rho\,dt,\\
        V_t &= \xi(t) \exp\left(\eta Y_t - \tfrac12 \eta^2 t^{2H}\right), \qquad
        Y_t = \sqrt{2H} \int_0^t (t-s)^{H-1/2}\,dW_s.

    ``Y`` is the Riemann-Liouville (Volterra) fractional Brownian motion, not the one of Mandelbrot and van Ness.

    Parameters
    ----------
    H : float
        Hurst exponent, above 0 and at most 1/2.
    eta : float
        Volatility of the variance, at least 0.
    rho : float
        Correlation of price and variance, from -1 to 1.
    xi : float, callable or pair of arrays
        Forward variance, a number, a function of an array of times, or a table ``(times, values)``, linear between its
        times.
    S0 : float
        Price at time 0.
    r, q : float
        Interest rate and dividend yield, continuously compounded.

    Notes
    -----
    Paths follow the hybrid scheme with one exact cell [1]: cell means of the kernel, and the joint law of
    :math:`\Delta W` and the singular cell. The variance is divided by its discrete mean, so that
    :math:`E V_t = \xi(t)` holds for any number of steps. Prices are discounted means of Black's formula, conditional on
    ``W``, with three controls: a timer option [2], the conditional spot and the integrated variance.

    Implied volatilities depend on the number of steps at small ``H``: at ``H = 0.07`` and three months one at
    log-moneyness 0.1 falls from 0.162 to 0.155 between 64 and 2,048 steps. The standard error does not include that.

    References
    ----------
    1. M. Bennedsen, A. Lunde and M. Pakkanen, "Hybrid scheme for Brownian semistationary processes", Finance and
       Stochastics 21, 2017.
    2. R. McCrickerd and M. Pakkanen, "Turbocharging Monte Carlo pricing for the rough Bergomi model", Quantitative
       Finance 18, 2018.

    Examples
    --------
    >>> from hpfracc import rough
    >>> model = rough.Bergomi(H=0.07, eta=1.9, rho=-0.9, xi=0.235**2)
    >>> price = model.price(1.0, 0.25, paths=2000, steps=64, rng=0)
    >>> bool(abs(price.value - 0.0402) < 0.001)
    True
    """

    _accuracy: ClassVar[dict[str, Any]] = {"paths": 8192, "steps": 96, "rng": 0}
    _free: ClassVar[tuple[str, ...]] = ("H", "eta", "rho")

    H: float
    eta: float
    rho: float
    xi: Any
    S0: float = 1.0
    r: float = 0.0
    q: float = 0.0

    def __post_init__(self) -> None:
        self._check_parameters("eta")

    def price(
        self,
        K: Any,
        T: Any,
        *,
        kind: str = "call",
        paths: int = 32_768,
        steps: int = 312,
        rng: Any = None,
        progress: bool | Callable[..., Any] = False,
    ) -> Valuation:
        """Prices of European options.

        Parameters
        ----------
        K, T : array_like
            Strikes and maturities, broadcast against each other.
        kind : {"call", "put"}
            The option.
        paths : int
            Number of paths, at least 16.
        steps : int
            Steps to each maturity.
        rng : None, int, numpy.random.Generator, SeedSequence or torch.Generator, optional
            Seed of the random numbers; all strikes use the same paths. With a ``torch.Generator`` of a GPU the paths
            are drawn there.
        progress : bool or callable
            Whether to show a progress bar for each maturity with the finished paths, the undiscounted out-of-the-money
            price of its first strike so far, with its standard error, and the remaining time; or ``progress(done,
            paths, mean, standard_error)``.

        Returns
        -------
        Valuation
            ``value`` and ``error``, one standard error, in the broadcast shape. Ctrl-C raises
            :class:`~hpfracc.errors.Interrupted` with those of the finished paths, nan for maturities without any.
        """
        strikes, maturities = read_quotes(K=K, T=T)
        found, cut = self._out_of_money(strikes, maturities, paths, steps, rng, progress)
        return _whole(self._prices(kind, strikes, maturities, found), cut)

    def implied_volatility(
        self,
        K: Any,
        T: Any,
        *,
        paths: int = 32_768,
        steps: int = 312,
        rng: Any = None,
        progress: bool | Callable[..., Any] = False,
    ) -> Valuation:
        """Black-Scholes volatilities of the prices, with standard errors; see :meth:`price` for the parameters."""
        strikes, maturities = read_quotes(K=K, T=T)
        found, cut = self._out_of_money(strikes, maturities, paths, steps, rng, progress)
        return _whole(self._volatilities(strikes, maturities, found), cut)

    def sample(self, t: Any, size: Any = (), rng: Any = None, *, first_path: int = 0) -> RoughPaths:
        """Paths of price and variance.

        Parameters
        ----------
        t : array_like, shape (n,)
            Equidistant times from 0 on.
        size : int or tuple of int
            Shape of the paths.
        rng : None, int, numpy.random.Generator or SeedSequence, optional
            Seed of the random numbers.
        first_path : int
            Number of the first path: paths are the same in one call and in several.

        Returns
        -------
        RoughPaths
            ``t``, ``S``, ``V`` and ``integral``, the last three of the shape ``size + (n,)``.
        """
        times = read_path_times(t, uniform=True)
        scheme = _Scheme(self, float(times[-1]), times.size - 1)

        def follow(source: RandomSource, rows: int) -> np.ndarray:
            return scheme.follow(source, scheme.draw(source, rows))

        return self._paths(times, size, rng, first_path, 4 * times.size, follow)

    def _coupled(
        self, T: float, steps: int, count: int, rng: Any, first_path: int
    ) -> tuple[list[tuple[np.ndarray, np.ndarray]], float]:
        """Paths of the scheme, and with half as many steps along the same Brownian motions."""
        source = make_source(rng, None, first_path=first_path, count=count)
        fine, coarse = _Scheme(self, T, steps), _Scheme(self, T, steps // 2)
        numbers = fine.draw(source, count)
        halved = fine.halved(numbers)
        found = (fine.follow(source, numbers), coarse.follow(source, halved))
        return [(spot, np.diff(integral)) for spot, _, integral in found], 0.0

    def _priced(
        self, strikes: np.ndarray, maturities: np.ndarray, names: tuple[str, ...], paths: int, steps: int, rng: Any
    ) -> tuple[Valuation, np.ndarray]:
        """Undiscounted prices out of the money, and their differences in parameters, with the same random numbers."""
        arguments = strikes, maturities, paths, steps, rng, False, _NO_TIMER
        found = _whole(*self._out_of_money(*arguments))
        columns = []
        for name in names:
            at = getattr(self, name)
            change = -_DIFFERENCE * math.copysign(max(abs(at), 0.05), at)
            moved = _whole(*replace(self, **{name: at + change})._out_of_money(*arguments))
            columns.append((moved.value - found.value) / change)
        return found, np.stack(columns, -1) if names else np.empty(0)

    def _out_of_money(
        self,
        strikes: np.ndarray,
        maturities: np.ndarray,
        paths: int,
        steps: int,
        rng: Any,
        progress: bool | Callable[..., Any],
        timer: float = _TIMER_LEVEL,
    ) -> tuple[Valuation, str]:
        """Undiscounted prices of puts below the forward and of calls above it; and what says that they were cut off."""
        paths, steps = _reading.count("paths", paths, least=_MIN_PATHS), _reading.count("steps", steps)
        read_progress(progress)
        source = make_source(rng, None, count=paths)
        rows = source.rows(4 * steps)
        together = max(rows, paths // (5 * MIN_REPORTS) if progress else _TOGETHER)
        value, error = np.full(strikes.shape, np.nan), np.full(strikes.shape, np.nan)
        for maturity in np.unique(maturities):
            here = maturities == maturity
            scheme = _Scheme(self, float(maturity), steps, timer)
            mean = scheme.h * float(scheme.forward_variance.sum())
            forward = float(self.forward(scheme.T))
            estimate = ConditionalEstimate(strikes[here], forward, self.rho, mean, scheme.level)

            def chunk(low: int, high: int, scheme: Any = scheme, estimate: Any = estimate) -> Any:
                parts = [scheme.terminal(source, at, min(rows, high - at)) for at in range(low, high, rows)]
                estimate.add(Terminal(*map(np.concatenate, zip(*parts, strict=True))))
                if not progress or high < _MIN_PATHS:
                    return None
                value, error = estimate.result()
                return float(value[0]), float(error[0])

            finished = run_path_chunks(paths, together, chunk, progress, f"T = {scheme.T:g}") == paths
            if estimate.paths >= _MIN_PATHS:
                value[here], error[here] = estimate.result()
                estimate.warn_of_few_paths(f"eta={self.eta:g} at T={scheme.T:g}")
            if not finished:
                told = f"Interrupted after {estimate.paths:,} of {paths:,} paths at T={maturity:g}: these are theirs."
                return Valuation(value, error), told
        return Valuation(value, error), ""


def _whole(found: Valuation, cut: str) -> Valuation:
    """The valuation; raises if it was cut off."""
    if cut:
        raise_interrupted(cut, found)
    return found


class _Scheme(HybridScheme):
    """The hybrid scheme on ``steps`` equal steps to ``T``."""

    def __init__(self, model: Bergomi, T: float, steps: int, timer: float = _TIMER_LEVEL) -> None:
        h = T / steps
        super().__init__(model.H, steps, h)
        self.model, self.T, self.steps, self.h = model, T, steps, h
        forward = model.forward_variance(np.append(h * np.arange(steps), T))
        # Variance of Y at the end of each step: the discrete one, so that the mean of V is xi.
        spread = np.cumsum(np.append(h ** (2.0 * model.H), self.kernel[1:] ** 2))
        #: At the start of each step, and of the end of the last.
        self.shift = np.log(forward) - 0.5 * model.eta**2 * np.append(0.0, spread)
        self.forward_variance = forward[:-1]
        self.level = timer * float(self.forward_variance.sum()) * h

    @cached_property
    def _matrix(self) -> np.ndarray:
        """The product with it is the convolution with the kernel, in units of ``log(V) / 2``."""
        n = self.steps - 1
        return np.asfortranarray(linalg.toeplitz(0.5 * self.model.eta * self.kernel[:n], np.zeros(n)))

    def roots(self, source: RandomSource, normals: Any, cells: Any) -> Any:
        """The square root of V at the end of each step, from normal increments of W and other numbers."""
        volterra = self.values(source, normals, cells)
        return source.xp.exp(0.5 * self.model.eta * volterra + source.array(0.5 * self.shift[1:]))

    def _roots_by_matrix(self, source: RandomSource, normals: np.ndarray, start: int) -> np.ndarray:
        """The same on the host up to rounding, which depends on the batch of paths; for means over them."""
        root: np.ndarray = linalg.blas.dtrmm(1.0, self._matrix, normals[:, :-1].T, lower=1).T
        root += 0.5 * self.shift[1:-1]
        if self.across:
            cells = source.numbers(start, normals.shape[0], self.steps - 1, stream=_CELLS)
            cells *= 0.5 * self.model.eta * self.across
            root += cells
        np.exp(root, out=root)
        return root

    def terminal(self, source: RandomSource, start: int, count: int) -> Terminal:
        """The values at maturity of the given paths."""
        rho, h, first = self.model.rho, self.h, float(self.forward_variance[0])
        normals = source.numbers(start, count, self.steps, stream=_VARIANCE)
        if source.library == "numpy" and 1 < self.steps <= _MAX_STEPS_BY_MATRIX:
            root = self._roots_by_matrix(source, normals, start)
        else:
            root = self.roots(source, normals, source.numbers(start, count, self.steps, stream=_CELLS))[:, :-1]
        dot = np.vecdot if source.library == "numpy" else lambda one, other: _doubles((one * other).sum(-1))
        squares, products = dot(root, root), dot(root, normals[:, 1:])
        integral = h * (first + squares)
        driven = math.sqrt(h) * (math.sqrt(first) * _doubles(normals[:, 0]) + products)
        stopped_integral, stopped = integral.copy(), driven.copy()
        beyond = np.flatnonzero(integral > self.level)
        if beyond.size:  # few: they are stopped before the step that would exceed the level
            z, v = _doubles(normals[beyond]), np.full((beyond.size, self.steps), first)
            v[:, 1:] = _doubles(root[beyond]) ** 2
            inside = np.cumsum(h * v, axis=-1) <= self.level
            stopped_integral[beyond] = (h * v * inside).sum(axis=-1)
            stopped[beyond] = (np.sqrt(h * v) * z * inside).sum(axis=-1)
        return Terminal(
            np.exp(rho * driven - 0.5 * rho**2 * integral),
            integral,
            np.exp(rho * stopped - 0.5 * rho**2 * stopped_integral),
            stopped_integral,
        )

    def draw(self, source: RandomSource, count: int) -> list[np.ndarray]:
        """The random numbers of some paths: of W, of the first cells, and of the other Brownian motion."""
        return [source.numbers(0, count, self.steps, stream=stream) for stream in (_VARIANCE, _CELLS, _PRICE)]

    def halved(self, numbers: list[np.ndarray]) -> list[np.ndarray]:
        """Those for half as many steps of the same paths; the numbers of the first cells are close to the same."""
        half = math.sqrt(0.5)
        (z, one), (_, cell), (other, another) = ((each[:, ::2], each[:, 1::2]) for each in numbers)
        # The integral over the newest two steps, less its part along W: the newest cell, and the slope of the kernel.
        parts = half * (self.kernel[0] - self.kernel[1]), self.across
        size = math.hypot(*parts)
        cells = (parts[0] * half * (one - z) + parts[1] * cell) / size if size else cell
        return [half * (z + one), cells, half * (other + another)]

    def follow(self, source: RandomSource, numbers: list[np.ndarray]) -> np.ndarray:
        """Price, variance and its integral at all times, shape ``(3, paths, steps + 1)``."""
        model, h, (normals, cells, other) = self.model, self.h, numbers
        root = self.roots(source, normals, cells)
        found = np.zeros((3, len(root), self.steps + 1))
        spot, variance, integral = found
        variance[:, 0], variance[:, 1:] = self.forward_variance[0], root * root
        mixed = model.rho * normals + math.sqrt(1.0 - model.rho**2) * other
        steps = (model.r - model.q) * h - 0.5 * h * variance[:, :-1] + np.sqrt(h * variance[:, :-1]) * mixed
        spot[:, 0] = model.S0
        spot[:, 1:] = model.S0 * np.exp(np.cumsum(steps, axis=-1))
        np.cumsum(h * variance[:, :-1], axis=-1, out=integral[:, 1:])
        return found


def _doubles(values: Any) -> np.ndarray:
    """The values on the host, in double precision."""
    return np.array(to_host(values), dtype=np.float64)
