"""Trying alternatives: only where it can pay and cannot hurt."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hpfracc.engine.selection.options import Scored
from hpfracc.engine.selection.tenure import Tenure, waking_calls

__all__ = ["Exploration"]

#: An alternative is tried only if it is predicted to cost at most this many times the best (selection.md).
_MOST = 5.0
#: Arms of which nothing at all is known must be tried to be known; in all they may take this share of the total time,
#: so that together with a compile time nobody foresaw a slot stays within twice its plain cost.
_UNKNOWN_SHARE = 0.5
#: Samples of the best that tell how far its curve is off.
_SEEN = 3


class Exploration:
    """The time that went into trying alternatives, and whether there is some for another. Not locked: its owner is."""

    def __init__(self) -> None:
        #: Seconds of all calls so far.
        self.total = 0.0
        #: Seconds by which tries took longer than the incumbent would have.
        self.spent = 0.0
        self._on_unknown = 0.0

    def pick(
        self,
        tenure: Tenure,
        rows: Sequence[Scored],
        best: Scored,
        price: Callable[[Scored], float],
        threshold: float,
        budget: float,
    ) -> Scored | None:
        """The alternative to try instead of ``best``, or None.

        One of which nothing is known comes first; then, of those whose lower bound beats the best by the threshold (the
        bound falls slowly as calls go by, so that nothing is ruled out for ever by a wrong prediction), the cheapest.
        """
        tenure.doubtful = False
        if not best.known:
            return None
        spare = budget * self.total - self.spent
        bar = best.total / (1.0 + threshold)
        optimism = math.sqrt(math.log(2.0 + tenure.calls))
        found: Scored | None = None
        least = math.inf
        luck = _luck(best)
        for row in rows:
            total, low = row.total, row.estimate.low
            if luck < 1.0 and not row.estimate.samples:
                total, low = total * luck, low * luck
            if total > _MOST * best.total or row is best:
                continue
            if total != total:  # nan: nothing is known of it
                # Where its calls cannot be timed (each is a first one) it stays unknown, and is tried ever seldomer.
                affordable = price(row) <= 0.0 and self._on_unknown + row.compile <= _UNKNOWN_SHARE * self.total
                if affordable and tenure.may_try(row, best, promising=True):
                    return row
                continue
            if 0 < row.estimate.samples < _SEEN and row.estimate.curve < low:
                low = row.estimate.curve  # one or two times, of a cold device perhaps, do not refute the knots
            low = total * (low / total) ** optimism
            if not tenure.may_try(row, best, promising=low < bar):
                continue
            tenure.doubtful = True
            cost = total + price(row)
            waking = waking_calls(total, another=True, on_host=row.option.on_host)
            more = cost - best.total + waking * max(0.0, total - best.total)
            if cost < least and more <= spare:
                found, least = row, cost
        return found

    def charge(self, seconds: float, *, unknown: bool) -> None:
        """Book what a try cost; ``unknown``: nothing was known of its arm before."""
        if unknown:
            self._on_unknown += seconds
        else:
            self.spent += seconds

    def refund(self, seconds: float) -> None:
        """Take back what was booked before it was known."""
        self.spent -= seconds


def _luck(best: Scored) -> float:
    """How much faster the best is here than its curve said, where that is known.

    The curves of arms not tried here may be off as much (a prime size between its neighbours, for a Fourier transform).
    A best that is slower than its curve says nothing of them: it was picked for its low prediction.
    """
    found = best.estimate
    return found.seconds / found.curve if found.samples >= _SEEN and found.seconds < found.curve else 1.0
