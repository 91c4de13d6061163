"""The Mittag-Leffler exponential integrator, for linear and semilinear systems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from scipy import special

from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.solvers.ode.adaptive.system import FlatSystem, NotFiniteError
from hpfracc.solvers.ode.compilation import refuse_compiled
from hpfracc.solvers.ode.fixed.grid import make_grid
from hpfracc.solvers.ode.jacobian import is_sparse
from hpfracc.solvers.ode.mesh import StepError, walk_mesh
from hpfracc.solvers.ode.method import Method, register_method
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult, SolveDecision
from hpfracc.special import mittag_leffler, mittag_leffler_matrix

__all__ = ["MittagLeffler"]

Array = np.ndarray[Any, Any]

#: Number of steps after which the kernel is smooth over two steps, and quadrature is more accurate than differences.
_FAR = 16
_POINTS, _WEIGHTS = special.roots_legendre(6)
_POINTS, _WEIGHTS = 0.5 * (_POINTS + 1.0), 0.5 * _WEIGHTS
#: Eigenvectors are used up to this condition number; above it the Schur-Parlett method, matrix by matrix.
_MAX_CONDITION = 1e6


@register_method
@final
@dataclass(frozen=True, eq=False)
class MittagLeffler(Method):
    r"""The linear part exactly, the rest by a predictor and a corrector.

    With :math:`f(t, y) = A y + g(t, y)`,

    .. math:: y(t) = \sum_k t^k E_{\alpha,k+1}(A t^\alpha) y^{(k)}_0
        + \int_0^t (t-s)^{\alpha-1} E_{\alpha,\alpha}(A (t-s)^\alpha) \, g(s, y(s)) \, ds

    so a linear equation with constant coefficients is solved exactly with any step, and stiffness of A does not matter.
    The predictor takes g as constant between steps, the corrector as linear: order :math:`\min(2, 1+\alpha)` if
    :math:`g(t, y(t))` is smooth, and 1 + alpha, at a fixed t, if it starts like :math:`t^\alpha`. O(N^2 d^2) time.

    Parameters
    ----------
    linear : array_like, shape (d, d), optional
        The matrix A; by default the Jacobian at t0, given or by differences.

    References
    ----------
    R. Garrappa, M. Popolizio, Comput. Math. Appl. 62 (2011) 876-890.

    Examples
    --------
    >>> import hpfracc as hf
    >>> from hpfracc.solvers.ode import MittagLeffler
    >>> found = hf.solve_fode(lambda t, y: -1e6 * y, (0.0, 1.0), [1.0], 0.5, method=MittagLeffler([[-1e6]]), step=0.5)
    >>> exact = hf.special.mittag_leffler(-1e6, 0.5)
    >>> bool(abs(found.y[0, -1] - exact) < 1e-12 * exact)
    True
    """

    linear: Any = None

    name: ClassVar[str] = "mittag_leffler"
    aliases: ClassVar[tuple[str, ...]] = ("exponential",)
    order: ClassVar[str] = "exact for linear systems; min(2, 1 + alpha) in the rest"
    implicit: ClassVar[bool] = True

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Requires one order and the Caputo derivative."""
        if problem.terms or problem.delays:
            return f"method={self.name!r} takes one derivative and no delays"
        if problem.derivative != "caputo":
            return f"method={self.name!r} takes Caputo's derivative, and not derivative={problem.derivative!r}"
        if problem.orders.single is None:
            return f"method={self.name!r} takes one constant order for all components"
        return refuse_compiled(options, self.name)

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """Predict and correct on a uniform grid."""
        assert options.step is not None and problem.orders.single is not None
        steps = make_grid(problem.t0, problem.t1, options.step).steps
        system = FlatSystem(problem)
        decision = SolveDecision(self.name, "asked for", "direct", False)
        beginning = _Beginning(system)

        def advance(mesh: Array) -> Iterator[Array]:
            kernel = _matrix_kernel(self._matrix(system), float(problem.orders.single or 0.0))
            return _steps(system, kernel, mesh, beginning)

        return walk_mesh(problem, options, steps, 1.0, advance, decision, lambda: (system.nfev, system.njev), beginning)

    def _matrix(self, system: FlatSystem) -> Array:
        d = system.components
        if self.linear is None:
            y = system.start(0.0)
            try:
                jacobians = system.jacobian(0.0, y, system(0.0, y))
            except NotFiniteError as error:
                raise StepError(f"{error}: check the right-hand side and the initial values.") from None
            return np.asarray(jacobians.toarray() if is_sparse(jacobians) else jacobians.mean(axis=0))
        matrix = np.asarray(self.linear)
        if matrix.shape != (d, d):
            raise ShapeError(f"linear has shape {matrix.shape}, and the equation {d} components: give ({d}, {d})")
        if matrix.dtype.kind not in "fciub" or not np.all(np.isfinite(matrix)):
            raise InvalidInputError("linear has to hold finite numbers")
        if matrix.dtype.kind == "c" and system.dtype.kind != "c":
            raise InvalidInputError("linear is complex and y0 real; give y0 as complex numbers")
        return matrix


