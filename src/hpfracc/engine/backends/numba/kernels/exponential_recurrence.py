"""Exponential recurrence in Numba: step by step, all terms of a step together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, uintp

from hpfracc._xp import NUMPY
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.numba.arrays import Array, behaved, spread
from hpfracc.engine.numerics.recurrence import arrival, taint
from hpfracc.engine.workers import even_blocks, run_blocks

# "reassoc" lets the terms be summed in any order, "contract" fuses multiply and add; neither assumes finite numbers.
_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "fastmath": {"contract", "reassoc"}}


@njit(**_OPTIONS)
def _advance(state, fade, into, w, x, lagged):  # type: ignore[no-untyped-def]
    """One step of one row; returns its contribution to the value."""
    total = state[0] * 0.0  # not of x: a lagged value excludes its newest input, also one that is not finite
    if lagged:
        for j in range(uintp(fade.size)):
            state[j] *= fade[j]
            total += w[j] * state[j]
            state[j] += into[j] * x
    else:
        for j in range(uintp(fade.size)):
            state[j] = state[j] * fade[j] + into[j] * x
            total += w[j] * state[j]
    return total


@njit(**_OPTIONS)
def _recur_uniform(fade, into, w, x, state, out, lagged):  # type: ignore[no-untyped-def]
    for row in range(x.shape[0]):
        for k in range(x.shape[1]):
            out[row, k] = _advance(state[row], fade, into, w, x[row, k], lagged)


@njit(nogil=True, cache=True)
def _arrive(z, fade, degree):  # type: ignore[no-untyped-def]
    """As :func:`arrival`, for one number."""
    if degree < 0:
        return 1.0
    if degree == 0:
        return (1.0 - fade) / z if abs(z) > 0.5 else (-math.expm1(-z) / z if z != 0.0 else 1.0)
    if abs(z) < 1.0:
        term = 1.0 / (degree + 1.0)
        total = term
        for k in range(1, 18):
            term *= -z / (degree + k + 1.0)
            total += term
        return total
    value = (1.0 - fade) / z
    for p in range(1, degree + 1):
        value = (1.0 - p * value) / z
    return value


@njit(**_OPTIONS)
def _recur_own(rates, steps, w, x, state, out, degree, lagged):  # type: ignore[no-untyped-def]
    terms = rates.size
    fade, into = np.empty(terms), np.empty(terms)
    for k in range(x.shape[1]):
        for j in range(uintp(terms)):
            z = rates[j] * steps[k]
            if abs(z) < 0.01 and degree <= 0:
                # (1 - exp(-z)) / z by its series, which suffices for most terms at a fifth of the cost.
                share = 1.0 - z / 2.0 * (1.0 - z / 3.0 * (1.0 - z / 4.0 * (1.0 - z / 5.0 * (1.0 - z / 6.0))))
                fade[j] = 1.0 - z * share
                into[j] = share if degree == 0 else 1.0
            else:
                fade[j] = math.exp(-z)
                into[j] = _arrive(z, fade[j], degree)
        for row in range(x.shape[0]):
            out[row, k] = _advance(state[row], fade, into, w, x[row, k], lagged)


def recur_direct(
    rates: Array,
    weights: Array,
    steps: Array,
    signal: Array,
    initial: Array,
    *,
    degree: int | None = None,
    lagged: bool = False,
    final: bool = False,
    workers: int = 1,
) -> Array:
    """Values, followed by the final states if requested; rows, or terms of few rows, are divided among threads."""
    rates, weights, steps = (behaved(np.array(array, np.float64)) for array in (rates, weights, np.atleast_1d(steps)))
    complex_ = "c" in (signal.dtype.kind, initial.dtype.kind)
    batch = np.broadcast_shapes(signal.shape[:-1], initial.shape[:-1])
    n, terms, rows = signal.shape[-1], rates.size, math.prod(batch)
    wide = np.complex128 if complex_ else np.float64
    x = _rows(signal, wide, (*batch, n), rows)
    state = np.array(np.broadcast_to(initial, (*batch, terms)), wide).reshape(rows, terms)
    kind = signal.dtype if signal.dtype.kind in "fc" else np.dtype(np.float64)
    kind = np.result_type(kind, np.complex64) if complex_ else kind
    first = state.copy()
    uniform = steps.size == 1
    fade, into = (
        np.exp(-rates * steps[0]) if uniform else rates,
        arrival(NUMPY, rates * steps[0], degree) if uniform else rates,
    )
    by_rows = rows >= workers or terms < 2 * workers
    parts = even_blocks(rows, workers) if by_rows else even_blocks(terms, workers)
    out = np.zeros((1 if by_rows else len(parts), rows, n), wide)

    def work(number: int) -> None:
        low, high = parts[number]
        take, some = (slice(low, high), slice(None)) if by_rows else (slice(None), slice(low, high))
        held = behaved(state[take, some])
        target = out[0, take] if by_rows else out[number]
        w = behaved(weights[some])
        if uniform:
            _recur_uniform(behaved(fade[some]), behaved(into[some]), w, x[take], held, target, lagged)
        else:
            chosen = -1 if degree is None else degree
            _recur_own(behaved(rates[some]), steps, w, x[take], held, target, chosen, lagged)
        state[take, some] = held

    if rows and terms:
        run_blocks(work, range(len(parts)), workers)
    y = out[0] if len(out) == 1 else out.sum(0)
    if n and not (np.isfinite(y[:, -1:]).all() and np.isfinite(state).all()):
        y, state = taint(NUMPY, y, state, x, first, lagged)
    whole = np.concatenate([y, state], -1) if final else y
    return whole.astype(kind, copy=False).reshape(*batch, whole.shape[-1])


def _rows(array: Array, wide: Any, shape: tuple[int, ...], rows: int) -> Array:
    return behaved(spread(array, shape).astype(wide, copy=False).reshape(rows, shape[-1]))


KERNELS: dict[str, Kernel] = {"direct": Kernel(recur_direct)}
