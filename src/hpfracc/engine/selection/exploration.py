"""The incumbent arm of each kind of call, and when to try another one."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from hpfracc.engine.selection.costs import Scored
from hpfracc.engine.selection.times import KEPT

__all__ = [
    "LONG_CALL_SECONDS",
    "MAX_REVIEW_INTERVAL",
    "MAX_WARMUP_CALLS",
    "Exploration",
    "ExplorationTrial",
    "Incumbent",
    "warmup_calls",
]

#: Samples of the incumbent until its bucket counts as settled. With 4 the settled regret on ``timings-h200.json`` grows
#: by half, 16 gain nothing (benchmarks/selection.py).
_SETTLED_SAMPLES = 8
#: Maximum number of calls for which a bucket keeps learning while an alternative might be better.
_MAX_LEARNING_CALLS = 32
#: Calls from one review of a settled bucket to the next, at first and at most (selection.md) ...
_REVIEW_INTERVAL, MAX_REVIEW_INTERVAL = 16, 256
#: ... but far enough apart that timing a call, some 50 us, takes less than half a percent of the calls it stands for.
#: Every call that takes longer than this is timed.
LONG_CALL_SECONDS = 50e-6 / 0.005
#: An alternative that was ruled out is retried after this many calls, and then after twice as many each time, if it is
#: predicted within this factor of the incumbent or was the incumbent itself: times change (workload "drift" of
#: benchmarks/selection.py).
_RETRY_CALLS, _RETRY_FACTOR = 256, 1.5
#: Calls shorter than this are not timed right after other work, not even after a choice, because caches are cold. After
#: 20 calls of another arm, a call of 44 us took 56, then 48, then 45; right after a choice it took three times as long.
_COLD_CACHE_SECONDS = 1e-3
#: Sleeping threads slow down longer calls too, but none longer than this.
_COLD_THREAD_SECONDS = 0.1
#: Warm-up calls before a timed one on the host. On a GPU, whose clock drops while it idles: enough calls to fill the
#: seconds, but not more than the maximum.
_WARMUP_CALLS, _WARMUP_SECONDS, MAX_WARMUP_CALLS = 2, 4e-3, 12
#: Maximum predicted cost of a tried alternative, relative to the best (selection.md).
_MAX_COST_RATIO = 5.0
#: Unknown arms can only be learned about by trying them. Together they may take this fraction of the total time, so
#: that with an unexpected compile time a slot stays within twice its cost without trials.
_UNKNOWN_SHARE = 0.5
#: Number of samples of the best arm that determine the error of its curve.
_TRUSTED_SAMPLES = 3


def warmup_calls(seconds: float, *, switched: bool, on_host: bool = True) -> int:
    """Calls to make before a timed one, if each takes ``seconds``; ``switched``: another arm ran last."""
    if not seconds < _COLD_THREAD_SECONDS:  # also for nan: every call of an unknown arm is informative
        return 0
    if not switched:
        return int(seconds < _COLD_CACHE_SECONDS)
    if not on_host:
        return max(1, min(MAX_WARMUP_CALLS, int(_WARMUP_SECONDS / seconds)))
    return _WARMUP_CALLS if seconds < _COLD_CACHE_SECONDS else 1


class ExplorationTrial(NamedTuple):
    """A trial of an alternative: the incumbent's predicted time, the expected compile time, and the time charged."""

    best: float
    price: float
    charged: float


