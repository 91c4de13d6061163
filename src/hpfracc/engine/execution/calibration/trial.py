"""What is calibrated, and how: calls over a grid of sizes, on which every arm is timed within a time limit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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

#: Exponents (powers of two) of the number of elements: the smallest, and the step of the first round; later rounds
#: fill in.
_MIN, _STEP = 4, 4
_MAX_ON_HOST, _MAX_THOROUGH, _MAX_ON_GPU = 20, 22, 24
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
    most: int = _MAX_ON_HOST

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


def rounds(thorough: bool) -> list[tuple[int, ...]]:
    """Exponents by round: first a coarse grid, then the sizes in between."""
    everything = range(_MIN, _MAX_ON_GPU + 1)
    found = [
        tuple(k for k in everything if k % _STEP == 0),
        tuple(k for k in everything if k % _STEP == _STEP // 2),
    ]
    if thorough:
        found.append(tuple(k for k in everything if k % 2 == 1))
    return found


def make_series(operations: Iterable[str] | None, backends: Iterable[str], thorough: bool) -> list[Series]:
    """Every series to calibrate with these backends; their libraries must be imported."""
    names = list(DEFAULT_OPERATIONS if operations is None else dict.fromkeys(operations))
    gpus = list(_gpu_placements(backends))
    most = _MAX_ON_GPU if gpus else _MAX_THOROUGH if thorough else _MAX_ON_HOST
    found: list[Series] = []
    for name in names:
        found += (
            Series(name, dtype, placement, variant, most)
            for dtype in _dtypes(name, thorough)
            for placement in [HOST_PLACEMENT, *gpus]
            for variant in _variants(name)
        )
    return found


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


def _dtypes(operation: str, thorough: bool) -> tuple[str, ...]:
    usual = ("int64", "uint8") if operation == "bitwise_xor" else ("float64", "float32")
    return usual if thorough else usual[:1]


def _gpu_placements(backends: Iterable[str]) -> Iterator[Placement]:
    """A placement for each library and GPU."""
    for name in backends:
        for device in registry.adapter(name).devices():
            if device != "cpu":
                yield Placement(library=name, device=device)


#: Seconds for which an arm runs while its power is measured: NVIDIA's counter is updated every 0.1 s.
POWER_SECONDS = 2.0

#: Seed of every operand, for reproducible calls.
_SEED = 20240917
#: Period of the random numbers in an operand, because generating them takes longer than most kernels.
_PERIOD = 2**16 - 1


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


def repeat(
    call: Callable[[], Any], wait: Callable[[], Any] | None = None, *, effort: float = 0.01, limit: float = 60.0
) -> list[float]:
    """Seconds of one call, measured several times after a warm-up.

    Parameters
    ----------
    call : callable
        The call to time.
    wait : callable, optional
        Waits until the work of all calls is done, for asynchronous calls.
    effort : float
        Seconds for which a quick call is repeated; a slow one is repeated a few times.
    limit : float
        Seconds after which no further run is started.
    """
    warm = clock(call, wait)
    runs = next((runs for slow, runs in _SLOW if warm >= slow), 0)
    if runs:
        samples = [warm]  # for a call this slow the warm-up is a sample too
        while len(samples) <= runs and sum(samples) + warm <= limit:
            samples.append(clock(call, wait))
        return samples
    # A warm-up is slower than later calls, because caches are cold. Few long samples instead of many short ones:
    # disturbances come in bursts, and a few samples must be free of them.
    once = clock(call, wait, max(1, round(_SHORTEST_SAMPLE / max(warm, 1e-9))))
    calls = max(1, round(max(_SHORTEST_SAMPLE, effort / _MAX_SAMPLES) / max(once, 1e-9)))
    count = min(max(round(effort / max(calls * once, 1e-9)), _MIN_SAMPLES), _MAX_SAMPLES)
    samples = [clock(call, wait, calls)]
    while len(samples) < count and warm + calls * sum(samples) <= limit:
        samples.append(clock(call, wait, calls))
    return samples


class TimeBox:
    """A time limit that starts now and can be paused.

    Parameters
    ----------
    seconds : float
        The limit; with ``math.inf`` time is only counted.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.beside = 0.0
        self._begin = time.perf_counter()

    @property
    def spent(self) -> float:
        """Seconds used, without pauses."""
        return time.perf_counter() - self._begin - self.beside

    @property
    def left(self) -> float:
        """Remaining seconds, at least 0."""
        return max(0.0, self.seconds - self.spent)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Time inside the block does not count."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.beside += time.perf_counter() - begin


