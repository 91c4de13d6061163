r"""The Doss-Sussmann method: alternates the flows of the noise and of the drift.

With one noise the solution is a function of the current value of the noise and of an ordinary equation [1], so it
exists for every H. A step integrates :math:`y' = f(t, y)` over half a step, :math:`dy/dz = g(t, y)` along the
increment, and the drift again. The flow of the noise is computed to 11 digits, by extrapolation of the midpoint rule
[2]: rough increments are large, and the errors of a fixed rule add up to infinity below H = 1/6. If f and g commute,
the only other error is that of the fourth-order Runge-Kutta method along the drift.

JAX integrates each increment in four parts; a path that has not converged then is nan.

References
----------
1. H. Doss, "Liens entre equations differentielles stochastiques et ordinaires", Ann. Inst. H. Poincare 13, 1977;
   H. J. Sussmann, Ann. Probab. 6, 1978.
2. E. Hairer, S. P. Norsett, G. Wanner, "Solving Ordinary Differential Equations I", Springer, 1993, II.9.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, final

from hpfracc._xp import Namespace
from hpfracc.solvers.sde.methods.method import Carry, PathMethod, Weights
from hpfracc.solvers.sde.problem import NoisyProblem, Traits
from hpfracc.solvers.tensors.loops import iterate

#: Relative error of the flow along one increment, rows of the extrapolation, and maximum number of halvings.
_TOLERANCES = {"float64": 1e-11, "float32": 1e-5}
_MAX_ROWS, _MAX_HALVINGS = 8, 8
#: Parts of an increment in JAX, where their number cannot depend on values.
_FIXED_PARTS = 4

Change = Callable[[Any], Any]


@final
class DossSussmann(PathMethod):
    """For one noise per component, or one for all."""

    name = "doss_sussmann"
    order = "that of the drift's splitting, for every H; exact in the noise"

    def refuses(self, traits: Traits) -> str | None:
        """Does not support jumps, several shared noises, or Ito equations."""
        if traits.jumps:
            return "the Doss-Sussmann method needs continuous noise; with jumps use method='euler'"
        if not traits.scalar:
            return (
                "the Doss-Sussmann method takes one noise for all components, or one for each that depends on "
                "that component only; use method='second_order'"
            )
        if traits.interpretation == "ito" and not traits.additive:
            return "the Doss-Sussmann method gives the Stratonovich solution; for Ito use method='second_order'"
        return None

    def advance(self, problem: NoisyProblem, weights: Weights, t: Any, h: Any, carry: Carry, dz: Any) -> Carry:
        """One step."""
        (y,) = carry
        middle = t + 0.5 * h

        def drift(y: Any) -> Any:
            return 0.5 * h * problem.drift(middle, y)

        def noise(y: Any) -> Any:
            return problem.apply(problem.diffusion(middle, y), dz)

        moved = _runge_kutta(drift, y)
        return (_runge_kutta(drift, _flow(problem.xp, noise, moved)),)


def _flow(xp: Namespace, change: Change, y: Any) -> Any:
    """The flow for a time of 1."""
    if xp.library != "jax":
        return _halved(xp, change, y, 0)

    def part(carry: Carry) -> Carry:
        value, found = _extrapolated(xp, lambda y: change(y) / _FIXED_PARTS, carry[0])
        return (xp.where(found[:, None], value, math.nan),)

    return iterate(xp, _FIXED_PARTS, part, (y,))[0]


def _halved(xp: Namespace, change: Change, y: Any, depth: int) -> Any:
    """The flow for a time of 1, in halves for paths that do not converge at once."""
    value, found = _extrapolated(xp, change, y)
    if depth >= _MAX_HALVINGS or bool(found.all()):
        return value
    finer = y
    for _ in range(2):
        finer = _halved(xp, lambda y: 0.5 * change(y), finer, depth + 1)
    return xp.where(found[:, None], value, finer)


def _extrapolated(xp: Namespace, change: Change, y: Any) -> tuple[Any, Any]:
    """The flow for a time of 1, by the midpoint rule in 2, 4, 6, ... parts, extrapolated; and whether paths converged.

    A path keeps its converged value, so that it does not depend on the others. Non-finite paths count as converged.
    """
    tolerance = _TOLERANCES[str(y.dtype).rpartition(".")[2]]
    first = change(y)
    table: list[Any] = []
    best: Any = None
    found: Any = None
    for row, parts in enumerate(range(2, 2 * _MAX_ROWS + 1, 2)):

        def double(carry: Carry, parts: int = parts) -> Carry:
            before, now = carry
            return now, before + 2.0 / parts * change(now)

        before, now = iterate(xp, parts - 1, double, (y, y + first / parts))
        # Gragg's smoothing step keeps the expansion in squares.
        value = 0.5 * (before + now + change(now) / parts)
        line = [value]
        for k in range(1, row + 1):
            ratio = (parts / (parts - 2 * k)) ** 2
            line.append(line[-1] + (line[-1] - table[k - 1]) / (ratio - 1.0))
        table = line
        if not row:
            continue
        newest = line[-1]
        close = (xp.abs(newest - line[-2]) <= tolerance * (xp.abs(y) + xp.abs(newest))).all(-1)
        close = close | ~xp.isfinite(newest).all(-1)
        best = newest if found is None else xp.where(found[:, None], best, newest)
        found = close if found is None else found | close
        if xp.library != "jax" and bool(found.all()):
            break
    return best, found


def _runge_kutta(change: Change, y: Any) -> Any:
    """A Runge-Kutta step of length 1."""
    first = change(y)
    second = change(y + 0.5 * first)
    third = change(y + 0.5 * second)
    fourth = change(y + third)
    return y + (first + 2.0 * second + 2.0 * third + fourth) / 6.0
