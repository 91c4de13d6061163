"""Alikhanov's L2-1sigma on a graded mesh."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, final

import numpy as np

from hpfracc._reading import number
from hpfracc.solvers.ode.graded import DifferenceScheme, refuse_graded, solve_graded
from hpfracc.solvers.ode.method import Method, register_method
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult
from hpfracc.solvers.ode.tensors.mesh import refuse_graded_tensors, solve_graded_tensors

__all__ = ["L2Sigma"]

Array = np.ndarray[Any, Any]


@register_method
@final
@dataclass(frozen=True, slots=True)
class L2Sigma(Method):
    r"""Alikhanov's L2-1sigma scheme on the mesh :math:`t_j = t_0 + T (j/N)^r`, with a sum of exponentials.

    The equation is collocated at :math:`t_{n-\alpha/2}`, where linear interpolation gains one order: y is quadratic on
    each past interval and linear on the newest. Order :math:`\min(2, r\alpha)` in the maximum error over the mesh for
    solutions that start like :math:`t^\alpha`. Implicit; ``step`` is the mean step, and all components must have the
    same order. O(N log N) time. Like the trapezoidal rule it oscillates if a stiff transient is not resolved; L1 does
    not. PyTorch and JAX as for :class:`L1`.

    Parameters
    ----------
    grading : float, optional
        r, at least 1; by default :math:`2/\alpha`, at most 10; 4 if the order is traced by JAX.

    References
    ----------
    A. A. Alikhanov, J. Comput. Phys. 280 (2015) 424-438; H. Chen, M. Stynes, J. Sci. Comput. 79 (2019) 624-647, for
    graded meshes.
    """

    grading: float | None = None

    name: ClassVar[str] = "l2_1sigma"
    aliases: ClassVar[tuple[str, ...]] = ("alikhanov", "graded_l2")
    order: ClassVar[str] = "2 on the graded mesh, for solutions like t^alpha too"
    libraries: ClassVar[frozenset[str]] = frozenset({"numpy", "torch", "jax"})
    implicit: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.grading is not None:
            number("grading", self.grading, least=1.0)  # 1 is a uniform mesh

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Requires one order below 1."""
        if problem.library != "numpy":
            return refuse_graded_tensors(problem, options, self.name)
        refusal = refuse_graded(problem, options, self.name)
        if refusal is None and problem.orders.single is None:
            return f"method={self.name!r} takes one order for all components; use method='l1'"
        return refusal

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """One implicit equation per step."""
        grading = self.grading
        if grading is None and problem.orders.single is not None:
            grading = min(2.0 / problem.orders.single, 10.0)
        if problem.library != "numpy":
            return solve_graded_tensors(problem, options, self.name, grading)
        assert grading is not None
        return solve_graded(problem, options, self.name, grading, _steps, 2)


def _steps(scheme: DifferenceScheme, mesh: Array) -> Iterator[Array]:
    alpha = float(scheme.orders[0])
    power, sigma = 1.0 - alpha, 1.0 - 0.5 * alpha
    scale = 1.0 / math.gamma(1.0 + power)
    y = scheme.system.start(0.0).astype(scheme.system.dtype)
    rise, width = np.zeros_like(y), 0.0  # y' as a difference over the interval before, and its length
    for before, now in pairwise(mesh):
        step = now - before
        at = before + sigma * step
        # The newest, partial interval: (y_n - y)/step over a length sigma step.
        newest = (sigma * step) ** power * scale / step
        past, share = np.zeros_like(y), 0.0
        if width:
            past = scheme.remembered(sigma * step + width)
            # On the interval before, y' = rise + bend (s - middle), bend = 2 ((y_n - y)/step - rise)/(width + step):
            # its two moments against the kernel, from the distances to its ends.
            level, tilt = _moments(power, sigma * step, width)
            bend = 2.0 * scale * power * tilt / (width + step)
            past = past + rise * (level * scale * power - bend)
            share = bend / step
        weight = newest + share
        # weight (y_n - y) + past = f(at, y_sigma), y_sigma = sigma y_n + (1 - sigma) y: solved for y_sigma.
        known = y - sigma * past / weight
        middle = scheme.solve(at, known, np.full(y.size, sigma / weight), y + sigma * step * rise)
        new = y + (middle - y) / sigma
        slope = (new - y) / step
        if width:
            curve = 2.0 * (slope - rise) / (width + step)
            # In x = (right end - s)/width: rise + curve (width/2 - width x).
            scheme.remember(width, np.stack([rise + 0.5 * width * curve, -width * curve]))
        y, rise, width = new, slope, step
        yield y


def _moments(power: float, near: float, width: float) -> tuple[float, float]:
    """Integrals of ``u^(power-1)`` and of ``u^(power-1) (middle - u)`` from ``near`` to ``near + width``."""
    far = near + width
    level = (far**power - near**power) / power
    first = (far ** (power + 1.0) - near ** (power + 1.0)) / (power + 1.0)
    return level, (near + 0.5 * width) * level - first
