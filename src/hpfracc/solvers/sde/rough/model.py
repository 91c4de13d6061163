"""Common parts of the models: strikes and maturities, conversion of prices and volatilities, plots of the smile."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypedDict, Unpack, cast, final

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import is_tracer, library_of, to_host
from hpfracc._results import new_axes
from hpfracc._xp import array_namespace
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.solvers.sde.noise.process import read_grid
from hpfracc.solvers.sde.noise.source import make_source, read_size
from hpfracc.solvers.sde.rough.black import black_price, implied_volatility, intrinsic
from hpfracc.solvers.sde.rough.calibration import Calibration, fit_quotes, read_quotes
from hpfracc.solvers.sde.rough.sampling import PathValuation, price_barrier

if TYPE_CHECKING:
    from hpfracc._results import Axes

#: Strikes of a plotted smile lie within this number of standard deviations.
_WIDTH = 3.0
_STRIKES = 41


class Accuracy(TypedDict, total=False):
    """Options of the prices in a calibration: ``rtol`` for Heston, the others for Bergomi."""

    rtol: float
    paths: int
    steps: int
    rng: int


class VolatilityModel(ABC):
    """A model of a price whose European options have implied volatilities."""

    __slots__ = ()

    #: Options of prices in a calibration, and the parameters that it changes besides the variance.
    _accuracy: ClassVar[dict[str, Any]]
    _free: ClassVar[tuple[str, ...]]

    S0: Any
    r: Any
    q: Any
    xi: Any

    def forward(self, T: Any) -> Any:
        """Forward price :math:`S_0 e^{(r - q) T}`."""
        return self.S0 * np.exp((self.r - self.q) * np.asarray(T, float))[()]

    def forward_variance(self, t: Any) -> Any:
        r"""Mean :math:`\xi(t)` of the variance at the times ``t``."""
        return curve_values(self.xi, _reading.numbers("t", t, least=0))[()]

    def integrated_variance(self, t: Any) -> Any:
        """The integral of the forward variance from 0 to ``t``."""
        times = _reading.numbers("t", t, least=0)
        rules = [integral_rule(self.xi, T) for T in times.ravel().tolist()]
        return np.reshape([weights @ self.forward_variance(nodes) for nodes, weights in rules], times.shape)[()]

    def variance_swap(self, T: Any) -> Any:
        """Fair strike of a variance swap with continuous monitoring: the mean of the forward variance up to ``T``.

        In units of variance: a volatility of 20 % is 0.04. With monitoring at discrete times, sample paths and take
        :meth:`RoughPaths.variance_swap`.
        """
        maturities = read_quotes(K=1.0, T=T)[1]
        return (self.integrated_variance(maturities) / maturities)[()]

    def _free_names(self) -> tuple[str, ...]:
        """Parameters that a calibration may change."""
        return (*self._free, *(("v0", "theta") if self.xi is None else () if callable(self.xi) else ("xi",)))

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
            ``rtol`` of the prices of Heston; ``paths``, ``steps`` and the seed ``rng`` of Bergomi.

        Returns
        -------
        Calibration
            ``.model``, ``.parameters`` with ``.standard_errors``, ``.fitted``, ``.residuals``, ``.success``,
            ``.message``.
        """
        if tensors := self._tensors():
            names = ", ".join(tensors)
            raise InvalidInputError(f"calibrate starts from numbers, and {names} are tensors; give numbers")
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

    def plot(self, T: Any, *, K: Any = None, ax: Axes | None = None, **style: Any) -> Axes:
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
        ax = new_axes(ax)
        maturities = np.atleast_1d(np.asarray(T, dtype=float))
        for maturity in maturities:
            forward = self.forward(maturity)
            if K is None:
                at_the_money = float(self.implied_volatility(forward, maturity).value)
                reach = _WIDTH * at_the_money * np.sqrt(maturity)
                strikes = forward * np.exp(np.linspace(-reach, 0.7 * reach, _STRIKES))
            else:
                strikes = np.sort(np.atleast_1d(np.asarray(K, dtype=float)))
            found = self.implied_volatility(strikes, maturity)
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

    def _check_parameters(self, *at_least_0: str) -> None:
        """Raise :class:`InvalidInputError` unless all parameters are finite numbers within their limits."""
        limits: dict[str, dict[str, Any]] = {name: {"least": 0} for name in at_least_0}
        limits |= {
            "S0": {"above": 0},
            "rho": {"least": -1, "most": 1},
            "H": {"above": 0, "most": 0.5},
            "r": {},
            "q": {},
        }
        for name, each in limits.items():
            _reading.number(name, getattr(self, name), **each)
        if self.xi is not None:
            object.__setattr__(self, "xi", read_curve(self.xi))

    def _tensors(self, **more: Any) -> dict[str, Any]:
        """Fields of the model and further arguments that are tensors."""
        own = {field.name: getattr(self, field.name) for field in fields(cast(Any, self))}
        found = {name: value for name, value in {**own, **more}.items() if library_of(value) in ("torch", "jax")}
        if len({library_of(value) for value in found.values()}) > 1:
            raise InvalidInputError("parameters are arrays of PyTorch and of JAX; use one library")
        return found

    def _plain(self) -> Self:
        """The model with numbers in place of tensors."""
        scalars = {name: without_tensor(name, value) for name, value in self._tensors().items()}
        for name, value in scalars.items():
            if value.shape:
                raise ShapeError(f"{name} has shape {value.shape}; give one number, and call once for each")
        numbers = {name: float(value) for name, value in scalars.items()}
        return cast(Self, replace(cast(Any, self), **numbers)) if numbers else self

    def _prices(self, kind: str, strikes: Any, maturities: Any, out_of_money: Valuation) -> Valuation:
        """Discounted prices of calls or puts, from undiscounted prices of out-of-the-money options."""
        inside = intrinsic(self.forward(maturities), strikes, kind)
        discount = np.exp(-self.r * maturities)
        return Valuation((discount * (out_of_money.value + inside))[()], (discount * out_of_money.error)[()])

    def _volatilities(self, strikes: Any, maturities: Any, out_of_money: Valuation) -> Valuation:
        """Implied volatilities of undiscounted prices of out-of-the-money options, with their errors."""
        forward = self.forward(maturities)
        # By symmetry, Black's put at strike K has the price of the call with forward and strike exchanged.
        low, high = np.minimum(forward, strikes), np.maximum(forward, strikes)
        volatility = np.asarray(implied_volatility(out_of_money.value, low, high, maturities))
        step = 1e-4 * volatility
        up, down = (black_price(low, high, maturities, volatility + change) for change in (step, -step))
        with np.errstate(divide="ignore", invalid="ignore"):
            error = out_of_money.error * 2.0 * step / (up - down)
        return Valuation(volatility[()], np.asarray(error)[()])

    def _paths(
        self, t: Any, size: Any, rng: Any, first_path: int, numbers: int, draw: Any, bias: float = math.nan
    ) -> RoughPaths:
        """Paths by ``draw(source, rows)``, price, variance and its integral of shape ``(3, rows, n)``, in chunks.

        ``numbers`` is the amount of numbers of a path, from which the size of chunks follows.
        """
        shape = read_size(size)
        count = math.prod(shape)
        source = make_source(rng, None, first_path=first_path, count=count)
        source.check_room(f"{type(self).__name__}.sample", count, 4 * t.size)
        found = source.in_chunks(count, numbers, lambda part, rows: np.swapaxes(draw(part, rows), 0, 1))
        price, variance, integral = (found[:, k].reshape(*shape, t.size) for k in range(3))
        return RoughPaths(t, price, variance, bias, integral)


