"""What is calibrated, and how: calls of several sizes, on which every arm is timed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hpfracc._interrupts import run_shielded
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Arm, KernelSpec
from hpfracc.engine.execution.bind import BoundArm
from hpfracc.engine.execution.operation import get_operation
from hpfracc.engine.execution.plan import make_request
from hpfracc.engine.primitives.base import ArraySpec
from hpfracc.engine.selection.costs import lower_quartile
from hpfracc.engine.selection.decide import masked
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.engine.selection.request import HOST_PLACEMENT, Placement
from hpfracc.profiling.clocks import Counters

#: Operations that are calibrated by default.
DEFAULT_OPERATIONS = ("causal_convolution", "matmul", "fft", "elementwise", "reduction", "bitwise_xor")

#: Operations whose typical operand is a square; the others' is a row.
_SQUARE = ("matmul", "stencil_relax")
#: Points per weight in the variant with few weights.
_POINTS_PER_WEIGHT = 16
FEW_WEIGHTS, PREPARED = "few weights", "prepared"
#: Variants for kernels that do not support an operation's usual call, and the algorithm of each.
_MADE_FOR = {FEW_WEIGHTS: "blocked"}


@dataclass(frozen=True, slots=True)
class Series:
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
        if self.operation in _SQUARE:
            side = round(math.sqrt(2**exponent))
            return side, side
        return (2**exponent,)

    def concerns(self, spec: KernelSpec) -> bool:
        """Whether a kernel is measured in this series."""
        only = _MADE_FOR.get(self.variant)
        return only is None or (spec.algorithm == only and spec.refuses is not None)

    def operands(self, exponent: int) -> tuple[Sequence[ArraySpec], dict[str, Any]]:
        """Operands and parameters of a call of that size."""
        shape = self.shape(exponent)
        if self.variant == FEW_WEIGHTS:
            taps = max(1, shape[-1] // _POINTS_PER_WEIGHT)
            return (ArraySpec((taps,), self.dtype), ArraySpec(shape, self.dtype)), {}
        return get_operation(self.operation).primitive.example(shape, self.dtype)


def make_series(operations: Iterable[str], backends: Iterable[str], precisions: int) -> list[Series]:
    """Every series to calibrate with these backends, whose libraries must be imported, in the first dtypes of each."""
    gpus = [
        Placement(library=name, device=device)
        for name in backends
        for device in registry.adapter(name).devices()
        if device != "cpu"
    ]
    return [
        Series(name, dtype, placement, variant)
        for name in operations
        for dtype in (("int64", "uint8") if name == "bitwise_xor" else ("float64", "float32"))[:precisions]
        for placement in [HOST_PLACEMENT, *gpus]
        for variant in _variants(name)
    ]


def _variants(operation: str) -> Iterator[str]:
    """The usual call; with few weights; and with a cached transform, which operators have of their weights.

    What that saves differs between arms: on an H200 a direct sum of 64 points takes 35 us with a cached matrix, 210 us
    without; an FFT 85 and 140.
    """
    yield ""
    if get_operation(operation).primitive.prepared_operand is not None:
        yield PREPARED
    if operation == "causal_convolution":
        yield FEW_WEIGHTS


#: Seconds for which an arm runs while its power is measured: NVIDIA's counter is updated every 0.1 s.
POWER_SECONDS = 2.0

#: Seed of every operand, for reproducible calls.
_SEED = 20240917
#: Period of the random numbers in an operand, because generating them takes longer than most kernels.
_PERIOD = 2**16 - 1


#: Seconds for which a quick call is repeated.
_EFFORT = 0.01
#: Minimum length of a sample, so that the cost of the clock, about 50 ns, is below half a percent.
_SHORTEST_SAMPLE = 20e-6
#: Maximum and minimum number of samples of a quick call.
_MAX_SAMPLES, _MIN_SAMPLES = 32, 5
#: For slow calls, runs after the warm-up: (seconds a call takes, runs).
_SLOW = ((0.1, 1), (0.03, 2), (0.01, 3))


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
    once = clock(call, wait, max(1, round(_SHORTEST_SAMPLE / max(warm, 1e-9))))
    calls = max(1, round(max(_SHORTEST_SAMPLE, _EFFORT / _MAX_SAMPLES) / max(once, 1e-9)))
    count = min(max(round(_EFFORT / max(calls * once, 1e-9)), _MIN_SAMPLES), _MAX_SAMPLES)
    return [clock(call, wait, calls) for _ in range(count)]


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


class ArmTrial:
    """A call of an operation, with its operands, whose arms can be timed one by one.

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
        self.operation = get_operation(operation)
        self.params = dict(params)
        if placement.library != "numpy":
            owner = registry.adapter(placement.library)
            arrays = [owner.from_host(array, placement.device) for array in arrays]
        self.arrays: tuple[Any, ...] = tuple(arrays)
        self.request = make_request(
            self.operation.primitive, self.arrays, self.params, prepared=prepared, placement=placement
        )
        self.knowledge = knowledge_for(self.request.settings)

    def arms(self) -> Iterator[tuple[Arm, str | None]]:
        """Every arm, with the reason why it is refused for this call, or None."""
        for arm, refused, _ in masked(self.request, self.knowledge.breaker):
            yield arm, refused

    def work(self, arm: Arm) -> float:
        """The work of this call by the arm's algorithm."""
        return self.request.primitive.work(self.request.call, arm.algorithm)

    def time(self, arm: Arm) -> tuple[float, float, float | None]:
        """Seconds of a call by an arm that is not refused, its work, and the additional seconds of a first call.

        The result becomes a knot of the arm's curve.
        """
        request, knowledge = self.request, self.knowledge
        option = knowledge.option(request, arm)
        bound = BoundArm(request.primitive, request.call, arm, request.placement, self.arrays, keyed=request.prepared)
        params = dict(self.params)
        if request.prepared:
            params["weights_key"] = ("calibration", request.shapes)
        call = partial(bound.run, *self.arrays, **params)
        wait = partial(registry.adapter(arm.backend).synchronize, arm.device) if bound.asynchronous else None
        begun = None
        if knowledge.is_first(option):
            shielded = registry.shields_compilation(request.call.operation, arm)
            begun = clock(partial(run_shielded, call) if shielded else call, wait)
        seconds = lower_quartile(repeat(call, wait))
        first = None if begun is None else max(0.0, begun - seconds)
        if first is not None:
            knowledge.add_compile(request, option, first)
        knowledge.add_knot(request, option, seconds)
        return seconds, option.x, first

    def predicted(self, arm: Arm) -> float:
        """Predicted seconds of a call by the arm; nan if nothing is known."""
        request, option = self.request, self.knowledge.option(self.request, arm)
        estimate = self.knowledge.costs.estimate(option.key, request.call.bucket, option.x, option.extra)
        return estimate.seconds

    def measure_power(self, arm: Arm, counters: Counters) -> ArmPower:
        """Watts of an arm's device while the arm runs for some seconds; stored for predictions of energy.

        Energy counters are updated slowly, so the energy of a single call cannot be measured. It is predicted as the
        time of the call, which depends on its size, times the power of its arm, which is measured at one size.
        """
        request = self.request
        bound = BoundArm(request.primitive, request.call, arm, request.placement, self.arrays, keyed=False)
        call = partial(bound.run, *self.arrays, **self.params)
        wait = partial(registry.adapter(arm.backend).synchronize, arm.device)
        clock(call, wait)  # compiles
        read = [counters[name] for name in dict.fromkeys((arm.device, "cpu")) if name in counters]
        before, begin = sum(each() for each in read), time.perf_counter()
        while time.perf_counter() < begin + POWER_SECONDS:
            clock(call, wait)
        seconds = time.perf_counter() - begin
        watts = max(0.0, sum(each() for each in read) - before) / seconds
        self.knowledge.add_power(request, self.knowledge.option(request, arm), watts, seconds)
        return ArmPower(self.operation.name, arm.name, watts, seconds)


def typical_operands(operation: str, specs: Sequence[ArraySpec]) -> list[np.ndarray[Any, Any]]:
    """Operands of a typical call: random ones, adapted by the operation if its time depends on values."""
    return get_operation(operation).primitive.typical(make_operands(specs))


def make_operands(specs: Sequence[ArraySpec]) -> list[np.ndarray[Any, Any]]:
    """Random operands of the given shapes and dtypes, always the same; long ones are periodic."""
    generator = np.random.default_rng(_SEED)
    return [np.resize(_row(generator, np.dtype(spec.dtype), min(spec.size, _PERIOD)), spec.shape) for spec in specs]


def _row(generator: np.random.Generator, dtype: np.dtype[Any], size: int) -> np.ndarray[Any, Any]:
    if dtype.kind == "b":
        return generator.integers(0, 2, size).astype(dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, size, dtype=dtype, endpoint=True)
    real = generator.standard_normal(size)
    if dtype.kind == "c":
        return (real + 1j * generator.standard_normal(size)).astype(dtype)
    return real.astype(dtype)
