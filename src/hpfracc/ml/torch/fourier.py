r"""The fractional Fourier transform as a layer."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor, nn

from hpfracc import _reading
from hpfracc.errors import ShapeError
from hpfracc.ml.torch.opaque import opaque
from hpfracc.ml.torch.order import OrderLike, as_order, check_tensor, joined_order, shown_order, split_order
from hpfracc.operators._frft import frft

__all__ = ["FractionalFourier"]


@final
class FractionalFourier(nn.Module):
    r"""A rotation in the time-frequency plane by an order that may be learned.

    :func:`hpfracc.frft` along one axis: order 0 is the identity, 1 the centred unitary DFT, 2 the reversal. The
    gradient in the order is also correct at integer orders.

    Parameters
    ----------
    order : float, Tensor, Parameter or LearnableOrder
        The order, in quarter turns; ``LearnableOrder(0.5, bounds=(-2, 2))`` learns it.
    axis : int
        The axis of the samples.
    method : {"chirp", "eigen"}
        As for :func:`hpfracc.frft`.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml import FractionalFourier
    >>> FractionalFourier(0.5)(torch.randn(4, 32)).dtype
    torch.complex64
    """

    def __init__(self, order: OrderLike = 0.5, *, axis: int = -1, method: str = "chirp") -> None:
        super().__init__()
        _reading.choice("method", method, ("chirp", "eigen"))
        self.order = as_order(order)
        if self.order.channels is not None:
            raise ShapeError("a fractional Fourier layer has one order; give a single number")
        self.axis = axis
        self.method = method

    def forward(self, x: Tensor) -> Tensor:
        """Complex, of the shape of ``x``."""
        check_tensor(x)
        order, value = split_order(self.order)
        return _transform([x, *order], value, self.axis, self.method)[0]

    def extra_repr(self) -> str:
        """Order, axis and method."""
        return f"order={shown_order(self.order)}, axis={self.axis}, method={self.method!r}"


def _shapes(tensors: list[Tensor], *_: Any) -> list[Tensor]:
    x = tensors[0]
    double = x.dtype in (torch.float64, torch.complex128, torch.int64)
    return [x.new_empty(x.shape, dtype=torch.complex128 if double else torch.complex64)]


@opaque(_shapes)
def _transform(tensors: list[Tensor], value: Any, axis: int, method: str) -> tuple[Tensor]:
    x, *order = tensors
    with torch.autocast(x.device.type, enabled=False):
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        found: Tensor = frft(wide, joined_order(order, value), axis, method=method)
    return (found,)
