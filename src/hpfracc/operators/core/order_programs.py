"""Evaluation of a table of weights at an order, on its device: by a few operations, or by one kernel on a GPU.

A table is created by ``order_tables.py``. Autograd records the weights as one step, which saves the slopes at the
tabulated lags, or nothing; transforms of ``torch.func`` and second derivatives use ordinary PyTorch operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from hpfracc._torch_transforms import is_batched, is_inside
from hpfracc._xp import Namespace
from hpfracc.engine.backends.registry import library_functions
from hpfracc.engine.execution.prepared import PreparedOperands
from hpfracc.operators.core.lags import BLOCKS, HEAD, NODES, cardinals

__all__ = ["Scale", "Table", "composed_weights", "interleaved_weights", "kept_tables", "recorded_weights"]

#: Largest total size of cached tables, in bytes.
_CAPACITY = 256 * 2**20
kept_tables = PreparedOperands(_CAPACITY)


class Table(NamedTuple):
    """The polynomials of all weights of a rule, concatenated.

    ``fall`` is ``sigma log(k + 1)``; ``zeros`` says which weights are 0 at the lower and at the upper end; ``shapes``
    are those of the arrays, with the last axis in tabulated lags; ``nodes`` says whether those are :func:`few_lags`.
    """

    coefficients: Any
    fall: Any
    zeros: tuple[Any, Any]
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


class _Program(NamedTuple):
    """A table on a device, for evaluation by few operations: weights are ``powers @ series * exp(rise alpha)``.

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


def _kept_on_device(name: Hashable, xp: Namespace, make: Callable[[], Any]) -> Any:
    """The result of ``make``, cached for the device of the namespace outside of transforms."""

    def made() -> Any:
        with xp.module.inference_mode(False):
            return make()

    if is_inside():
        return made()
    return kept_tables.get((name, "torch", str(xp.device)), made)


def _on_device(key: Hashable, host: Table, xp: Namespace) -> Table:
    """The table on the device of the namespace."""

    def make() -> Table:
        return host._replace(
            coefficients=xp.array(host.coefficients),
            fall=xp.array(host.fall),
            zeros=(xp.asarray(host.zeros[0]), xp.asarray(host.zeros[1])),
        )

    found: Table = _kept_on_device(key, xp, make)
    return found


def _program(host: Table, scale: Scale, xp: Namespace) -> _Program:
    """The table for evaluation by few operations, on the device of the namespace."""
    low, high = host.zeros
    kinds = sorted(set(zip(low.tolist(), high.tolist(), strict=True)))
    series = [np.where((low == i) & (high == j), host.coefficients.T, 0.0) for i, j in kinds]
    count = host.coefficients.shape[1]
    degree = np.arange(count, dtype=np.float64)
    exponents, factors = [], []
    for i, j in kinds:
        # y^k l^i u^j, and its slope k y^(k-1) l^i u^j + i y^k u^j - j y^k l^i with i, j of 0 or 1.
        ones = np.ones(count)
        of_y = [degree, np.maximum(degree - 1.0, 0.0), degree, degree]
        exponents.append([of_y, [i * ones, i * ones, 0.0 * ones, i * ones], [j * ones, j * ones, j * ones, 0.0 * ones]])
        factors.append([ones, degree, i * ones, -j * ones])
    edges = np.array([host.middle, host.middle - 0.5, -host.middle - 0.5])
    return _Program(
        xp.array(np.concatenate(series)),
        xp.array(scale.rate - host.fall),
        xp.array(-edges.reshape(3, 1, 1)),
        xp.array(np.reshape([1.0, 1.0, -1.0], (3, 1, 1))),
        xp.array(np.concatenate(exponents, -1)),
        xp.array(np.concatenate(factors, -1) * math.exp(scale.shift)),
        xp.array([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0]]),
        xp.array(np.reshape(_limits(scale), (2, 1, 1))) if scale.hidden else None,
    )


def _limits(scale: Scale) -> list[float]:
    """The values that the distances of an order from the ends of its interval must exceed."""
    if not scale.hidden:
        return [-math.inf, -math.inf]
    return [0.0, -float(np.finfo(np.float64).smallest_subnormal)] if scale.strict else [-1e-9, -1e-9]


