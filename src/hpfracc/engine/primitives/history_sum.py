"""Contract of the history sum: the causal sum with weights that depend on both times, for non-uniform grids."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from hpfracc import _reading
from hpfracc.engine.numerics.history_sums import KINDS, LEAF, NODES
from hpfracc.engine.primitives.base import REALS, ArraySpec, Call, Primitive, inexact, read_dtype, real_of, shape_of
from hpfracc.errors import InvalidInputError, ShapeError


@final
class HistorySum(Primitive):
    r"""``y[..., n] = sum_{k <= n} K(t[n]; t[k-1], t[k]) x[..., k]``, with weights of both times.

    ``times`` has shape ``(n,)`` and increases, ``signal`` has shape ``(..., n)``; the parameters of the kernel follow.
    By ``kernel``:

    ``"power"``, with ``exponent`` p > -1: the mean of :math:`(t_n - s)^p` over the interval from :math:`t_{k-1}` to
    :math:`t_k`, exactly; ``"tempered"``, with ``exponent`` and ``tempering`` :math:`\sigma`: the same times
    :math:`e^{-\sigma (t_n - t_k)}`; ``"logarithmic"``, with ``exponent``: the mean of :math:`(\log(t_n/s))^p` over the
    interval in :math:`\log s` (times are positive). For these three, x belongs to the interval that ends at its point,
    so the first value is not used. ``"tabulated"``, with ``knots`` and ``table``: linear interpolation at :math:`t_n -
    t_k` between the knots, the last value beyond; x belongs to its point. With ``scaled=True`` the means are multiplied
    by p + 1, which has a limit at p = -1: the newest interval alone.

    The result has the dtype of the signal (integers: float64); weights are computed and summed in double precision.
    From the first non-finite sample of a row on, its values are nan. Differentiable in times, signal and parameters.

    Algorithms: ``direct`` computes each of the n^2/2 weights where it is used, with no more memory than the signal.
    ``tree`` sums close intervals directly and distant ones by polynomials, to rounding, in O(n log n); not with a
    table.
    """

    name = "history_sum"
    operands = ("times", "signal", "parameters*")
    casts = False
    whole_operands = (0, 2, 3)

    def describe(self, times: Any, signal: Any, *parameters: Any, kernel: str = "power", scaled: bool = False) -> Call:
        """Check operands and parameters; ``facts``: ``kernel``, ``scaled``."""
        dtype = inexact(read_dtype(self.name, "signal", signal))
        names = KINDS[_reading.choice(f"{self.name}: kernel", kernel, KINDS)]
        if not isinstance(scaled, bool) or (scaled and kernel == "tabulated"):
            raise InvalidInputError(
                f"{self.name}: scaled={scaled!r} with the {kernel} kernel; use True or False, and False for a table"
            )
        if len(parameters) != len(names):
            raise InvalidInputError(
                f"{self.name}: the {kernel} kernel takes {' and '.join(names)} after times and signal; "
                f"{len(parameters)} were given"
            )
        for name, operand in (("times", times), *zip(names, parameters, strict=True)):
            read_dtype(self.name, name, operand, REALS)
        points = shape_of(signal)
        if not points or shape_of(times) != points[-1:]:
            raise ShapeError(
                f"{self.name}: times has shape {shape_of(times)} for a signal of shape {points}; "
                "give one time for each point of its last axis"
            )
        shapes = [shape_of(parameter) for parameter in parameters]
        if kernel == "tabulated":
            if len(shapes[0]) != 1 or shapes[0] != shapes[1] or shapes[0][0] < 2:
                raise ShapeError(
                    f"{self.name}: knots {shapes[0]} and table {shapes[1]}; give the same number of each, at least two"
                )
        elif any(math.prod(shape) != 1 for shape in shapes):
            raise ShapeError(f"{self.name}: {' and '.join(names)} of shape {shapes}; give one number for each")
        more = (points[-1] + sum(map(math.prod, shapes))) * 8
        return self.call(dtype, points, [points], more_bytes=more, kernel=kernel, scaled=scaled)

    def work(self, call: Call, algorithm: str) -> float:
        """Pairs of points: a weight for each, which costs about as much as ten products; fewer in a tree."""
        if algorithm == "tree":
            return float((call.batch + 10) * call.length * (LEAF + NODES * math.log2(1.0 + call.length / LEAF)))
        return float((call.batch + 10) * call.length**2 / 2)

    def workspace(self, call: Call, algorithm: str) -> int:
        """The signal in double precision."""
        return call.batch * call.length * call.wide_itemsize

    def block_elements(self, call: Call, algorithm: str) -> int:
        """A weight for each pair of points."""
        return call.length * (call.length + 1) // 2

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """The kernel of a half-derivative."""
        shape = shape or (1,)
        real = real_of(dtype)
        return (ArraySpec(shape[-1:], real), ArraySpec(shape, dtype), ArraySpec((), real)), {"kernel": "power"}

    def typical(self, arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Increasing times, denser at the start, and the order of a half-derivative."""
        times, signal, order = arrays
        graded = np.linspace(0, 1, times.size) ** 2
        return [graded.astype(times.dtype), signal, np.full_like(order, 0.5)]
