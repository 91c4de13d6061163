"""Calibration: every arm of an operation is timed on this machine, at a few sizes, the smallest first.

The times become knots of the arms' cost curves, in this process and in the wisdom that later processes start from.
Other sizes are learned from calls.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hpfracc._config import BACKENDS, check_backend, get_settings
from hpfracc._interrupts import run_shielded
from hpfracc._reading import format_bytes, format_seconds
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.execution.bind import BoundArm
from hpfracc.engine.execution.operation import get_operation
from hpfracc.engine.execution.plan import make_request
from hpfracc.engine.execution.prepared import prepared_operands
from hpfracc.engine.primitives.base import ArraySpec
from hpfracc.engine.selection.costs import lower_quartile
from hpfracc.engine.selection.decide import masked
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.engine.selection.request import HOST_PLACEMENT, Placement, disabled_reason
from hpfracc.errors import BackendUnavailableError, ConfigurationError
from hpfracc.profiling.clocks import Counters, energy_counters
from hpfracc.profiling.formats import make_table

#: Operations that are calibrated by default.
DEFAULT_OPERATIONS = ("causal_convolution", "matmul", "fft", "elementwise", "reduction", "bitwise_xor")
#: Operations whose typical operand is a square; the others' is a row.
_SQUARE = ("matmul", "stencil_relax")
#: Exponents (powers of two) of the number of elements.
SIZES = (6, 10, 14, 18, 21)
#: An arm is not timed at sizes at which a call is expected to take longer than this, in seconds: as the last size did,
#: in proportion to the work.
_LONGEST = 0.5
#: Variants of a call: with few weights, one for so many points; and with a cached transform.
FEW_WEIGHTS, PREPARED = "few weights", "prepared"
_POINTS_PER_WEIGHT = 16
#: Bytes of the copies that are timed.
_COPIES = (2**10, 2**16, 2**20, 2**24)
#: Seconds of the longest call whose power is measured, and for which it is repeated: NVIDIA's counter is updated every
#: 0.1 s.
_MAX_POWER_CALL, POWER_SECONDS = 0.2, 2.0
#: Seed of every operand, for reproducible calls, and period of its numbers: to draw all takes longer than most kernels.
_SEED, _PERIOD = 20240917, 2**16 - 1
#: Seconds for which a quick call is repeated, and the most and fewest samples.
_EFFORT, _MAX_SAMPLES, _MIN_SAMPLES = 0.01, 32, 5
#: For slow calls, runs after the warm-up: (seconds a call takes, runs).
_SLOW = ((0.1, 1), (0.03, 2), (0.01, 3))


class Series(NamedTuple):
    """One operation, dtype and placement of operands, over all sizes.

    ``variant`` distinguishes series of one operation: ``"prepared"`` caches the transform of the weights; ``"few
    weights"`` is only for kernels that do not support as many weights as points.
    """

    operation: str
    dtype: str
    placement: Placement = HOST_PLACEMENT
    variant: str = ""

    @property
    def name(self) -> str:
        """The operation with its variant."""
        return f"{self.operation} ({self.variant})" if self.variant else self.operation

    @property
    def where(self) -> str:
        """The library and device of the operands."""
        place = self.placement
        return "NumPy arrays" if place.device == "cpu" else f"{place.library} arrays on {place.device}"

    def shape(self, exponent: int) -> tuple[int, ...]:
        """The shape of a main operand of about ``2**exponent`` elements."""
        return (round(math.sqrt(2**exponent)),) * 2 if self.operation in _SQUARE else (2**exponent,)

    def trial(self, exponent: int) -> ArmTrial:
        """The call of that size, with random operands that the operation adapts if its time depends on values."""
        shape, primitive = self.shape(exponent), get_operation(self.operation).primitive
        specs, params = primitive.example(shape, self.dtype)
        if self.variant == FEW_WEIGHTS:
            specs = ArraySpec((max(1, shape[-1] // _POINTS_PER_WEIGHT),), self.dtype), ArraySpec(shape, self.dtype)
        generator = np.random.default_rng(_SEED)
        arrays = primitive.typical([_operand(generator, spec) for spec in specs])
        return ArmTrial(self.operation, arrays, params, self.placement, prepared=self.variant == PREPARED)


class Timing(NamedTuple):
    """The time of an arm for one call, in seconds: the 25th percentile of some.

    ``first`` is the additional time of its first call (compiling, loading); None if that happened before. ``x`` is the
    work of the call.
    """

    series: Series
    shape: tuple[int, ...]
    arm: str
    seconds: float
    x: float
    first: float | None = None


class ArmPower(NamedTuple):
    """Watts of an arm's device, and of the processor if it can be read, while the arm ran."""

    operation: str
    arm: str
    watts: float
    seconds: float


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

    def skip(self, series: Series, arm: str, why: str) -> None:
        """Note once why an arm was not measured."""
        if (entry := (series.name, arm, why)) not in self.skipped:
            self.skipped.append(entry)

    def fastest(self) -> list[Timing]:
        """The fastest arm of each series at each size."""
        best: dict[tuple[Series, tuple[int, ...]], Timing] = {}
        for each in sorted(self.timings, key=lambda each: each.seconds):
            best.setdefault((each.series, each.shape), each)
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
        for each in sorted(self.fastest(), key=lambda each: (each.series.name + each.series.where, each.shape)):
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
        raise ConfigurationError("deterministic=True: nothing may be learned; calibrate without it, and use the wisdom")
    counters, reason = energy_counters() if energy else ({}, "")
    if energy and not counters:
        raise ConfigurationError(
            f"energy cannot be measured here: {reason}; run it where a counter can be read, or calibrate times only"
        )
    found, begin = MachineCalibration(), time.perf_counter()
    usable = list(_usable(backends, names, found, progress))
    knowledge = knowledge_for(settings)
    _time_copies(usable, found)
    every, last = make_series(names, usable, precisions), dict[tuple[Series, str], tuple[float, float]]()
    short: dict[tuple[str, Arm], ArmTrial] = {}
    for number, exponent in enumerate(sizes):
        for place, series in enumerate(every):
            progress((number + place / len(every)) / len(sizes), f"{series.name} {show_shape(series.shape(exponent))}")
            _time_arms(series, exponent, usable, last, short, found)
    prepared_operands.clear()
    for (operation, arm), trial in short.items() if energy else ():
        progress(1.0, f"power of {operation} {arm}")
        if arm.device in counters:
            found.powers.append(trial.measure_power(arm, counters))
        else:
            found.skipped.append((operation, arm.name, f"the energy of {arm.device} cannot be read"))
    knowledge.wisdom.flush()
    found.kept = knowledge.wisdom.merge()
    for name in names:
        get_operation(name).reset_plans()
    found.seconds = time.perf_counter() - begin
    return found


