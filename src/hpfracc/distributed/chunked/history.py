r"""Causal operators over chunks of time, without a whole row in one worker.

Every rule for uniform grids is :math:`y_n = h^s (\sum_k w_k u_{n-k} + \sum_i v_i S_{i,n})`: a causal convolution of
inputs u, which are formed from the last few samples, plus weights of the first samples
(:mod:`hpfracc.operators.core.stream_plans`). There are two ways across the boundaries of chunks:

* *spectrum*: the convolution of :mod:`hpfracc.distributed.chunked.convolution`, with weights that each worker
  computes itself.
* *carry*: from lag 192 on the weights are a sum of some 200 decaying exponentials to full precision, so a chunk needs
  only 191 inputs and one number per exponential from the past. A chunk that starts at point b computes

  .. math:: y_n = \sum_{i > b - 192} w_{n-i} u_i + \sum_j c_j e^{-r_j (n-b)} C_j, \qquad
      C_j = \sum_{i \le b - 192} e^{-r_j (b - 192 - i)} u_i.

  The chunks compute their parts of :math:`C` in parallel, one task per row adds them up, and the first sum is one
  call of the engine.
"""

from __future__ import annotations

import contextlib
import functools
import math
from typing import Any

import numpy as np

from hpfracc._optional import import_optional
from hpfracc.distributed.chunked import planning
from hpfracc.distributed.chunked.convolution import convolve_spectra, rows_in_block, spectrum_way
from hpfracc.distributed.chunked.planning import ChunkedWay, Resources, blocks
from hpfracc.engine.execution.api import causal_convolution, matmul
from hpfracc.errors import HpfraccError
from hpfracc.history.exponentials import FULL_PRECISION
from hpfracc.operators.core.grids import Grid
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.stream_plans import WINDOW, StreamPlan, plan_stream
from hpfracc.operators.core.values import Samples

Array = np.ndarray[Any, Any]

#: Number of points whose decays form one matrix product.
_TILE = 1024


@functools.lru_cache(maxsize=64)
def _prepared(operator: Any, horizon: int) -> tuple[Rule, Order, StreamPlan]:
    """The rule of an operator and its plan; with exponentials for lags up to ``horizon``, or without for 0."""
    rule, order = operator._streamed()
    who = type(operator).__name__
    if not horizon:
        return rule, order, plan_stream(rule, order, None, who)
    # Rounded to a power of 2, so that series of similar length share the terms.
    return rule, order, plan_stream(rule, order, FULL_PRECISION, who, 2.0 ** math.ceil(math.log2(2 * horizon)))


@functools.lru_cache(maxsize=8)
def _weights(operator: Any, begin: int, end: int) -> Array:
    return _prepared(operator, 0)[2].weights(begin, end)


def history_ways(
    operator: Any, f: Any, axis: int, step: float, backend: Any, resources: Resources
) -> dict[ChunkedWay, planning.Build]:
    """The ways of an operator over chunks of an axis; none if its rule is no such sum or chunks are short."""
    array = import_optional("dask.array")
    turned = array.moveaxis(f, axis, -1)
    try:
        if operator._is_right():
            return {}
        plan = _prepared(operator, 0)[2]
    except (HpfraccError, TypeError):  # no streaming form, or an array as order
        return {}
    if min(turned.chunks[-1][:-1]) < WINDOW + plan.lookback:
        return {}
    ways = [spectrum_way(turned, resources)]
    with contextlib.suppress(HpfraccError):  # a memory that does not decay
        ways.insert(0, _carry_way(turned, len(_prepared(operator, f.shape[axis])[2].far.rates), resources))

    def build(way: str) -> Any:
        return array.moveaxis(_apply(way, operator, turned, step, backend, resources), -1, axis)

    return {way: functools.partial(build, way.name) for way in ways}


def _carry_way(f: Any, terms: int, resources: Resources) -> ChunkedWay:
    rows = math.prod(f.shape[:-1])
    count, length = f.numblocks[-1], max(f.chunks[-1])
    tiles = math.ceil(length / _TILE)
    task = rows_in_block(f) * 8 * (planning.COPIES * (length + WINDOW) + 3 * tiles * terms) + 16 * _TILE * terms
    refusal = resources.refusal(f"a chunk of {length:,} points", task)
    tasks = math.prod(f.numblocks[:-1]) * (6 * count + 1)
    moved = rows * count * 8 * (2 * terms + 2 * WINDOW)
    return ChunkedWay("carry", "a few eps of sum|w| max|u|", tasks, moved, task, refusal)


