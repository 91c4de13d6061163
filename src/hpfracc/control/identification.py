"""Transfer functions, and impedances, from measured data: coefficients and orders with standard errors.

References
----------
D. Valério, M. D. Ortigueira, J. Sá da Costa, J. Comput. Nonlinear Dyn. 3 (2008), doi:10.1115/1.2833906 (Levy's method
for fractional orders); E. C. Levy, IRE Trans. Autom. Control 4 (1959) 37-43 (the linear start).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from scipy import optimize

from hpfracc._interrupts import raise_interrupted
from hpfracc._reading import array, choice, flag, numbers, shown
from hpfracc._results import LabelledArrays, Result, SmallCurve
from hpfracc.control.responses import lsim, step_response
from hpfracc.control.systems import measured, single
from hpfracc.control.transfer import TransferFunction, frequencies
from hpfracc.errors import InvalidInputError, ShapeError

Array = np.ndarray[Any, Any]

#: Smallest ratio of singular values of the scaled Jacobian at which all parameters count as identified.
_IDENTIFIED = 1e-7
#: Number of starts with other orders about the guess, with other delays, and of full searches from the best of them.
_STARTS, _DELAYED, _SEARCHES = 24, 600, 4


@dataclass(frozen=True, eq=False)
class SystemFit(Result):
    """A fitted transfer function.

    Attributes
    ----------
    system : TransferFunction
        The fitted system.
    names : tuple of str
        Its parameters, such as ``"b(0.5)"`` for the coefficient and ``"order of b(0.5)"`` for a power of the start.
    values, standard_errors : numpy.ndarray
        Their values and standard errors.
    covariance : numpy.ndarray
        Their covariance.
    residual : float
        Root mean square of the relative residuals of a frequency response, or of the residuals of a signal.
    identifiable : bool
        Whether the data determine all parameters.
    success : bool
        Whether the search ended at a minimum.
    message : str
        How it ended.
    """

    system: TransferFunction
    names: tuple[str, ...]
    values: Array
    standard_errors: Array
    covariance: Array
    residual: float
    identifiable: bool
    success: bool
    message: str

    _parts: ClassVar[tuple[type, ...]] = (TransferFunction,)

    def _labelled(self) -> LabelledArrays:
        axes = ("parameter", "other_parameter")
        columns = {"value": self.values, "standard_error": self.standard_errors}
        variables = {name: (axes[:1], each) for name, each in columns.items()}
        coords = dict.fromkeys(axes, np.array(self.names))
        return LabelledArrays({**variables, "covariance": (axes, self.covariance)}, coords, "parameter", tuple(columns))

    def _facts(self) -> dict[str, Any]:
        return {"system": str(self.system)} | {
            name: getattr(self, name) for name in ("residual", "identifiable", "success", "message")
        }

    def _curves(self) -> list[SmallCurve]:
        return []

    def __repr__(self) -> str:
        rows = ", ".join(
            f"{name}={value:.6g} ± {error:.2g}"
            for name, value, error in zip(self.names, self.values, self.standard_errors, strict=True)
        )
        return f"SystemFit({self.system}; {rows}; residual {self.residual:.2g})"


def fit_frequency(
    w: Any,
    response: Any,
    model: Any,
    *,
    orders: Literal["free", "fixed"] = "free",
    delays: Literal["free", "fixed"] = "free",
    weights: Any = None,
) -> SystemFit:
    """Fit the coefficients, orders and delays of a transfer function to a frequency response, or to an impedance.

    Parameters
    ----------
    w : array_like, shape (n,)
        Angular frequencies, increasing; None for the data of an FRD.
    response : array_like, shape (n,), or FRD of python-control
        Complex values.
    model : TransferFunction
        The form, with a guess of orders and delays; the coefficients may be any, since a linear fit replaces them. The
        lowest coefficient of the denominator stays 1.
    orders, delays : {"free", "fixed"}
        Whether powers and delays other than 0 are fitted too; equal delays stay equal.
    weights : array_like, optional
        Weight of each residual; by default ``1/|response|``.

    Returns
    -------
    SystemFit

    Examples
    --------
    >>> import numpy as np
    >>> from hpfracc import control
    >>> s, w = control.s, np.geomspace(0.01, 100.0, 60)
    >>> data = (3 / (2 * s**0.7 + 1))(1j * w)
    >>> found = control.fit_frequency(w, data, 1 / (s**0.5 + 1))
    >>> print(found.values.round(6))
    [3.  2.  0.7]
    """
    found = measured(response, "response")
    if found is not None and w is not None and not np.array_equal(w, found[0]):
        raise InvalidInputError(f"w={shown(w)}: the response has frequencies of its own; give w=None")
    points, data = found or (frequencies(w), np.asarray(array("response", response)))
    if data.shape != points.shape or data.dtype.kind not in "fc" or not np.isfinite(data).all():
        raise ShapeError(f"response has shape {data.shape} and w {points.shape}; give one finite value a frequency")
    scale = 1.0 / np.abs(data) if weights is None else numbers("weights", weights, ndim=1, least=0.0)
    if scale.shape != points.shape or not np.isfinite(scale).all():
        raise ShapeError("weights must be finite, one for each frequency; a response of 0 needs weights of its own")
    form = _Form(model, orders, delays)

    def residuals(values: Array) -> Array:
        apart = (form.system(values)(1j * points) - data) * scale
        return np.concatenate([apart.real, apart.imag])

    starts = [
        form.start,
        *(form.linear_start(1j * points, data, scale, k) for k in range(1 + form.starts)),
    ]
    return _fit(form, residuals, starts, 2)


def fit_time(
    u: Any,
    y: Any,
    t: Any,
    model: Any,
    *,
    orders: Literal["free", "fixed"] = "free",
    delays: Literal["free", "fixed"] = "free",
    offset: bool | None = None,
    initial: bool = False,
) -> SystemFit:
    """Fit the coefficients, orders and delays of a transfer function to a measured input and output.

    Parameters
    ----------
    u, y : array_like, shape (n,)
        Input and output at ``t``; the system is at rest before, unless ``initial`` is true.
    t : array_like, shape (n,)
        Increasing times; equal steps are faster.
    model : TransferFunction
        The form, with a guess of coefficients, orders and delays. The lowest coefficient of the denominator stays 1.
    orders, delays : {"free", "fixed"}
        Whether powers and delays other than 0 are fitted too; equal delays stay equal.
    offset : bool, optional
        Whether a constant ``"offset"`` is added to the output; by default if the data have one, by five standard
        errors, and the other parameters are determined beside it.
    initial : bool
        Whether the system starts at a value ``"y(0)"`` of its own: that of Caputo's derivatives, with slopes of 0. An
        input that is a step does not tell it from the gain and an offset.

    Returns
    -------
    SystemFit
    """
    times, inputs, data = (numbers(name, value, ndim=1) for name, value in (("t", t), ("u", u), ("y", y)))
    if not times.shape == inputs.shape == data.shape:
        raise ShapeError(f"t, u, y have shapes {times.shape}, {inputs.shape}, {data.shape}; give equal ones")
    if flag("initial", initial) and any(key[1] for key in single(model, "model").denominator):
        raise InvalidInputError(f"initial=True: {shown(model)} has delays in its denominator, and a history before 0")

    worst = 1e6 * (float(np.abs(data).max(initial=0.0)) or 1.0)

    def fitted(shifted: bool) -> SystemFit:
        form = _Form(model, orders, delays)
        count = form.start.size
        # At rest, the first value is the offset.
        form.add("offset", float(data[0]), shifted)
        form.add("y(0)", 0.0 if shifted else float(data[0]), initial)

        def residuals(values: Array) -> Array:
            system = form.system(values)
            more = values[count:].tolist()
            try:
                found = lsim(system, inputs, times).y + (more[0] if shifted else 0.0)
                if initial:
                    found += more[-1] * (1.0 - step_response(_at_rest(system), times - times[0]).y)
            except InvalidInputError:  # orders that left what a causal system can have
                return np.full(times.shape, 1e-3 * worst)
            with np.errstate(all="ignore"):  # a search may try systems that grow
                return np.asarray(np.clip(np.nan_to_num(found - data, nan=worst), -worst, worst))

        return _fit(form, residuals, [form.start], 1)

    if offset is not None:
        return fitted(flag("offset", offset))
    plain, found = fitted(False), None
    if data.size > plain.values.size and plain.residual > 1e-15 * worst:  # no rounding
        found = fitted(True)
        at = found.names.index("offset")
        if not (found.identifiable and abs(found.values[at]) > 5.0 * found.standard_errors[at]):
            found = None
    return (
        plain if found is None else replace(found, message=f"{found.message} The data have an offset, which is fitted.")
    )


def _at_rest(system: TransferFunction) -> TransferFunction:
    """What pulls an initial value to 0: ``D(0)/D(s)``, whose step response is 1 less what is left of it."""
    constant = system.denominator.get((0.0, 0.0), 0.0)
    return TransferFunction({0.0: constant}, system.denominator)


class _Form:
    """Which numbers of a transfer function are free: coefficients but the lowest of the denominator, powers and delays.

    All terms, those of the denominator behind, have a side, a power, a delay and a coefficient, the last of which is 1.
    """

    def __init__(self, model: Any, orders: str, delays: str) -> None:
        model = single(model, "model")
        if not model.is_real:
            raise InvalidInputError(f"model={shown(model)} has complex coefficients; give real ones")
        terms = [(0, *key, v.real) for key, v in model.numerator.items()]
        terms += [(1, *key, v.real) for key, v in model.denominator.items()]
        self._sides, self._powers, self._lags, values = np.array(terms).T
        free = [
            choice(name, each, ("free", "fixed")) == "free" for name, each in (("orders", orders), ("delays", delays))
        ]
        self._moved = np.flatnonzero(self._powers * free[0])
        self._waits = np.unique(self._lags[self._lags > 0.0]) if free[1] else np.empty(0)
        names = [f"{'ba'[side]}({power:g})" for side, power, _, _ in terms]
        self.names = [*names[:-1], *(f"order of {names[k]}" for k in self._moved)]
        self.names += [f"delay({lag:g})" for lag in self._waits]
        self.coefficients = len(terms) - 1
        self.start = np.concatenate([values[:-1] / values[-1], self._powers[self._moved], self._waits])
        self.starts = _STARTS * bool(self._moved.size) + _DELAYED * bool(self._waits.size)
        # Orders stay positive, and delays are 0 at least.
        self.lowest = np.repeat([-np.inf, 1e-3, 0.0], [self.coefficients, self._moved.size, self._waits.size])

    def add(self, name: str, start: float, wanted: bool) -> None:
        """A further parameter, which is not one of the system."""
        if wanted:
            self.names.append(name)
            self.start, self.lowest = np.append(self.start, start), np.append(self.lowest, -np.inf)

    def _exponents(self, values: Array) -> tuple[Array, Array]:
        """The power and the delay of each term."""
        powers, lags = self._powers.copy(), self._lags.copy()
        own, waits, _ = np.split(values[self.coefficients :], np.cumsum([self._moved.size, self._waits.size]))
        powers[self._moved] = own
        for before, now in zip(self._waits, waits, strict=True):
            lags[self._lags == before] = now
        return powers, lags

    def system(self, values: Array) -> TransferFunction:
        """The transfer function with these parameters."""
        sums: list[dict[tuple[float, float], float]] = [{}, {}]
        factors = [*values[: self.coefficients].tolist(), 1.0]
        for side, power, lag, value in zip(self._sides, *self._exponents(values), factors, strict=True):
            terms = sums[int(side)]
            terms[(power, lag)] = terms.get((power, lag), 0.0) + value
        return TransferFunction(*sums)

    def linear_start(self, points: Array, data: Array, scale: Array, number: int) -> Array:
        """Coefficients by Levy's method with orders and delays about the given ones, weighted by the denominator."""
        found = np.array(self.start)
        if number:
            random, count = np.random.default_rng(number), self.coefficients + self._moved.size
            found[self.coefficients : count] *= random.uniform(0.6, 1.6, self._moved.size)
            # From a tenth of the guess to ten times of it, evenly: a turn of the highest frequency is a minimum.
            even = (number * 0.6180339887498949 ** np.arange(1, self._waits.size + 1)) % 1.0
            found[count:] *= 10.0 ** (2.4 * even - 1.2)
        powers, lags = self._exponents(found)
        terms = np.exp(np.outer(np.log(points), powers) - np.outer(points, lags))
        # N - data (D - its last term) = data times that term.
        columns = terms * np.where(self._sides, -data[:, np.newaxis], 1.0)
        weight, below = np.array(scale), self._sides > 0
        for _ in range(3):
            rows = columns * weight[:, np.newaxis]
            both = np.concatenate([rows.real, rows.imag])
            factors = np.append(np.linalg.lstsq(both[:, :-1], -both[:, -1], rcond=None)[0], 1.0)
            weight = scale / np.maximum(np.abs(terms[:, below] @ factors[below]), 1e-12)
        found[: self.coefficients] = factors[:-1]
        return found


