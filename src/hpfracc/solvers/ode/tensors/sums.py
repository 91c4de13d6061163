r"""Sums over the past, :math:`\sum_v \sum_{j<n} w_{sv}[n-j] f_v[j]`: of the steps of a block, and of whole segments.

Forward in time one value has several sums (S kinds); in the transposed steps several values have one sum (V kinds).
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

import numpy as np

from hpfracc._xp import Namespace, convert_like, namespace_of

#: ``weights[s][v]`` of shape (N + 1, ...), followed by the shape of the order.
HistoryWeights = tuple[tuple[Any, ...], ...]

#: Segments longer than this are transformed; up to it a product takes less time on a GPU.
LONGEST_PRODUCT = 2048
#: The same for tensors on a core, where the matrix leaves the cache: with few columns and with many. Milliseconds of a
#: product and of transforms, one thread: 0.6 and 0.6 for 256 values of 1 column, 27 and 2.7 for 2,048; 6.5 and 17 for
#: 512 values of 512 columns, 30 and 31 for 1,024, 166 and 64 for 2,048.
_LONGEST_ON_HOST, _MANY_COLUMNS = (256, 512), 256
#: Bytes that the transforms of a group of columns may take: as many as the values, within these limits.
WORKSPACE, _MIN_WORKSPACE = 1 << 28, 1 << 24


def _workspace(values: Any) -> int:
    return min(WORKSPACE, max(_MIN_WORKSPACE, 8 * int(math.prod(values.shape))))


def turned(xp: Namespace, x: Any) -> Any:
    """Backwards along the first axis."""
    return xp.module.flip(x, (0,))


def _stacked(xp: Namespace, weights: HistoryWeights, stop: int, dtype: Any) -> Any:
    """The weights of distances 1 to ``stop``, zeros beyond the last, of shape (stop, S, V, ...)."""
    whole = xp.stack([xp.stack([each[1 : stop + 1] for each in row], 1) for row in weights], 1)
    missing = stop - whole.shape[0]
    if missing > 0:
        whole = xp.concatenate([whole, xp.zeros((missing, *whole.shape[1:]), whole.dtype, like=whole)])
    return xp.astype(whole, dtype)


def _aligned(weights: Any, axes: int, ndim: int) -> Any:
    """Weights with ``axes`` axes before those of the order, for states with ``ndim`` axes."""
    return weights.reshape(*weights.shape[:axes], *(1,) * (ndim + axes - weights.ndim), *weights.shape[axes:])


class Sums(NamedTuple):
    """The weights of a rule's history sums, as flat data that can be passed to a program.

    Attributes
    ----------
    sequences : tuple of arrays
        Each ``w[0 .. N]`` of shape (N + 1, ...): ``sum_j w[n - j] f_j`` is known before step n.
    first : array or None
        Additional weight of the value at t0 in the last sum, shape (N + 1, ...).
    newest : array or None
        Weight of the value at step n in the last sum.
    """

    sequences: tuple[Any, ...]
    first: Any
    newest: Any


def make_sums(rule: Any, alpha: Any, steps: int, step: float, like: Any) -> Sums:
    """The weights in float64 of the order's own library, then in the library, dtype and device of ``like``."""
    xp = namespace_of(alpha)
    with xp.scope():
        order = xp.array(alpha)
        sequences, first = rule.weights(xp, order, steps + 1)
        scale = xp.exp(order * math.log(step))
        made = tuple(convert_like(each * scale, like) for each in sequences)
        explicit = not rule.implicit and not rule.corrections
        return Sums(
            made, None if first is None else convert_like(first * scale, like), None if explicit else made[-1][0]
        )


