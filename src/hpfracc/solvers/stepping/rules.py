"""The polynomials of adaptive steps: their integrals against a kernel, and the degrees that are stable."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hpfracc.history.states import WITHIN

Array = np.ndarray[Any, Any]

#: Highest degree of the polynomials.
HIGHEST = 5
#: Contractions up to which a degree is stable, the degrees.
CONTRACTIONS = (0.5, 0.9, 2.0)
_DEGREES = (HIGHEST, 3, 2, 1)
#: The right-hand side jumps if it changes by this multiple of its previous changes.
JUMP = 4.0


class StepRules(NamedTuple):
    r"""The integrals over a step of the polynomials through its end and the points before, for one kernel.

    Times are counted backwards from the end of the step in units of its length, :math:`x = (t_{n+1} - t)/h`: the
    points lie at :math:`x_0 = 0, x_1 = 1, x_2, \dots` Integrals are in units of the kernel's over the step.

    Attributes
    ----------
    differences : numpy.ndarray, shape (R, R)
        Row r maps the values at the points to the divided difference :math:`F[x_0, \dots, x_r]`.
    polynomials : numpy.ndarray, shape (R, R)
        Row r holds the coefficients of :math:`\prod_{i<r} (x - x_i)` in powers of x.
    shares : numpy.ndarray, shape (R, 1)
        The integrals of these products: what each divided difference contributes.
    sums : numpy.ndarray, shape (R, R)
        Row k maps the values to the integral of the polynomial of degree k.
    ahead : numpy.ndarray, shape (R, 2, R - 1)
        For each degree, what the earlier values contribute to the integral; and what the newest one is expected to.
    seen : numpy.ndarray, shape (R + 3, R)
        The ``differences``; then the change of the newest value, and how large each of the two changes before makes it
        at most, unless it jumps.
    powers : numpy.ndarray, shape (R, R + 2)
        Maps divided differences to coefficients in powers of x; the first two columns are those of ``1 - x`` and x.
    newest : list of float
        The weight of the newest value in the integral, for each degree.
    """

    differences: Array
    polynomials: Array
    shares: Array
    sums: Array
    ahead: Array
    seen: Array
    powers: Array
    newest: list[float]


def divided_differences(nodes: Sequence[float]) -> tuple[Array, Array]:
    """Differences and polynomials of :class:`StepRules`, for points at ``nodes``, which start with 0, 1."""
    count, rows, products = len(nodes), [[1.0]], [[1.0]]
    for r in range(1, count):
        node, row, last = nodes[r], [], 1.0
        for before, each in zip(rows[-1], nodes[:r], strict=True):
            row.append(before / (each - node))
            last *= node - each
        rows.append([*row, 1.0 / last])
        products.append([0.0, *products[-1]])
        for q, each in enumerate(products[-2]):
            products[-1][q] -= nodes[r - 1] * each
    found = np.array([[[*row, *[0.0] * (count - len(row))] for row in each] for each in (rows, products)])
    return found[0], found[1]


@functools.lru_cache(maxsize=256)
def make_rules(nodes: tuple[float, ...], profile: bytes) -> StepRules:
    """The rules of a step for points at ``nodes`` and a kernel with this ``profile``."""
    count = len(nodes)
    differences, polynomials = divided_differences(nodes)
    shares = (polynomials @ np.frombuffer(profile)[:count])[:, np.newaxis]
    sums = np.cumsum(shares * differences, axis=0)
    omitted = differences[[*range(1, count), count - 1]]  # where it is 0, the values are continued
    ahead = np.empty((count, 2, count - 1))
    ahead[:, 0], ahead[:, 1] = sums[:, 1:], -sums[:, :1] * omitted[:, 1:] / omitted[:, :1]
    seen, powers = np.zeros((count + 3, count)), np.zeros((count, count + 2))
    seen[:count], seen[count, :2] = differences, (1.0, -1.0)
    for r in range(1, min(count - 1, 3)):
        limit = JUMP / (nodes[r + 1] - nodes[r])
        seen[count + r, r : r + 2] = limit, -limit
    powers[:, 2:], powers[0, 0], powers[1, :2] = polynomials.T, 1.0, (-1.0, 1.0)
    return StepRules(differences, polynomials, shares, sums, ahead, seen, powers, sums[:, 0].tolist())


@functools.lru_cache(maxsize=256)
def make_bulges(nodes: tuple[float, ...], profile: bytes, between: bytes) -> tuple[Array, list[float]]:
    """By how much what a polynomial omits is larger within the step than at its end, for each divided difference.

    That is of the integrals, at least 1; then of the polynomials themselves, in units of the divided differences.
    """
    rules = make_rules(nodes, profile)
    inside = np.abs(np.frombuffer(between).reshape(WITHIN.size, -1)[:, : len(nodes)] @ rules.polynomials.T).max(axis=0)
    inner = np.abs(WITHIN[:, np.newaxis] ** np.arange(len(nodes)) @ rules.polynomials.T).max(axis=0)
    return np.maximum(inside / np.abs(rules.shares[:, 0]), 1.0), inner.tolist()


def stable_degrees(alpha: float) -> list[int]:
    """The highest stable degrees for ``D^alpha y = -z y``, z times the newest weight up to ``CONTRACTIONS`` and above.

    Measured with constant steps: degrees 1, 2, 3 are stable for all z up to the orders 1, 1/2 and 0.3; for higher
    orders up to a limit.
    """
    few = 3 if alpha <= 0.3 else 2 if alpha <= 0.5 else 1
    return [max(each, few) for each in _DEGREES]
