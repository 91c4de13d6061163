r"""Weights of an order that learns, from a table: few operations, on the device of the order, slopes included.

Over an interval between whole orders each weight is :math:`(k+1)^{-\sigma\alpha}` times a polynomial in the order, to
rounding: the weights of every rule here are entire functions of it. The polynomials are found once, on the host, from
the weights of twenty plain orders (Chebyshev points). Then the weights of any order in the interval are one product of
a matrix with its powers, and so are their slopes. A factor is split off where a weight is 0 at an end of the interval,
as most are at whole orders, so that it keeps its digits there. Of a long sequence only the lags of :func:`few_lags` are
tabulated. Where twenty coefficients do not reach rounding there is no table, and the weights come from their formulas.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from hpfracc._xp import NUMPY, Namespace
from hpfracc.engine.execution.prepared import PreparedOperands
from hpfracc.operators.core.lags import BLOCKS, HEAD, NODES, Lags, cardinals, few_lags
from hpfracc.operators.core.order import Order

__all__ = ["WHOLE_TABLE", "kept_tables", "tabulated_weights"]

#: Coefficients of the polynomials: the last three are below rounding, or there is no table.
_COEFFICIENTS = 20
_ROUNDING = 4e-15
#: The longest sequence that is tabulated at every lag: a table for 16,384 points takes 2.6 MB.
WHOLE_TABLE = 16_384
#: The most weights of a table: 2 MB of them, 21 MB with their polynomials.
_MOST = 2**17
#: Tables in bytes at most.
_CAPACITY = 256 * 2**20
kept_tables = PreparedOperands(_CAPACITY)

Maker = Callable[[Namespace, Any, Any], tuple[Any, ...]]


class _Table(NamedTuple):
    """The polynomials of all weights of a rule, one below the other.

    ``fall`` is ``sigma log(k + 1)``; ``zeros`` say which weights are 0 at the lower and at the upper end; ``shapes``
    are those of the arrays, the last axis in tabulated lags; ``nodes`` says whether those are :func:`few_lags`.
    """

    coefficients: Any
    fall: Any
    zeros: tuple[Any, Any]
    shapes: tuple[tuple[int, ...], ...]
    middle: float
    n: int
    nodes: bool


class _Scale(NamedTuple):
    """What all weights are multiplied by, ``exp(rate alpha + shift)``, and which orders are answered by nan.

    ``strict`` leaves out the whole order below; ``hidden`` says whether the order's value is not known.
    """

    rate: float
    shift: float
    strict: bool
    hidden: bool


class _Program(NamedTuple):
    """A table on a device, for few operations: weights are ``powers @ series * exp(rise alpha)``.

    ``series`` (places, lags) has the polynomials, those with a factor of their own for zeros in other rows. The powers
    are products of ``y``, ``alpha - lower`` and ``upper - alpha`` (``offsets + signs alpha``) to the ``exponents``,
    times ``factors``, added up by ``sums``: in the first row those of weights, in the second those of slopes.
    ``limits`` are what the two distances have to exceed, where the order is not known.
    """

    series: Any
    rise: Any
    offsets: Any
    signs: Any
    exponents: Any
    factors: Any
    sums: Any
    limits: Any


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
    """``make(xp, alpha, n)`` times ``exp(rate alpha + shift)`` for an order of PyTorch's, from a table.

    None where there is no table.

    Parameters
    ----------
    scheme : hashable
        Names what ``make`` makes.
    make : callable
        Gives a tuple of arrays whose last axis is the lag; with ``few`` it takes :class:`Lags` too, and then every
        array has as many lags.
    order : Order
        Read from a tensor; its value may be hidden where its interval is known.
    n : int
        Lags.
    strict : bool
        A hidden order at the lower end of its interval gives nan, as one outside.
    dtype : str
        Of the result; the weights are made in float64.
    """
    xp = order.xp
    if xp.library != "torch" or not n > 0 or (n > WHOLE_TABLE and not few):
        return None
    if order.known is None and is_wrapped(order.value):
        # Mapped orders may lie anywhere.
        return None
    if order.known == order.ceiling <= 0:
        # The interval below is none of an integral.
        return None
    key = (scheme, order.ceiling, n)
    host = kept_tables.get(key, lambda: _tabulate(make, order.ceiling, n, few) or False)
    if not host:
        return None
    scale = _Scale(rate, shift, strict, order.known is None)
    value = order.value
    if _is_recorded(value):
        program = _kept_on_device((key, scale), xp, lambda: _program(host, scale, xp))
        return tuple(_recorded(xp)(value, program, host, key, scale, xp, getattr(xp.module, dtype)))
    composed = _composed(value, _on_device(key, host, xp), scale, xp)
    return tuple(xp.astype(array, dtype) for array in composed)


def is_wrapped(tensor: Any) -> bool:
    """Whether a transform of ``torch.func`` is at work on a tensor."""
    return bool(sys.modules["torch"]._C._functorch.is_functorch_wrapped_tensor(tensor))


def _is_recorded(value: Any) -> bool:
    """Whether autograd's recording is all that happens to an order."""
    torch = sys.modules["torch"]
    return not (
        torch.compiler.is_compiling()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
    )


