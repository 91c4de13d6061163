"""The policy: which arm runs the next call, and when another one is tried.

- The cost of an arm is its predicted run time with transfers, plus what must still be compiled or imported.
- The cheapest arm is used. The incumbent stays unless the gain exceeds the threshold.
- An arm that must be compiled is used once compilation would have paid for itself (:mod:`.rent_or_buy`).
- An alternative is tried only if it might be better, cannot cost much, and the exploration budget allows it.

Counters decide when alternatives are tried; no random numbers are used.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hpfracc._interrupts import Guarded
from hpfracc._reading import format_seconds
from hpfracc.engine.selection.costs import KEPT, CostEstimate, CostModel, Option, Scored
from hpfracc.errors import InvalidInputError

#: Samples of the incumbent until its bucket counts as settled. With 4 the settled regret on ``timings-h200.json`` grows
#: by half, 16 gain nothing (benchmarks/selection.py).
_SETTLED_SAMPLES = 8
#: Maximum number of calls for which a bucket keeps learning while an alternative might be better.
_MAX_LEARNING_CALLS = 32
#: Calls from one review of a settled bucket to the next, at least and at most (selection.md) ...
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


def warmup_calls(seconds: float, *, switched: bool, on_host: bool = True) -> int:
    """Calls to make before a timed one, if each takes ``seconds``; ``switched``: another arm ran last."""
    if not seconds < _COLD_THREAD_SECONDS:  # also for nan: every call of an unknown arm is informative
        return 0
    if not switched:
        return int(seconds < _COLD_CACHE_SECONDS)
    if not on_host:
        return max(1, min(MAX_WARMUP_CALLS, int(_WARMUP_SECONDS / seconds)))
    return _WARMUP_CALLS if seconds < _COLD_CACHE_SECONDS else 1


class _Trial(NamedTuple):
    """A trial of an alternative: the incumbent's predicted time, the expected compile time, and the time charged."""

    best: float
    price: float
    charged: float


@dataclass(slots=True)
class _Trials:
    """The trials of one arm: those without a report (several plans share a bucket), their number, and the next ones.

    A promising arm is tried at call ``next``, any other one at call ``retry``, if that is known.
    """

    open: list[_Trial] = field(default_factory=list)
    count: int = 0
    next: int = 0
    retry: int | None = None


