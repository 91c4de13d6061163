"""All steps of a set of paths, in the library of their state."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc._arrays import is_array, library_of
from hpfracc.errors import ShapeError
from hpfracc.solvers.sde.driving import increments_of
from hpfracc.solvers.sde.loops import scan
from hpfracc.solvers.sde.methods import PathMethod
from hpfracc.solvers.sde.problem import Functions, NoisyProblem, Traits

__all__ = ["integrate", "method_weights", "step_along", "step_in_blocks"]


def integrate(
    problem: NoisyProblem,
    method: PathMethod,
    alpha: Any,
    t: np.ndarray,
    h: float,
    start: Any,
    driving: Any,
    *,
    keep: bool = True,
    hurst: Any = None,
) -> Any:
    """Paths along a given noise.

    Parameters
    ----------
    problem, method, alpha
        The equation, the method and the order.
    t : ndarray, shape (n,)
        Times of the steps.
    h : float
        Length of the steps.
    start : array, shape (paths, d)
        Initial values.
    driving : array, shape (paths, sets * m, (n - 1) * parts + 1)
        The noise.
    keep : bool
        Whether to return all times or only the last one.
    hurst : float or tensor, optional
        H of the noise, if it may be a tensor.

    Returns
    -------
    array, shape (paths, d, n) or (paths, d)
    """
    weights = method_weights(problem, method, alpha, t, h, start, hurst)
    increments = method.increments(problem, weights, h, increments_of(problem.xp, driving))
    return step_along(problem, method, weights, t, h, start, increments, keep=keep)


def method_weights(
    problem: NoisyProblem, method: PathMethod, alpha: Any, t: np.ndarray, h: float, start: Any, hurst: Any = None
) -> tuple[Any, ...]:
    """The weights of a method, those that are arrays as the state's kind."""
    found = method.weights(problem.traits, alpha, t.size - 1, h, hurst)
    return tuple(value if isinstance(value, float) else _cast(problem, value, start) for value in found)


def _cast(problem: NoisyProblem, value: Any, like: Any) -> Any:
    """Convert weights, computed in double precision, to the type of the state."""
    xp = problem.xp
    if xp.library == "torch":
        if library_of(value) == "torch":
            return value.to(dtype=like.dtype, device=like.device)
        return xp.module.tensor(value, dtype=like.dtype, device=like.device)
    if xp.library == "jax":
        return xp.module.asarray(value).astype(like.dtype)
    return value


def step_along(
    problem: NoisyProblem,
    method: PathMethod,
    weights: tuple[Any, ...],
    t: np.ndarray,
    h: float,
    start: Any,
    increments: Any,
    *,
    keep: bool = True,
) -> Any:
    """As :func:`integrate`, from weights and the prepared input of each step."""
    if problem.traits.library == "jax":
        from hpfracc.solvers.ode.tensors.on_jax.programs import run_program

        leaves, tree = sys.modules["jax"].tree_util.tree_flatten(problem.args)
        moving = [is_array(leaf) or isinstance(leaf, int | float | complex) for leaf in leaves]
        # Arguments that are not arrays, such as functions, are part of the program.
        fixed = tuple(None if moves else leaf for leaf, moves in zip(leaves, moving, strict=True))
        static = (problem.traits, method, keep, (tree, fixed))
        times = problem.xp.module.asarray(t[:-1], problem.traits.dtype)
        numbers = [leaf for leaf, moves in zip(leaves, moving, strict=True) if moves]
        given = (problem.constant, numbers, weights, times, h, start, increments)
        return run_program(_program, problem.functions, static, given)
    return _steps(problem, method, weights, [float(time) for time in t[:-1]], h, start, increments, keep)


def step_in_blocks(
    problem: NoisyProblem,
    method: PathMethod,
    weights: tuple[Any, ...],
    t: np.ndarray,
    h: float,
    start: Any,
    noise: Callable[[int, int], Any],
    block: int,
    run: Callable[..., tuple[Any, ...]],
) -> Any:
    """As :func:`integrate` for PyTorch, some steps at a time.

    Parameters
    ----------
    noise : callable
        ``noise(begin, end)`` gives the increments of these steps, before what the method makes of them.
    block : int
        Steps of a block.
    run : callable
        ``run(function, *tensors)`` calls it, and may do so again in the backward pass.
    """
    times = [float(time) for time in t[:-1]]
    carry = method.begin(problem, weights, start)
    states = [start[None]]
    for begin in range(0, len(times), block):
        end = min(begin + block, len(times))

        def steps(*carry: Any, begin: int = begin, end: int = end) -> tuple[Any, ...]:
            increments = method.increments(problem, weights, h, noise(begin, end))
            rows = (times[begin:end], increments)
            moved, kept = scan(problem.xp, _step_of(problem, method, weights, h, start), carry, rows, keep=True)
            return (*moved, kept[1:])

        *carried, kept = run(steps, *carry)
        carry = tuple(carried)
        states.append(kept)
    return problem.xp.moveaxis(problem.xp.concatenate(states, 0), 0, -1)


def _program(
    functions: Functions,
    traits: Traits,
    method: PathMethod,
    keep: bool,
    arguments: tuple[Any, tuple[Any, ...]],
    constant: Any,
    numbers: list[Any],
    weights: tuple[Any, ...],
    times: Any,
    h: Any,
    start: Any,
    increments: Any,
) -> Any:
    """The whole simulation as one JAX program."""
    tree, fixed = arguments
    rest = iter(numbers)
    leaves = [next(rest) if leaf is None else leaf for leaf in fixed]
    problem = NoisyProblem(functions, constant, sys.modules["jax"].tree_util.tree_unflatten(tree, leaves), traits)
    return _steps(problem, method, weights, times, h, start, increments, keep)


def _steps(
    problem: NoisyProblem,
    method: PathMethod,
    weights: tuple[Any, ...],
    times: Any,
    h: Any,
    start: Any,
    increments: Any,
    keep: bool,
) -> Any:
    step = _step_of(problem, method, weights, h, start)
    carry, states = scan(problem.xp, step, method.begin(problem, weights, start), (times, increments), keep=keep)
    if not keep:
        return carry[0]
    return problem.xp.moveaxis(states, 0, -1)


def _step_of(
    problem: NoisyProblem, method: PathMethod, weights: tuple[Any, ...], h: Any, start: Any
) -> Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]:
    def step(carry: tuple[Any, ...], row: tuple[Any, ...]) -> tuple[Any, ...]:
        moved = method.advance(problem, weights, row[0], h, carry, row[1])
        if moved[0].shape != start.shape:
            raise ShapeError(
                f"a step returned shape {tuple(moved[0].shape)} for {start.shape[0]:,} paths; drift must return "
                f"{tuple(start.shape)}"
            )
        return moved

    return step