class _Beginning:
    """The solution with g frozen at t0: the non-smooth part of the start, up to twice the order."""

    def __init__(self, system: FlatSystem) -> None:
        self.system = system
        self.kernel: _MatrixKernel | None = None
        self.rest: Array | None = None

    def __call__(self, tau: Array) -> Array:
        assert self.kernel is not None and self.rest is not None
        d, later = self.system.components, tau > 0.0
        values = np.zeros((tau.size, self.system.size // d, d), self.system.dtype)
        values[~later] = self.system.initial[0].reshape(-1, d)
        parts = [(number + 1.0, value.reshape(-1, d)) for number, value in enumerate(self.system.initial)]
        for beta, value in (*parts, (self.kernel.alpha + 1.0, self.rest)):
            values[later] += np.einsum("nij,bj->nbi", self.kernel(tau[later], beta), value)
        return values.reshape(tau.size, -1).T


def _steps(system: FlatSystem, kernel: _MatrixKernel, mesh: Array, beginning: _Beginning) -> Iterator[Array]:
    count, d = len(mesh) - 1, system.components
    matrix, step = kernel.matrix, float(mesh[1])
    predictor = kernel.rectangle(step, count)
    corrector, first = kernel.trapezoid(step, count)
    free = np.zeros((count + 1, system.size // d, d), system.dtype)  # the solution without g
    for number, value in enumerate(system.initial):
        functions = np.empty((count + 1, d, d), kernel.matrix.dtype)
        functions[0] = np.eye(d) if number == 0 else 0.0
        functions[1:] = kernel(mesh[1:], number + 1.0)
        free += np.einsum("nij,bj->nbi", functions, value.reshape(-1, d))
    rest = np.zeros_like(free)  # values of g

    def residual(tau: float, y: Array) -> Array:
        try:
            return np.asarray(system(tau, y.reshape(-1)).reshape(-1, d) - y @ matrix.T)
        except NotFiniteError as error:
            raise StepError(f"{error}: take a smaller step, or check the right-hand side there.") from None

    rest[0] = residual(0.0, free[0])
    beginning.kernel, beginning.rest = kernel, rest[0]
    for n in range(1, count + 1):
        past = rest[:n]
        predicted = free[n] + np.einsum("kij,kbj->bi", predictor[n - 1 :: -1], past, optimize=True)
        known = free[n] + past[0] @ first[n].T
        if n > 1:
            known = known + np.einsum("kij,kbj->bi", corrector[n - 1 : 0 : -1], past[1:], optimize=True)
        y = known + residual(mesh[n], predicted) @ corrector[0].T
        rest[n] = residual(mesh[n], y)
        yield y.reshape(-1)


class _MatrixKernel:
    r"""Functions :math:`u^{\beta-1} E_{\alpha,\beta}(A u^\alpha)` of one matrix A at many times u."""

    def __init__(self, matrix: Array, alpha: float) -> None:
        self.matrix, self.alpha = matrix, alpha
        self.real = matrix.dtype.kind != "c"
        self.values: Array | None = None
        if np.array_equal(matrix, matrix.conj().T):
            values, vectors = np.linalg.eigh(matrix)
            self.values, self.left, self.right = values.astype(complex), vectors, vectors.conj().T
            return
        values, vectors = np.linalg.eig(matrix)
        if np.linalg.cond(vectors) <= _MAX_CONDITION:
            self.values, self.left, self.right = values.astype(complex), vectors, np.linalg.inv(vectors)

    def __call__(self, u: Array, beta: float) -> Array:
        """The kernel at times u, shape (len(u), d, d)."""
        u = np.asarray(u, dtype=float)
        power = (u ** (beta - 1.0))[:, np.newaxis, np.newaxis]
        if self.values is None:
            return np.asarray(
                power * mittag_leffler_matrix(self.matrix * (u**self.alpha)[:, None, None], self.alpha, beta)
            )
        z = np.multiply.outer(u**self.alpha, self.values)
        if np.all(self.values.imag == 0.0):
            z = z.real
        functions = mittag_leffler(z, self.alpha, beta, backend="numpy")
        made = (self.left * functions[:, np.newaxis, :]) @ self.right
        return np.asarray(power * (made.real if self.real else made))

    def rectangle(self, step: float, count: int) -> Array:
        """Weights of the product rectangle; the k-th is for a value k + 1 steps back. Shape (count, d, d)."""
        integrals = self(step * np.arange(count + 1.0)[1:], self.alpha + 1.0)
        return np.concatenate([integrals[:1], np.diff(integrals, axis=0)])

    def trapezoid(self, step: float, count: int) -> tuple[Array, Array]:
        """Weights of the product trapezoid for k = 0 .. count steps back, and of the first value after k steps."""
        k = np.arange(count + 2.0)
        once = np.zeros((count + 2, *self.matrix.shape), self.matrix.dtype)
        twice = np.zeros_like(once)
        once[1:], twice[1:] = self(step * k[1:], self.alpha + 1.0), self(step * k[1:], self.alpha + 2.0)
        weights = np.empty((count + 1, *self.matrix.shape), self.matrix.dtype)
        weights[0] = twice[1] / step
        weights[1:] = (twice[2:] - 2.0 * twice[1:-1] + twice[:-2]) / step
        # The first value has half a hat function: the rest of the whole integral, or by quadrature at long distances.
        first = once[:-1] - (twice[:-1] - np.concatenate([np.zeros_like(twice[:1]), twice[:-2]])) / step
        if count >= _FAR:
            far = k[_FAR : count + 1]
            rising = self._quadrature(far - 1.0, step, lambda x: x)
            weights[_FAR:] = rising + self._quadrature(far, step, lambda x: 1.0 - x)
            first[_FAR:] = rising
        first[0] = 0.0
        return weights, first

    def _quadrature(self, begin: Array, step: float, hat: Callable[[Array], Array]) -> Array:
        u = step * (begin[:, np.newaxis] + _POINTS)
        kernel = self(u.reshape(-1), self.alpha).reshape(*u.shape, *self.matrix.shape)
        return np.asarray(np.einsum("q,kqij->kij", step * _WEIGHTS * hat(_POINTS), kernel))


def _matrix_kernel(matrix: Any, alpha: float) -> _MatrixKernel:
    """The kernel of a square matrix, real or complex."""
    matrix = np.asarray(matrix)
    return _MatrixKernel(matrix.astype(np.complex128 if matrix.dtype.kind == "c" else np.float64), alpha)
