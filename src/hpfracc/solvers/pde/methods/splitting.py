"""Splitting into the linear part and the reaction: Strang's method of order 2, Yoshida's of order 4."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from hpfracc._arrays import to_host
from hpfracc.solvers.pde.method import (
    EvolutionMethod,
    ExplicitPart,
    needs_order_one,
    register_evolution_method,
    time_steps,
)
from hpfracc.solvers.pde.problem import EvolutionProblem

Array = np.ndarray[Any, Any]

#: Maps (length, u at t, t) to u at t + length under the reaction alone.
Flow = Callable[[float, Any, float], Any]

_CUBE = 2.0 ** (1.0 / 3.0)
#: The lengths of Yoshida's three steps; the second runs backwards in time.
_OUTER, _INNER = 1.0 / (2.0 - _CUBE), -_CUBE / (2.0 - _CUBE)
#: Largest deviation of a reaction from a pure phase rotation, relative to its size.
_PHASE = 1e-12


class _Splitting(EvolutionMethod):
    """The common part: the flows of the two parts."""

    #: Lengths of the symmetric steps, as multiples of h.
    lengths: ClassVar[tuple[float, ...]]

    def refuses(self, problem: EvolutionProblem) -> str | None:
        """Refuses other orders than 1, and operators that are not diagonalised."""
        return needs_order_one(self.name, problem, diagonal=True)

    def forecast(self, problem: EvolutionProblem, steps: int) -> int:
        """The factors and eight states."""
        symbol = problem.space.symbol
        table = math.prod(symbol.shape) * (16 if problem.xp.is_complex(symbol) else 8)
        return int((1 + len(self.lengths)) * table) + 8 * problem.itemsize * math.prod(problem.state_shape)

    def advance(self, problem: EvolutionProblem, mesh: Array) -> Iterator[Any]:
        """Half a linear step, a reaction, half a linear step; adjacent halves within a step are merged."""
        space, xp = problem.space, problem.xp
        flow = reaction_flow(problem)
        u = problem.u0
        kept: dict[float, Any] = {}

        def linear(length: float, values: Any) -> Any:
            factor = kept.get(length)
            if factor is None:
                if len(kept) > 8:
                    kept.clear()
                factor = kept[length] = xp.exp(length * space.symbol)
            return space.backward(factor * space.forward(values))

        for begin, step in time_steps(mesh):
            t, held = begin, 0.0
            for length in self.lengths:
                u = linear((held + 0.5 * length) * step, u)
                u = flow(length * step, u, t)
                t += length * step
                held = 0.5 * length
            u = linear(held * step, u)
            yield u


@final
@register_evolution_method
@dataclass(frozen=True, slots=True)
class Strang(_Splitting):
    r"""Strang's splitting, :math:`e^{hA/2}\, \Phi_h\, e^{hA/2}`, of order 2.

    The linear part is exact, in eigenfunctions. So is the reaction if it only rotates phases, :math:`-i\,\phi(|u|,
    x)\,u` with real :math:`\phi`: then the norm is conserved to rounding, as Schrödinger equations require. Other
    reactions take a step of the classical Runge-Kutta method.

    References
    ----------
    W. Bao, S. Jin, P. A. Markowich, "On time-splitting spectral approximations for the Schrödinger equation in the
    semiclassical regime", J. Comput. Phys. 175, 2002.
    """

    name: ClassVar[str] = "strang"
    order: ClassVar[str] = "2"
    lengths: ClassVar[tuple[float, ...]] = (1.0,)

    def reason(self, problem: EvolutionProblem) -> str:
        """For Schrödinger equations at low accuracy."""
        return "the equation conserves the norm, and splitting keeps that to rounding"


@final
@register_evolution_method
@dataclass(frozen=True, slots=True)
class Yoshida4(_Splitting):
    """Yoshida's composition of three Strang steps, of order 4; the middle one runs backwards in time.

    For Schrödinger equations, whose linear part is reversible. Diffusion is not, and is refused.

    References
    ----------
    H. Yoshida, "Construction of higher order symplectic integrators", Phys. Lett. A 150, 1990.
    """

    name: ClassVar[str] = "yoshida4"
    order: ClassVar[str] = "4"
    lengths: ClassVar[tuple[float, ...]] = (_OUTER, _INNER, _OUTER)

    def refuses(self, problem: EvolutionProblem) -> str | None:
        """Refuses diffusion, which cannot run backwards in time."""
        reason = _Splitting.refuses(self, problem)
        if reason is not None:
            return reason
        if not _is_reversible(problem):
            return "method='yoshida4' runs backwards in time, which diffusion cannot; use 'strang' or 'etdrk4'"
        return None

    def convergence(self, problem: EvolutionProblem) -> float:
        """4."""
        return 4.0

    def reason(self, problem: EvolutionProblem) -> str:
        """For Schrödinger equations."""
        return "the equation conserves the norm, and splitting of order 4 keeps that to rounding"


def reaction_flow(problem: EvolutionProblem) -> Flow:
    """The exact flow of a reaction that rotates phases, the identity without a reaction, else a Runge-Kutta step."""
    explicit = ExplicitPart(problem)
    if explicit.empty:
        return lambda length, u, t: u
    if turns_phases(problem):
        reaction, xp = problem.reaction, problem.xp
        assert reaction is not None

        def turned(length: float, u: Any, t: float) -> Any:
            rate = _rate(reaction(t + 0.5 * length, u), u).imag
            return u * xp.unit(length * rate)

        return turned

    def runge_kutta(length: float, u: Any, t: float) -> Any:
        one = explicit(t, u)
        two = explicit(t + 0.5 * length, u + 0.5 * length * one)
        three = explicit(t + 0.5 * length, u + 0.5 * length * two)
        four = explicit(t + length, u + length * three)
        return u + length / 6.0 * (one + 2.0 * (two + three) + four)

    return runge_kutta


def turns_phases(problem: EvolutionProblem) -> bool:
    """Whether the reaction is an imaginary multiple of u that depends on the modulus alone, tested at two states."""
    if problem.reaction is None or problem.forced or not problem.xp.is_complex(problem.u0):
        return False
    xp, u = problem.xp, problem.xp.stop_gradient(problem.u0)
    rates = []
    for angle in (0.0, 1.0):
        turned = u * complex(math.cos(angle), math.sin(angle))
        rates.append(_rate(problem.reaction(problem.t0, turned), turned))
    size = float(xp.abs(rates[0]).max())
    off = float(xp.abs(rates[0].real).max()), float(xp.abs(rates[1] - rates[0]).max())
    return max(off) <= _PHASE * size


def conserves_norm(problem: EvolutionProblem) -> bool:
    """Whether splitting conserves the norm: a Schrödinger equation, linear or with a reaction that rotates phases."""
    if problem.space.symbol is None or problem.forced or not problem.xp.is_complex(problem.u0):
        return False
    return _is_reversible(problem) and (problem.linear or turns_phases(problem))


def _is_reversible(problem: EvolutionProblem) -> bool:
    """Whether the linear part rotates phases alone."""
    symbol = to_host(problem.xp.stop_gradient(problem.space.symbol))
    return bool(np.abs(np.real(symbol)).max() <= 1e-12 * np.abs(symbol).max())


def _rate(rest: Any, u: Any) -> Any:
    """``rest / u``, zero where u is zero."""
    square = u.real**2 + u.imag**2
    zero = square == 0.0
    return rest * u.conj() / (square + 1.0 * zero)
