"""Reporting the result of an operator: its error estimate, warnings, and the full output."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hpfracc._arrays import device_of, to_host
from hpfracc._choices import FloatOrArray
from hpfracc._frames import Opened, has_labels
from hpfracc._results import LabelledArrays, Result, SmallCurve, as_html, new_axes
from hpfracc._xp import array_namespace
from hpfracc.engine.selection.decision import Decision
from hpfracc.errors import InvalidInputError, warn
from hpfracc.operators.core.grids import known_values
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.values import Samples, constant, largest, real_dtype

if TYPE_CHECKING:
    from hpfracc._results import Axes, DataFrame, Dataset


@dataclass(frozen=True, slots=True)
class Outcome:
    """The value of an operator, with its points along the last axis, and how it was computed.

    ``error`` computes the estimate of the absolute error, broadcastable to ``value``; it is called only on demand.
    """

    value: Any
    method: str
    error: Callable[[], Any] | None = None
    converged: bool = True
    message: str = ""
    #: The requested error relative to the largest value, if any.
    rtol: float | None = None
    #: The size of the result for functions as large as f: errors are relative to it if the value is 0.
    scale: float = 0.0
    #: An addition to the message, computed on demand.
    note: Callable[[], str] | None = None
    #: Whether the values are known: the error of traced ones is not.
    looked: bool = True
    #: Applies the same rule to other samples of this length and dtype, on any uniform grid; None if that is not
    #: allowed.
    reusable: Any = None

    def changed(self, value: Any, growth: Any = 1.0, **others: Any) -> Outcome:
        """The outcome with another value, whose errors are ``growth`` times those of this one."""
        error = self.error
        grown = None if error is None else lambda: error() * growth
        return replace(self, value=value, error=grown, reusable=None, **others)


def combined_outcome(parts: Sequence[Outcome], value: Any, error: Callable[[], Any], message: str) -> Outcome:
    """The outcome of a callable that was put together from those of several parts; it knows what all of them know."""
    return Outcome(
        value,
        parts[0].method if len({part.method for part in parts}) == 1 else "graded",
        error if all(part.error is not None for part in parts) else None,
        all(part.converged for part in parts),
        message,
        parts[0].rtol,
        looked=all(part.looked for part in parts),
    )


def weighted_outcome(parts: Sequence[tuple[Outcome, Any]], message: str) -> Outcome:
    """The sum of the outcomes, each times a number or one for each point, and the sum of their errors."""

    def error() -> Any:
        return sum(abs(share) * one.error() for one, share in parts if one.error is not None)

    outcomes, (first, share) = [one for one, _ in parts], parts[0]
    with np.errstate(invalid="ignore"):
        total = sum((one.value * share for one, share in parts[1:]), first.value * share)
    message = f"{message}; the first: {first.message}" if first.message else message
    return combined_outcome(outcomes, total, error, message)


@dataclass(frozen=True, slots=True, eq=False)
class OperatorResult(Result):
    """The result with ``full_output=True``.

    Attributes
    ----------
    value : array
        The value, as without ``full_output``.
    method : str
        The method that ran.
    error_estimate : array or float
        Estimate of the absolute error, broadcastable to ``value`` with its points along the last axis; nan where there
        is none: at the first points, or for a method without an estimate. For a derivative of samples it includes the
        amplified rounding errors, some eps step^-alpha times the largest sample: from order 5 on these often dominate,
        and the message then says so.
    decision : Decision or None
        The decision of the engine during the call; its ``parts`` if there were several engine calls.
    origin : float
        Where the operator starts.
    converged : bool
        Whether the tolerance was met, for callables; True for samples, which have no tolerance.
    message : str
        Remarks for the caller.
    t : array or None
        The points; None if they are not known, such as for a step that JAX traces, or lie along several axes.
    axis : int
        The axis of ``value`` along which they lie.
    """

    value: Any
    method: str
    error_estimate: FloatOrArray
    decision: Decision | None
    origin: float
    converged: bool = True
    message: str = ""
    t: Any = None
    axis: int = -1

    def _labelled(self) -> LabelledArrays:
        values = to_host(self.value)
        if not values.ndim:
            values = values[None]
        place = self.axis % values.ndim
        dims = tuple("t" if axis == place else f"axis_{axis}" for axis in range(values.ndim))
        # The estimate has its points last.
        shape = (*np.delete(values.shape, place), values.shape[place])
        errors = np.moveaxis(np.broadcast_to(to_host(self.error_estimate), shape), -1, place)
        variables = {"value": (dims, values), "error_estimate": (dims, errors)}
        points = None if self.t is None else np.atleast_1d(to_host(self.t))
        coords = {"t": points} if points is not None and points.ndim == 1 else {}
        return LabelledArrays(variables, coords, "t", tuple(variables))

    def _facts(self) -> dict[str, Any]:
        facts = {"method": self.method, "shape": str(tuple(np.shape(self.value))), "origin": float(self.origin)}
        error = _largest_error(self.error_estimate)
        if error is not None:
            facts["largest_error_estimate"] = error
        return {**facts, "converged": bool(self.converged), "message": self.message}

    def _state(self) -> dict[str, Any]:
        # The engine's decisions belong to the machine that made them.
        return {**Result._state(self), "decision": None}

    def _curves(self) -> list[SmallCurve]:
        return [] if known_values(self.value) is None else Result._curves(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """The value as a NumPy array, without its gradient."""
        if copy is False and device_of(self.value) != "cpu":
            raise InvalidInputError(f"copy=False, and the value is on {device_of(self.value)}; omit copy=")
        return np.array(to_host(self.value), dtype, copy=copy)

    def plot(self, ax: Axes | None = None, **style: Any) -> Axes:
        """Draw the value over t, and its estimated error as a band; returns the axes.

        The band is drawn for one row of real values. Needs Matplotlib (extra ``plot``).
        """
        axes = new_axes(ax)
        _, t, blocks = self._table()
        values, errors = (blocks[name][2] for name in ("value", "error_estimate"))
        parts = {"Re": values.real, "Im": values.imag} if values.dtype.kind == "c" else {"value": values}
        for name, rows in parts.items():
            axes.plot(t, rows, **{"label": name, **style})
        if values.shape[1] == 1 and len(parts) == 1:
            low, high = values - errors, values + errors
            axes.fill_between(t, low[:, 0], high[:, 0], alpha=0.3, linewidth=0.0, color=axes.lines[-1].get_color())
        elif len(parts) > 1:
            axes.legend()
        axes.set(xlabel="t", ylabel="value")
        return axes

    def to_xarray(self) -> Dataset:
        """The value and its error estimate as an xarray ``Dataset``; labels of the samples are kept."""
        if not has_labels(self.value):
            return Result.to_xarray(self)
        value = self.value if hasattr(self.value, "coords") else self.value.to_xarray()
        # A frame gives a Dataset of its columns.
        return value if hasattr(value, "data_vars") else value.rename("value").to_dataset()

    def to_dataframe(self) -> DataFrame:
        """The value and its error estimate as a pandas ``DataFrame``; labels of the samples are kept."""
        if not has_labels(self.value):
            return Result.to_dataframe(self)
        if hasattr(self.value, "to_frame"):
            return self.value.to_frame("value")
        return self.value.copy() if hasattr(self.value, "columns") else self.to_xarray().to_dataframe()

    def __repr__(self) -> str:
        error = _largest_error(self.error_estimate)
        told = "" if error is None else f", error_estimate up to {error:.1e}"
        state = "" if self.converged else ", not converged"
        shape = tuple(np.shape(self.value))
        return f"OperatorResult(method={self.method!r}, value of shape {shape}, origin={self.origin}{told}{state})"


def operator_as_html(operator: Any) -> str:
    """An operator in notebooks: its formula, and its fields."""
    facts = {each.name: getattr(operator, each.name) for each in fields(operator)}
    return as_html(type(operator).__name__, {"definition": f"${operator.formula}$", **facts})


def _largest_error(estimate: Any) -> float | None:
    """The largest estimate that is known; None if there is none."""
    known = known_values(estimate)
    if known is None or not np.isfinite(known).any():
        return None
    return float(np.max(known[np.isfinite(known)]))


def report_outcome(operator: Any, outcome: Outcome, result: OperatorResult, rtol: float | None, full: bool) -> Any:
    """The result with its message, or with ``full`` false its value; warns if the error of that is too large."""
    converged, message = outcome.converged, outcome.message
    # Without a tolerance from the caller, only the loss of nearly all digits justifies a warning.
    limit, scale = outcome.rtol, 0.0
    if limit is not None and rtol is None and not full:
        limit, scale = LOST, outcome.scale
    if converged and limit is not None and not meets(result.value, result.error_estimate, limit, scale):
        converged = False
        message += f"; rounding leaves an error above rtol={limit:g} of the largest value"
    if not full:
        if not converged:
            warn_of(operator, result.value, result.error_estimate, message)
        return result.value
    if outcome.note is not None:
        message = _joined(message, outcome.note())
    message = _joined(message, _missing_note(result.error_estimate, message), result.message)
    return replace(result, converged=converged, message=message)


def _missing_note(estimate: Any, message: str) -> str:
    """Where an estimate is missing: at some points, or everywhere if the message has no reason yet."""
    known = known_values(estimate)
    if known is None or not np.isnan(known).any():
        return ""
    missed = np.isnan(np.atleast_1d(known))
    places = missed.reshape(-1, missed.shape[-1]).any(axis=0)
    count, missing = places.size, int(places.sum())
    if missing == count:
        return "" if message else "no error estimate: too few samples, or some that are not finite"
    where = ", the first" if places[:missing].all() else ", the last" if places[-missing:].all() else ""
    return f"no error estimate at {missing} of {count} points{where}"


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def relabelled(opened: Opened, result: Any) -> Any:
    """The result of an operator with the labels of its samples; the full output says how the points were read."""
    if not isinstance(result, OperatorResult):
        return opened.close(result)
    return replace(result, value=opened.close(result.value), message=_joined(result.message, opened.note))


#: Draws of noise: their standard deviation has a relative error of 1/sqrt(2 draws).
_DRAWS = 128
#: Rounding errors above this fraction of the largest value are reported.
LOST = 1e-3


def meets(value: Any, estimate: Any, rtol: float, scale: float = 0.0) -> bool:
    """Whether the estimated error is within ``rtol`` of the largest finite value; True if they are unknown.

    Within ``rtol`` of ``scale`` if all values are 0, because relative to them no error would be acceptable.
    """
    values, estimates = known_values(value), known_values(estimate)
    if values is None or estimates is None:
        return True
    sizes, error = np.abs(values), float(np.max(estimates, initial=0.0))
    return math.isnan(error) or error <= rtol * (float(np.max(sizes[np.isfinite(sizes)], initial=0.0)) or scale)


def warn_of(operator: Any, value: Any, estimate: Any, message: str) -> None:
    """Warn of a result that may miss its tolerance."""
    sizes = np.abs(to_host(value))
    size, error = (float(np.max(part, initial=0.0)) for part in (sizes[np.isfinite(sizes)], to_host(estimate)))
    known = "its error is not known" if math.isnan(error) else f"its error may be {error:.1g}"
    warn(
        f"{type(operator).__name__}: {known}, beside values up to {size:.3g} ({message}); give the largest rtol= that "
        "will do, factor= for a power at the origin, or full_output=True to inspect the estimate yourself"
    )


def rounding_of(rule: Rule, samples: Samples, order: Order) -> Any:
    """The result for rounding errors of the samples with alternating signs, which derivatives amplify most."""
    if order.known is None:
        return 0.0
    x = samples.values
    rounding = largest(x) * float(np.finfo(real_dtype(x)).eps)
    signs = replace(samples, values=constant(1.0 - 2.0 * (np.arange(samples.n) % 2), x), recorded=None)
    with np.errstate(invalid="ignore"):
        found = abs(rule.linear().apply(signs, order))
    return rounding * array_namespace(x).where(abs(found) < math.inf, found, 0.0)


def propagated_noise(apply: Callable[[Samples], Outcome], samples: Samples, value: Any, sigma: float) -> Any:
    """The standard deviation of ``value`` if the samples have noise of this one, by draws of it.

    An operator with fitted derivatives at its start depends on the samples, so that it has no fixed weights.
    """
    draws = sigma * np.random.default_rng(0).standard_normal((_DRAWS, *(1,) * (samples.values.ndim - 1), samples.n))
    noisy = replace(samples, values=samples.values + constant(draws, samples.values), recorded=None)
    with np.errstate(invalid="ignore"):  # inf - inf at the origin
        return ((abs(apply(noisy).value - value) ** 2).sum(0) / _DRAWS) ** 0.5


def rounding_note(rounding: Any, value: Any) -> str:
    """A message if amplified rounding errors of the samples dominate the result; else empty."""
    errors, sizes = known_values(rounding), known_values(largest(value))
    if errors is None or sizes is None:
        return ""
    lost, size = float(np.max(errors, initial=0.0)), float(np.max(sizes, initial=0.0))
    if lost <= LOST * size:
        return ""
    return (
        f"rounding of the samples alone causes an error of up to {lost:.1g}, beside values up to {size:.1g}: "
        "a longer step, or f as a callable, leaves more digits"
    )
