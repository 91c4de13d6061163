"""The likelihood of tracks of fractional Brownian motion with localisation errors, gaps and drift."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import fft

Array = np.ndarray[Any, Any]

#: Numbers in memory at a time.
_TOGETHER = 1 << 19
#: Nodes and weights on (0, 1): for smooth functions, and for powers at both ends.
_SMOOTH = tuple(0.5 * each for each in np.polynomial.legendre.leggauss(6))
_SMOOTH = _SMOOTH[0] + 0.5, _SMOOTH[1]
_W, _V = (0.5 * each for each in np.polynomial.legendre.leggauss(64))
_W = _W + 0.5
_SUM = _W**6 + (1.0 - _W) ** 6
_GRADED = _W**6 / _SUM, _V * 6.0 * (_W * (1.0 - _W)) ** 5 / _SUM**2


class Group(NamedTuple):
    """Increments of equal length: rows (R, n), columns (C, n) of nuisances, and those of each row (R, m) or -1."""

    rows: Array
    columns: Array
    own: Array
    #: The fit that each row belongs to, and how many rows each stands for.
    owner: Array
    repeats: float


def grouped(tracks: Sequence[Array], drift: bool, most: int | None = None, each: bool = False) -> list[Group]:
    """Tracks by their length, long ones in pieces of at most ``most`` increments; ``each``: a fit for each track."""
    by_length: dict[int, list[tuple[Array, Array, int]]] = {}
    for number, track in enumerate(tracks):
        n = track.shape[1] - 1
        edges = [0, n] if most is None or n <= most else np.linspace(0, n, -(-n // most) + 1).astype(int)
        for low, high in itertools.pairwise(edges):
            part = track[:, low : high + 1]
            missing = np.asarray(np.isnan(part).any(axis=0))
            if missing[0] or missing[-1] or most is not None:
                kept = np.flatnonzero(~missing)
                if kept.size < 2:
                    continue
                part, missing = part[:, kept[0] : kept[-1] + 1], missing[kept[0] : kept[-1] + 1]
            whole = np.where(missing, 0.0, part)
            places = np.flatnonzero(missing)
            for row in whole:  # any values would do; near ones lose no digits
                row[places] = np.interp(places, np.flatnonzero(~missing), row[~missing])
            by_length.setdefault(whole.shape[1] - 1, []).extend((np.diff(row), places, number * each) for row in whole)
    groups = []
    for n, members in sorted(by_length.items()):
        rows, owner = np.array([row for row, _, _ in members]), np.array([number for _, _, number in members])
        pieces, shared = len(rows), int(drift)
        used = np.unique(np.concatenate([places for _, places, _ in members]))
        columns = np.zeros((used.size + shared, n))
        columns[np.arange(used.size), used - 1], columns[np.arange(used.size), used] = 1.0, -1.0
        columns[used.size :] = 1.0
        own = np.full((pieces, max(places.size for _, places, _ in members) + shared), -1)
        for k, (_, places, _) in enumerate(members):
            own[k, : places.size] = np.searchsorted(used, places)
        if shared:
            own[:, -1] = used.size
        if not used.size and pieces > n and not each:  # the likelihood depends on sums of products alone
            rows, own, owner = np.asarray(np.linalg.qr(rows, mode="r")), own[:n], owner[:n]
        groups.append(Group(rows, columns, own, owner, pieces / len(rows)))
    return groups


def increments(alpha: Array, bound: Array, share: Array, blur: float, n: int) -> tuple[Array, Array]:
    """Autocovariance (n, P) of increments of variance 1, and the part of it that is motion, for 2K h^alpha = 1."""

    def motion(lags: Array) -> Array:
        with np.errstate(divide="ignore"):
            power = np.exp(alpha * np.log(lags)[..., np.newaxis])
        return np.asarray(np.where(bound > 0.0, -np.expm1(-bound * power) / np.where(bound > 0.0, bound, 1.0), power))

    lags = np.arange(n + 1.0)
    if blur == 0.0:
        squares = motion(lags)
    else:
        squares = np.empty((n + 1, alpha.size))
        for part, (nodes, weights) in ((slice(0, 2), _GRADED), (slice(2, None), _SMOOTH)):
            around = [motion(np.abs(lags[part, np.newaxis] + sign * blur * nodes)) for sign in (1.0, -1.0)]
            squares[part] = np.einsum("q,kqp->kp", weights * (1.0 - nodes), around[0] + around[1])
        squares -= squares[0]
    found = np.empty((n, alpha.size))
    found[0] = squares[1]
    found[1:] = 0.5 * (squares[2:] - 2.0 * squares[1:-1] + squares[:-2])
    scale = found[0].copy()
    found *= (1.0 - share) / scale
    found[0] += share
    if n > 1:
        found[1] -= 0.5 * share
    return found, scale


def _durbin(covariance: Array, lengths: Sequence[int]) -> Iterator[tuple[Array, Array, Array]]:
    """Prediction-error filters (k, P), variances (P,) and logarithms of determinants of the leading blocks."""
    filters = np.zeros_like(covariance)
    filters[0] = 1.0
    variance, logarithm = covariance[0].copy(), np.log(covariance[0])
    for k in range(1, lengths[-1] + 1):
        if k in lengths:
            yield filters[:k], variance, logarithm
        if k == lengths[-1]:
            return
        reflection = -np.einsum("kp,kp->p", filters[:k], covariance[k:0:-1]) / variance
        filters[1 : k + 1] += reflection * filters[k - 1 :: -1]
        variance = variance * np.maximum((1.0 - reflection) * (1.0 + reflection), 1e-14)
        logarithm = logarithm + np.log(variance)


def likelihood(groups: Sequence[Group], points: Array, blur: float, fits: int = 1) -> tuple[Array, Array]:
    """Log-likelihood (fits, P) at points (3, P), largest in the variance of the increments, and that variance."""
    counts = np.zeros(fits)
    for group in groups:
        numbers = group.repeats * (group.rows.shape[1] - (group.own >= 0).sum(axis=1))
        np.add.at(counts, group.owner, numbers)
    lengths = [group.rows.shape[1] for group in groups]
    square, logarithm = np.zeros((2, fits, points.shape[1]))
    together = max(1, _TOGETHER // (max(group.rows.shape[0] + len(group.columns) for group in groups) * lengths[-1]))
    for low in range(0, points.shape[1], together):
        part = slice(low, low + together)
        alpha, share, bound = points[:, part]
        covariance, _ = increments(alpha, bound / (1.0 - bound), share, blur, lengths[-1])
        for group, (filters, variance, logs) in zip(groups, _durbin(covariance, lengths), strict=True):
            forms, more = _forms(group, filters.T, variance)
            np.add.at(square[:, part], group.owner, forms)
            np.add.at(logarithm[:, part], group.owner, group.repeats * (logs + more))
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = square / counts[:, np.newaxis]
        value = -0.5 * (counts[:, np.newaxis] * (np.log(2.0 * np.pi * variance) + 1.0) + logarithm)
    return np.where(np.isfinite(value), value, -np.inf), variance


def _forms(group: Group, filters: Array, variance: Array) -> tuple[Array, Array]:
    """Of each row (R, P): ``x^T T^-1 x`` without its nuisances, and the log-determinant of their matrix."""
    n = group.rows.shape[1]
    size = fft.next_fast_len(2 * n, real=True)
    # The inverse is (A A^T - B B^T)/v with triangular Toeplitz matrices A and B.
    second = np.concatenate([np.zeros_like(filters[:, :1]), filters[:, :0:-1]], axis=1)
    factors = np.conj(fft.rfft(np.stack([filters, second]), size))[:, :, np.newaxis]
    images = [fft.irfft(fft.rfft(each, size) * factors, size)[..., :n] for each in (group.rows, group.columns)]
    scale = variance[:, np.newaxis]

    def squares(x: Array) -> Array:
        return np.asarray(np.einsum("prk,prk->pr", x[0], x[0]) - np.einsum("prk,prk->pr", x[1], x[1])) / scale

    total, logarithm = np.zeros((2, len(group.rows), variance.size))
    total += squares(images[0]).T
    if group.own.size:
        gram, mixed = (
            (x[0] @ images[1][0].mT - x[1] @ images[1][1].mT) / scale[..., np.newaxis] for x in (images[1], images[0])
        )
        for k, own in enumerate(group.own):
            own = own[own >= 0]
            if own.size:
                factor = np.linalg.cholesky(gram[:, own[:, np.newaxis], own])
                part = np.linalg.solve(factor, mixed[:, k, own, np.newaxis])
                total[k] -= np.einsum("pmi,pmi->p", part, part)
                logarithm[k] = 2.0 * np.log(np.einsum("pii->pi", factor)).sum(axis=1)
    return total, logarithm