class Incumbent:
    """The arm of one slot and bucket, and records about the others. Not thread-safe: the owner locks."""

    __slots__ = (
        "_interval",
        "_next_trial",
        "_retry_at",
        "_trial_counts",
        "_trials",
        "_unreported",
        "arm",
        "calls",
        "doubtful",
        "gains",
        "watched",
    )

    def __init__(self) -> None:
        self.arm: str | None = None
        #: Calls so far, timed or not.
        self.calls = 0
        #: Whether the last time was unusual; then every call is timed until that is explained.
        self.watched = False
        #: Whether some alternative might still be better.
        self.doubtful = False
        #: Seconds that each purchase (a compilation, an import) would save per call.
        self.gains: dict[Hashable, float] = {}
        self._interval = _REVIEW_INTERVAL
        #: Trials without a report yet. Several plans share a bucket, so one arm may have several.
        self._trials: dict[str, list[ExplorationTrial]] = {}
        #: Long review intervals granted since a call was last reported.
        self._unreported = 0
        self._trial_counts: dict[str, int] = {}
        self._next_trial: dict[str, int] = {}
        self._retry_at: dict[str, int] = {}

    def count(self, calls: int) -> None:
        """Count reported calls."""
        self.calls += calls
        self._unreported = 0

    def take(self, arm: str) -> None:
        """Make ``arm`` the incumbent."""
        self._trials.pop(arm, None)
        if arm == self.arm:
            return
        if self.arm is not None:
            self._retry_at.setdefault(self.arm, self.calls + _RETRY_CALLS)
        self.arm = arm
        self._interval = _REVIEW_INTERVAL

    def unsettle(self) -> None:
        """Review often again, because times have changed."""
        self._interval = _REVIEW_INTERVAL

    def may_try(self, row: Scored, best: Scored, *, promising: bool) -> bool:
        """Whether to try an alternative: a promising one at growing intervals, any other one rarely."""
        arm = row.option.arm
        if promising:
            # Wait for the result of one trial before the next, but not indefinitely: its plan may never be called
            # again.
            return self.calls >= self._next_trial.get(arm, 0) + (_RETRY_CALLS if self._trials.get(arm) else 0)
        due = self._retry_at.get(arm)
        if due is None:
            due = _RETRY_CALLS if row.total <= _RETRY_FACTOR * best.total else self.calls + 1
        return self.calls >= due

    def begin_trial(self, arm: str, trial: ExplorationTrial) -> None:
        """Record a trial of an alternative; the interval to its next trial doubles."""
        self._trials.setdefault(arm, []).append(trial)
        count = self._trial_counts.get(arm, 0)
        self._trial_counts[arm] = count + 1
        self._next_trial[arm] = self.calls + 2**count
        self._retry_at[arm] = max(2 * self.calls, _RETRY_CALLS)

    def end_trial(self, arm: str) -> ExplorationTrial | None:
        """The trial that a report about ``arm`` ends, or None."""
        trials = self._trials.get(arm)
        return trials.pop(0) if trials else None

    def review_after(self, best: Scored) -> int:
        """Number of further calls of the incumbent before the next review."""
        found = best.estimate
        if best.compile > 0.0 or best.total >= LONG_CALL_SECONDS:
            return 0
        learns = self.watched or found.samples < _SETTLED_SAMPLES or (found.erratic and found.samples < KEPT)
        if learns or (self.doubtful and self.calls < _MAX_LEARNING_CALLS):
            return warmup_calls(best.total, switched=False)
        # Calls with changing shapes never reach the end of their interval, so one is timed at once from time to time.
        self._unreported += 1
        if self._unreported > _REVIEW_INTERVAL:
            return 0
        interval = min(self._interval, max(int(LONG_CALL_SECONDS / best.total), _REVIEW_INTERVAL), MAX_REVIEW_INTERVAL)
        if found.samples >= KEPT:
            self._interval = 2 * interval
        return interval - 1


class Exploration:
    """The budget for trying alternatives, and the choice of the one to try. Not thread-safe: the owner locks."""

    def __init__(self) -> None:
        #: Seconds of all calls so far.
        self.total = 0.0
        #: Seconds by which trials took longer than the incumbent would have.
        self.spent = 0.0
        self._on_unknown = 0.0

    def pick(
        self,
        incumbent: Incumbent,
        rows: Sequence[Scored],
        best: Scored,
        price: Callable[[Scored], float],
        threshold: float,
        budget: float,
    ) -> Scored | None:
        """The alternative to try instead of ``best``, or None.

        An unknown arm comes first, then the cheapest of those whose lower bound beats the best by the threshold. The
        bound decreases slowly with the number of calls, so that no wrong prediction excludes an arm permanently.
        """
        incumbent.doubtful = False
        if not best.known:
            return None
        spare = budget * self.total - self.spent
        bar = best.total / (1.0 + threshold)
        optimism = math.sqrt(math.log(2.0 + incumbent.calls))
        found: Scored | None = None
        least = math.inf
        speedup = _speedup_over_curve(best)
        for row in rows:
            total, low = row.total, row.estimate.low
            if speedup < 1.0 and not row.estimate.samples:
                total, low = total * speedup, low * speedup
            if total > _MAX_COST_RATIO * best.total or row is best:
                continue
            if total != total:  # nan: unknown
                # If its calls cannot be timed (each is a first one) it stays unknown, and its trials become rare.
                affordable = price(row) <= 0.0 and self._on_unknown + row.compile <= _UNKNOWN_SHARE * self.total
                if affordable and incumbent.may_try(row, best, promising=True):
                    return row
                continue
            if 0 < row.estimate.samples < _TRUSTED_SAMPLES and row.estimate.curve < low:
                low = row.estimate.curve  # one or two times, perhaps of a cold device, do not refute the knots
            low = total * (low / total) ** optimism
            if not incumbent.may_try(row, best, promising=low < bar):
                continue
            incumbent.doubtful = True
            cost = total + price(row)
            warmup = warmup_calls(total, switched=True, on_host=row.option.on_host)
            more = cost - best.total + warmup * max(0.0, total - best.total)
            if cost < least and more <= spare:
                found, least = row, cost
        return found

    def charge(self, seconds: float, *, unknown: bool) -> None:
        """Charge the cost of a trial; ``unknown`` if nothing was known about its arm before."""
        if unknown:
            self._on_unknown += seconds
        else:
            self.spent += seconds

    def refund(self, seconds: float) -> None:
        """Take back a charge that was only expected."""
        self.spent -= seconds


def _speedup_over_curve(best: Scored) -> float:
    """The measured time of the best arm over its curve, if it is faster and well known; otherwise 1.

    The curves of arms not tried here may have the same error (for example, of a Fourier transform at a prime size). A
    best arm that is slower than its curve implies nothing about the others, because it was selected for its low
    prediction.
    """
    found = best.estimate
    return found.seconds / found.curve if found.samples >= _TRUSTED_SAMPLES and found.seconds < found.curve else 1.0
