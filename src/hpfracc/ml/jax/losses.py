"""Losses that weigh a prediction's error by a fractional derivative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack, final

import jax.numpy as jnp

from hpfracc._signatures import names_options_of
from hpfracc.errors import ShapeError
from hpfracc.ml.arguments import LossOptions, read_loss
from hpfracc.ml.jax.fractional_layer import FractionalDerivative
from hpfracc.ml.jax.order import OrderLike
from hpfracc.ml.jax.pytrees import as_samples, pytree

__all__ = ["FractionalLoss"]


@final
@pytree("derivative")
@dataclass(init=False, frozen=True)
class FractionalLoss:
    """The mean square of an error and of its fractional derivative; see :class:`hpfracc.ml.FractionalLoss`.

    Parameters
    ----------
    alpha : float, array or LearnableOrder
        The order.
    weight : float
        The factor of the second term, not negative.
    reduction : {"mean", "sum", "none"}
        How the elements are combined.
    **options
        ``definition``, ``method``, ``step``, ``axis`` and ``channel_axis`` of :class:`FractionalDerivative`.
    """

    derivative: FractionalDerivative
    weight: float
    reduction: str

    @names_options_of(FractionalDerivative)
    def __init__(
        self, alpha: OrderLike = 0.5, weight: float = 1.0, *, reduction: str = "mean", **options: Unpack[LossOptions]
    ) -> None:
        fields = (
            ("derivative", FractionalDerivative(alpha, **options)),
            ("weight", read_loss(weight, reduction)),
            ("reduction", reduction),
        )
        for name, value in fields:
            object.__setattr__(self, name, value)

    def __call__(self, prediction: Any, target: Any) -> Any:
        """The loss."""
        prediction, target = as_samples(prediction), as_samples(target)
        if prediction.shape != target.shape:
            raise ShapeError(
                f"a prediction of shape {prediction.shape} for a target of shape {target.shape}; give equal shapes"
            )
        error = prediction - target
        squares = jnp.abs(error) ** 2 + self.weight * jnp.abs(self.derivative(error)) ** 2
        if self.reduction == "none":
            return squares
        return squares.mean() if self.reduction == "mean" else squares.sum()
