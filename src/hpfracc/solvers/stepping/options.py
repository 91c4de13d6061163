"""Options of a solve, read and checked."""

from __future__ import annotations

import datetime
import logging
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, TypedDict

import numpy as np

from hpfracc._arrays import is_tracer, library_of, refuse_masked, to_host, tracks_gradient
from hpfracc._choices import DerivativeName
from hpfracc._reading import broadcasts, flag, function, listed, number, numbers, shown, times_between, whole
from hpfracc.errors import InvalidInputError, ShapeError

Array = np.ndarray[Any, Any]

_log = logging.getLogger("hpfracc")

#: Default limit of steps of a solve.
MAX_STEPS = 10_000_000
#: Smallest relative tolerance of any method.
_MIN_RTOL = 1e-13
#: Seconds of a solve after which its pace is looked at first, and a rest that is told.
_FIRST_LOOK, _LONG = 5.0, 60.0
TRACED_TIMES = "the times are traced, and the number of steps unknown: leave step out, or keep them out of jit and vmap"


class CommonOptions(TypedDict, total=False):
    """The options of ``solve_fode`` that everything built on it accepts, for type checkers."""

    rtol: float
    atol: Any
    jac: Callable[..., Any] | None
    jac_sparsity: Any
    max_steps: int
    max_step: float | None
    max_seconds: float | None
    first_step: float | None
    breakpoints: Sequence[float]
    dy0: Any
    psi: Callable[[Any], Any] | None
    inverse: Callable[[Any], Any] | None
    rate: float | None
    normalisation: float | Callable[[Any], Any] | None
    terms: Sequence[tuple[Any, Any]]
    delays: Sequence[float]
    history: Any
    backend: Any
    compile: bool | str
    progress: bool | Callable[..., Any]
    estimate: bool | str


class SolveOptions(CommonOptions, total=False):
    """The options of ``solve_fode`` that ``fdeint`` accepts, for type checkers."""

    args: Any
    derivative: DerivativeName


class Clock:
    """The seconds that a solve takes, over all of its passes and meshes.

    Parameters
    ----------
    most : float
        After how many it ends.
    """

    def __init__(self, most: float = math.inf) -> None:
        self.most, self._started, self._told = most, perf_counter(), False
        self._before = self._started, math.inf
        #: When to look again.
        self.next = self._started + min(_FIRST_LOOK, most)

    @property
    def late(self) -> bool:
        """Whether the solve has taken all of its seconds."""
        return perf_counter() > self._started + self.most

    def look(self, t: float, end: float) -> str | None:
        """Why to end at the time ``t``, or None; says once how long the rest takes, if that is minutes."""
        now, (then, before) = perf_counter(), self._before
        if self.late:
            return (
                f"max_seconds={self.most:g} ended the solve at t = {t:g} of {end:g}: this is the solution up to then. "
                "Give it more seconds, loosen rtol, or shorten the interval."
            )
        pace = (t - before) / (now - then)
        if pace > 0.0 and not self._told and (end - t) / pace > _LONG:
            self._told, minutes = True, (end - t) / pace / 60.0
            try:
                by = f", by {datetime.datetime.now() + datetime.timedelta(minutes=minutes):%H:%M on %d %B}"
            except OverflowError:
                by = ""
            _log.warning(
                "the solve has reached t = %.3g of %g in %.0f s, and at its pace the rest takes about %.3g minutes%s; "
                "max_seconds= ends it earlier, with the part that is done",
                t, end, now - self._started, minutes, by,
            )  # fmt: skip
        self._before, self.next = (now, t), min(2.0 * now - self._started, self._started + self.most)
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """The checked options of a solve.

    Attributes
    ----------
    rtol, atol : float or array
        The tolerance is ``atol + rtol |y|``; ``atol`` broadcasts to the state.
    step : float or None
        The largest step of a fixed-step method; the actual step divides the interval. Without it a fixed-step method
        halves its step until two solutions agree to the tolerance.
    t_eval : numpy.ndarray or None
        Increasing times within the interval at which the solution is returned, instead of at the steps.
    events : tuple of callables
        ``event(t, y, *args)``, with ``terminal`` and ``direction`` as in SciPy.
    dense_output : bool
        Whether the result has ``sol(t)``.
    max_steps : int
        Maximum number of steps.
    max_step, first_step : float, float or None
        The longest and the first step of an adaptive method.
    backend : str
        ``"auto"``, or the backend of the expensive parts.
    compile : bool or "auto"
        Whether ``fun`` is compiled.
    progress : bool or callable
        Whether to show a progress bar, or ``progress(t, y)``, called from time to time with the newest point.
    estimate : bool or "auto"
        Whether a fixed-step solution gets an error estimate.
    precision : str
        ``"float32"`` where ``backend="numba-cuda"`` was asked for and y0 was given so; the host takes float64 always.
    breakpoints : tuple of float
        Increasing times within the interval at which adaptive steps end, and behind which they start anew.
    moving : tensor, JAX array or None
        ``t_eval`` as it was given, if it carries a gradient.
    max_seconds : float or None
        After how many seconds the solve ends.
    clock : Clock
        Counts them, for all that is solved with these options.
    """

    rtol: float = 1e-6
    atol: Any = 1e-9
    step: float | None = None
    t_eval: Array | None = None
    events: tuple[Callable[..., Any], ...] = ()
    dense_output: bool = False
    max_steps: int = MAX_STEPS
    backend: str = "auto"
    compile: bool | str = "auto"
    progress: bool | Callable[..., Any] = False
    max_step: float = math.inf
    first_step: float | None = None
    estimate: bool | str = "auto"
    precision: str = "float64"
    breakpoints: tuple[float, ...] = ()
    moving: Any = None
    max_seconds: float | None = None
    clock: Clock = field(default_factory=Clock)

    @property
    def limits_steps(self) -> str | None:
        """The requested limits of adaptive steps, in words; None if there are none."""
        given = {"max_step": self.max_step if self.max_step < math.inf else None, "first_step": self.first_step}
        found = [f"{name}={value:g}" for name, value in given.items() if value is not None]
        return " and ".join([*found, *["breakpoints"] * bool(self.breakpoints)]) or None


