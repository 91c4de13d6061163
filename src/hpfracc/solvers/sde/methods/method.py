"""The base class of methods for stochastic equations, their weights, and derivatives of the user's functions."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from hpfracc._arrays import is_tracer, tracks_gradient
from hpfracc._xp import NUMPY, Namespace, namespace_of, of_variables
from hpfracc.solvers.sde.problem import NoisyProblem, Traits

#: State passed from step to step: the paths, shape ``(paths, d)``, and further arrays of the method.
Carry = tuple[Any, ...]
#: Numbers and arrays that are computed once, before the first step.
Weights = tuple[Any, ...]


class PathMethod(ABC):
    """Equal steps along given noise.

    Attributes
    ----------
    name : str
        Name of the method, for ``method=``.
    order : str
        The strong order and where it holds, in words.
    remembers : bool
        Whether it has a history of decaying states.
    implicit : bool
        Whether it is implicit in the drift.
    """

    name: str
    order: str
    remembers: ClassVar[bool] = False
    implicit: bool = False

    def __init__(self, implicit: bool = False) -> None:
        self.implicit = implicit
        if implicit:
            self.name, self.order = f"implicit_{self.name}", f"{self.order}; for stiff drifts"

    @abstractmethod
    def refuses(self, traits: Traits) -> str | None:
        """Reason why it does not support the equation, with a remedy; None if it does."""

    def lowest_hurst(self, traits: Traits) -> float:
        """It converges for H above this value."""
        return 0.0

    def parts(self, traits: Traits, steps: int) -> int:
        """Number of substeps in which noise is drawn."""
        return 1

    def sets(self, traits: Traits) -> int:
        """Number of independent processes for each noise."""
        return 1

    def weights(self, traits: Traits, alpha: Any, steps: int, h: float, hurst: Any = None) -> Weights:
        """Computed once, in double precision; ``hurst`` is H if it is a tensor."""
        return ()

    def increments(self, problem: NoisyProblem, weights: Weights, h: float, dz: Any) -> Any:
        """The input of :meth:`advance` for each step, from increments of shape ``(steps, paths, sets * m)``."""
        return dz

    def begin(self, problem: NoisyProblem, weights: Weights, y: Any) -> Carry:
        """The carry before the first step."""
        return (y,)

    def shifted(self, problem: NoisyProblem, weights: Weights, h: Any, dz: Any, control: Any) -> Any:
        """The input ``dz`` of a step if the driving noise has the drift ``control``, constant over the step."""
        return dz + h * control

    @abstractmethod
    def advance(self, problem: NoisyProblem, weights: Weights, t: Any, h: Any, carry: Carry, dz: Any) -> Carry:
        """One step."""


class KernelMethod(PathMethod):
    """A method whose noise has a singular kernel: its integral over the newest step is drawn with the increment.

    The last two weights are the mean of the kernel over that step, and the factor of the second set of noises, which
    gives the integral the right variance.
    """

    def sets(self, traits: Traits) -> int:
        """The increments, and the independent part of the integrals over the newest step."""
        return 2

    def increments(self, problem: NoisyProblem, weights: Weights, h: float, dz: Any) -> Any:
        """The increments, and the integrals against the kernel over their own step."""
        (cross, spread), noises = weights[-2:], problem.traits.noises
        dw, other = dz[..., :noises], dz[..., noises:]
        return problem.xp.concatenate([dw, cross * dw + spread * other], -1)

    def shifted(self, problem: NoisyProblem, weights: Weights, h: Any, dz: Any, control: Any) -> Any:
        """The same drift of the integral over the newest step."""
        return dz + problem.xp.concatenate([h * control, h * weights[-2] * control], -1)


def computed(make: Callable[..., Any], variables: tuple[Any, ...], *fixed: Any) -> Any:
    """``make(xp, *variables, *fixed)`` in double precision, differentiable in the variables; cached for plain numbers.

    Parameters
    ----------
    make : callable
        Returns an array or a tuple of arrays.
    variables : tuple of (float, or scalars of PyTorch or JAX)
        Orders and Hurst indices.
    fixed : hashable
        Numbers of steps and their length.
    """
    if not any(is_tracer(each) or tracks_gradient(each) for each in variables):
        return _kept(make, tuple(float(each) for each in variables), fixed)
    xp = next(found for found in map(namespace_of, variables) if found.library != "numpy")
    with xp.scope():
        return of_variables(xp, lambda *given: make(xp, *given, *fixed))(*map(xp.array, variables))


@lru_cache(maxsize=32)
def _kept(make: Callable[..., Any], variables: tuple[float, ...], fixed: tuple[Any, ...]) -> Any:
    found = make(NUMPY, *variables, *fixed)
    several = found if isinstance(found, tuple) else (found,)
    plain = tuple(np.asarray(each) if np.ndim(each) else float(each) for each in several)
    for each in plain:
        if isinstance(each, np.ndarray):
            each.flags.writeable = False
    return plain if isinstance(found, tuple) else plain[0]


#: Relative step of a central difference, the cube root of the rounding error: the error is about 1e-10 (float64) and
#: 3e-5 (float32).
_STEPS = {"float64": 6e-6, "float32": 5e-3}


def derivative_along(xp: Namespace, function: Callable[[Any], Any], y: Any, direction: Any) -> Any:
    """``d/ds function(y + s direction)`` at s = 0, for y and direction of shape ``(paths, d)``.

    The length of a difference is not differentiated.
    """
    if xp.library == "jax":
        return sys.modules["jax"].jvp(function, (y,), (direction,))[1]
    step = _STEPS[str(y.dtype).rpartition(".")[2]]
    size = _largest(xp, xp.stop_gradient(direction))
    scale = xp.clip(_largest(xp, xp.stop_gradient(y)), 1e-3, None)
    moves = size > 0
    length = step * scale / xp.where(moves, size, 1.0)
    ahead, behind = function(y + length * direction), function(y - length * direction)
    shape = (*length.shape, *(1,) * (ahead.ndim - length.ndim))
    return xp.where(moves.reshape(shape), (ahead - behind) / (2.0 * length.reshape(shape)), 0.0)


def columns(xp: Namespace, function: Callable[[Any], Any], y: Any) -> list[Any]:
    """Derivatives along each component, a list of d arrays."""
    found = []
    for index in range(y.shape[-1]):
        unit = np.zeros(y.shape[-1])
        unit[index] = 1.0
        direction = xp.zeros_like(y) + xp.astype(xp.asarray(unit, like=y), y.dtype)
        found.append(derivative_along(xp, function, y, direction))
    return found


def _largest(xp: Namespace, values: Any) -> Any:
    """The largest absolute component of each path, shape ``(paths, 1)``."""
    return xp.amax(xp.abs(values), -1)[:, None]
