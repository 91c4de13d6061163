"""The Mann-Whitney test, which tells whether values of one sample tend to be larger than those of another.

Mann, Whitney (1947), Ann. Math. Statist. 18, 50-60. Exact where there are no ties, else the normal approximation with
the correction for ties.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache

__all__ = ["holm", "rank_test", "smallest_p"]

#: Products of sample sizes up to which every order is counted.
_MOST_EXACT = 2500


def rank_test(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p: how likely a difference of ranks this large is if both come from one distribution."""
    m, n = len(first), len(second)
    if m == 0 or n == 0:
        return 1.0
    above = sum((a > b) + 0.5 * (a == b) for a in first for b in second)
    statistic = min(above, m * n - above)
    counts = Counter([*first, *second])
    if m * n <= _MOST_EXACT and max(counts.values()) == 1:
        ways = _ways(m, n)
        return min(1.0, 2.0 * sum(ways[: int(statistic) + 1]) / math.comb(m + n, n))
    size = m + n
    ties = sum(count**3 - count for count in counts.values()) / (size * (size - 1)) if size > 1 else 0.0
    variance = m * n / 12.0 * (size + 1 - ties)
    if variance <= 0.0:
        return 1.0
    z = max(0.0, abs(above - m * n / 2.0) - 0.5) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2.0))


@cache
def _ways(m: int, n: int) -> list[int]:
    """In how many orders of ``m`` and ``n`` values the statistic is 0, 1, ..., m n.

    The generating function is the Gaussian binomial: the product of (1 - q^(n+i)) / (1 - q^i) over i = 1..m.
    """
    ways = [1] + [0] * (m * n)
    for i in range(1, m + 1):
        for at in range(m * n, n + i - 1, -1):
            ways[at] -= ways[at - n - i]
        for at in range(i, m * n + 1):
            ways[at] += ways[at - i]
    return ways


def smallest_p(m: int, n: int) -> float:
    """The p of two samples that do not overlap at all: what so many values can show at best."""
    return min(1.0, 2.0 / math.comb(m + n, n))


def holm(values: Sequence[float]) -> list[float]:
    """Corrected for their number (Holm 1979): the chance of one false alarm among all stays what each p says."""
    order = sorted(range(len(values)), key=lambda place: values[place])
    corrected = [1.0] * len(values)
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - rank) * values[place]))
        corrected[place] = largest
    return corrected
