"""Stochastic equations driven by noise with memory."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc.errors import AccuracyWarning, InvalidInputError, ShapeError, SolveError
from hpfracc.solvers.sde.methods import METHODS, caputo_euler
from hpfracc.solvers.sde.methods.caputo_euler import integrate_caputo, newest_integrals, read_order
from hpfracc.solvers.sde.noise import Brownian, Noise, StableLevy
from hpfracc.solvers.sde.noise.process import GaussianNoise
from hpfracc.solvers.sde.noise.source import make_source
from hpfracc.solvers.sde.problem import NoisyProblem, read_problem
from hpfracc.solvers.sde.result import FSDEResult

__all__ = ["integrate", "solve_fsde"]

#: Values of all paths of a chunk: some 16 MiB.
_CHUNK = 1 << 21
_ORDER = ("euler", "second_order", "doss_sussmann")


def solve_fsde(
    drift: Callable[[float, np.ndarray], Any],
    diffusion: Callable[[float, np.ndarray], Any] | Any,
    t_span: tuple[float, float],
    y0: Any,
    *,
    step: float,
    alpha: float = 1.0,
    noise: Noise | None = None,
    paths: int = 1,
    rng: Any = None,
    first_path: int = 0,
    interpretation: str | None = None,
    method: str = "auto",
    save: str | Callable[[np.ndarray, np.ndarray], Any] = "all",
    antithetic: bool = False,
) -> FSDEResult:
    r"""Simulate :math:`dX = f(t, X)\,dt + g(t, X)\,dZ`, driven by fractional Brownian motion, or by a Levy process.

    With ``alpha`` below 1 it is Caputo's equation with white noise, :math:`D^\alpha X = f(t, X) + g(t, X)\,\dot W`.

    Parameters
    ----------
    drift : callable
        ``drift(t, y)`` with y of shape ``(paths, d)``; gives ``(paths, d)``.
    diffusion : callable, float or array_like
        ``diffusion(t, y)`` gives ``(paths, d)``: component i has a noise of its own, and its strength depends on
        component i alone; or ``(paths, d, m)`` for m noises that all components share. A number or an array, of shape
        ``(d,)`` or ``(d, m)``, is additive noise.
    t_span : (float, float)
        Begin and end.
    y0 : float or array_like, shape (d,) or (paths, d)
        Initial values.
    step : float
        Length of a step; the last one ends at the end of the interval, all are equal.
    alpha : float
        Order of the derivative, above 1/2 and at most 1. Below 1 the noise is Brownian, in Ito's sense, and the method
        is Euler and Maruyama's, of strong order ``alpha - 1/2``, with a memory that costs the same at every step.
    noise : Noise, optional
        ``noise.Brownian()``, by default, ``noise.FractionalBrownian(H)``, or a Levy process.
    paths : int
        Number of paths.
    rng, first_path
        As in :meth:`hpfracc.noise.Noise.sample`: a path depends on the seed and its number alone.
    interpretation : {"ito", "stratonovich", "young"}, optional
        Needed for multiplicative Brownian noise. With H above 1/2 the integral is Young's; below it is the limit along
        smooth paths, called Stratonovich's here. Noise with jumps is taken in Ito's sense.
    method : {"auto", "euler", "second_order", "doss_sussmann"}
        ``"auto"`` takes Euler's method for additive noise and jumps, and otherwise the second-order method where it
        converges, else Doss and Sussmann's.
    save : {"all", "last"} or callable
        What is kept: all times, the last, or ``save(t, y)`` of paths of shape ``(k, d, n)``, an array of k rows. With a
        function or ``"last"`` any number of paths takes no more memory than their results.
    antithetic : bool
        Give every second path the opposite noise of the one before.

    Returns
    -------
    FSDEResult
        ``.t``, ``.y``, ``.mean()``, ``.standard_error``, ``.quantile(q)``, ``.noise``, ``.plot()``.

    Notes
    -----
    Strong orders with multiplicative noise: Euler 1/2 (Ito) and :math:`2H-1` (H > 1/2); second order
    :math:`2H - 1/2`, at most 1. Euler's method with multiplicative noise does not converge for H < 1/2, nor the
    second-order method for :math:`H \le 1/4`: both are refused.

    References
    ----------
    1. A. Neuenkirch, I. Nourdin, "Exact rate of convergence of some approximation schemes associated to SDEs driven
       by a fractional Brownian motion", J. Theoret. Probab. 20, 2007.

    Examples
    --------
    A volatility with memory:

    >>> import hpfracc as hf
    >>> from hpfracc import noise
    >>> rough = {"noise": noise.FractionalBrownian(0.3), "paths": 5, "rng": 1}
    >>> result = hf.solve_fsde(lambda t, y: -y, lambda t, y: 0.2 * y, (0, 1), 1.0, step=0.01, **rough)
    >>> result.y.shape, result.method
    ((5, 1, 101), 'second_order')
    """
    t, h = _read_times(t_span, step)
    count = _read_count(paths, antithetic)
    start = _read_start(y0, count)
    process = Brownian() if noise is None else noise
    problem = read_problem(drift, diffusion, float(t[0]), start, process, interpretation)
    order = read_order(alpha)
    chosen = _choose(problem, method) if order == 1.0 else _choose_caputo(problem, method)
    if antithetic and not (
        isinstance(process, GaussianNoise) or (isinstance(process, StableLevy) and not process.beta)
    ):
        raise InvalidInputError(f"antithetic=True with {process!r}, whose law is not symmetric; leave it out")
    if not callable(save) and save not in ("all", "last"):
        raise InvalidInputError(f"save={save!r}: use 'all', 'last', or a function of (t, y)")
    seed = make_source(rng, None).key
    kept: list[np.ndarray] = []
    noises: list[np.ndarray] = []
    rows = max(2, _CHUNK // (t.size * (problem.dimension + problem.noises)) // 2 * 2)
    for low in range(0, count, rows):
        high = min(count, low + rows)
        begin = np.broadcast_to(start, (count, start.shape[1]))[low:high]
        sets = 1 if order == 1.0 else 2  # below order 1 the newest step takes a second number
        driving = _noise_paths(problem, t - t[0], low, high, first_path, seed, antithetic, sets)
        if order == 1.0:
            y = integrate(problem, chosen, t, h, begin, driving)
        else:
            increments = np.diff(driving)
            driving, normals = driving[:, : problem.noises], increments[:, problem.noises :] / math.sqrt(h)
            increments = increments[:, : problem.noises]
            newest = newest_integrals(order, h, increments, normals)
            y = integrate_caputo(problem, order, t, h, begin, increments, newest)
        _refuse_infinite(t, y)
        if low == 0:
            _warn_of_stiffness(problem, order, t, h, y)
        if save == "all":
            kept.append(y)
            noises.append(driving)
        elif callable(save):
            kept.append(_functional(save, t, y))
        else:
            kept.append(y[:, :, -1])
    values = np.concatenate(kept)
    return FSDEResult(t, values, np.concatenate(noises) if noises else None, chosen, count, antithetic)


def integrate(
    problem: NoisyProblem, method: str, t: np.ndarray, h: float, start: np.ndarray, driving: np.ndarray
) -> np.ndarray:
    """Paths of shape ``(paths, d, n)`` along a given noise of shape ``(paths, m, n)``."""
    advance = METHODS[method].advance
    result = np.empty((start.shape[0], start.shape[1], t.size))
    y = np.array(start, dtype=np.float64)
    result[:, :, 0] = y
    for index in range(t.size - 1):
        y = advance(problem, float(t[index]), y, h, driving[:, :, index + 1] - driving[:, :, index])
        if y.shape != start.shape:
            raise ShapeError(f"a step gave shape {y.shape} for {start.shape[0]:,} paths; drift must give {start.shape}")
        result[:, :, index + 1] = y
    return result


def _warn_of_stiffness(problem: NoisyProblem, order: float, t: np.ndarray, h: float, y: np.ndarray) -> None:
    """Warn where the drift decays faster than explicit steps can follow: their values grow instead.

    The rate is that of the drift along its own direction, at three times of the first paths, after one power iteration.
    """
    few = y[:16]
    for index in (0, t.size // 2, t.size - 1):
        state = few[:, :, index]
        with np.errstate(all="ignore"):
            force = np.asarray(problem.drift(float(t[index]), state), dtype=float)
            shift, rate = force, np.zeros(len(few))
            for _ in range(2):
                size = np.linalg.norm(shift, axis=-1, keepdims=True)
                small = 1e-6 * (1.0 + np.linalg.norm(state, axis=-1, keepdims=True))
                shift = np.where(size > 0.0, shift / size, 0.0) * small
                change = np.asarray(problem.drift(float(t[index]), state + shift), dtype=float) - force
                rate = -np.sum(change * shift, -1) / np.maximum(np.sum(shift * shift, -1), 1e-300)
                shift = change
        number = float(np.nanmax(rate, initial=0.0)) * h**order / math.gamma(order + 1.0)
        if number > 2.0:
            warnings.warn(
                f"the drift decays too fast at t={t[index]:.6g}: step^alpha times its rate is {number:.3g}, "
                f"above 2, so explicit steps grow; use step={h * (1.0 / number) ** (1.0 / order):.2g} or less",
                AccuracyWarning,
                stacklevel=3,
            )
            return


def _refuse_infinite(t: np.ndarray, y: np.ndarray) -> None:
    bad = ~np.isfinite(y[:, :, -1]).all(-1)
    if np.any(bad):
        first = int(np.flatnonzero(bad)[0])
        where = int(np.flatnonzero(~np.isfinite(y[first]).all(0))[0])
        raise SolveError(
            f"{int(bad.sum()):,} of {y.shape[0]:,} paths are not finite, the first from t={t[where]:.6g} on; use a "
            "smaller step, or look whether the solution explodes"
        )


def _noise_paths(
    problem: NoisyProblem,
    t: np.ndarray,
    low: int,
    high: int,
    first_path: int,
    seed: np.ndarray,
    antithetic: bool,
    sets: int,
) -> np.ndarray:
    """The driving noise of the paths ``low`` to ``high``, shape ``(paths, sets * m, n)``."""
    share, number = 2 if antithetic else 1, sets * problem.noises
    first = (first_path + low) // share * number
    found: np.ndarray = problem.noise.sample(t, ((high - low) // share, number), _Seed(seed), first_path=first)
    if not antithetic:
        return found
    both = np.empty((high - low, *found.shape[1:]))
    both[::2], both[1::2] = found, -found
    return both


class _Seed(np.random.SeedSequence):
    """A key that was drawn already, as what it is drawn from."""

    def __init__(self, words: np.ndarray) -> None:
        super().__init__(0)
        self._words = words

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return self._words[:n_words]


def _functional(save: Callable[[np.ndarray, np.ndarray], Any], t: np.ndarray, y: np.ndarray) -> np.ndarray:
    values = np.asarray(save(t, y))
    if values.shape[:1] != (y.shape[0],):
        raise ShapeError(f"save gave shape {values.shape} for {y.shape[0]:,} paths; give one row for each path")
    return values


def _choose(problem: NoisyProblem, method: str) -> str:
    if method == "auto":
        names = _ORDER if problem.additive or math.isnan(problem.hurst) else (*_ORDER[1:], _ORDER[0])
        reasons = {name: METHODS[name].refuses(problem) for name in names}
        for name, reason in reasons.items():
            if reason is None:
                return name
        raise InvalidInputError(f"no method takes this equation: {'; '.join(str(why) for why in reasons.values())}")
    if method not in METHODS:
        raise InvalidInputError(f"method={method!r}: use 'auto', {', '.join(map(repr, METHODS))}")
    reason = METHODS[method].refuses(problem)
    if reason is not None:
        raise InvalidInputError(reason)
    return method


def _choose_caputo(problem: NoisyProblem, method: str) -> str:
    if method not in ("auto", "euler"):
        raise InvalidInputError(f"method={method!r} with alpha below 1; use 'auto' or 'euler'")
    reason = caputo_euler.refuses(problem)
    if reason is not None:
        raise InvalidInputError(reason)
    return "euler"


def _read_times(t_span: Any, step: Any) -> tuple[np.ndarray, float]:
    try:
        begin, end = (float(time) for time in t_span)
        length = float(step)
    except (TypeError, ValueError):
        raise InvalidInputError(f"t_span={t_span!r}, step={step!r}: give (begin, end) and a number") from None
    if not (math.isfinite(begin) and math.isfinite(end) and begin < end):
        raise InvalidInputError(f"t_span={t_span!r}: the interval must have a finite begin before a finite end")
    if not 0.0 < length <= end - begin:
        raise InvalidInputError(f"step={step!r}: use a positive number up to {end - begin}, the length of the interval")
    steps = max(1, math.ceil((end - begin) / length * (1.0 - 1e-12)))
    return np.linspace(begin, end, steps + 1), (end - begin) / steps


def _read_count(paths: Any, antithetic: bool) -> int:
    try:
        count = operator.index(paths)
    except TypeError:
        count = 0
    if count < 1:
        raise InvalidInputError(f"paths={paths!r}: use a whole number, 1 or more")
    if antithetic and count % 2:
        raise InvalidInputError(f"paths={count} with antithetic=True: use an even number")
    return count


def _read_start(y0: Any, count: int) -> np.ndarray:
    start = np.atleast_1d(np.asarray(y0, dtype=np.float64))
    if start.ndim == 1:
        start = start[None, :]
    if start.ndim != 2 or start.shape[0] not in (1, count) or not start.shape[1]:
        raise ShapeError(f"y0 has shape {np.shape(y0)}; give (d,), or (paths, d) with {count:,} paths")
    if not np.all(np.isfinite(start)):
        raise InvalidInputError("y0 has values that are not finite")
    return start
