"""Times every arm of one operation over a range of sizes, and records what the engine then chooses."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from hpfracc._config import get_settings
from hpfracc._environment import BACKENDS
from hpfracc.engine.backends import registry
from hpfracc.engine.execution.calibration import ArmTrial, TimeBox, Timing
from hpfracc.engine.execution.calibration.stopwatch import TimeGrowth, lower_quartile, repeat
from hpfracc.engine.execution.operation import get_operation
from hpfracc.engine.selection.decision import Decision

__all__ = ["Survey", "SurveyRow", "survey"]

#: Maximum calls and seconds of warm-up before the engine's own choice is timed. While it learns, it times every call.
_WARMUP_CALLS, _WARMUP_SECONDS = 40, 0.25
#: Arms up to this many times slower than the best are timed twice.
_RETIME_RATIO = 1.3


@dataclass
class SurveyRow:
    """The engine's choice and all timings at one size.

    ``guess`` is the arm that would have been chosen before any measurement; ``skipped`` has the reason for each arm
    that was not timed.
    """

    size: int
    guess: str
    decision: Decision | None = None
    seconds: float = float("nan")
    timings: dict[str, Timing] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def best(self) -> Timing:
        """Timing of the fastest arm."""
        return min(self.timings.values(), key=lambda timing: timing.seconds)

    def of_backend(self, backend: str) -> Timing | None:
        """Timing of the fastest arm of one backend, or None."""
        own = [timing for arm, timing in self.timings.items() if arm.partition(":")[0] == backend]
        return min(own, key=lambda timing: timing.seconds, default=None)

    def why_not(self, backend: str) -> str:
        """Reason why no arm of a backend was timed."""
        own = [why for arm, why in self.skipped.items() if arm.partition(":")[0] == backend]
        return own[0] if own else "it has no kernel for this operation"


@dataclass
class Survey:
    """Rows for all sizes, import times, and the backends that are not available with the reason."""

    rows: list[SurveyRow] = field(default_factory=list)
    imports: dict[str, float] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    spent: float = 0.0

    @property
    def backends(self) -> list[str]:
        """Backends with at least one timing, in their usual order."""
        return [name for name in BACKENDS if any(row.of_backend(name) is not None for row in self.rows)]

    def first_calls(self) -> list[tuple[str, int, float]]:
        """(arm, size, seconds) of every first call that was timed separately."""
        return [
            (timing.arm, row.size, timing.first)
            for row in self.rows
            for timing in row.timings.values()
            if timing.first is not None
        ]


def survey(
    operation: str,
    sizes: Sequence[int],
    make: Callable[[int], tuple[np.ndarray[Any, Any], ...]],
    *,
    effort: float,
    patience: float,
    report: Callable[[float, str], None],
) -> Survey:
    """Time every arm of ``operation`` at every size, then the engine's own choice.

    Parameters
    ----------
    make : callable
        Returns the operands of a given size.
    effort : float
        Seconds for which a fast call is repeated.
    patience : float
        An arm is skipped if one call is predicted to take longer than this.
    report : callable
        Called with the fraction done and a description of the current step.
    """
    box = TimeBox(float("inf"))
    found = Survey()
    # First, before anything is measured, imported or compiled.
    guesses = {size: get_operation(operation).decide(*make(size)).arm for size in sizes}
    found.imports, found.absent = _import_all(operation, report)
    growth: dict[str, TimeGrowth] = {}
    # Larger sizes take longer, which the progress bar accounts for.
    weights = [1.0 + 0.5 * number for number in range(len(sizes))]
    done = 0.0
    for size, weight in zip(sizes, weights, strict=True):
        share = done / sum(weights)
        row = SurveyRow(size, guesses[size])
        _survey_size(operation, row, make(size), box, growth, effort, patience, share, report)
        found.rows.append(row)
        done += weight
    found.spent = box.spent
    return found


def _import_all(operation: str, report: Callable[[float, str], None]) -> tuple[dict[str, float], dict[str, str]]:
    """Import every library that has a kernel; returns (seconds by backend, reason it is unavailable by backend)."""
    seconds: dict[str, float] = {}
    absent: dict[str, str] = {}
    disabled = get_settings().disabled
    for name in BACKENDS:
        why = f"disabled by HPFRACC_DISABLE_{name.upper()}" if name in disabled else registry.unavailable(name)
        if why is None and not registry.is_loaded(name) and registry.specs(operation, name):
            report(0.0, f"importing {name}")
            begin = time.perf_counter()
            try:
                for spec in registry.specs(operation, name):
                    registry.kernel(operation, name, spec.algorithm)
            except (ImportError, OSError) as error:
                registry.mark_broken(name, error)
                why = registry.unavailable(name)
            else:
                seconds[name] = time.perf_counter() - begin
        if why is not None:
            absent[name] = why
    return seconds, absent


def _survey_size(
    operation: str,
    row: SurveyRow,
    operands: tuple[np.ndarray[Any, Any], ...],
    box: TimeBox,
    growth: dict[str, TimeGrowth],
    effort: float,
    patience: float,
    share: float,
    report: Callable[[float, str], None],
) -> None:
    trial = ArmTrial(operation, operands, {})
    size = row.size
    arms = list(trial.arms())
    row.skipped |= {arm.name: refused for arm, refused in arms if refused is not None}
    allowed = [arm for arm, refused in arms if refused is None]
    predicted = {arm.name: growth.setdefault(arm.name, TimeGrowth()).least(trial.work(arm)) for arm in allowed}
    # On a busy machine every arm may take longer; the fastest is timed anyway.
    limit = max(patience, min(predicted.values(), default=0.0))
    for arm in allowed:
        if predicted[arm.name] > limit:
            row.skipped[arm.name] = f"one call would take more than {patience:g} s"
            continue
        report(share, f"{size:,} points: {arm.name}")
        try:
            timing = trial.time(arm, box, effort=effort)
        except Exception as error:  # a failing arm becomes a note and does not end the demo
            row.skipped[arm.name] = registry.describe_failure(error)
            continue
        growth[arm.name].add(timing.x, timing.seconds)
        row.timings[arm.name] = timing
    report(share, f"{size:,} points: the engine's own choice")
    row.seconds, row.decision = _let_choose(trial, operands, effort)
    _remeasure(trial, row, box, effort)


def _remeasure(trial: ArmTrial, row: SurveyRow, box: TimeBox, effort: float) -> None:
    """Time the engine's choice and the arms close to the best again, one after the other; the shorter time counts."""
    assert row.decision is not None
    limit = _RETIME_RATIO * row.best.seconds
    for arm, refused in list(trial.arms()):
        known = row.timings.get(arm.name)
        if refused is not None or known is None or (known.seconds > limit and arm.name != row.decision.arm):
            continue
        second = trial.time(arm, box, effort=effort, learn=False)
        if second.seconds < known.seconds:
            row.timings[arm.name] = replace(known, seconds=second.seconds)
            trial.learn(arm, second.seconds)
    seconds, row.decision = _let_choose(trial, trial.arrays, effort)
    row.seconds = min(row.seconds, seconds)


def _let_choose(trial: ArmTrial, operands: tuple[Any, ...], effort: float) -> tuple[float, Decision]:
    """Time of a warm call, and the engine's decision."""
    operation = trial.operation
    warmup = TimeBox(_WARMUP_SECONDS)
    for _ in range(_WARMUP_CALLS):
        operation(*operands)
        if not warmup.left:
            break
    samples = repeat(partial(operation, *operands), effort=2 * effort)
    return lower_quartile(samples), operation.decide(*operands)