#: Steepest growth of time with work (exponent): caches overflow.
_STEEPEST = 1.2


class TimeGrowth:
    """How the time of one arm grows with its work, to predict whether a larger size is affordable."""

    def __init__(self) -> None:
        self._points: list[tuple[float, float]] = []

    def add(self, work: float, seconds: float) -> None:
        """Add a measured time."""
        self._points.append((math.log(max(work, 1.0)), math.log(max(seconds, 1e-9))))
        self._points.sort()

    def expected(self, work: float) -> tuple[float, float, float]:
        """Lower bound, expectation and upper bound in seconds; 0 if nothing is known, so that it is tried first."""
        if not self._points:
            return 0.0, 0.0, 0.0
        x, (xs, ys) = math.log(max(work, 1.0)), zip(*self._points, strict=True)
        least = usual = most = 0.0
        if len(xs) > 1 and xs[-1] > xs[-2]:
            slope = (ys[-1] - ys[-2]) / (xs[-1] - xs[-2])
            least = usual = min(max(slope, 0.0), 1.0)
            most = min(max(slope, 1.0), _STEEPEST)
        else:
            usual, most = 0.5, 1.0
        # Constant below all measured sizes.
        at, beyond = np.interp(x, xs, ys), max(0.0, x - xs[-1])
        return math.exp(at + least * beyond), math.exp(at + usual * beyond), math.exp(at + most * beyond)


class Timing(NamedTuple):
    """The time of an arm for one call: the 25th percentile of ``samples``, in seconds.

    ``first`` is the additional time of its first call (compiling, loading); None if that happened before. ``x`` is the
    work of the call.
    """

    arm: str
    seconds: float
    samples: tuple[float, ...]
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

    def time(self, arm: Arm, box: TimeBox, *, effort: float = 0.01, learn: bool = True) -> Timing:
        """Time an arm on this call. A first call is timed separately, outside the time limit.

        Parameters
        ----------
        arm : Arm
            One that is not refused.
        box : TimeBox
            The time limit.
        effort : float
            Seconds for which a quick call is repeated.
        learn : bool
            Whether the result becomes a knot of the arm's curve.
        """
        request, knowledge = self.request, self.knowledge
        option = knowledge.option(request, arm)
        compiles = knowledge.is_first(option)
        with box.pause():  # loads the kernel's module
            bound = BoundArm(
                request.primitive, request.call, arm, request.placement, self.arrays, keyed=request.prepared
            )
        params = dict(self.params)
        if request.prepared:
            params["weights_key"] = ("calibration", request.shapes)
        call = partial(bound.run, *self.arrays, **params)
        wait = partial(registry.adapter(arm.backend).synchronize, arm.device) if bound.asynchronous else None
        begun = 0.0
        if compiles:
            shielded = registry.shields_compilation(request.call.operation, arm)
            with box.pause():
                begun = clock(partial(run_shielded, call) if shielded else call, wait)
        samples = repeat(call, wait, effort=effort, limit=box.left)
        seconds = lower_quartile(samples)
        first = None
        if compiles:
            first = max(0.0, begun - seconds)
            knowledge.add_compile(request, option, first)
        if learn:
            self.learn(arm, seconds)
        return Timing(arm.name, seconds, tuple(samples), option.x, first)

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
        before, box = sum(each() for each in read), TimeBox(POWER_SECONDS)
        while box.left:
            clock(call, wait)
        seconds = box.spent
        watts = max(0.0, sum(each() for each in read) - before) / seconds
        self.knowledge.add_power(request, self.knowledge.option(request, arm), watts, seconds)
        return ArmPower(self.operation.name, arm.name, watts, seconds)

    def learn(self, arm: Arm, seconds: float) -> None:
        """Add a knot to the arm's curve."""
        self.knowledge.add_knot(self.request, self.knowledge.option(self.request, arm), seconds)


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
