"""The user's functions, with what they return checked and their calls counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc.errors import HpfraccError
from hpfracc.solvers.ode._problem import Problem, check_jacobian, check_value

__all__ = ["Jacobian", "NotFiniteError", "RightHandSide"]

Array = np.ndarray[Any, Any]

#: What becomes of an exception where it cannot be raised.
Fail = Callable[[BaseException], None]


class NotFiniteError(HpfraccError, ArithmeticError):
    """The right-hand side was not finite; the stepper tries a shorter step before it gives up."""


class RightHandSide:
    """``fun(t, y, *args)`` of a NumPy problem; an array of the right kind passes at once."""

    def __init__(self, problem: Problem) -> None:
        self.count = 0
        self.fun, self.args = fun, args = problem.fun, problem.args
        self._bare: Callable[..., Any] = (lambda t, y: fun(t, y, *args)) if args else fun
        self._shape = problem.shape
        self._dtype = problem.dtype

    def __call__(self, t: float, y: Array) -> Array:
        self.count += 1
        # Copies: the function may keep or change what it is given, and return the same array each time.
        value = self._bare(t, y.copy())
        if type(value) is np.ndarray and value.shape == self._shape and value.dtype == self._dtype:
            return value.copy()
        return check_value(value, self._shape, self._dtype, "fun").copy()

    def writer(self, y: Array, out: Array) -> Callable[[Fail], Callable[[float], None]]:
        """``f(t, y)`` written to ``out``, for callers that count for themselves: the shortest way into Python.

        Made by a function that is told what to do with an exception, so that no further call lies between.
        """
        shape, dtype = self._shape, self._dtype
        # Looked up once; and a call that unpacks no arguments takes 0.1 us less.
        fun, copy, array = self._bare, y.copy, np.ndarray

        def make(fail: Fail) -> Callable[[float], None]:
            def write(t: float) -> None:
                try:
                    # A copy: the function may keep what it is given.
                    value = fun(t, copy())
                    if type(value) is array and value.shape == shape and value.dtype is dtype:
                        out[...] = value
                    else:
                        out[...] = check_value(value, shape, dtype, "fun")
                except BaseException as error:
                    fail(error)

            return write

        return make


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

    def writer(self, y: Array, out: Array) -> Callable[[Fail], Callable[[float], None]]:
        """The same, written to ``out``."""

        def make(fail: Fail) -> Callable[[float], None]:
            def write(t: float) -> None:
                try:
                    out[...] = self(t, y)
                except BaseException as error:
                    fail(error)

            return write

        return make
