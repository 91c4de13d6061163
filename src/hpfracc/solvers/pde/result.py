"""The result of a solve of a partial differential equation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import to_host
from hpfracc._choices import ArrayOut
from hpfracc._results import LabelledArrays, PlainData, Result, SmallCurve
from hpfracc.errors import InvalidInputError

Array = np.ndarray[Any, Any]

#: Quadrature points for the potential of a reaction; exact for polynomials of degree 31.
_POTENTIAL_POINTS = 16
#: Profiles in a notebook.
_PROFILES = 6


Estimate = TypeVar("Estimate")


class SpaceTimeError(NamedTuple, Generic[Estimate]):
    """Estimates of errors due to the time steps and to the grid; nan where there is no estimate."""

    time: Estimate
    space: Estimate


@dataclass(frozen=True, slots=True)
class EvolutionDecision(PlainData):
    """How the equation was solved, and why.

    Attributes
    ----------
    method : str
        The method in time.
    reason : str
        Why it was chosen.
    space : str
        The discretisation in space.
    accuracy : str
        The order of the discretisation in space.
    history : str
        How the memory was summed: ``"direct"``, ``"exponentials"``, ``"fft"``, or ``"none"``.
    notes : tuple of str
        Further remarks.
    """

    method: str
    reason: str
    space: str
    accuracy: str
    history: str = "none"
    notes: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class FPDEResult(Result, Generic[ArrayOut]):
    """The solution of a fractional partial differential equation.

    Attributes
    ----------
    t : numpy.ndarray, shape (N,)
        Times: the steps, those that ``save`` keeps, or ``t_eval``.
    x : numpy.ndarray or tuple of numpy.ndarray
        The grid: an array in one dimension, one for each axis in more.
    u : array, shape (N, ...)
        The solution, with time as the first axis, then the components of a system, then the grid with its boundary
        points; in the library of the initial values. If ``save`` is a function, its return values, one row per time.
    success : bool
        Whether the end or a terminal event was reached (and, if no step was given, the tolerance).
    message : str
        Why the solve ended, and what to do if it ended early.
    sol : callable or None
        With ``dense_output``: ``sol(t)`` and ``sol(t, x)``.
    error_estimate : SpaceTimeError
        ``.time`` and ``.space``, the largest errors at the times ``t``, in units of u; with ``dense_output`` that in
        time is the largest of the interval. In time from solutions with different steps, and of the quadrature in the
        order where it is distributed; in space from the highest modes, or from coarser grids for finite differences.
        nan where there is no estimate.
    errors : SpaceTimeError
        The same at each time: ``.time`` and ``.space`` are arrays of shape (N,), or (N, components). Between the times
        at which solutions are compared they are the larger one of the two neighbours; in space these are up to 12 of
        ``t``, of steps down to a thousandth of the interval, of ``t_eval`` also below, and the first value is repeated
        before them. If ``save`` is a function, space has the last time alone.
    decision : EvolutionDecision
        The method that ran, with the reason for choosing it.
    stats : dict
        Counts and timings: steps, solves, evaluations, seconds, forecast memory.
    t_events, u_events : list of arrays or None
        For each event, its times and the solution at them.
    components : tuple of str
        The names of the components, in the order of ``u``, if the initial data had names.
    """

    t: Array
    x: Any
    u: ArrayOut
    success: bool
    message: str
    sol: Callable[..., Any] | None = None
    error_estimate: SpaceTimeError[float] = field(default_factory=lambda: SpaceTimeError(math.nan, math.nan))
    errors: SpaceTimeError[Array] = field(default_factory=lambda: SpaceTimeError(np.empty(0), np.empty(0)))
    decision: EvolutionDecision | None = None
    stats: dict[str, Any] = field(default_factory=dict)
    t_events: list[Array] | None = None
    u_events: list[ArrayOut] | None = None
    components: tuple[str, ...] = ()
    _tools: Any = field(default=None, repr=False)
    _mass: Any = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Drop the user's functions, which may not be picklable: ``mass`` is kept, ``energy`` is not available."""
        if self._tools is not None and self.stats.get("frames", True):
            self._mass = self.mass
        return {name: getattr(self, name) for name in self.__slots__ if name != "_tools"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._tools = None
        for name, value in state.items():
            setattr(self, name, value)

    _parts: ClassVar[tuple[type, ...]] = (EvolutionDecision, SpaceTimeError)

    def _state(self) -> dict[str, Any]:
        return {**self.__getstate__(), "_tools": None}

    def _labelled(self) -> LabelledArrays:
        grid = self.x if isinstance(self.x, tuple) else (self.x,)
        shape = tuple(np.shape(self.u))
        coords = {"t": self.t}
        if self.stats.get("frames", True):
            names = ("x", "y", "z")[: len(grid)]
            dims = (*(("component",) if len(shape) == len(grid) + 2 else ()), *names)
            coords |= dict(zip(names, grid, strict=True))
            if self.components:
                coords["component"] = np.array(self.components)
        else:
            dims = tuple(f"value_{axis}" for axis in range(len(shape) - 1))
        variables = {"u": (("t", *dims), self.u)}
        for name, values in self.errors._asdict().items():
            if len(values) == len(self.t):
                variables[f"error_in_{name}"] = (("t", "component")[: values.ndim], values)
        return LabelledArrays(variables, coords, "t")

    def _facts(self) -> dict[str, Any]:
        facts = {"success": self.success, "message": self.message, "shape": str(tuple(np.shape(self.u)))}
        if self.decision is not None:
            facts |= {"method": self.decision.method, "space": self.decision.space}
        return {**facts, "error_in_time": float(self.error_estimate.time), "error_in_space": self.error_estimate.space}

    def _curves(self) -> list[SmallCurve]:
        """Profiles over x at some times, in the middle of other axes; saved values over time."""
        if not self.stats.get("frames", True):
            return Result._curves(self)
        grid = self.x if isinstance(self.x, tuple) else (self.x,)
        u = to_host(self.u)
        u = u[:, 0] if u.ndim == len(grid) + 2 else u
        for axis in reversed(grid[1:]):
            u = u[..., len(axis) // 2]
        u = np.abs(u) if np.iscomplexobj(u) else u
        chosen = np.unique(np.linspace(0, len(u) - 1, _PROFILES).astype(int)) if len(u) else ()
        return [SmallCurve(grid[0], u[k]) for k in chosen]

    @property
    def mass(self) -> Any:
        """The integral of u over the box at each time, of shape (N,), or (N, components)."""
        if self._mass is None:
            self._needs_frames("mass")
            self._mass = self._tools.space.integrate(self.u)
        return self._mass

    @property
    def energy(self) -> Any:
        r"""The energy :math:`-\frac12 \langle u, A u\rangle - \langle u, b\rangle + \int P(u)` at each time.

        A is the sum of the terms in space, b the boundary and source data, and P the potential of the reaction,
        :math:`P(u) = -\int_0^1 R(\theta u) \cdot u\,d\theta`, by a Gauss rule in :math:`\theta`. The energy decreases
        along solutions of first order in time if A is symmetric and R is a gradient.
        """
        self._needs_frames("energy")
        return _energy(self._tools, self.t, self.u)

    def _needs_frames(self, name: str) -> None:
        if not self.stats.get("frames", True):
            raise InvalidInputError(f"{name} needs frames, and save= kept a functional of them; solve with save='all'")
        if name == "energy" and self._tools is None:
            raise InvalidInputError(
                "a result from another process has no equation to compute the energy from; solve again"
            )

    @property
    def status(self) -> int:
        """0: the end was reached; 1: a terminal event happened; -1: neither."""
        if not self.success:
            return -1
        return 1 if self.stats.get("terminated") else 0

    def plot(
        self,
        kind: str = "auto",
        *,
        component: int | str = 0,
        times: Any = None,
        ax: Any = None,
        path: Any = None,
        seconds: float = 6.0,
        **style: Any,
    ) -> Any:
        """Draw the solution.

        Parameters
        ----------
        kind : {"auto", "kymograph", "profiles", "frames", "errors"}
            ``"kymograph"``: u over x and t, for one dimension. ``"profiles"``: u over x at some times (along the middle
            of the other axes in more dimensions). ``"frames"``: u over the box at some times, as pictures side by side
            in two dimensions; with ``path`` an animation. ``"errors"``: the estimates ``errors`` over t. ``"auto"``: a
            kymograph in one dimension, frames in more.
        component : int or str
            Component of a system to draw, by its number or name.
        times : sequence of float, optional
            Times for profiles and frames; by default six (profiles) or four (frames) over the interval, equally spaced
            for frames.
        ax : matplotlib axes, optional
            Axes for a kymograph, profiles or errors; an error for frames, which are several pictures.
        path : str or path, optional
            For frames: the file of an animation, ``.gif`` or another format of Matplotlib's writers.
        seconds : float
            Duration of the animation.
        **style
            Passed to ``pcolormesh``, ``plot`` or ``imshow``.

        Returns
        -------
        matplotlib axes, an array of them, or the path of the animation
        """
        self._needs_frames("plot")
        from hpfracc.solvers.pde.plot import plot_errors, plot_evolution

        if isinstance(component, str):
            component = self.components.index(_reading.choice("component", component, self.components))
        if kind == "errors":
            return plot_errors(self.t, self.errors._asdict(), component, ax, style)
        u, options = np.asarray(to_host(self.u)), {"times": times, "ax": ax, "path": path, "seconds": seconds}
        return plot_evolution(self.t, self.x, u, kind, component, style=style, **options)

    def __repr__(self) -> str:
        name = self.decision.method if self.decision is not None else "unknown"
        state = "success" if self.success else "stopped"
        return f"FPDEResult({state}: {self.message} method={name!r}, u of shape {tuple(np.shape(self.u))})"


def _energy(problem: Any, times: Array, frames: Any) -> Array:
    """The energy of each frame, by the trapezoidal rule at the unknown points."""
    space = problem.space

    def inner(u: Any, v: Any) -> float:
        return float((np.conj(to_host(u)) * to_host(space.weighted(v, problem.periodic))).sum().real)

    nodes, parts = np.polynomial.legendre.leggauss(_POTENTIAL_POINTS)
    found = []
    with problem.xp.scope():
        for t, frame in zip(times, frames, strict=True):
            u = space.restrict(frame)
            total = -0.5 * inner(u, space.apply(u))
            known = problem.known(float(t))
            if known is not None:
                total -= inner(u, known)
            if problem.reaction is not None:
                for node, part in zip(0.5 * (nodes + 1.0), 0.5 * parts, strict=True):
                    total -= part * inner(u, problem.reaction(float(t), float(node) * u))
            found.append(total)
    return np.array(found)
