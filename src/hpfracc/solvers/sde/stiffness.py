"""Warnings and errors about what a simulation found: drifts that explicit steps cannot follow, values not finite."""

from __future__ import annotations

import contextlib
import math
import sys
import warnings
from typing import Any

import numpy as np

from hpfracc._arrays import is_transformed, library_of
from hpfracc.errors import AccuracyWarning, SolveError
from hpfracc.solvers.sde.problem import NoisyProblem

__all__ = ["refuse_infinite", "warn_of_stiffness"]

#: Paths at which the drift is looked at.
_FEW = 16


def warn_of_stiffness(problem: NoisyProblem, order: float, t: np.ndarray, h: float, y: Any) -> None:
    """Warn where the drift decays faster than explicit steps can follow: their values grow instead.

    The rate is that of the drift along its own direction, at the first and the last time of the first paths (and
    between, where all times are there), after one power iteration. Nothing is looked at where values are traced.
    """
    if is_transformed(y):
        return
    torch = sys.modules["torch"] if problem.traits.library == "torch" else None
    few = y[:_FEW]
    with contextlib.nullcontext() if torch is None else torch.no_grad(), np.errstate(all="ignore"):
        for index in (0, t.size // 2, t.size - 1):
            if few.ndim == 2 and index != t.size - 1:
                continue
            state = few[:, :, index] if few.ndim == 3 else few
            number = _rate(problem, float(t[index]), state) * h**order / math.gamma(order + 1.0)
            if number > 2.0:
                warnings.warn(
                    f"the drift decays too fast at t={t[index]:.6g}: step^alpha times its rate is {number:.3g}, above "
                    f"2, so explicit steps grow; use method='implicit_euler', or "
                    f"step={h * (1.0 / number) ** (1.0 / order):.2g} or less",
                    AccuracyWarning,
                    stacklevel=5,
                )
                return


def _rate(problem: NoisyProblem, t: float, state: Any) -> float:
    xp = problem.xp
    force = problem.drift(t, state)
    shift, rate = force, None
    for _ in range(2):
        size = ((shift * shift).sum(-1) ** 0.5)[:, None]
        small = (1e-6 if problem.traits.dtype == "float64" else 1e-3) * (
            1.0 + ((state * state).sum(-1) ** 0.5)[:, None]
        )
        shift = xp.where(size > 0.0, shift / xp.where(size > 0.0, size, 1.0), 0.0) * small
        change = problem.drift(t, state + shift) - force
        square = (shift * shift).sum(-1)
        rate = -(change * shift).sum(-1) / xp.where(square > 0.0, square, 1.0)
        shift = change
    assert rate is not None
    values = rate.cpu().numpy() if library_of(rate) == "torch" else np.asarray(rate)
    return float(np.nanmax(values, initial=0.0))


def refuse_infinite(t: np.ndarray, y: Any) -> None:
    """Raise where paths end without finite values, ``y`` of shape ``(paths, d, n)`` or ``(paths, d)``."""
    if is_transformed(y):
        return
    values = y.detach() if library_of(y) == "torch" else y
    xp_finite = sys.modules["torch"].isfinite if library_of(y) == "torch" else None
    last = values[:, :, -1] if values.ndim == 3 else values
    finite = np.isfinite(last) if xp_finite is None else xp_finite(last)
    if bool(finite.all()):
        return
    host = values.cpu().numpy() if library_of(values) == "torch" else np.asarray(values)
    bad = ~np.isfinite(host[:, :, -1] if host.ndim == 3 else host).all(-1)
    since = ""
    if host.ndim == 3:
        first = int(np.flatnonzero(bad)[0])
        where = int(np.flatnonzero(~np.isfinite(host[first]).all(0))[0])
        since = f", the first from t={t[where]:.6g} on"
    raise SolveError(
        f"{int(bad.sum()):,} of {host.shape[0]:,} paths are not finite{since}; use a smaller step, or look whether the "
        "solution explodes"
    )
