"""Options of the derivative inside a layer, for type checkers; those of PyTorch and JAX are the same."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["LayerOptions", "LossOptions", "RuleOptions"]


class RuleOptions(TypedDict, total=False):
    """The options of ``FractionalDerivative`` that convolutions accept, which choose the axes themselves."""

    definition: str
    method: str
    step: float


class LayerOptions(RuleOptions, total=False):
    """The options of ``FractionalDerivative`` that ``FractionalLayer`` accepts besides its own ``axis``."""

    channel_axis: int


class LossOptions(LayerOptions, total=False):
    """The options of ``FractionalDerivative`` that ``FractionalLoss`` accepts."""

    axis: int
