"""The power of arms: each runs for some seconds while the counter of its device is read.

Energy counters are updated slowly, so the energy of a single call cannot be measured. It is predicted as the time of
the call, which depends on its size, times the power of its arm, which is measured at one size.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.execution.bind import bind
from hpfracc.engine.execution.calibration.series import Series
from hpfracc.engine.execution.calibration.trial import ArmTrial, typical_operands
from hpfracc.errors import ConfigurationError
from hpfracc.profiling.clocks import Counters, energy_counters

__all__ = ["POWER_SECONDS", "ArmPower", "measure_power", "require_counters"]

#: Seconds for which each arm runs: NVIDIA's counter is updated every 0.1 s.
POWER_SECONDS = 2.0
#: Exponents of the number of elements: large enough to keep a GPU busy, down to a size with short calls.
_EXPONENTS = (18, 16, 14, 12, 10)
#: Maximum predicted seconds of a call: a direct sum of 2^18 points takes a minute.
_MAX_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class ArmPower:
    """Watts of an arm's device, and of the processor if it can be read, while the arm ran."""

    operation: str
    arm: str
    watts: float
    seconds: float


def require_counters() -> Counters:
    """The counters of this machine; raises :class:`ConfigurationError` if there is none."""
    counters, reason = energy_counters()
    if not counters:
        raise ConfigurationError(
            f"energy cannot be measured here: {reason}; run it where a counter can be read, or calibrate times only"
        )
    return counters


def measure_power(
    series: Iterable[Series],
    backends: Iterable[str],
    counters: Counters,
    tell: Callable[[str, str], None],
    skip: Callable[[Series, tuple[int, ...], str, str], None],
) -> list[ArmPower]:
    """Run every arm of each operation for a few seconds, and store the power of its device.

    Parameters
    ----------
    series : iterable of Series
        What is calibrated; one series of each operation and placement is used.
    backends : iterable of str
        Backends to measure.
    counters : mapping
        Joules so far, by device.
    tell, skip : callable
        Called with each operation and arm, and with each arm that is skipped and the reason.
    """
    found: list[ArmPower] = []
    seen: set[tuple[str, str]] = set()
    names = set(backends)
    for each in series:
        if each.variant or each.dtype not in ("float64", "int64"):
            continue
        trial_of = functools.cache(partial(_trial, each))
        exponents = [exponent for exponent in _EXPONENTS if exponent <= each.most]
        for arm, refused in trial_of(exponents[0]).arms():
            if refused is not None or arm.backend not in names or (each.operation, arm.name) in seen:
                continue
            shape = each.shape(exponents[0])
            if arm.device not in counters:
                skip(each, shape, arm.name, f"the energy of {arm.device} cannot be read")
                continue
            seen.add((each.operation, arm.name))
            tell(each.operation, arm.name)
            try:
                short = (trial_of(exponent) for exponent in exponents if _is_short(trial_of(exponent), arm))
                found.append(_measure(next(short, trial_of(exponents[-1])), arm, counters))
            except Exception as error:  # any error: the other arms continue
                skip(each, shape, arm.name, registry.describe_failure(error))
                registry.adapter(arm.backend).release_memory(arm.device)
    return found


def _trial(series: Series, exponent: int) -> ArmTrial:
    specs, params = series.operands(exponent)
    return ArmTrial(series.operation, typical_operands(series.operation, specs), params, series.placement)


def _is_short(trial: ArmTrial, arm: Arm) -> bool:
    """Whether a call is predicted to be short; true if nothing is known."""
    request, costs = trial.request, trial.knowledge.costs
    option = trial.knowledge.option(request, arm)
    return not costs.estimate(option.key, request.call.bucket, option.x, option.extra).seconds > _MAX_SECONDS


def _measure(trial: ArmTrial, arm: Arm, counters: Counters) -> ArmPower:
    request = trial.request
    bound = bind(request.primitive, request.call, arm, request.placement, trial.arrays, keyed=False)
    call = partial(bound.run, *trial.arrays, **trial.params)
    wait = partial(registry.adapter(arm.backend).synchronize, arm.device)
    call()  # compiles
    wait()
    read = [counters[name] for name in dict.fromkeys((arm.device, "cpu")) if name in counters]
    before, begin = sum(each() for each in read), time.perf_counter()
    while time.perf_counter() - begin < POWER_SECONDS:
        call()
        wait()
    seconds = time.perf_counter() - begin
    watts = max(0.0, sum(each() for each in read) - before) / seconds
    trial.knowledge.add_power(request, trial.knowledge.option(request, arm), watts, seconds)
    return ArmPower(trial.operation.name, arm.name, watts, seconds)