def _tabulate(make: Maker, ceiling: int, n: int, few: bool) -> _Table | None:
    """The table of NumPy arrays."""
    nodes = few and n > HEAD
    lags: int | Lags = few_lags(n) if nodes else n
    angle = np.pi * (np.arange(_COEFFICIENTS) + 0.5) / _COEFFICIENTS
    orders = ceiling - 0.5 + 0.5 * np.cos(angle)
    with np.errstate(all="ignore"):
        made = [make(NUMPY, float(orders[0]), lags)]
        if any(np.iscomplexobj(array) for array in made[0]) or sum(array.size for array in made[0]) > _MOST:
            return None
        made += [make(NUMPY, float(alpha), lags) for alpha in orders[1:]]
    shapes = tuple(tuple(array.shape) for array in made[0])
    values = np.stack([np.concatenate([np.ravel(array) for array in arrays]) for arrays in made], axis=1)
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
    return _Table(series @ _monomials(), fall, (zeros[0], zeros[1]), shapes, ceiling - 0.5, n, nodes)


def _vanishing(make: Maker, end: float, lags: int | Lags, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Whether a weight is 0 at an end of the interval, and not within."""
    with np.errstate(all="ignore"):
        made = np.concatenate([np.ravel(array) for array in make(NUMPY, np.float64(end), lags)])
    found: np.ndarray[Any, Any] = (made == 0.0) & (values != 0.0).all(axis=1)
    return found


def _falls(high: tuple[Any, ...], low: tuple[Any, ...], apart: float, lags: int | Lags) -> list[np.ndarray[Any, Any]]:
    """``sigma log(k + 1)`` for each array: sigma is how fast its last weight falls with the order, -1, 0 or 1."""
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
def _monomials() -> np.ndarray[Any, Any]:
    """Row j: the coefficients of ``T_j(2 y)`` in powers of y, all of them whole numbers."""
    rows = np.zeros((_COEFFICIENTS, _COEFFICIENTS))
    rows[0, 0], rows[1, 1] = 1.0, 2.0
    for j in range(2, _COEFFICIENTS):
        rows[j, 1:] = 4.0 * rows[j - 1, :-1]
        rows[j] -= rows[j - 2]
    return rows


def _kept_on_device(name: Hashable, xp: Namespace, make: Callable[[], Any]) -> Any:
    """What ``make`` gives, kept for the device of the namespace outside of transforms."""

    def made() -> Any:
        with xp.module.inference_mode(False):
            return make()

    if xp.module._C._functorch.maybe_current_level() is not None:
        return made()
    return kept_tables.get((name, "torch", str(xp.device)), made)


def _on_device(key: Hashable, host: _Table, xp: Namespace) -> _Table:
    """The table on the device of the namespace."""

    def make() -> _Table:
        return host._replace(
            coefficients=xp.array(host.coefficients),
            fall=xp.array(host.fall),
            zeros=(xp.asarray(host.zeros[0]), xp.asarray(host.zeros[1])),
        )

    found: _Table = _kept_on_device(key, xp, make)
    return found


def _program(host: _Table, scale: _Scale, xp: Namespace) -> _Program:
    """The table of a few operations, on the device of the namespace."""
    low, high = host.zeros
    kinds = sorted(set(zip(low.tolist(), high.tolist(), strict=True)))
    series = [np.where((low == i) & (high == j), host.coefficients.T, 0.0) for i, j in kinds]
    degree = np.arange(_COEFFICIENTS, dtype=np.float64)
    exponents, factors = [], []
    for i, j in kinds:
        # y^k l^i u^j, and its slope k y^(k-1) l^i u^j + i y^k u^j - j y^k l^i with i, j of 0 or 1.
        ones = np.ones(_COEFFICIENTS)
        of_y = [degree, np.maximum(degree - 1.0, 0.0), degree, degree]
        exponents.append([of_y, [i * ones, i * ones, 0.0 * ones, i * ones], [j * ones, j * ones, j * ones, 0.0 * ones]])
        factors.append([ones, degree, i * ones, -j * ones])
    edges = np.array([host.middle, host.middle - 0.5, -host.middle - 0.5])
    limits = [0.0, -np.finfo(np.float64).smallest_subnormal] if scale.strict else [-1e-9, -1e-9]
    return _Program(
        xp.array(np.concatenate(series)),
        xp.array(scale.rate - host.fall),
        xp.array(-edges.reshape(3, 1, 1)),
        xp.array(np.reshape([1.0, 1.0, -1.0], (3, 1, 1))),
        xp.array(np.concatenate(exponents, -1)),
        xp.array(np.concatenate(factors, -1) * math.exp(scale.shift)),
        xp.array([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0]]),
        xp.array(np.reshape(limits, (2, 1, 1))) if scale.hidden else None,
    )


def _constant(xp: Namespace, name: Hashable, make: Callable[[], np.ndarray[Any, Any]]) -> Any:
    return _kept_on_device(name, xp, lambda: xp.array(make()))


def _exponents(xp: Namespace) -> Any:
    return _constant(xp, "exponents", lambda: np.arange(_COEFFICIENTS, dtype=np.float64))


def _block(xp: Namespace, block: int) -> Any:
    return _constant(xp, ("cardinals", block), lambda: cardinals(block))


def _runs(n: int, nodes: bool) -> list[tuple[int, int, int, int]]:
    """Where blocks of each length begin and end among the lags, where their nodes begin, and their length."""
    runs, place = [], HEAD
    if nodes:
        for i, (first, block) in enumerate(BLOCKS):
            last = min(n, BLOCKS[i + 1][0]) if i + 1 < len(BLOCKS) else n
            if last > first:
                runs.append((first, last, place, block))
                place += NODES * -(-(last - first) // block)
    return runs


def _composed(value: Any, table: _Table, scale: _Scale, xp: Namespace) -> tuple[Any, ...]:
    """The weights as operations that every transform of PyTorch's goes through."""
    value = _guarded(value, table, scale, xp)
    powers = (value - table.middle) ** _exponents(xp)
    factor, _ = _factors(value, table, xp)
    size = xp.exp((scale.rate - table.fall) * value + scale.shift)
    made = xp.matmul(table.coefficients, powers) * factor * size
    return tuple(_spread(made[at].reshape(shape), table, xp) for at, shape in _places(table))


def _guarded(value: Any, table: _Table, scale: _Scale, xp: Namespace) -> Any:
    """The order, nan where it is hidden and lies outside the interval."""
    if not scale.hidden:
        return value
    y = value - table.middle
    inside = (y > -0.5) & (y <= 0.5) if scale.strict else abs(y) <= 0.5 + 1e-9
    return xp.where(inside, value, math.nan)


def _places(table: _Table) -> list[tuple[slice, tuple[int, ...]]]:
    """Where each array lies among all weights, and its shape."""
    found, begin = [], 0
    for shape in table.shapes:
        end = begin + math.prod(shape)
        found.append((slice(begin, end), shape))
        begin = end
    return found


def _factors(value: Any, table: _Table, xp: Namespace) -> tuple[Any, Any]:
    """What was split off, and its slope."""
    low, high = table.zeros
    rise = xp.where(low, value - (table.middle - 0.5), 1.0)
    fall = xp.where(high, (table.middle + 0.5) - value, 1.0)
    return rise * fall, low * fall - high * rise


def _spread(array: Any, table: _Table, xp: Namespace) -> Any:
    """An array at all lags, from the tabulated ones."""
    if not table.nodes:
        return array
    parts = [array[..., :HEAD]]
    for first, last, place, block in _runs(table.n, True):
        blocks = -(-(last - first) // block)
        at = array[..., place : place + NODES * blocks].reshape(*array.shape[:-1], blocks, NODES)
        parts.append(xp.matmul(at, _block(xp, block)).reshape(*array.shape[:-1], -1)[..., : last - first])
    return xp.concatenate(parts, -1)


def _tabulated(value: Any, program: _Program, torch: Any) -> Any:
    """Weights at the tabulated lags, and what slopes are more than the ``rise`` times them; shape (2, lags)."""
    bases = torch.addcmul(program.offsets, program.signs, value)
    if program.limits is not None:
        bases = torch.where((bases[1:] > program.limits).all(), bases, math.nan)
    products = torch.prod(bases**program.exponents, 0)
    both = torch.mm(torch.mm(program.sums, products * program.factors), program.series)
    return both.mul_(torch.exp(program.rise * value))


@cache
def _recorded(xp: Namespace) -> Callable[..., tuple[Any, ...]]:
    """The same as a step of autograd: no more is kept than slopes at the tabulated lags."""
    torch = xp.module

    class _TabulatedWeights(torch.autograd.Function):  # type: ignore[misc, name-defined]
        """Weights from the order."""

        @staticmethod
        def forward(
            ctx: Any,
            value: Any,
            program: _Program,
            table: _Table,
            key: Hashable,
            scale: _Scale,
            xp: Namespace,
            dtype: Any,
        ) -> tuple[Any, ...]:
            both = _tabulated(value.detach(), program, torch)
            ctx.save_for_backward(value)
            ctx.set_materialize_grads(False)
            ctx.both, ctx.program, ctx.table = both, program, table
            ctx.scale, ctx.key, ctx.xp = scale, key, xp
            weights = both[0]
            return tuple(_spread_over(weights[at].reshape(shape), table, xp).to(dtype) for at, shape in _places(table))

        @staticmethod
        def backward(ctx: Any, *changes: Any) -> tuple[Any, ...]:
            (value,) = ctx.saved_tensors
            table, xp = ctx.table, ctx.xp
            given = [
                (change.to(torch.float64), at, number)
                for number, (change, (at, _)) in enumerate(zip(changes, _places(table), strict=True))
                if change is not None
            ]
            nothing = (None,) * 6
            if not given:
                return None, *nothing
            if torch.is_grad_enabled() or torch._C._functorch.is_legacy_batchedtensor(given[0][0]):
                slopes = _slopes_composed(value, _on_device(ctx.key, table, xp), ctx.scale, xp)
                parts = [(change * slopes[number]).sum() for change, _, number in given]
            else:
                whole = torch.addcmul(ctx.both[1], ctx.program.rise, ctx.both[0])
                parts = [torch.dot(_gather(change, table, xp).reshape(-1), whole[at]) for change, at, _ in given]
            return sum(parts[1:], parts[0]), *nothing

    found: Callable[..., tuple[Any, ...]] = _TabulatedWeights.apply
    return found


def _slopes_composed(value: Any, table: _Table, scale: _Scale, xp: Namespace) -> tuple[Any, ...]:
    """The slopes as operations that can be differentiated again."""
    value = _guarded(value, table, scale, xp)
    exponents = _exponents(xp)
    y = value - table.middle
    factor, turn = _factors(value, table, xp)
    rise = scale.rate - table.fall
    weights = xp.matmul(table.coefficients, y**exponents)
    slopes = xp.matmul(table.coefficients, exponents * y ** (exponents - 1.0).clamp(min=0.0))
    slopes = slopes * factor + weights * turn
    made = (slopes + rise * weights * factor) * xp.exp(rise * value + scale.shift)
    return tuple(_spread(made[at].reshape(shape), table, xp) for at, shape in _places(table))


def _spread_over(array: Any, table: _Table, xp: Namespace) -> Any:
    """:func:`_spread` into one buffer, for tensors that nothing tracks."""
    if not table.nodes:
        return array
    torch = xp.module
    runs = _runs(table.n, True)
    first, last, _, block = runs[-1]
    rows = []
    for row in array.reshape(-1, array.shape[-1]):
        buffer = row.new_empty(first + block * -(-(last - first) // block))
        buffer[:HEAD] = row[:HEAD]
        for first_, last_, place, block_ in runs:
            blocks = -(-(last_ - first_) // block_)
            at = row[place : place + NODES * blocks].view(blocks, NODES)
            torch.mm(at, _block(xp, block_), out=buffer[first_ : first_ + blocks * block_].view(blocks, block_))
        rows.append(buffer[: table.n])
    return (rows[0] if len(rows) == 1 else torch.stack(rows)).reshape(*array.shape[:-1], table.n)


def _gather(change: Any, table: _Table, xp: Namespace) -> Any:
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
