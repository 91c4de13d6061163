"""Strong orders of methods for Caputo's equation, on shared noise."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from hpfracc import noise
from hpfracc.solvers.sde.methods import CAPUTO_METHODS
from hpfracc.solvers.sde.methods.caputo_euler import kernel_weights
from hpfracc.solvers.sde.problem import read_problem
from hpfracc.solvers.sde.stepping import Steps, increments_of, prepare, step_along

__all__ = ["integrate", "strong_order"]


def integrate(
    problem: Any, method: Any, alpha: Any, t: np.ndarray, h: float, start: Any, driving: Any, *, keep: bool = True
) -> Any:
    """Paths of a method along the given noise, of shape (paths, sets * m, points)."""
    return step_along(prepare(problem, method, alpha, t, h, start), increments_of(problem.xp, driving), keep=keep)


def strong_order(method: str, alpha: float, counts: tuple[int, ...], finest: int, paths: int) -> float:
    """The slope of the mean error at time 1, against Euler's method on the finest grid, on the same noise."""
    problem = read_problem(lambda t, y: -y, lambda t, y: np.sin(y) + 1, 0.0, np.ones((1, 1)), noise.Brownian(), "ito")
    random = np.random.default_rng(3)
    h = 1 / finest
    dw = np.sqrt(h) * random.standard_normal((finest, paths, 1))
    _, _, _, cross, spread = kernel_weights(alpha, finest, h)
    own = cross * dw + spread * np.sqrt(h) * random.standard_normal(dw.shape)
    means = np.diff(np.arange(finest + 1.0) ** alpha) * h ** (alpha - 1) / special.gamma(alpha + 1)

    def solve(name: str, steps: int) -> np.ndarray:
        chosen = CAPUTO_METHODS[name]
        parts = chosen.parts(problem.traits, steps)
        thin = finest // (steps * parts)
        cells = dw.reshape(steps * parts, thin, paths, 1)
        # The newest integral of a coarse step: exact over its last fine step, means of the kernel before.
        newest = np.einsum("ckpm,k->cpm", cells[:, :-1], means[1:thin][::-1]) + own.reshape(cells.shape)[:, -1]
        rows = np.concatenate([cells.sum(1), newest], -1)
        if name == "milstein":
            rows = rows.reshape(steps, parts, paths, 2)
        weights = chosen.weights(problem.traits, alpha, steps, 1 / steps)
        t = np.linspace(0, 1, steps + 1)
        made = Steps(problem, chosen, weights, t, 1 / steps, np.ones((paths, 1)))
        return np.asarray(made.run([float(time) for time in t[:-1]], rows, keep=False))

    exact = solve("euler", finest)
    errors = [np.mean(np.abs(solve(method, steps) - exact)) for steps in counts]
    return -float(np.polyfit(np.log(counts), np.log(errors), 1)[0])
