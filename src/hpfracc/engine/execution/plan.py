"""A decision that is being kept: the arm bound to one kind of call, and when to think again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from hpfracc.engine.backends.base import Arm
from hpfracc.engine.execution.binding import Bound
from hpfracc.engine.memory.budget import get_budget
from hpfracc.engine.selection.candidates import NEGLIGIBLE_BYTES, fresh_bytes, memory_share, predicted_bytes, stays_put
from hpfracc.engine.selection.costs import Option
from hpfracc.engine.selection.decision import Decision
from hpfracc.engine.selection.exploration import MAX_WARMUP_CALLS
from hpfracc.engine.selection.knowledge import Knowledge
from hpfracc.engine.selection.request import Request

__all__ = ["LOOK", "REVIEW", "Plan", "Price"]

#: What looking at a settled plan, and reviewing it, may take of the time of the calls they stand for, each.
_SHARE = 0.01
_MOST_UNSEEN = 4096
#: Times within these factors of the expected one are no news.
_USUAL = (0.7, 1.5)


class Price:
    """What a kind of attention costs on this machine: a running mean of what it took, beginning with a usual value."""

    __slots__ = ("_usual", "seconds")

    def __init__(self, usual: float) -> None:
        self._usual = usual
        self.reset()

    def reset(self) -> None:
        """As if none had been paid yet."""
        self.seconds = self._usual

    def paid(self, seconds: float) -> None:
        """Take what one took; an accident (a page fault, another process) counts as no more than four of the usual."""
        self.seconds += 0.1 * (min(seconds, 4.0 * self.seconds) - self.seconds)

    @property
    def worth(self) -> float:
        """Seconds of work beside which one is small."""
        return self.seconds / _SHARE


#: Of a look (time a call, learn from it) and of a review (choose anew): the usual values are those of a quiet desktop.
LOOK, REVIEW = Price(50e-6), Price(200e-6)


def memory_guard(request: Request, arm: Arm) -> Callable[[], bool] | None:
    """Whether a call fits now, asked before each: a fraction of a microsecond, from a reading a moment old."""
    need = predicted_bytes(request.primitive, request.call, arm)
    if need < NEGLIGIBLE_BYTES or request.placement.traced:
        return None
    fresh = fresh_bytes(need, request.call, stays_put(request.placement, arm))
    owner = None if arm.on_host else arm.backend
    return partial(get_budget().fits, fresh, arm.device, memory_share(request.settings, arm), owner)


class Plan:
    """What calls of one exact kind do until ``attention`` of them have been made.

    ``tick`` is an ``itertools.count``: one C call that no other thread can split, so no call is ever uncounted.
    """

    __slots__ = (
        "attention",
        "backend",
        "bound",
        "decision",
        "expected",
        "fresh",
        "guard",
        "in_chunks",
        "interval",
        "knowledge",
        "option",
        "peeks",
        "request",
        "run_seconds",
        "seen",
        "slowdown",
        "tick",
        "version",
        "warm",
    )

    def __init__(
        self, request: Request, knowledge: Knowledge, bound: Bound, decision: Decision, option: Option, version: int
    ) -> None:
        self.request = request
        self.knowledge = knowledge
        self.version = version
        self.tick: Callable[[], int] = itertools.count(1).__next__
        self.attention: float = math.inf
        #: The backend that the call itself asked for, to plan its pieces by.
        self.backend: Any = None
        #: Why the call had better be cut, or None.
        self.in_chunks: str | None = None
        #: How much longer it takes than the quickest arm that only lacks room; 0 where there is none.
        self.slowdown = 0.0
        self.seen = 0
        self.peeks = 0
        self.interval = 0
        self.warm: set[str] = set()
        #: Whether nothing planned before had compiled what the first arm compiles.
        self.fresh = False
        self.adopt(bound, decision, option)

    def adopt(self, bound: Bound, decision: Decision, option: Option, expected: float = math.nan) -> None:
        """Take another arm (or the same one, bound anew), of which a call is ``expected`` to take that many seconds."""
        self.expected = expected
        self.run_seconds = 0.0
        # With its own decision: what a call was done with is told later, when the plan may have another.
        bound.decision = decision
        self.bound = bound
        self.decision = decision
        self.option = option
        #: Says whether there is room for a call now; None for calls too small to matter.
        self.guard: Callable[[], bool] | None = memory_guard(self.request, bound.arm)

    @property
    def forced(self) -> bool:
        """Whether the backend was the user's word rather than the engine's choice."""
        return self.request.preference is not None

    def calls(self) -> int:
        """How many calls were made; asking takes a tick of the count, which is taken off again."""
        self.peeks += 1
        return self.tick() - self.peeks

    def claim(self, count: int) -> int:
        """How many calls up to call ``count`` nobody has reported yet; from now on they are reported."""
        calls, self.seen = count - self.seen, max(count, self.seen)
        return max(1, calls)

    def keep_for(self, calls: int, now: int) -> None:
        """Keep the arm for ``calls`` further calls, counted from call ``now``, before one gets attention again."""
        if calls > MAX_WARMUP_CALLS and self.expected > 0.0:  # settled, and it is known what a call takes
            calls = max(calls, min(_MOST_UNSEEN, int(LOOK.worth / self.expected)))
        self.seen = max(now, self.seen)
        self.interval = calls
        self.attention = now + calls + 1

    def warms_up(self, arm: Arm) -> bool:
        """Whether this is an arm's first call here, and takes longer than those to come; asking counts it.

        Then weights are transformed that will be kept, and a GPU's library makes its plans for the shape.
        """
        if arm.name in self.warm:
            return False
        self.warm.add(arm.name)
        return self.request.prepared or not arm.on_host

    def deserves_review(self, seconds: float, calls: int) -> bool:
        """Whether to choose anew after a call that took ``seconds`` and stands for ``calls``.

        While the plan learns, always. Afterwards once so much time has gone by that choosing anew is nothing beside it;
        sooner where the time is out of line.
        """
        self.run_seconds += seconds * calls
        if self.interval <= MAX_WARMUP_CALLS or self.run_seconds >= REVIEW.worth:
            return True
        usual = _USUAL[0] * self.expected <= seconds <= _USUAL[1] * self.expected
        return not usual and self.run_seconds >= LOOK.worth
