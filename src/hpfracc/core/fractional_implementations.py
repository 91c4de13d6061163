"""Keeps an old import path alive: derivatives are made by :func:`hpfracc.create_fractional_derivative`."""

from __future__ import annotations

from typing import Any, Unpack

from hpfracc._choices import DefinitionName
from hpfracc.operators.core.call_types import CallOptions, DerivativeParameters, OrderOrFunction
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
        Further options of the operator, such as ``side`` or ``ceiling``.
    """

    def __init__(
        self, alpha: OrderOrFunction, method: DefinitionName = "RL", **options: Unpack[DerivativeParameters]
    ) -> None:
        self.alpha = alpha
        self.method = method
        self.operator = create_fractional_derivative(alpha, method, **options)

    def compute(self, f: Any, x: Any, **options: Unpack[CallOptions]) -> Any:
        """The derivative of ``f`` at the points ``x``.

        Parameters
        ----------
        f : array_like or callable
            Samples, or a function of an array of points.
        x : array_like
            The points.
        **options
            Further options of a call of the operator, such as ``axis`` and ``backend``.

        Returns
        -------
        array or OperatorResult
            As for :meth:`hpfracc.FractionalOperator.__call__`.
        """
        return self.operator(f, x, **options)
