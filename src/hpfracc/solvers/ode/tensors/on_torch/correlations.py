"""Gradients of the weights of history sums: correlations of the gradients of the sums with the values summed."""

from __future__ import annotations

import torch
from scipy.fft import next_fast_len

from hpfracc.solvers.ode.tensors.on_torch.history import workspace

__all__ = ["correlations"]

#: Up to this number of values on the host, with one order, correlations are the diagonals of a matrix product, unless
#: the values have few columns. Milliseconds of a product and of transforms, one thread: 4 and 19 for 128 steps of 2,048
#: columns, 35 and 75 for 512, 133 and 147 for 1,024; 0.2 and 0.4 for 128 steps of 8 columns, 2.4 and 0.8 for 512.
_LONGEST_PRODUCT, _LONGEST_OF_A_COLUMN = 600, 16


def correlations(reversed_bar: torch.Tensor, values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """``out[k, l] = sum_n bar[n, k] f[n - l]``, summed over the columns that share an order.

    Parameters
    ----------
    reversed_bar : tensor, shape (N + 1, K, ...)
        Gradients of the sums of each kind, the last step first.
    values : tensor, shape (N + 1, ...)
        The values f.
    like : tensor, shape (N + 1,) or (N + 1, ...)
        The weights of a kind.

    Returns
    -------
    tensor, shape (K, N + 1, ...)
        Zero at l = 0: the newest value has a separate weight.
    """
    count = values.shape[0]
    longest = min(_LONGEST_PRODUCT, _LONGEST_OF_A_COLUMN * values[0].numel())
    if like.ndim == 1 and values.device.type == "cpu" and count <= longest:
        found = _by_product(reversed_bar, values)
    else:
        found = _by_transforms(reversed_bar, values, like)
    found[:, 0] = 0.0
    return found


def _by_product(reversed_bar: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The sums over ``r + m = N - l`` of the products of row r of the gradients and row m of the values."""
    count, kinds = reversed_bar.shape[:2]
    found = values.new_empty((kinds, count))
    flat = values.reshape(count, -1).mT
    for kind in range(kinds):
        # Row r is moved by r columns: as rows of one element less, each begins one element later.
        products = values.new_zeros((count, 2 * count))
        torch.matmul(reversed_bar[:, kind].reshape(count, -1), flat, out=products[:, :count])
        moved = products.view(-1)[: count * (2 * count - 1)].view(count, 2 * count - 1)
        found[kind] = moved.sum(0)[:count].flip(0)
    return found


def _by_transforms(reversed_bar: torch.Tensor, values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """By FFTs, in groups of columns."""
    count, kinds = reversed_bar.shape[:2]
    size = next_fast_len(2 * count - 1, real=True)
    orders = max(like[0].numel(), 1)
    bar, f = reversed_bar.reshape(count, kinds, -1), values.reshape(count, -1)
    width = max(1, workspace(values) // (16 * (1 + kinds) * size))
    places = torch.arange(orders, device=f.device).reshape(like.shape[1:]).expand(values.shape[1:]).reshape(-1)
    total = torch.zeros((size // 2 + 1, kinds, orders), dtype=torch.complex(f[0, 0], f[0, 0]).dtype, device=f.device)
    for begin in range(0, f.shape[1], width):
        part = slice(begin, begin + width)
        # A convolution in reversed time: the sum over r of bar[N - n] f[n - l] has index N - l.
        spectrum = torch.fft.rfft(bar[..., part], size, dim=0) * torch.fft.rfft(f[:, None, part], size, dim=0)
        if orders == 1:
            total[..., 0] += spectrum.sum(-1)
        else:
            total.index_add_(2, places[part], spectrum)
    found = torch.fft.irfft(total, size, dim=0)[:count].flip(0)
    return found.movedim(1, 0).reshape(kinds, *like.shape)
