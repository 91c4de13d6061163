r"""One-sided diffusion with zero flux at both ends: finite volumes whose fluxes are Grünwald differences."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from hpfracc._xp import NUMPY
from hpfracc.operators.core.sequences import binomials
from hpfracc.solvers.pde.boundary import Neumann, is_function, is_homogeneous
from hpfracc.solvers.pde.problem import plain_order
from hpfracc.solvers.pde.space.base import SpaceSetting, refuse_grid
from hpfracc.solvers.pde.space.grunwald import ToeplitzSpace
from hpfracc.solvers.pde.space.toeplitz import ToeplitzPart, ToeplitzProduct, constant_coefficient, toeplitz_parts
from hpfracc.solvers.pde.terms import Advection, Diffusion, OneSided, SpaceTerm, coefficients_of

Array = np.ndarray[Any, Any]


@final
class ReflectingGrunwald(ToeplitzSpace):
    r""":math:`u_t = -\partial_x F` on an interval with :math:`F = 0` at both ends.

    The flux of a one-sided term is :math:`F = -c\,D^{\beta-1} u`, of advection :math:`v u`, of diffusion
    :math:`-k u_x`. All points of the grid are unknowns, with cells of length h, or h/2 at the ends. Fluxes between them
    are Grünwald differences of order :math:`\beta - 1`, averaged over the shifts 1/2 and -1/2. What leaves a cell
    enters its neighbour, so the sum over the cells is conserved to rounding.

    Stationary solutions are multiples of :math:`\rho^{\beta-2}`, with :math:`\rho` the distance from the end where the
    derivative starts, and infinite there; the value at that point is the mean over half a cell. Of order 1 elsewhere.

    References
    ----------
    B. Baeumer, M. Kovacs, M. M. Meerschaert, H. Sankaranarayanan, "Boundary conditions for fractional diffusion", J.
    Comput. Appl. Math. 336, 2018.
    """

    name = "reflecting_grunwald"
    accuracy = "order 1, away from the end where the derivative begins"
    best_order = 1.0

    def __init__(self, setting: SpaceSetting) -> None:
        parts = [part for term in setting.terms for part in toeplitz_parts(term, setting)]
        super().__init__(setting, tuple(parts))
        (self._volumes,) = self._quadrature
        self._fluxes = [self._flux(term) for term in setting.terms]
        self.notes = (
            "zero flux with a one-sided derivative: the solution is infinite, with a finite integral, at the end where "
            "it begins; the value there is the mean over half a cell",
        )

    @classmethod
    def refuses(cls, setting: SpaceSetting) -> str | None:
        """Supports one-sided diffusion with constant coefficients and zero flux on a uniform interval."""
        if not any(isinstance(term, OneSided) for term in setting.terms):
            return "it is for one-sided derivatives; there are none"
        if setting.ndim != 1:
            return f"it takes one dimension, and the grid has {setting.ndim}"
        for end in setting.boundary[0]:
            if not isinstance(end, Neumann) or not is_homogeneous(end):
                return "it takes zero flux at both ends; use boundary='neumann'"
        return refuse_grid(setting) or next(filter(None, map(_refuses_term, setting.terms)), None)

    def _flux(self, term: SpaceTerm) -> tuple[Any, ToeplitzProduct]:
        """The weights of a flux, and the factors by which its points are multiplied first."""
        count, h = self.shape[0], self.setting.spacing(0)
        lower, upper, own = np.zeros(count + 1), np.zeros(count + 1), np.ones(count)
        if isinstance(term, OneSided):
            order = float(plain_order(term.order)) - 1.0
            coefficient = constant_coefficient(term.coefficient, self.setting, order + 1.0)
            near, far = 0.5 * (1.0 + order), 0.5 * (1.0 - order)  # of order 2 midway between the shifts
            g = h**-order * binomials(NUMPY, order, count + 2)
            before, after = near * g[1:] + far * g[:-1], near * g[0]
            own[0 if term.side == "left" else -1] = 0.5  # the cell there has half the length
            if term.side == "left":
                lower, upper[0], upper[1] = -before, -before[0], -after
            else:  # mirrored: the flux refers to the previous point and has the opposite sign
                upper[1:], lower[0], upper[0] = before[:-1], after, after
        elif isinstance(term, Diffusion):
            coefficient = constant_coefficient(term.coefficient, self.setting)
            lower[0], upper[0], upper[1] = 1.0 / h, 1.0 / h, -1.0 / h
        else:
            assert isinstance(term, Advection)
            coefficient = constant_coefficient(term.velocity, self.setting)
            lower[0], upper[0], upper[1] = 0.5, 0.5, 0.5
        return self.xp.array(own), self.product(ToeplitzPart(-1, lower, upper, coefficient))

    def apply(self, u: Any) -> Any:
        """Differences of the fluxes between cells."""
        first, *others = (product(own * u) for own, product in self._fluxes)
        total = sum(others, first)
        inner = total[..., :-1]  # from each point to the next
        edge = 0.0 * inner[..., :1]
        xp = self.xp
        return (xp.concatenate([edge, inner], -1) - xp.concatenate([inner, edge], -1)) / self._volumes


def _refuses_term(term: SpaceTerm) -> str | None:
    if isinstance(term, OneSided):
        order = plain_order(term.order)
        if not isinstance(order, float):
            return "an order that carries a derivative; Dirichlet conditions take one, or give a number"
        if order < 1.0:
            return f"a one-sided term of order {order:g}; zero flux is for orders above 1"
    elif not isinstance(term, Diffusion | Advection):
        return f"it takes OneSided, Diffusion and Advection, not {type(term).__name__}"
    if len(coefficients_of(term)) > 1 or any(map(is_function, coefficients_of(term))):
        return f"{type(term).__name__} with a coefficient that varies; use a constant one"
    return None