class Window:
    """Sums over the previous steps of a block of at most ``length``."""

    def __init__(self, xp: Namespace, weights: HistoryWeights, length: int, dtype: Any) -> None:
        rows = xp.contiguous(xp.moveaxis(turned(xp, _stacked(xp, weights, length, dtype)), 0, 1))
        if xp.library == "jax":  # a slice beyond the window has zeros
            rows = xp.concatenate([rows, xp.zeros(rows.shape, rows.dtype)], 1)
        self.xp, self.rows, self.length = xp, rows, length

    def add(self, known: Any, index: Any, values: Any) -> Any:
        """``known`` (S, ...) and the sums over the values before ``index``, (index, V, ...) or zeros from there on."""
        xp, begin = self.xp, self.length - index
        if xp.library == "jax":
            row = sys.modules["jax"].lax.dynamic_slice_in_dim(self.rows, begin, self.length, 1)
        else:
            row = self.rows[:, begin : self.length]
        if row.ndim > 3:
            return known + (_aligned(row, 3, known.ndim - 1) * values).sum((1, 2))
        kinds, columns = known.shape[0], math.prod(known.shape[1:])
        base, row = known.reshape(kinds, columns), row.reshape(kinds, row.shape[1] * row.shape[2])
        flat = values.reshape(row.shape[1], columns)
        found = xp.module.addmm(base, row, flat) if xp.library == "torch" else base + xp.matmul(row, flat)
        return found.reshape(known.shape)


def segment_matrix(xp: Namespace, weights: HistoryWeights, reach: int, values: Any) -> Any:
    """The matrix of :func:`segment_sums`, (reach S, L V); None where transforms take its place."""
    length, longest, one = values.shape[0], LONGEST_PRODUCT, weights[0][0].ndim == 1
    if xp.library == "torch" and values.device.type == "cpu":
        longest = min(longest, _LONGEST_ON_HOST[math.prod(values.shape[2:]) >= _MANY_COLUMNS])
    if not one or min(length, reach) > longest or length * reach > longest**2:
        return None
    matrix = _toeplitz(xp, _stacked(xp, weights, length + reach - 1, values.dtype), length, reach)
    return matrix.reshape(reach * len(weights), length * values.shape[1])


