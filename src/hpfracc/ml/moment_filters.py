"""Filters with fractional memory as a few decaying exponentials, for the optimisers of both libraries."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from hpfracc import _reading

__all__ = ["MAX_EXPONENTIALS", "ExponentialFilter", "flow_filter", "moment_filter", "read_decay", "read_filter_order"]

Array = np.ndarray[Any, Any]

#: Most exponentials of a first moment: together with the second moment at most 3.5 times the state of Adam.
MAX_EXPONENTIALS = 6
#: Number of quadrature nodes before the exponentials are reduced.
_NODES = 160


class ExponentialFilter(NamedTuple):
    """``sum_k w_k x_{n-k}`` with ``w_k = sum_j weights[j] rates[j]^k``.

    Attributes
    ----------
    rates, weights : tuple of float
        The rates lie between 0 and 1.
    """

    rates: tuple[float, ...]
    weights: tuple[float, ...]

    def response(self, count: int) -> Array:
        """The first ``count`` weights."""
        powers = np.array(self.rates)[:, None] ** np.arange(count)
        response: Array = np.array(self.weights) @ powers
        return response

    def total(self, count: int) -> float:
        """The sum of the first ``count`` weights, in closed form."""
        return sum(
            w * (count if p == 1.0 else -math.expm1(count * math.log(p)) / (1.0 - p)) if p > 0.0 else w
            for p, w in zip(self.rates, self.weights, strict=True)
        )


def read_filter_order(order: Any, *, flow: bool = False) -> float:
    """An order from 0 (no memory) to 1 (the memory of the usual optimiser); of a flow, above 0."""
    return _reading.number("fractional_order", order, above=0 if flow else None, least=None if flow else 0, most=1)


def read_decay(name: str, value: Any) -> float:
    """A decay from 0 to below 1."""
    return _reading.number(name, value, least=0, below=1)


@functools.lru_cache(maxsize=256)
def moment_filter(order: float, decay: float) -> ExponentialFilter:
    r"""The filter :math:`((1-b)/(1-b z^{-1}))^a` as at most six exponentials; a single, exact one for a = 0 and a = 1.

    The weights are moments of the beta distribution with parameters a and 1 - a,

    .. math:: \frac{(a)_k}{k!} = \frac{1}{\Gamma(a)\Gamma(1-a)} \int_0^1 x^{k+a-1} (1-x)^{-a} dx,

    so Gauss-Jacobi quadrature gives positive exponentials with rates b x, which balanced truncation reduces.

    Parameters
    ----------
    order : float
        a, from 0 to 1.
    decay : float
        b, from 0 to below 1.
    """
    if order < 1e-8 or decay == 0.0:
        return ExponentialFilter((0.0,), (1.0,))
    if order > 1.0 - 1e-8:  # closer to 0 and 1 the quadrature has too few digits
        return ExponentialFilter((decay,), (1.0 - decay,))
    with np.errstate(invalid="ignore"):  # SciPy divides by zero in a branch it then discards
        nodes, weights = special.roots_jacobi(_NODES, -order, order - 1.0)
    # On [-1, 1] with (1-x)^-a (1+x)^(a-1); the substitution x -> (1+x)/2 leaves no factor, because the powers add to
    # -1.
    scale = (1.0 - decay) ** order / (special.gamma(order) * special.gamma(1.0 - order))
    return _reduced(decay * 0.5 * (1.0 + nodes), scale * weights, MAX_EXPONENTIALS)


@functools.lru_cache(maxsize=64)
def flow_filter(order: float, horizon: int) -> ExponentialFilter:
    r"""The weights :math:`((k+1)^a - k^a)/\Gamma(a+1)`, k below ``horizon``, as exponentials.

    :math:`(k+1)^a - k^a = \frac{a}{\Gamma(1-a)} \int_0^\infty s^{-a-1} (1-e^{-s}) e^{-ks} ds`, by the trapezoidal rule
    in log s, reduced by balanced truncation until the sum of the omitted terms is below ``tolerance``.
    """
    if order == 1.0:
        return ExponentialFilter((1.0,), (1.0,))
    first, last = math.log(1e-7 / horizon), math.log(60.0)
    x = np.linspace(first, last, 2 * _NODES)
    s = np.exp(x)
    spacing = x[1] - x[0]
    weights = spacing * s ** (-order) * -np.expm1(-s)
    weights[[0, -1]] *= 0.5
    # Below the first node both exp(-k s) and (1 - exp(-s))/s are 1: one exponential for the whole interval.
    weights[0] += math.exp((1.0 - order) * first) / (1.0 - order)
    # Above the last node only the first weight remains; the second term is the Euler-Maclaurin correction.
    weights[-1] += math.exp(-order * last) * (1.0 / order + order * spacing**2 / 12.0)
    weights *= order / (special.gamma(1.0 - order) * special.gamma(order + 1.0))
    # Damped during the reduction, which thereby emphasises lags within the horizon.
    damping = math.exp(-1.0 / horizon)
    found = _reduced(damping * np.exp(-s), weights, _NODES, 1e-9)
    return ExponentialFilter(tuple(min(each / damping, 1.0) for each in found.rates), found.weights)


def _reduced(rates: Array, weights: Array, most: int, tolerance: float = 0.0) -> ExponentialFilter:
    """Balanced truncation: the system is symmetric, so the rates stay real and the weights positive.

    References
    ----------
    A. C. Antoulas, Approximation of Large-Scale Dynamical Systems, SIAM 2005, chapter 7.
    """
    roots = np.sqrt(weights)
    gramian = np.outer(roots, roots) / (1.0 - np.outer(rates, rates))
    values, vectors = np.linalg.eigh(gramian)
    values, vectors = values[::-1], vectors[:, ::-1]
    left = 2.0 * (np.sum(np.maximum(values, 0.0)) - np.cumsum(np.maximum(values, 0.0)))  # bounds the error
    kept = min(most, int(np.argmax(left <= max(tolerance, 1e-13) * values[0])) + 1)
    basis = vectors[:, :kept]
    found, turned = np.linalg.eigh(basis.T @ (rates[:, None] * basis))
    parts = (turned.T @ (basis.T @ roots)) ** 2
    return ExponentialFilter(tuple(float(each) for each in found), tuple(float(each) for each in parts))
