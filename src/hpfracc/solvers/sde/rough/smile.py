"""Common parts of the models: strikes and maturities, conversion of prices and volatilities, plots of the smile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypedDict, Unpack

import numpy as np

from hpfracc import _reading
from hpfracc._optional import import_optional
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.rough.barriers import PathValuation, price_barrier
from hpfracc.solvers.sde.rough.black import black_price, check_kind, implied_volatility
from hpfracc.solvers.sde.rough.calibration import Calibration, fit_quotes, read_quotes
from hpfracc.solvers.sde.rough.curves import integral_rule
from hpfracc.solvers.sde.rough.paths import Valuation

__all__ = ["Valuation", "VolatilityModel", "check_model", "price_of", "read_lags", "read_strikes", "volatility_of"]

#: Strikes of a plotted smile lie within this number of standard deviations.
_WIDTH = 3.0
_STRIKES = 41


class Accuracy(TypedDict, total=False):
    """Options of the prices in a calibration: ``tol`` for Heston, the others for Bergomi."""

    tol: float
    paths: int
    steps: int
    rng: int


class VolatilityModel(ABC):
    """A model of a price whose European options have implied volatilities."""

    __slots__ = ()

    #: Options of prices in a calibration.
    _accuracy: ClassVar[dict[str, Any]]

    S0: Any
    r: Any
    q: Any
    xi: Any

    def forward(self, T: Any) -> Any:
        """Forward price :math:`S_0 e^{(r - q) T}`."""
        return self.S0 * np.exp((self.r - self.q) * np.asarray(T, float))[()]

    @abstractmethod
    def forward_variance(self, t: Any) -> Any:
        """Mean of the variance at the times ``t``."""

    def integrated_variance(self, t: Any) -> Any:
        """The integral of the forward variance from 0 to ``t``."""
        times = read_lags(t)
        found = [weights @ self.forward_variance(nodes) for nodes, weights in map(self._rule, times.ravel().tolist())]
        return np.reshape(found, times.shape)[()]

    def _rule(self, T: float) -> tuple[np.ndarray, np.ndarray]:
        return integral_rule(self.xi, T)

    def variance_swap(self, T: Any) -> Any:
        """Fair strike of a variance swap with continuous monitoring: the mean of the forward variance up to ``T``.

        In units of variance: a volatility of 20 % is 0.04. With monitoring at discrete times, sample paths and take
        :meth:`RoughPaths.variance_swap`.
        """
        maturities = read_strikes(1.0, T)[1]
        return (self.integrated_variance(maturities) / maturities)[()]

    @abstractmethod
    def _free_names(self) -> tuple[str, ...]:
        """Parameters that a calibration may change."""

    @abstractmethod
    def implied_volatility(self, K: Any, T: Any) -> Valuation:
        """Black-Scholes volatility of a strike and a maturity."""

    def calibrate(
        self,
        K: Any,
        T: Any,
        volatility: Any,
        *,
        error: Any = None,
        free: Any = None,
        max_evaluations: int = 60,
        **accuracy: Unpack[Accuracy],
    ) -> Calibration:
        """Fit the model to implied volatilities, from its own parameters as the start.

        Least squares of the prices' differences, each divided by the vega of its quote (and by ``error``): near the fit
        those are differences of volatilities, and far from it they are finite. Derivatives are exact for
        :class:`~hpfracc.rough.Heston`; for :class:`~hpfracc.rough.Bergomi` they are differences of samples with the
        same random numbers.

        Parameters
        ----------
        K, T, volatility : array_like
            Strikes, maturities and quoted Black-Scholes volatilities, broadcast against each other.
        error : array_like, optional
            Standard errors of the quotes, which weight them; by default all are alike, of a size that the residuals
            show.
        free : list of str, optional
            Parameters to fit; by default all but ``S0``, ``r``, ``q`` and a forward variance that is no number.
        max_evaluations : int
            Maximum number of surfaces.
        **accuracy
            ``tol`` of the prices of Heston; ``paths``, ``steps`` and the seed ``rng`` of Bergomi.

        Returns
        -------
        Calibration
            ``.model``, ``.parameters`` with ``.standard_errors``, ``.fitted``, ``.residuals``, ``.success``,
            ``.message``.
        """
        for name in accuracy:
            _reading.choice("an option of calibrate", name, self._accuracy)
        limit = _reading.whole("max_evaluations", max_evaluations, least=1)
        return fit_quotes(self, K, T, volatility, error, free, limit, {**self._accuracy, **accuracy})

    def barrier(
        self,
        K: Any,
        T: float,
        level: float,
        *,
        kind: str = "call",
        knock: str = "out",
        paths: int = 32_768,
        steps: int = 128,
        rng: Any = None,
    ) -> PathValuation:
        """Prices of barrier options with continuous monitoring, by sampling.

        Between two points of a path the probability of crossing the barrier is that of a Brownian bridge with the
        path's integrated variance of that step.

        Parameters
        ----------
        K : array_like
            Strikes.
        T : float
            Maturity.
        level : float
            The barrier: an upper one above ``S0``, a lower one below.
        kind : {"call", "put"}
            The option.
        knock : {"out", "in"}
            Whether the option ends or begins when the price reaches the barrier.
        paths, steps : int
            Number of paths and of steps, an even number.
        rng : None, int, numpy.random.Generator or SeedSequence, optional
            Seed of the random numbers.

        Returns
        -------
        PathValuation
            ``value`` and ``error``, which is the sum of ``statistical`` and ``discretisation``.
        """
        return price_barrier(self, K, T, level, kind=kind, knock=knock, paths=paths, steps=steps, rng=rng)

    @abstractmethod
    def _coupled(
        self, T: float, steps: int, count: int, rng: Any, first_path: int
    ) -> tuple[list[tuple[np.ndarray, np.ndarray]], float]:
        """Prices and integrated variances of steps, with ``steps`` and with half of them; bias of volatilities."""

    def plot(self, T: Any, *, K: Any = None, ax: Any = None, **style: Any) -> Any:
        """Plot the smile: implied volatility over log-moneyness, a line for each maturity.

        A band of two errors is drawn if it is visible.

        Parameters
        ----------
        T : array_like
            Maturities.
        K : array_like, optional
            Strikes; by default 41 of them within three standard deviations.
        ax : matplotlib.axes.Axes, optional
            Axes for the plot; new ones by default.
        **style
            Style of the lines, for ``Axes.plot``.

        Returns
        -------
        matplotlib.axes.Axes
        """
        return _plot_smile(self, T, K, ax, style)


def read_lags(t: Any) -> np.ndarray:
    """Times from 0 on as a float64 array."""
    return _reading.numbers("t", t, least=0)


def read_strikes(K: Any, T: Any) -> tuple[np.ndarray, np.ndarray]:
    """Strikes and maturities as float64 arrays of one shape, checked to be positive."""
    strikes, maturities = read_quotes(K=K, T=T)
    return strikes, maturities


def check_model(model: Any, *, finite: tuple[str, ...], positive: tuple[str, ...] = ()) -> None:
    """Raise :class:`InvalidInputError` unless the named fields are finite numbers, and the positive ones above 0."""
    for name in (*finite, *positive):
        value = getattr(model, name)
        _reading.number(name, value, above=0 if name in positive else None)
    _reading.number("rho", model.rho, least=-1, most=1)
    if not 0.0 < model.H <= 0.5:
        raise InvalidInputError(
            f"H={model.H!r} is outside (0, 1/2]; the model is the classical one at 1/2, rough below"
        )


def price_of(model: VolatilityModel, kind: str, strikes: Any, maturities: Any, out_of_money: Valuation) -> Valuation:
    """Discounted prices of calls or puts, from undiscounted prices of out-of-the-money options."""
    check_kind(kind)
    forward = model.forward(maturities)
    inside = np.maximum(forward - strikes, 0.0) if kind == "call" else np.maximum(strikes - forward, 0.0)
    discount = np.exp(-model.r * maturities)
    return Valuation((discount * (out_of_money.value + inside))[()], (discount * out_of_money.error)[()])


def volatility_of(model: VolatilityModel, strikes: Any, maturities: Any, out_of_money: Valuation) -> Valuation:
    """Implied volatilities of undiscounted prices of out-of-the-money options, with their errors."""
    forward = model.forward(maturities)
    # By symmetry, Black's put at strike K has the price of the call with forward and strike exchanged.
    low, high = np.minimum(forward, strikes), np.maximum(forward, strikes)
    volatility = np.asarray(implied_volatility(out_of_money.value, low, high, maturities))
    step = 1e-4 * volatility
    up, down = (black_price(low, high, maturities, volatility + change) for change in (step, -step))
    with np.errstate(divide="ignore", invalid="ignore"):
        error = out_of_money.error * 2.0 * step / (up - down)
    return Valuation(volatility[()], np.asarray(error)[()])


def _plot_smile(model: VolatilityModel, T: Any, K: Any, ax: Any, style: dict[str, Any]) -> Any:
    """Plot implied volatilities over log-moneyness, with a band of two errors if it is visible."""
    pyplot = import_optional("matplotlib.pyplot")
    if ax is None:
        _, ax = pyplot.subplots()
    maturities = np.atleast_1d(np.asarray(T, dtype=float))
    for maturity in maturities:
        forward = model.forward(maturity)
        if K is None:
            at_the_money = float(model.implied_volatility(forward, maturity).value)
            reach = _WIDTH * at_the_money * np.sqrt(maturity)
            strikes = forward * np.exp(np.linspace(-reach, 0.7 * reach, _STRIKES))
        else:
            strikes = np.sort(np.atleast_1d(np.asarray(K, dtype=float)))
        found = model.implied_volatility(strikes, maturity)
        x = np.log(strikes / forward)
        (line,) = ax.plot(x, found.value, label=f"T = {maturity:g}", **style)
        if np.nanmax(found.error) > 1e-3 * np.nanmax(found.value):
            low, high = found.value - 2.0 * found.error, found.value + 2.0 * found.error
            ax.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0.0)
    ax.set_xlabel("log-moneyness ln(K / F)")
    ax.set_ylabel("implied volatility")
    if maturities.size > 1:
        ax.legend()
    return ax
