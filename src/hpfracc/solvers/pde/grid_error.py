r"""The estimated errors at each time: of the steps, of the rule in the order, and of the grid.

That of the grid is estimated by solving the equation again on coarser grids.

With :math:`u_h` on the given grid, :math:`u_{2h}` on every second point and :math:`u_{4h}` on every fourth, all with
the same method and times, the differences :math:`d_1 = |u_{2h} - u_h|` and :math:`d_2 = |u_{4h} - u_{2h}|` give the
observed order :math:`p = \log_2(d_2/d_1)` and the error :math:`d_1/(2^p - 1)`. It contains what the grid did to the
initial data, the source, the boundary data and the reaction at all times, not at the last one alone.

Several times are compared together, down to a 32nd of the last one; earlier ones with steps of their own.

Jumps between points are the exception: their place is known to half a spacing only, and the errors of two jumps may
cancel in such a difference, though not in the solution. What a point differs by from the polynomial through its
neighbours therefore enters by its absolute value, carried to the time by :math:`c\,(c - A)^{-1}` with
:math:`c = \Gamma(1+\alpha)/T^\alpha`, which is at least :math:`E_\alpha(T^\alpha A)` for orders up to 1.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import warnings
from typing import Any

import numpy as np

from hpfracc._arrays import is_tracer, to_host
from hpfracc.solvers.pde.method import EvolutionMethod, Question
from hpfracc.solvers.pde.problem import EvolutionProblem, FrameBlock
from hpfracc.solvers.pde.recording import Run
from hpfracc.solvers.pde.result import SpaceTimeError
from hpfracc.solvers.pde.space.base import is_uniform

Array = np.ndarray[Any, Any]

#: What a problem on a coarser grid shares with that of the solve.
_OF_TIME = ("t0", "t1", "breaks", "start_power", "integrated", "rtol", "atol", "backend", "compile", "compatible")
#: The most times at which there is an estimate of its own, a quotient of times that are compared together, and the
#: powers of it from the end on that are: of times that were asked for, and of others.
_TIMES, _TOGETHER, _ASKED, _UNASKED = 12, 32.0, 9, 2
#: Fewest points of a coarser axis.
_FEWEST = 5
#: Steps in time of the compared solutions, if the solution itself has more than twice as many; and how far the one on
#: the given grid may be from the solution, relative to its largest value, before they are multiplied. If another method
#: made the solution, it may be farther.
_STEPS, _MORE, _CLOSE, _NEAR = 32, 4, 0.1, 0.3
#: The range of orders that are accepted; that of differences ends with their own order.
_MIN_ORDER, _MAX_ORDER = 0.5, 20.0
#: Weights of the neighbours at distances 1, 3 and 5 in the polynomial of degree 5 through them.
_MIDPOINT = np.array([150.0, -25.0, 3.0]) / 256.0
#: Data whose distance from that polynomial falls by less than this factor as the spacing is halved are rough.
_SMOOTH = 8.0
#: On grids too small to see that, data are rough above this distance, relative to the largest value.
_FEW = 1e-2
#: A jump lies within half a spacing of the middle between two points.
_SHARE = 0.5


def estimate_grid_error(
    problem: EvolutionProblem, method: EvolutionMethod, t: float, u: Any, steps: int, wanted: bool | str
) -> tuple[float, str]:
    """As :func:`estimate_grid_errors` at one time, of all components."""
    found, why = estimate_grid_errors(problem, method, [(t, u)], steps, wanted)
    return float(found.max()), why


def sampled_times(problem: EvolutionProblem, times: Array, *, asked: bool, exact: bool) -> Array:
    """The numbers of those times at which the error of the grid is estimated; ``asked`` if the user named them."""
    gone = times - problem.t0
    least = 0.0 if exact else float(gone.max()) * _TOGETHER ** -(_ASKED if asked else _UNASKED)
    late = np.flatnonzero(gone > least)
    if late.size <= _TIMES:
        return late
    return late[
        np.unique(np.searchsorted(gone[late], np.geomspace(gone[late[0]], gone[late[-1]] * (1.0 - 1e-12), _TIMES)))
    ]


def estimate_grid_errors(
    problem: EvolutionProblem,
    method: EvolutionMethod,
    outputs: list[tuple[float, Any]],
    steps: int,
    wanted: bool | str,
    *,
    replaced: bool = False,
) -> tuple[Array, str]:
    """Estimates of the largest error due to the grid at some times, and why there are none if they are nan.

    Parameters
    ----------
    outputs : list of (float, array)
        Increasing times, and the solution at the unknown points there, of ``steps`` steps.
    wanted : bool or "auto"
        Whether to solve on coarser grids; ``"auto"``: for NumPy arrays. Spectral methods have a cheaper estimate.
    replaced : bool
        Whether another method than ``method`` made the solution.

    Returns
    -------
    numpy.ndarray, shape (times,) or (times, components)
    str
    """
    shape = (len(outputs),) if problem.components is None else (len(outputs), problem.components)

    def everywhere(values: Any) -> Array:
        return np.broadcast_to(np.reshape(values, (-1, *(1,) * (len(shape) - 1))), shape)

    if not outputs or outputs[0][0] <= problem.t0:
        return everywhere(math.nan), "there is no step"
    if is_tracer(outputs[0][1]):
        return everywhere(math.nan), "the solve is traced"
    cheap = everywhere([problem.space.space_error(problem.xp.stop_gradient(u)) for _, u in outputs])
    if problem.on_grid is None:
        if np.isnan(cheap).any():
            return cheap, "this discretisation gives none"
        return np.maximum(cheap, np.stack([np.broadcast_to(_rough(problem, t), shape[1:]) for t, _ in outputs])), ""
    if not wanted or (wanted == "auto" and problem.xp.library != "numpy"):
        return cheap, "it needs solutions on coarser grids, which estimate=True asks for"
    quiet = problem.xp.module.no_grad() if problem.xp.library == "torch" else contextlib.nullcontext()
    stats = dict(problem.stats)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"), quiet:
            warnings.simplefilter("ignore")
            parts = [
                _compared(problem, method, part, steps, replaced=replaced, last=part[-1][0] == problem.t1)
                for part in _together(problem, method, outputs)
            ]
            known = [part for part in parts if part is not None]
            if len(known) == len(parts):
                rough = np.stack([np.broadcast_to(_rough(problem, t), shape[1:]) for t, _ in outputs])
                found = np.maximum(np.maximum(np.concatenate(known), rough), np.nan_to_num(cheap))
    except Exception as error:  # the user's functions may take this grid alone
        return cheap, f"the equation could not be solved on a coarser grid ({type(error).__name__}: {error})"
    finally:
        problem.stats.clear()
        problem.stats.update(stats)
    if len(known) < len(parts):
        if min(axis.size for axis in problem.space.grid) < _FEWEST:
            cheap = everywhere(math.nan)
        return (
            cheap,
            f"a coarser grid needs {_FEWEST} points along each axis (an odd number in a region), and there are too few",
        )
    if not np.isfinite(found).all():
        return everywhere(math.nan), "the solution on a coarser grid is not finite"
    return found, ""


def _together(
    problem: EvolutionProblem, method: EvolutionMethod, outputs: list[tuple[float, Any]]
) -> list[list[tuple[float, Any]]]:
    """The outputs in groups whose times have a quotient of at most ``_TOGETHER``, the earliest first."""
    if method.exact:
        return [outputs]
    groups: list[list[tuple[float, Any]]] = [[]]
    for t, u in reversed(outputs):
        if groups[0] and _TOGETHER * (t - problem.t0) < groups[0][-1][0] - problem.t0:
            groups.insert(0, [])
        groups[0].insert(0, (t, u))
    return groups


def _compared(
    problem: EvolutionProblem,
    method: EvolutionMethod,
    outputs: list[tuple[float, Any]],
    steps: int,
    *,
    replaced: bool,
    last: bool,
) -> Array | None:
    """The errors from two coarser grids, or from one if there is no second; None if there is none.

    The solution itself is compared if it ends with this output (``last``), and its steps are few.
    """
    times, u = [t for t, _ in outputs], outputs[-1][1]
    end = times[-1]
    problem = dataclasses.replace(problem, t1=end, breaks=tuple(one for one in problem.breaks if one < end))
    if method.exact:
        values = [problem.xp.stack([one for _, one in outputs])]
    else:
        steps, own = _fewer_steps(problem, method, times, u, steps, replaced)
        alone = own is None and last and len(outputs) == 1 and not replaced
        values = [u[None] if alone else _states(problem, method, steps, times) if own is None else own]
    found = [_values(problem, values[0], times)]
    grids, gaps, ratios = [problem.space.grid], list[Array](), list[float]()
    axes_of = tuple(range(found[0].ndim))[-len(grids[0]) :]
    for _ in range(2):
        axes = [_every_second(x, p, problem.space.nested) for x, p in zip(grids[-1], problem.periodic, strict=True)]
        if any(axis is None for axis in axes):
            break
        grid = tuple(axis for axis in axes if axis is not None)
        assert problem.on_grid is not None
        other = problem.on_grid(grid)
        # All that belongs to time stays that of the solve.
        coarse = dataclasses.replace(other, **{name: getattr(problem, name) for name in _OF_TIME})
        refusal = method.lacks(coarse) or method.refuses(coarse)
        if refusal is not None and gaps:
            break
        if refusal is not None:
            raise ValueError(refusal)
        states = _states(coarse, method, steps, times)
        if not np.all(np.isfinite(to_host(states))):
            return np.full(found[0].shape[: axes_of[0]], math.nan)
        found.append(_values(coarse, states, times))
        finer = resample(found[-2], grids[-1], grid, problem.periodic)
        gaps.append(np.nanmax(np.abs(finer - found[-1]), axis=axes_of))  # nan outside a region
        ratios.append(
            max(
                x.size / y.size if p else (x.size - 1) / (y.size - 1)
                for x, y, p in zip(grids[-1], grid, problem.periodic, strict=True)
            )
        )
        grids.append(grid)
    if len(gaps) < 2:
        return gaps[0] if gaps else None
    most = min(problem.space.best_order, _MAX_ORDER)
    seen = np.log(np.maximum(gaps[1], 1e-300) / gaps[0]) / math.log(ratios[1])
    order = np.clip(np.where(gaps[0] > 0.0, seen, most), _MIN_ORDER, most)
    # The difference of the two finer grids may be small by chance: that of the coarser ones counts with the full order.
    first = gaps[0] / (ratios[0] ** order - 1.0)
    second = gaps[1] / (ratios[1] ** most * (ratios[0] ** most - 1.0))
    return np.where(gaps[0] > 0.0, np.maximum(first, second), 0.0)


def _fewer_steps(
    problem: EvolutionProblem, method: EvolutionMethod, times: list[float], u: Any, steps: int, replaced: bool
) -> tuple[int, Any]:
    """A number of steps that is small and still follows the solution to its end ``u``, and the states after them.

    No states if it is the number of steps of the solution.
    """
    count = _STEPS
    while 2 * count < steps:
        rough = _states(problem, method, count, times)
        if problem.largest(rough[-1] - u) <= (_NEAR if replaced else _CLOSE) * problem.largest(u):
            return count, rough
        count *= _MORE
    return steps, None


def _states(problem: EvolutionProblem, method: EvolutionMethod, steps: int, times: list[float]) -> Any:
    """The unknowns at increasing times up to the end, linear between the given number of steps."""
    mesh = np.array([problem.t0, *times]) if method.exact else method.mesh(problem, steps)
    found: list[Any] = []
    t, before, done = problem.t0, problem.u0, 0
    for made in method.steps(problem, mesh):
        for state in made.make() if isinstance(made, FrameBlock) else (made,):
            done += 1
            now = float(mesh[done])
            while len(found) < len(times) and (times[len(found)] <= now or done == len(mesh) - 1):
                share = min((times[len(found)] - t) / (now - t), 1.0)
                found.append(state if share == 1.0 else (1.0 - share) * before + share * state)
            t, before = now, state
    return problem.xp.stack(found)


def _values(problem: EvolutionProblem, states: Any, times: list[float]) -> Array:
    frames = [problem.space.embed(u, t) for u, t in zip(states, times, strict=True)]
    return np.stack([np.asarray(to_host(problem.xp.stop_gradient(one))) for one in frames])


def _every_second(x: Array, periodic: bool, nested: bool) -> Array | None:
    """A grid of half as many points, which are among those of ``x`` if its number of points allows that.

    None if there are too few, or if that is wanted (``nested``) and not so.
    """
    if nested and (x.size % 2 == 0) != periodic:
        return None
    if periodic:
        if x.size // 2 < _FEWEST:
            return None
        period = (x[-1] - x[0]) * x.size / (x.size - 1)
        return x[::2] if x.size % 2 == 0 else x[0] + period / (x.size // 2) * np.arange(x.size // 2)
    if x.size // 2 + 1 < _FEWEST:
        return None
    if x.size % 2:
        return x[::2]
    if is_uniform(x):
        return np.linspace(x[0], x[-1], x.size // 2)
    places = np.arange(0, x.size, 2)
    places[-1] = x.size - 1
    return x[places]


def resample(values: Array, old: tuple[Array, ...], new: tuple[Array, ...], periodic: tuple[bool, ...]) -> Array:
    """Values at the points ``new``: those at ``old`` where they coincide, otherwise splines of degree 5 or waves."""
    for number, (x, y, wraps) in enumerate(zip(old, new, periodic, strict=True)):
        axis = values.ndim - len(old) + number
        if values.shape[axis] == 1:
            continue
        places = np.clip(np.searchsorted(x, y), 0, x.size - 1)
        places = np.where(np.abs(x[places - 1] - y) < np.abs(x[places] - y), places - 1, places)
        if np.allclose(x[places], y, rtol=0.0, atol=1e-9 * (x[-1] - x[0])):
            values = np.take(values, places, axis)
        elif wraps:
            values = _waves(values, x, y, axis)
        else:
            from scipy.interpolate import make_interp_spline

            degree = min(5, x.size - 1 - (x.size % 2 == 0))
            values = np.asarray(make_interp_spline(x, values, k=degree, axis=axis)(y))
    return values


def _waves(values: Array, x: Array, y: Array, axis: int) -> Array:
    """Trigonometric interpolation."""
    n = x.size
    kappa = 2.0 * math.pi / ((x[-1] - x[0]) * n / (n - 1)) * (np.fft.fftfreq(n) * n)
    matrix = np.exp(1j * kappa * (y[:, None] - x[0])) / n
    moved = np.fft.fft(np.moveaxis(values, axis, -1)) @ matrix.T
    found = np.moveaxis(moved, -1, axis)
    return np.asarray(found if np.iscomplexobj(values) else found.real)


def _rough(problem: EvolutionProblem, t: float) -> Any:
    """What unresolved initial data and sources may contribute to the error of each component at ``t``."""
    space = problem.space
    order = problem.alpha_value
    if problem.xp.library != "numpy" or math.isnan(order):
        return 0.0
    shift = math.gamma(1.0 + order) / (t - problem.t0) ** order
    total = np.zeros(())
    unclear = _unclear(np.asarray(problem.u0), problem)
    if unclear is not None:
        carried = _SHARE * shift * problem.largest_each(space.solve(shift, unclear))
        kept = _SHARE * problem.largest_each(unclear)
        # Between orders 1 and 2, from a spread that the resolvent bounds to a wave that keeps its height.
        total = carried if order <= 1.0 else np.maximum(carried, 1e-300) ** (2.0 - order) * kept ** (order - 1.0)
    if problem.source is not None:
        for when in (t, 0.5 * (problem.t0 + t)):
            source = np.broadcast_to(np.asarray(problem.source(when)), problem.state_shape)
            if problem.integrated is not None:
                source = source * (t - problem.t0) ** problem.integrated / math.gamma(1.0 + problem.integrated)
            unclear = _unclear(source, problem, source=True)
            if unclear is not None:
                total = np.maximum(total, _SHARE * problem.largest_each(space.solve(shift, unclear)))
    return total


def _unclear(values: Array, problem: EvolutionProblem, *, source: bool = False) -> Array | None:
    """The distance of each value from the polynomial through its neighbours, over all axes; None if it is smooth.

    Methods with points of their own have a measure of their own.
    """
    own = problem.space.unresolved(values, source=source)
    if own is not None:
        return np.asarray(own)
    count, scattered = len(problem.space.grid), problem.space.scattered
    if scattered:
        values = problem.space.embed(values, problem.t0)
    total = np.zeros(values.shape)
    rough = False
    for number in range(count):
        axis = values.ndim - count + number
        wraps = problem.periodic[number]
        here, wider = (_distance(values, axis, apart, wraps) for apart in (1, 2))
        if here is None:
            continue
        total += here
        size = float(np.nanmax(np.abs(values)))
        limit = _FEW * size if wider is None else max(float(wider.max()) / _SMOOTH, 1e-13 * size)
        rough = rough or float(here.max()) > limit
    if not rough:
        return None
    return np.asarray(problem.space.restrict(total)) if scattered else total


def _distance(values: Array, axis: int, apart: int, wraps: bool) -> Array | None:
    """``|u_i - sum_k w_k (u_{i-k} + u_{i+k})|`` over the neighbours at 1, 3, 5 times ``apart``; zero near ends."""
    n, reach = values.shape[axis], 5 * apart
    if n <= 2 * reach:
        return None
    moved = np.moveaxis(values, axis, -1)
    if wraps:
        moved = np.concatenate([moved[..., -reach:], moved, moved[..., :reach]], -1)
    middle = moved.shape[-1] - 2 * reach
    found = moved[..., reach : reach + middle].astype(moved.dtype, copy=True)
    for weight, k in zip(_MIDPOINT, (1, 3, 5), strict=True):
        for side in (-k * apart, k * apart):
            found = found - weight * moved[..., reach + side : reach + side + middle]
    found = np.abs(found)
    if not wraps:
        found = np.concatenate([np.zeros((*found.shape[:-1], reach)), found, np.zeros((*found.shape[:-1], reach))], -1)
    return np.asarray(np.moveaxis(np.nan_to_num(found, posinf=np.inf), -1, axis))


def errors_of_run(question: Question, run: Run, error: float, frames: Any) -> tuple[SpaceTimeError[Array], str]:
    """The errors at the times of a run, and why there is none of the grid.

    Parameters
    ----------
    error : float
        The largest error in time; nan if it is not known.
    frames : array or None
        The solution at the times of the run; None if something else was kept.
    """
    problem, times = question.problem, np.array(run.times)
    shape = times.shape if problem.components is None else (*times.shape, problem.components)
    if not times.size or is_tracer(problem.u0):
        none = np.full(shape, math.nan)
        return SpaceTimeError(none, none), "the solve is traced"
    in_time = np.full(shape, error)
    if run.errors and math.isfinite(error):
        at = np.array([t for t, _ in run.errors])
        in_time = _between(times, at, np.array([each + np.zeros(shape[1:]) for _, each in run.errors]), 1)
    later = times > problem.t0
    if problem.distribution is not None and frames is not None:
        # A wave that a wrong order shifts is damped before the shift is many periods.
        turn = abs(math.cos(math.pi / problem.alpha_value)) if problem.alpha_value > 1.0 else 1.0
        changes = [problem.largest_each(problem.space.restrict(one) - problem.u0) for one in frames]
        sizes = np.maximum.accumulate(changes)
        rule = problem.distribution.rule_error(times[later] - problem.t0) * max(1.0, 1.0 / (math.e * turn))
        in_time[later] += sizes[later] * rule.reshape(-1, *(1,) * (len(shape) - 1))
    in_time[~later] = 0.0 * in_time[~later]
    in_space, why = np.full(shape, math.nan), "the solve did not reach its end"
    if run.success:
        method, options = question.method.stand_in(problem), question.options
        chosen = np.array([len(times) - 1])
        outputs = [run.newest]
        if frames is not None:
            chosen = sampled_times(problem, times, asked=options.t_eval is not None, exact=method.exact)
            outputs = [(float(times[k]), problem.space.restrict(frames[k])) for k in chosen]
        replaced = method is not question.method
        found, why = estimate_grid_errors(problem, method, outputs, run.steps, options.estimate, replaced=replaced)
        if frames is None:
            in_space[-1] = found[0]
        elif len(chosen):
            in_space = _between(times, times[chosen], found, 0)
            in_space[~later] = 0.0 * in_space[~later]
    return SpaceTimeError(in_time, in_space), why


def _between(times: Array, at: Array, values: Array, reach: int) -> Array:
    """At each time the larger one of the neighbouring values; ``reach`` more on each side."""
    order = np.argsort(at, kind="stable")
    at, values = at[order], values[order]
    before, behind = np.searchsorted(at, times, side="right") - 1, np.searchsorted(at, times, side="left")
    # Equal times are several steps that floating-point times do not tell apart.
    low = np.clip(np.minimum(before, behind) - reach, 0, len(at) - 1)
    high = np.clip(np.maximum(before, behind) + reach, 0, len(at) - 1)
    return np.stack([values[a : b + 1].max(axis=0) for a, b in zip(low, high, strict=True)])
