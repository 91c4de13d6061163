"""Where values are not smooth: jumps within adaptive steps, and powers of time at the start."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc.solvers.stepping.rules import JUMP

Array = np.ndarray[Any, Any]

#: The highest order of divided differences in which a jump of the size of other changes shows; also the one below.
JUMP_ORDERS = 4
#: Distances from the start, in powers of ten of the interval, at which values are sampled: as close as possible, so
#: that their leading power dominates.
_SCALES = ((60.0, 120.0, 180.0), (20.0, 40.0, 60.0), (5.0, 10.0, 15.0), (2.0, 4.0, 6.0))
#: Maximum difference of two slopes of one power.
_STEADY = 0.05


def find_jump(step: Any, trial: Any, grown: bool) -> Array | None:
    """Bound of the error if the right-hand side jumps within this step, at its end or at the last time; or None.

    ``step`` is an ``AdaptiveStep``, ``trial`` its ``Trial``.

    The terms of a polynomial across a jump underestimate it, because their weights fall with the degree. It jumps
    if its change is many times the earlier ones, or, for a jump of the size of its changes, if its divided
    differences of two higher orders are: extrapolations of any degree then miss the newest value by the jump.
    """
    change, one, other = trial.changes
    rounding = 1e-13 * np.abs(trial.values).max(axis=0)
    jump = np.where(change > np.maximum(one, other) + rounding, change, 0.0)
    if grown:
        jump = np.maximum(jump, _find_small_jump(trial, rounding))
    return jump_bound(step, jump, trial.step) if jump.any() else None


def length_across(step: Any) -> float | None:
    """The length of a step over a jump right behind the newest time; None if there is none."""
    system, tau, y = step.system, step.tau, step.y
    length: float = 32.0 * math.ulp(1.0) * max(abs(tau), abs(system.time(tau)))
    before = system(max(tau - length, 0.0), y)
    for _ in range(12):
        behind, later = (system(tau + k * length, y) for k in (1.0, 2.0))
        change = np.abs(behind - before)
        if np.any((change > 10.0 * np.abs(later - behind)) & (change > 1e-6 * np.abs(behind))):
            return length
        length *= 2.0
    return None


def _find_small_jump(trial: Any, rounding: Array) -> Array:
    """By how much extrapolations of two degrees miss the newest value, if both do so suddenly."""
    lengths = np.diff(trial.points)  # in units of this step
    differences, gaps, reach = trial.values, np.zeros(lengths.size + 1), 1.0
    smallest = np.full(trial.values.shape[1], math.inf)
    for order in range(1, JUMP_ORDERS + 1):
        gaps = gaps[:-1] + lengths[order - 1 :]
        differences = (differences[:-1] - differences[1:]) / gaps[:, np.newaxis]
        reach *= float(gaps[0])
        if order >= JUMP_ORDERS - 1:
            sizes = np.abs(differences[:3])
            limit = JUMP * sizes[1:].max(axis=0) + rounding * (2.0 ** (order - 1) / reach)
            smallest = np.where(sizes[0] > limit, np.minimum(smallest, reach * sizes[0]), 0.0)
    return smallest


def jump_bound(step: Any, jump: Array, length: float) -> Array:
    """How far the integral of the right-hand side may be off if it jumps by this within a step."""
    bound = 0.5 * jump
    for (alpha, which), memory in zip(step.system.groups, step.memories, strict=True):
        far = (step.length / length) ** (alpha - 1.0) * alpha if alpha > 1.0 else 0.0
        bound[which] *= memory.kernel.integrals(length, 1)[0] * max(1.0, far)
    return step.system.damp(bound) if step.system.stiff else bound


def sample_near_start(values: Callable[[float], Any], length: float) -> tuple[Array, Array] | None:
    """Three times after the start, and the values there, (..., 3); None if they are finite at no three times."""
    for scales in _SCALES:
        times = length * 10.0 ** -np.array(scales)
        with np.errstate(all="ignore"):
            try:
                found = np.stack([np.asarray(values(tau)) for tau in times.tolist()], axis=-1)
            except ArithmeticError:
                continue
        if np.isfinite(found).all():
            return times, found
    return None


def negative_powers(values: Array, times: Array) -> tuple[Array, bool]:
    """The negative powers of values of shape (rows, 3) at three times, else 0; and whether they are steady."""
    seen = np.all(values > 0.0, axis=1)
    slopes = np.diff(np.log(np.where(values > 0.0, values, 1.0)), axis=1) / np.diff(np.log(times))
    powers = np.where(seen, np.minimum(slopes[:, 1], 0.0), 0.0)
    turned = np.abs(slopes[:, 0] - slopes[:, 1])[powers < -1e-3]
    return powers, bool(np.all(turned <= _STEADY))