def _constant(xp: Namespace, name: Hashable, make: Callable[[], np.ndarray[Any, Any]]) -> Any:
    return _kept_on_device(name, xp, lambda: xp.array(make()))


def _exponents(xp: Namespace, table: Table) -> Any:
    count = table.coefficients.shape[1]
    return _constant(xp, ("exponents", count), lambda: np.arange(count, dtype=np.float64))


def _block(xp: Namespace, block: int) -> Any:
    return _constant(xp, ("cardinals", block), lambda: cardinals(block))


def _runs(n: int, nodes: bool) -> list[tuple[int, int, int, int]]:
    """Start and end of the blocks of each length among the lags, start of their nodes, and the length."""
    runs, place = [], HEAD
    if nodes:
        for i, (first, block) in enumerate(BLOCKS):
            last = min(n, BLOCKS[i + 1][0]) if i + 1 < len(BLOCKS) else n
            if last > first:
                runs.append((first, last, place, block))
                place += NODES * -(-(last - first) // block)
    return runs


def composed_weights(value: Any, host: Table, key: Hashable, scale: Scale, xp: Namespace) -> tuple[Any, ...]:
    """The weights by operations that every PyTorch transform supports; ``key`` identifies the table."""
    table = _on_device(key, host, xp)
    value = _guarded(value, table, scale, xp)
    powers = (value - table.middle) ** _exponents(xp, table)
    factor, _ = _factors(value, table, xp)
    size = xp.exp((scale.rate - table.fall) * value + scale.shift)
    made = xp.matmul(table.coefficients, powers) * factor * size
    return tuple(_spread(made[at].reshape(shape), table, xp) for at, shape in _places(table))


def _guarded(value: Any, table: Table, scale: Scale, xp: Namespace) -> Any:
    """The order, nan if it is unknown and lies outside the interval."""
    if not scale.hidden:
        return value
    y = value - table.middle
    inside = (y > -0.5) & (y <= 0.5) if scale.strict else abs(y) <= 0.5 + 1e-9
    return xp.where(inside, value, math.nan)


def _places(table: Table) -> list[tuple[slice, tuple[int, ...]]]:
    """The range of each array among all weights, and its shape."""
    found, begin = [], 0
    for shape in table.shapes:
        end = begin + math.prod(shape)
        found.append((slice(begin, end), shape))
        begin = end
    return found


def _factors(value: Any, table: Table, xp: Namespace) -> tuple[Any, Any]:
    """The factors that were split off, and their slope."""
    low, high = table.zeros
    rise = xp.where(low, value - (table.middle - 0.5), 1.0)
    fall = xp.where(high, (table.middle + 0.5) - value, 1.0)
    return rise * fall, low * fall - high * rise


def _spread(array: Any, table: Table, xp: Namespace) -> Any:
    """An array at all lags, interpolated from the tabulated ones."""
    if not table.nodes:
        return array
    parts = [array[..., :HEAD]]
    for first, last, place, block in _runs(table.n, True):
        blocks = -(-(last - first) // block)
        at = array[..., place : place + NODES * blocks].reshape(*array.shape[:-1], blocks, NODES)
        parts.append(xp.matmul(at, _block(xp, block)).reshape(*array.shape[:-1], -1)[..., : last - first])
    return xp.concatenate(parts, -1)


def _slopes_composed(value: Any, table: Table, scale: Scale, xp: Namespace) -> tuple[Any, ...]:
    """The slopes by operations that can be differentiated again."""
    value = _guarded(value, table, scale, xp)
    exponents = _exponents(xp, table)
    y = value - table.middle
    factor, turn = _factors(value, table, xp)
    rise = scale.rate - table.fall
    weights = xp.matmul(table.coefficients, y**exponents)
    slopes = xp.matmul(table.coefficients, exponents * y ** (exponents - 1.0).clamp(min=0.0))
    slopes = slopes * factor + weights * turn
    made = (slopes + rise * weights * factor) * xp.exp(rise * value + scale.shift)
    return tuple(_spread(made[at].reshape(shape), table, xp) for at, shape in _places(table))


def _tabulated(value: Any, program: _Program, torch: Any) -> Any:
    """Weights at the tabulated lags, and the slopes minus ``rise`` times the weights; shape (2, lags)."""
    bases = torch.addcmul(program.offsets, program.signs, value)
    if program.limits is not None:
        bases = torch.where((bases[1:] > program.limits).all(), bases, math.nan)
    products = torch.prod(bases**program.exponents, 0)
    both = torch.mm(torch.mm(program.sums, products * program.factors), program.series)
    return both.mul_(torch.exp(program.rise * value))


def _spread_over(array: Any, table: Table, xp: Namespace) -> Any:
    """:func:`_spread` into one buffer, for tensors without gradient tracking."""
    if not table.nodes:
        return array
    torch = xp.module
    runs = _runs(table.n, True)
    first, last, _, block = runs[-1]
    rows = array.reshape(-1, array.shape[-1])
    made = array.new_empty((rows.shape[0], first + block * -(-(last - first) // block)))
    made[:, :HEAD] = rows[:, :HEAD]
    for i in range(rows.shape[0]):
        row, buffer = rows[i], made[i]
        for first_, last_, place, block_ in runs:
            blocks = -(-(last_ - first_) // block_)
            at = row[place : place + NODES * blocks].view(blocks, NODES)
            torch.mm(at, _block(xp, block_), out=buffer[first_ : first_ + blocks * block_].view(blocks, block_))
    return made[:, : table.n].reshape(*array.shape[:-1], table.n)


def _gather(change: Any, table: Table, xp: Namespace) -> Any:
    """The transpose of :func:`_spread`."""
    if not table.nodes:
        return change
    torch = xp.module
    parts = [change[..., :HEAD]]
    for first, last, _, block in _runs(table.n, True):
        whole = first + (last - first) // block * block
        factor = _block(xp, block)
        if whole > first:
            rows = change[..., first:whole].reshape(*change.shape[:-1], -1, block)
            parts.append(torch.matmul(rows, factor.mT).flatten(-2))
        if last > whole:
            parts.append(torch.matmul(change[..., whole:last], factor[:, : last - whole].mT))
    return torch.cat(parts, -1)


class _ByOperations:
    """Weights of a table by few PyTorch operations."""

    def __init__(self, table: Table, key: Hashable, scale: Scale, xp: Namespace) -> None:
        self.table, self.key, self.scale, self.xp = table, key, scale, xp
        self.program: _Program = _kept_on_device((key, scale), xp, lambda: _program(table, scale, xp))

    def weights(self, value: Any, dtype: Any) -> tuple[list[Any], Any]:
        """All arrays at an order, and the data for their slopes."""
        both = _tabulated(value, self.program, self.xp.module)
        places = _places(self.table)
        return [_spread_over(both[0][at].reshape(shape), self.table, self.xp).to(dtype) for at, shape in places], both

    def slope(self, value: Any, both: Any, changes: Sequence[Any]) -> Any:
        """The sum of all slopes times ``changes``, which is None for an array without dependents."""
        torch = self.xp.module
        whole = torch.addcmul(both[1], self.program.rise, both[0])
        parts = [
            torch.dot(_gather(change.to(torch.float64), self.table, self.xp).reshape(-1), whole[at])
            for change, (at, _) in zip(changes, _places(self.table), strict=True)
            if change is not None
        ]
        return sum(parts[1:], parts[0])


class _ByKernel:
    """Weights of a table by one GPU kernel, and the sum of their slopes by another."""

    def __init__(self, table: Table, key: Hashable, scale: Scale, xp: Namespace) -> None:
        self.table, self.key, self.scale, self.xp = table, key, scale, xp
        numbers = (scale.rate, scale.shift, table.middle, *_limits(scale))
        scaling = _kept_on_device(("numbers", numbers), xp, lambda: xp.array(list(numbers)))
        self.on_device = _kept_on_device((key, "kernel"), xp, lambda: _order_table(table, xp))._replace(scale=scaling)
        self.rows, last = [], 0
        for shape in table.shapes:
            first, last = last, last + math.prod(shape[:-1])
            self.rows.append((first, last))

    def weights(self, value: Any, dtype: Any) -> tuple[list[Any], Any]:
        """All arrays at an order."""
        made = _fused().table_weights(value, self.on_device, dtype)
        shapes = [(*shape[:-1], self.table.n) for shape in self.table.shapes]
        return [made[first:last].view(shape) for (first, last), shape in zip(self.rows, shapes, strict=True)], None

    def slope(self, value: Any, both: Any, changes: Sequence[Any]) -> Any:
        """As :meth:`_ByOperations.slope`."""
        given = [(first, change) for change, (first, _) in zip(changes, self.rows, strict=True) if change is not None]
        return _fused().table_slope(value, self.on_device, given)


def _fused() -> Any:
    return library_functions("torch", "fused")


def _order_table(table: Table, xp: Namespace) -> Any:
    """The table in the form that the kernel takes, without its scale."""
    lags = table.shapes[0][-1]
    low, high = table.zeros
    bases = np.concatenate([cardinals(block).ravel() for _, block in BLOCKS])
    (head, near), (second, far) = BLOCKS
    return _fused().OrderTable(
        scale=None,
        series=xp.array(np.ascontiguousarray(table.coefficients.T)),
        fall=xp.array(table.fall),
        zeros=xp.asarray(low.astype(np.int32) + 2 * high.astype(np.int32)),
        bases=xp.array(bases if table.nodes else bases[:1]),
        rows=table.fall.size // lags,
        lags=lags,
        points=table.n,
        blocks=(NODES if table.nodes else 0, 16, head, near, second, far),
    )


def recorded_weights(
    value: Any, table: Table, key: Hashable, scale: Scale, xp: Namespace, dtype: str
) -> tuple[Any, ...]:
    """The weights as one step of autograd; ``key`` identifies the table."""
    even = len({shape[-1] for shape in table.shapes}) == 1 and (table.nodes or table.shapes[0][-1] == table.n)
    kind = _ByKernel if value.is_cuda and even and _fused().is_available() else _ByOperations
    return tuple(_recorded(xp.module)(value, kind(table, key, scale, xp), getattr(xp.module, dtype)))


def interleaved_weights(parts: Any, evens: int, n: int) -> tuple[Any, Any]:
    """Rows of ``n`` weights of PyTorch's, the first one and the others, from those at even and at odd lags.

    ``parts`` has, for each pair of lags, the first ``evens`` rows at even lags, where the others are 0, and then all
    rows at odd lags.
    """
    found: tuple[Any, Any] = library_functions("torch", "interleave").interleaved(parts, evens, n)
    return found


@cache
def _recorded(torch: Any) -> Callable[..., tuple[Any, ...]]:
    class _TabulatedWeights(torch.autograd.Function):  # type: ignore[misc]
        """Weights from the order."""

        @staticmethod
        def forward(ctx: Any, value: Any, evaluation: _ByOperations | _ByKernel, dtype: Any) -> tuple[Any, ...]:
            ctx.save_for_backward(value)
            ctx.set_materialize_grads(False)
            ctx.evaluation = evaluation
            made, ctx.kept = evaluation.weights(value.detach(), dtype)
            return tuple(made)

        @staticmethod
        def backward(ctx: Any, *changes: Any) -> tuple[Any, ...]:
            (value,) = ctx.saved_tensors
            evaluation = ctx.evaluation
            given = [change for change in changes if change is not None]
            if not given:
                return None, None, None
            if torch.is_grad_enabled() or is_batched(given[0]):
                table = _on_device(evaluation.key, evaluation.table, evaluation.xp)
                slopes = _slopes_composed(value, table, evaluation.scale, evaluation.xp)
                parts = [
                    (change.to(torch.float64) * slope).sum()
                    for change, slope in zip(changes, slopes, strict=True)
                    if change is not None
                ]
                return sum(parts[1:], parts[0]), None, None
            return evaluation.slope(value, ctx.kept, changes), None, None

    found: Callable[..., tuple[Any, ...]] = _TabulatedWeights.apply
    return found
