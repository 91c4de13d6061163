"""Running a calibration: a coarse grid of sizes first, then those in between, within the time limit."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from hpfracc import _reading
from hpfracc._config import BACKENDS, check_backend, get_settings
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.execution.calibration import trial as trials
from hpfracc.engine.execution.calibration.report import CalibrationReport, Skipped, show_shape
from hpfracc.engine.execution.calibration.trial import DEFAULT_OPERATIONS, ArmTrial, Series, TimeBox, TimeGrowth, Timing
from hpfracc.engine.execution.operation import get_operation
from hpfracc.engine.execution.prepared import prepared_operands
from hpfracc.engine.selection.costs import lower_quartile
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.engine.selection.request import disabled_reason
from hpfracc.errors import BackendUnavailableError, ConfigurationError
from hpfracc.profiling.clocks import Counters, energy_counters

#: Time limit in seconds, by default and of a thorough calibration.
BUDGET, THOROUGH_BUDGET = 10.0, 120.0
#: An arm predicted to be slower than the best by this factor is not measured.
_HOPELESS = 20.0
#: Nor is one slower by this factor if timing it would take more than this fraction of the limit.
_SLOWER, _COSTLY = 3.0, 0.03
#: Fraction of the limit for repeating the quick calls of the first round; the rest is for slow calls and later rounds.
_FIRST_ROUND = 0.4
_MIN_EFFORT, _MAX_EFFORT = 0.5e-3, 50e-3
#: Bytes of the copies that are timed.
_COPIES = (2**10, 2**16, 2**20, 2**24)
#: Exponents of the number of elements for measuring power: large enough to keep a GPU busy, down to short calls.
_POWER_EXPONENTS = (18, 16, 14, 12, 10)
#: Maximum predicted seconds of such a call: a direct sum of 2^18 points takes a minute.
_MAX_POWER_SECONDS = 0.2
#: Kinds of skipped measurements, as counted in the summary.
_SLOW, _LATE, _FAILED, _REFUSED = "hopelessly slow", "for lack of time", "failed", "refused by a mask"
_SHAPES, _POWERLESS = "compiled for each shape, so measured at few sizes", "without a reading of power"


class Step(NamedTuple):
    """The current step of a calibration, for a progress bar.

    ``what`` is ``"importing"``, ``"copying"``, ``"measuring"`` or ``"measuring the power of"``; ``spent`` of ``budget``
    seconds are used up.
    """

    what: str
    subject: str
    arm: str
    spent: float
    budget: float


def calibrate(
    operations: Iterable[str] | None = None,
    *,
    budget_seconds: float | None = None,
    thorough: bool = False,
    progress: Callable[[Step], None] | None = None,
    backends: Iterable[str] | None = None,
    energy: bool = False,
) -> CalibrationReport:
    """Time every arm of ``operations`` on this machine, and store the times.

    Parameters
    ----------
    operations : iterable of str, optional
        Names of operations; the six built-in ones by default.
    budget_seconds : float, optional
        The time limit: 10 s by default, 120 s if thorough. Imports and first calls, which compile, are not included.
    thorough : bool
        Whether to use finer and larger sizes, float32 too, and every size for arms that compile for each shape.
    progress : callable, optional
        Called with each :class:`Step`.
    backends : iterable of str, optional
        Backends to calibrate; by default all that can be used.
    energy : bool
        Whether to measure the power of each arm too, for ``hf.config(objective="energy")``: two seconds for each,
        outside the time limit.

    Returns
    -------
    CalibrationReport
        The fastest arms by size, compile times, and skipped measurements with reasons.

    Raises
    ------
    ConfigurationError
        In deterministic mode, in which nothing is learned; with ``energy``, if no counter can be read.
    """
    usual = THOROUGH_BUDGET if thorough else BUDGET
    budget = usual if budget_seconds is None else _reading.number("budget_seconds", budget_seconds, above=0)
    names = None if operations is None else [get_operation(name).name for name in operations]
    settings = get_settings()
    if settings.deterministic:
        raise ConfigurationError(
            "deterministic=True: nothing may be learned; calibrate without it, then use the wisdom"
        )
    counters, reason = energy_counters() if energy else ({}, "")
    if energy and not counters:
        raise ConfigurationError(
            f"energy cannot be measured here: {reason}; run it where a counter can be read, or calibrate times only"
        )
    report = CalibrationReport(budget, thorough)
    tell = progress or (lambda step: None)
    usable = list(_import_libraries(_usable(backends, report), names or DEFAULT_OPERATIONS, report, tell))
    knowledge = knowledge_for(settings)  # loads the wisdom, before the clock starts
    runner = _Runner(trials.make_series(names, usable, thorough), usable, report, tell)
    runner.run()
    if energy:
        runner.measure_power(counters)
    knowledge.wisdom.flush()
    report.kept = knowledge.wisdom.merge()
    report.spent, report.compiling = runner.box.spent, runner.box.beside
    for name in names or DEFAULT_OPERATIONS:
        get_operation(name).reset_plans()
    return report


def _usable(backends: Iterable[str] | None, report: CalibrationReport) -> list[str]:
    """The named backends, or all. An unusable one raises an error if it was named, otherwise it is recorded."""
    names = []
    for name in BACKENDS if backends is None else [check_backend(name) for name in backends]:
        why = disabled_reason(name, get_settings()) or registry.unavailable(name)
        if why is None:
            names.append(name)
        elif backends is None:
            report.absent[name] = why
        else:
            raise BackendUnavailableError(f"backend {name!r} cannot be calibrated ({why}); name others or none")
    return names


def _import_libraries(
    names: list[str], operations: Iterable[str], report: CalibrationReport, tell: Callable[[Step], None]
) -> Iterator[str]:
    """Import the libraries, so that no measured time includes that; yields those that could be imported."""
    for name in names:
        kernels = [(operation, spec.algorithm) for operation in operations for spec in registry.specs(operation, name)]
        if not kernels:
            report.absent[name] = "it has no kernel for any of these operations"
            continue
        loaded = registry.is_loaded(name)
        tell(Step("importing", name, "", 0.0, report.budget))
        begin = time.perf_counter()
        try:
            for operation, algorithm in kernels:
                registry.kernel(operation, name, algorithm)
        except (ImportError, OSError) as error:
            registry.mark_broken(name, error)
            report.absent[name] = registry.describe_failure(error)
            continue
        if not loaded:
            report.imports[name] = time.perf_counter() - begin
        yield name


class _Runner:
    """A calibration in progress."""

    def __init__(
        self, series: list[Series], backends: list[str], report: CalibrationReport, tell: Callable[[Step], None]
    ) -> None:
        self.series = series
        self.backends = backends
        self.report = report
        self.tell = tell
        self.growth: dict[tuple[Series, str], TimeGrowth] = {}
        first = trials.rounds(report.thorough)[0]
        planned = sum(
            len(registry.arms(each.operation)) * sum(exponent <= each.most for exponent in first) for each in series
        )
        self.effort = min(max(_FIRST_ROUND * report.budget / max(1, planned), _MIN_EFFORT), _MAX_EFFORT)
        self.box = TimeBox(report.budget)

    def run(self) -> None:
        """Time copies, then all arms round by round."""
        self._copies()
        for number, exponents in enumerate(trials.rounds(self.report.thorough)):
            for exponent in exponents:
                for series in self.series:
                    if exponent <= series.most:
                        self._measure(series, exponent, first_round=number == 0)
        prepared_operands.clear()

    def measure_power(self, counters: Counters) -> None:
        """Measure the power of each arm of each operation and placement, outside the time limit."""
        seen: set[tuple[str, str]] = set()
        with self.box.pause():
            for series in self.series:
                if series.variant or series.dtype not in ("float64", "int64"):
                    continue
                make = functools.cache(partial(self._make_trial, series))
                exponents = [exponent for exponent in _POWER_EXPONENTS if exponent <= series.most]
                for arm, refused in make(exponents[0]).arms():
                    if refused is not None or arm.backend not in self.backends or (series.operation, arm.name) in seen:
                        continue
                    shape = series.shape(exponents[0])
                    if arm.device not in counters:
                        why = f"the energy of {arm.device} cannot be read"
                        self._note(series, shape, arm.name, why, _POWERLESS)
                        continue
                    seen.add((series.operation, arm.name))
                    self._tell("measuring the power of", series.operation, arm.name)
                    try:
                        long = _MAX_POWER_SECONDS
                        short = (make(size) for size in exponents if not make(size).predicted(arm) > long)
                        found = next(short, make(exponents[-1])).measure_power(arm, counters)
                        self.report.powers.append(found)
                    except Exception as error:  # any error: the other arms continue
                        self._failed(series, shape, arm, error, _POWERLESS)

    def _tell(self, what: str, subject: str, arm: str) -> None:
        self.tell(Step(what, subject, arm, self.box.spent, self.box.seconds))

    def _failed(self, series: Series, shape: tuple[int, ...], arm: Arm, error: Exception, kind: str) -> None:
        self._note(series, shape, arm.name, registry.describe_failure(error), kind)
        registry.adapter(arm.backend).release_memory(arm.device)

    def _copies(self) -> None:
        knowledge = knowledge_for(get_settings())
        seen: set[str] = set()
        for name in self.backends:
            adapter = registry.adapter(name)
            for device in adapter.devices():
                if device == "cpu" or device in seen:
                    continue
                seen.add(device)
                self._tell("copying", device, name)
                for size in _COPIES:
                    here = np.zeros(size // 8)
                    there = adapter.from_host(here, device)
                    ways = {
                        f"host->{device}": partial(adapter.from_host, here, device),
                        f"{device}->host": partial(adapter.to_host, there),
                    }
                    for route, copy in ways.items():
                        wait = partial(adapter.synchronize, device)
                        samples = trials.repeat(copy, wait, effort=2 * self.effort, limit=self.box.left)
                        seconds = lower_quartile(samples)
                        knowledge.observe_transfer(route, size, seconds)
                        self.report.transfers.append((route, size, seconds))

    def _measure(self, series: Series, exponent: int, *, first_round: bool) -> None:
        shape = series.shape(exponent)
        trial = self._trial(series, exponent)
        if trial is None:
            return
        arms = []
        for arm, refused in trial.arms():
            if arm.backend not in self.backends or not series.concerns(arm.spec):
                continue
            if refused is None:
                arms.append(arm)
            elif series.placement.pinned is None:
                self._note(series, shape, arm.name, refused, _REFUSED)
        # The fastest first: its time shows which others are hopeless at this size.
        arms.sort(key=lambda arm: self._growth(series, arm).expected(trial.work(arm))[1])
        best: Timing | None = None
        for arm in arms:
            if arm.spec.compiles == "shape" and not (first_round or self.report.thorough):
                self._note(series, shape, arm.name, "compiling for each shape would take too long", _SHAPES)
                continue
            timing = self._try(series, trial, shape, arm, best)
            if timing is not None and (best is None or timing.seconds < best.seconds):
                best = timing

    def _try(
        self, series: Series, trial: ArmTrial, shape: tuple[int, ...], arm: Arm, best: Timing | None
    ) -> Timing | None:
        growth = self._growth(series, arm)
        least, _, most = growth.expected(trial.work(arm))
        if best is not None:
            factor = least / best.seconds
            if factor > _HOPELESS or (factor > _SLOWER and least > _COSTLY * self.box.seconds):
                self._note(series, shape, arm.name, f"at least {factor:.0f} times slower than {best.arm}", _SLOW)
                return None
        if self.box.left < 2.0 * max(most, self.effort):
            self._note(series, shape, arm.name, "it would not end within the time limit", _LATE)
            return None
        self._tell("measuring", f"{series.name} {show_shape(shape)}", arm.name)
        try:
            timing = trial.time(arm, self.box, effort=self.effort)
        except Exception as error:  # any error: the other arms continue
            self._failed(series, shape, arm, error, _FAILED)
            return None
        growth.add(timing.x, timing.seconds)
        self.report.add(series, shape, timing)
        return timing

    def _trial(self, series: Series, exponent: int) -> ArmTrial | None:
        """The call of that size; None if its operands cannot be created within the remaining time."""
        specs, _ = series.operands(exponent)
        # Touching memory for the first time takes about a nanosecond per byte.
        if self.box.left < 1e-9 * sum(8 * spec.size for spec in specs) + self.effort:
            self._note(series, series.shape(exponent), "every arm", "the time limit is used up", _LATE)
            return None
        try:
            return self._make_trial(series, exponent)
        except Exception as error:  # out of memory, or a user's operation that takes other operands
            self._note(series, series.shape(exponent), "every arm", registry.describe_failure(error), _FAILED)
            return None

    def _make_trial(self, series: Series, exponent: int) -> ArmTrial:
        specs, params = series.operands(exponent)
        arrays = trials.typical_operands(series.operation, specs)
        return ArmTrial(series.operation, arrays, params, series.placement, prepared=series.variant == trials.PREPARED)

    def _growth(self, series: Series, arm: Arm) -> TimeGrowth:
        return self.growth.setdefault((series, arm.name), TimeGrowth())

    def _note(self, series: Series, shape: tuple[int, ...], arm: str, why: str, kind: str) -> None:
        if kind == _REFUSED and any(skip[0] == series and skip[2::2] == (arm, kind) for skip in self.report.skipped):
            return  # the same at most sizes, so recorded once
        self.report.skipped.append(Skipped(series, shape, arm, why, kind))
