"""Keeps an old import path alive: derivatives are made by :func:`hpfracc.create_fractional_derivative`."""

from __future__ import annotations

from typing import Any

from hpfracc.operators.core.registry import create_fractional_derivative

__all__ = ["FractionalDerivative"]


class FractionalDerivative:
    """Fractional derivative, selected by the name of its definition.

    Parameters
    ----------
    alpha : float
        The order.
    method : str
        The definition: ``"RL"``, ``"GL"``, ``"caputo"``, ...
    **options
        Further options of the operator.
    """

    def __init__(self, alpha: Any, method: str = "RL", **options: Any) -> None:
        self.alpha = alpha
        self.method = method
        self.operator = create_fractional_derivative(alpha, method, **options)

    def compute(self, f: Any, x: Any, **options: Any) -> Any:
        """The derivative of ``f``, a function or samples, at the points ``x``."""
        return self.operator(f, x, **options)
