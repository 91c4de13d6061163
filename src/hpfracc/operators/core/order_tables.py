r"""Weights for a learned order, from a table: few operations, on the device of the order, with slopes.

Between consecutive integer orders each weight is :math:`(k+1)^{-\sigma\alpha}` times a polynomial in the order, up to
rounding, because the weights of every rule here are entire functions of it. The polynomials are computed once, on the
host, from the weights of twenty plain orders (Chebyshev points). Then the weights of any order in the interval are the
product of a matrix with its powers, and so are their slopes. A factor is split off if a weight is 0 at an end of the
interval, as most are at integer orders, so that it keeps its digits there. If twenty coefficients do not reach rounding
there is no table, and the weights are computed by their formulas.

Beyond its head a sequence of weights is a smooth function of the lag: on a block sixteen times shorter than its
distance from 0 it is a polynomial of degree 9 up to rounding. So a long sequence is tabulated only at the Chebyshev
points of such blocks, and one matrix product gives the rest.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from hpfracc._torch_transforms import is_batched, is_inactive, is_inside, is_wrapped
from hpfracc._xp import NUMPY, Namespace
from hpfracc.engine.backends.registry import library_functions
from hpfracc.engine.execution.prepared import prepared_operands
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.sequences import Lags

#: Number of coefficients: unless the last three are below rounding, there is no table.
_COEFFICIENTS = 20
_ROUNDING = 4e-15
#: Longest sequence that is tabulated at every lag: a table for 16,384 points takes 2.6 MB.
WHOLE_TABLE = 16_384
#: Largest number of weights in a table: 2 MB of them, 21 MB with their polynomials.
_MAX = 2**17
#: Lags below this are all tabulated. Start and length of the blocks of the others: the length is at most a sixteenth of
#: the distance from 0.
_HEAD = 4096
_BLOCKS = ((_HEAD, 256), (32 * _HEAD, 8192))
#: Points of a block that are tabulated. The nearest singularity, at lag 0, is 33 half-blocks away, so that the
#: interpolation error decreases like 66^-j.
_NODES = 10
Maker = Callable[[Namespace, Any, Any], tuple[Any, ...]]
Array = np.ndarray[Any, Any]


class Table(NamedTuple):
    """The polynomials of all weights of a rule, concatenated.

    ``fall`` is ``sigma log(k + 1)``; ``zeros`` says which weights are 0 at the lower and at the upper end; ``shapes``
    are those of the arrays, with the last axis in tabulated lags; ``nodes`` says whether those are :func:`few_lags`.
    """

    coefficients: Array
    fall: Array
    zeros: tuple[Array, Array]
    shapes: tuple[tuple[int, ...], ...]
    middle: float
    n: int
    nodes: bool


class Scale(NamedTuple):
    """The factor of all weights, ``exp(rate alpha + shift)``, and the orders for which the result is nan.

    ``strict`` excludes the integer at the lower end; ``hidden`` says whether the order's value is unknown.
    """

    rate: float
    shift: float
    strict: bool
    hidden: bool

    def limits(self) -> list[float]:
        """The values that the distances of an order from the ends of its interval must exceed."""
        if not self.hidden:
            return [-math.inf, -math.inf]
        return [0.0, -float(np.finfo(np.float64).smallest_subnormal)] if self.strict else [-1e-9, -1e-9]


def tabulated_weights(
    scheme: Hashable,
    make: Maker,
    order: Order,
    n: int,
    few: bool = False,
    *,
    rate: float = 0.0,
    shift: float = 0.0,
    strict: bool = False,
    dtype: str = "float64",
) -> tuple[Any, ...] | None:
    """``make(xp, alpha, n)`` times ``exp(rate alpha + shift)`` for a PyTorch order, from a table.

    None if there is no table.

    Parameters
    ----------
    scheme : hashable
        Identifies ``make``.
    make : callable
        Returns a tuple of arrays whose last axis is the lag; with ``few`` it also accepts :class:`Lags`, and then every
        array has that many lags.
    order : Order
        Read from a tensor; its value may be unknown if its interval is known.
    n : int
        Number of lags.
    strict : bool
        Whether an unknown order at the lower end of its interval gives nan, like one outside.
    dtype : str
        Dtype of the result; the weights are computed in float64.
    """
    xp = order.xp
    if xp.library != "torch" or not n > 0 or (n > WHOLE_TABLE and not few):
        return None
    if order.known is None and is_wrapped(order.value):
        # Mapped orders may lie in any interval.
        return None
    if order.known == order.ceiling <= 0:
        # An integral has no such interval.
        return None
    key = ("order table", scheme, order.ceiling, n)
    host = prepared_operands.get(key, lambda: _tabulate(make, order.ceiling, n, few) or False)
    if not host:
        return None
    evaluation = _Evaluation(host, key, Scale(rate, shift, strict, order.known is None), xp, getattr(xp.module, dtype))
    if not sys.modules["torch"].compiler.is_compiling() and is_inactive():
        # Only autograd records the order.
        return tuple(_recorded(xp.module)(order.value, evaluation))
    return tuple(array.to(evaluation.dtype) for array in evaluation.spread(evaluation.at(order.value)[0]))


def interleaved_weights(parts: Any, evens: int, n: int) -> tuple[Any, Any]:
    """Rows of ``n`` weights of PyTorch's, the first one and the others, from those at even and at odd lags.

    The first ``evens`` rows of ``parts`` are at even lags, where other rows are 0; the rest are at odd ones.
    """
    found: tuple[Any, Any] = library_functions("torch", "tracking").interleaved(parts, evens, n)
    return found


# The lags of a table.


def _runs(n: int) -> list[tuple[int, int, int]]:
    """Start of the blocks of each length among ``n`` lags, their number, and their length."""
    ends = (*(min(n, first) for first, _ in _BLOCKS[1:]), n)
    return [
        (first, -(-(last - first) // block), block)
        for (first, block), last in zip(_BLOCKS, ends, strict=True)
        if last > first
    ]


@cache
def few_lags(n: int) -> Lags:
    """The lags from which the weights at 0 .. n-1 are interpolated."""
    at = 0.5 * (1.0 + _nodes())
    far = [(first + block * np.arange(count)[:, None] + (block - 1) * at).ravel() for first, count, block in _runs(n)]
    return Lags(min(n, _HEAD), np.concatenate([np.zeros(0), *far]))


def _nodes() -> Array:
    return np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)[::-1]


@cache
def _cardinals(block: int) -> Array:
    """Row i, column j: the polynomial that is 1 at node i and 0 at the others, at the j-th lag of a block."""
    degree = np.arange(_NODES)
    waves = np.cos(degree[:, None] * np.arccos(np.linspace(-1.0, 1.0, block)))
    factors = np.cos(np.arccos(_nodes())[:, None] * degree) * np.where(degree, 2.0, 1.0) / _NODES
    return np.asarray(factors @ waves)


# Making a table, on the host.


def _tabulate(make: Maker, ceiling: int, n: int, few: bool) -> Table | None:
    nodes = few and n > _HEAD
    lags: int | Lags = few_lags(n) if nodes else n
    angle = np.pi * (np.arange(_COEFFICIENTS) + 0.5) / _COEFFICIENTS
    orders = ceiling - 0.5 + 0.5 * np.cos(angle)
    with np.errstate(all="ignore"):
        made = [make(NUMPY, float(orders[0]), lags)]
        if any(np.iscomplexobj(array) for array in made[0]) or sum(array.size for array in made[0]) > _MAX:
            return None
        made += [make(NUMPY, float(alpha), lags) for alpha in orders[1:]]
    shapes = tuple(tuple(array.shape) for array in made[0])
    values = np.stack([_joined(arrays) for arrays in made], axis=1)
    fall = np.concatenate(_falls(made[0], made[-1], orders[0] - orders[-1], lags))
    values *= np.exp(fall[:, None] * orders)
    zeros = tuple(_vanishing(make, float(end), lags, values) for end in (ceiling - 1, ceiling))
    values /= np.where(zeros[0][:, None], orders - (ceiling - 1), 1.0)
    values /= np.where(zeros[1][:, None], ceiling - orders, 1.0)
    degree = np.arange(_COEFFICIENTS)
    waves = np.cos(angle[:, None] * degree) * np.where(degree, 2.0, 1.0) / _COEFFICIENTS
    series = values @ waves
    size = np.abs(values).max(axis=1, initial=0.0)
    if not np.isfinite(size).all() or (np.abs(series[:, -3:]) > _ROUNDING * size[:, None]).any():
        return None
    return Table(series @ _monomials(), fall, (zeros[0], zeros[1]), shapes, ceiling - 0.5, n, nodes)


def _joined(arrays: tuple[Array, ...]) -> Array:
    return np.concatenate([np.ravel(array) for array in arrays])


def _vanishing(make: Maker, end: float, lags: int | Lags, values: Array) -> Array:
    """Whether each weight is 0 at an end of the interval, and not within."""
    with np.errstate(all="ignore"):
        made = _joined(make(NUMPY, np.float64(end), lags))
    found: Array = (made == 0.0) & (values != 0.0).all(axis=1)
    return found


def _falls(high: tuple[Any, ...], low: tuple[Any, ...], apart: float, lags: int | Lags) -> list[Array]:
    """``sigma log(k + 1)`` for each array: sigma (-1, 0 or 1) is the decay of its last weight with the order."""
    found = []
    for top, bottom in zip(high, low, strict=True):
        count = top.shape[-1]
        whole = np.arange(count, dtype=np.float64)
        log = np.log1p(whole if isinstance(lags, int) else np.concatenate([whole[: lags.near], lags.far]))
        ends = np.stack([top.reshape(-1, count)[:, -1], bottom.reshape(-1, count)[:, -1]])
        rates = np.zeros(ends.shape[1])
        if log[-1] > 0.0:
            with np.errstate(all="ignore"):
                quotient = np.log(np.abs(ends[1] / ends[0])) / (apart * log[-1])
            rates = np.clip(np.round(np.nan_to_num(quotient, nan=0.0, posinf=0.0, neginf=0.0)), -1.0, 1.0)
        found.append((rates[:, None] * log).ravel())
    return found


@cache
def _monomials() -> Array:
    """Row j: the coefficients of ``T_j(2 y)`` in powers of y, all of them integers."""
    rows = np.zeros((_COEFFICIENTS, _COEFFICIENTS))
    rows[0, 0], rows[1, 1] = 1.0, 2.0
    for j in range(2, _COEFFICIENTS):
        rows[j, 1:] = 4.0 * rows[j - 1, :-1]
        rows[j] -= rows[j - 2]
    return rows


# Evaluating it, on the device of the order.


class _Program(NamedTuple):
    """A table on a device: weights are ``powers @ series * exp(rise alpha)``.

    ``series`` (places, lags) contains the polynomials; those with an extra factor for zeros are in separate rows. The
    powers are products of ``y``, ``alpha - lower`` and ``upper - alpha`` (``offsets + signs alpha``) to the
    ``exponents``, times ``factors``, added up by ``sums``: in the first row for weights, in the second for slopes.
    ``limits`` are the values that the two distances must exceed if the order is unknown.
    """

    series: Any
    rise: Any
    offsets: Any
    signs: Any
    exponents: Any
    factors: Any
    sums: Any
    limits: Any


class _Evaluation:
    """The weights of a table at an order, by operations that every PyTorch transform supports, or by a GPU kernel."""

    def __init__(self, table: Table, key: Hashable, scale: Scale, xp: Namespace, dtype: Any) -> None:
        self.table, self.key, self.scale, self.xp, self.dtype = table, key, scale, xp, dtype

    def _kept(self, name: Hashable, make: Callable[[], Any]) -> Any:
        """The result of ``make``, cached for the device of the namespace outside of transforms."""

        def made() -> Any:
            with self.xp.module.inference_mode(False):
                return make()

        return made() if is_inside() else prepared_operands.get((name, "torch", str(self.xp.device)), made)

    def _program(self) -> _Program:
        table, scale, xp = self.table, self.scale, self.xp
        low, high = table.zeros
        kinds = sorted(set(zip(low.tolist(), high.tolist(), strict=True)))
        series = [np.where((low == i) & (high == j), table.coefficients.T, 0.0) for i, j in kinds]
        ones, degree = np.ones(_COEFFICIENTS), np.arange(_COEFFICIENTS, dtype=np.float64)
        exponents, factors = [], []
        for i, j in kinds:
            # y^k l^i u^j, and its slope k y^(k-1) l^i u^j + i y^k u^j - j y^k l^i with i, j of 0 or 1.
            of_y = [degree, np.maximum(degree - 1.0, 0.0), degree, degree]
            of_ends = [i * ones, i * ones, 0.0 * ones, i * ones], [j * ones, j * ones, j * ones, 0.0 * ones]
            exponents.append([of_y, *of_ends])
            factors.append([ones, degree, i * ones, -j * ones])
        edges = np.array([table.middle, table.middle - 0.5, -table.middle - 0.5])
        return _Program(
            xp.array(np.concatenate(series)),
            xp.array(scale.rate - table.fall),
            xp.array(-edges.reshape(3, 1, 1)),
            xp.array(np.reshape([1.0, 1.0, -1.0], (3, 1, 1))),
            xp.array(np.concatenate(exponents, -1)),
            xp.array(np.concatenate(factors, -1) * math.exp(scale.shift)),
            xp.array([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0]]),
            xp.array(np.reshape(scale.limits(), (2, 1, 1))) if scale.hidden else None,
        )

    def at(self, value: Any) -> tuple[Any, Any]:
        """Weights and slopes at the tabulated lags."""
        torch = self.xp.module
        program: _Program = self._kept((self.key, self.scale), self._program)
        bases = torch.addcmul(program.offsets, program.signs, value)
        if program.limits is not None:
            bases = torch.where((bases[1:] > program.limits).all(), bases, math.nan)
        products = torch.prod(bases**program.exponents, 0) * program.factors
        both = torch.mm(torch.mm(program.sums, products), program.series) * torch.exp(program.rise * value)
        return both[0], torch.addcmul(both[1], program.rise, both[0])

    def spread(self, rows: Any) -> list[Any]:
        """Each array at all lags, from all arrays at the tabulated ones."""
        found, begin = [], 0
        for shape in self.table.shapes:
            end = begin + math.prod(shape)
            found.append(self._interpolated(rows[begin:end].reshape(shape)))
            begin = end
        return found

    def _interpolated(self, array: Any) -> Any:
        if not self.table.nodes:
            return array
        parts, place = [array[..., :_HEAD]], _HEAD
        for _, count, block in _runs(self.table.n):
            at = array[..., place : place + _NODES * count].reshape(*array.shape[:-1], count, _NODES)
            basis = self._kept(("cardinals", block), partial(self.xp.array, _cardinals(block)))
            parts.append(self.xp.module.matmul(at, basis).flatten(-2))
            place += _NODES * count
        return self.xp.module.cat(parts, -1)[..., : self.table.n]

    def has_kernel(self, value: Any) -> bool:
        """Whether one GPU kernel computes the weights, and another the sum of their slopes."""
        lags = {shape[-1] for shape in self.table.shapes}
        even = len(lags) == 1 and (self.table.nodes or lags == {self.table.n})
        return bool(value.is_cuda and even and _fused().is_available())

    def _on_gpu(self) -> Any:
        """The table in the form that the kernels take."""
        table, xp = self.table, self.xp
        numbers = (self.scale.rate, self.scale.shift, table.middle, *self.scale.limits())
        (head, near), (second, far) = _BLOCKS

        def make() -> Any:
            lags, (low, high) = table.shapes[0][-1], table.zeros
            bases = np.concatenate([_cardinals(block).ravel() for _, block in _BLOCKS])
            return _fused().OrderTable(
                scale=None,
                series=xp.array(np.ascontiguousarray(table.coefficients.T)),
                fall=xp.array(table.fall),
                zeros=xp.asarray(low.astype(np.int32) + 2 * high.astype(np.int32)),
                bases=xp.array(bases if table.nodes else bases[:1]),
                rows=table.fall.size // lags,
                lags=lags,
                points=table.n,
                blocks=(_NODES if table.nodes else 0, 16, head, near, second, far),
            )

        scaling = self._kept(("numbers", numbers), lambda: xp.array(list(numbers)))
        return self._kept((self.key, "kernel"), make)._replace(scale=scaling)

    def by_kernel(self, value: Any) -> list[Any]:
        """All arrays at an order."""
        made, found, row = _fused().table_weights(value, self._on_gpu(), self.dtype), [], 0
        for shape in self.table.shapes:
            count = math.prod(shape[:-1])
            found.append(made[row : row + count].view(*shape[:-1], self.table.n))
            row += count
        return found

    def slope_by_kernel(self, value: Any, changes: tuple[Any, ...]) -> Any:
        """The sum of all slopes times ``changes``, which is None for an array without dependents."""
        given, row = [], 0
        for change, shape in zip(changes, self.table.shapes, strict=True):
            given += [] if change is None else [(row, change)]
            row += math.prod(shape[:-1])
        return _fused().table_slope(value, self._on_gpu(), given)


def _fused() -> Any:
    return library_functions("torch", "fused")


@cache
def _recorded(torch: Any) -> Callable[..., tuple[Any, ...]]:
    class _TabulatedWeights(torch.autograd.Function):  # type: ignore[misc]
        """Weights from the order, as one step of autograd."""

        @staticmethod
        def forward(ctx: Any, value: Any, evaluation: _Evaluation) -> tuple[Any, ...]:
            ctx.save_for_backward(value)
            ctx.set_materialize_grads(False)
            ctx.evaluation, ctx.slopes = evaluation, None
            if evaluation.has_kernel(value):
                return tuple(evaluation.by_kernel(value.detach()))
            weights, ctx.slopes = evaluation.at(value.detach())
            return tuple(array.to(evaluation.dtype) for array in evaluation.spread(weights))

        @staticmethod
        def backward(ctx: Any, *changes: Any) -> tuple[Any, ...]:
            (value,), evaluation = ctx.saved_tensors, ctx.evaluation
            given = [change for change in changes if change is not None]
            if not given:
                return None, None
            afresh = torch.is_grad_enabled() or is_batched(given[0])
            if ctx.slopes is None and not afresh:
                return evaluation.slope_by_kernel(value, changes), None
            slopes = evaluation.spread(evaluation.at(value)[1] if afresh or ctx.slopes is None else ctx.slopes)
            parts = [
                (change.to(torch.float64) * slope).sum()
                for change, slope in zip(changes, slopes, strict=True)
                if change is not None
            ]
            return sum(parts[1:], parts[0]), None

    found: Callable[..., tuple[Any, ...]] = _TabulatedWeights.apply
    return found
