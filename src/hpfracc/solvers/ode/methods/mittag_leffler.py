"""The Mittag-Leffler exponential integrator, for linear and semilinear systems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, final

import numpy as np
from scipy import special

from hpfracc._reading import array
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.solvers.ode.fixed.walk import solve_on_mesh
from hpfracc.solvers.ode.method import Method, register_method
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult
from hpfracc.solvers.stepping.jacobian import is_sparse
from hpfracc.solvers.stepping.newton import Newton
from hpfracc.solvers.stepping.options import Options
from hpfracc.solvers.stepping.system import StepFailedError
from hpfracc.special import mittag_leffler, mittag_leffler_matrix

Array = np.ndarray[Any, Any]

#: Change of the state, relative to it, by which the Jacobian is found.
_SHARE = 6e-6
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
    search_limit: ClassVar[int] = 1 << 14
    takes: ClassVar[frozenset[str]] = frozenset({"order 1", "orders above 1"})

    def promised_order(self, alpha: float, *, rough: bool = False) -> float:
        """Of the part that is not linear."""
        return min(2.0, 1.0 + alpha)

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """Predict and correct on a uniform grid."""
        beginning = _Beginning(problem)
        steps = partial(_steps, problem, self._matrix, beginning)
        return solve_on_mesh(problem, options, self.name, steps, beginning=beginning)

    def _matrix(self, problem: Problem, newton: Newton) -> Array:
        d = problem.shape[-1]
        if self.linear is None:
            y = np.asarray(problem.y0).reshape(-1)
            newton.jacobians += 1
            value = newton.evaluate(problem.t0, y)
            # Central differences: what the matrix lacks of a stiff linear part is left to the corrector.
            ahead, behind = (newton.slopes(problem.t0, y, value, share) for share in (_SHARE, -_SHARE))
            jacobians = 0.5 * (ahead + behind)
            return np.asarray(jacobians.toarray() if is_sparse(jacobians) else jacobians.mean(axis=0))
        matrix: Array = array("linear", self.linear)
        if matrix.shape != (d, d) or not np.all(np.isfinite(matrix)):
            raise ShapeError(f"linear has shape {matrix.shape}: give ({d}, {d}), of finite numbers")
        if matrix.dtype.kind == "c" and problem.dtype.kind != "c":
            raise InvalidInputError("linear is complex and y0 real; give y0 as complex numbers")
        return matrix.astype(np.complex128 if matrix.dtype.kind == "c" else np.float64)


class _Beginning:
    """The solution with g frozen at t0: the non-smooth part of the start, up to twice the order."""

    kernel: _MatrixKernel
    rest: Array  # g at t0

    def __init__(self, problem: Problem) -> None:
        self.initial = [np.asarray(each).reshape(-1, problem.shape[-1]) for each in (problem.y0, *problem.dy0)]
        self.alpha = float(problem.orders.single or 0.0)

    def free(self, tau: Array) -> Array:
        """The solution without g, shape (times, members, d)."""
        values = np.zeros((tau.size, *self.initial[0].shape), self.initial[0].dtype)
        values[tau == 0.0] = self.initial[0]
        for number, value in enumerate(self.initial):
            values[tau > 0.0] += np.einsum("nij,bj->nbi", self.kernel(tau[tau > 0.0], number + 1.0), value)
        return values

    def __call__(self, tau: Array) -> Array:
        values = self.free(tau)
        values[tau > 0.0] += np.einsum("nij,bj->nbi", self.kernel(tau[tau > 0.0], self.alpha + 1.0), self.rest)
        return values.reshape(tau.size, -1).T


def _steps(
    problem: Problem, find: Callable[..., Array], beginning: _Beginning, newton: Newton, mesh: Array
) -> Iterator[Array]:
    count, step, matrix = len(mesh) - 1, float(mesh[1]), find(problem, newton)
    if not np.all(np.isfinite(matrix)):
        raise StepFailedError(f"The Jacobian is not finite at t = {problem.t0:g}: check fun and y0, or give linear.")
    kernel = beginning.kernel = _MatrixKernel(matrix, beginning.alpha)
    predictor = kernel.rectangle(step, count)
    corrector, first = kernel.trapezoid(step, count)
    free = beginning.free(mesh)
    rest = np.zeros_like(free)  # values of g

    def residual(tau: float, y: Array) -> Array:
        return np.asarray(newton.evaluate(problem.t0 + tau, y.reshape(-1)).reshape(y.shape) - y @ matrix.T)

    rest[0] = residual(0.0, free[0])
    beginning.rest = rest[0]
    for n in range(1, count + 1):
        past = rest[:n]
        predicted = free[n] + np.einsum("kij,kbj->bi", predictor[n - 1 :: -1], past, optimize=True)
        known = free[n] + past[0] @ first[n].T
        if n > 1:
            known = known + np.einsum("kij,kbj->bi", corrector[n - 1 : 0 : -1], past[1:], optimize=True)
        y = known + residual(mesh[n], predicted) @ corrector[0].T
        rest[n] = residual(mesh[n], y)
        yield y.reshape(-1) if np.isfinite(rest[n]).all() else np.full(y.size, np.nan)


class _MatrixKernel:
    r"""Functions :math:`u^{\beta-1} E_{\alpha,\beta}(A u^\alpha)` of one matrix A at many times u."""

    def __init__(self, matrix: Array, alpha: float) -> None:
        self.matrix, self.alpha, self.real = matrix, alpha, matrix.dtype.kind != "c"
        hermitian = np.array_equal(matrix, matrix.conj().T)
        values, self.left = np.linalg.eigh(matrix) if hermitian else np.linalg.eig(matrix)
        diagonal = hermitian or np.linalg.cond(self.left) <= _MAX_CONDITION
        self.values: Array | None = values.astype(complex) if diagonal else None
        self.right = np.linalg.inv(self.left) if diagonal else self.left

    def __call__(self, u: Array, beta: float) -> Array:
        """The kernel at times u, shape (len(u), d, d)."""
        u = np.asarray(u, dtype=float)
        power = (u ** (beta - 1.0))[:, np.newaxis, np.newaxis]
        if self.values is None:
            matrices = self.matrix * (u**self.alpha)[:, None, None]
            return np.asarray(power * mittag_leffler_matrix(matrices, self.alpha, beta))
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
