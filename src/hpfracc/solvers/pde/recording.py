"""A walk of a partial equation: frames, functionals of frames, and values at requested times."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import is_tracer, to_host
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.pde.interpolation import between_frames
from hpfracc.solvers.pde.method import Question, Save
from hpfracc.solvers.pde.problem import EvolutionProblem
from hpfracc.solvers.stepping.options import Options
from hpfracc.solvers.stepping.system import StepFailedError
from hpfracc.solvers.stepping.walk import Walk

Array = np.ndarray[Any, Any]

#: The most frames that are kept by default.
MAX_FRAMES = 201


def read_save(save: Any, options: Options) -> Save:
    """Read which frames are kept."""
    if callable(save):
        return save  # type: ignore[no-any-return]
    if isinstance(save, str):
        return _reading.choice("save", save, ("auto", "all", "last"))
    if options.t_eval is not None and save != 1:
        raise InvalidInputError(f"save={save!r} counts steps, and t_eval names times; give one of them")
    return _reading.whole("save", save, least=1)


def smooth_power(problem: EvolutionProblem) -> float:
    """The power of time in which the solution is smooth near the start."""
    alpha = problem.alpha_value if problem.start_power is None else problem.start_power
    alpha = alpha if problem.singular is None else min(alpha, problem.singular.start)
    return 1.0 if math.isnan(alpha) else min(1.0, max(0.05, alpha))


def frames_kept(options: Options, save: Save, steps: int) -> int:
    """The largest number of frames kept from this number of steps."""
    if callable(save):
        return 0
    if options.t_eval is not None:
        return len(options.t_eval)
    every = _every(save, steps)
    return steps // every + 1 + (every > 1) if every else 1


def _every(save: Save, steps: int) -> int:
    """Every how many steps one is kept; 0 for the last one alone."""
    if save == "auto":
        return max(1, math.ceil(steps / (MAX_FRAMES - 1)) if steps >= MAX_FRAMES else 1)
    return save if isinstance(save, int) else 0 if save == "last" else 1


class Run(Walk):
    """A walk over the interval, which keeps of its steps what was asked for.

    Parameters
    ----------
    question : Question
        The problem, what is kept of it (``save``, ``t_eval``, ``dense_output``), and events.
    steps : int or None
        Largest number of steps of the run; None if it is not known.
    begin : float
        Steps before this time are ignored.
    earlier : Run, optional
        A run to an earlier end, which this run continues: its frames are kept, and the first step that
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
        earlier: Run | None = None,
        at: Callable[[float], Any] | None = None,
        outputs: Array | None = None,
    ) -> None:
        problem, _, options, self.save, args, _ = self.question = question
        self.problem: EvolutionProblem = problem
        since, wanted = -math.inf if earlier is None else earlier.problem.t1, options.t_eval
        wanted = None if wanted is None else wanted[(wanted > since) & (wanted <= problem.t1)]
        super().__init__(options, problem.t1, args, wanted)
        #: The unknowns after some steps, by the number of the step, for comparison.
        self.samples: dict[int, Any] = {}
        #: Times and the estimated errors in time there, of each component.
        self.errors: list[tuple[float, Any]] = []
        #: ``frame(t)``: the solution on the whole grid at any time, where the steps give it.
        self.frame: Callable[[float], Any] | None = None
        self._begin, self._earlier, self._at = begin, earlier, at
        self._outputs = None if outputs is None else set(outputs.tolist())
        self._dense = options.dense_output and at is None
        self.step_times, self.step_frames = list[float](), list[Any]()
        if earlier is not None:
            self.times, self.kept = list(earlier.times), list(earlier.kept)
            self.step_times, self.step_frames = list(earlier.step_times), list(earlier.step_frames)
            self.events.times = [list(each) for each in earlier.events.times]
            self.events.states = [list(each) for each in earlier.events.states]
        self._before = len(self.times)
        self.steps = self._passed = 0
        saved = steps if outputs is None else len(outputs)
        self._every = _every(self.save, saved or 0)
        #: Whether every second frame is dropped once there are too many.
        self._thins = self.save == "auto" and saved is None
        #: All frames in one array, for NumPy: its length, and the array, allocated with the first frame.
        self._room, self._whole = 0, np.empty(0)
        if problem.xp.library == "numpy" and self.save != "last" and saved is not None:
            self._room = frames_kept(options, self.save, saved)
        self.newest: tuple[float, Any] = (problem.t0, problem.u0)
        self._power, self._piece = smooth_power(problem), problem.t0
        # Requested times and events are interpolated between recent steps.
        between = bool(options.events) or wanted is not None
        self._recent: deque[tuple[float, Any]] = deque(maxlen=4 if between else 1)
        #: The frame at a terminal event.
        self.end_frame: Any = None
        #: Whether values were not finite because the data are not.
        self.blames_data = False
        if earlier is None:
            self._take(problem.t0, problem.space.embed(problem.u0, problem.t0))

    def follow(self, steps: Callable[[], str | None]) -> None:
        """Step; an overflow has its own message, and Ctrl-C is left to the caller, who knows the newest run."""

        def guarded() -> str | None:
            with np.errstate(over="ignore", invalid="ignore"):
                try:
                    return steps()
                except StepFailedError as error:
                    return f"Stopped at t = {self.newest[0]:g}: {error}."

        super().follow(guarded)
        if self.interrupted:
            raise KeyboardInterrupt

    def reached(self) -> float:
        """The time of the newest step."""
        return self.newest[0]

    def needs(self, count: int, total: int, last: float) -> bool:
        """Whether the values of the next ``count`` steps, to the time ``last``, are needed."""
        if last < self._begin:
            return False
        if self.options.events or self._dense or (self.wanted is not None and self.next < self.wanted.size):
            return True
        after = self.steps + count
        return after >= total or (self._every > 0 and after // self._every > self.steps // self._every)

    def take(self, times: Array, states: Any, *, last: bool = False, finite: bool = False) -> bool:
        """Record steps, the last of which may be the ``last`` of all; returns whether to go on.

        ``finite`` says that they are known to be.
        """
        space, count = self.problem.space, len(times)
        bad = None if finite else self._first_bad(states)
        steady = not space.forcing_varies
        frames = space.embed(states, float(times[-1])) if steady or count == 1 else None
        for k, t in enumerate(times.tolist()):
            if k == bad:
                return self.fail(self._not_finite(t, states[k]))
            self.steps += 1
            self.newest = (t, states[k])
            if t > self._begin:
                frame = space.embed(states[k], t) if frames is None else frames[k]
                self._take(t, frame, last=last and k == count - 1)
                if self.ended is not None:
                    self.end_frame = self._between(self.ended)
                    return False
        return last or self.in_time()

    def frames(self) -> Any:
        """All frames in one array."""
        if not self._room:
            return self.problem.xp.stack(self.kept[: len(self.times)])
        parts = [] if self._earlier is None else [self._earlier.frames()]
        if len(self.times) > self._before:
            parts.append(self._whole[: len(self.times) - self._before])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _take(self, t: float, frame: Any, *, last: bool = False) -> None:
        before = self.point
        if before is not None and before[0] in self.problem.breaks:
            # Behind a jump of the data nothing is interpolated through frames before it.
            while len(self._recent) > 1:
                self._recent.popleft()
            self._piece = before[0]
        self._recent.append((t, frame))
        if before is None and self._earlier is not None:
            self.point = t, frame  # the end of the earlier run, already recorded
            return
        if self._dense:
            self.step_times.append(t)
            self.step_frames.append(frame)
        counts = self._outputs is None or t in self._outputs
        number = self.steps if self._outputs is None else self._passed
        self._passed += counts
        self.record(t, frame, last=last, kept=counts and (last or not self._every or number % self._every == 0))

    def settled(self, t: float) -> float:
        """Later times can be interpolated better after the next step, unless the steps give them."""
        whole = self._at is not None or t in self.problem.breaks or len(self._recent) < 2
        return t if whole else self._recent[-2][0]

    def shown(self, state: Any) -> Array:
        """The frame in NumPy."""
        return np.asarray(to_host(state))

    def between(self, times: Array) -> Iterable[Any]:
        """The frames at times within the newest steps, one after the other."""
        return map(self._between, times.tolist())

    def _between(self, t: float) -> Any:
        times = np.array([time for time, _ in self._recent])
        exact = np.flatnonzero(times == t)
        if exact.size:
            return self._recent[int(exact[0])][1]
        if self._at is not None:
            return self._at(t)
        return between_frames(times, [frame for _, frame in self._recent], t, self._piece, self._power)

    def keep(self, times: Sequence[float], states: Iterable[Any]) -> None:
        """Keep the frames at some times, or what ``save`` makes of them."""
        for t, frame in zip(times, states, strict=True):
            value = self.save(t, frame) if callable(self.save) else frame
            if self.save == "last" and self.kept:
                self.times[-1], self.kept[-1] = t, value
                continue
            if self._room:
                if len(self.times) == self._before:
                    self._whole = np.empty((self._room, *value.shape), value.dtype)
                self._whole[len(self.times) - self._before] = value
            else:
                self.kept.append(value)
            self.times.append(t)
            if self._thins and len(self.times) > MAX_FRAMES:  # every second one from now on
                self.times, self.kept, self._every = self.times[::2], self.kept[::2], 2 * self._every

    def _first_bad(self, states: Any) -> int | None:
        """The first of several states that is not finite."""
        xp = self.problem.xp
        if is_tracer(states) or bool(xp.isfinite(xp.abs(xp.stop_gradient(states).sum()))):
            return None
        good = np.isfinite(np.asarray(to_host(xp.stop_gradient(states)))).reshape(len(states), -1).all(axis=1)
        return None if good.all() else int(np.argmin(good))  # the sum alone may have overflowed

    def _not_finite(self, t: float, u: Any) -> str:
        """The message for a state that is not finite at ``t``."""
        before, now = (np.asarray(to_host(self.problem.xp.stop_gradient(one))) for one in (self.newest[1], u))
        bad = ~np.isfinite(now)
        # A solve spreads non-finite values over the box in one step: then report where the solution was largest before.
        place = np.unravel_index(int((np.abs(before) if 2 * bad.sum() > bad.size else bad).argmax()), now.shape)
        shape = self.problem.space.shape
        points = [np.broadcast_to(to_host(x), shape)[place[-len(shape) :]] for x in self.problem.space.points]
        where = ", ".join(f"{float(x):g}" for x in points)
        which = "" if self.problem.components is None else f" in component {int(place[0])}"
        told = f"The solution is not finite at t = {t:g}{f', x = ({where})' if where else ''}{which}: "
        culprit = self._infinite_data(t)
        if culprit is not None:
            self.blames_data = True
            return f"{told}{culprit}."
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
            for value, what in ((known, "the source or boundary data are"), (acts, "the reaction is")):
                if value is not None and not np.all(np.isfinite(np.asarray(to_host(problem.xp.stop_gradient(value))))):
                    remedy = "give data that are finite at every time after t0"
                    if time == problem.t0:
                        remedy = "give finite ones, or use 'l1' for orders up to 1, which takes those behind t0"
                    return f"at t = {time:g} {what} not finite; {remedy}"
        return None
