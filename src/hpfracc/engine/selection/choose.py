"""Which arm takes the next call: the cheapest, with what it costs to find that out kept small.

The rule: predicted time plus transfers plus what must be compiled first; the incumbent stays unless the gain is worth
it; an arm that must be compiled is taken once compiling would have paid for itself; an alternative is tried only where
it might be better, cannot cost much, and little time went into trying so far. No random numbers: counters decide.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hpfracc.engine.selection.cost import CostModel, Estimate, Verdict
from hpfracc.engine.selection.locks import Guarded
from hpfracc.engine.selection.regret import Ledger
from hpfracc.engine.selection.savings import Savings
from hpfracc.engine.selection.wording import show_seconds
from hpfracc.errors import InvalidInputError

__all__ = ["Choice", "Chooser", "Option", "Scored"]

#: An alternative is tried only if it is predicted to cost at most this many times the best (selection.md).
_MOST = 5.0
#: Samples of the chosen arm in a bucket until it counts as settled.
_LEARNED = 8
#: A settled bucket is looked at once in this many calls ...
_SELDOM, _SELDOMMEST = 16, 256
#: ... so that a look, some 50 us with the choice, costs about half a percent of the calls it stands for ...
_LOOK_SECONDS = 50e-6 / 0.005
#: An alternative that has been ruled out is asked again after this many calls in the bucket, then after twice as many
#: each time, if it is within this factor of the best or was the best once.
_ASK_AGAIN, _CLOSE = 256, 1.5
#: How far a surprise of the sampled arms of a bucket is taken to hold for those not sampled there.
_SHARED = 0
_WIDER = 0
_DOUBT = 0.4
_OPTIMISM = 1.0
_RANK = "total"
_CAUTION = 1.0
_WORTH = 1e9
_UNKNOWN = 0.5
_LEARN_MOST = 32


@dataclass(frozen=True, slots=True)
class Option:
    """One arm that could take a call.

    Attributes
    ----------
    arm : str
        Its name.
    key : Hashable
        What its times are kept under in the cost model.
    x : float
        The work of this call.
    transfer : float
        Predicted seconds of transfers, used only with ``includes_transfer=False``.
    includes_transfer : bool
        Whether the knots of ``key`` were measured with the transfers that its start implies. If not, ``transfer`` is
        added to what the knots say. Samples always cover the whole call, so nothing is ever added to them.
    compile_key : Hashable or None
        Names the compilation this call needs; options with equal compile keys share it. None: nothing to compile.
    startup : float
        Seconds to import the library, 0 if it is loaded.
    library : str or None
        Whose import ``startup`` is; the part of ``arm`` before the colon where not given.
    """

    arm: str
    key: Hashable
    x: float
    transfer: float = 0.0
    includes_transfer: bool = True
    compile_key: Hashable | None = None
    startup: float = 0.0
    library: str | None = None

    @property
    def owner(self) -> str:
        """Whose import ``startup`` is."""
        return self.library if self.library is not None else self.arm.partition(":")[0]


class Scored(NamedTuple):
    """An option with its estimate, its predicted seconds in all but ``compile``, and those (compile and import)."""

    option: Option
    estimate: Estimate
    total: float
    compile: float


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
    estimate: Estimate
    reason: str
    explored: bool
    review_after: int
    candidates: list[Scored]


class _Place:
    """What the chooser remembers of one slot and bucket."""

    __slots__ = (
        "ask_again",
        "calls",
        "compile_gains",
        "explored",
        "incumbent",
        "interval",
        "library_gains",
        "open",
        "watch",
    )

    def __init__(self) -> None:
        self.incumbent: str | None = None
        self.calls = 0
        self.open = False
        self.interval = _SELDOM
        #: The last time measured was out of line: ask at every call until it is clear why.
        self.watch = False
        self.explored: tuple[str, float, float] | None = None
        self.ask_again: dict[str, int] = {}
        self.compile_gains: dict[Hashable, float] = {}
        self.library_gains: dict[Hashable, float] = {}


class Chooser(Guarded):
    """Chooses between options, and learns from what is reported of them. Thread-safe.

    Parameters
    ----------
    costs : CostModel
        Where predictions come from and measurements go.

    Notes
    -----
    A *slot* is anything hashable that names a kind of call (operation, dtype, where the operands are); with a bucket
    it has one incumbent. The caller runs the option it was given, times it where it can, reports it with
    :meth:`observe` (or :meth:`tally` where it could not be timed), and may then repeat it ``review_after`` times
    before it asks again.
    """

    def __init__(self, costs: CostModel) -> None:
        super().__init__()
        self.costs = costs
        self.ledger = Ledger()
        self._savings = Savings()
        self._places: dict[tuple[Hashable, Hashable], _Place] = {}
        self._total = 0.0
        self._spent = 0.0
        self._first_tries = 0.0

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
        threshold : float
            Gain that makes the incumbent give way.
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
            place = self._places.get((slot, bucket))
            if place is None:
                place = _Place()
                if not frozen:
                    self._places[slot, bucket] = place
            rows = self._score(bucket, options)
            best, score, reason = self._best(place, rows, threshold)
            if frozen:
                return Choice(best.option, best.estimate, reason, False, _SELDOMMEST, rows)
            self._note_gains(place, rows, best, threshold)
            if place.incumbent != best.option.arm:
                if place.incumbent is not None:
                    place.ask_again.setdefault(place.incumbent, place.calls + _ASK_AGAIN)
                place.incumbent = best.option.arm
                place.interval = _SELDOM
            if explore and len(rows) > 1:
                tried = self._alternative(place, rows, best, threshold, budget)
                if tried is not None:
                    return self._try(place, tried, best, rows)
            place.explored = None
            return Choice(best.option, best.estimate, reason, False, self._review_after(place, best), rows)

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
        first : bool
            Whether it was the first call of its compile key: then it is recorded as compile time, less the predicted
            run, and never as run time.
        calls : int
            How many calls since the last report it stands for, itself included.
        """
        with self._lock:
            place = self._places.setdefault((slot, bucket), _Place())
            before = self.costs.estimate(option.key, bucket, option.x, _extra(option))
            run = seconds
            if first and option.compile_key is not None:
                expected = 0.0 if before.source == "none" else before.seconds
                run = min(seconds, expected)
                self.costs.observe_compile(option.key, option.compile_key, seconds - run, option.x)
                place.watch = True
            else:
                verdict = self.costs.observe(option.key, bucket, option.x, seconds)
                place.watch = verdict is not Verdict.ORDINARY
                if verdict is Verdict.DRIFTED:
                    place.interval = _SELDOM
            self._total += seconds + run * (calls - 1)
            if place.explored is not None and place.explored[0] == option.arm:
                spent = max(0.0, run - place.explored[1]) + (seconds - run if place.explored[2] > 0.0 else 0.0)
                if before.source == "none":
                    self._first_tries += seconds
                else:
                    self._spent += spent
                self.ledger.explored(slot, bucket, spent)
                place.explored = None
            self.ledger.ran(slot, bucket, option, run, calls, compiled=seconds - run)
            self._count(place, calls)

    def tally(self, slot: Hashable, bucket: Hashable, option: Option, calls: int) -> None:
        """Count calls that were not timed: what another arm would have saved in them counts all the same."""
        with self._lock:
            place = self._places.setdefault((slot, bucket), _Place())
            estimate = self.costs.estimate(option.key, bucket, option.x, _extra(option))
            run = 0.0 if estimate.source == "none" else estimate.seconds
            self._total += run * calls
            self.ledger.ran(slot, bucket, option, run, calls)
            self._count(place, calls)

    def clear(self) -> None:
        """Forget incumbents, savings and counts; the cost model is left as it is."""
        with self._lock:
            self._places.clear()
            self._savings.clear()
            self.ledger.clear()
            self._total = self._spent = self._first_tries = 0.0

    def _score(self, bucket: Hashable, options: Sequence[Option]) -> list[Scored]:
        estimate, compile_cost = self.costs.estimate, self.costs.compile_cost
        rows: list[Scored] = []
        surprise, surprised = 0.0, 0
        for option in options:
            found = estimate(option.key, bucket, option.x, _extra(option))
            wait = option.startup
            if option.compile_key is not None:
                wait += compile_cost(option.key, option.compile_key, option.x)
            rows.append(Scored(option, found, found.seconds, wait))
            if found.samples and found.curve == found.curve:
                surprise += _beyond_doubt(math.log(found.seconds / found.curve))
                surprised += 1
        if surprised and surprised < len(rows):
            surprise /= surprised
            factor, wider = math.exp(_SHARED * surprise), math.exp(_WIDER * abs(surprise))
            rows = [row if row.estimate.samples else _scaled(row, factor, wider) for row in rows]
        return rows

    def _price(self, row: Scored) -> float:
        """What must be paid before this row runs at its total; nothing where the savings so far have covered it."""
        if row.compile <= 0.0:
            return 0.0
        option = row.option
        compiling = row.compile - option.startup
        if self._savings.has_paid(option.compile_key, compiling, option.owner, option.startup):
            return 0.0
        return row.compile

    def _best(self, place: _Place, rows: list[Scored], threshold: float) -> tuple[Scored, float, str]:
        best: Scored | None = None
        least = math.inf
        kept: Scored | None = None
        kept_score = math.inf
        for row in rows:
            if row.total != row.total:  # nan: nothing is known of it
                continue
            score = row.total + self._price(row)
            if score < least:
                best, least = row, score
            if row.option.arm == place.incumbent:
                kept, kept_score = row, score
        if best is None:
            row = next((row for row in rows if row.option.arm == place.incumbent), rows[0])
            return row, math.nan, f"{row.option.arm}: nothing is known of any arm yet"
        if kept is not None and kept is not best and least > (1.0 - threshold) * kept_score:
            gain = 1.0 - least / kept_score
            return kept, kept_score, f"{kept.option.arm} stays: {best.option.arm} would gain {gain:.0%} only"
        source = best.estimate
        what = f"{source.samples} samples" if source.samples else source.source
        return best, least, f"{best.option.arm} is predicted fastest: {show_seconds(best.total)} ({what})"

    def _note_gains(self, place: _Place, rows: list[Scored], best: Scored, threshold: float) -> None:
        place.compile_gains.clear()
        place.library_gains.clear()
        reference = best.total
        for row in rows:
            if row.compile <= 0.0 or row is best:
                continue
            gain = reference - (row.total if row.total == row.total else 0.0)
            if gain > threshold * reference:
                gain *= _CAUTION
                option = row.option
                if option.compile_key is not None:
                    gains = place.compile_gains
                    gains[option.compile_key] = max(gain, gains.get(option.compile_key, 0.0))
                if option.startup > 0.0:
                    owner = option.owner
                    place.library_gains[owner] = max(gain, place.library_gains.get(owner, 0.0))

    def _alternative(
        self, place: _Place, rows: list[Scored], best: Scored, threshold: float, budget: float
    ) -> Scored | None:
        if best.total != best.total:
            return None
        spare = budget * self._total - self._spent
        bar = (1.0 - threshold) * best.total
        optimism = math.sqrt(_OPTIMISM * math.log(2.0 + place.calls))
        found: Scored | None = None
        least = math.inf
        place.open = False
        for row in rows:
            if row is best:
                continue
            if row.total != row.total:
                price = self._price(row)
                if price > 0.0 or self._first_tries + row.compile > _UNKNOWN * self._total:
                    continue
                low = 0.0
            else:
                cost = row.total - best.total + self._price(row)
                if row.total > _MOST * best.total:
                    continue
                low = row.total * (row.estimate.low / row.total) ** optimism
                if low >= bar and not self._asked_again(place, row, best):
                    continue
                place.open = True
                if cost > spare or cost > _WORTH * (best.total - low) * place.calls:
                    continue
            rank = {"low": low, "total": row.total + self._price(row) if row.total == row.total else 0.0}[_RANK]
            if rank < least:
                found, least = row, rank
        return found

    def _asked_again(self, place: _Place, row: Scored, best: Scored) -> bool:
        arm = row.option.arm
        due = place.ask_again.get(arm)
        if due is None:
            if row.total > _CLOSE * best.total:
                return False
            due = _ASK_AGAIN
        return place.calls >= due

    def _try(self, place: _Place, row: Scored, best: Scored, rows: list[Scored]) -> Choice:
        arm = row.option.arm
        place.ask_again[arm] = max(2 * place.calls, _ASK_AGAIN)
        place.explored = (arm, best.total, self._price(row))
        place.watch = True
        reason = f"{arm} is tried: it may beat {best.option.arm} ({show_seconds(best.total)})"
        return Choice(row.option, row.estimate, reason, True, 0, rows)

    def _review_after(self, place: _Place, best: Scored) -> int:
        found = best.estimate
        if place.watch or found.samples < _LEARNED or best.total >= _LOOK_SECONDS or best.compile > 0.0:
            return 0
        if (found.erratic and found.samples < 32) or (place.open and place.calls < _LEARN_MOST):
            return 0
        most = min(max(int(_LOOK_SECONDS / best.total), _SELDOM), _SELDOMMEST)
        interval = min(place.interval, most)
        if found.samples >= 32:
            place.interval = 2 * interval
        return interval - 1

    def _count(self, place: _Place, calls: int) -> None:
        place.calls += calls
        self._savings.credit(place.compile_gains, place.library_gains, calls)


def _extra(option: Option) -> float:
    return 0.0 if option.includes_transfer else option.transfer


def _beyond_doubt(surprise: float) -> float:
    return math.copysign(max(0.0, abs(surprise) - _DOUBT), surprise)


def _scaled(row: Scored, factor: float, wider: float) -> Scored:
    found = row.estimate
    if found.curve != found.curve:
        return row
    found = found._replace(
        seconds=found.seconds * factor, low=found.low * factor / wider, high=found.high * factor * wider
    )
    return Scored(row.option, found, found.seconds, row.compile)