class Valuation(NamedTuple):
    """A value and its error, of the same shape.

    Attributes
    ----------
    value : ndarray or float
        The estimate.
    error : ndarray or float
        Its absolute error: one standard error for Monte Carlo methods, an estimate of the error otherwise.
    """

    value: Any
    error: Any


class RoughPaths(NamedTuple):
    """Paths of a rough volatility model.

    Attributes
    ----------
    t : ndarray, shape (n,)
        Times.
    S, V : ndarray, shape size + (n,)
        Price and variance.
    bias : float
        For :class:`~hpfracc.rough.Heston`: the largest error of implied volatilities that the steps cause, at the money
        and one standard deviation away, at the first and the last time. It is computed from the characteristic
        functions of scheme and model, so it has no statistical error. nan for :class:`~hpfracc.rough.Bergomi`, whose
        exact prices are unknown: repeat with more times.
    integral : ndarray, shape size + (n,)
        Integral of the variance from 0 on.
    """

    t: np.ndarray
    S: np.ndarray
    V: np.ndarray
    bias: float
    integral: np.ndarray

    def variance_swap(self, *, monitored: bool = False) -> Valuation:
        """Fair strike of a variance swap up to the last time, with its standard error.

        Parameters
        ----------
        monitored : bool
            Whether the variance is the sum of squared logarithmic returns between the times, not the integral.

        Returns
        -------
        Valuation
            Its error is nan for a single path.
        """
        total = (np.diff(np.log(self.S)) ** 2).sum(-1) if monitored else self.integral[..., -1]
        annual = total.ravel() / self.t[-1]
        error = float(annual.std(ddof=1)) / math.sqrt(annual.size) if annual.size > 1 else math.nan
        return Valuation(float(annual.mean()), error)


