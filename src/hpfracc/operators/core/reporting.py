"""Reporting the result of an operator: its error estimate, warnings, and the full output."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hpfracc._arrays import to_host
from hpfracc._frames import Opened
from hpfracc.engine.selection.decision import Decision
from hpfracc.errors import AccuracyWarning
from hpfracc.operators.core.grids import known_values
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.values import Samples, largest, real_dtype, scalar

__all__ = [
    "OperatorResult",
    "Outcome",
    "relabelled",
    "report_outcome",
    "rounding_note",
    "rounding_of",
]


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


@dataclass(frozen=True, slots=True, eq=False)
class OperatorResult:
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
    decision : Decision, list of Decision or None
        The decisions of the engine during the call.
    origin : float
        Where the operator starts.
    converged : bool
        Whether the tolerance was met, for callables; True for samples, which have no tolerance.
    message : str
        Remarks for the caller.
    """

    value: Any
    method: str
    error_estimate: Any
    decision: Decision | list[Decision] | None
    origin: float
    converged: bool = True
    message: str = field(default="")


def report_outcome(
    operator: Any,
    value: Any,
    outcome: Outcome,
    estimate: Any,
    *,
    rtol: float | None,
    full_output: bool,
    decisions: list[Decision],
    origin: float,
    note: str,
) -> Any:
    """The value, with a warning if its error is too large; or the :class:`OperatorResult` with ``full_output``."""
    converged, message = outcome.converged, outcome.message
    # Without a tolerance from the caller, only the loss of nearly all digits justifies a warning.
    limit, scale = outcome.rtol, 0.0
    if limit is not None and rtol is None and not full_output:
        limit, scale = LOST, outcome.scale
    if converged and limit is not None and not meets(value, estimate, limit, scale):
        converged = False
        message += f"; rounding leaves an error above rtol={limit:g} of the largest value"
    if not full_output:
        if not converged:
            warn_of(operator, value, estimate, message)
        return value
    decision = decisions[0] if len(decisions) == 1 else decisions or None
    if outcome.note is not None:
        message = _joined(message, outcome.note())
    message = _joined(message, _missing_note(estimate, message), note)
    return OperatorResult(value, outcome.method, estimate, decision, origin, converged, message)


def _missing_note(estimate: Any, message: str) -> str:
    """Where an estimate is missing: at some points, or everywhere if the message has no reason yet."""
    known = known_values(estimate)
    if known is None or not known.ndim or not np.isnan(known).any():
        return ""
    places = np.isnan(known).reshape(-1, known.shape[-1]).any(axis=0)
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
    """Warn, at the user's own call, of a result that may miss its tolerance."""
    size = float(np.max(np.abs(to_host(value)), initial=0.0))
    error = float(np.max(to_host(estimate), initial=0.0))
    known = "its error is not known" if math.isnan(error) else f"its error may be {error:.1g}"
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("hpfracc."):
        frame, level = frame.f_back, level + 1
    warnings.warn(
        f"{type(operator).__name__}: {known}, beside values up to {size:.3g} ({message}); give the largest rtol= that "
        "will do, factor= for a power at the origin, or full_output=True to inspect the estimate yourself",
        AccuracyWarning,
        stacklevel=level,
    )


def rounding_of(rule: Rule, samples: Samples, order: Order) -> Any:
    """The rounding errors of the samples, amplified by a derivative, which grow as the step decreases; 0 if small."""
    alpha = order.known
    if alpha is None or not samples.grid.uniform or not (size := rule.magnification(alpha)):
        return 0.0
    eps = float(np.finfo(real_dtype(samples.values)).eps)
    return largest(samples.values) * (eps * size) * scalar(samples.scale(-alpha), samples.values)


def rounding_note(rule: Rule, samples: Samples, order: Order, value: Any) -> str:
    """A message if amplified rounding errors of the samples dominate the result; else empty."""
    errors, sizes = known_values(rounding_of(rule, samples, order)), known_values(largest(value))
    if errors is None or sizes is None:
        return ""
    lost, size = float(np.max(errors, initial=0.0)), float(np.max(sizes, initial=0.0))
    if lost <= LOST * size:
        return ""
    return (
        f"rounding of the samples alone causes an error of up to {lost:.1g}, beside values up to {size:.1g}: "
        "a longer step, or f as a callable, leaves more digits"
    )
