"""Which arm takes the next call: the cheapest, with what it costs to find that out kept small.

The rule: predicted time plus transfers plus what must be compiled first; the incumbent stays unless the gain is worth
it; an arm that must be compiled is taken once compiling would have paid for itself; an alternative is tried only where
it might be better, cannot cost much, and little time went into trying so far. No random numbers: counters decide.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from hpfracc.engine.locks import Guarded
from hpfracc.engine.selection.cost import CostModel, Verdict
from hpfracc.engine.selection.explain import format_seconds
from hpfracc.engine.selection.exploration import Exploration
from hpfracc.engine.selection.options import Choice, Option, Scored
from hpfracc.engine.selection.regret import Ledger
from hpfracc.engine.selection.savings import Savings
from hpfracc.engine.selection.tenure import MOST_WAKING, SELDOMMEST, Tenure, Trial, waking_calls
from hpfracc.errors import InvalidInputError

__all__ = ["Choice", "Chooser", "Option", "Scored"]


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
        self._savings = Savings()
        self._exploration = Exploration()
        self._tenures: dict[tuple[Hashable, Hashable], Tenure] = {}

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
            tenure = self._tenures.get((slot, bucket)) or Tenure()
            rows = self.score(bucket, options)
            best, reason = self._best(tenure, rows, threshold)
            if frozen:
                return Choice(best.option, best.estimate, reason, False, SELDOMMEST - 1, rows)
            self._tenures[slot, bucket] = tenure
            self.ledger.offered(slot, bucket, options)
            self._savings.note_gains(tenure, rows, best, threshold)
            tenure.take(best.option.arm)
            if explore and len(rows) > 1:
                row = self._exploration.pick(tenure, rows, best, self._savings.price, threshold, budget)
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
                    self.costs.observe_compile(option.key, option.compile_key, seconds - run, option.x)
                tenure.watched = True
            else:
                verdict = self.costs.observe(option.key, bucket, option.x, seconds)
                tenure.watched = verdict is not Verdict.ORDINARY
                if verdict is Verdict.DRIFTED:
                    tenure.unsettle()
            if trial is not None:
                # Compiling counts as far as it was foreseen, so that one accident does not end all trying; all of it
                # where nothing was known, so that accidents do not follow one another.
                compiling = seconds - run if unknown else min(trial.price, seconds - run)
                spent = min(calls, 1 + MOST_WAKING) * max(0.0, run - trial.best) + compiling
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
            self._savings.clear()
            self._exploration = Exploration()
            self.ledger.clear()

    def _tenure(self, slot: Hashable, bucket: Hashable) -> Tenure:
        tenure = self._tenures.get((slot, bucket))
        if tenure is None:
            tenure = self._tenures[slot, bucket] = Tenure()
        return tenure

    def _count(self, tenure: Tenure, seconds: float, calls: int) -> None:
        tenure.count(calls)
        self._exploration.total += seconds
        self._savings.credit(tenure, calls)

    def score(self, bucket: Hashable, options: Sequence[Option]) -> list[Scored]:
        """What each option is predicted to cost."""
        estimate, is_compiled = self.costs.estimate, self.costs.is_compiled
        rows = []
        for option in options:
            key, x = option.key, option.x
            found = estimate(key, bucket, x, 0.0 if option.includes_transfer else option.transfer)
            wait = option.startup
            if not is_compiled(option.compile_key):
                wait += self.costs.compile_cost(key, option.compile_key, x)
            rows.append(Scored(option, found, found.seconds, wait))
        return rows

    def _best(self, tenure: Tenure, rows: list[Scored], threshold: float) -> tuple[Scored, str]:
        """The row to take, and why: the cheapest, or the incumbent where that is hardly slower."""
        best: Scored | None = None
        kept: Scored | None = None
        least = kept_cost = math.inf
        for row in rows:
            cost = row.total if row.compile <= 0.0 else row.total + self._savings.price(row)
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

    def _try(self, tenure: Tenure, row: Scored, best: Scored, rows: list[Scored]) -> Choice:
        arm = row.option.arm
        price = self._savings.price(row)
        reason = f"{arm} is tried: it might beat {best.option.arm} at {format_seconds(best.total)}"
        waking = 0 if row.compile > 0.0 else waking_calls(row.total, another=True, on_host=row.option.on_host)
        # Booked now, and put right when it is known: other plans choose meanwhile, and some tries are never reported.
        booked = max(0.0, price + (1 + waking) * (row.total - best.total)) if row.known else 0.0
        self._exploration.charge(booked, unknown=False)
        tenure.begin_trial(arm, Trial(best.total, price, booked))
        return Choice(row.option, row.estimate, reason, True, waking, rows)


_SOURCES = {"samples": "samples of other sizes", "knots": "calibration", "prior": "the packaged prior"}
