"""Statistics of a least-squares fit: covariance, and unknowns that the data do not determine."""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

import numpy as np

from hpfracc._choices import LossName

Array = np.ndarray[Any, Any]

#: Losses of ``scipy.optimize.least_squares``.
LOSSES: tuple[str, ...] = get_args(LossName)
#: Singular values below this fraction of the largest, with scaled columns, count as zero: finite differences have about
#: six digits.
_RANK = 3e-6
#: Two estimates with a larger correlation cannot be distinguished by the data.
_ALIKE = 0.999
#: An unknown whose relative effect on the prediction is below this has none beyond rounding, which is about 1e-12 in a
#: difference quotient with a step of 1e-4.
_FELT = 1e-9


class Certainty(NamedTuple):
    """Uncertainty of the estimates.

    Attributes
    ----------
    covariance : array, shape (p, p)
        ``inf`` on the diagonal for unknowns that the data do not determine, ``nan`` at a bound or without degrees of
        freedom.
    correlation : array, shape (p, p)
        Correlation of the estimates.
    spread : float
        Standard deviation of the residuals, in units of ``sigma``.
    complaints : tuple of str
        What the data do not determine, in words.
    """

    covariance: Array
    correlation: Array
    spread: float
    complaints: tuple[str, ...]


def certainty(
    names: tuple[str, ...],
    jacobian: Array,
    residuals: Array,
    predicted: Array,
    sizes: Array,
    at_bound: Array,
    loss: str,
    scale: float,
    absolute: bool,
) -> Certainty:
    """Uncertainty from the problem linearised at the solution; by Huber's formula for robust losses.

    Parameters
    ----------
    jacobian : array, shape (n, p)
        Jacobian of the residuals.
    predicted : array, shape (n,)
        Predictions divided by ``sigma``.
    sizes : array, shape (p,)
        Magnitudes of the unknowns, above 0.
    at_bound : array of bool, shape (p,)
        Unknowns that ended at a bound, and count as fixed.
    scale : float
        ``f_scale`` of the loss.
    absolute : bool
        Whether ``sigma`` is the standard deviation, not only proportional to it.

    References
    ----------
    P. J. Huber, E. M. Ronchetti, Robust Statistics, 2nd ed., Wiley 2009, section 7.6.
    """
    n, p = jacobian.shape
    covariance = np.full((p, p), np.nan)
    correlation = np.full((p, p), np.nan)
    inside = np.flatnonzero(~at_bound)
    free = n - inside.size
    psi, slope = _influence(residuals, loss, scale)
    variance = float(psi @ psi) / free if free > 0 else float("nan")
    spread = float(np.sqrt(residuals @ residuals / free)) if free > 0 else float("nan")
    factor = 1.0 if absolute and loss == "linear" else variance / float(np.mean(slope)) ** 2
    complaints = [f"{names[k]} ended at a bound: it counts as fixed there" for k in np.flatnonzero(at_bound)]
    if not inside.size:
        return Certainty(covariance, correlation, spread, tuple(complaints))
    columns = jacobian[:, inside]
    blind = unfelt(columns, sizes[inside], predicted)
    lengths = np.where(blind, 0.0, np.sqrt(np.sum(columns**2, axis=0)))
    _, values, rows = np.linalg.svd(np.where(blind, 0.0, columns) / (lengths + blind), full_matrices=False)
    rows = rows[: min(n, inside.size)]
    good = values > _RANK * max(float(values[0]), np.finfo(np.float64).tiny)
    lost = np.sum(rows[good] ** 2, axis=0) < 1.0 - 1e-6  # these have a component along a direction without information
    scaled = (rows[good].T / values[good] ** 2) @ rows[good]
    found = factor * scaled / np.outer(lengths + blind, lengths + blind)
    deviations = np.sqrt(np.diagonal(found))
    with np.errstate(invalid="ignore", divide="ignore"):
        shared = found / np.outer(deviations, deviations)
    if lost.any():
        found[lost] = found[:, lost] = np.nan
        found[lost, lost] = np.inf
        shared[lost] = shared[:, lost] = np.nan
        inner = [names[k] for k in inside[lost]]
        complaints.append(
            f"the data do not determine {_listed(inner)}: "
            + ("some combination of them leaves" if len(inner) > 1 else "it leaves")
            + " the fit unchanged; fix one, or observe more"
        )
    np.fill_diagonal(shared, np.where(np.isnan(np.diagonal(shared)), np.nan, 1.0))
    covariance[np.ix_(inside, inside)] = found
    correlation[np.ix_(inside, inside)] = shared
    complaints += [
        f"{names[j]} and {names[i]} are nearly collinear (correlation {correlation[i, j]:.5f}): fix one, or observe "
        "more"
        for i in range(p)
        for j in range(i)
        if abs(correlation[i, j]) > _ALIKE
    ]
    if free <= 0:
        complaints.append(f"{n} data for {inside.size} unknowns leave no degree of freedom: no standard errors")
    return Certainty(covariance, correlation, spread, tuple(complaints))


def unfelt(columns: Array, sizes: Array, predicted: Array) -> Array:
    """Unknowns without an effect beyond rounding."""
    effect = np.sqrt(np.sum(columns**2, axis=0)) * sizes
    return np.asarray(effect <= max(_FELT * float(np.linalg.norm(predicted)), np.finfo(np.float64).tiny))


def _influence(residuals: Array, loss: str, scale: float) -> tuple[Array, Array]:
    """``psi = r rho'(z)`` and its derivative in r, for ``z = (r/scale)^2``."""
    z = (residuals / scale) ** 2
    if loss == "linear":
        first, second = np.ones_like(z), np.zeros_like(z)
    elif loss == "soft_l1":
        first, second = (1.0 + z) ** -0.5, -0.5 * (1.0 + z) ** -1.5
    elif loss == "huber":
        far = np.maximum(z, 1.0)
        first, second = np.where(z <= 1.0, 1.0, far**-0.5), np.where(z <= 1.0, 0.0, -0.5 * far**-1.5)
    elif loss == "cauchy":
        first, second = 1.0 / (1.0 + z), -1.0 / (1.0 + z) ** 2
    else:
        first, second = 1.0 / (1.0 + z**2), -2.0 * z / (1.0 + z**2) ** 2
    return residuals * first, first + 2.0 * z * second


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
