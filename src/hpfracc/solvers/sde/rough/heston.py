"""The rough Heston model: option prices by its characteristic function, paths by its integrated variance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from scipy import special

from hpfracc import _reading
from hpfracc.errors import InvalidInputError, SolveError, warn
from hpfracc.solvers.sde.rough.calibration import read_quotes
from hpfracc.solvers.sde.rough.integrated_variance import contour, plan_sampling
from hpfracc.solvers.sde.rough.model import (
    RoughPaths,
    Valuation,
    VolatilityModel,
    attach_gradient,
    read_path_times,
    without_tensor,
)
from hpfracc.solvers.sde.rough.riccati import curve_measure, plain_measure, solve_riccati
from hpfracc.solvers.sde.rough.saddle import classic_exponent, far_prices
from hpfracc.special import mittag_leffler

#: If |phi| is below exp(-_NEGLIGIBLE), its contribution to a price is below rounding.
_NEGLIGIBLE = 36.0
#: Angles of the contour of the Fourier integral, and how much shorter than the first the others have to be.
_TILTS, _WORTHWHILE = (0.0, 0.4, -0.4), 4.0
#: Nodes of the Fourier integral, doubled until the last two sums agree.
_NODES = (40, 80, 160, 320, 640, 1280)
#: Relative error of a price from which a line through the saddle point is tried, and the error of its exponents.
_WEAK, _FAR_ATOL = 1e-4, 1e-9
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

    With a forward variance curve :math:`\xi(t) = E V_t` in place of ``v0`` and ``theta`` the variance is

    .. math:: V_t = \xi(t) + \sigma \int_0^t f(t-s) \sqrt{V_s}\,dW_s, \qquad
        f(t) = t^{a-1} E_{a,a}(-\kappa t^a).

    With ``H = 1/2`` it is Heston's model. The kernel is :math:`t^{a-1}/\Gamma(a)`; with
    :math:`\sqrt{2H}\,t^{a-1}`, as in some papers, ``sigma`` and ``kappa`` have other values.

    Parameters
    ----------
    H : float
        Hurst exponent of the variance, above 0 and at most 1/2.
    v0, theta : float
        Variance at time 0, and the level to which it reverts.
    xi : float, callable or pair of arrays
        In place of both: the forward variance, a number, a function of an array of times, or a table ``(times,
        values)``, linear between its times.
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

    All numbers may be scalars of PyTorch or JAX: prices then have gradients.

    Notes
    -----
    The characteristic function of :math:`X_T = \ln(S_T/F_T)` is
    :math:`\exp(\kappa\theta\,I^1 h(T) + v_0\,I^{1-a} h(T))`, where ``h`` solves a fractional Riccati equation [1];
    with a curve it is :math:`\exp \int_0^T \xi(T-t) (c + i u \rho\sigma h + \tfrac12 \sigma^2 h^2)\,dt` [4].
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
    4. O. El Euch and M. Rosenbaum, "Perfect hedging in rough Heston models", Ann. Appl. Probab. 28, 2018; J. Gatheral
       and M. Keller-Ressel, "Affine forward variance models", Finance Stoch. 23, 2019.

    Examples
    --------
    >>> from hpfracc import rough
    >>> model = rough.Heston(H=0.1, v0=0.04, theta=0.04, kappa=0.3, sigma=0.4, rho=-0.7, S0=100.0, r=0.03)
    >>> print(f"{model.price(100.0, 1.0).value:.6f}")
    8.336636
    """

    _accuracy: ClassVar[dict[str, Any]] = {"rtol": 1e-6}
    _free: ClassVar[tuple[str, ...]] = ("H", "kappa", "sigma", "rho")

    H: Any
    kappa: Any
    sigma: Any
    rho: Any
    v0: Any = None
    theta: Any = None
    xi: Any = None
    S0: Any = 1.0
    r: Any = 0.0
    q: Any = 0.0

    def __post_init__(self) -> None:
        if self._plain() is not self:
            return  # the model with numbers was checked
        if (self.v0 is None, self.theta is None) != 2 * (self.xi is not None,):
            raise InvalidInputError("give v0 and theta, or the forward variance xi in place of both")
        level = ("v0", "theta") if self.xi is None else ()
        self._check_parameters("kappa", "sigma", *level)
        if self.xi is None and self.v0 == 0.0 and self.kappa * self.theta == 0.0:
            raise InvalidInputError(
                "v0 and kappa * theta are both 0, so the variance stays 0; make one of them positive"
            )

    def forward_variance(self, t: Any) -> Any:
        r"""The mean :math:`\xi(t)` of the variance: the curve, or :math:`\theta + (v_0-\theta) E_a(-\kappa t^a)`."""
        own = self._numbers("forward_variance")
        if self.xi is not None:
            return VolatilityModel.forward_variance(self, t)
        times = _reading.numbers("t", t, least=0)
        a = own.H + 0.5
        return np.asarray(own.theta + (own.v0 - own.theta) * mittag_leffler(-own.kappa * times**a, a))[()]

    def integrated_variance(self, t: Any) -> Any:
        """The integral of the forward variance from 0 to ``t``."""
        if self.xi is not None:
            return VolatilityModel.integrated_variance(self, t)
        times, own = _reading.numbers("t", t, least=0), self._numbers("integrated_variance")
        a = own.H + 0.5
        mean = own.theta + (own.v0 - own.theta) * mittag_leffler(-own.kappa * times**a, a, 2.0)
        return np.asarray(times * mean)[()]

    def characteristic_function(self, u: Any, T: float, *, atol: float = 1e-10) -> Any:
        r"""The transform :math:`E\,e^{i u X_T}` of :math:`X_T = \ln(S_T/F_T)`.

        Parameters
        ----------
        u : array_like
            Frequencies, real or complex with an imaginary part from -1 to 0, where the transform exists for all
            parameters.
        T : float
            Maturity.
        atol : float
            Absolute error.

        Returns
        -------
        ndarray or complex
            In the shape of ``u``.
        """
        u = np.asarray(u)
        if u.dtype.kind not in "fciu":
            raise InvalidInputError(f"u has dtype {u.dtype}; give real or complex frequencies")
        if not np.all(np.isfinite(u.real) & (u.imag >= -1.0) & (u.imag <= 0.0)):
            raise InvalidInputError(
                "u is not finite, or has an imaginary part outside [-1, 0], where the transform need not exist"
            )
        _reading.number("atol", atol, above=0)
        own, maturity = self._numbers("characteristic_function"), _reading.number("T", T, above=0)
        exponent = own._log_transform(u.astype(complex).ravel(), maturity, atol)[0]
        own._check(exponent, maturity)
        return np.exp(exponent).reshape(u.shape)[()]

    def price(self, K: Any, T: Any, *, kind: str = "call", rtol: float = 1e-8) -> Valuation:
        """Prices of European options.

        Parameters
        ----------
        K, T : array_like
            Strikes and maturities, broadcast against each other.
        kind : {"call", "put"}
            The option.
        rtol : float
            Target error, relative to ``S0``.

        Returns
        -------
        Valuation
            ``value`` and ``error``, an estimate of the absolute error, in the broadcast shape. If parameters, strikes
            or maturities are arrays of PyTorch or JAX, ``value`` is one too, with the first derivatives of
            :meth:`greeks`; second derivatives through it are nan.
        """
        tensors, own = self._tensors(K=K, T=T), self._plain()
        strikes, maturities = read_quotes(K=without_tensor("K", K), T=without_tensor("T", T))
        found, slopes = own._out_of_money(strikes, maturities, rtol, bool(tensors))
        price = own._prices(kind, strikes, maturities, found)
        if not tensors:
            return price
        return Valuation(
            attach_gradient(price.value, own._price_slopes(kind, price.value, slopes), tensors), price.error
        )

    def implied_volatility(self, K: Any, T: Any, *, rtol: float = 1e-10) -> Valuation:
        """Black-Scholes volatilities of the prices, with their errors; see :meth:`price` for the parameters.

        Of far strikes too, whose prices are far below the rounding error of the forward: those are integrated along a
        line through the saddle point of the transform. Where no digit is left the result is nan, with a warning.
        """
        own = self._numbers("implied_volatility")
        strikes, maturities = read_quotes(K=K, T=T)
        value, error = own._out_of_money(strikes, maturities, rtol)[0]
        weak = error > _WEAK * value
        for maturity in np.unique(maturities[weak]):
            here = weak & (maturities == maturity)
            forward = float(own.forward(maturity))

            def moment(s: Any, T: float = float(maturity)) -> Any:
                return own._log_transform(-1j * s, T, _FAR_ATOL)[:2]

            far, far_error = far_prices(moment, np.log(strikes[here] / forward))
            better = forward * far_error < error[here]
            value[here] = np.where(better, forward * far, value[here])
            error[here] = np.where(better, forward * far_error, error[here])
        volatility, error = map(np.asarray, own._volatilities(strikes, maturities, Valuation(value, error)))
        if (lost := ~(error <= 0.5 * volatility)).any():
            warn(
                f"the implied volatility of K={strikes[lost][0]:g} at T={maturities[lost][0]:g} and "
                f"{int(lost.sum()) - 1} others is nan: their prices have no digits, because they are below the range "
                "of float64, or the moment of S_T that measures them is infinite; use strikes closer to the forward"
            )
        return Valuation(*(np.where(lost, np.nan, each)[()] for each in (volatility, error)))

    def greeks(self, K: Any, T: Any, *, kind: str = "call", rtol: float = 1e-8) -> dict[str, Any]:
        """Derivatives of the prices of European options.

        Parameters
        ----------
        K, T, kind, rtol
            As in :meth:`price`.

        Returns
        -------
        dict
            By the name of a parameter the derivative with respect to it, in the broadcast shape: ``"S0"`` (delta),
            ``"K"``, ``"T"``, ``"r"``, ``"q"``, ``"H"``, ``"kappa"``, ``"sigma"``, ``"rho"``, and ``"v0"`` and
            ``"theta"``, or ``"xi"`` if that is a number; and ``"gamma"``, the second one with respect to ``S0``. They
            are derivatives of the formula, not differences; those in ``H`` have a relative error of about 1e-8.
        """
        own = self._numbers("greeks")
        strikes, maturities = read_quotes(K=K, T=T)
        found, slopes = own._out_of_money(strikes, maturities, rtol, True)
        price = own._prices(kind, strikes, maturities, found)
        return {name: np.asarray(each)[()] for name, each in own._price_slopes(kind, price.value, slopes).items()}

    def sample(
        self,
        t: Any,
        size: Any = (),
        rng: Any = None,
        *,
        step: float | None = None,
        atol: float = 1e-4,
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
            Largest step. By default there are as many steps to each of the times as ``atol`` needs, mostly 8 to 16.
        atol : float
            Without ``step``: largest bias of implied volatilities, see :class:`~hpfracc.rough.RoughPaths`.
        first_path : int
            Number of the first path: paths are the same up to rounding in one call and in several.

        Returns
        -------
        RoughPaths
            ``t``, ``S``, ``V``, ``bias`` and ``integral``; those of the paths have the shape ``size + (n,)``.

        References
        ----------
        1. E. Abi Jaber and E. Attal, "Simulating integrated Volterra square-root processes and Volterra Heston models
           via inverse Gaussian", 2025.
        """
        times = read_path_times(t, uniform=False)
        own = self._numbers("sample")
        if own.sigma == 0.0:
            raise InvalidInputError("sigma=0: the variance is deterministic; use a positive sigma")
        for name, number in (("step", step), ("atol", atol)):
            if number is not None:
                _reading.number(name, number, above=0)
        scheme, bias = plan_sampling(own, tuple(times.tolist()), step, atol)
        if bias > atol and step is None:
            warn(
                f"implied volatilities of the paths have a bias of {bias:.2g} with {scheme.sizes.size:,} steps, above "
                f"atol={atol:g}; give a step= or a larger atol"
            )
        numbers = max(_NUMBERS_PER_PATH, scheme.sizes.size // 2)
        return self._paths(times, size, rng, first_path, numbers, scheme.paths, bias)

    def _coupled(
        self, T: float, steps: int, count: int, rng: Any, first_path: int
    ) -> tuple[list[tuple[np.ndarray, np.ndarray]], float]:
        """Paths, and the same with every second time: their law at these times is that of the model up to the bias."""
        paths = self.sample(np.linspace(0.0, T, steps + 1), count, rng, first_path=first_path)
        taken = [(paths.S[:, ::k], np.diff(paths.integral[:, ::k])) for k in (1, 2)]
        return taken, paths.bias

    def _numbers(self, what: str) -> Heston:
        """The model, or an error if parameters are tensors: only prices are differentiable."""
        if tensors := self._tensors():
            raise InvalidInputError(f"{what} takes numbers, and {', '.join(tensors)} are tensors; price() takes both")
        return self

    def _log_transform(
        self, u: np.ndarray, T: float, atol: float, slopes: bool = False
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Logarithm of the transform at ``u``, its error, and its derivatives."""
        curve = self.xi is not None
        classic = self.H == 0.5 and self.sigma > 0.0 and not curve and not slopes
        weights = (self.kappa, 1.0) if curve else (self.kappa * self.theta, self.v0)
        measure = curve_measure(self.xi) if curve else plain_measure
        c, b = -0.5 * u * (u + 1j), 1j * u * self.rho * self.sigma - self.kappa
        equation = c, b, 0.5 * self.sigma**2, self.H + 0.5, T
        if classic:
            closed = classic_exponent(c, b, equation[2], T, weights)
            if np.all(np.isfinite(closed[0])):
                return *closed, {}
        found = solve_riccati(*equation, weights=weights, atol=atol, measure=measure, slopes=slopes)
        exponent = weights[0] * found.integral + weights[1] * found.right_side
        error = np.minimum(found.error, 1.0)
        if not slopes:
            return exponent, error, {}
        of = found.slopes
        by_name = {
            "T": of["T"],
            "H": of["a"],
            "kappa": found.integral * (1.0 if curve else self.theta) - of["b"],
            "sigma": 1j * u * self.rho * of["b"] + self.sigma * of["g"],
            "rho": 1j * u * self.sigma * of["b"],
        }
        if not curve:
            by_name |= {"v0": found.right_side, "theta": self.kappa * found.integral}
        elif not callable(self.xi):
            by_name["xi"] = exponent / self.xi
        return exponent, error, by_name

    def _check(self, exponent: np.ndarray, T: float) -> None:
        if not np.all(exponent.real < 1.0):
            raise SolveError(
                f"{self} has no valid characteristic function at T={T:g}: its modulus is above 1, so the fractional "
                "Riccati equation was solved to another branch; use a smaller sigma, or a rho farther from -1 and 1"
            )

    def _out_of_money(
        self, strikes: np.ndarray, maturities: np.ndarray, rtol: float, slopes: bool = False
    ) -> tuple[Valuation, dict[str, np.ndarray]]:
        """Undiscounted prices of puts below the forward and of calls above it; derivatives as of :meth:`_invert`."""
        _reading.number("rtol", rtol, least=1e-14, below=1)
        value, error = np.empty(strikes.shape), np.empty(strikes.shape)
        found: dict[str, np.ndarray] = {"at": strikes, "maturity": maturities} if slopes else {}
        for maturity in np.unique(maturities):
            tilts, cuts = self._contours(strikes, float(maturity))
            for tilt in np.unique(tilts[maturities == maturity]):
                here = (maturities == maturity) & (tilts == tilt)
                cut = float(cuts[here].max())
                value[here], error[here], more = self._invert(strikes[here], float(maturity), rtol, tilt, cut, slopes)
                for name, each in more.items():
                    found.setdefault(name, np.empty(strikes.shape))[here] = each
        if (worst := float(np.max(np.exp(-self.r * maturities) * error, initial=0.0))) > rtol * self.S0:
            warn(
                f"the estimated error of prices is {worst:.2g}, above rtol={rtol:g} times S0; see .error of the result"
            )
        return Valuation(value, error), found

    def _price_slopes(self, kind: str, price: Any, slopes: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Derivatives of discounted prices, from those of Lewis' integral I: calls are F - I, puts K - I."""
        K, T = slopes["at"], slopes["maturity"]
        forward, discount = self.forward(T), np.exp(-self.r * T)
        call = 1.0 if kind == "call" else 0.0
        along = discount * (call - slopes["F"]) * forward  # with respect to the logarithm of the forward
        found = {name: -discount * slopes[name] for name in self._free_names()}
        found |= {
            "S0": along / self.S0,
            "gamma": -discount * slopes["FF"] * (forward / self.S0) ** 2,
            "K": discount * (1.0 - call - slopes["K"]),
            "T": along * (self.r - self.q) - self.r * price - discount * slopes["T"],
            "r": T * (along - price),
            "q": -T * along,
        }
        return {name: np.broadcast_to(each, K.shape) for name, each in found.items()}

    def _priced(
        self, strikes: np.ndarray, maturities: np.ndarray, names: tuple[str, ...], rtol: float
    ) -> tuple[Valuation, np.ndarray]:
        """Undiscounted prices out of the money, and their derivatives in parameters along a new last axis."""
        found, slopes = self._out_of_money(strikes, maturities, rtol, bool(names))
        return found, np.stack([-slopes[name] for name in names], -1) if names else np.empty(0)

    def _invert(
        self, K: np.ndarray, T: float, rtol: float, tilt: float, cutoff: float, slopes: bool = False
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Lewis' formula at one maturity, along ``u = sinh(y + i tilt) - i sin(tilt)`` up to the cutoff.

        Undiscounted prices out of the money, their errors, and derivatives of the integral with respect to the
        parameters, T (at a fixed forward), K, the forward F, and F twice.
        """
        forward = float(self.forward(T))
        log_moneyness = np.log(forward / K)
        target = rtol * self.S0 * math.exp(self.r * T)  # of undiscounted prices
        cut = math.asinh(cutoff)
        sums: list[np.ndarray] = []
        inside = np.zeros(K.shape)
        total: dict[str, np.ndarray] = {}
        last = np.zeros(K.shape)
        for level, nodes in enumerate(_NODES):
            step = cut / nodes
            numbers = np.arange(nodes + 1) if level == 0 else np.arange(1, nodes, 2)
            y = step * numbers
            u, weight = contour(y, tilt)
            exponent, error, factors = self._log_transform(u - 0.5j, T, 0.1 * rtol, slopes)
            exponent = exponent + 1j * u * log_moneyness[:, None]
            self._check(exponent, T)
            terms = weight * np.exp(exponent)
            if slopes:
                factors |= {"F": 0.5 + 1j * u, "K": 0.5 - 1j * u, "FF": -u * u - 0.25}
            for name, factor in {"": np.ones(u.size), **factors}.items():
                total[name] = total.get(name, 0.0) + (terms @ factor).real
            inside = inside + (np.abs(terms) * error).sum(axis=-1)
            if level == 0:
                last = np.abs(terms[:, -1])
            sums.append(step * total[""])
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
        value = np.clip(smaller - size * sums[-1], 0.0, smaller)
        scale = {"F": forward, "K": K, "FF": forward**2}
        more = {name: size * step * each / scale.get(name, 1.0) for name, each in total.items() if name}
        return value, error_of_price, more

    def _contours(self, K: np.ndarray, T: float) -> tuple[np.ndarray, np.ndarray]:
        """For each strike the tilt of the contour, and the frequency at which it ends.

        The transform decays slowly near ``rho = -1`` and 1, but fast above or below the real axis.
        """
        log_moneyness = np.log(float(self.forward(T)) / K)
        cuts = np.stack([self._cutoffs(log_moneyness, T, tilt) for tilt in _TILTS])
        # Without a tilt nothing cancels: another contour has to be much shorter.
        cuts[0] /= _WORTHWHILE
        best = np.argmin(cuts, axis=0)
        return np.array(_TILTS)[best], np.where(best == 0, _WORTHWHILE, 1.0) * cuts.min(axis=0)

    def _cutoffs(self, log_moneyness: np.ndarray, T: float, tilt: float) -> np.ndarray:
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
        level, first = (self.theta, self.v0) if self.xi is None else 2 * (float(self.integrated_variance(T)) / T,)
        fall *= self.kappa * level * T + first * T ** (1.0 - a) / special.gamma(2.0 - a)
        fall = 0.5 * (fall - u.imag * log_moneyness[..., None])
        large = fall > -_NEGLIGIBLE
        last = np.where(large.any(axis=-1), real.size - np.argmax(large[..., ::-1], axis=-1), 0)
        return real[np.minimum(last, real.size - 1)]
