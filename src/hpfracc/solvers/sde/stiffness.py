"""Checks of a simulation: drifts too stiff for explicit steps, diverging paths, and non-finite values."""

from __future__ import annotations

import contextlib
import math
import sys
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from hpfracc._arrays import is_transformed, to_host
from hpfracc.errors import SolveError, warn
from hpfracc.solvers.sde.problem import NoisyProblem

#: Number of paths at which the drift is checked.
_FEW = 16
#: A path counts as diverged above this multiple of the size of its initial value and noise.
_GROWN = 10.0


class Divergence(NamedTuple):
    """Paths that diverged because explicit steps were unstable.

    Attributes
    ----------
    paths : int
        Number of paths.
    since : float
        The first time at which one of them had diverged; the end if only the last time is saved.
    number : float
        The largest ``step^alpha`` times the rate of the drift, over ``Gamma(1 + alpha)``; nan if it overflows.
    limit : float
        Stability limit of this number.
    """

    paths: int
    since: float
    number: float
    limit: float

    def joined(self, other: Divergence) -> Divergence:
        """Combine two chunks."""
        return Divergence(
            self.paths + other.paths, min(self.since, other.since), max(self.number, other.number), self.limit
        )

    def describe(self, count: int, h: float, order: float) -> str:
        """Message: how many of ``count`` paths diverged, since when, and what to do."""
        why, step = "the drift overflows", "a smaller step"
        if math.isfinite(self.number):
            why = f"step^alpha times the rate at which the drift decays is {self.number:.3g}, above {self.limit:.3g}"
            step = f"step={_stable_step(h, self.number, self.limit, order):.2g} or less"
        return (
            f"{self.paths:,} of {count:,} paths diverged, the first by t={self.since:.6g}: explicit steps of {h:.3g} "
            f"are unstable for the drift ({why}), and the paths are not a solution; use {step}, or "
            "method='implicit_euler'."
        )


def stability_limit(order: float) -> float:
    r"""Largest ``rate * step^alpha / Gamma(1 + alpha)`` at which the explicit rule decays.

    Its weights :math:`(j+1)^\alpha - j^\alpha` have the alternating sum :math:`2\eta(-\alpha)`, with Dirichlet's eta
    function: the limit is the inverse, 2 for ``alpha = 1``, and 1 towards 0.
    """
    return float(1.0 / (2.0 * (1.0 - 2.0 ** (1.0 + order)) * special.zeta(-order)))


def _stable_step(h: float, number: float, limit: float, order: float) -> float:
    """Half of the largest stable step."""
    return h * float((0.5 * limit / number) ** (1.0 / order))