def _apply(way: str, operator: Any, f: Any, step: float, backend: Any, resources: Resources) -> Any:
    """Build the graph of an operator along the last axis, by ``"spectrum"`` or ``"carry"``."""
    array = import_optional("dask.array")
    plan = _prepared(operator, 0)[2]
    dtype = planning.result_dtype(f)
    f = f.astype(dtype)
    head = f[..., :WINDOW]
    before = _ends_before(array, f, WINDOW - 1 + plan.lookback)
    finish = functools.partial(_finish, operator, step, dtype, backend)
    if way == "carry":
        states = _carried(operator, f, before, backend, resources)
        points = functools.partial(_points, operator, f.shape[-1], finish, backend)
        return blocks("carry", points, f, before, states, head, dtype=dtype, where=True)
    real = np.empty(0, dtype).real.dtype

    def inputs(place: Any, block: Any, before: Any) -> Any:
        return _extended(_prepared(operator, 0)[2], place[-1][0], block, before)[..., WINDOW - 1 :]

    def weights(place: Any) -> Any:
        return _weights(operator, *place[0]).astype(real)

    given = blocks("inputs", inputs, f, before, dtype=dtype, where=True)
    made = blocks("weights", weights, dtype=real, ndim=1, where=True, chunks=(f.chunks[-1],))
    found = convolve_spectra(made, given, dtype, backend, resources)
    return blocks("finish", finish, found, head, dtype=dtype, where=True)


def _ends_before(array: Any, f: Any, length: int) -> Any:
    """The last samples of the previous chunk, for each chunk; zeros for the first."""

    def end(block: Any) -> Any:
        if block.shape[-1] >= length:
            return np.ascontiguousarray(block[..., block.shape[-1] - length :])
        # The last chunk, which may be short, has no successor.
        return np.zeros((*block.shape[:-1], length), block.dtype)

    ends = blocks("ends", end, f, dtype=f.dtype, chunks=(*f.chunks[:-1], (length,) * f.numblocks[-1]))
    zeros = array.zeros((*f.shape[:-1], length), chunks=(*f.chunks[:-1], length), dtype=f.dtype)
    return array.concatenate([zeros, ends[..., : -length or None]], axis=-1)


def _extended(plan: StreamPlan, begin: int, block: Any, before: Any) -> Any:
    """Inputs of a chunk, preceded by those of the ``WINDOW - 1`` points before it."""
    with np.errstate(invalid="ignore"):
        if begin:
            return plan.inputs(np.concatenate([before, block], axis=-1))[..., plan.lookback :]
        inputs = plan.inputs(block)
    return np.concatenate([np.zeros((*block.shape[:-1], WINDOW - 1), inputs.dtype), inputs], axis=-1)


# The numbers carried across boundaries.


def _carried(operator: Any, f: Any, before: Any, backend: Any, resources: Resources) -> Any:
    """The numbers C of each chunk, along the last axis."""
    points, count, rows, sizes = f.shape[-1], f.numblocks[-1], f.chunks[:-1], f.chunks[-1]
    plan, method = _prepared(operator, points)[2], planning.rechunk_method(resources)
    width = len(plan.far.rates) * (1 if plan.alternating is None else 2)
    wide = np.result_type(f.dtype, np.float64)

    def part(place: Any, block: Any, before: Any) -> Any:
        """The contribution of a chunk to C, decayed to the start of the next one."""
        plan = _prepared(operator, points)[2]
        begin, length = place[-1][0], block.shape[-1]
        x = _extended(plan, begin, block, before)[..., :length]
        x = x.astype(np.result_type(x.dtype, np.float64))
        found = [_decayed_sum(plan.far.rates, x, backend)]
        if plan.alternating is not None:
            signs = 1.0 - 2.0 * ((begin - WINDOW + 1 + np.arange(length)) % 2)
            found.append(_decayed_sum(plan.far.rates, x * signs, backend))
        return np.concatenate(found, axis=-1)

    def scan(parts: Any) -> Any:
        """C at the start of each chunk, from the parts of all chunks but the last."""
        plan = _prepared(operator, points)[2]
        rates = np.tile(plan.far.rates, 1 if plan.alternating is None else 2)
        given = parts.reshape(*parts.shape[:-1], count - 1, width)
        found = np.zeros((*parts.shape[:-1], count, width), parts.dtype)
        with np.errstate(invalid="ignore"):
            for number in range(1, count):
                decay = np.exp(-rates * sizes[number - 1])
                found[..., number, :] = found[..., number - 1, :] * decay + given[..., number - 1, :]
        return found.reshape(*parts.shape[:-1], -1)

    earlier, ends = f.blocks[..., :-1], before.blocks[..., :-1]
    own = blocks("part", part, earlier, ends, dtype=wide, where=True, chunks=(*rows, (width,) * (count - 1)))
    own = own.rechunk({f.ndim - 1: -1}, method=method)
    summed = blocks("scan", scan, own, dtype=wide, chunks=(*rows, (width * count,)))
    return summed.rechunk({f.ndim - 1: width}, method=method)


