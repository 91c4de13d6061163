"""Contract of the exponential recurrence: exponentially decaying memory with constant cost per step."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from hpfracc import _reading
from hpfracc.engine.numerics.recurrence import MAX_DEGREE
from hpfracc.engine.primitives.base import (
    REALS,
    ArraySpec,
    Call,
    Primitive,
    broadcast,
    read_dtype,
    read_shape,
    real_of,
    shape_of,
    signal_dtype,
)
from hpfracc.errors import ShapeError


@final
class ExponentialRecurrence(Primitive):
    r"""``s_j <- a_j s_j + b_j x``, summed over j with weights, along the last axis.

    .. math:: s_{j,n} = e^{-\lambda_j \tau_n} s_{j,n-1} + b_{j,n} x_n, \qquad y_n = \sum_j w_j s_{j,n}.

    ``rates`` (:math:`\lambda`, decay of each term) and ``weights`` have shape ``(J,)``; ``steps`` (:math:`\tau`) is one
    number (uniform) or has shape ``(n,)``; ``signal`` has shape ``(..., n)`` and ``initial``, the states before the
    first step, ``(..., J)``, with broadcast leading axes. ``degree`` is how :math:`x_n` enters: None, at the end of
    its step, ``b = 1``; an integer p from 0 to 4, distributed over the step like :math:`u^p`,
    :math:`b = \int_0^1 u^p e^{-\lambda\tau(1-u)} du`. With ``lagged`` the sum excludes the newest
    input, :math:`y_n = \sum_j w_j e^{-\lambda_j \tau_n} s_{j,n-1}`. With ``final`` the result has shape
    ``(..., n + J)``: the values followed by the states after the last step, which are ``initial`` of the next call.

    The result has the dtype of the signal (integers: float64); states and coefficients are always in double precision,
    because a slowly decaying term in single precision is lost to rounding. From the first non-finite sample of a row
    on, its values and its final states are nan. Differentiable in all five operands.

    Algorithms: ``direct`` goes step by step; ``blocked`` processes many segments of the signal in parallel, by matrix
    products if the step is uniform.
    """

    name = "exponential_recurrence"
    operands = ("rates", "weights", "steps", "signal", "initial")
    casts = False
    whole_operands = (0, 1, 2)

    def describe(
        self,
        rates: Any,
        weights: Any,
        steps: Any,
        signal: Any,
        initial: Any,
        *,
        degree: int | None = None,
        lagged: bool = False,
        final: bool = False,
    ) -> Call:
        """Check the operands; ``facts``: ``terms``, ``uniform`` and ``final``."""
        dtype = signal_dtype(self.name, signal, initial=initial)
        for name, operand in (("rates", rates), ("weights", weights), ("steps", steps)):
            read_dtype(self.name, name, operand, REALS)
        if degree is not None:
            _reading.whole(f"{self.name}: degree", degree, least=0, most=MAX_DEGREE)
        _reading.flag(f"{self.name}: lagged", lagged)
        points, states = read_shape(self.name, "signal", signal), read_shape(self.name, "initial", initial)
        terms = shape_of(rates)
        if len(terms) != 1 or shape_of(weights) != terms or states[-1] != terms[0]:
            raise ShapeError(
                f"{self.name}: rates {terms}, weights {shape_of(weights)} and the last axis of initial {states} "
                "must have the same number of terms"
            )
        length = points[-1]
        uniform = shape_of(steps) in ((), (1,))
        if not uniform and shape_of(steps) != (length,):
            raise ShapeError(
                f"{self.name}: steps has shape {shape_of(steps)}; give one number, or one for each of {length}"
            )
        batch = points[:-1] if states[:-1] in ((), points[:-1]) else broadcast(self.name, points[:-1], states[:-1])
        return self.call(
            dtype,
            (*batch, length + (terms[0] if _reading.flag(f"{self.name}: final", final) else 0)),
            (points, states),
            length=length,
            more_bytes=(2 * terms[0] + math.prod(shape_of(steps))) * 8,
            terms=terms[0],
            uniform=uniform,
            final=final,
        )

    def work(self, call: Call, algorithm: str) -> float:
        """Steps times terms, for each row; non-uniform steps cost an exponential each."""
        exponentials = 0 if call.facts["uniform"] else 10
        return float((call.batch + exponentials) * call.length * max(1, call.facts["terms"]))

    def workspace(self, call: Call, algorithm: str) -> int:
        """The signal in double precision, and a state for each term of each segment of 128 points."""
        states: int = call.facts["terms"] * (1 + call.length // 128)
        return call.batch * (call.length + states) * call.wide_itemsize

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """Forty terms, as for a fractional derivative with six digits."""
        terms, step = ArraySpec((40,), real_of(dtype)), ArraySpec((), real_of(dtype))
        return (terms, terms, step, ArraySpec(shape or (1,), dtype), ArraySpec((40,), dtype)), {}

    def typical(self, arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Decaying memory: rates over many scales, positive weights, a short step."""
        rates, weights, step, *rest = arrays
        scales = np.geomspace(1e-2, 1e4, rates.size).astype(rates.dtype)
        return [scales, np.abs(weights), np.full_like(step, 1e-3), *rest]
