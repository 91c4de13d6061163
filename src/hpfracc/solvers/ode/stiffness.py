"""Stiffness of an equation at a point, for the choice between explicit and implicit steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import rgamma

from hpfracc.solvers.ode.fixed.solve import StiffError
from hpfracc.solvers.ode.jacobian import DENSE_BELOW, JacobianSource
from hpfracc.solvers.ode.problem import Jacobian, Problem, RightHandSide

__all__ = ["LIMIT", "StiffnessGuard"]

Array = np.ndarray[Any, Any]

#: PECE damps ``D^alpha y = -lambda y`` as long as ``h^alpha lambda / Gamma(alpha+2)`` is at most 1, for every alpha up
#: to 1.5 (found by bisection; benchmarks/ode.py --stability). Above this fraction of the limit implicit steps are used.
LIMIT = 0.9


class StiffnessGuard:
    """Raises :class:`StiffError` if an explicit method with the given step would be unstable."""

    def __init__(self, problem: Problem, step: float) -> None:
        self._fun = RightHandSide(problem)
        given = Jacobian(problem) if problem.jac is not None else None
        self._slopes = JacobianSource(problem.shape, problem.dtype, self._fun, given, problem.jac_sparsity)
        assert problem.orders.known is not None
        orders = np.broadcast_to(problem.orders.known, problem.shape)
        self._step = step
        self._weight = step**orders * rgamma(orders + 2.0)
        self._ahead = step**orders * rgamma(orders + 1.0)

    @property
    def evaluations(self) -> int:
        """Evaluations of the right-hand side so far."""
        return self._fun.count

    def number(self, t: float, y: Array, above: float = 0.0) -> float:
        """The largest ``h^alpha |lambda| / Gamma(alpha+2)`` of a decaying eigenvalue; 0 if there is none.

        Eigenvalues are not computed for members of a batch for which a norm shows that this is at most ``above``.
        """
        if y.shape[-1] > DENSE_BELOW:  # all eigenvalues would take too long
            return self._largest(t, y)
        slopes = self._slopes(t, y, self._fun(t, y)).reshape(*y.shape, y.shape[-1])
        if not np.all(np.isfinite(slopes)):
            return 0.0
        matrices = (self._weight[..., None] * slopes).reshape(-1, y.shape[-1], y.shape[-1])
        with np.errstate(over="ignore"):
            squares = np.einsum("nij,nij->n", matrices, matrices.conj()).real  # of Frobenius' norm
        matrices = matrices[squares > above**2]
        found = np.linalg.eigvals(matrices)
        return float(np.max(np.where(found.real < 0.0, np.abs(found), 0.0), initial=0.0))

    def _largest(self, t: float, y: Array) -> float:
        """Largest eigenvalue by power iteration on differences of ``fun``, one evaluation per iteration."""
        value = self._fun(t, y)
        direction = np.where(value == 0.0, 1.0, value)
        size = 0.0
        for _ in range(12):
            norm = float(np.linalg.norm(direction))
            if not (np.isfinite(norm) and norm > 0.0):
                return 0.0
            width = 1e-7 * max(float(np.linalg.norm(y)), 1.0)
            moved = self._weight * (self._fun(t, y + direction * (width / norm)) - value) / width
            aligned = float(np.vdot(direction, moved).real) / norm
            size, direction = float(np.linalg.norm(moved)), moved
        return size if aligned < 0.0 else 0.0

    def look_ahead(self, t: float, y: Array) -> None:
        """Check one point and the end of an explicit step from it, where new rates may appear."""
        self(t, y)
        value = self._fun(t, y)
        if np.isfinite(value).all():
            with np.errstate(over="ignore", invalid="ignore"):
                self(t + self._step, y + self._ahead * value)

    def __call__(self, t: float, y: Array) -> None:
        """Check one point."""
        found = self.number(t, y, LIMIT)
        if found > LIMIT:
            raise StiffError(f"h^alpha |lambda| / Gamma(alpha+2) is {found:.3g} at t = {t:g}, beyond {LIMIT}")
