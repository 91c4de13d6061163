"""Recording of a run: frames, functionals of frames, values at requested times, and events."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc._arrays import is_tracer, to_host
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.progress import EventWatch
from hpfracc.solvers.pde.interpolation import between_frames
from hpfracc.solvers.pde.method import Question, Save
from hpfracc.solvers.pde.problem import EvolutionProblem, FrameBlock

__all__ = ["MAX_FRAMES", "FrameRecorder", "frames_kept", "read_save", "smooth_power"]

Array = np.ndarray[Any, Any]

#: The most frames that are kept by default.
MAX_FRAMES = 201


def read_save(save: Any, options: Options) -> Save:
    """Read which frames are kept."""
    if callable(save):
        return save  # type: ignore[no-any-return]
    if isinstance(save, str) and save in ("auto", "all", "last"):
        return save
    if not isinstance(save, bool) and isinstance(save, int | np.integer) and save >= 1:
        if options.t_eval is not None and save > 1:
            raise InvalidInputError(f"save={save!r} counts steps, and t_eval names times; give one of them")
        return int(save)
    raise InvalidInputError(f"save={save!r}: use 'auto', 'all', 'last', a number of steps, or a function save(t, u)")


def smooth_power(problem: EvolutionProblem) -> float:
    """The power of time in which the solution is smooth near the start."""
    alpha = problem.alpha_value if problem.start_power is None else problem.start_power
    return 1.0 if math.isnan(alpha) else min(1.0, max(0.05, alpha))


def frames_kept(options: Options, save: Save, steps: int) -> int:
    """The largest number of frames kept from this number of steps."""
    if callable(save):
        return 0
    if options.t_eval is not None:
        return len(options.t_eval)
    if save == "auto":
        save = _every(steps)
    if save == "all":
        return steps + 1
    return steps // save + 2 if isinstance(save, int) else 1


def _every(steps: int) -> Save:
    """Which steps are kept by default."""
    return "all" if steps < MAX_FRAMES else math.ceil(steps / (MAX_FRAMES - 1))


class FrameRecorder:
    """Receives the steps of a run one by one and keeps what was asked for.

    Parameters
    ----------
    question : Question
        The problem, what is kept of it (``save``, ``t_eval``, ``dense_output``), and events.
    steps : int or None
        Largest number of steps of the run; None if it is not known.
    begin : float
        Steps before this time are ignored.
    earlier : FrameRecorder, optional
        The recorder of a run to an earlier end, which this run continues: its frames are kept, and the first step that
        is recorded is that end.
    at : callable, optional
        ``at(t)``: the frame at a time within the newest step; interpolated between steps if it is not given.
    outputs : numpy.ndarray, optional
        The times among the steps that count as steps to be saved; all of them if it is not given.
    """

    def __init__(
        self,
        question: Question,
        steps: int | None,
        begin: float = -math.inf,
        earlier: FrameRecorder | None = None,
        at: Callable[[float], Any] | None = None,
        outputs: Array | None = None,
    ) -> None:
        problem, _, options, save, args, _ = question
        self.problem, self.save = problem, save
        self._begin, self._earlier, self._at = begin, earlier, at
        self._outputs = None if outputs is None else set(outputs.tolist())
        self._dense = options.dense_output and at is None
        self.times: list[float] = [] if earlier is None else list(earlier.times)
        self.kept: list[Any] = [] if earlier is None else list(earlier.kept)
        self.step_times: list[float] = [] if earlier is None else list(earlier.step_times)
        self.step_frames: list[Any] = [] if earlier is None else list(earlier.step_frames)
        self._before = len(self.times)
        self.steps = 0
        #: All frames in one array, for NumPy; allocated with the first frame.
        self._whole: Array | None = None
        saved = steps if outputs is None else len(outputs)
        self._room, self._stride = 0, 0
        if save == "auto":
            self._stride = int(saved is None)
            self.save = save = "all" if saved is None else _every(saved)
        if problem.xp.library == "numpy" and save != "last" and saved is not None:
            self._room = frames_kept(options, save, saved)
        #: Boundary points and their values, if they are the same in all steps.
        self._outside: tuple[Array, Array] | None = None
        self.newest: tuple[float, Any] = (problem.t0, problem.u0)
        self._wanted: list[float] | None = None
        if options.t_eval is not None:
            since = -math.inf if earlier is None else earlier.problem.t1
            self._wanted = [one for one in options.t_eval if since < one <= problem.t1]
        self._power, self._piece, self._passed = smooth_power(problem), problem.t0, 0
        self.watch = EventWatch(options.events, args) if options.events else None
        if self.watch is not None and earlier is not None and earlier.watch is not None:
            self.watch.times = [list(each) for each in earlier.watch.times]
            self.watch.states = [list(each) for each in earlier.watch.states]
        # Requested times and events are interpolated between recent steps.
        between = self.watch is not None or self._wanted is not None
        self._recent: deque[tuple[float, Any]] = deque(maxlen=4 if between else 1)
        self.ended: float | None = None
        #: The frame at the terminal event.
        self.end_frame: Any = None
        #: Whether values were not finite because the data are not.
        self.blames_data = False
        if earlier is None:
            self._take(problem.t0, problem.u0, 0)

    def needs(self, first: int, count: int, total: int, last: float) -> bool:
        """Whether the values of the ``count`` steps from ``first`` to the time ``last`` are needed."""
        if last < self._begin:
            return False
        if self.save == "last" and not (self._wanted or self.watch or self._dense):
            return first + count > total
        if isinstance(self.save, int) and self.save > 1 and not (self.watch or self._dense):
            return first + count > total or (first + count - 1) // self.save > (first - 1) // self.save
        return True

    def take(self, t: float, u: Any, *, last: bool = False) -> str | None:
        """Record one step; returns a message if its values are not finite."""
        bad = self._not_finite(t, u)
        if bad is not None:
            return bad
        self.steps += 1
        self.newest = (t, u)
        if t > self._begin:
            self._take(t, u, self.steps, last=last)
        return None

    def takes_blocks(self) -> bool:
        """Whether steps can be recorded in blocks."""
        plain = self.save == "all" and self._wanted is None and self.watch is None and not self._dense
        whole = self._earlier is None and self._begin == -math.inf
        return plain and whole and self._room > 0 and not self.problem.space.forcing_varies

    def make_block(self, block: FrameBlock) -> Array:
        """Compute the values of a block, directly in the array of all frames if possible."""
        if block.fill is None or self._outside is None:
            return block.make()  # type: ignore[no-any-return]
        here: Array = self.problem.space.restrict(self._next_rows(block.count))
        block.fill(here)
        return here

    def take_block(self, times: Array, states: Array) -> str | None:
        """Record a block of steps; returns a message if values are not finite, and keeps the steps before them."""
        count, space = len(times), self.problem.space
        if not np.isfinite(states.sum()):
            good = np.isfinite(states.reshape(count, -1)).all(axis=1)
            if not good.all():
                first = int(np.argmin(good))
                if first:
                    self.take_block(times[:first], states[:first])
                return self._not_finite(float(times[first]), states[first])
        rows = self._next_rows(count)
        if self._outside is None:
            rows[...] = space.embed(states, float(times[-1]))
            inside = np.zeros(rows.shape[1:])
            part = space.restrict(inside)
            if np.shares_memory(part, inside):  # the unknowns are points of the grid, and the others are constant
                part[...] = 1.0
                self._outside = np.flatnonzero(inside == 0.0), rows[-1][inside == 0.0]
        else:
            if not np.may_share_memory(rows, states):
                space.restrict(rows)[...] = states
            rows.reshape(count, -1)[:, self._outside[0]] = self._outside[1]
        self.steps += count
        self.newest = (float(times[-1]), states[-1])
        self.times.extend(times.tolist())
        return None

    def _next_rows(self, count: int) -> Array:
        """The places of the next frames in the array of all of them, which exists since the first frame."""
        assert self._whole is not None
        return self._whole[len(self.times) : len(self.times) + count]

    def frames(self) -> Any:
        """All frames in one array."""
        if not self._room:
            return self.problem.xp.stack(self.kept)
        parts = [] if self._earlier is None else [self._earlier.frames()]
        if self._whole is not None:
            parts.append(self._whole[: len(self.times) - self._before])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _take(self, t: float, u: Any, number: int, *, last: bool = False) -> None:
        frame = self.problem.space.embed(u, t)
        before = self._recent[-1] if self._recent else None
        if before is not None and before[0] in self.problem.breaks:
            # Behind a jump of the data nothing is interpolated through frames before it.
            while len(self._recent) > 1:
                self._recent.popleft()
            self._piece = before[0]
        self._recent.append((t, frame))
        if before is None and self._earlier is not None:
            return  # the end of the earlier run, already recorded
        if self._dense:
            self.step_times.append(t)
            self.step_frames.append(frame)
        if self.watch is not None and before is not None:
            end = self._look(before, (t, frame))
            if end is not None:
                self.ended, self.end_frame = end, self._between(end)
                if self._wanted is None:
                    self._keep(end, self.end_frame)
                else:
                    self._wanted = [one for one in self._wanted if one <= end]
                    self._deliver(math.inf)
                return
        if self._wanted is not None:
            whole = last or self._at is not None or t in self.problem.breaks
            self._deliver((math.inf if last else t) if whole else (before[0] if before is not None else t))
        elif self._outputs is None or t in self._outputs:
            if self._chosen(number if self._outputs is None else self._passed, last):
                self._keep(t, frame)
            self._passed += 1

    def _chosen(self, number: int, last: bool) -> bool:
        if self.save == "last":
            return True  # replaces the previous frame
        if isinstance(self.save, int):
            return last or number % self.save == 0
        return not self._stride or last or number % self._stride == 0

    def _deliver(self, until: float) -> None:
        """Record the requested times up to ``until``; later ones can be interpolated better after the next step."""
        assert self._wanted is not None
        while self._wanted and self._wanted[0] <= until:
            t = float(self._wanted.pop(0))
            self._keep(t, self._between(t))

    def _between(self, t: float) -> Any:
        times = np.array([time for time, _ in self._recent])
        exact = np.flatnonzero(times == t)
        if exact.size:
            return self._recent[int(exact[0])][1]
        if self._at is not None:
            return self._at(t)
        return between_frames(times, [frame for _, frame in self._recent], t, self._piece, self._power)

    def _keep(self, t: float, frame: Any) -> None:
        value = self.save(t, frame) if callable(self.save) else frame
        if self.save == "last" and self.kept:
            self.times[-1], self.kept[-1] = t, value
            return
        if self._room:
            if self._whole is None:
                self._whole = np.empty((self._room, *value.shape), value.dtype)
            self._whole[len(self.times) - self._before] = value
        else:
            self.kept.append(value)
        self.times.append(t)
        if self._stride and len(self.times) > MAX_FRAMES:  # every second one from now on
            self.times, self.kept, self._stride = self.times[::2], self.kept[::2], 2 * self._stride

    def _look(self, before: tuple[float, Any], now: tuple[float, Any]) -> float | None:
        assert self.watch is not None
        states = np.stack([to_host(before[1]), to_host(now[1])], axis=-1)
        return self.watch.watch(np.array([before[0], now[0]]), states, lambda t: np.asarray(to_host(self._between(t))))

    def _not_finite(self, t: float, u: Any) -> str | None:
        if is_tracer(u):
            return None
        xp = self.problem.xp
        if bool(xp.isfinite(xp.abs(xp.stop_gradient(u).sum()))):
            return None
        bad = np.argwhere(~np.isfinite(np.asarray(to_host(xp.stop_gradient(u)))))
        if not len(bad):
            return None  # only the sum overflowed, or is nan
        if 2 * len(bad) > math.prod(self.problem.state_shape):
            # A solve spreads non-finite values over the box in one step: report where the solution was largest before.
            before = np.abs(np.asarray(to_host(xp.stop_gradient(self.newest[1]))))
            bad = np.array([np.unravel_index(int(before.argmax()), before.shape)])
        place = bad[0][-len(self.problem.space.shape) :]
        axes = [np.asarray(to_host(x)).reshape(-1) for x in self.problem.space.points]
        points = [float(axis[i]) for axis, i in zip(axes, place, strict=True)]
        which = "" if self.problem.components is None else f" in component {int(bad[0][0])}"
        where = ", ".join(f"{one:g}" for one in points)
        told = f"The solution is not finite at t = {t:g}, x = ({where}){which}: "
        culprit = self._infinite_data(t)
        if culprit is not None:
            self.blames_data = True
            return f"{told}{culprit} not finite; give data that are finite at every time after t0."
        return (
            f"{told}take a smaller step, check the reaction and the sign of the diffusion there, or whether the "
            "solution blows up."
        )

    def _infinite_data(self, t: float) -> str | None:
        """Which data are not finite between the newest step and ``t``; the reaction is that of u0, which is finite."""
        problem, before, u = self.problem, self.newest[0], self.problem.u0
        for time in (before, 0.5 * (before + t), t):
            with np.errstate(all="ignore"):
                known = problem.known(time)
                acts = None if problem.reaction is None else problem.reaction(time, u)
            for value, what in ((known, "source or boundary data are"), (acts, "the reaction is")):
                if value is not None and not np.all(np.isfinite(np.asarray(to_host(problem.xp.stop_gradient(value))))):
                    return f"at t = {time:g} the {what}" if what.startswith("source") else f"at t = {time:g} {what}"
        return None
