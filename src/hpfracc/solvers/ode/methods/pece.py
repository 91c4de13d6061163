"""PECE: predict with the product rectangle, correct with the product trapezoid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from hpfracc._reading import whole
from hpfracc._xp import Namespace
from hpfracc.solvers.ode.fixed.scheme import delayed, rectangle_weights, trapezoid_weights
from hpfracc.solvers.ode.fixed.solve import StepMethod
from hpfracc.solvers.ode.method import register_method


@register_method
@final
@dataclass(frozen=True, slots=True)
class PECE(StepMethod):
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

    name: ClassVar[str] = "pece"
    aliases: ClassVar[tuple[str, ...]] = ("predictor_corrector", "adams", "abm")
    order: ClassVar[str] = "min(2, 1 + corrections alpha)"

    def __post_init__(self) -> None:
        whole("corrections", self.corrections, least=1)
        StepMethod.__post_init__(self)

    def promised_order(self, alpha: float, *, rough: bool = False) -> float:
        """One correction more adds alpha, up to 2."""
        return min(2.0, 1.0 + self.corrections * alpha)

    def weights(self, xp: Namespace, alpha: Any, n: int) -> tuple[tuple[Any, ...], Any]:
        """The product rectangle predicts, the product trapezoid corrects."""
        weights, first = trapezoid_weights(alpha, n, xp)
        return (delayed(xp, rectangle_weights(alpha, n, xp)), weights), first
