"""The H2 and the H-infinity norm."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc.control.frequency import _grid, _peak, _scales
from hpfracc.control.stability import is_stable
from hpfracc.control.systems import as_systems
from hpfracc.control.transfer import Terms, TransferFunction
from hpfracc.errors import InvalidInputError, ShapeError

Array = np.ndarray[Any, Any]

#: Most panels of the H2 norm that follow the turns of a delay.
_MOST_PANELS = 1e5
#: Points of Gauss and Legendre in a panel of the H2 norm.
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(8)


def h2_norm(systems: Any) -> float:
    r""":math:`(\pi^{-1} \int_0^\infty |G(i\omega)|^2 d\omega)^{1/2}`, the energy of the impulse response.

    Parameters
    ----------
    systems : TransferFunction or array of them
        Stable, and falling faster than :math:`s^{-1/2}`. The squares of an array's entries are summed.

    Returns
    -------
    float
        To about 10 digits; to about 7 with delays that do not only shift the response.

    Examples
    --------
    >>> from hpfracc import control
    >>> print(round(control.h2_norm(1 / (control.s + 1)) ** 2, 9))
    0.5
    """
    total = 0.0
    for system in as_systems(systems).flat:
        _require_stable(system, "h2_norm")
        if system.relative_degree <= 0.5:
            raise InvalidInputError(
                f"{system} falls like s^-{system.relative_degree:g}, and its impulse response has infinite energy; the "
                "relative degree must be above 1/2"
            )
        both = [system] if system.is_real else [system, _conjugate(system)]  # negative frequencies too
        total += sum(map(_energy, both)) / len(both)
    return math.sqrt(total / math.pi)


def _conjugate(system: TransferFunction) -> TransferFunction:
    """The system with conjugate coefficients, whose responses are those at negative frequencies."""
    rows = [{key: np.conj(v) for key, v in terms.items()} for terms in (system.numerator, system.denominator)]
    return TransferFunction(*rows)


def _energy(system: TransferFunction) -> float:
    """The integral of ``|G|^2`` over positive frequencies."""
    if not system.numerator:
        return 0.0
    # A delay of everything changes nothing.
    wait = min(key[1] for key in system.numerator)
    system = system * TransferFunction({(0.0, -wait): 1.0}, {0.0: 1.0})
    grid = _grid(system)
    _, high, lag = _scales(system)
    if lag > 0.0:
        turns = 1.5 / lag * np.arange(1.0, max(2.0, min(_MOST_PANELS, 1e4 * high * lag / 1.5)))
        grid = np.unique(np.concatenate([grid[grid < turns[-1]], turns]))
    grid = np.log(grid)
    edges = np.concatenate([grid[0] - np.arange(40.0, 0.0, -0.5), grid])
    inside = _gauss(edges, lambda w: np.abs(system(1j * w)) ** 2)
    # Beyond all turns of delays, their average.
    parts: dict[float, Terms] = {}
    for (power, lag), value in system.numerator.items():
        parts.setdefault(lag, {})[power, 0.0] = value
    below = {key: value for key, value in system.denominator.items() if not key[1]}
    means = [TransferFunction(above, below) for above in parts.values()]
    far = grid[-1] + np.arange(0.0, 80.5, 0.5)
    beyond = _gauss(far, lambda w: sum((np.abs(mean(1j * w)) ** 2 for mean in means), np.zeros(())))
    # Powers of the frequency at the ends.
    low = min(key[0] for key in system.numerator) - min(key[0] for key in system.denominator)
    first, last = np.exp(edges[0]), np.exp(far[-1])
    ends = abs(complex(system(1j * first))) ** 2 * first / (1.0 + 2.0 * low)
    rest = sum(abs(complex(mean(1j * last))) ** 2 for mean in means) * last / (2.0 * system.relative_degree - 1.0)
    return float(inside + beyond + ends + rest)


def _gauss(edges: Array, density: Callable[[Array], Array]) -> float:
    """The integral over frequencies, in panels of their logarithm."""
    half = 0.5 * np.diff(edges)[:, np.newaxis]
    w = np.exp(edges[:-1, np.newaxis] + half * (_POINTS + 1.0))
    return float((density(w) * w * half * _WEIGHTS).sum())


def hinf_norm(systems: Any) -> float:
    """The largest ``|G(i w)|``, of a stable system; the largest singular value of an array of systems.

    Examples
    --------
    >>> from hpfracc import control
    >>> print(round(control.hinf_norm(1 / (control.s**2 + 0.1 * control.s + 1)), 6))
    10.012523
    """
    systems = as_systems(systems)
    if systems.ndim > 2:
        raise ShapeError(f"systems has shape {systems.shape}; give one system, or a matrix (outputs, inputs)")
    grid = np.unique(np.concatenate([_grid(_require_stable(each, "hinf_norm")) for each in systems.flat]))
    found = [_largest(systems, grid)]
    if not all(each.is_real for each in systems.flat):  # negative frequencies too
        found.append(_largest(np.array([_conjugate(each) for each in systems.flat]).reshape(systems.shape), grid))
    return max(found)


def _largest(systems: Array, grid: Array) -> float:
    """The largest gain over positive frequencies, 0 and infinity."""

    def gain(w: Array) -> Array:
        return size(np.array([each(1j * w) for each in systems.flat]))

    def size(values: Array) -> Array:
        matrices = np.moveaxis(values.reshape(*systems.shape, -1), -1, 0)
        if systems.ndim < 2:
            return np.asarray(np.linalg.norm(matrices.reshape(len(matrices), -1), axis=1))
        return np.asarray(np.linalg.svd(matrices, compute_uv=False).max(axis=-1))

    ends = np.array([[each(0.0), _limit(each)] for each in systems.flat])
    return max(_peak(gain, grid), float(size(ends).max()))


def _limit(system: TransferFunction) -> float:
    """The largest gain at infinite frequencies, for some turn of each delay."""
    highest = max(key[0] for key in system.denominator)
    above = sum(abs(value) for (power, _), value in system.numerator.items() if power == highest)
    below = [abs(value) for (power, _), value in system.denominator.items() if power == highest]
    return above / (below[0] - sum(below[1:]))


def _require_stable(system: TransferFunction, what: str) -> TransferFunction:
    found = is_stable(system)
    if not found:
        raise InvalidInputError(
            f"{what} of {system}: it is not stable ({found.reason}); close a loop that is stable first"
        )
    return system