def _decayed_sum(rates: Array, x: Any, backend: Any) -> Any:
    """``sum_p exp(-rates (n - 1 - p)) x[p]``: a matrix product within tiles, then the sum over tiles."""
    rows, length = x.shape[:-1], x.shape[-1]
    tiles = -(-length // _TILE)
    padded = np.zeros((math.prod(rows), tiles * _TILE), x.dtype)
    padded[:, tiles * _TILE - length :] = x.reshape(-1, length)
    decay = np.exp(-np.multiply.outer(np.arange(_TILE - 1, -1, -1.0), rates)).astype(x.dtype)
    parts = np.asarray(matmul(padded.reshape(-1, _TILE), decay, backend=backend))
    later = np.exp(-np.multiply.outer(_TILE * np.arange(tiles - 1, -1, -1.0), rates))
    with np.errstate(invalid="ignore"):
        return (parts.reshape(-1, tiles, len(rates)) * later).sum(axis=1).reshape(*rows, len(rates))


def _points(
    operator: Any, points: int, finish: Any, backend: Any, place: Any, block: Any, before: Any, states: Any, head: Any
) -> Any:
    """The operator at the points of a chunk, from the carried numbers."""
    plan = _prepared(operator, points)[2]
    begin, length = place[-1][0], block.shape[-1]
    inputs = _extended(plan, begin, block, before)
    weights = _weights(operator, 0, WINDOW - 1 + length)
    value = np.asarray(causal_convolution(weights, inputs, backend=backend))[..., WINDOW - 1 :]
    if begin:
        terms = len(plan.far.rates)
        far = _spread(plan.far.rates, plan.far.weights, states[..., :terms], length, backend)
        if plan.alternating is not None:
            signs = 1.0 - 2.0 * ((begin + np.arange(length)) % 2)
            far = far + signs * _spread(plan.far.rates, plan.alternating, states[..., terms:], length, backend)
        value = value + far
    return finish(place, value, head)


def _spread(rates: Array, weights: Array, states: Any, length: int, backend: Any) -> Any:
    """``sum_j weights[j] exp(-rates[j] k) states[j]`` for k = 0, 1, ..."""
    rows, tiles = states.shape[:-1], -(-length // _TILE)
    with np.errstate(invalid="ignore"):
        starts = np.exp(-np.multiply.outer(_TILE * np.arange(float(tiles)), rates)) * weights * states[..., None, :]
    decay = np.exp(-np.multiply.outer(rates, np.arange(float(_TILE)))).astype(states.dtype)
    found = np.asarray(matmul(np.ascontiguousarray(starts.reshape(-1, len(rates))), decay, backend=backend))
    return found.reshape(*rows, tiles * _TILE)[..., :length]


def _finish(operator: Any, step: float, dtype: Any, backend: Any, place: Any, value: Any, head: Any) -> Any:
    """Add the weights of the first samples, scale by the power of the step, and apply the rule at the first points."""
    rule, order, plan = _prepared(operator, 0)
    begin, length = place[-1][0], value.shape[-1]
    skipped = max(0, WINDOW - begin)
    numbers = np.arange(begin + skipped, begin + length, dtype=np.float64)
    value = np.array(value, dtype=np.result_type(value.dtype, np.float64))
    with np.errstate(invalid="ignore"):
        for first, weights in zip(plan.firsts(head, step), plan.start(numbers), strict=True):
            value[..., skipped:] += np.asarray(first) * weights
        value *= step**plan.scale
        if not begin:
            samples = Samples(np.ascontiguousarray(head), Grid(WINDOW, 0.0, step), backend)
            value[..., :WINDOW] = rule.apply(samples, order)
    return value.astype(dtype, copy=False)
