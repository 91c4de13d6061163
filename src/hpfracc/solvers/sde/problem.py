"""A stochastic equation as it was given: what is checked before anything is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.solvers.sde.noise import Brownian, FractionalBrownian, LevyNoise, Noise

__all__ = ["NoisyProblem", "read_problem"]

INTERPRETATIONS = ("ito", "stratonovich", "young")


@dataclass(frozen=True)
class NoisyProblem:
    """``dX = drift(t, X) dt + diffusion(t, X) dZ``, for many paths at once.

    Attributes
    ----------
    drift, diffusion : callable
        ``(t, y)`` with y of shape ``(paths, d)``; the diffusion gives ``(paths, d)`` or ``(paths, d, m)``.
    additive, general : bool
        Whether the diffusion is constant; whether it has an axis of noises.
    noises : int
        How many independent noises drive a path.
    hurst : float
        1/2 for Brownian motion, nan for processes with jumps.
    """

    drift: Callable[[float, np.ndarray], np.ndarray]
    diffusion: Callable[[float, np.ndarray], np.ndarray]
    additive: bool
    general: bool
    noises: int
    dimension: int
    noise: Noise
    hurst: float
    interpretation: str | None

    @property
    def scalar(self) -> bool:
        """Whether one noise drives each component: its own, or the only one."""
        return not self.general or self.noises == 1

    def apply(self, strength: np.ndarray, increments: np.ndarray) -> np.ndarray:
        """``diffusion dZ``: increments of shape ``(paths, m)``."""
        if not self.general:
            return np.asarray(strength * increments)
        return np.asarray(np.einsum("pdm,pm->pd", strength, increments))


def read_problem(
    drift: Any, diffusion: Any, t0: float, y0: np.ndarray, noise: Any, interpretation: str | None
) -> NoisyProblem:
    """Check functions, shapes, noise and interpretation; evaluates both functions once, at the start."""
    if not isinstance(noise, Brownian | FractionalBrownian | LevyNoise):
        raise InvalidInputError(
            f"noise={noise!r}: equations are driven by noise.Brownian(), noise.FractionalBrownian(H), or Levy processes"
        )
    if isinstance(noise, FractionalBrownian) and noise.kind != "fbm":
        raise InvalidInputError("noise of kind='volterra' does not drive equations here; use kind='fbm'")
    hurst = float(noise.H) if isinstance(noise, FractionalBrownian) else math.nan
    if isinstance(noise, Brownian):
        hurst = 0.5
    if not callable(drift):
        raise InvalidInputError(f"drift={drift!r}: give a function of (t, y)")
    start = y0[:1]
    dimension = start.shape[1]
    _shape_of("drift", drift(t0, start), {(1, dimension)}, "(paths, d)")
    additive = not callable(diffusion)
    if additive:
        constant = np.asarray(diffusion, dtype=np.float64)
        if constant.ndim > 2 or (constant.ndim == 2 and constant.shape[0] != dimension):
            raise ShapeError(f"diffusion has shape {constant.shape}; give a number, shape (d,), or (d, m)")
        if constant.ndim < 2:
            constant = np.broadcast_to(constant, (dimension,))

        def strength(t: float, y: np.ndarray) -> np.ndarray:
            return np.broadcast_to(constant, (y.shape[0], *constant.shape))

    else:
        strength = diffusion
    first = np.asarray(strength(t0, start))
    if first.ndim not in (2, 3) or first.shape[:2] != (1, dimension):
        raise ShapeError(
            f"diffusion gave shape {first.shape} for one path of {dimension} components; give (paths, d), each "
            "component with its own noise, or (paths, d, m)"
        )
    general = first.ndim == 3
    noises = first.shape[2] if general else dimension
    problem = NoisyProblem(drift, strength, additive, general, noises, dimension, noise, hurst, interpretation)
    _refuse_interpretation(problem)
    return problem


def _shape_of(name: str, value: Any, allowed: set[tuple[int, ...]], words: str) -> None:
    shape = np.shape(value)
    if shape not in allowed:
        raise ShapeError(f"{name} gave shape {shape} for one path; it must give {words} for y of shape (paths, d)")


def _refuse_interpretation(problem: NoisyProblem) -> None:
    meaning, hurst = problem.interpretation, problem.hurst
    if meaning is not None and meaning not in INTERPRETATIONS:
        raise InvalidInputError(f"interpretation={meaning!r}: use {', '.join(map(repr, INTERPRETATIONS))}, or None")
    if problem.additive:
        return
    if hurst == 0.5:
        if meaning not in ("ito", "stratonovich"):
            raise InvalidInputError(
                "with multiplicative Brownian noise Ito's and Stratonovich's equations have different solutions; give "
                "interpretation='ito' or 'stratonovich'"
            )
    elif math.isnan(hurst):
        if meaning != "ito":
            raise InvalidInputError(
                "multiplicative noise with jumps is taken in Ito's sense; give interpretation='ito'"
            )
    elif meaning == "ito":
        raise InvalidInputError(
            f"there is no Ito integral with H={hurst}: fractional Brownian motion is no semimartingale; leave "
            "interpretation out (a pathwise integral), or use H = 1/2"
        )
    elif meaning == "young" and hurst < 0.5:
        raise InvalidInputError(
            f"Young's integral needs H > 1/2, not {hurst}; use interpretation='stratonovich', the limit of smooth paths"
        )
