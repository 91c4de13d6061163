"""The passes around the transforms of a causal sum, and kernels of a GPU written in Triton.

The transform needs a zero-padded copy of the signal anyway: the kernel that creates it also computes differences, sets
non-finite samples to 0 and records the first one of each block. The result must be truncated anyway: the kernel that
does so adds the starting weights, and writes nan from the first non-finite sample on. Both can process a row from its
end, which gives the derivative: that of a causal sum is the same sum in reverse. Triton is part of PyTorch's CUDA
builds; without it, and on the host, PyTorch operations do the same in more passes.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from hpfracc._xp import namespace
from hpfracc.engine.backends.generic.causal_convolution import differences as differences_of

#: Number of records that are read together.
_CHUNK = 1024
#: Weights of a table per program, and the factor for long blocks. Their product divides the longer blocks.
_TABLE_CHUNK, _TABLE_CHUNKS = 256, 8


@functools.cache
def is_available() -> bool:
    """Whether Triton is installed. Does not import it."""
    return importlib.util.find_spec("triton") is not None


@functools.cache
def _kernels() -> Any:
    """Their module, which imports Triton."""
    from hpfracc.engine.backends.torch import fused_kernels

    return fused_kernels


def _launch(kernel: Any, grid: tuple[int, int, int], tensors: Sequence[Tensor], *numbers: Any) -> None:
    """Launch a kernel on the device of its tensors; ``numbers`` are its other arguments, constants last."""
    with torch.cuda.device(tensors[0].get_device()):
        kernel[grid](*tensors, *numbers)


def _block(points: int) -> int:
    """Points per program: more for long rows, whose programs read the records of all earlier ones."""
    return 1024 if points <= 2**18 else 4096


def pad_and_clean(
    signal: Tensor,
    size: int,
    *,
    limit: Tensor | None = None,
    backwards: bool = False,
    differences: bool = False,
    starts: Tensor | None = None,
    first: int = 0,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Contiguous real rows with 0 for non-finite samples, records of these, and sums with starting weights.

    On a GPU rows are padded up to ``size``, and the records have the first such sample of each block; elsewhere they
    are None, or a mask of the points from the first one on. ``limit``, the records of another call, sets samples from
    the first non-finite one there on to 0; ``backwards`` reverses each row after that; ``differences`` takes
    differences of neighbours. The sums are those with ``starts[j]`` from point ``first + j`` on, on a GPU block by
    block.
    """
    if not (signal.is_cuda and is_available()):
        return _pad_in_passes(signal, limit, backwards, differences, starts, first)
    points = signal.shape[-1]
    rows, block = signal.numel() // points, _block(points)
    blocks = -(-points // block)
    count = 0 if starts is None else starts.shape[0]
    padded = signal.new_empty((*signal.shape[:-1], size))
    bad = signal.new_empty((rows, blocks), dtype=torch.int64)
    sums = padded if starts is None else signal.new_empty((rows, blocks, count))
    _launch(
        _kernels().pad,
        (-(-size // block), rows, 1),
        (signal, padded, bad, bad if limit is None else limit, signal if starts is None else starts, sums),
        *(points, size, blocks, first),
        *(limit is not None, backwards, differences, count, block, _CHUNK),
    )
    return padded, bad, sums


def _pad_in_passes(
    signal: Tensor, limit: Tensor | None, backwards: bool, differences: bool, starts: Tensor | None, first: int
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    rows = differences_of(namespace("torch"), signal) if differences else signal
    rows = rows if limit is None else rows.masked_fill(limit, 0.0)
    bad = None
    # Their sum says at once whether all are finite; to read it elsewhere than on the host would wait for the device.
    if not (signal.is_cpu and math.isfinite(float(rows.sum()))):
        bad = ~torch.isfinite(rows)
        rows = rows.masked_fill(bad, 0.0)
    sums = None
    if starts is not None:
        sums = torch.stack([(rows[..., j:] * row[j:]).sum(-1) for j, row in enumerate(starts, first)], -1)
    if backwards:
        rows, bad = rows.flip(-1), None if bad is None else bad.flip(-1)
    return rows, None if bad is None else torch.cumsum(bad, -1) > 0, sums


def cut_and_taint(
    product: Tensor,
    bad: Tensor | None,
    points: int,
    *,
    backwards: bool = False,
    differences: bool = False,
    signal: Tensor | None = None,
    starts: Tensor | None = None,
    first: int = 0,
    sums: Tensor | None = None,
) -> Tensor:
    """The first ``points`` of each row of ``product``, nan from the first non-finite sample of the row on.

    With ``starts`` (contiguous) ``starts[j] * signal[..., first + j]`` is added from that point on, or the differences
    there (the first sample has none). ``backwards`` reverses each row, takes with ``differences`` the differences from
    the next value, and adds ``sums`` (of :func:`pad_and_clean`) at the points of the starting weights.
    """
    count = 0 if starts is None else starts.shape[0]
    if not (product.is_cuda and is_available()):
        if backwards:
            result = _cut_backwards(product[..., :points], differences, count, first, sums)
            bad = None if bad is None else bad.flip(-1)
        else:
            result = product[..., :points].clone()
            for j in range(count):
                assert signal is not None and starts is not None
                place = first + j
                sample = signal[..., place : place + 1]
                if differences and place:
                    sample = sample - signal[..., place - 1 : place]
                result[..., place:].addcmul_(sample, starts[j, place:])
        return result if bad is None else result.masked_fill_(bad, torch.nan)
    assert bad is not None
    size, block = product.shape[-1], _block(points)
    result = product.new_empty((*product.shape[:-1], points))
    # Operands that are not read are replaced by any tensor.
    others = (product if one is None else one for one in (signal, starts, sums))
    _launch(
        _kernels().cut,
        (-(-points // block), product.numel() // size, 1),
        (product, result, bad, *others),
        *(points, size, bad.shape[-1], first),
        *(backwards, differences, count, block, _CHUNK),
    )
    return result


def _cut_backwards(product: Tensor, differences: bool, count: int, first: int, sums: Tensor | None) -> Tensor:
    result = product.flip(-1)
    for j in range(count):
        assert sums is not None
        if first + j or not differences:
            result[..., first + j] += sums[..., j]
    if differences:
        # The transpose of differences, whose first is 0.
        padded = functional.pad(result[..., 1:], (1, 1))
        result = padded[..., :-1] - padded[..., 1:]
        if sums is not None and not first:
            result[..., 0] += sums[..., 0]
    return result


def affected(bad: Tensor, shape: Sequence[int]) -> Tensor:
    """The points from the first non-finite sample of each row on, from records of rows of that shape."""
    if bad.dtype == torch.bool:
        return bad
    return torch.arange(shape[-1], device=bad.device) >= bad.amin(-1).reshape(*shape[:-1], 1)


def fill_random(paths: Tensor, key: Tensor, kind: str, result: Tensor) -> None:
    """Random numbers of each path into the rows of ``result``; ``key`` has two 64-bit words and the stream.

    All are contiguous, on one GPU, and the integers have 64 bits.
    """
    rows, n = result.shape
    block = 256 if n >= 1024 else 32
    bits = 52 if result.dtype == torch.float64 else 23
    grid = (rows, -(-n // (4 * block)))
    with torch.cuda.device(result.device):
        _kernels().fill[grid](paths, key, result, n, NORMAL=kind == "normal", BITS=bits, BLOCK=block)


def scaled_normals(paths: Tensor, key: Tensor, weights: Tensor) -> Tensor:
    """Normal numbers of each path times ``weights``, in single precision throughout; shape ``(paths, weights)``.

    As :func:`fill_random`, to 3e-7 of each number. All are on one GPU; there are fewer than 2^31 numbers.
    """
    rows, n = paths.numel(), weights.numel()
    per_row = -(-n // 4)
    block = 256
    result = torch.empty((rows, n), dtype=torch.float32, device=weights.device)
    grid = (-(-rows * per_row // block),)
    with torch.cuda.device(weights.device):
        _kernels().fill_scaled[grid](paths, key, weights, result, rows, n, per_row, BLOCK=block)
    return result


def sums_into(steps: Tensor, n: int, result: Tensor) -> None:
    """Sums from 0 on of the first ``n`` values of each row of ``steps`` into ``result``, both contiguous on a GPU."""
    block = max(16, 1 << (n - 1).bit_length())
    warps = 4 if block <= 2048 else 8
    with torch.cuda.device(result.device):
        _kernels().sum_rows[(steps.shape[0],)](steps, result, n, steps.shape[-1], BLOCK=block, num_warps=warps)


class OrderTable(NamedTuple):
    """A table of weights on a GPU: ``rows`` rows of ``lags`` polynomials in the order, for ``points`` weights each.

    ``scale`` has the rate, the shift, the middle of the interval of orders and two limits: orders are nan whose
    distance from the lower or the upper end is not above them. ``series`` has shape (coefficients, rows * lags), and
    ``zeros`` says where the weights are 0: 1 at the lower end, 2 at the upper one. ``bases`` are the polynomials
    through the nodes of both kinds of blocks, one behind the other; ``blocks`` their layout: the nodes, 0 if there are
    none, and the next power of 2; the start and length of the blocks, twice.
    """

    scale: Tensor
    series: Tensor
    fall: Tensor
    zeros: Tensor
    bases: Tensor
    rows: int
    lags: int
    points: int
    blocks: tuple[int, int, int, int, int, int]

    @property
    def programs(self) -> int:
        """Number of programs per row."""
        nodes, _, _, _, second, _ = self.blocks
        near = min(self.points, second) if nodes else self.points
        return -(-near // _TABLE_CHUNK) - (near - self.points) // (_TABLE_CHUNK * _TABLE_CHUNKS)

    def launch(self, rows: int, order: Tensor, values: Tensor, sums: Tensor, above: int) -> None:
        """Compute rows of weights, or sums with their slopes if ``sums`` is another tensor than ``values``."""
        _launch(
            _kernels().table,
            (self.programs, rows, 1),
            (values, sums, order, *self[:5]),
            *(self.points, self.lags, self.rows * self.lags, above),
            *(sums is not values, *self.blocks, self.series.shape[0], _TABLE_CHUNK, _TABLE_CHUNKS),
        )


def table_weights(order: Tensor, table: OrderTable, dtype: torch.dtype) -> Tensor:
    """All weights of a table at an order, a float64 scalar on the same GPU; shape (rows, points)."""
    result = torch.empty((table.rows, table.points), dtype=dtype, device=order.device)
    table.launch(table.rows, order, result, result, 0)
    return result


def table_slope(order: Tensor, table: OrderTable, changes: list[tuple[int, Tensor]]) -> Tensor:
    """The sum of slopes of weights times ``changes``: rows, each with its first row of the table."""
    rows = [change.numel() // table.points for _, change in changes]
    make = torch.empty if sum(rows) == table.rows else torch.zeros
    sums = make((table.rows, table.programs), dtype=torch.float64, device=order.device)
    for count, (above, change) in zip(rows, changes, strict=True):
        table.launch(count, order, change.contiguous(), sums, above)
    return sums.sum()
