"""Which arm takes the next call: the cheapest, with what it costs to find that out kept small.

The rule: predicted time plus transfers plus what must be compiled first; the incumbent stays unless the gain is worth
it; an arm that must be compiled is taken once compiling would have paid for itself; an alternative is tried only where
it might be better, cannot cost much, and little time went into trying so far. No random numbers: counters decide.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from hpfracc.engine.locks import Guarded
from hpfracc.engine.selection.costs import CostEstimate, CostModel, Option, Scored
from hpfracc.engine.selection.explain import format_seconds
from hpfracc.engine.selection.exploration import (
    MAX_REVIEW_INTERVAL,
    MAX_WARMUP_CALLS,
    Exploration,
    ExplorationTrial,
    Incumbent,
    warmup_calls,
)
from hpfracc.engine.selection.regret import Ledger
from hpfracc.engine.selection.samples import Drift
from hpfracc.errors import InvalidInputError

__all__ = ["Choice", "Chooser", "Option", "Scored"]


@dataclass(frozen=True, slots=True)
class Choice:
    """The answer, with everything it was decided from.

    Attributes
    ----------
    option, estimate
        What to run, and what it is predicted to take.
    reason : str
        One sentence.
    explored : bool
        Whether it is run to learn about it rather than because it is expected to be fastest.
    review_after : int
        How many further calls may take the same option without asking again.
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
    """Chooses between options, and learns from what is reported of them. Thread-safe.

    Parameters
    ----------
    costs : CostModel
        Where predictions come from and measurements go.

    Notes
    -----
    A *slot* is anything hashable that names a kind of call (operation, dtype, where the operands are); with a bucket it
    has one incumbent. The caller runs the option it was given for one call and ``review_after`` further ones, times the
    last of them, reports it with :meth:`observe` as standing for all of them (or with :meth:`tally` where it could not
    be timed), and asks again.
    """

    def __init__(self, costs: CostModel) -> None:
        super().__init__()
        self.costs = costs
        self.ledger = Ledger(costs)
        self._account = costs.compiling
        self._exploration = Exploration()
        self._tenures: dict[tuple[Hashable, Hashable], Incumbent] = {}

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
        """Choose one of ``options``; the first one where nothing at all is known.

        Parameters
        ----------
        slot, bucket : Hashable
            What kind of call this is, and of what size.
        options : sequence of Option
            What could take it, at least one.
        threshold : float
            How much slower than the best the incumbent must be to give way, as a share.
        explore : bool
            Whether alternatives may be tried.
        budget : float
            Share of the total time that may go into trying them.
        frozen : bool
            Answer from what is known, explore nothing, remember nothing.
        """
        if not options:
            raise InvalidInputError("no option to choose from; offer at least one arm")
        with self._lock:
            tenure = self._tenures.get((slot, bucket)) or Incumbent()
            rows = self.score(bucket, options)
            best, reason = self._best(tenure, rows, threshold)
            if frozen:
                return Choice(best.option, best.estimate, reason, False, MAX_REVIEW_INTERVAL - 1, rows)
            self._tenures[slot, bucket] = tenure
            self.ledger.offered(slot, bucket, options)
            _note_gains(tenure, rows, best, threshold)
            tenure.take(best.option.arm)
            if explore and len(rows) > 1:
                row = self._exploration.pick(tenure, rows, best, self._price, threshold, budget)
                if row is not None:
                    return self._try(tenure, row, best, rows)
            return Choice(best.option, best.estimate, reason, False, tenure.review_after(best), rows)

    def observe(
        self,
        slot: Hashable,
        bucket: Hashable,
        option: Option,
        seconds: float,
        *,
        first: bool = False,
        calls: int = 1,
    ) -> None:
        """Learn from a timed call.

        Parameters
        ----------
        slot, bucket, option
            What was asked and what was run.
        seconds : float
            What it took.
        first : bool
            Whether it was a first call (of its compile key, or of an arm that merely warms up): it is recorded as
            compile time, less the predicted run, where there is a compile key, and never as run time.
        calls : int
            How many calls since the last report it stands for, itself included.
        """
        with self._lock:
            tenure = self._tenure(slot, bucket)
            trial = tenure.end_trial(option.arm)
            run, unknown = seconds, False
            if first or trial is not None:
                expected = self.costs.estimate(option.key, bucket, option.x, option.extra)
                unknown = expected.source == "none"
            if first:
                run = 0.0 if unknown else min(seconds, expected.seconds)
                if option.compile_key is not None:
                    self._account.buy(option.key, option.compile_key, seconds - run, option.x)
                tenure.watched = True
            else:
                verdict = self.costs.observe(option.key, bucket, option.x, seconds)
                tenure.watched = verdict is not Drift.NONE
                if verdict is Drift.CONFIRMED:
                    tenure.unsettle()
            if trial is not None:
                # Compiling counts as far as it was foreseen, so that one accident does not end all trying; all of it
                # where nothing was known, so that accidents do not follow one another.
                compiling = seconds - run if unknown else min(trial.price, seconds - run)
                spent = min(calls, 1 + MAX_WARMUP_CALLS) * max(0.0, run - trial.best) + compiling
                self._exploration.refund(trial.booked)
                self._exploration.charge(spent, unknown=unknown)
                self.ledger.explored(slot, bucket, spent)
            self.ledger.ran(slot, bucket, option, run, calls, compiling=seconds - run)
            self._count(tenure, run * calls + (seconds - run), calls)

    def tally(self, slot: Hashable, bucket: Hashable, option: Option, calls: int) -> None:
        """Count calls that were not timed: what another arm would have saved in them counts all the same."""
        with self._lock:
            estimate = self.costs.estimate(option.key, bucket, option.x, option.extra)
            run = 0.0 if estimate.source == "none" else estimate.seconds
            self.ledger.ran(slot, bucket, option, run, calls)
            tenure = self._tenure(slot, bucket)
            tenure.end_trial(option.arm)  # for what was booked
            self._count(tenure, run * calls, calls)

    def clear(self) -> None:
        """Forget incumbents, savings and counts; the cost model is left as it is."""
        with self._lock:
            self._tenures.clear()
            self._account.forget_savings()
            self._exploration = Exploration()
            self.ledger.clear()

    def _tenure(self, slot: Hashable, bucket: Hashable) -> Incumbent:
        tenure = self._tenures.get((slot, bucket))
        if tenure is None:
            tenure = self._tenures[slot, bucket] = Incumbent()
        return tenure

    def _count(self, tenure: Incumbent, seconds: float, calls: int) -> None:
        tenure.count(calls)
        self._exploration.total += seconds
        for item, gain in tenure.gains.items():
            self._account.credit(item, gain * calls)

    def score(self, bucket: Hashable, options: Sequence[Option]) -> list[Scored]:
        """What each option is predicted to cost."""
        estimate, is_compiled = self.costs.estimate, self._account.is_bought
        rows = []
        for option in options:
            key, x = option.key, option.x
            found = estimate(key, bucket, x, 0.0 if option.includes_transfer else option.transfer)
            wait = option.startup
            if not is_compiled(option.compile_key):
                wait += self._account.price(key, option.compile_key, x)
            rows.append(Scored(option, found, found.seconds, wait))
        return rows

    def _price(self, row: Scored) -> float:
        """What must still be paid before ``row`` runs at its total; nothing once the savings have covered it."""
        if row.compile <= 0.0:
            return 0.0
        option, pays = row.option, self._account.pays
        compiling = row.compile - option.startup
        if compiling > 0.0 and not pays(option.compile_key, compiling):
            return row.compile
        if option.startup > 0.0 and not pays(_import_of(option), row.compile):
            return row.compile
        return 0.0

    def _best(self, tenure: Incumbent, rows: list[Scored], threshold: float) -> tuple[Scored, str]:
        """The row to take, and why: the cheapest, or the incumbent where that is hardly slower."""
        best: Scored | None = None
        kept: Scored | None = None
        least = kept_cost = math.inf
        for row in rows:
            cost = row.total if row.compile <= 0.0 else row.total + self._price(row)
            if cost < least:  # never so where the total is nan
                best, least = row, cost
            if row.option.arm == tenure.incumbent:
                kept, kept_cost = row, cost
        if best is None:
            row = kept or rows[0]
            return row, f"{row.option.arm} is taken because nothing is known of any arm yet"
        if kept is not None and kept is not best and kept_cost < (1.0 + threshold) * least:
            more = kept_cost / least - 1.0
            return kept, f"{kept.option.arm} stays: {more:.0%} slower than {best.option.arm}, less than {threshold:.0%}"
        found = best.estimate
        source = f"{found.samples} samples" if found.samples else _SOURCES[found.source]
        quicker = min((row for row in rows if row.total < best.total), key=lambda row: row.total, default=None)
        if quicker is None:
            return best, f"{best.option.arm} is predicted fastest: {format_seconds(best.total)} from {source}"
        here, less, once = map(format_seconds, (best.total, quicker.total, quicker.compile))
        return best, (
            f"{best.option.arm} is taken: {here} from {source}; {quicker.option.arm} is predicted to take {less}, but "
            f"its first call {once} more, which would not have paid yet"
        )

    def _try(self, tenure: Incumbent, row: Scored, best: Scored, rows: list[Scored]) -> Choice:
        arm = row.option.arm
        price = self._price(row)
        reason = f"{arm} is tried: it might beat {best.option.arm} at {format_seconds(best.total)}"
        waking = 0 if row.compile > 0.0 else warmup_calls(row.total, another=True, on_host=row.option.on_host)
        # Booked now, and put right when it is known: other plans choose meanwhile, and some tries are never reported.
        booked = max(0.0, price + (1 + waking) * (row.total - best.total)) if row.known else 0.0
        self._exploration.charge(booked, unknown=False)
        tenure.begin_trial(arm, ExplorationTrial(best.total, price, booked))
        return Choice(row.option, row.estimate, reason, True, waking, rows)


_SOURCES = {"samples": "samples of other sizes", "knots": "calibration", "prior": "the packaged prior"}


def _note_gains(incumbent: Incumbent, rows: Sequence[Scored], best: Scored, threshold: float) -> None:
    """Work out what each purchase would save in every call that ``best`` serves from now on.

    One compilation may serve many size buckets (a Numba signature), one import many compilations (all shapes of JAX):
    each purchase is credited by all calls that it would serve. A gain too small to replace the incumbent counts for
    nothing. An arm of which nothing is known might take no time at all.
    """
    gains = incumbent.gains
    gains.clear()
    for row in rows:
        if row.compile <= 0.0 or row is best:
            continue
        total = row.total if row.known else 0.0
        if best.total > (1.0 + threshold) * total:
            option, gain = row.option, best.total - total
            if option.compile_key is not None:
                gains[option.compile_key] = max(gain, gains.get(option.compile_key, 0.0))
            if option.startup > 0.0:
                library = _import_of(option)
                gains[library] = max(gain, gains.get(library, 0.0))


def _import_of(option: Option) -> tuple[str, str]:
    """The import of an option's library, as an item of the account."""
    return "import", option.owner