def _fit(form: _Form, residuals: Callable[[Array], Array], starts: list[Array], parts: int) -> SystemFit:
    """The best fit from some starts; each datum has one residual, or ``parts`` of them."""

    def size(found: Array) -> float:
        return float(np.sqrt(parts * np.mean(found**2)))

    if residuals(starts[0]).size < starts[0].size:
        raise InvalidInputError(
            f"{starts[0].size} parameters need as many data at least; give more, or a smaller model"
        )
    best = sorted(starts, key=lambda start: float(np.nan_to_num(np.linalg.norm(residuals(start)), nan=np.inf)))
    options: dict[str, Any] = {"x_scale": "jac", "xtol": 1e-14, "ftol": 1e-14, "gtol": 1e-14}
    tried: list[Any] = []
    leading: list[Any] = [math.inf, best[0]]

    def followed(values: Array) -> Array:
        found = residuals(values)
        if size(found) < leading[0]:
            leading[:] = size(found), values.copy()
        return found

    try:
        for start in best[:_SEARCHES]:
            tried.append(optimize.least_squares(followed, start, bounds=(form.lowest, np.inf), **options))
            if size(tried[-1].fun) < 1e-9:
                break
    except KeyboardInterrupt:
        off, values = leading
        unknown, message = np.full((values.size,) * 2, math.nan), "Interrupted: these are the best values so far."
        names = tuple(form.names)
        part = SystemFit(form.system(values), names, values, unknown[0], unknown, off, False, False, message)
        raise_interrupted(message, part)
    found = min(tried, key=lambda each: float(each.cost))
    jacobian, values = found.jac, found.x
    lengths = np.linalg.norm(jacobian, axis=0)
    lengths[lengths == 0.0] = 1.0
    singular = np.linalg.svd(jacobian / lengths, compute_uv=False)
    identifiable = bool(singular[-1] > _IDENTIFIED * singular[0])
    freedom = max(found.fun.size - values.size, 1)
    covariance = np.full((values.size,) * 2, math.nan)
    if identifiable:
        covariance = np.linalg.inv(jacobian.T @ jacobian) * float(found.fun @ found.fun) / freedom
    message = str(found.message)
    if not identifiable:
        message += " The data do not determine all parameters: fix some orders, or drop a term."
    told = size(found.fun), identifiable, bool(found.success), message
    errors = np.sqrt(np.diag(covariance))
    return SystemFit(form.system(values), tuple(form.names), values, errors, covariance, *told)