def _usable(
    backends: Iterable[str] | None,
    operations: Sequence[str],
    found: MachineCalibration,
    progress: Callable[[float, str], None],
) -> Iterator[str]:
    """The named backends, or all, imported, so that no measured time includes that. Others are noted, or refused."""
    for name in BACKENDS if backends is None else [check_backend(name) for name in backends]:
        why = disabled_reason(name, get_settings()) or registry.unavailable(name)
        if why is not None and backends is not None:
            raise BackendUnavailableError(f"backend {name!r} cannot be calibrated ({why}); name others or none")
        kernels = [(operation, spec.algorithm) for operation in operations for spec in registry.specs(operation, name)]
        if why is None and not kernels:
            why = "it has no kernel for any of these operations"
        if why is None:
            progress(0.0, f"importing {name}")
            try:
                for operation, algorithm in kernels:
                    registry.kernel(operation, name, algorithm)
            except (ImportError, OSError) as error:
                registry.mark_broken(name, error)
                why = registry.describe_failure(error)
        if why is None:
            yield name
        else:
            found.absent[name] = why


def make_series(operations: Iterable[str], backends: Iterable[str], precisions: int) -> list[Series]:
    """Every series to calibrate with these backends, whose libraries must be imported, in the first dtypes of each."""
    places = [(name, device) for name in backends for device in registry.adapter(name).devices() if device != "cpu"]
    return [
        Series(name, dtype, placement, variant)
        for name in operations
        for dtype in (("int64", "uint8") if name == "bitwise_xor" else ("float64", "float32"))[:precisions]
        for placement in (HOST_PLACEMENT, *(Placement(*place) for place in places))
        for variant in (
            "",
            *([PREPARED] if get_operation(name).primitive.prepared_operand is not None else []),
            *([FEW_WEIGHTS] if name == "causal_convolution" else []),
        )
    ]


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
                    seconds = lower_quartile(repeat(copy, partial(adapter.synchronize, device)))
                    knowledge.observe_transfer(route, size, seconds)
                    found.transfers.append((route, size, seconds))


