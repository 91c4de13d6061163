"""What a campaign of random problems records, and the bars that it must meet."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

#: Largest ratio of true error to estimate, and the share of problems in which it must hold.
MAX_RATIO, MIN_SHARE = 3.0, 0.99
#: A success must not hide an error above this multiple of the tolerance.
MAX_EXCESS = 100.0


@dataclass(frozen=True)
class Outcome:
    """One solved problem.

    Attributes
    ----------
    problem : str
        The parameters, enough to solve it again.
    error : float
        Largest difference from the truth, in the norm of the estimate.
    estimate : float
        What the library reported; nan if it reported that there is no estimate.
    floor : float
        Rounding error of the truth and the answer: differences below it count as no error.
    tolerance : float or None
        Absolute error that was asked for, if the problem has a tolerance.
    success : bool
        What the library reported.
    reason : str
        Words that came with a nan or with ``success=False``; none may be empty.
    """

    problem: str
    error: float
    estimate: float
    floor: float
    tolerance: float | None = None
    success: bool = True
    reason: str = ""

    @property
    def ratio(self) -> float:
        """True error over the estimate; nan where there is no estimate."""
        if math.isnan(self.estimate):
            return math.nan
        return self.error / max(self.estimate, self.floor)

    @property
    def is_hidden(self) -> bool:
        """Whether a success has an error beyond `MAX_EXCESS` tolerances, or no number at all."""
        if not self.success:
            return False
        if math.isnan(self.error):
            return True
        return self.tolerance is not None and self.error > MAX_EXCESS * max(self.tolerance, self.floor)

    @property
    def is_silent(self) -> bool:
        """Whether an estimate or a success is missing without a reason."""
        return (math.isnan(self.estimate) or not self.success) and not self.reason.strip()


#: Makes and solves one problem from its own random numbers.
Trial = Callable[[np.random.Generator], Outcome]


@dataclass
class Report:
    """The outcomes of one family of problems."""

    family: str
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def ratios(self) -> np.ndarray:
        """Ratios of the problems that have an estimate and succeeded, in ascending order."""
        found = [each.ratio for each in self.outcomes if each.success]
        return np.sort([ratio for ratio in found if not math.isnan(ratio)])

    @property
    def share(self) -> float:
        """Share of the estimates that hold within `MAX_RATIO`."""
        return float(np.mean(self.ratios <= MAX_RATIO)) if self.ratios.size else math.nan

    def faults(self) -> list[str]:
        """One sentence for each bar that is missed."""
        found = [
            f"{self.family}: hidden error {each.error:.2g}, {each.problem}" for each in self.outcomes if each.is_hidden
        ]
        found += [
            f"{self.family}: no estimate or no success, and no reason: {each.problem}"
            for each in self.outcomes
            if each.is_silent
        ]
        if self.share < MIN_SHARE:
            worst = sorted(
                (each for each in self.outcomes if each.success), key=lambda each: -np.nan_to_num(each.ratio)
            )[:3]
            listed = "; ".join(f"{each.ratio:.3g} ({each.problem})" for each in worst)
            found.append(f"{self.family}: {self.share:.1%} within {MAX_RATIO:g} times the estimate; worst: {listed}")
        return found

    def row(self) -> str:
        """A line of the table."""
        failed = sum(not each.success for each in self.outcomes)
        unknown = sum(math.isnan(each.estimate) for each in self.outcomes if each.success)
        hidden = sum(each.is_hidden for each in self.outcomes)
        ratios = self.ratios
        median, high, worst = (
            (float(np.median(ratios)), float(np.quantile(ratios, 0.99)), float(ratios[-1]))
            if ratios.size
            else (math.nan,) * 3
        )
        return (
            f"{self.family:44} {len(self.outcomes):6} {self.share:8.1%} {median:9.2g} {high:9.2g} {worst:9.2g} "
            f"{unknown:5} {failed:7} {hidden:7}"
        )


HEADER = (
    f"{'family':44} {'trials':>6} {'within':>8} {'median':>9} {'99 %':>9} {'worst':>9} "
    f"{'nan':>5} {'failed':>7} {'hidden':>7}"
)


def run(family: str, trial: Trial, indices: Iterable[int]) -> Report:
    """Solve the problems of a family; each has random numbers of its own, so that one can be repeated alone."""
    report = Report(family)
    for index in indices:
        rng = np.random.default_rng([zlib.crc32(family.encode()), index])
        report.outcomes.append(trial(rng))
    return report


def table(reports: Sequence[Report]) -> str:
    """All families, with the columns of `Report.row`."""
    return "\n".join([HEADER, *(report.row() for report in reports)])
