r"""One-sided diffusion with zero flux at both ends: finite volumes whose fluxes are Grünwald differences."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from hpfracc._xp import NUMPY
from hpfracc.operators.core.sequences import binomials
from hpfracc.solvers.pde.boundary import Neumann, is_homogeneous
from hpfracc.solvers.pde.problem import plain_order
from hpfracc.solvers.pde.space.base import GridSpace, SpaceSetting
from hpfracc.solvers.pde.space.grunwald import DENSE_KEPT
from hpfracc.solvers.pde.space.krylov import ShiftedFactors, gmres
from hpfracc.solvers.pde.space.preconditioner import ToeplitzPart, ToeplitzPreconditioner
from hpfracc.solvers.pde.space.toeplitz import ToeplitzProduct, constant_coefficient, toeplitz_parts
from hpfracc.solvers.pde.terms import Advection, Diffusion, OneSided, SpaceTerm

__all__ = ["ReflectingGrunwald"]

Array = np.ndarray[Any, Any]


@final
class ReflectingGrunwald(GridSpace):
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
        super().__init__(setting)
        (x,) = setting.grid
        h = setting.spacing(0)
        (self._volumes,) = self._quadrature
        self._backend = None if setting.backend == "auto" else setting.backend
        self._fluxes = [self._flux(term, x.size, h) for term in setting.terms]
        self._factors = ShiftedFactors(lambda: np.ascontiguousarray(self.apply(np.eye(self.shape[0])).T))
        self._preconditioner: ToeplitzPreconditioner | None = None
        #: Iterations of the last linear system; 0 for LU.
        self.iterations = 0
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
        if not setting.uniform(0):
            return "the grid is not uniform; use equal distances"
        if setting.grid[0].size < 4:
            return f"the grid has {setting.grid[0].size} points; use 4 or more"
        for term in setting.terms:
            reason = _refuses_term(term)
            if reason is not None:
                return reason
        return None

    def _flux(self, term: SpaceTerm, count: int, h: float) -> tuple[Any, ToeplitzProduct]:
        """The weights of a flux, and the factors by which its points are multiplied first."""
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
        part = ToeplitzPart(-1, lower, upper, coefficient)
        return self.xp.array(own), ToeplitzProduct(part, self.shape, self.xp, self._backend, self.setting.complex_state)

    def apply(self, u: Any) -> Any:
        """Differences of the fluxes between cells."""
        total: Any = None
        for own, product in self._fluxes:
            one = product(own * u)
            total = one if total is None else total + one
        inner = total[..., :-1]  # from each point to the next
        edge = 0.0 * inner[..., :1]
        xp = self.xp
        return (xp.concatenate([edge, inner], -1) - xp.concatenate([inner, edge], -1)) / self._volumes

    def solve(self, shift: Any, rhs: Any, guess: Any = None) -> Any:
        """LU for few points, otherwise GMRES with Strang's circulant preconditioner."""
        if self.xp.library == "numpy" and self.shape[0] <= DENSE_KEPT and isinstance(shift, float | complex):
            self.iterations = 0
            return self._factors.solve(shift, rhs)
        if self._preconditioner is None:
            parts = [part for term in self.setting.terms for part in toeplitz_parts(term, self.setting)]
            self._preconditioner = ToeplitzPreconditioner(
                parts, self.shape, self.xp, self._backend, complex_state=self.setting.complex_state
            )

        def operator(u: Any) -> Any:
            return shift * u - self.apply(u)

        found, self.iterations = gmres(operator, self._preconditioner.for_shift(shift), rhs, guess)
        return found

    def step_bytes(self) -> int:
        """The matrix, or the vectors of GMRES."""
        size = 8 * self.shape[0] * (2 if self.setting.complex_state else 1)
        dense = self.xp.library == "numpy" and self.shape[0] <= DENSE_KEPT
        return size * (3 * self.shape[0] if dense else 8 + 2 * 12)


def _refuses_term(term: SpaceTerm) -> str | None:
    if isinstance(term, OneSided):
        order = plain_order(term.order)
        if not isinstance(order, float):
            return "an order that carries a derivative; Dirichlet conditions take one, or give a number"
        if order < 1.0:
            return f"a one-sided term of order {order:g}; zero flux is for orders above 1"
        coefficient = term.coefficient
    elif isinstance(term, Diffusion | Advection):
        coefficient = term.coefficient if isinstance(term, Diffusion) else term.velocity
    else:
        return f"it takes OneSided, Diffusion and Advection, not {type(term).__name__}"
    if isinstance(coefficient, tuple | list):
        coefficient = coefficient[0] if len(coefficient) == 1 else None
    if coefficient is None or (callable(coefficient) and not hasattr(coefficient, "shape")):
        return f"{type(term).__name__} with a coefficient that varies; use a constant one"
    return None