def segment_sums(xp: Namespace, weights: HistoryWeights, reach: int, values: Any, matrix: Any = None) -> Any:
    """The next ``reach`` sums over a segment of values (L, V, ...), of shape (reach, S, ...).

    ``matrix`` is that of as many sums or more, if it is known.
    """
    length, kinds, shape = values.shape[0], len(weights), values.shape[2:]
    stop, columns = length + reach - 1, math.prod(shape)
    matrix = segment_matrix(xp, weights, reach, values) if matrix is None else matrix[: reach * kinds]
    if matrix is not None:
        return xp.matmul(matrix, values.reshape(matrix.shape[1], columns)).reshape(reach, kinds, *shape)
    size = 1 << (length + reach - 2).bit_length()  # wrap-around affects only sums that are not needed
    width = members = max(shape[0], 1)
    if xp.library == "torch" and not xp.module.is_grad_enabled():
        width = max(1, _workspace(values) // (16 * size * (kinds + values.shape[1]) * max(columns // members, 1)))
    whole: Any = None
    for begin in range(0, members, width):
        part = slice(begin, begin + width)
        own = tuple(tuple(_columns(each, part, len(shape)) for each in row) for row in weights)
        kernel = _aligned(_stacked(xp, own, stop, values.dtype), 3, len(shape))
        found = _by_transforms(xp, kernel, values[:, :, part], size)[length - 1 : stop]
        if width >= members:
            return found
        whole = xp.zeros((reach, kinds, *shape), found.dtype, like=found) if whole is None else whole
        whole[:, :, part] = found
    return whole


def _columns(weights: Any, part: slice, ndim: int) -> Any:
    """The weights of a part of the first axis of states with ``ndim`` axes."""
    return weights[:, part] if weights.ndim == ndim + 1 and weights.shape[1] > 1 else weights


def _by_transforms(xp: Namespace, kernel: Any, values: Any, size: int) -> Any:
    wide = xp.is_complex(values)
    forward, back = (xp.fftn, xp.ifftn) if wide else (xp.rfftn, xp.irfftn)
    spectrum = forward(kernel, (0,), (size,)) * forward(values, (0,), (size,))[:, None]
    return back(spectrum.sum(2), (size,), (0,))


def _toeplitz(xp: Namespace, kernel: Any, length: int, reach: int) -> Any:
    """``w[L + i - j]`` for reach sums i and L values j, of shape (reach, S, L, V)."""
    if xp.library == "torch":
        return xp.moveaxis(kernel.flip(0).unfold(0, length, 1).flip(0), -1, 2)
    # By the library's own arange: XLA would compute the whole matrix of constant places and weights as it compiles.
    place = length - 1 + xp.module.arange(reach)[:, None] - xp.module.arange(length)[None, :]
    return xp.moveaxis(kernel[place], 1, 2)


def weighted(xp: Namespace, row: Any, values: Any) -> Any:
    """``sum_n row[n] values[n]``, where a row may also have the shape of the orders."""
    if row.ndim == 1:
        flat = values.reshape(values.shape[0], math.prod(values.shape[1:]))
        return xp.matmul(xp.astype(row, values.dtype)[None], flat).reshape(values.shape[1:])
    return (_aligned(row, 1, values.ndim - 1) * values).sum(0)


def sum_to(product: Any, shape: tuple[int, ...], kept: int = 0) -> Any:
    """The sum over the axes of a product that the order does not have, except for its first ``kept`` axes."""
    lacking = tuple(range(kept, product.ndim - len(shape)))
    product = product.sum(lacking) if lacking else product
    ones = tuple(kept + k for k, size in enumerate(shape) if size == 1 and product.shape[kept + k] != 1)
    return product.sum(ones, keepdims=True) if ones else product


def correlations(xp: Namespace, turned_bar: Any, values: Any, shape: tuple[int, ...]) -> Any:
    """Gradients of the weights: ``out[k, l] = sum_n bar[n, k] f[n - l]``, summed over the columns that share an order.

    Parameters
    ----------
    turned_bar : array, shape (N, K, ...)
        Gradients of the sums of each kind, those of step N first.
    values : array, shape (N, ...)
        The values f of steps 0 to N - 1.
    shape : tuple
        That of the order.

    Returns
    -------
    array, shape (K, N + 1, ...)
        Zero at l = 0: the newest value has a separate weight.
    """
    count, kinds = turned_bar.shape[:2]
    size, columns, orders = 1 << (2 * count - 2).bit_length(), math.prod(values.shape[1:]), math.prod(shape)
    bar, f = turned_bar.reshape(count, kinds, columns), values.reshape(count, columns)
    places = np.broadcast_to(np.arange(orders).reshape(shape), values.shape[1:]).reshape(columns)
    width = max(1, _workspace(values) // (16 * (1 + kinds) * size))
    total: Any = None
    for begin in range(0, columns, width):
        part = slice(begin, begin + width)
        spectrum = xp.rfftn(bar[..., part], (0,), (size,)) * xp.rfftn(f[:, None, part], (0,), (size,))
        if orders == 1:
            spectrum = spectrum.sum(-1)[..., None]
        else:
            nothing = 0.0 * spectrum[..., :1] + xp.zeros((*spectrum.shape[:2], orders), spectrum.dtype, like=spectrum)
            index = xp.asarray(places[part].copy(), like=f)
            torch = xp.library == "torch"
            spectrum = nothing.index_add(2, index, spectrum) if torch else nothing.at[..., index].add(spectrum)
        total = spectrum if total is None else total + spectrum
    # A convolution in reversed time: the sum over r of bar[N - r] f[N - r - l] has index N - l.
    found = turned(xp, xp.irfftn(total, (size,), (0,))[:count])
    found = xp.concatenate([0.0 * found[:1], found])
    return xp.astype(xp.moveaxis(found, 1, 0).reshape(kinds, count + 1, *shape), values.dtype)
