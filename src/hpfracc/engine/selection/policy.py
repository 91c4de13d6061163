"""The policy: which arm runs the next call.

- The cost of an arm is its predicted run time with transfers, plus what must still be compiled or imported.
- The cheapest arm is used. The incumbent stays unless the gain exceeds the threshold.
- An arm that must be compiled is used once compilation would have paid for itself (:mod:`.rent_or_buy`).
- An alternative is tried only if it might be better, cannot cost much, and the exploration budget allows it.

Counters decide when alternatives are tried; no random numbers are used.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from hpfracc.engine.locks import Guarded
from hpfracc.engine.selection.costs import CostEstimate, CostModel, Option, Scored
from hpfracc.engine.selection.exploration import (
    MAX_REVIEW_INTERVAL,
    MAX_WARMUP_CALLS,
    Exploration,
    ExplorationTrial,
    Incumbent,
    warmup_calls,
)
from hpfracc.engine.selection.regret import Ledger
from hpfracc.engine.selection.times import Drift
from hpfracc.errors import InvalidInputError
from hpfracc.profiling.formats import format_seconds

__all__ = ["Choice", "Chooser"]


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
        self.ledger = Ledger(costs)
        self._account = costs.compiling
        self._exploration = Exploration()
        self._incumbents: dict[tuple[Hashable, Hashable], Incumbent] = {}

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
            Whether to choose from existing knowledge only, without exploring or storing anything.
        """
        if not options:
            raise InvalidInputError("no option to choose from; offer at least one arm")
        with self._lock:
            incumbent = self._incumbents.get((slot, bucket)) or Incumbent()
            rows = self.score(bucket, options)
            best, reason = self._best(incumbent, rows, threshold)
            if frozen:
                return Choice(best.option, best.estimate, reason, False, MAX_REVIEW_INTERVAL - 1, rows)
            self._incumbents[slot, bucket] = incumbent
            self.ledger.offered(slot, bucket, options)
            _note_gains(incumbent, rows, best, threshold)
            incumbent.take(best.option.arm)
            if explore and len(rows) > 1:
                row = self._exploration.pick(incumbent, rows, best, self._price, threshold, budget)
                if row is not None:
                    return self._try(incumbent, row, best, rows)
            return Choice(best.option, best.estimate, reason, False, incumbent.review_after(best), rows)

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
            incumbent = self._incumbent(slot, bucket)
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
                verdict = self.costs.observe(option.key, bucket, option.x, seconds)
                incumbent.watched = verdict is not Drift.NONE
                if verdict is Drift.CONFIRMED:
                    incumbent.unsettle()
            if trial is not None:
                # Compilation is charged up to the expected price, so that one bad surprise does not end exploration; in
                # full if nothing was known, so that surprises do not follow one another.
                compiling = seconds - run if unknown else min(trial.price, seconds - run)
                spent = min(calls, 1 + MAX_WARMUP_CALLS) * max(0.0, run - trial.best) + compiling
                self._exploration.refund(trial.charged)
                self._exploration.charge(spent, unknown=unknown)
                self.ledger.explored(slot, bucket, option, spent)
            self.ledger.ran(slot, bucket, option, run, calls, compiling=seconds - run)
            self._count(incumbent, run * calls + (seconds - run), calls)

    def tally(self, slot: Hashable, bucket: Hashable, option: Option, calls: int) -> None:
        """Count calls that were not timed. The savings of another arm in them are still credited."""
        with self._lock:
            estimate = self.costs.estimate(option.key, bucket, option.x, option.extra)
            run = 0.0 if estimate.source == "none" else estimate.seconds
            self.ledger.ran(slot, bucket, option, run, calls)
            incumbent = self._incumbent(slot, bucket)
            incumbent.end_trial(option.arm)  # its charge stands
            self._count(incumbent, run * calls, calls)

    def _incumbent(self, slot: Hashable, bucket: Hashable) -> Incumbent:
        incumbent = self._incumbents.get((slot, bucket))
        if incumbent is None:
            incumbent = self._incumbents[slot, bucket] = Incumbent()
        return incumbent

    def _count(self, incumbent: Incumbent, seconds: float, calls: int) -> None:
        incumbent.count(calls)
        self._exploration.total += seconds
        if incumbent.gains:
            self._account.credit_calls(incumbent.gains, calls)

    def score(self, bucket: Hashable, options: Sequence[Option]) -> list[Scored]:
        """The predicted cost of each option."""
        estimate, price = self.costs.estimate, self._account.price
        rows = []
        for option in options:
            key, x = option.key, option.x
            found = estimate(key, bucket, x, 0.0 if option.includes_transfer else option.transfer)
            wait = option.startup + price(key, option.compile_key, x)
            rows.append(Scored(option, found, found.seconds, wait))
        return rows

    def _price(self, row: Scored) -> float:
        """Seconds still to be paid before ``row`` runs at its total; 0 once the savings have covered them."""
        if row.compile <= 0.0:
            return 0.0
        option, pays = row.option, self._account.pays
        compiling = row.compile - option.startup
        if compiling > 0.0 and not pays(option.compile_key, compiling):
            return row.compile
        if option.startup > 0.0 and not pays(_import_of(option), row.compile):
            return row.compile
        return 0.0

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
        if kept is not None and kept is not best and kept_cost < (1.0 + threshold) * least:
            more = kept_cost / least - 1.0
            if kept.option.watts is not None:
                return kept, f"{kept.option.arm} stays: {more:.0%} more energy than {best.option.arm}"
            return kept, f"{kept.option.arm} stays: {more:.0%} slower than {best.option.arm}, less than {threshold:.0%}"
        found = best.estimate
        source = f"{found.samples} samples" if found.samples else _SOURCES[found.source]
        watts = best.option.watts
        if watts is not None:
            return best, (
                f"{best.option.arm} is predicted to need least energy: {best.total * watts:.3g} J, "
                f"{format_seconds(best.total)} from {source} at {watts:.3g} W"
            )
        quicker = min((row for row in rows if row.total < best.total), key=lambda row: row.total, default=None)
        if quicker is None:
            return best, f"{best.option.arm} is predicted fastest: {format_seconds(best.total)} from {source}"
        here, less, once = map(format_seconds, (best.total, quicker.total, quicker.compile))
        return best, (
            f"{best.option.arm} is taken: {here} from {source}; {quicker.option.arm} is predicted to take {less}, but "
            f"its first call {once} more, which would not have paid yet"
        )

    def _try(self, incumbent: Incumbent, row: Scored, best: Scored, rows: list[Scored]) -> Choice:
        arm = row.option.arm
        price = self._price(row)
        reason = f"{arm} is tried: it might beat {best.option.arm} at {format_seconds(best.total)}"
        warmup = 0 if row.compile > 0.0 else warmup_calls(row.total, switched=True, on_host=row.option.on_host)
        # Charged now and corrected by the report, because other plans choose in the meantime, and some trials are never
        # reported.
        charged = max(0.0, price + (1 + warmup) * (row.total - best.total)) if row.known else 0.0
        self._exploration.charge(charged, unknown=False)
        incumbent.begin_trial(arm, ExplorationTrial(best.total, price, charged))
        return Choice(row.option, row.estimate, reason, True, warmup, rows)


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
            if option.compile_key is not None:
                gains[option.compile_key] = max(gain, gains.get(option.compile_key, 0.0))
            if option.startup > 0.0:
                library = _import_of(option)
                gains[library] = max(gain, gains.get(library, 0.0))


def _import_of(option: Option) -> tuple[str, str]:
    """Account item of the import of an option's library."""
    return "import", option.owner