def _time_arms(
    series: Series,
    exponent: int,
    backends: Sequence[str],
    last: dict[tuple[Series, str], tuple[float, float]],
    short: dict[tuple[str, Arm], ArmTrial],
    found: MachineCalibration,
) -> None:
    """Time all arms at one size.

    ``last`` has the work and the seconds of each at the size before, ``short`` the largest usual calls that are short.
    """
    try:
        trial = series.trial(exponent)
    except Exception as error:  # out of memory, or a user's operation that takes other operands
        return found.skip(series, "every arm", registry.describe_failure(error))
    for arm, refused in trial.arms():
        # Blocks refuse the usual call, which has as many weights as points; the others are not timed with few weights.
        apart = series.variant == FEW_WEIGHTS and (arm.algorithm != "blocked" or arm.spec.refuses is None)
        if arm.backend not in backends or apart:
            continue
        if refused is not None:
            if series.placement.pinned is None:
                found.skip(series, arm.name, refused)
            continue
        work, before = last.get((series, arm.name), (1.0, 0.0))
        if before * trial.work(arm) / work > _LONGEST:
            continue
        try:
            seconds, x, first = trial.time(arm)
        except Exception as error:  # any error: the other arms continue
            found.skip(series, arm.name, registry.describe_failure(error))
            registry.adapter(arm.backend).release_memory(arm.device)
            continue
        last[series, arm.name] = trial.work(arm), seconds
        found.timings.append(Timing(series, series.shape(exponent), arm.name, seconds, x, first))
        if not series.variant and series.dtype in ("float64", "int64") and seconds <= _MAX_POWER_CALL:
            short[series.operation, arm] = trial


