"""Exponential time differencing of order 4, for stiff linear terms with a reaction."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import numpy as np

from hpfracc._arrays import is_tracer, tracks_gradient
from hpfracc._xp import Namespace
from hpfracc.errors import HpfraccError, InvalidInputError
from hpfracc.solvers.pde.method import (
    EvolutionMethod,
    ExplicitPart,
    needs_order_one,
    register_evolution_method,
    time_steps,
)
from hpfracc.solvers.pde.problem import EvolutionProblem

Array = np.ndarray[Any, Any]

#: Number of terms in the series of phi_3, and the largest argument for which it is used: the next term is 1e-17 there.
_TERMS, _SMALL = 19, 1.0


#: With ``compile="auto"``: the number of values over all steps, or of steps, from which JAX compiles (a second or two).
_JAX_VALUES, _JAX_STEPS = 1e8, 1000


class _Factors(NamedTuple):
    """Factors of a step: exp(z), exp(z/2), and the weights of the stages."""

    whole: Any
    half: Any
    stage: Any
    first: Any
    middle: Any
    last: Any


#: Maps (t, h, values, coefficients, factors) to values and coefficients after a step; None if it cannot be compiled.
_Step = Callable[[float, float, Any, Any, _Factors], tuple[Any, Any] | None]


def phi_functions(xp: Namespace, z: Any) -> tuple[Any, Any, Any]:
    r""":math:`\varphi_1, \varphi_2, \varphi_3` of an array, without cancellation.

    .. math:: \varphi_1 = \frac{e^z - 1}{z}, \quad \varphi_2 = \frac{e^z - 1 - z}{z^2}, \quad
        \varphi_3 = \frac{e^z - 1 - z - z^2/2}{z^3}

    For :math:`|z| \le 1` by the series of :math:`\varphi_3`, with :math:`\varphi_2 = 1/2 + z \varphi_3` and
    :math:`\varphi_1 = 1 + z \varphi_2`; elsewhere by the quotients.
    """
    small = xp.abs(z) <= _SMALL
    near = xp.where(small, z, xp.zeros_like(z))
    series = 0.0 * near + 1.0 / math.factorial(_TERMS + 3)
    for k in range(_TERMS - 1, -1, -1):
        series = series * near + 1.0 / math.factorial(k + 3)
    two = 0.5 + near * series
    one = 1.0 + near * two
    far = xp.where(small, xp.ones_like(z), z)
    quotient_1 = (xp.exp(far) - 1.0) / far
    quotient_2 = (quotient_1 - 1.0) / far
    quotient_3 = (quotient_2 - 0.5) / far
    return (
        xp.where(small, one, quotient_1),
        xp.where(small, two, quotient_2),
        xp.where(small, series, quotient_3),
    )


@final
@register_evolution_method
@dataclass(frozen=True, slots=True)
class ETDRK4(EvolutionMethod):
    r"""Exponential Runge-Kutta method of Cox and Matthews: exact for the linear part, of order 4 for the rest.

    Needs a diagonalised discretisation in space and a reaction that is not stiff. Each step takes four evaluations of
    the reaction and four pairs of transforms. Boundary data that change in time, or a reaction that does not vanish at
    a Dirichlet boundary, reduce the order to 2 or 3 at large steps.

    References
    ----------
    1. S. M. Cox, P. C. Matthews, "Exponential time differencing for stiff systems", J. Comput. Phys. 176, 2002.
    2. A.-K. Kassam, L. N. Trefethen, "Fourth-order time-stepping for stiff PDEs", SIAM J. Sci. Comput. 26, 2005.
    """

    name: ClassVar[str] = "etdrk4"
    order: ClassVar[str] = "4; 2 to 3 with boundary data that change in time"
    compiles_tensors: ClassVar[bool] = True

    def refuses(self, problem: EvolutionProblem) -> str | None:
        """Refuses other orders than 1, and operators that are not diagonalised."""
        return needs_order_one(self.name, problem, diagonal=True)

    def convergence(self, problem: EvolutionProblem) -> float:
        """4."""
        return 4.0

    def forecast(self, problem: EvolutionProblem, steps: int) -> int:
        """Six tables of factors, during their computation or beside twelve states."""
        symbol = problem.space.symbol
        table = math.prod(symbol.shape) * (16 if problem.xp.is_complex(symbol) else 8)
        return int(max(16 * table, 6 * table + 12 * problem.itemsize * math.prod(problem.state_shape)))

    def reason(self, problem: EvolutionProblem) -> str:
        """The default at order 1."""
        return "at alpha = 1 with a diagonalised operator the linear part is exact and the rest of order 4"

    def advance(self, problem: EvolutionProblem, mesh: Array) -> Iterator[Any]:
        """Advances coefficients; the reaction is evaluated at values."""
        explicit = ExplicitPart(problem)
        u, c = problem.u0, problem.space.forward(problem.u0)
        factors: tuple[float, _Factors] | None = None
        plain: _Step = functools.partial(_step, problem, explicit)
        step = _jitted(problem, len(mesh) - 1) or plain
        for t, h in time_steps(mesh):
            if factors is None or factors[0] != h:
                factors = (h, _factors(problem.xp, problem.space.symbol, h))
            made = step(t, h, u, c, factors[1])
            if made is None:
                step = plain
                made = plain(t, h, u, c, factors[1])
            assert made is not None
            u, c = made
            yield u


def _step(
    problem: EvolutionProblem, explicit: ExplicitPart, t: Any, h: Any, u: Any, c: Any, f: _Factors
) -> tuple[Any, Any]:
    """Values and coefficients after a step."""
    space = problem.space

    def rest(t: Any, coefficients: Any) -> Any:
        return space.forward(explicit(t, space.backward(coefficients)))

    if explicit.empty:
        c = f.whole * c
        return space.backward(c), c
    n0 = space.forward(explicit(t, u))
    half = f.half * c
    a = half + f.stage * n0
    na = rest(t + 0.5 * h, a)
    nb = rest(t + 0.5 * h, half + f.stage * na)
    nc = rest(t + h, f.half * a + f.stage * (2.0 * nb - n0))
    c = f.whole * c + f.first * n0 + f.middle * (na + nb) + f.last * nc
    return space.backward(c), c


def _jitted(problem: EvolutionProblem, steps: int) -> _Step | None:
    """The step, compiled by JAX with its transforms and the reaction; None if that is not wanted or does not pay."""
    if problem.xp.library != "jax" or problem.compile is False or problem.reaction is None or problem.varies:
        return None
    if is_tracer(problem.u0) or any(tracks_gradient(one) for one in (problem.u0, problem.space.symbol)):
        return None
    values = float(steps) * math.prod(problem.state_shape)
    if problem.compile is not True and values < _JAX_VALUES and steps < _JAX_STEPS:
        return None
    explicit = ExplicitPart(problem, problem.known(problem.t0))
    run = sys.modules["jax"].jit(functools.partial(_step, problem, explicit))

    def step(t: float, h: float, u: Any, c: Any, f: _Factors) -> tuple[Any, Any] | None:
        counted = dict(problem.stats)
        try:
            found: tuple[Any, Any] = run(t, h, u, c, f)
        except HpfraccError:
            raise
        except Exception as error:  # anything a function may raise under tracing
            if problem.compile is True:
                raise InvalidInputError(
                    f"compile=True: JAX cannot trace the reaction ({type(error).__name__}: {error}); write it with "
                    "jax.numpy alone, or leave compile out"
                ) from error
            problem.notes.append(
                f"the reaction cannot be traced by JAX ({type(error).__name__}): steps run operation by operation"
            )
            return None
        finally:
            problem.stats.clear()
            problem.stats.update(counted)
        problem.stats["reactions"] += 4
        problem.stats["compiled"] = True
        return found

    return step


def _factors(xp: Namespace, symbol: Any, h: float) -> _Factors:
    z = h * symbol
    one, two, three = phi_functions(xp, z)
    return _Factors(
        whole=xp.exp(z),
        half=xp.exp(0.5 * z),
        stage=0.5 * h * phi_functions(xp, 0.5 * z)[0],
        first=h * (one - 3.0 * two + 4.0 * three),
        middle=h * (2.0 * two - 4.0 * three),
        last=h * (4.0 * three - two),
    )