def read_path_times(t: Any, *, uniform: bool) -> np.ndarray:
    """Increasing times from 0 on as float64; equidistant if required."""
    grid = read_grid(t)
    if grid.times.size < 2 or grid.times[0] != 0.0:
        raise InvalidInputError("t has to have at least two increasing times from 0 on, such as linspace(0, 1, 253)")
    if uniform and grid.step is None:
        raise InvalidInputError("t is not equidistant; sample on linspace(0, T, n) and keep the times you need")
    return grid.times


#: Nodes of the double exponential rule on each piece, and where it ends; algebraic singularities at the ends of a piece
#: cost no digits. 241 nodes integrate products with Chebyshev polynomials of degree 122 to 1e-13.
_NODES, _END = 241, 3.3


@final
@dataclass(frozen=True, eq=False)
class VarianceTable:
    """A forward variance that is linear between times, and constant before the first and after the last."""

    times: np.ndarray
    values: np.ndarray

    def __call__(self, t: Any) -> Any:
        """The forward variance at ``t``."""
        return np.interp(t, self.times, self.values)


def read_curve(curve: Any) -> float | Callable[[Any], Any]:
    """A forward variance: a positive number, a function of an array of times, or a pair ``(times, values)``."""
    if callable(curve):
        found: Callable[[Any], Any] = curve
        return found
    if not isinstance(curve, tuple | list):
        return _reading.number("xi", curve, above=0)
    if len(curve) != 2:
        raise ShapeError(f"xi has {len(curve)} entries; give a number, a function, or a pair (times, values)")
    times, values = (_reading.numbers(f"xi[{k}]", part, ndim=1, least=0) for k, part in enumerate(curve))
    if times.shape != values.shape or not times.size or not np.all(np.diff(times) > 0.0) or not np.all(values > 0.0):
        raise InvalidInputError("xi: give as many positive variances as increasing times")
    return VarianceTable(times, values)


def curve_values(curve: Any, t: np.ndarray) -> np.ndarray:
    """The forward variance at the times ``t``, checked to be finite and positive."""
    found = np.broadcast_to(np.asarray(curve(t) if callable(curve) else curve, dtype=float), t.shape)
    if not (np.isfinite(found) & (found > 0.0)).all():
        last = float(np.max(t, initial=0.0))
        raise InvalidInputError(f"xi(t) is not finite and positive up to t={last:g}; give a positive variance")
    return found


def integral_rule(curve: Any, T: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of integrals over ``[0, T]``, exact at the kinks of a table."""
    kinks = curve.times if isinstance(curve, VarianceTable) else np.empty(0)
    edges = np.concatenate([[0.0], kinks[(kinks > 0.0) & (kinks < T)], [T]])
    y = np.linspace(-_END, _END, _NODES)
    inner = 0.5 * np.pi * np.sinh(y)
    share = 1.0 / (1.0 + np.exp(-2.0 * inner))
    weight = (y[1] - y[0]) * 0.25 * np.pi * np.cosh(y) / np.cosh(inner) ** 2
    width = np.diff(edges)[:, None]
    return (edges[:-1, None] + width * share).ravel(), (width * weight).ravel()


def without_tensor(name: str, value: Any) -> Any:
    """The values of a tensor on the host; anything else unchanged."""
    if library_of(value) not in ("torch", "jax"):
        return value
    held = array_namespace(value).stop_gradient(value)
    if is_tracer(held):
        raise InvalidInputError(f"{name} is traced, and its value is needed; call this outside jax.jit and jax.vmap")
    return np.asarray(to_host(held), dtype=float)


def attach_gradient(value: Any, slopes: dict[str, Any], tensors: dict[str, Any]) -> Any:
    """``value`` as a tensor with the given derivatives with respect to the tensors; second derivatives are nan.

    Parameters
    ----------
    value : ndarray
        The result.
    slopes : dict of ndarray
        Its derivatives, of the same shape, by the name of the tensor.
    tensors : dict
        The tensors, scalars or of a shape that broadcasts to that of the result.
    """
    one = next(iter(tensors.values()))
    xp = array_namespace(one)
    total = xp.asarray(np.array(value), like=one)
    for name, tensor in tensors.items():
        change = tensor - xp.stop_gradient(tensor)
        # The power has the derivative 0 at 0, and times 0 no second one: it is nan, not 0.
        total = total + xp.asarray(np.array(slopes[name]), like=one) * change + 0.0 * xp.abs(change) ** 1.5
    return total
