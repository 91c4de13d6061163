"""The incumbent of each kind of call, and when to try another arm."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from hpfracc.engine.selection.costs import Scored
from hpfracc.engine.selection.samples import KEPT

__all__ = ["MAX_REVIEW_INTERVAL", "MAX_WARMUP_CALLS", "Exploration", "ExplorationTrial", "Incumbent", "warmup_calls"]

#: Samples of the incumbent until its bucket counts as settled. With 4 the settled regret on ``timings-h200.json`` grows
#: by half, 16 gain nothing (benchmarks/selection.py).
_LEARNED = 8
#: While an alternative might still be better, a bucket goes on learning for at most this many calls.
_LEARNED_AT_MOST = 32
#: A settled bucket is looked at once in so many calls, at first and at most (selection.md) ...
_SELDOM, MAX_REVIEW_INTERVAL = 16, 256
#: ... and no oftener than keeps a look, some 50 us with the choice, below half a percent of the calls it stands for.
#: Calls longer than this are all looked at.
_LOOK = 50e-6 / 0.005
#: An alternative that was ruled out is asked again after this many calls, and after twice as many each time, if it is
#: predicted within this factor of the incumbent or was incumbent itself: times change (workload "drift" of
#: benchmarks/selection.py).
_ASK_AGAIN, _CLOSE = 256, 1.5
#: Calls shorter than this are not timed right after something else ran, be it only the choice: what they find in the
#: caches is not what they leave there. After 20 calls of another arm one of 44 us took 56, then 48, then 45; right
#: after a choice it took three times as long.
_SHORT = 1e-3
#: Threads that fell asleep show in longer calls too, but no longer in these.
_LONG = 0.1
#: Calls that go before one that is timed on the host; on a GPU, whose clock falls while it rests, so many seconds of
#: them, and at most so many.
_WAKING, _WAKING_SECONDS, MAX_WARMUP_CALLS = 2, 4e-3, 12


def warmup_calls(seconds: float, *, another: bool, on_host: bool = True) -> int:
    """How many calls go before one that is timed, if each takes so long; ``another``: another arm ran before."""
    if not seconds < _LONG:  # nan too: of an arm of which nothing is known every call tells something
        return 0
    if not another:
        return int(seconds < _SHORT)
    if not on_host:
        return max(1, min(MAX_WARMUP_CALLS, int(_WAKING_SECONDS / seconds)))
    return _WAKING if seconds < _SHORT else 1


class ExplorationTrial(NamedTuple):
    """An arm being tried: what the incumbent would take, the compile time foreseen, and what was booked for it."""

    best: float
    price: float
    booked: float


class Incumbent:
    """What the chooser remembers of one slot and bucket. Not locked: its owner is."""

    __slots__ = (
        "_ask_again",
        "_interval",
        "_next_try",
        "_trials",
        "_tries",
        "_unseen",
        "calls",
        "doubtful",
        "gains",
        "incumbent",
        "watched",
    )

    def __init__(self) -> None:
        self.incumbent: str | None = None
        #: Calls so far, timed or not.
        self.calls = 0
        #: The last time seen was out of line: every call is looked at until it is clear why.
        self.watched = False
        #: Some alternative might still be better.
        self.doubtful = False
        #: Seconds that each purchase (a compilation, a library's import) would save in a call.
        self.gains: dict[Hashable, float] = {}
        self._interval = _SELDOM
        #: Tries that were not reported yet. Several plans share a bucket, so that there may be some of one arm.
        self._trials: dict[str, list[ExplorationTrial]] = {}
        #: Times the incumbent was kept for long since a call was last reported.
        self._unseen = 0
        self._tries: dict[str, int] = {}
        self._next_try: dict[str, int] = {}
        self._ask_again: dict[str, int] = {}

    def count(self, calls: int) -> None:
        """Calls were reported."""
        self.calls += calls
        self._unseen = 0

    def take(self, arm: str) -> None:
        """Make ``arm`` the incumbent."""
        self._trials.pop(arm, None)
        if arm == self.incumbent:
            return
        if self.incumbent is not None:
            self._ask_again.setdefault(self.incumbent, self.calls + _ASK_AGAIN)
        self.incumbent = arm
        self._interval = _SELDOM

    def unsettle(self) -> None:
        """Times have changed: look often again."""
        self._interval = _SELDOM

    def may_try(self, row: Scored, best: Scored, *, promising: bool) -> bool:
        """Whether it is an alternative's turn: a promising one at growing distances, another one now and then."""
        arm = row.option.arm
        if promising:
            # One try is awaited before the next, but not for ever: its plan may never be called again.
            return self.calls >= self._next_try.get(arm, 0) + (_ASK_AGAIN if self._trials.get(arm) else 0)
        due = self._ask_again.get(arm)
        if due is None:
            due = _ASK_AGAIN if row.total <= _CLOSE * best.total else self.calls + 1
        return self.calls >= due

    def begin_trial(self, arm: str, trial: ExplorationTrial) -> None:
        """An alternative is being tried now; the next time is twice as far away."""
        self._trials.setdefault(arm, []).append(trial)
        tries = self._tries.get(arm, 0)
        self._tries[arm] = tries + 1
        self._next_try[arm] = self.calls + 2**tries
        self._ask_again[arm] = max(2 * self.calls, _ASK_AGAIN)

    def end_trial(self, arm: str) -> ExplorationTrial | None:
        """The try of an arm that is now reported, if it is one."""
        trials = self._trials.get(arm)
        return trials.pop(0) if trials else None

    def review_after(self, best: Scored) -> int:
        """How many further calls the incumbent may take before the next look."""
        found = best.estimate
        if best.compile > 0.0 or best.total >= _LOOK:
            return 0
        learns = self.watched or found.samples < _LEARNED or (found.erratic and found.samples < KEPT)
        if learns or (self.doubtful and self.calls < _LEARNED_AT_MOST):
            return warmup_calls(best.total, another=False)
        # Calls whose shapes never come back never get to the end of what they are kept for: some are looked at at once.
        self._unseen += 1
        if self._unseen > _SELDOM:
            return 0
        interval = min(self._interval, max(int(_LOOK / best.total), _SELDOM), MAX_REVIEW_INTERVAL)
        if found.samples >= KEPT:
            self._interval = 2 * interval
        return interval - 1


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
        tenure: Incumbent,
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
            waking = warmup_calls(total, another=True, on_host=row.option.on_host)
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
