"""PECE: predict with the product rectangle, correct with the product trapezoid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode.fixed.scheme import Scheme, Tableau, add_first_value, rectangle_weights, trapezoid_weights
from hpfracc.solvers.ode.fixed.solve import solve_fixed
from hpfracc.solvers.ode.fixed.walk import Guard
from hpfracc.solvers.ode.method import Method, register_method
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult
from hpfracc.solvers.ode.tensors.rule import TensorRule, check_adjoint
from hpfracc.solvers.ode.tensors.solve import refuse_arrays
from hpfracc.solvers.ode.tensors.stability import solve_explicit

__all__ = ["PECE"]

Array = np.ndarray[Any, Any]


@register_method
@final
@dataclass(frozen=True, slots=True)
class PECE(Method):
    r"""The predictor-corrector method of Diethelm, Ford and Freed: predict, evaluate, correct, evaluate.

    .. math::
        y_n^P &= T(t_n) + \frac{h^\alpha}{\Gamma(\alpha+1)} \sum_{j=0}^{n-1} b_{n-1-j} f_j, \\
        y_n &= T(t_n) + \frac{h^\alpha}{\Gamma(\alpha+2)} \Big[ c_n f_0 + \sum_{j=1}^{n-1} a_{n-j} f_j + f(t_n, y_n^P)
        \Big]

    Order :math:`\min(2, 1+\alpha)` at a fixed t with one correction, if f(t, y(t)) is smooth or starts like
    :math:`t^\alpha`; each further correction adds alpha, up to 2. 1 + ``corrections`` evaluations per step. Not for
    stiff equations.

    PyTorch and JAX: ``fun(t, y)`` takes and returns tensors of shape (..., d), so an ensemble is one call. The order
    may be a tensor that broadcasts to the state, one for each member. The contribution of a block of steps to later
    ones is one product with a Toeplitz matrix, or an FFT. Derivatives with respect to ``y0``, ``dy0``, the order, and
    everything that ``fun`` depends on are those of the discrete solution, in O(N d) memory. For JAX the solve is one
    compiled program, cached for a function while the values that it captures stay the same. If these include an object
    or a dictionary, the function is compiled at each call, unless the caller wraps it in ``jax.jit``. Parameters passed
    as ``args`` need no recompilation.

    Parameters
    ----------
    corrections : int, default 1
        Number of corrector iterations.
    adjoint : {"auto", "recomputed", "stored", "direct"}
        How gradients of tensors and JAX arrays are computed: by recomputing blocks of steps, by the transposed steps
        from stored states, or by the library's automatic differentiation. All are gradients of the discrete solution.
        ``"auto"`` takes ``"stored"`` for PyTorch, which takes the least time and memory, and ``"recomputed"`` where the
        transposed steps do not serve: for complex states, if ``fun`` draws random numbers or uses tensors with a
        gradient that were computed outside it, and in JAX, whose forward mode and captured arrays they would exclude.

    References
    ----------
    K. Diethelm, N. J. Ford, A. D. Freed, Nonlinear Dyn. 29 (2002) 3-22; Numer. Algorithms 36 (2004) 31-52.
    """

    corrections: int = 1
    adjoint: str = "auto"

    name: ClassVar[str] = "pece"
    aliases: ClassVar[tuple[str, ...]] = ("predictor_corrector", "adams", "abm")
    order: ClassVar[str] = "min(2, 1 + corrections alpha)"
    libraries: ClassVar[frozenset[str]] = frozenset({"numpy", "torch", "jax"})

    def __post_init__(self) -> None:
        if isinstance(self.corrections, bool) or not isinstance(self.corrections, int) or self.corrections < 1:
            raise InvalidInputError(f"corrections={self.corrections!r} has to be a whole number of 1 or more")
        check_adjoint(self.adjoint)

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Requires a finite start and constant orders."""
        return refuse_arrays(problem, options, self.name, self.adjoint)

    def solve(
        self, problem: Problem, options: Options, *, guard: Guard | None = None, reason: str = "asked for"
    ) -> FODEResult:
        """Two history sums per step, which share the transforms of ``f``."""
        if problem.library != "numpy":
            return solve_explicit(problem, options, TensorRule(self.name, self.corrections, self.adjoint), self.scheme)
        return solve_fixed(problem, options, self.scheme, self.name, reason, guard=guard)

    @property
    def scheme(self) -> Scheme:
        """The weights."""
        return Scheme("corrected", _weights, _start, self.corrections)


def _weights(alpha: float, n: int) -> tuple[Array, Array]:
    return np.concatenate([[0.0], rectangle_weights(alpha, n)[: n - 1]]), trapezoid_weights(alpha, n)[0]


def _start(table: Tableau, evaluate: Callable[[float, Array], Array]) -> None:
    add_first_value(table, evaluate, 1)