def read_options(t0: float, t1: float, shape: tuple[int, ...], **given: Any) -> Options:
    """Read and check the options of a solve over ``[t0, t1]`` with a state of ``shape``: fields of :class:`Options`."""
    asked = Options(**given)
    rtol = number("rtol", asked.rtol, above=0.0)
    if rtol < _MIN_RTOL:
        raise InvalidInputError(f"rtol={rtol:g} is below what float64 can hold; use {_MIN_RTOL:g} or more")
    bound = numbers("atol", asked.atol, least=0.0)
    if bound.ndim and not broadcasts(bound.shape, shape):
        raise ShapeError(f"atol has shape {bound.shape} and the state {shape}: give one, or one per component")
    for what in ("compile", "estimate"):
        value = getattr(asked, what)
        if not (isinstance(value, bool | np.bool_) or (isinstance(value, str) and value == "auto")):
            raise InvalidInputError(f"{what}={shown(value)} is not known; use 'auto', True or False")
    if not callable(asked.progress):
        flag("progress", asked.progress)
    step = None if asked.step is None else number("step", asked.step, above=0.0)
    moving = asked.t_eval if tracks_gradient(asked.t_eval) else None
    if moving is not None and step is not None and known_times(moving) is None:
        raise InvalidInputError(TRACED_TIMES)
    backend = getattr(asked.backend, "value", asked.backend)
    read = replace(
        asked,
        rtol=rtol,
        atol=float(bound) if bound.ndim == 0 else bound,
        step=step,
        t_eval=_read_times(asked.t_eval, t0, t1),
        events=_read_events(asked.events),
        dense_output=flag("dense_output", asked.dense_output),
        max_steps=whole("max_steps", asked.max_steps, least=1),
        backend="auto" if backend is None else str(backend).casefold(),
        breakpoints=times_between("breakpoints", asked.breakpoints, t0, t1),
        moving=moving,
        clock=Clock(math.inf if asked.max_seconds is None else number("max_seconds", asked.max_seconds, above=0.0)),
        **_read_limits(asked.max_step, asked.first_step, t1 - t0),
    )
    if step is not None and (limits := read.limits_steps) is not None:
        raise InvalidInputError(f"{limits} is for adaptive steps, and step={step!r} makes them equal; omit one")
    return read


def _read_limits(max_step: Any, first_step: Any, length: float) -> dict[str, Any]:
    """The longest and the first step of an adaptive method."""
    longest = math.inf if max_step is None else number("max_step", max_step, above=0.0, infinite=True)
    first = None if first_step is None else number("first_step", first_step, above=0.0, infinite=True)
    if first is not None and first > min(length, longest):
        beyond = f"the interval, {length:g}" if first > length else f"max_step={longest:g}"
        raise InvalidInputError(f"first_step={first:g} is longer than {beyond}; give a shorter one")
    return {"max_step": longest, "first_step": first}


def known_times(t: Any) -> Any:
    """The times as numbers without a gradient; None if they are traced by ``jit`` or ``vmap``."""
    library = library_of(t)
    if library == "torch":
        try:
            return to_host(t)
        except RuntimeError:
            return None
    if library == "jax":
        known = sys.modules["jax"].lax.stop_gradient(t)  # under jax.grad they are known
        return None if is_tracer(known) else np.asarray(known)
    return t


def _read_times(t_eval: Any, t0: float, t1: float) -> Array | None:
    refuse_masked(t_eval, "t_eval")
    known = known_times(t_eval)
    if known is None:
        return None
    times = numbers("t_eval", known, ndim=1)
    # np.arange and np.linspace can end a few ulps after the intended end.
    slack = 4.0 * np.spacing(max(abs(t0), abs(t1)))
    inside: Array = np.clip(times, t0, t1)
    if np.any(np.abs(times - inside) > slack):
        raise InvalidInputError(f"t_eval runs from {times.min():g} to {times.max():g}, beyond t_span=({t0:g}, {t1:g})")
    if np.any(np.diff(inside) <= 0.0):
        raise InvalidInputError("t_eval has to be strictly increasing")
    return inside


def _read_events(events: Any) -> tuple[Callable[..., Any], ...]:
    if events is None:
        return ()
    given = (events,) if callable(events) else listed("events", events, "a function event(t, y), or a list of them")
    for event in given:
        function("events", event, "(t, y)")
        if int(getattr(event, "terminal", False)) < 0:
            raise InvalidInputError(f"event.terminal={event.terminal!r} has to be True, False, or a number of zeros")
        if not math.isfinite(getattr(event, "direction", 0)):
            raise InvalidInputError(f"event.direction={event.direction!r} has to be negative, zero or positive")
    return tuple(given)
