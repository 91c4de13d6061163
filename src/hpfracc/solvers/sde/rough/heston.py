"""The rough Heston model: option prices by its characteristic function, paths by its integrated variance."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy import special

from hpfracc.errors import AccuracyWarning, InvalidInputError, SolveError
from hpfracc.solvers.sde.noise.process import read_positive
from hpfracc.solvers.sde.noise.source import make_source, read_size
from hpfracc.solvers.sde.rough.integrated_variance import plan_sampling
from hpfracc.solvers.sde.rough.paths import RoughPaths, join_chunks, read_times
from hpfracc.solvers.sde.rough.riccati import solve_riccati
from hpfracc.solvers.sde.rough.smile import (
    Valuation,
    VolatilityModel,
    check_model,
    price_of,
    read_strikes,
    volatility_of,
)

__all__ = ["Heston"]

#: If |phi| is below exp(-_NEGLIGIBLE), its contribution to a price is below rounding.
_NEGLIGIBLE = 36.0
#: Angles of the contour of the Fourier integral, and how much shorter than the first the others have to be.
_TILTS, _WORTHWHILE = (0.0, 0.4, -0.4), 4.0
#: Nodes of the Fourier integral, doubled until the last two sums agree.
_NODES = (40, 80, 160, 320, 640, 1280)


#: Paths are stepped together in chunks of 2**17 over this: each step is a few dozen array operations.
_NUMBERS_PER_PATH = 32


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Heston(VolatilityModel):
    r"""Rough Heston model of El Euch and Rosenbaum.

    .. math::
        dS_t &= (r - q) S_t\,dt + S_t \sqrt{V_t}\,dB_t, \qquad d\langle B, W\rangle_t = \rho\,dt,\\
        V_t &= v_0 + \frac{1}{\Gamma(a)} \int_0^t (t-s)^{a-1}
               \left(\kappa(\theta - V_s)\,ds + \sigma\sqrt{V_s}\,dW_s\right), \qquad a = H + \tfrac12.

    With ``H = 1/2`` it is Heston's model. The kernel is :math:`t^{a-1}/\Gamma(a)`; with
    :math:`\sqrt{2H}\,t^{a-1}`, as in some papers, ``sigma`` and ``kappa`` have other values.

    Parameters
    ----------
    H : float
        Hurst exponent of the variance, above 0 and at most 1/2.
    v0 : float
        Variance at time 0.
    theta : float
        Level to which the variance reverts.
    kappa : float
        Rate of reversion, at least 0.
    sigma : float
        Volatility of the variance, at least 0.
    rho : float
        Correlation of price and variance, from -1 to 1.
    S0 : float
        Price at time 0.
    r, q : float
        Interest rate and dividend yield, continuously compounded.

    Notes
    -----
    The characteristic function of :math:`X_T = \ln(S_T/F_T)` is
    :math:`\exp(\kappa\theta\,I^1 h(T) + v_0\,I^{1-a} h(T))`, where ``h`` solves a fractional Riccati equation [1].
    It is solved by collocation in :math:`t^a`, where ``h`` is smooth. Prices follow by Lewis' formula [2], with the
    trapezoidal rule after :math:`u = \sinh y`; both errors are estimated and reported. Where the transform decays
    slowly along the real axis, as near ``rho = -1``, the contour is tilted to
    :math:`u = \sinh(y + i\omega) - i\sin\omega` [3].

    References
    ----------
    1. O. El Euch and M. Rosenbaum, "The characteristic function of rough Heston models", Mathematical Finance 29,
       2019.
    2. A. Lewis, "Option Valuation under Stochastic Volatility", Finance Press, 2000.
    3. S. Boyarchenko and S. Levendorskii, "Sinh-acceleration: efficient evaluation of probability distributions,
       option pricing, and Monte Carlo simulations", Int. J. Theor. Appl. Finance 22, 2019.

    Examples
    --------
    >>> from hpfracc.solvers.sde import rough
    >>> model = rough.Heston(H=0.1, v0=0.04, theta=0.04, kappa=0.3, sigma=0.4, rho=-0.7, S0=100.0, r=0.03)
    >>> print(f"{model.price(100.0, 1.0).value:.6f}")
    8.336636
    """

    H: float
    v0: float
    theta: float
    kappa: float
    sigma: float
    rho: float
    S0: float = 1.0
    r: float = 0.0
    q: float = 0.0

    def __post_init__(self) -> None:
        check_model(self, finite=("H", "v0", "theta", "kappa", "sigma", "rho", "r", "q"), positive=("S0",))
        if not 0.0 < self.H <= 0.5:
            raise InvalidInputError(f"H={self.H!r} is outside (0, 1/2]; the model is Heston's at 1/2 and rough below")
        for name in ("v0", "theta", "kappa", "sigma"):
            if getattr(self, name) < 0.0:
                raise InvalidInputError(f"{name}={getattr(self, name)!r} is negative; use a number of at least 0")
        if self.v0 == 0.0 and self.kappa * self.theta == 0.0:
            raise InvalidInputError(
                "v0 and kappa * theta are both 0, so the variance stays 0; make one of them positive"
            )

    def characteristic_function(self, u: Any, T: float, *, tol: float = 1e-10) -> Any:
        r"""The transform :math:`E\,e^{i u X_T}` of :math:`X_T = \ln(S_T/F_T)`.

        Parameters
        ----------
        u : array_like
            Frequencies, real or complex with an imaginary part from -1 to 0, where the transform exists for all
            parameters.
        T : float
            Maturity.
        tol : float
            Absolute error.

        Returns
        -------
        ndarray or complex
            In the shape of ``u``.
        """
        u = np.asarray(u)
        if u.dtype.kind not in "fciu":
            raise InvalidInputError(f"u has dtype {u.dtype}; give real or complex frequencies")
        if not np.all((u.imag >= -1.0) & (u.imag <= 0.0)):
            raise InvalidInputError("u has an imaginary part outside [-1, 0], where the transform need not exist")
        exponent, _ = self._log_transform(u.astype(complex).ravel(), _read_maturity(T), tol)
        self._check(exponent, T)
        return np.exp(exponent).reshape(u.shape)[()]

    def price(self, K: Any, T: Any, *, kind: str = "call", tol: float = 1e-8) -> Valuation:
        """Prices of European options.

        Parameters
        ----------
        K, T : array_like
            Strikes and maturities, broadcast against each other.
        kind : {"call", "put"}
            The option.
        tol : float
            Target error, relative to ``S0``.

        Returns
        -------
        Valuation
            ``value`` and ``error``, an estimate of the absolute error, in the broadcast shape.
        """
        strikes, maturities = read_strikes(K, T)
        return price_of(self, kind, strikes, maturities, self._out_of_money(strikes, maturities, tol))

    def implied_volatility(self, K: Any, T: Any, *, tol: float = 1e-10) -> Valuation:
        """Black-Scholes volatilities of the prices, with their errors; see :meth:`price` for the parameters."""
        strikes, maturities = read_strikes(K, T)
        return volatility_of(self, strikes, maturities, self._out_of_money(strikes, maturities, tol))

    def sample(
        self,
        t: Any,
        size: Any = (),
        rng: Any = None,
        *,
        step: float | None = None,
        tol: float = 1e-4,
        first_path: int = 0,
    ) -> RoughPaths:
        r"""Paths of price and variance.

        The integrated variance of each step has an inverse Gaussian law, given the past [1]; the kernel is exact, the
        discounted price is a martingale, and no variance is negative. Given the integrated variance, the price is
        exact. The variance at the requested times is drawn by Andersen's quadratic-exponential law. The weak error
        has an order from 1.5 at small H to 2 at H = 1/2.

        Parameters
        ----------
        t : array_like, shape (n,)
            Increasing times from 0 on.
        size : int or tuple of int
            Shape of the paths.
        rng : None, int, numpy.random.Generator or SeedSequence, optional
            Seed of the random numbers.
        step : float, optional
            Largest step. By default there are as many steps to each of the times as ``tol`` needs, mostly 8 to 16.
        tol : float
            Without ``step``: largest bias of implied volatilities, see :class:`~hpfracc.rough.RoughPaths`.
        first_path : int
            Number of the first path: paths are the same up to rounding in one call and in several.

        Returns
        -------
        RoughPaths
            ``t``, ``S``, ``V`` and ``bias``; ``S`` and ``V`` have the shape ``size + (n,)``.

        References
        ----------
        1. E. Abi Jaber and E. Attal, "Simulating integrated Volterra square-root processes and Volterra Heston models
           via inverse Gaussian", 2025.
        """
        times = read_times(t, uniform=False)
        if self.sigma == 0.0:
            raise InvalidInputError("sigma=0: the variance is deterministic; use a positive sigma")
        for name, number in (("step", step), ("tol", tol)):
            if number is not None:
                read_positive(name, number)
        shape = read_size(size)
        count = math.prod(shape)
        source = make_source(rng, None, first_path=first_path, count=count)
        scheme, bias = plan_sampling(self, tuple(times.tolist()), step, tol)
        if bias > tol and step is None:
            warnings.warn(
                f"implied volatilities of the paths have a bias of {bias:.2g} with {scheme.sizes.size:,} steps, above "
                f"tol={tol:g}; give a step= or a larger tol",
                AccuracyWarning,
                stacklevel=2,
            )
        numbers = max(_NUMBERS_PER_PATH, scheme.sizes.size // 2)
        source.check_room("Heston.sample", count, 4 * times.size)
        chunks = [scheme.paths(source, low, high - low) for low, high in source.chunks(count, numbers)]
        return join_chunks(times, shape, chunks, bias)

    def _log_transform(
        self, u: np.ndarray[Any, Any], T: float, tol: float
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Logarithm of the transform at ``u`` and its error."""
        solution = solve_riccati(
            -0.5 * u * (u + 1j),
            1j * u * self.rho * self.sigma - self.kappa,
            0.5 * self.sigma**2,
            self.H + 0.5,
            T,
            weights=(self.kappa * self.theta, self.v0),
            tol=tol,
        )
        exponent = self.kappa * self.theta * solution.integral + self.v0 * solution.right_side
        return exponent, np.minimum(solution.error, 1.0)

    def _check(self, exponent: np.ndarray[Any, Any], T: float) -> None:
        if not np.all(exponent.real < 1.0):
            raise SolveError(
                f"{self} has no valid characteristic function at T={T:g}: its modulus is above 1, so the fractional "
                "Riccati equation was solved to another branch; use a smaller sigma, or a rho farther from -1 and 1"
            )

    def _out_of_money(self, strikes: np.ndarray[Any, Any], maturities: np.ndarray[Any, Any], tol: float) -> Valuation:
        """Undiscounted prices of puts below the forward and of calls above it."""
        if not 1e-14 <= tol < 1.0:
            raise InvalidInputError(f"tol={tol!r} is out of range; use a number from 1e-14 to 1, such as 1e-8")
        value, error = np.empty(strikes.shape), np.empty(strikes.shape)
        for maturity in np.unique(maturities):
            tilts, cuts = self._contours(strikes, float(maturity))
            for tilt in np.unique(tilts[maturities == maturity]):
                here = (maturities == maturity) & (tilts == tilt)
                cut = float(cuts[here].max())
                value[here], error[here] = self._invert(strikes[here], float(maturity), tol, tilt, cut)
        if (worst := float(np.max(error, initial=0.0))) > tol * self.S0:
            warnings.warn(
                f"prices have an estimated error of {worst:.2g}, above tol={tol:g} times S0; see .error of the result",
                AccuracyWarning,
                stacklevel=3,
            )
        return Valuation(value, error)

    def _invert(
        self, K: np.ndarray[Any, Any], T: float, tol: float, tilt: float, cutoff: float
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Lewis' formula at one maturity, along ``u = sinh(y + i tilt) - i sin(tilt)`` up to the cutoff.

        Undiscounted prices out of the money and their errors.
        """
        forward = float(self.forward(T))
        log_moneyness = np.log(forward / K)
        target = tol * self.S0
        cut = math.asinh(cutoff)
        sums: list[np.ndarray[Any, Any]] = []
        inside = np.zeros(K.shape)
        total = np.zeros(K.shape)
        last = np.zeros(K.shape)
        for level, nodes in enumerate(_NODES):
            step = cut / nodes
            numbers = np.arange(nodes + 1) if level == 0 else np.arange(1, nodes, 2)
            y = step * numbers
            u = np.sinh(y + 1j * tilt) - 1j * math.sin(tilt)
            weight = np.cosh(y + 1j * tilt) / (u * u + 0.25)
            weight[numbers == 0] *= 0.5
            exponent, error = self._log_transform(u - 0.5j, T, 0.1 * tol)
            exponent = exponent + 1j * u * log_moneyness[:, None]
            self._check(exponent, T)
            terms = weight * np.exp(exponent)
            total = total + terms.real.sum(axis=-1)
            inside = inside + (np.abs(terms) * error).sum(axis=-1)
            if level == 0:
                last = np.abs(terms[:, -1])
            sums.append(step * total)
            if level:
                change = np.abs(sums[-1] - sums[-2])
                # Halving the step squares an exponentially decreasing error. The power 3/2 is a safety margin for
                # strikes at which the integrand oscillates and the error decreases more slowly at first.
                quadrature = np.minimum(change, 30.0 * change**1.5)
                size = np.sqrt(forward * K) / math.pi
                error_of_price = size * (quadrature + step * inside + last) + 1e-15 * forward
                if np.all(error_of_price <= target):
                    break
        smaller = np.minimum(forward, K)
        # Prices satisfy the arbitrage bounds; rounding may violate them slightly.
        return np.clip(smaller - np.sqrt(forward * K) / math.pi * sums[-1], 0.0, smaller), error_of_price

    def _contours(self, K: np.ndarray[Any, Any], T: float) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """For each strike the tilt of the contour, and the frequency at which it ends.

        The transform decays slowly near ``rho = -1`` and 1, but fast above or below the real axis.
        """
        log_moneyness = np.log(float(self.forward(T)) / K)
        cuts = np.stack([self._cutoffs(log_moneyness, T, tilt) for tilt in _TILTS])
        # Without a tilt nothing cancels: another contour has to be much shorter.
        cuts[0] /= _WORTHWHILE
        best = np.argmin(cuts, axis=0)
        return np.array(_TILTS)[best], np.where(best == 0, _WORTHWHILE, 1.0) * cuts.min(axis=0)

    def _cutoffs(self, log_moneyness: np.ndarray[Any, Any], T: float, tilt: float) -> np.ndarray[Any, Any]:
        """Where the integrand is negligible from, by an approximation with half its exponent; in the strikes' shape."""
        a = self.H + 0.5
        real = np.geomspace(0.1, 1e9, 400)
        u = np.sinh(np.arcsinh(real) + 1j * tilt) - 1j * math.sin(tilt)
        c = -0.5 * (u * u + 0.25)
        b = 1j * u * self.rho * self.sigma - self.kappa + 0.5 * self.rho * self.sigma
        root = np.sqrt(b * b - 2.0 * self.sigma**2 * c)
        rate = 0.5 * (np.where(root.real < 0.0, -root, root) - b)
        slope = T**a / special.gamma(a + 1.0)
        fall = (c * slope / (1.0 + rate * slope)).real
        fall *= self.kappa * self.theta * T + self.v0 * T ** (1.0 - a) / special.gamma(2.0 - a)
        fall = 0.5 * (fall - u.imag * log_moneyness[..., None])
        large = fall > -_NEGLIGIBLE
        last = np.where(large.any(axis=-1), real.size - np.argmax(large[..., ::-1], axis=-1), 0)
        return real[np.minimum(last, real.size - 1)]


def _read_maturity(T: Any) -> float:
    if not isinstance(T, int | float | np.number) or isinstance(T, bool) or not 0.0 < T < math.inf:
        raise InvalidInputError(f"T={T!r} is not a maturity; use a number above 0")
    return float(T)
