"""``mittag_leffler`` compiled by Numba: each z finds its band and sums its fractions, with no temporaries.

The same plan and the same formulae as in NumPy (``engine/numerics/mittag_leffler_plan.py``), so the same results.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.numba.arrays import Array, flat
from hpfracc.engine.numerics.mittag_leffler_plan import OFFSETS, Pole, make_contour_plan
from hpfracc.engine.workers import even_blocks, run_blocks
from hpfracc.errors import InvalidInputError

_LARGE = 600.0
_HUGE = 1e300
#: With a smaller excess, the quarters of a residue's exponent and power are in range, and keep all digits.
_BEYOND = 200.0
#: Beyond the reciprocal of this (times alpha, below 1), nothing is known of the phase, and the result is nan.
_BLUR = 2.0**-48
#: Minimum number of values per thread: about 50 microseconds of work.
_MIN = 512
#: Sums may be reordered, for vector instructions; nan and inf keep their meaning.
_MATH = {"reassoc", "contract", "arcp"}


@njit(cache=True, nogil=True, fastmath=_MATH, error_model="numpy")
def _fractions_real(x: float, nodes: Any, start: int, stop: int) -> float:
    """``sum w/(p - x)`` over conjugate pairs; ``nodes`` has Re p, Im^2 p, Re w and Im w Im p."""
    total = 0.0
    for k in range(start, stop):
        distance = nodes[0, k] - x
        total += (nodes[2, k] * distance + nodes[3, k]) / (distance * distance + nodes[1, k])
    return 2.0 * total


@njit(cache=True, nogil=True, fastmath=_MATH, error_model="numpy")
def _fractions_complex(z: complex, side: float, nodes: Any, start: int, stop: int) -> complex:
    """``sum w/(p - z)``, of the conjugate nodes if ``side`` is -1; ``nodes`` has the parts of p and w."""
    x, y = z.real, z.imag
    real, imag = 0.0, 0.0
    for k in range(start, stop):
        a, b = nodes[0, k] - x, side * nodes[1, k] - y
        c, d = nodes[2, k], side * nodes[3, k]
        size = a * a + b * b
        real += (c * a + d * b) / size
        imag += (d * a - c * b) / size
    return complex(real, imag)


@njit(cache=True, nogil=True, error_model="numpy")
def _root(alpha: float, correction: float, size: float) -> float:
    if alpha == 1.0:
        return size
    root = size ** (1.0 / alpha)
    if correction != 0.0:
        root += root * (correction * math.log(size))
    return root if root < _HUGE else _HUGE


@njit(cache=True, nogil=True, error_model="numpy")
def _grown(real: float, power: float, size: float, root: float, excess: float) -> float:
    """``size**power exp(real - excess)``, given ``size**(power/4)``."""
    if excess >= _BEYOND:
        return math.exp(real + power * math.log(size) - excess)
    return (root * math.exp(0.25 * real) * math.exp(-0.25 * excess)) ** 4


@njit(cache=True, nogil=True, error_model="numpy")
def _series(z, taylor, count):  # type: ignore[no-untyped-def]
    total = 0.0 * z
    for k in range(count - 1, -1, -1):
        total = total * z + taylor[k]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _log_q(step: float, mu: float, root: complex) -> complex:
    value = (-2.0 * math.pi / step) * (root / math.sqrt(mu) - 1.0)
    return value if value.real < _LARGE else complex(_LARGE, 0.0)


@njit(cache=True, nogil=True, error_model="numpy")
def _real(points, values, scalars, taylor, inverse, edges, bands, shapes, nodes, positive, negative):  # type: ignore[no-untyped-def]
    alpha, beta, correction, radius, shrink, _ = scalars
    power = 1.0 - beta
    starts, stops = shapes
    for i in range(points.size):
        x = points[i]
        size = abs(x)
        if not size > radius:
            values[i] = _series(x * shrink, taylor, taylor.size)
            continue
        if math.isinf(size):
            values[i] = math.inf if x > 0 else (0.0 if alpha < 2.0 else math.nan)
            continue
        band = np.searchsorted(edges, size, side="right") - 1
        terms = int(bands[band, 0])
        mu, step = bands[band, 1], bands[band, 2]
        integrates = bands[band, 3] == 0.0
        poles = positive if x > 0 else negative
        count = poles.shape[0]
        offset = 1
        sum_ = 0.0
        excess = 0.0
        if count > 0:
            s = _root(alpha, correction, size)
            half = math.sqrt(s)
            if integrates:
                nearest = 2.0
                nearest_other = 2.0
                for j in range(count):
                    log_q = _log_q(step, mu, complex(half * poles[j, 2], half * poles[j, 3]))
                    if -2.0 < log_q.real < 2.0:
                        grown = math.exp(log_q.real)
                        q = complex(grown * math.cos(log_q.imag), grown * math.sin(log_q.imag))
                        nearest = min(nearest, abs(1.0 + q))
                        nearest_other = min(nearest_other, abs(1.0 - q))
                if nearest < 0.7 and nearest_other > nearest:
                    offset = 0
            log_size = math.log(s)
            for j in range(count):
                excess = max(excess, s * poles[j, 0] + power * log_size - _LARGE)
            scale = s ** (0.25 * power)
            for j in range(count):
                real, imag = s * poles[j, 0], s * poles[j, 1]
                if real + power * log_size < -750.0 - _BLUR * (1.0 + 1.0 / alpha) * s:
                    continue
                grown = _grown(real, power, s, scale, excess) / alpha
                if abs(imag) * _BLUR > min(1.0, alpha):
                    grown = math.nan
                angle = imag + poles[j, 4]
                part = grown * math.cos(angle)
                if integrates:
                    log_q = _log_q(step, mu, complex(half * poles[j, 2], half * poles[j, 3]))
                    if log_q.real > bands[band, 4]:
                        continue
                    if log_q.real > -40.0:
                        q_size = math.exp(log_q.real)
                        if offset == 1:
                            q_size = -q_size
                        denominator = complex(1.0 - q_size * math.cos(log_q.imag), -q_size * math.sin(log_q.imag))
                        share = 1.0 / denominator
                        part = grown * (math.cos(angle) * share.real - math.sin(angle) * share.imag)
                sum_ += poles[j, 5] * part
        total = _fractions_real(x, nodes, starts[band, offset], stops[band, offset]) if integrates else 0.0
        reciprocal = 1.0 / x
        for k in range(terms, 0, -1):
            total = (total - inverse[k]) * reciprocal
        if terms < 0:
            total = total * x ** (-terms) + _series(x * shrink, taylor, -terms)
        if excess > 0.0:
            grown = math.exp(0.5 * excess)
            values[i] = (total * math.exp(-excess) + sum_) * grown * grown
        else:
            values[i] = total + sum_


@njit(cache=True, nogil=True, error_model="numpy")
def _complex(points, values, scalars, taylor, inverse, edges, bands, shapes, nodes):  # type: ignore[no-untyped-def]
    alpha, beta, correction, radius, shrink, closed = scalars
    power = 1.0 - beta
    starts, stops = shapes
    most = math.floor((alpha + 1.0) / 2.0)
    slack = math.pi * 2.0**-20 / alpha if closed else 0.0
    cosines, sines = (1.0, -1.0, 0.0, 0.0), (0.0, 0.0, 1.0, -1.0)  # of 2 pi OFFSETS
    for i in range(points.size):
        z = points[i]
        size = math.hypot(z.real, z.imag)
        if not size > radius:
            values[i] = _series(z * shrink, taylor, taylor.size)
            continue
        if math.isinf(size):
            limit = math.inf if z.real > 0 else (0.0 if alpha < 2.0 else math.nan)
            values[i] = complex(limit if z.imag == 0.0 else math.nan, 0.0)
            continue
        band = np.searchsorted(edges, size, side="right") - 1
        mu, step = bands[band, 1], bands[band, 2]
        integrates = bands[band, 3] == 0.0
        s_size = _root(alpha, correction, size)
        half, log_size = math.sqrt(s_size), math.log(s_size)
        phi = math.atan2(z.imag, z.real)

        excess = 0.0
        close = (2.0, 2.0, 2.0, 2.0)
        for turn in range(-most, most + 1):
            theta = (phi + 2.0 * math.pi * turn) / alpha
            if not -math.pi + slack < theta < math.pi + slack:
                continue
            excess = max(excess, s_size * math.cos(theta) + power * log_size - _LARGE)
            if integrates:
                log_q = _log_q(step, mu, complex(half * math.cos(0.5 * theta), half * math.sin(0.5 * theta)))
                if -2.0 < log_q.real < 2.0:
                    grown = math.exp(log_q.real)
                    x, y = grown * math.cos(log_q.imag), grown * math.sin(log_q.imag)
                    close = (
                        min(close[0], math.hypot(1.0 - x, y)),
                        min(close[1], math.hypot(1.0 + x, y)),
                        min(close[2], math.hypot(1.0 + y, x)),
                        min(close[3], math.hypot(1.0 - y, x)),
                    )
        offset = 1
        if close[1] < 0.7:
            for candidate in (0, 2, 3):
                if close[candidate] > close[offset]:
                    offset = candidate

        residues = complex(0.0, 0.0)
        for turn in range(-most, most + 1):
            theta = (phi + 2.0 * math.pi * turn) / alpha
            if not -math.pi + slack < theta < math.pi + slack:
                continue
            real, imag = s_size * math.cos(theta), s_size * math.sin(theta)
            if real + power * log_size < -750.0 - _BLUR * (1.0 + 1.0 / alpha) * s_size:
                continue
            grown = _grown(real, power, s_size, s_size ** (0.25 * power), excess) / alpha
            if abs(imag) * _BLUR > min(1.0, alpha):
                grown = math.nan
            angle = imag + theta * power
            part = complex(grown * math.cos(angle), grown * math.sin(angle))
            if integrates:
                log_q = _log_q(step, mu, complex(half * math.cos(0.5 * theta), half * math.sin(0.5 * theta)))
                if log_q.real > bands[band, 4]:
                    continue
                if log_q.real > -40.0:
                    grown = math.exp(log_q.real)
                    q = complex(grown * math.cos(log_q.imag), grown * math.sin(log_q.imag))
                    part /= 1.0 - complex(cosines[offset], sines[offset]) * q
            residues += part

        total = complex(0.0, 0.0)
        if integrates:
            mirrored = offset if offset < 2 else 5 - offset
            total = _fractions_complex(z, 1.0, nodes, starts[band, offset], stops[band, offset])
            total += _fractions_complex(z, -1.0, nodes, starts[band, mirrored], stops[band, mirrored])
        reciprocal = 1.0 / z
        terms = int(bands[band, 0])
        for k in range(terms, 0, -1):
            total = (total - inverse[k]) * reciprocal
        if terms < 0:
            total = total * z ** (-terms) + _series(z * shrink, taylor, -terms)
        if excess > 0.0:
            grown = math.exp(0.5 * excess)
            total = total * math.exp(-excess) + residues
            # By parts, and not 0 times inf.
            real = total.real * grown * grown if total.real != 0.0 else 0.0
            imag = total.imag * grown * grown if total.imag != 0.0 else 0.0
            values[i] = complex(real, imag)
        else:
            values[i] = total + residues


def mittag_leffler_contour(z: Array, *, alpha: float, beta: float = 1.0, order: int = 0, workers: int = 1) -> Array:
    """E_{alpha,beta} at ``z``, in the dtype of ``z``; without derivatives (``order`` must be 0)."""
    if order:
        raise InvalidInputError(f"order={order}: the compiled kernel computes values only; use backend='numpy'")
    complex_z = z.dtype.kind == "c"
    points = flat(z.astype(np.complex128 if complex_z else np.float64, copy=False))
    values = np.empty_like(points)
    shared, real_only, complex_nodes = _packed(float(alpha), float(beta))

    def run(block: tuple[int, int]) -> None:
        part = slice(*block)
        if complex_z:
            _complex(points[part], values[part], *shared, complex_nodes)
        else:
            _real(points[part], values[part], *shared, *real_only)

    run_blocks(run, even_blocks(points.size, workers, _MIN), workers)
    return values.reshape(z.shape).astype(z.dtype, copy=False)


@lru_cache(maxsize=64)
def _packed(alpha: float, beta: float) -> tuple[Any, Any, Any]:
    """The plan as flat arrays for compiled code."""
    plan = make_contour_plan(alpha, beta)
    shape = (len(plan.bands), len(OFFSETS))
    starts, stops = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    points, weights, used = [np.zeros(0, complex)], [np.zeros(0, complex)], 0
    for row, band in enumerate(plan.bands):
        for column, (point, weight) in enumerate(zip(band.points, band.weights, strict=True)):
            starts[row, column], stops[row, column] = used, used + point.size
            used += point.size
            points.append(point)
            weights.append(weight)
    p, w = np.concatenate(points), np.concatenate(weights)
    bands = np.array([(band.terms, band.mu, band.step, float(band.elementary), band.reach) for band in plan.bands])
    scalars = (plan.alpha, plan.beta, plan.correction, plan.radius, 1.0 / plan.unit, plan.closed)
    shared = (scalars, plan.taylor, plan.inverse, plan.edges, bands, (starts, stops))
    nodes = np.array([p.real, p.imag**2, w.real, w.imag * p.imag])
    return shared, (nodes, _table(plan.positive), _table(plan.negative)), np.array([p.real, p.imag, w.real, w.imag])


def _table(poles: tuple[Pole, ...]) -> Array:
    rows = [(p.cosine, p.sine, p.half_cosine, p.half_sine, p.phase, p.weight) for p in poles]
    return np.array(rows, float).reshape(len(rows), 6)


KERNELS: dict[str, Kernel] = {"contour": Kernel(mittag_leffler_contour)}
