"""All steps of a set of paths, in the library of their state."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hpfracc._arrays import is_array
from hpfracc._xp import convert_like
from hpfracc.errors import ShapeError
from hpfracc.solvers.sde.methods import PathMethod
from hpfracc.solvers.sde.problem import Functions, NoisyProblem, Traits
from hpfracc.solvers.tensors.loops import scan


class Steps(NamedTuple):
    """What all steps of a set of paths share.

    Attributes
    ----------
    problem, method
        The equation and the method.
    weights : tuple
        The weights of the method, those that are arrays of the state's kind.
    t : ndarray, shape (n,)
        Times of the steps.
    h : float
        Length of the steps.
    start : array, shape (paths, d)
        Initial values.
    """

    problem: NoisyProblem
    method: PathMethod
    weights: tuple[Any, ...]
    t: Any
    h: Any
    start: Any

    def advance(self, carry: tuple[Any, ...], row: tuple[Any, ...]) -> tuple[Any, ...]:
        """One step; a row is the time and the input of the method."""
        moved = self.method.advance(self.problem, self.weights, row[0], self.h, carry, row[1])
        if moved[0].shape != self.start.shape:
            raise ShapeError(
                f"a step returned shape {tuple(moved[0].shape)} for {self.start.shape[0]:,} paths; drift must return "
                f"{tuple(self.start.shape)}"
            )
        return moved

    def run(self, times: Any, increments: Any, keep: bool) -> Any:
        """All steps, as :func:`step_along`."""
        begin = self.method.begin(self.problem, self.weights, self.start)
        carry, states = scan(self.problem.xp, self.advance, begin, (times, increments), keep=keep)
        return self.problem.xp.moveaxis(states, 0, -1) if keep else carry[0]


def prepare(
    problem: NoisyProblem, method: PathMethod, alpha: Any, t: np.ndarray, h: float, start: Any, hurst: Any = None
) -> Steps:
    """Steps with the weights of a method; ``hurst`` is H of the noise, if it may be a tensor."""
    found = method.weights(problem.traits, alpha, t.size - 1, h, hurst)
    # Cached arrays are read-only, which PyTorch does not take.
    own = (np.copy(value) if isinstance(value, np.ndarray) else value for value in found)
    weights = tuple(value if isinstance(value, float) else convert_like(value, start) for value in own)
    return Steps(problem, method, weights, t, h, start)


def increments_of(xp: Any, paths: Any) -> Any:
    """Differences along the last axis, which becomes the first."""
    steps = paths[..., 1:] - paths[..., :-1]
    if xp.library == "numpy":
        return np.ascontiguousarray(np.moveaxis(steps, -1, 0))
    return xp.moveaxis(steps, -1, 0)


def step_along(steps: Steps, dz: Any, *, keep: bool = True) -> Any:
    """Paths along a given noise.

    Parameters
    ----------
    steps : Steps
        The equation, the method and the initial values.
    dz : array, shape (steps * parts, paths, sets * m)
        Increments of the noise.
    keep : bool
        Whether to return all times or only the last one.

    Returns
    -------
    array, shape (paths, d, n) or (paths, d)
    """
    problem, method, weights, t, h, start = steps
    increments = method.increments(problem, weights, h, dz)
    if problem.traits.library == "jax":
        from hpfracc.solvers.tensors.programs import run_program

        leaves, tree = sys.modules["jax"].tree_util.tree_flatten(problem.args)
        moving = [is_array(leaf) or isinstance(leaf, int | float | complex) for leaf in leaves]
        # Arguments that are not arrays, such as functions, are part of the program.
        fixed = tuple(None if moves else leaf for leaf, moves in zip(leaves, moving, strict=True))
        times = problem.xp.module.asarray(t[:-1], problem.traits.dtype)
        numbers = [leaf for leaf, moves in zip(leaves, moving, strict=True) if moves]
        given = (problem.constant, numbers, (weights, times, h, start), increments)
        return run_program(_program, problem.functions, (problem.traits, method, keep, (tree, fixed)), given)
    return steps.run([float(time) for time in t[:-1]], increments, keep)


def _program(functions: Functions, traits: Traits, method: PathMethod, keep: bool, arguments: Any, *given: Any) -> Any:
    """The whole simulation as one JAX program."""
    (tree, fixed), (constant, numbers, shared, increments) = arguments, given
    rest = iter(numbers)
    leaves = [next(rest) if leaf is None else leaf for leaf in fixed]
    problem = NoisyProblem(functions, constant, sys.modules["jax"].tree_util.tree_unflatten(tree, leaves), traits)
    steps = Steps(problem, method, *shared)
    return steps.run(steps.t, increments, keep)


def step_in_blocks(
    steps: Steps, noise: Callable[[int, int], Any], block: int, run: Callable[..., tuple[Any, ...]]
) -> Any:
    """As :func:`step_along` for PyTorch, some steps at a time.

    Parameters
    ----------
    noise : callable
        ``noise(begin, end)`` returns the increments of the steps ``begin`` to ``end``.
    block : int
        Number of steps.
    run : callable
        ``run(function, *tensors)`` calls the function, for instance so that the backward pass recomputes it.
    """
    problem, method, weights, t, h, start = steps
    times = [float(time) for time in t[:-1]]
    carry = method.begin(problem, weights, start)
    states = [start[None]]
    for begin in range(0, len(times), block):
        end = min(begin + block, len(times))

        def part(*carry: Any, begin: int = begin, end: int = end) -> tuple[Any, ...]:
            rows = times[begin:end], method.increments(problem, weights, h, noise(begin, end))
            moved, kept = scan(problem.xp, steps.advance, carry, rows, keep=True)
            return (*moved, kept[1:])

        *carried, kept = run(part, *carry)
        carry = tuple(carried)
        states.append(kept)
    return problem.xp.moveaxis(problem.xp.concatenate(states, 0), 0, -1)