class ArmTrial:
    """A call of an operation, whose arms can be timed one by one.

    Parameters
    ----------
    operation : str
        Its name.
    arrays : sequence
        The operands as NumPy arrays.
    params : mapping
        Its parameters.
    placement : Placement
        Placement of the operands at the start of a call.
    prepared : bool
        Whether the transform of the weights is cached.
    """

    def __init__(
        self,
        operation: str,
        arrays: Sequence[np.ndarray[Any, Any]],
        params: Mapping[str, Any],
        placement: Placement = HOST_PLACEMENT,
        *,
        prepared: bool = False,
    ) -> None:
        if placement.library != "numpy":
            owner = registry.adapter(placement.library)
            arrays = [owner.from_host(array, placement.device) for array in arrays]
        self.arrays, self.params = tuple(arrays), dict(params)
        primitive = get_operation(operation).primitive
        self.request = make_request(primitive, self.arrays, self.params, prepared=prepared, placement=placement)
        self.knowledge = knowledge_for(self.request.settings)

    def arms(self) -> Iterator[tuple[Arm, str | None]]:
        """Every arm, with the reason why it is refused for this call, or None."""
        for arm, refused, _ in masked(self.request, self.knowledge.breaker):
            yield arm, refused

    def work(self, arm: Arm) -> float:
        """The work of this call by the arm's algorithm."""
        return self.request.primitive.work(self.request.call, arm.algorithm)

    def _bound(self, arm: Arm) -> tuple[Callable[[], Any], Callable[[], Any] | None]:
        """The call by an arm, and what waits for its work if it returns before that is done."""
        request = self.request
        bound = BoundArm(request.primitive, request.call, arm, request.placement, self.arrays, keyed=request.prepared)
        key = {"weights_key": ("calibration", request.shapes)} if request.prepared else {}
        wait = partial(registry.adapter(arm.backend).synchronize, arm.device) if bound.asynchronous else None
        return partial(bound.run, *self.arrays, **self.params, **key), wait

    def time(self, arm: Arm) -> tuple[float, float, float | None]:
        """Seconds of a call by an arm that is not refused, its work, and the additional seconds of a first call.

        The result becomes a knot of the arm's curve.
        """
        request, knowledge, option = self.request, self.knowledge, self.knowledge.option(self.request, arm)
        (call, wait), begun = self._bound(arm), None
        if knowledge.is_first(option):
            shielded = registry.shields_compilation(request.call.operation, arm)
            begun = clock(partial(run_shielded, call) if shielded else call, wait)
        seconds = lower_quartile(repeat(call, wait))
        first = None if begun is None else max(0.0, begun - seconds)
        if first is not None:
            knowledge.add_compile(request, option, first)
        knowledge.add_knot(request, option, seconds)
        return seconds, option.x, first

    def measure_power(self, arm: Arm, counters: Counters) -> ArmPower:
        """Watts of an arm's device while the arm runs for some seconds; stored for predictions of energy.

        Energy counters are updated slowly, so the energy of a single call cannot be measured. It is predicted as the
        time of the call, which depends on its size, times the power of its arm, which is measured at one size.
        """
        call, wait = self._bound(arm)
        read = [counters[name] for name in dict.fromkeys((arm.device, "cpu")) if name in counters]
        before, begin = sum(each() for each in read), time.perf_counter()
        while time.perf_counter() < begin + POWER_SECONDS:
            clock(call, wait)
        seconds = time.perf_counter() - begin
        watts = max(0.0, sum(each() for each in read) - before) / seconds
        self.knowledge.add_power(self.request, self.knowledge.option(self.request, arm), watts, seconds)
        return ArmPower(self.request.call.operation, arm.name, watts, seconds)


def clock(call: Callable[[], Any], wait: Callable[[], Any] | None = None, times: int = 1) -> float:
    """Mean seconds of ``times`` consecutive calls; ``wait`` is called after the last, and waits for their work."""
    repeats = range(times)
    begin = time.perf_counter()
    for _ in repeats:
        call()
    if wait is not None:
        wait()
    return (time.perf_counter() - begin) / times


def repeat(call: Callable[[], Any], wait: Callable[[], Any] | None = None) -> list[float]:
    """Seconds of one call, measured several times after a warm-up; ``wait`` as for :func:`clock`."""
    warm = clock(call, wait)
    runs = next((runs for slow, runs in _SLOW if warm >= slow), 0)
    if runs:  # for a call this slow the warm-up is a sample too
        return [warm, *(clock(call, wait) for _ in range(runs))]
    # A warm-up is slower than later calls, because caches are cold. Few long samples instead of many short ones:
    # disturbances come in bursts, and a few samples must be free of them.
    sample = _EFFORT / _MAX_SAMPLES
    once = clock(call, wait, max(1, round(0.1 * sample / max(warm, 1e-9))))
    calls = max(1, round(sample / max(once, 1e-9)))
    count = min(max(round(_EFFORT / max(calls * once, 1e-9)), _MIN_SAMPLES), _MAX_SAMPLES)
    return [clock(call, wait, calls) for _ in range(count)]


def _operand(generator: np.random.Generator, spec: ArraySpec) -> np.ndarray[Any, Any]:
    """Random numbers of a shape and dtype; a long operand is periodic."""
    kind, size = np.dtype(spec.dtype), min(spec.size, _PERIOD)
    drawn = generator.integers(0, 128, size) if kind.kind in "iu" else generator.standard_normal(size)
    return np.resize(drawn.astype(kind), spec.shape)