def warn_of_stiffness(problem: NoisyProblem, order: float, t: np.ndarray, h: float, y: Any) -> None:
    """Warn if the drift is too stiff for explicit steps, which are then unstable.

    The rate is that of the drift along its own direction, at the first and the last time of the first paths (and
    between them, if all times are saved), after one power iteration. Traced values are not checked.
    """
    if is_transformed(y):
        return
    few, limit = y[:_FEW], stability_limit(order)
    with _quiet(problem):
        for index in (0, t.size // 2, t.size - 1) if few.ndim == 3 else (t.size - 1,):
            numbers = _stiffness(problem, float(t[index]), few[:, :, index] if few.ndim == 3 else few, order, h)
            number = float(np.nanmax(numbers, initial=0.0))
            if number > limit:
                warn(
                    f"the drift decays too fast at t={t[index]:.6g}: step^alpha times its rate is {number:.3g}, above "
                    f"{limit:.3g}, so explicit steps are unstable; use method='implicit_euler', or "
                    f"step={_stable_step(h, number, limit, order):.2g} or less"
                )
                return


def find_divergence(
    problem: NoisyProblem, order: float, t: np.ndarray, h: float, start: Any, y: Any, driving: Any
) -> Divergence | None:
    """The paths that diverged: unstable at the end, and larger than the initial value and noise explain.

    Parameters
    ----------
    start : array, shape (paths, d)
        Initial values.
    y : array, shape (paths, d, n) or (paths, d)
        All values, or the last.
    driving : array, shape (paths, sets * m, n)
        The noise.
    """
    if is_transformed(y):
        return None
    with _quiet(problem):
        last = y[:, :, -1] if y.ndim == 3 else y
        noises = problem.traits.noises
        size, begin = _size(last), _size(start)
        strength = _size(problem.diffusion(float(t[0]), start).reshape(start.shape[0], -1))
        # First by the last value of the noise only; for the few remaining paths by the whole noise.
        grown = size > _GROWN * (begin + strength * _size(driving[:, :noises, -1]))
        if not bool(grown.any()):
            return None
        rows, limit = problem.xp.nonzero(grown), stability_limit(order)
        scale = begin[rows] + strength[rows] * problem.xp.amax(abs(driving[rows, :noises]).sum(1), -1)
        numbers = _stiffness(problem, float(t[-1]), last[rows], order, h)
        bounds = _GROWN * to_host(scale)
        wild = (to_host(size[rows]) > bounds) & ~(numbers <= limit)
        if not wild.any():
            return None
        since = float(t[-1])
        if y.ndim == 3:
            beyond = (to_host(abs(y[rows]).sum(1)) > bounds[:, None])[wild]
            since = float(t[int(beyond.argmax(1).min())])
        finite = numbers[wild & np.isfinite(numbers)]
        return Divergence(int(wild.sum()), since, float(finite.max()) if finite.size else math.nan, limit)


@contextlib.contextmanager
def _quiet(problem: NoisyProblem) -> Any:
    """Context without derivatives and without overflow warnings."""
    torch = sys.modules["torch"] if problem.traits.library == "torch" else None
    with contextlib.nullcontext() if torch is None else torch.no_grad(), np.errstate(all="ignore"):
        yield


def _size(x: Any) -> Any:
    """Sum of absolute values of each row, without premature overflow."""
    return abs(x).sum(-1)


def _stiffness(problem: NoisyProblem, t: float, state: Any, order: float, h: float) -> np.ndarray:
    """``step^alpha / Gamma(1 + alpha)`` times the rate at which the drift decays along itself, on the host."""
    xp = problem.xp
    force = problem.drift(t, state)
    change, rate = force, 0.0
    relative = 1e-6 if problem.traits.dtype == "float64" else 1e-3
    for _ in range(2):
        size = _size(change)[:, None]
        # Divided twice, because squares of large values overflow.
        unit = xp.where(size > 0.0, change / xp.where(size > 0.0, size, 1.0), 0.0)
        length = ((unit * unit).sum(-1) ** 0.5)[:, None]
        unit = unit / xp.where(length > 0.0, length, 1.0)
        small = relative * (1.0 + _size(state)[:, None])
        change = problem.drift(t, state + small * unit) - force
        rate = -(change / small * unit).sum(-1)
    return np.asarray(to_host(rate) * h**order / math.gamma(order + 1.0))


def refuse_infinite(t: np.ndarray, y: Any) -> None:
    """Raise an error if paths are not finite at the end, ``y`` of shape ``(paths, d, n)`` or ``(paths, d)``."""
    bad = np.zeros(1, bool) if is_transformed(y) else ~np.isfinite(to_host(y[:, :, -1] if y.ndim == 3 else y)).all(-1)
    if not bad.any():
        return
    since, host = "", to_host(y)
    if host.ndim == 3:
        first = int(np.flatnonzero(bad)[0])
        where = int(np.flatnonzero(~np.isfinite(host[first]).all(0))[0])
        since = f", the first from t={t[where]:.6g} on"
    raise SolveError(
        f"{int(bad.sum()):,} of {host.shape[0]:,} paths are not finite{since}; use a smaller step, or check "
        "whether the solution explodes"
    )