@dataclass(slots=True)
class Incumbent:
    """The arm of one slot and bucket, records about the others, and what ran. Not thread-safe: the owner locks."""

    arm: str | None = None
    #: Calls so far, timed or not.
    calls: int = 0
    #: Whether the last time was unusual; then every call is timed until that is explained.
    watched: bool = False
    #: Whether some alternative might still be better.
    doubtful: bool = False
    #: Seconds that each purchase (a compilation, an import) would save per call.
    gains: dict[Hashable, float] = field(default_factory=dict)
    #: An option of each arm, its calls, and the seconds of all, for the regret.
    options: dict[str, Option] = field(default_factory=dict)
    ran_calls: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    compiling: float = 0.0
    exploring: float = 0.0
    #: Long review intervals granted since a call was last reported.
    _unreported: int = 0
    _trials: dict[str, _Trials] = field(default_factory=lambda: defaultdict(_Trials))

    def take(self, arm: str) -> None:
        """Make ``arm`` the incumbent."""
        self._trials[arm].open.clear()
        if arm == self.arm:
            return
        if self.arm is not None and self._trials[self.arm].retry is None:
            self._trials[self.arm].retry = self.calls + _RETRY_CALLS
        self.arm = arm

    def may_try(self, row: Scored, best: Scored, *, promising: bool) -> bool:
        """Whether to try an alternative: a promising one at growing intervals, any other one rarely."""
        trials = self._trials[row.option.arm]
        if promising:
            # Wait for the result of one trial before the next, but not indefinitely: its plan may never be called
            # again.
            return self.calls >= trials.next + (_RETRY_CALLS if trials.open else 0)
        if trials.retry is None:
            return self.calls >= _RETRY_CALLS and row.total <= _RETRY_FACTOR * best.total
        return self.calls >= trials.retry

    def begin_trial(self, arm: str, trial: _Trial) -> None:
        """Record a trial of an alternative; the interval to its next trial doubles."""
        trials = self._trials[arm]
        trials.open.append(trial)
        trials.next, trials.retry = self.calls + 2**trials.count, max(2 * self.calls, _RETRY_CALLS)
        trials.count += 1

    def end_trial(self, arm: str) -> _Trial | None:
        """The trial that a report about ``arm`` ends, or None."""
        trials = self._trials[arm].open
        return trials.pop(0) if trials else None

    def ran(self, option: Option, seconds: float, calls: int, compiling: float = 0.0) -> None:
        """Count ``calls`` calls of ``seconds`` each, the first of which took ``compiling`` more."""
        self.calls += calls
        self._unreported = 0
        self.options.setdefault(option.arm, option)
        self.ran_calls[option.arm] = self.ran_calls.get(option.arm, 0) + calls
        self.seconds += seconds * calls
        self.compiling += compiling

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
        if found.samples < KEPT:
            return _REVIEW_INTERVAL - 1
        return min(max(int(LONG_CALL_SECONDS / best.total), _REVIEW_INTERVAL), MAX_REVIEW_INTERVAL) - 1


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen option, with everything it was chosen from.

    Attributes
    ----------
    option, estimate
        The option to run, and its predicted time.
    reason : str
        One sentence.
    explored : bool
        Whether it is run to learn about it rather than because it is expected to be fastest.
    review_after : int
        Number of further calls that may use the same option before the next choice.
    candidates : list of Scored
        All options, in the order given.
    """

    option: Option
    estimate: CostEstimate
    reason: str
    explored: bool
    review_after: int
    candidates: list[Scored]


class Chooser(Guarded):
    """Chooses between options and learns from the times that are reported. Thread-safe.

    Parameters
    ----------
    costs : CostModel
        Predicts times, and learns from measured ones.

    Notes
    -----
    A *slot* is anything hashable that names a kind of call (operation, dtype, where the operands are). Each slot and
    bucket has one incumbent. The caller runs the chosen option for one call and ``review_after`` further ones, times
    the last of them, and reports that time for all of them by :meth:`observe`, or by :meth:`tally` if the call could
    not be timed. Then it chooses again.
    """

    def __init__(self, costs: CostModel) -> None:
        super().__init__()
        self.costs = costs
        self._account = costs.compiling
        #: By slot, bucket and objective.
        self.incumbents: dict[tuple[Hashable, Hashable, str], Incumbent] = {}
        #: Seconds of all calls so far, of trials beyond what the incumbent would have taken, and of unknown arms.
        self._total = self._spent = self._on_unknown = 0.0

    def choose(
        self,
        slot: Hashable,
        bucket: Hashable,
        options: Sequence[Option],
        *,
        threshold: float = 0.1,
        explore: bool = True,
        budget: float = 0.01,
        frozen: bool = False,
    ) -> Choice:
        """Choose one of ``options``; the first one if nothing is known about any of them.

        Parameters
        ----------
        slot, bucket : Hashable
            The kind of call, and its size.
        options : sequence of Option
            The arms that can run it, at least one.
        threshold : float
            The incumbent is replaced if it is slower than the best by more than this fraction.
        explore : bool
            Whether alternatives may be tried.
        budget : float
            Fraction of the total time that trials may take.
        frozen : bool
            Whether to store nothing: the choice that the next call would make.
        """
        if not options:
            raise InvalidInputError("no option to choose from; offer at least one arm")
        with self._lock:
            key = slot, bucket, _objective(options[0])
            incumbent = self.incumbents.get(key) or Incumbent()
            rows = self.score(bucket, options)
            best, reason = self._best(incumbent, rows, threshold)
            if frozen and not explore:
                return Choice(best.option, best.estimate, reason, False, MAX_REVIEW_INTERVAL - 1, rows)
            if frozen:
                incumbent = replace(incumbent, gains={}, _trials=deepcopy(incumbent._trials))
            else:
                self.incumbents[key] = incumbent
            if len(incumbent.options) < len(options):
                incumbent.options = {option.arm: option for option in options} | incumbent.options
            _note_gains(incumbent, rows, best, threshold)
            incumbent.take(best.option.arm)
            if explore and len(rows) > 1:
                row = self._pick(incumbent, rows, best, threshold, budget)
                if row is not None:
                    choice, charged = self._try(incumbent, row, best, rows)
                    self._spent += 0.0 if frozen else charged
                    return choice
            return Choice(best.option, best.estimate, reason, False, incumbent.review_after(best), rows)

    def observe(
        self, slot: Hashable, bucket: Hashable, option: Option, seconds: float, *, first: bool = False, calls: int = 1
    ) -> None:
        """Learn from a timed call.

        Parameters
        ----------
        slot, bucket, option
            The kind of call, its size, and what was run.
        seconds : float
            Measured seconds.
        first : bool
            Whether it was the first call of its compile key, or of an arm that only warms up. It is never recorded as
            run time; with a compile key, it is recorded as compile time, minus the predicted run.
        calls : int
            Calls since the last report, this one included.
        """
        with self._lock:
            incumbent = self._incumbent(slot, bucket, option)
            trial = incumbent.end_trial(option.arm)
            run, unknown = seconds, False
            if first or trial is not None:
                expected = self.costs.estimate(option.key, bucket, option.x, option.extra)
                unknown = expected.source == "none"
            if first:
                run = 0.0 if unknown else min(seconds, expected.seconds)
                if option.compile_key is not None:
                    self._account.buy(option.key, option.compile_key, seconds - run, option.x)
                incumbent.watched = True
            else:
                incumbent.watched = self.costs.observe(option.key, bucket, option.x, seconds)
            if trial is not None:
                # Compilation is charged up to the expected price, so that one bad surprise does not end exploration; in
                # full if nothing was known, so that surprises do not follow one another.
                compiling = seconds - run if unknown else min(trial.price, seconds - run)
                spent = min(calls, 1 + MAX_WARMUP_CALLS) * max(0.0, run - trial.best) + compiling
                self._spent += (0.0 if unknown else spent) - trial.charged
                self._on_unknown += spent if unknown else 0.0
                incumbent.exploring += spent
            self._count(incumbent, option, run, calls, seconds - run)

    def tally(self, slot: Hashable, bucket: Hashable, option: Option, calls: int) -> None:
        """Count calls that were not timed. The savings of another arm in them are still credited."""
        with self._lock:
            estimate = self.costs.estimate(option.key, bucket, option.x, option.extra)
            run = 0.0 if estimate.source == "none" else estimate.seconds
            incumbent = self._incumbent(slot, bucket, option)
            incumbent.end_trial(option.arm)  # its charge stands
            self._count(incumbent, option, run, calls)

    def _incumbent(self, slot: Hashable, bucket: Hashable, option: Option) -> Incumbent:
        return self.incumbents.setdefault((slot, bucket, _objective(option)), Incumbent())

    def _count(self, incumbent: Incumbent, option: Option, run: float, calls: int, compiling: float = 0.0) -> None:
        incumbent.ran(option, run, calls, compiling)
        self._total += run * calls + compiling
        if incumbent.gains:
            self._account.credit_calls(incumbent.gains, calls)

    def score(self, bucket: Hashable, options: Sequence[Option]) -> list[Scored]:
        """The predicted cost of each option."""
        rows = []
        for option in options:
            found = self.costs.estimate(option.key, bucket, option.x, option.extra)
            wait = option.startup + self._account.price(option.key, option.compile_key, option.x)
            rows.append(Scored(option, found, found.seconds, wait))
        return rows

    def _price(self, row: Scored) -> float:
        """Seconds still to be paid before ``row`` runs at its total; 0 once the savings have covered them."""
        option, pays = row.option, self._account.pays
        compiling = row.compile - option.startup
        unpaid = (compiling > 0.0 and not pays(option.compile_key, compiling)) or (
            option.startup > 0.0 and not pays(_import_of(option), row.compile)
        )
        return row.compile if unpaid else 0.0

    def _best(self, incumbent: Incumbent, rows: list[Scored], threshold: float) -> tuple[Scored, str]:
        """The row to use, and the reason: the cheapest, or an incumbent within the threshold."""
        best: Scored | None = None
        kept: Scored | None = None
        least = kept_cost = math.inf
        for row in rows:
            cost = row.total if row.compile <= 0.0 else row.total + self._price(row)
            if row.option.watts is not None:
                cost *= row.option.watts
            if cost < least:  # never if the total is nan
                best, least = row, cost
            if row.option.arm == incumbent.arm:
                kept, kept_cost = row, cost
        if best is None:
            row = kept or rows[0]
            return row, f"{row.option.arm} is taken because nothing is known about any arm yet"
        name, watts = best.option.arm, best.option.watts
        if kept is not None and kept is not best and kept_cost < (1.0 + threshold) * least:
            more = f"{kept.option.arm} stays: {kept_cost / least - 1.0:.0%}"
            if watts is not None:
                return kept, f"{more} more energy than {name}"
            return kept, f"{more} slower than {name}, less than {threshold:.0%}"
        found = best.estimate
        source = f"{found.samples} samples" if found.samples else _SOURCES[found.source]
        here = f"{format_seconds(best.total)} from {source}"
        if watts is not None:
            joules = f"{best.total * watts:.3g} J"
            return best, f"{name} is predicted to need least energy: {joules}, {here} at {watts:.3g} W"
        quicker = min((row for row in rows if row.total < best.total), key=lambda row: row.total, default=None)
        if quicker is None:
            return best, f"{name} is predicted fastest: {here}"
        less, once = format_seconds(quicker.total), format_seconds(quicker.compile)
        later = f"{quicker.option.arm} is predicted to take {less}, but its first call {once} more"
        return best, f"{name} is taken: {here}; {later}, which would not have paid yet"

    def _pick(
        self, incumbent: Incumbent, rows: Sequence[Scored], best: Scored, threshold: float, budget: float
    ) -> Scored | None:
        """The alternative to try instead of ``best``, or None.

        An unknown arm comes first, then the cheapest of those whose lower bound beats the best by the threshold. The
        bound decreases slowly with the number of calls, so that no wrong prediction excludes an arm permanently.
        """
        incumbent.doubtful = False
        if not best.known:
            return None
        spare = budget * self._total - self._spent
        bar = best.total / (1.0 + threshold)
        optimism = math.sqrt(math.log(2.0 + incumbent.calls))
        found: Scored | None = None
        least = math.inf
        for row in rows:
            total, low = row.total, row.estimate.low
            if total > _MAX_COST_RATIO * best.total or row is best:
                continue
            if total != total:  # nan: unknown
                # If its calls cannot be timed (each is a first one) it stays unknown, and its trials become rare.
                affordable = self._price(row) <= 0.0 and self._on_unknown + row.compile <= _UNKNOWN_SHARE * self._total
                if affordable and incumbent.may_try(row, best, promising=True):
                    return row
                continue
            low = total * (low / total) ** optimism
            if not incumbent.may_try(row, best, promising=low < bar):
                continue
            incumbent.doubtful = True
            cost = total + self._price(row)
            warmup = warmup_calls(total, switched=True, on_host=row.option.on_host)
            more = cost - best.total + warmup * max(0.0, total - best.total)
            if cost < least and more <= spare:
                found, least = row, cost
        return found

    def _try(self, incumbent: Incumbent, row: Scored, best: Scored, rows: list[Scored]) -> tuple[Choice, float]:
        """A trial of ``row``, and the seconds that it is charged."""
        arm = row.option.arm
        price = self._price(row)
        reason = f"exploring, because it might beat {best.option.arm} at {format_seconds(best.total)}"
        warmup = 0 if row.compile > 0.0 else warmup_calls(row.total, switched=True, on_host=row.option.on_host)
        # Charged now and corrected by the report, because other plans choose in the meantime, and some trials are never
        # reported.
        charged = max(0.0, price + (1 + warmup) * (row.total - best.total)) if row.known else 0.0
        incumbent.begin_trial(arm, _Trial(best.total, price, charged))
        return Choice(row.option, row.estimate, reason, True, warmup, rows), charged


_SOURCES = {"samples": "samples of other sizes", "knots": "calibration", "prior": "the packaged prior"}


def _note_gains(incumbent: Incumbent, rows: Sequence[Scored], best: Scored, threshold: float) -> None:
    """Compute the savings of each purchase per call of ``best``.

    One compilation may apply to many size buckets (a Numba signature), and one import to many compilations (all shapes
    of JAX), so a purchase is credited by every call to which it applies. A gain too small to replace the incumbent
    counts as 0. An unknown arm is assumed to take no time.
    """
    gains = incumbent.gains
    gains.clear()
    for row in rows:
        if row.compile <= 0.0 or row is best:
            continue
        total = row.total if row.known else 0.0
        if best.total > (1.0 + threshold) * total:
            option, gain = row.option, best.total - total
            bought = [option.compile_key, _import_of(option) if option.startup > 0.0 else None]
            gains.update({item: max(gain, gains.get(item, 0.0)) for item in bought if item is not None})


def _import_of(option: Option) -> tuple[str, str]:
    """Account item of the import of an option's library."""
    return "import", option.owner


def _objective(option: Option) -> str:
    """What an option is chosen for: options have a power only where energy decides."""
    return "time" if option.watts is None else "energy"
