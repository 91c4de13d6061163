"""The user's functions, with what they return checked and their calls counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc.errors import HpfraccError
from hpfracc.solvers.ode._problem import Problem, check_jacobian, check_value

__all__ = ["Jacobian", "NotFiniteError", "RightHandSide"]

Array = np.ndarray[Any, Any]


class NotFiniteError(HpfraccError, ArithmeticError):
    """The right-hand side was not finite; the stepper tries a shorter step before it gives up."""


class RightHandSide:
    """``fun(t, y, *args)`` of a NumPy problem; an array of the right kind passes at once."""

    def __init__(self, problem: Problem) -> None:
        self.count = 0
        fun, args = problem.fun, problem.args
        #: ``fun(t, y)`` without checks; a call that unpacks no arguments takes 0.1 us less.
        self.bare: Callable[..., Any] = (lambda t, y: fun(t, y, *args)) if args else fun
        self._shape = problem.shape
        self._dtype = problem.dtype

    def __call__(self, t: float, y: Array) -> Array:
        self.count += 1
        # Copies: the function may keep or change what it is given, and return the same array each time.
        value = self.bare(t, y.copy())
        if type(value) is np.ndarray and value.shape == self._shape and value.dtype == self._dtype:
            return value.copy()
        return self.read(value).copy()

    def read(self, value: Any) -> Array:
        """What the function returned as an array of the state's shape and dtype, or an error."""
        return check_value(value, self._shape, self._dtype, "fun")


class Jacobian:
    """``jac(t, y, *args)``, of shape (..., d, d), or sparse where d is large."""

    def __init__(self, problem: Problem) -> None:
        assert problem.jac is not None
        self._jac = problem.jac
        self._args = problem.args
        self._shape = problem.shape
        self._dtype = problem.dtype

    def __call__(self, t: float, y: Array) -> Any:
        return check_jacobian(self._jac(t, y.copy(), *self._args), self._shape, self._dtype).copy()
