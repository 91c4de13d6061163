"""Running a calibration: every arm at each size, the smallest first."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from hpfracc._config import BACKENDS, check_backend, get_settings
from hpfracc._reading import format_bytes, format_seconds
from hpfracc.engine.backends import registry
from hpfracc.engine.execution.calibration import trial as trials
from hpfracc.engine.execution.calibration.trial import DEFAULT_OPERATIONS, ArmPower, ArmTrial, Series, Timing
from hpfracc.engine.execution.operation import get_operation
from hpfracc.engine.execution.prepared import prepared_operands
from hpfracc.engine.selection.costs import lower_quartile
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.engine.selection.request import disabled_reason
from hpfracc.errors import BackendUnavailableError, ConfigurationError
from hpfracc.profiling.clocks import Counters, energy_counters
from hpfracc.profiling.formats import make_table

#: Exponents (powers of two) of the number of elements.
SIZES = (6, 10, 14, 18, 21)
#: An arm is not timed at sizes at which a call is expected to take longer than this, in seconds: as the last size did,
#: in proportion to the work.
_LONGEST = 0.5
#: Bytes of the copies that are timed.
_COPIES = (2**10, 2**16, 2**20, 2**24)
#: Exponents for measuring power: large enough to keep a GPU busy, down to short calls.
_POWER_EXPONENTS = (18, 16, 14, 12, 10)
#: Maximum predicted seconds of such a call: a direct sum of 2^18 points takes a minute.
_MAX_POWER_SECONDS = 0.2


@dataclass
class MachineCalibration:
    """What a calibration found.

    Attributes
    ----------
    timings : list of Timing
        The time of each arm at each size.
    skipped : list of (operation, arm, why)
        Arms that were refused or failed.
    absent : dict of str to str
        Backends that were not measured, and why.
    transfers : list of (route, bytes, seconds)
        Copies that were timed.
    powers : list of ArmPower
        Watts of arms, if energy was measured.
    seconds : float
        Duration.
    kept : int
        Records in the wisdom afterwards.
    """

    timings: list[Timing] = field(default_factory=list)
    skipped: list[tuple[str, str, str]] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    transfers: list[tuple[str, int, float]] = field(default_factory=list)
    powers: list[ArmPower] = field(default_factory=list)
    seconds: float = 0.0
    kept: int = 0

    def fastest(self) -> list[Timing]:
        """The fastest arm of each series at each size."""
        best: dict[tuple[Series, tuple[int, ...]], Timing] = {}
        for each in self.timings:
            known = best.setdefault((each.series, each.shape), each)
            if each.seconds < known.seconds:
                best[each.series, each.shape] = each
        return list(best.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        rows = [
            {
                "operation": each.series.name, "dtype": each.series.dtype, "operands": each.series.where,
                "shape": list(each.shape), "arm": each.arm, "seconds": each.seconds, "compile_seconds": each.first,
            }
            for each in self.timings
        ]  # fmt: skip
        return {
            "timings": rows,
            "skipped": [dict(zip(("operation", "arm", "why"), each, strict=True)) for each in self.skipped],
            "absent": dict(self.absent),
            "transfers": [{"route": r, "bytes": size, "seconds": seconds} for r, size, seconds in self.transfers],
            "powers": [{"operation": each.operation, "arm": each.arm, "watts": each.watts} for each in self.powers],
            "seconds": self.seconds,
            "records_kept": self.kept,
        }

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        names = {"operation": "text", "operands": "text", "size": "number", "arm": "word", "time": "number"}
        table = make_table("The fastest arm", **names)
        for each in sorted(self.fastest(), key=lambda each: each.series.name + each.series.where):
            where = each.series.name, f"{each.series.dtype} {each.series.where}"
            table.add_row(*where, show_shape(each.shape), each.arm, format_seconds(each.seconds))
        lines = [f"{len(self.timings)} timings in {self.seconds:.1f} s; {self.kept} records are kept"]
        lines += [f"{route}: {format_bytes(size)} in {format_seconds(took)}" for route, size, took in self.transfers]
        lines += [f"{each.operation} {each.arm}: {each.watts:.1f} W" for each in self.powers]
        lines += [f"{name} took no part: {why}" for name, why in self.absent.items()]
        lines += [f"{operation} {arm}: {why}" for operation, arm, why in self.skipped]
        return Group(*([table] if table.rows else []), *map(Text, lines))


def show_shape(shape: tuple[int, ...]) -> str:
    """A shape such as ``"1,024 x 1,024"``."""
    return " x ".join(f"{size:,}" for size in shape)


def calibrate(
    operations: Iterable[str] | None = None,
    *,
    backends: Iterable[str] | None = None,
    energy: bool = False,
    progress: Callable[[float, str], None] = lambda share, text: None,
    sizes: Sequence[int] = SIZES,
    precisions: int = 1,
) -> MachineCalibration:
    """Time every arm of ``operations`` on this machine, and store the times.

    Parameters
    ----------
    operations : iterable of str, optional
        Names of operations; the six built-in ones by default.
    backends : iterable of str, optional
        Backends to calibrate; by default all that can be used.
    energy : bool
        Whether to measure the power of each arm too, for ``hf.config(objective="energy")``: two seconds for each.
    progress : callable
        ``progress(share, text)`` before each step.
    sizes : sequence of int
        Exponents (powers of two) of the number of elements, increasing.
    precisions : int
        1 for double precision (or int64), 2 for single precision (or uint8) too.

    Raises
    ------
    ConfigurationError
        In deterministic mode, in which nothing is learned; with ``energy``, if no counter can be read.
    """
    given = DEFAULT_OPERATIONS if operations is None else operations
    names = list(dict.fromkeys(get_operation(name).name for name in given))
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
    found, begin = MachineCalibration(), time.perf_counter()
    usable = list(_import_libraries(_usable(backends, found), names, found, progress))
    knowledge = knowledge_for(settings)
    _time_copies(usable, found)
    every, last = trials.make_series(names, usable, precisions), dict[tuple[Series, str], tuple[float, float]]()
    for number, exponent in enumerate(sizes):
        for place, series in enumerate(every):
            progress((number + place / len(every)) / len(sizes), f"{series.name} {show_shape(series.shape(exponent))}")
            _time_arms(series, exponent, usable, last, found)
    prepared_operands.clear()
    if energy:
        _measure_power(every, usable, counters, progress, found)
    knowledge.wisdom.flush()
    found.kept = knowledge.wisdom.merge()
    for name in names:
        get_operation(name).reset_plans()
    found.seconds = time.perf_counter() - begin
    return found


def _usable(backends: Iterable[str] | None, found: MachineCalibration) -> Iterator[str]:
    """The named backends, or all. An unusable one raises an error if it was named, otherwise it is recorded."""
    for name in BACKENDS if backends is None else [check_backend(name) for name in backends]:
        why = disabled_reason(name, get_settings()) or registry.unavailable(name)
        if why is None:
            yield name
        elif backends is None:
            found.absent[name] = why
        else:
            raise BackendUnavailableError(f"backend {name!r} cannot be calibrated ({why}); name others or none")


def _import_libraries(
    names: Iterable[str], operations: Iterable[str], found: MachineCalibration, progress: Callable[[float, str], None]
) -> Iterator[str]:
    """Import the libraries, so that no measured time includes that; yields those that could be imported."""
    for name in list(names):
        kernels = [(operation, spec.algorithm) for operation in operations for spec in registry.specs(operation, name)]
        if not kernels:
            found.absent[name] = "it has no kernel for any of these operations"
            continue
        progress(0.0, f"importing {name}")
        try:
            for operation, algorithm in kernels:
                registry.kernel(operation, name, algorithm)
        except (ImportError, OSError) as error:
            registry.mark_broken(name, error)
            found.absent[name] = registry.describe_failure(error)
            continue
        yield name


def _time_copies(backends: Iterable[str], found: MachineCalibration) -> None:
    knowledge, seen = knowledge_for(get_settings()), {"cpu"}
    for adapter in map(registry.adapter, backends):
        for device in adapter.devices():
            if device in seen:
                continue
            seen.add(device)
            for size in _COPIES:
                here = np.zeros(size // 8)
                there = adapter.from_host(here, device)
                ways = {
                    f"host->{device}": partial(adapter.from_host, here, device),
                    f"{device}->host": partial(adapter.to_host, there),
                }
                for route, copy in ways.items():
                    seconds = lower_quartile(trials.repeat(copy, partial(adapter.synchronize, device)))
                    knowledge.observe_transfer(route, size, seconds)
                    found.transfers.append((route, size, seconds))


def _time_arms(
    series: Series,
    exponent: int,
    backends: Sequence[str],
    last: dict[tuple[Series, str], tuple[float, float]],
    found: MachineCalibration,
) -> None:
    """Time all arms at one size; ``last`` has the work and the seconds of each at the size before."""

    def skip(arm: str, why: str) -> None:
        if (entry := (series.name, arm, why)) not in found.skipped:
            found.skipped.append(entry)

    try:
        trial = make_trial(series, exponent)
    except Exception as error:  # out of memory, or a user's operation that takes other operands
        return skip("every arm", registry.describe_failure(error))
    for arm, refused in trial.arms():
        if arm.backend not in backends or not series.concerns(arm.spec):
            continue
        if refused is not None:
            if series.placement.pinned is None:
                skip(arm.name, refused)
            continue
        work, before = last.get((series, arm.name), (1.0, 0.0))
        if before * trial.work(arm) / work > _LONGEST:
            continue
        try:
            seconds, x, first = trial.time(arm)
        except Exception as error:  # any error: the other arms continue
            skip(arm.name, registry.describe_failure(error))
            registry.adapter(arm.backend).release_memory(arm.device)
            continue
        last[series, arm.name] = trial.work(arm), seconds
        found.timings.append(Timing(series, series.shape(exponent), arm.name, seconds, x, first))


def make_trial(series: Series, exponent: int) -> ArmTrial:
    """The call of that size."""
    specs, params = series.operands(exponent)
    arrays = trials.typical_operands(series.operation, specs)
    return ArmTrial(series.operation, arrays, params, series.placement, prepared=series.variant == trials.PREPARED)


def _measure_power(
    every: Sequence[Series],
    backends: Sequence[str],
    counters: Counters,
    progress: Callable[[float, str], None],
    found: MachineCalibration,
) -> None:
    """Measure the power of each arm of each operation, at the largest size at which its calls are short."""
    seen: set[tuple[str, str]] = set()
    for series in every:
        if series.variant or series.dtype not in ("float64", "int64"):
            continue
        make = functools.cache(partial(make_trial, series))
        for arm, refused in make(_POWER_EXPONENTS[0]).arms():
            if refused is not None or arm.backend not in backends or (series.operation, arm.name) in seen:
                continue
            if arm.device not in counters:
                found.skipped.append((series.name, arm.name, f"the energy of {arm.device} cannot be read"))
                continue
            seen.add((series.operation, arm.name))
            progress(1.0, f"power of {series.operation} {arm.name}")
            try:
                fits = (make(k) for k in _POWER_EXPONENTS if not make(k).predicted(arm) > _MAX_POWER_SECONDS)
                trial = next(fits, None) or make(_POWER_EXPONENTS[-1])
                found.powers.append(trial.measure_power(arm, counters))
            except Exception as error:  # any error: the other arms continue
                found.skipped.append((series.name, arm.name, registry.describe_failure(error)))
