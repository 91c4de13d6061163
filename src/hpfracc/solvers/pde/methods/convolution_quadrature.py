"""Convolution quadrature by backward differences, corrected in the first steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, final

import numpy as np

from hpfracc import _reading
from hpfracc._xp import Namespace
from hpfracc.history.blocks import TRANSFORMS_FROM, DirectHistory, ToeplitzHistory, steps_together
from hpfracc.operators.rules.quadrature import multistep_weights
from hpfracc.solvers.pde.changes import behind_start
from hpfracc.solvers.pde.method import EvolutionMethod, register_evolution_method
from hpfracc.solvers.pde.nonlinear import ReactionSolver
from hpfracc.solvers.pde.problem import EvolutionProblem, Feature, StepForm, in_blocks

Array = np.ndarray[Any, Any]

#: For each order k: ``CORRECTIONS[k][l][n-1]`` times ``tau^l F^(l)(0)`` is added at step n.
CORRECTIONS: dict[int, tuple[tuple[Fraction, ...], ...]] = {
    2: ((Fraction(1, 2),),),
    3: ((Fraction(11, 12), Fraction(-5, 12)), (Fraction(1, 12),)),
    4: ((Fraction(31, 24), Fraction(-7, 6), Fraction(3, 8)), (Fraction(1, 6), Fraction(-1, 12))),
    5: (
        (Fraction(1181, 720), Fraction(-177, 80), Fraction(341, 240), Fraction(-251, 720)),
        (Fraction(59, 240), Fraction(-29, 120), Fraction(19, 240)),
        (Fraction(1, 240), Fraction(-1, 240)),
        (Fraction(-1, 720),),
    ),
}
#: The largest order of the derivative for which BDFk is A(theta)-stable enough.
LARGEST_ORDER = {2: 2.0, 3: 1.91, 4: 1.68, 5: 1.40}


@final
@register_evolution_method
@dataclass(frozen=True, slots=True)
class CorrectedQuadrature(EvolutionMethod):
    r"""Corrected BDF2 to BDF5 on uniform steps: of order k for t > 0 with any data, for alpha in (0, 2).

    With :math:`w = u - u_0 - t u_0'` and the coefficients :math:`b_j` of :math:`(\delta(\zeta)/\tau)^\alpha`,
    :math:`\delta(\zeta) = \sum_{j \le k} (1-\zeta)^j / j`,

    .. math:: \sum_{j \le n} b_{n-j} w_j = A w_n + F(t_n) + \sum_\ell c_{\ell,n} \tau^\ell F^{(\ell)}(t_0), \qquad
        F = A u_0 + (t - t_0) A u_0' + f.

    Without the corrections at the first k - 1 steps every k has order 1. The error constant grows as t goes to t0. With
    a given step the first few steps are less accurate; without one they are solved separately, in shorter intervals.
    Reactions reduce the order to :math:`\min(k, 1 + 2\alpha)`.

    Parameters
    ----------
    k : {2, 3, 4, 5}
        The order. Stable up to alpha = 2, 1.91, 1.68, 1.40.

    References
    ----------
    C. Lubich, Numer. Math. 52 (1988) 129-145; B. Jin, B. Li, Z. Zhou, SIAM J. Sci. Comput. 39 (2017) A3129-A3152.
    """

    k: int = 2

    name: ClassVar[str] = "convolution_quadrature"
    order: ClassVar[str] = "k, for t > t0, on uniform steps"
    takes: ClassVar[frozenset[Feature]] = frozenset({Feature.DELAYS, Feature.INTEGRALS})

    def __post_init__(self) -> None:
        _reading.whole("CorrectedQuadrature: k", self.k, least=min(CORRECTIONS), most=max(CORRECTIONS))

    def refuses(self, problem: EvolutionProblem) -> str | None:
        """Refuses orders at which BDFk is unstable."""
        alpha = problem.alpha_value
        if alpha > LARGEST_ORDER[self.k] or alpha >= 2.0:
            return (
                f"BDF{self.k} is unstable at alpha={alpha:g}, above {LARGEST_ORDER[self.k]:g}; use a lower k, "
                "CorrectedQuadrature(2)"
            )
        return None

    def convergence(self, problem: EvolutionProblem) -> float:
        """The order of the formula, for linear equations; lower for data that start from infinity."""
        alpha, order = problem.alpha_value, float(self.k)
        if problem.start_power is not None:
            order = min(order, 1.0 + problem.start_power - alpha)
        if problem.integrals and problem.du0 is not None:
            order = min(order, 2.0 - max(each for _, each in problem.integrals))
        return order if problem.linear or math.isnan(alpha) else min(order, 1.0 + 2.0 * alpha)

    def history(self, problem: EvolutionProblem, steps: int) -> str:
        """By transforms for many steps, directly for few."""
        return "fft" if problem.xp.library == "numpy" and steps >= TRANSFORMS_FROM else "direct"

    def forecast(self, problem: EvolutionProblem, steps: int) -> int:
        """All steps, and their sums if these use transforms."""
        size = problem.itemsize * math.prod(problem.state_shape)
        if self.history(problem, steps) == "fft":
            return ToeplitzHistory.forecast(steps, size) + 8 * size
        block = steps_together(size, steps) * size if StepForm(problem).modal else 0
        return DirectHistory.forecast(steps, size, 4) + block + 8 * size + problem.space.step_bytes()

    def reason(self, problem: EvolutionProblem) -> str:
        """For diffusion-waves and several derivatives."""
        if problem.alpha_value > 1.0:
            return "alpha is above 1, for which corrected BDF2 is stable and of order 2"
        return "the equation has several derivatives in time, and corrected BDF2 has order 2 for t > t0"

    def advance(self, problem: EvolutionProblem, mesh: Array) -> Iterator[Any]:
        """Solve one linear or nonlinear equation per step."""
        form = StepForm(problem)
        return in_blocks(form, self._states(problem, form, mesh), len(mesh) - 1)

    def _states(self, problem: EvolutionProblem, form: StepForm, mesh: Array) -> Iterator[Any]:
        xp = problem.xp
        steps, tau = len(mesh) - 1, float((mesh[-1] - mesh[0]) / (len(mesh) - 1))
        weights = _weights(xp, problem.orders, self.k, tau, steps)
        start = form.encode(problem.u0)
        velocity = None if problem.du0 is None else form.encode(problem.du0)
        corrections = self._corrections(problem, form, start, velocity, mesh, tau)
        past: DirectHistory | ToeplitzHistory
        if self.history(problem, steps) == "fft":
            past = ToeplitzHistory(np.asarray(weights), steps, start)
        else:
            past = DirectHistory(_toeplitz_rows(xp, weights), steps, start, xp)
        solver = None if problem.linear else ReactionSolver(problem)
        # Integrals of u0 by the same weights, of ones that are corrected as in the terms of A u0.
        ones = np.append(0.0, np.ones(steps))
        ones[1 : self.k] += [float(one) for one in CORRECTIONS[self.k][0][:steps]]
        of_start = np.convolve(_weights(xp, problem.integrals, self.k, tau, steps), ones) if problem.integrals else None
        lead = form.apply(start)
        drift = None if velocity is None else form.apply(velocity)
        u, before = start, None
        for n in range(1, steps + 1):
            t = float(mesh[n])
            gone = t - float(mesh[0])
            own, history = past.begin(n)
            base = start if velocity is None else start + gone * velocity
            image = lead if drift is None else lead + gone * drift  # A base
            rhs: Any = 0.0 if history is None else -history
            for extra in (form.known(t), corrections.get(n)):
                if extra is not None:
                    rhs = rhs + extra
            if of_start is not None:
                rhs = rhs - of_start[n] * start
                for c, order in problem.integrals if velocity is not None else ():
                    rhs = rhs - c * gone ** (1.0 - order) / math.gamma(2.0 - order) * velocity
            if solver is None:
                w = form.solve(own, image + rhs, u - base)
                u = w + base
            else:
                whole = own * base + rhs
                guess = u if before is None else u + u - before
                before = u
                u = solver.solve(t, own, whole, guess)
                w = u - base
            past.remember(w)
            yield u

    def _corrections(
        self, problem: EvolutionProblem, form: StepForm, start: Any, velocity: Any, mesh: Array, tau: float
    ) -> dict[int, Any]:
        """The corrections of the first steps."""
        table = CORRECTIONS[self.k]
        points = min(self.k + 1, len(mesh)) if problem.varies and len(table) > 1 else 1
        begin = behind_start(problem, float(mesh[1]))
        values = [form.known(t) for t in [begin, *mesh[1:points].tolist()]]
        parts: list[Any] = [0.0] * len(table)
        if values[0] is not None:
            # tau^l f^(l)(t0) by finite differences of source and boundary data, of order k.
            inverse = np.linalg.inv(np.vander(np.arange(points, dtype=float), increasing=True))
            for number in range(min(len(table), points)):
                scale = (math.factorial(number) * inverse[number]).tolist()
                parts[number] = sum(factor * value for factor, value in zip(scale, values, strict=True))
        parts[0] = parts[0] + form.apply(start)
        if problem.reaction is not None:
            parts[0] = parts[0] + problem.reaction(begin, problem.u0)
        if velocity is not None and len(parts) > 1:
            parts[1] = parts[1] + tau * form.apply(velocity)
        found: dict[int, Any] = {}
        for numbers, part in zip(table, parts, strict=True):
            for n, factor in enumerate(numbers, 1):
                found[n] = found.get(n, 0.0) + float(factor) * part
        return found


def _weights(xp: Namespace, orders: tuple[tuple[Any, Any], ...], k: int, tau: float, steps: int) -> Any:
    r"""The coefficients of :math:`\sum_i c_i (\delta(\zeta)/\tau)^{\alpha_i}`."""
    log = xp.array(math.log(tau))
    return sum(c * xp.exp(-alpha * log) * multistep_weights(xp, alpha, steps + 1, k) for c, alpha in orders)


def _toeplitz_rows(xp: Namespace, weights: Any) -> Any:
    """``rows(first, stop)`` with ``A[n, k] = b[n - k]``."""

    def rows(first: int, stop: int) -> Any:
        lags = np.arange(first, stop)[:, None] - np.arange(1, stop)[None, :]
        found = weights[xp.asarray(np.maximum(lags, 0))] if xp.library != "numpy" else weights[np.maximum(lags, 0)]
        return found * xp.array((lags >= 0).astype(float))

    return rows
