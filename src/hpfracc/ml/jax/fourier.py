"""The fractional Fourier transform as a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from hpfracc import _reading
from hpfracc.ml.jax.order import OrderLike, as_order
from hpfracc.ml.jax.pytrees import as_samples, pytree, widened
from hpfracc.operators._frft import frft

__all__ = ["FractionalFourier"]


@final
@pytree("order")
@dataclass(init=False, frozen=True)
class FractionalFourier:
    """A rotation in the time-frequency plane by a learnable order; see :class:`hpfracc.ml.FractionalFourier`.

    Parameters
    ----------
    order : float, array or LearnableOrder
        The order, in quarter turns.
    axis : int
        The axis of the samples.
    method : {"chirp", "eigen"}
        As for :func:`hpfracc.frft`.
    """

    order: Any
    axis: int
    method: str

    def __init__(self, order: OrderLike = 0.5, *, axis: int = -1, method: str = "chirp") -> None:
        _reading.choice("method", method, ("chirp", "eigen"))
        for name, value in (("order", as_order(order)), ("axis", axis), ("method", method)):
            object.__setattr__(self, name, value)

    def __call__(self, x: Any) -> Any:
        """The transform, complex, of the shape of ``x``; complex64 for half precision."""
        return frft(widened(as_samples(x)), self.order(), self.axis, method=self.method)
