"""Steps of exponential time differencing in few passes over the data, compiled by JAX or by PyTorch.

JAX compiles a whole step, including its transforms and the reaction. PyTorch compiles the sums between transforms, on
real views of complex coefficients, and the reaction if the user asks for it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

from hpfracc._arrays import is_tracer, tracks_gradient
from hpfracc.errors import HpfraccError, InvalidInputError
from hpfracc.solvers.pde.problem import EvolutionProblem

__all__ = ["FusedStep", "JittedStep", "fused_step"]

#: With ``compile="auto"``: the number of values over all steps, or of steps, from which JAX compiles (a second or two),
#: and the bytes of all states from which PyTorch compiles on a GPU (as long as some 20 s of steps). Rough figures.
_JAX_VALUES, _JAX_STEPS = 1e8, 1000
_TORCH_BYTES = 1e12


def stage_sum(c: Any, n: Any, half: Any, stage: Any) -> Any:
    """The state of a stage, from the state before the step."""
    return half * c + stage * n


def third_sum(a: Any, nb: Any, n0: Any, half: Any, stage: Any) -> Any:
    """The state of the last stage."""
    return half * a + stage * (2.0 * nb - n0)


def end_sum(c: Any, n0: Any, na: Any, nb: Any, nc: Any, whole: Any, first: Any, middle: Any, last: Any) -> Any:
    """The state after the step."""
    return whole * c + first * n0 + middle * (na + nb) + last * nc


def fused_step(problem: EvolutionProblem, steps: int) -> FusedStep | JittedStep | None:
    """The compiled step; None if steps are not compiled."""
    library, symbol = problem.xp.library, problem.space.symbol
    if library not in ("torch", "jax") or problem.compile is False or problem.reaction is None:
        return None
    if any(tracks_gradient(one) for one in (problem.u0, symbol)):
        return None
    asked = problem.compile is True
    values = float(steps) * math.prod(problem.state_shape)
    if library == "jax":
        if is_tracer(problem.u0) or problem.varies:
            return None
        return JittedStep(problem) if asked or values >= _JAX_VALUES or steps >= _JAX_STEPS else None
    if problem.xp.is_complex(symbol):
        return None  # PyTorch generates no code for sums of complex numbers
    on_gpu = problem.u0.device.type == "cuda"
    return FusedStep(problem) if asked or (on_gpu and values * problem.itemsize >= _TORCH_BYTES) else None


class JittedStep:
    """A whole step, compiled by JAX.

    Parameters
    ----------
    problem : EvolutionProblem
        With a reaction, and with data that are constant in time.
    """

    def __init__(self, problem: EvolutionProblem) -> None:
        self.problem = problem
        self._known = problem.known(problem.t0)
        self._run: Any = None

    def __call__(self, t: float, h: float, u: Any, c: Any, f: Any) -> tuple[Any, Any] | None:
        """Values and coefficients after the step; None if the reaction cannot be traced."""
        problem = self.problem
        if self._run is None:
            self._run = sys.modules["jax"].jit(self._step)
        counted = dict(problem.stats)
        try:
            found: tuple[Any, Any] = self._run(t, h, u, c, tuple(f), self._known)
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
        problem.count("reactions", 4)
        problem.stats["compiled"] = True
        return found

    def _step(self, t: Any, h: Any, u: Any, c: Any, factors: tuple[Any, ...], known: Any) -> tuple[Any, Any]:
        space, reaction = self.problem.space, self.problem.reaction
        assert reaction is not None
        whole, half, stage, first, middle, last = factors

        def rest(t: Any, values: Any) -> Any:
            own = reaction(t, values)
            return space.forward(own if known is None else own + known)

        n0 = rest(t, u)
        a = stage_sum(c, n0, half, stage)
        na = rest(t + 0.5 * h, space.backward(a))
        nb = rest(t + 0.5 * h, space.backward(stage_sum(c, na, half, stage)))
        nc = rest(t + h, space.backward(third_sum(a, nb, n0, half, stage)))
        c = end_sum(c, n0, na, nb, nc, whole, first, middle, last)
        return space.backward(c), c


class FusedStep:
    """The sums between the transforms, compiled by PyTorch.

    Parameters
    ----------
    problem : EvolutionProblem
        With a reaction and real eigenvalues.
    """

    def __init__(self, problem: EvolutionProblem) -> None:
        self.problem = problem
        torch: Any = problem.xp.module
        self._sums = {one: torch.compile(one, dynamic=False) for one in (stage_sum, third_sum, end_sum)}

    def __call__(self, t: float, h: float, u: Any, c: Any, f: Any, rest: Callable[[Any, Any], Any]) -> Any:
        """Coefficients after the step; None if PyTorch cannot compile here."""
        try:
            n0 = rest(t, u)
            a = self._sum(stage_sum, (c, n0), (f.half, f.stage))
            na = rest(t + 0.5 * h, self.problem.space.backward(a))
            b = self._sum(stage_sum, (c, na), (f.half, f.stage))
            nb = rest(t + 0.5 * h, self.problem.space.backward(b))
            last = self._sum(third_sum, (a, nb, n0), (f.half, f.stage))
            nc = rest(t + h, self.problem.space.backward(last))
            c = self._sum(end_sum, (c, n0, na, nb, nc), (f.whole, f.first, f.middle, f.last))
        except HpfraccError:
            raise
        except Exception as error:  # no compiler, no Triton, or unsupported code
            if self.problem.compile is True:
                raise InvalidInputError(
                    f"compile=True: PyTorch cannot compile here ({type(error).__name__}: {error}); leave compile out"
                ) from error
            self.problem.notes.append(
                f"PyTorch cannot compile here ({type(error).__name__}): steps run operation by operation"
            )
            return None
        self.problem.stats["compiled"] = True
        return c

    def _sum(self, which: Callable[..., Any], states: tuple[Any, ...], factors: tuple[Any, ...]) -> Any:
        torch: Any = self.problem.xp.module
        if not states[0].is_complex():
            return self._sums[which](*states, *factors)
        parts = [torch.view_as_real(one) for one in states]
        return torch.view_as_complex(self._sums[which](*parts, *(one.unsqueeze(-1) for one in factors)))
