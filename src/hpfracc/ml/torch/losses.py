r"""Losses that weigh a prediction's error by a fractional derivative."""

from __future__ import annotations

from typing import Unpack, final

from torch import Tensor, nn

from hpfracc._signatures import names_options_of
from hpfracc.errors import ShapeError
from hpfracc.ml.arguments import LossOptions, read_loss
from hpfracc.ml.config import LayerConfig
from hpfracc.ml.torch.fractional_layer import FractionalDerivative
from hpfracc.ml.torch.order import OrderLike, check_tensor

__all__ = ["FractionalLoss"]


@final
class FractionalLoss(nn.Module):
    r"""The mean square of an error and of its fractional derivative.

    .. math:: \overline{|e|^2} + \lambda\, \overline{|D^\alpha e|^2}, \qquad e = \text{prediction} - \text{target}.

    The *difference* is differentiated, so that the minimum is where the prediction equals the target; differentiating
    the prediction alone moves the minimum. A negative alpha emphasises slow errors, a positive one fast errors.

    Parameters
    ----------
    alpha : float, Tensor, Parameter or LearnableOrder
        The order. Fix it: an order learned by this loss only moves to where the loss is smallest, which is rarely
        intended.
    weight : float
        The factor lambda, not negative.
    reduction : {"mean", "sum", "none"}
        How the elements are combined.
    config : LayerConfig, optional
        The backend and the mode.
    **options
        ``definition``, ``method``, ``step``, ``axis`` and ``channel_axis`` of :class:`FractionalDerivative`.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml import FractionalLoss
    >>> loss = FractionalLoss(1.0, weight=1.0)
    >>> float(loss(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0])))
    1.0
    """

    @names_options_of(FractionalDerivative)
    def __init__(
        self,
        alpha: OrderLike = 0.5,
        weight: float = 1.0,
        *,
        reduction: str = "mean",
        config: LayerConfig | None = None,
        **options: Unpack[LossOptions],
    ) -> None:
        super().__init__()
        self.derivative = FractionalDerivative(alpha, config=config, **options)
        self.weight = read_loss(weight, reduction)
        self.reduction = reduction

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        """The loss; nan where an error is not finite."""
        check_tensor(prediction)
        if prediction.shape != target.shape:
            raise ShapeError(
                f"a prediction of shape {tuple(prediction.shape)} for a target of shape {tuple(target.shape)}; "
                "give both the same shape"
            )
        error = prediction - target
        squares = error.abs() ** 2 + self.weight * self.derivative(error).abs() ** 2
        if self.reduction == "none":
            return squares
        return squares.mean() if self.reduction == "mean" else squares.sum()

    def extra_repr(self) -> str:
        """Weight and reduction."""
        return f"weight={self.weight:g}, reduction={self.reduction!r}"
