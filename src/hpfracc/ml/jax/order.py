"""Learnable orders, and the order argument of all layers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from hpfracc._arrays import is_array
from hpfracc.errors import InvalidInputError
from hpfracc.ml.arguments import read_learnable, read_orders
from hpfracc.ml.jax.pytrees import pytree

__all__ = ["LearnableOrder", "OrderLike", "as_order"]

#: Anything a layer accepts as its order.
OrderLike = Any


@final
@pytree("rho")
@dataclass(init=False, frozen=True)
class LearnableOrder:
    r"""A fractional order within bounds: :math:`\alpha = lo + (hi - lo)\,\sigma(\rho)`.

    See :class:`hpfracc.ml.LearnableOrder`. Optimisers update the leaf ``rho``; the slope of the sigmoid vanishes
    towards both bounds.

    Parameters
    ----------
    alpha : float or sequence of float
        Initial value, strictly between the bounds; a sequence gives one order per channel.
    bounds : (float, float)
        Lower and upper bound.

    Examples
    --------
    >>> from hpfracc.ml.jax.order import LearnableOrder
    >>> round(float(LearnableOrder(0.5)()), 6)
    0.5
    """

    rho: Any
    bounds: tuple[float, float]

    def __init__(self, alpha: Any = 0.5, bounds: tuple[float, float] = (0.0, 1.0)) -> None:
        start, low, high = read_learnable(alpha, bounds)
        share = (start - low) / (high - low)
        object.__setattr__(self, "rho", jnp.asarray(np.log(share) - np.log1p(-share)))
        object.__setattr__(self, "bounds", (low, high))

    @property
    def ceiling(self) -> int | None:
        """The integer n with ``n - 1 < alpha <= n`` for every alpha within the bounds, if there is one."""
        low, high = self.bounds
        return math.ceil(high) if math.ceil(high) - 1 <= low else None

    @property
    def channels(self) -> int | None:
        """Number of orders, or None for a single one."""
        return None if self.rho.ndim == 0 else int(self.rho.shape[0])

    def __call__(self) -> Any:
        """The order."""
        low, high = self.bounds
        return low + (high - low) * jax.nn.sigmoid(self.rho)


@final
@pytree()
@dataclass(frozen=True)
class _FixedOrder:
    """An order that is not learned."""

    value: Any

    ceiling = None

    @property
    def channels(self) -> int | None:
        return None if isinstance(self.value, float) else len(self.value)

    def __call__(self) -> Any:
        return self.value


@final
@pytree("value")
@dataclass(frozen=True)
class _GivenOrder:
    """An array given by the user, possibly traced."""

    value: Any

    ceiling = None

    @property
    def channels(self) -> int | None:
        return None if self.value.ndim == 0 else int(self.value.shape[0])

    def __call__(self) -> Any:
        return self.value


def as_order(alpha: OrderLike) -> Any:
    """The order as a callable, from a number (fixed), an array, or a :class:`LearnableOrder`."""
    if isinstance(alpha, LearnableOrder | _FixedOrder | _GivenOrder):
        return alpha
    if isinstance(alpha, bool | str) or alpha is None:
        raise InvalidInputError(f"alpha={alpha!r} is not a number; use one such as 0.5, or LearnableOrder(0.5)")
    if is_array(alpha) and not isinstance(alpha, np.ndarray):
        return _GivenOrder(alpha)
    return _FixedOrder(read_orders(alpha))
