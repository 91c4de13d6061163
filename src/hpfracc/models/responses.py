"""Models in closed form: a transfer function, and functions of time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hpfracc._reading import choice, function, instance, numbers, shown, text
from hpfracc.errors import ShapeError, UnsupportedDtypeError, warn
from hpfracc.models.base import Model, ModelFit, new_axes
from hpfracc.solvers.fitting.search import SYSTEMATIC, trend_with

if TYPE_CHECKING:
    from hpfracc._results import Axes

__all__ = ["ResponseModel"]

Array = np.ndarray[Any, Any]

#: Random starts of a fit about the values of the model.
_CANDIDATES = 48
#: Relative residuals that shrink so much with the magnitude, in standard deviations, are compared with equal ones.
_SHRINKING = 2.0
_EQUAL = "Equal standard deviations are likelier than ones proportional to the magnitude, and were taken."


@dataclass(frozen=True, eq=False, repr=False)
class ResponseModel(Model):
    r"""A model in closed form: a transfer function of s, and functions of time.

    ``model(s)`` is the first at complex s, so that ``model(1j * w)`` is the response at the angular frequencies w.

    Attributes
    ----------
    transfer : callable
        ``transfer(s, *values)``, with the values in the order of ``parameters``.
    curves : dict of str to callable
        ``curve(t, *values)`` of each quantity in time.
    frequency : str
        Name of the transfer function as a quantity, such as ``"modulus"``.
    """

    transfer: Callable[..., Any]
    curves: dict[str, Callable[..., Any]] = dataclasses.field(default_factory=dict)
    frequency: str = "response"

    def __post_init__(self) -> None:
        super().__post_init__()
        function("transfer", self.transfer, "(s, *values)")
        text("frequency", self.frequency)
        for name, curve in instance("curves", self.curves, dict, "{'relaxation': lambda t, tau: ...}").items():
            function(f"curves[{name!r}]", curve, "(t, *values)")

    @property
    def quantities(self) -> tuple[str, ...]:
        """What can be simulated and fitted: the functions of time, and the response in frequency."""
        return (*self.curves, self.frequency)

    def __call__(self, s: Any) -> Any:
        """The transfer function at complex s."""
        points = np.asarray(s)
        if points.dtype.kind not in "fiuc" or not np.isfinite(points).all():
            raise UnsupportedDtypeError(f"s={shown(s)} is not an array of finite numbers; give complex numbers")
        return self._predict(points.astype(complex), None, *self.values.values())

    def _predict(self, x: Array, curve: str | None, *values: float) -> Any:
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            return self.transfer(x, *values) if curve is None else self.curves[curve](x, *values)

    def _read(self, x: Any, quantity: str) -> tuple[Array, str | None]:
        if quantity == self.frequency:
            return 1j * numbers("w", x, least=0.0), None
        return numbers("t", x, least=0.0), quantity

    def simulate(self, x: Any = None, quantity: str | None = None) -> Any:
        """A quantity at times, or at angular frequencies.

        Parameters
        ----------
        x : array_like, optional
            Times t or angular frequencies w, at least 0; by default 241 over six decades.
        quantity : str, optional
            One of ``quantities``; by default the response in frequency.

        Returns
        -------
        array
            Of the shape of ``x``; complex for the response in frequency.
        """
        chosen = self.frequency if quantity is None else choice("quantity", quantity, self.quantities)
        points, curve = self._read(np.geomspace(1e-3, 1e3, 241) if x is None else x, chosen)
        return self._predict(points, curve, *self.values.values())

    def fit(
        self,
        x: Any,
        data: Any,
        quantity: str | None = None,
        *,
        free: Sequence[str] | None = None,
        sigma: Any = None,
        absolute_sigma: bool = False,
    ) -> ModelFit:
        """Fit the parameters to data by least squares.

        Warns of residuals that are correlated, or that grow or shrink with the magnitude of the data.

        Parameters
        ----------
        x : array_like, shape (n,)
            Times or angular frequencies.
        data : array_like, shape (n,)
            Complex for a response in frequency, real for one in time.
        quantity : str, optional
            One of ``quantities``; by default the response in frequency for complex data, else the first of them.
        free : sequence of str, optional
            The parameters to fit; by default all. The others keep their values.
        sigma : array_like, optional
            Standard deviations of the data, up to a common factor; by default equal ones for data in time, and in
            frequency ones proportional to the magnitude, or equal ones if these are likelier.
        absolute_sigma : bool
            Whether that factor is 1; otherwise it is estimated from the residuals.

        Returns
        -------
        ModelFit
            ``.model .estimates .standard_errors .confidence_intervals() .plot()``; it prints as a table. Searches start
            from the values of the model and from random ones about them, always the same.
        """
        given = np.asarray(data)
        if given.dtype.kind not in "fiuc" or not np.isfinite(given).all():
            raise UnsupportedDtypeError(f"data={shown(data)} is not an array of finite numbers; give floats")
        default = self.frequency if given.dtype.kind == "c" or not self.curves else self.quantities[0]
        chosen = default if quantity is None else choice("quantity", quantity, self.quantities)
        points, curve = self._read(x, chosen)
        if points.ndim != 1 or given.shape != points.shape:
            raise ShapeError(f"x has shape {points.shape} and data {given.shape}; give one value for each point")
        if curve is None:
            given = given.astype(complex)
        elif given.dtype.kind == "c":
            raise UnsupportedDtypeError(f"data are complex and {chosen} is real; give quantity={self.frequency!r}")

        def search(sigma: Any) -> ModelFit:
            return self.least_squares(
                lambda *values: self._predict(points, curve, *values),
                np.abs(points),
                given if curve is None else given.astype(float),
                free=free,
                sigma=sigma,
                absolute_sigma=absolute_sigma,
                quantity=chosen,
                candidates=_CANDIDATES,
                told=False,
            )

        found = search(np.abs(given) if curve is None and sigma is None else sigma)
        if curve is None and sigma is None and not absolute_sigma:
            sizes, relative = np.abs(found.fitted), np.abs(given - found.fitted) / np.abs(found.fitted)
            if np.mean(relative) > SYSTEMATIC and trend_with(relative, sizes) < -_SHRINKING:
                other = search(None)
                equal = math.log(float(np.mean(np.abs(given - other.fitted) ** 2)))
                if equal < math.log(float(np.mean(relative**2))) + 2.0 * float(np.mean(np.log(sizes))):
                    found = dataclasses.replace(other, message=f"{other.message} {_EQUAL}")
        for complaint in found.warnings:
            warn(complaint)
        return found

    def plot(self, x: Any = None, ax: Axes | None = None, quantity: str | None = None, **style: Any) -> Axes:
        """Draw a quantity over six decades, or at ``x``; returns the axes. Needs Matplotlib (extra ``plot``)."""
        chosen = self.frequency if quantity is None else choice("quantity", quantity, self.quantities)
        points = np.geomspace(1e-3, 1e3, 241) if x is None else numbers("x", x, ndim=1)
        return self.draw(new_axes(ax), points, self.simulate(points, chosen), chosen, **style)

    def draw(self, ax: Axes, x: Array, y: Array, quantity: str, **style: Any) -> Axes:
        """Draw values of a quantity into axes: real and imaginary part, or a function of time."""
        if quantity == self.frequency:
            ax.loglog(x, y.real, label=f"Re {quantity}", **style)
            ax.loglog(x, np.abs(y.imag), label=f"|Im {quantity}|", **style)
            ax.set_xlabel("angular frequency")
            ax.legend()
        else:
            ax.loglog(x, y, **style)
            ax.set(xlabel="time", ylabel=quantity)
        return ax
