"""Who chooses: the engine's own rule, and the baselines it is compared with."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Collection

from hpfracc.engine.selection.costs import CostModel, Option
from hpfracc.engine.selection.policy import Choice, Chooser
from hpfracc.engine.selection.regret import regret_report
from hpfracc.engine.workload import bucket_of

from .simulation import Policy, Times, simulate
from .tables import PLAIN, Group

#: Runs of each arm at a knot; the lower quartile of their times is the knot, as in the engine's calibration.
CALIBRATION_RUNS = 9
#: What compiling is expected to take before anything was seen: the middle of what selection.md tells (Numba 0.3 to
#: 3.4 s a signature, JAX 60 to 190 ms a shape).
COMPILE_PRIORS = {"numba*": 1.0, "jax*": 0.12}


class Engine:
    """The real cost model and chooser, driven as the engine's hot path drives them.

    An answer is used for one call and ``review_after`` further ones; the last of them is timed and reported as standing
    for all of them. The process is fresh: what calibration told is known (run times at the knots, what first calls took
    there), but nothing is compiled yet.
    """

    def __init__(self, group: Group, knots: Collection[int], seed: int = 0) -> None:
        self.costs = CostModel()
        for pattern, seconds in COMPILE_PRIORS.items():
            self.costs.compiling.set_prior(pattern, seconds)
        self.chooser = Chooser(self.costs)
        #: How often the chooser was asked.
        self.decisions = 0
        self._slot = group.op, group.start
        self._options = {n: self._offer(group, n) for n in group.sizes}
        self._plans: dict[int, tuple[Choice, int]] = {}
        for n in sorted(knots):
            self._calibrate(group, n, seed)

    def _offer(self, group: Group, n: int) -> list[Option]:
        cells = group.cells[n]
        return [
            Option(
                arm,
                (group.op, arm, group.start, "float64"),
                group.work(arm, n),
                compile_key=None if arm.startswith(PLAIN) else cells[arm].compile_key,
            )
            for arm in group.arms
            if arm in cells
        ]

    def _calibrate(self, group: Group, n: int, seed: int) -> None:
        for option in self._options[n]:
            cell = group.cells[n][option.arm]
            rng = random.Random(f"calibration/{seed}/{group.name}/{option.arm}/{n}")
            times = [rng.choice(cell.samples) for _ in range(CALIBRATION_RUNS)]
            self.costs.add_knot(option.key, option.x, statistics.quantiles(times, n=4, method="inclusive")[0])
            if option.compile_key is not None:
                self.costs.compiling.quote(option.key, option.compile_key, cell.compile, option.x)

    def pick(self, n: int) -> str:
        plan = self._plans.get(n)
        if plan is None:
            self.decisions += 1
            plan = self.chooser.choose(self._slot, bucket_of(1, n), self._options[n]), 0
            self._plans[n] = plan
        return plan[0].option.arm

    def told(self, n: int, arm: str, seconds: float, first: bool) -> None:
        choice, used = self._plans[n]
        used += 1
        if used <= choice.review_after:
            self._plans[n] = choice, used
            return
        del self._plans[n]
        self.chooser.observe(self._slot, bucket_of(1, n), choice.option, seconds, first=first, calls=used)

    @property
    def exploring(self) -> float:
        """Share of the time that went into trying alternatives."""
        return regret_report(self.chooser).total.exploring


class Fixed:
    """An arm per size; plain NumPy where none is given, the first arm where that has none."""

    def __init__(self, group: Group, arms: dict[int, str] | None = None) -> None:
        self._arms = {n: group.plain(n) or next(iter(cells)) for n, cells in group.cells.items()} | (arms or {})

    def pick(self, n: int) -> str:
        return self._arms[n]

    def told(self, n: int, arm: str, seconds: float, first: bool) -> None:
        pass


class RoundRobin:
    """Every arm in turn, at each size."""

    def __init__(self, group: Group) -> None:
        self._arms = {n: sorted(cells) for n, cells in group.cells.items()}
        self._calls = dict.fromkeys(self._arms, 0)

    def pick(self, n: int) -> str:
        self._calls[n] += 1
        return self._arms[n][(self._calls[n] - 1) % len(self._arms[n])]

    def told(self, n: int, arm: str, seconds: float, first: bool) -> None:
        pass


class Thompson:
    """Thompson sampling on the mean log time of each arm at each size, every arm tried first."""

    def __init__(self, group: Group, seed: int = 0) -> None:
        self._rng = random.Random(f"thompson/{seed}/{group.name}")
        #: Number, mean and sum of squared deviations of the log times.
        self._seen: dict[int, dict[str, tuple[int, float, float]]] = {
            n: dict.fromkeys(sorted(cells), (0, 0.0, 0.0)) for n, cells in group.cells.items()
        }

    def pick(self, n: int) -> str:
        def draw(arm: str) -> float:
            count, mean, squares = self._seen[n][arm]
            if count == 0:
                return -math.inf
            spread = math.sqrt(squares / (count - 1)) if count > 1 else 1.0
            return self._rng.gauss(mean, max(spread, 0.05) / math.sqrt(count))

        return min(self._seen[n], key=draw)

    def told(self, n: int, arm: str, seconds: float, first: bool) -> None:
        count, mean, squares = self._seen[n][arm]
        value, count = math.log(seconds), count + 1
        step = value - mean
        mean += step / count
        self._seen[n][arm] = count, mean, squares + step * (value - mean)


def best_fixed(times: Times) -> Policy:
    """The one arm that would have been best for the whole group, known beforehand; NumPy where it is missing."""
    group = times.group
    candidates = [Fixed(group, {n: arm for n in group.sizes if arm in group.cells[n]}) for arm in group.arms]
    return min(candidates, key=lambda policy: simulate(times, policy).seconds())


#: The baselines, by name.
BASELINES: dict[str, Callable[[Times, int], Policy]] = {
    "always NumPy": lambda times, seed: Fixed(times.group),
    "best fixed arm per op": lambda times, seed: best_fixed(times),
    "round-robin": lambda times, seed: RoundRobin(times.group),
    "Thompson sampling": lambda times, seed: Thompson(times.group, seed),
}
