"""How source, boundary data and reaction change in time: jumps, singular starts, and what lies between the steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hpfracc._arrays import is_tracer, to_host
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.pde.nonlinear import own_slopes
from hpfracc.solvers.pde.problem import EvolutionProblem
from hpfracc.solvers.pde.recording import Run

Array = np.ndarray[Any, Any]

#: Times at which data are looked at: for small grids, at least, and the bytes that all values together may have.
_LOOKS, _FEWEST, _BYTES = 1024, 256, 1 << 25
#: Times that are looked at together, at most.
_TOGETHER = 32
#: Times at which a reaction has to be the same as at t0 to count as independent of t.
_SAME = 64
#: The least power with which a solution starts: of data that are exactly a power, and of others, for which meshes are
#: graded that take thousands of steps.
_EXACT, _STARTS = 0.01, 0.045
#: Halvings of the distance to t0 between which the growth of data is measured, and the growth that counts.
_NEAR, _NEARER, _NEAREST, _GROWS = 20, 40, 60, 1.5
#: A difference between two looks that is checked for a jump, in units of the median; halvings that a jump survives.
_LARGE, _HALVINGS = 4.0, 12
#: Places within a step at which data that jump there are compared with a polynomial.
_NEAR_JUMPS = (np.arange(8) + 0.5) / 8
#: Share of the change up to the first look by which data that jump at t0 have changed just behind it.
_STAYS = 0.5
#: Largest numbers of differences that are checked, of jumps between two looks, and of jumps at which a mesh is graded.
_CHECKED, _AT_ONCE, MOST_BREAKS = 256, 8, 8
#: Steps of a mesh end this many ulps before a jump.
_ULPS = 16
#: The shortest piece of a mesh in ulps, and the least mean step near its start times the number of steps.
RESOLVED = 4e6


@dataclass(frozen=True, slots=True)
class TimeData:
    """What a scan of the data over the interval found.

    Attributes
    ----------
    looks : numpy.ndarray
        The times at which the data were evaluated.
    jumps : tuple of float
        Times at which the data jump: they have the value behind the jump there.
    power : float
        The p < 0 of data that grow like ``(t - t0)^p`` at the start; 0 if they do not.
    first : float
        Where the data jump at t0, the first time behind it; ``-inf`` if they do not.
    values : numpy.ndarray, shape (len(looks), ...) or (0,)
        The data at the looks, unless they are large.
    not_finite : float
        The first look at which the data are not finite, with which the scan ends; infinite if there is none.
    """

    looks: Array
    jumps: tuple[float, ...] = ()
    power: float = 0.0
    first: float = -math.inf
    values: Array = field(default_factory=lambda: np.empty(0))
    not_finite: float = math.inf

    def defect(self, problem: EvolutionProblem, mesh: Array, points: int = 2) -> float:
        r"""The error of u from data that change between the steps unseen.

        On each step longer than the distance between two looks, or within which the data jump, the data at the looks,
        or at times near the jump, are compared with the polynomial through the data at ``points`` ends of steps around
        it, between two jumps. A mean difference d on a step :math:`\tau` changes u by about
        :math:`(\Gamma(1+\alpha) \tau^{-\alpha} + s - A)^{-1} d`, where -s is the largest slope of a reaction that
        damps everywhere, otherwise 0; above order 1, which is not damped, without A.
        """
        if not len(self.looks):
            return 0.0
        rough = self.jumps if problem.delayed is None else (*self.jumps, *problem.delayed.kinks(problem.t1))
        places = [t for t in rough if t <= mesh[-1] and just_before(t, problem) not in problem.breaks]
        jumping = set((np.searchsorted(mesh, places) - 1).tolist())
        data, alpha = _data(problem), problem.alpha_value
        spacing = (mesh[-1] - mesh[0]) / len(self.looks)
        # The looks within each step: none at its start.
        begins = np.searchsorted(self.looks, mesh[:-1], side="right").tolist()
        ends = np.searchsorted(self.looks, mesh[1:], side="left").tolist()
        jumps = np.isin(mesh, problem.breaks)
        bounds = np.concatenate([[0], np.flatnonzero(jumps), [len(mesh) - 1]])
        pieces = np.searchsorted(bounds, np.arange(len(mesh) - 1), side="right").tolist()
        known = dict[float, Array]()

        def gap(k: int) -> Array:
            """The mean difference on a step, at each unknown."""
            nonlocal known
            first, last = bounds[pieces[k] - 1 : pieces[k] + 1].tolist()
            first = min(max(k + 1 - points // 2, first), max(first, last + 1 - points))
            last = min(first + points, last + 1)
            nodes = mesh[first:last]
            times = [max(t, self.first) for t in nodes.tolist()]
            if jumps[first]:  # behind the jump, which steps end before
                times[0] = max(float(nodes[0] + 2.0 * (nodes[0] - just_before(float(nodes[0]), problem))), self.first)
            known = {t: known[t] if t in known else data(t) for t in times}  # neighbouring steps share most of them
            looks, stored = self.looks[begins[k] : ends[k]], self.values[begins[k] : ends[k]]
            if k in jumping:
                looks, stored = mesh[k] + (mesh[k + 1] - mesh[k]) * _NEAR_JUMPS, self.values[:0]
            lines = np.tensordot(_lagrange(looks, nodes), np.stack([known[t] for t in times]), 1)
            seen = stored if len(stored) else np.stack([data(t) for t in looks.tolist()])
            return np.asarray(np.abs(seen - lines).mean(axis=0))

        damping = 0.0
        if problem.reaction is not None and problem.frozen is None:
            slopes = own_slopes(problem, problem.t0, problem.u0, problem.atol)
            damping = max(0.0, -max(float(to_host(one).real.max()) for one in slopes))
        powers = {alpha, problem.start_power or alpha} | ({1.0} if problem.integrated is not None else set())
        changes = dict[int, tuple[float, float, float]]()
        for k in sorted({*np.flatnonzero(np.diff(mesh) > spacing).tolist(), *jumping}):
            if (k in jumping or ends[k] > begins[k]) and not (k == 0 and self.power < 0.0):
                length = float(mesh[k + 1] - mesh[k])
                shift = math.gamma(1.0 + alpha) * length**-alpha
                scale = max(shift / math.gamma(1.0 + p) * length**p for p in powers)
                changes[k] = scale * _largest(gap(k)) / (shift + damping), scale, shift + damping
        space = problem.space if problem.frozen is None else problem.frozen(problem.t0, problem.u0)
        worst, zero = 0.0, 0.0 * problem.xp.stop_gradient(problem.u0)
        for k in sorted(changes, key=lambda k: -changes[k][0]):
            undamped, scale, shift = changes[k]
            if undamped <= worst:
                break
            if alpha <= 1.0:
                undamped = problem.largest(space.solve(shift, zero + problem.xp.array(scale * gap(k))))
            worst = max(worst, undamped)
        return worst


def _lagrange(t: Array, nodes: Array) -> Array:
    """The values of Lagrange's polynomials of the nodes at times between them, shape (len(t), len(nodes))."""
    apart = nodes[:, None] - nodes
    apart.flat[:: len(nodes) + 1] = 1.0
    found = 1.0 / ((t[:, None] - nodes) * apart.prod(axis=1))  # the barycentric form
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def scan_data(problem: EvolutionProblem, longest: float = math.inf) -> TimeData:
    """Evaluate the data at some thousand times, and closer ones where they jump; twice in ``longest`` at least."""
    none = TimeData(np.empty(0))
    if is_tracer(problem.u0) or not _depends_on_time(problem):
        return none
    data, length = _data(problem), problem.t1 - problem.t0
    size = 8 * math.prod(problem.state_shape)
    count = max(_FEWEST, min(_LOOKS, _BYTES // size))
    count = max(count, math.ceil(2.0 * length / longest))
    # Not evenly spaced, so that data with a period are not seen at one phase only.
    golden = 0.5 * (math.sqrt(5.0) - 1.0)
    offsets = 0.5 + 0.9 * (np.arange(count) * golden % 1.0 - 0.5)
    looks = problem.t0 + length * (np.arange(count) + offsets) / count
    sizes, gaps, before = np.empty(count), np.empty(count), None
    values, start = np.empty(0), 0
    while start < count:
        together = max(1, min(_TOGETHER, _BYTES // (16 * size)))
        block = np.stack([data(t) for t in looks[start : start + together].tolist()])
        here = slice(start, start + len(block))
        sizes[here] = np.abs(block).reshape(len(block), -1).max(axis=1)
        if not np.isfinite(sizes[here]).all():
            return TimeData(np.empty(0), not_finite=float(looks[here][~np.isfinite(sizes[here])][0]))
        # Those of delays change with the solution.
        if not start and count * block[0].nbytes <= _BYTES and problem.delayed is None:
            values = np.empty((count, *block.shape[1:]), np.result_type(block.dtype, float))
        if len(values):
            values[here] = block
        # From the look before to each one.
        steps = np.diff(block, axis=0, prepend=block[:1] if before is None else before)
        gaps[here] = np.abs(steps).reshape(len(block), -1).max(axis=1)
        before, start = block[-1:], start + len(block)
    gaps = gaps[1:]
    power = growth(data, problem)
    jumps: list[float] = []
    least = max(_LARGE * float(np.median(gaps)), problem.rtol * float(sizes.max()))
    for i in np.argsort(-gaps)[:_CHECKED]:
        if gaps[i] > least:
            jumps += _find_jumps(problem, float(looks[i]), float(looks[i + 1]), least)
    first = behind_start(problem, float(looks[0]), problem.rtol * float(sizes.max()))
    return TimeData(looks, tuple(sorted(set(jumps))), power, first if first > problem.t0 else -math.inf, values)


def growth(data: Callable[[float], Array], problem: EvolutionProblem) -> float:
    """The p < 0 of data that grow like ``(t - t0)^p`` at the start; 0 if they do not."""
    looks = [problem.t0 + (problem.t1 - problem.t0) * 2.0**-k for k in (_NEAR, _NEARER, _NEAREST)]
    with np.errstate(all="ignore"):
        near, nearer, nearest = (_largest(data(t)) for t in looks)
        # Smooth data may grow too, but not by the same factor over each of two such ranges.
        if not (near > 0.0 and nearer > _GROWS * near and nearest * near > 0.5 * nearer**2):
            return 0.0
    if math.isfinite(nearest):  # closer to t0 the other powers are smaller
        return -math.log2(nearest / nearer) / (_NEAREST - _NEARER)
    return -math.log2(nearer / near) / (_NEARER - _NEAR) if math.isfinite(nearer) else 0.0


def refuse_growth(problem: EvolutionProblem) -> None:
    """Raise an error for data that grow so fast at t0 that the solution does not start from u0, or hardly."""
    if is_tracer(problem.u0) or not _depends_on_time(problem) or math.isnan(problem.alpha_value):
        return
    power, most = growth(_data(problem), problem), min(problem.alpha_value, 1.0)
    most = most if problem.integrated is None else 1.0
    least = _STARTS if problem.singular is None else _EXACT
    if most + power < least:
        raise InvalidInputError(
            f"source, boundary data or reaction grow like (t - t0)^{power:.3g} at t0 = {problem.t0:g}, so that u would "
            f"not start from u0, or not visibly; they have to grow less than (t - t0)^-{most - least:.3g}"
        )


def refuse_gaps(run: Run, data: TimeData, problem: EvolutionProblem) -> None:
    """End a run with a failure if its steps went over times at which source or boundary data are not finite."""
    t = data.not_finite
    if run.success and run.newest[0] > t and problem.varies and not np.isfinite(to_host(problem.known(t))).all():
        run.fail(f"The data are not finite at t = {t:g}, between two steps: give data that are finite after t0.")


def behind_start(problem: EvolutionProblem, later: float, least: float = 0.0) -> float:
    """Where the data have their first value: t0, or the time behind it if they jump there by more than ``least``."""
    if is_tracer(problem.u0) or not (problem.varies or problem.reaction is not None):
        return problem.t0
    data, behind = _data(problem), 2.0 * problem.t0 - just_before(problem.t0, problem)
    at, soon = data(problem.t0), data(behind)
    jumps = _largest(soon - at) > max(least, _STAYS * _largest(data(later) - at))
    grows = _largest(soon) > _GROWS * _largest(data(problem.t0 + 2.0**-_NEAR * (later - problem.t0)))
    return behind if jumps and not grows else problem.t0


def _find_jumps(problem: EvolutionProblem, low: float, high: float, least: float) -> list[float]:
    """The times of jumps by more than ``least`` between two times, by bisection; at most a few."""
    found: list[float] = []
    intervals = [(low, high)]
    while intervals and len(found) <= _AT_ONCE:
        begin, end = intervals.pop()
        jump = _find_jump(problem, begin, end, least) if begin < end else None
        if jump is not None:
            place = just_before(jump[1], problem)
            found += [jump[1]] if place > problem.t0 else []
            intervals += [(begin, place), (jump[1], end)]
    return found


def _find_jump(problem: EvolutionProblem, a: float, b: float, least: float) -> tuple[float, float] | None:
    """Neighbouring times between which the data jump; None if their difference shrinks with the interval."""
    data = _data(problem)
    at_a, at_b = data(a), data(b)
    first = now = _largest(at_b - at_a)
    halvings = 0
    while now > least and (halvings != _HALVINGS or now > 0.25 * first):
        middle = 0.5 * (a + b)
        if not a < middle < b:
            return a, b
        here = data(middle)
        left, right = _largest(here - at_a), _largest(at_b - here)
        now, halvings = max(left, right), halvings + 1
        if left >= right:
            b, at_b = middle, here
        else:
            a, at_a = middle, here
    return None


def breaks_of(data: TimeData, problem: EvolutionProblem, given: tuple[float, ...] = ()) -> tuple[float, ...]:
    """The times of jumps: those that are given, and those that were found."""
    near = 1e-12 * (problem.t1 - problem.t0)
    if problem.delayed is not None:
        given = tuple({*given, *problem.delayed.kinks(problem.t1)})
    return tuple(sorted([*given, *(t for t in data.jumps if all(abs(t - other) > near for other in given))]))


def mesh_breaks(breaks: tuple[float, ...], problem: EvolutionProblem) -> tuple[float, ...]:
    """Where the steps of a mesh end before jumps; those too close to the bound before, or to t1, share its steps."""
    shortest = RESOLVED * float(np.spacing(max(abs(problem.t0), abs(problem.t1))))
    found = [problem.t0]
    for place in (just_before(t, problem) for t in breaks):
        if place - found[-1] > shortest and problem.t1 - place > shortest:
            found.append(place)
    return tuple(found[1:])


def note_jumps(data: TimeData, problem: EvolutionProblem) -> None:
    """Tell where the data jump, and whether steps end there."""
    if data.jumps:
        told = ", ".join(f"{t:.6g}" for t in data.jumps[:4]) + (", ..." if len(data.jumps) > 4 else "")
        problem.notes.append(f"the data jump at t = {told}" + (": steps end there" if problem.breaks else ""))


def just_before(t: float, problem: EvolutionProblem) -> float:
    """A time before a jump at ``t`` at which steps of a mesh end, so that no rounding moves data to the other side."""
    return t - (_ULPS + 1) * float(np.spacing(max(abs(problem.t0), abs(problem.t1))))


def _data(problem: EvolutionProblem) -> Callable[[float], Array]:
    """Source and boundary data, and the reaction of the initial state, as a function of time."""

    def value(t: float) -> Array:
        total = problem.known(t, whole=True) if problem.varies else None
        if problem.reaction is not None:
            own = problem.reaction(t, problem.u0)
            total = own if total is None else total + own
        return np.asarray(to_host(problem.xp.stop_gradient(total)))

    return value


def _depends_on_time(problem: EvolutionProblem) -> bool:
    if problem.varies:
        return True
    if problem.reaction is None:
        return False
    data, times = _data(problem), np.linspace(problem.t0, problem.t1, _SAME + 1)
    first = data(problem.t0)
    return any(_largest(data(float(t)) - first) != 0.0 for t in times[1:])


def _largest(u: Array) -> float:
    return float(np.abs(u).max())
