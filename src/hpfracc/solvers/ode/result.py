"""Results of a solve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic

import numpy as np
from numpy.typing import NDArray

from hpfracc._arrays import to_host
from hpfracc._choices import ArrayOut, FloatOrArray
from hpfracc._optional import import_optional
from hpfracc._reading import listed, whole
from hpfracc._results import MAX_NAMED, LabelledArrays, PlainData, Result
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.stepping.walk import Walk

if TYPE_CHECKING:
    from hpfracc._results import Axes


@dataclass(frozen=True, slots=True)
class SolveDecision(PlainData):
    """How an equation was solved, and why.

    Attributes
    ----------
    method : str
        Name of the method that ran.
    reason : str
        Why this method was used.
    history : str
        How the history was summed: ``"fft"``, ``"direct"``, ``"exponentials"``, ...
    compiled : bool
        Whether the right-hand side ran compiled.
    notes : tuple of str
        Other events, such as why ``fun`` was not compiled or when the method was switched.
    """

    method: str
    reason: str
    history: str = "direct"
    compiled: bool = False
    notes: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class FODEResult(Result, Generic[ArrayOut]):
    """The solution of an initial-value problem of fractional order.

    Attributes
    ----------
    t : numpy.ndarray, shape (N,)
        Times: the steps, or ``t_eval``.
    y : array, shape (..., d, N)
        The solution at those times, in the library of ``y0``: NumPy, PyTorch or JAX.
    success : bool
        Whether the end, or a terminal event, was reached.
    message : str
        Why the solve stopped, and what to do if it stopped early.
    nfev, njev : int
        Evaluations of the right-hand side (of all members of a batch at once) and of its Jacobian; ``nfev`` is None for
        implicit steps in JAX, whose iterations run on the device and are not counted.
    sol : callable or None
        With ``dense_output``: ``sol(t)``, of shape (..., d) + t.shape.
    stats : dict
        Statistics of the solve: steps, step, seconds, and counters of the method.
    error_estimate : float or array
        Estimate of the maximum absolute error of y over all times and components; nan if there is none. With adaptive
        steps the error is integrated along with the solution, and ``stats["error_over_tolerance"]`` is its largest
        ratio to ``atol + rtol Y(t)``, with ``Y(t)`` the largest ``|y(s)| s / t`` up to t: near a zero of y the error
        may be many times ``atol + rtol |y(t)|``. Where a Riemann-Liouville solution starts like ``t^(alpha-1)``, it is
        the maximum of the error times ``(t/T)^(1-alpha)``, which is finite. With a given step it is computed from the
        defect of the solution
        (``stats["component_errors"]`` for each component), and is within a small factor of the error for product rules;
        for methods with starting weights and orders up to 0.5 it may be much larger than the error.
    decision : SolveDecision
        Which method ran, how, and why.
    t_events : list of arrays or None
        For each event the times at which it occurred.
    y_events : list of arrays or None
        For each event the states at these times, of shape (number, ..., d).
    """

    t: NDArray[Any]
    y: ArrayOut
    success: bool
    message: str
    nfev: Any
    njev: int = 0
    sol: Callable[[Any], ArrayOut] | None = None
    stats: dict[str, Any] = field(default_factory=dict)
    error_estimate: FloatOrArray = float("nan")
    decision: SolveDecision | None = None
    t_events: list[NDArray[Any]] | None = None
    y_events: list[ArrayOut] | None = None

    _parts: ClassVar[tuple[type, ...]] = (SolveDecision,)

    def _labelled(self) -> LabelledArrays:
        leading = len(self.y.shape) - 2
        batch = ("member",) if leading == 1 else tuple(f"member_{axis}" for axis in range(leading))
        return LabelledArrays({"y": ((*batch, "component", "t"), self.y)}, {"t": self.t}, "t")

    def _facts(self) -> dict[str, Any]:
        facts = {"success": self.success, "message": self.message, "shape": str(tuple(np.shape(self.y)))}
        if self.decision is not None:
            facts["method"] = self.decision.method
        if np.ndim(self.error_estimate) == 0:
            facts["error_estimate"] = float(self.error_estimate)
        return facts if self.nfev is None else {**facts, "nfev": int(self.nfev)}

    @property
    def status(self) -> int:
        """0 if the end was reached, 1 if a terminal event occurred, -1 otherwise."""
        if not self.success:
            return -1
        return 1 if self.stats.get("terminated") else 0

    def plot(self, *, phase: Sequence[int] | None = None, ax: Axes | None = None, **style: Any) -> Axes:
        """Plot the solution over time, or its components against each other.

        Parameters
        ----------
        phase : two or three ints, optional
            Draw these components against each other instead: a phase portrait, in three dimensions for three.
        ax : matplotlib axes, optional
            Axes for the plot; a new figure by default. Three components need axes made with ``projection="3d"``.
        **style
            Passed to ``Axes.plot``.

        Returns
        -------
        matplotlib.axes.Axes
        """
        drawn: Axes = _plot_solution(self.t, self.y, phase, ax, style)
        return drawn

    def __repr__(self) -> str:
        shape = tuple(np.shape(self.y))
        name = self.decision.method if self.decision is not None else "unknown"
        state = "success" if self.success else "stopped"
        return f"FODEResult({state}: {self.message} method={name!r}, y of shape {shape}, nfev={self.nfev})"


def finish(
    walk: Walk, problem: Problem, times: Any, y: Any, stats: dict[str, Any], decision: SolveDecision, sol: Any
) -> FODEResult:
    """What came of a walk; evaluations are left to the caller."""
    stats |= {"terminated": walk.ended is not None, "interrupted": walk.interrupted}
    found = FODEResult(times, y, walk.success, walk.message, 0, stats=stats, decision=decision)
    found.sol = sol if walk.options.dense_output else None
    found.t_events, found.y_events = walk.events.collected(problem.shape, problem.dtype)
    return found


def because(result: FODEResult, reason: str) -> FODEResult:
    """The same result, with this reason for its method."""
    if result.decision is not None:
        result.decision = replace(result.decision, reason=reason)
    return result


def later_times(t: NDArray[Any]) -> NDArray[Any]:
    """The first of rising times, and the last of those that are equal: steps may be shorter than times can tell."""
    highest = np.maximum.accumulate(t)
    kept: NDArray[Any] = (np.diff(highest, append=np.inf) > 0.0) & (highest > highest[:1])
    kept[:1] = True
    return kept


def _plot_solution(t: Any, y: Any, phase: Sequence[int] | None, ax: Any, style: dict[str, Any]) -> Any:
    """Draw ``y`` over ``t``, or two or three components against each other; see :meth:`FODEResult.plot`."""
    pyplot = import_optional("matplotlib.pyplot")
    values = to_host(y)
    chosen = () if phase is None else _read_phase(phase, values.shape[-2])
    if ax is None:
        _, ax = pyplot.subplots(subplot_kw={"projection": "3d"} if len(chosen) == 3 else None)
    if chosen:
        return _portrait(ax, values.real, chosen, style)
    t, components = to_host(t), values.shape[-2]
    parts = {"Re ": values.real, "Im ": values.imag} if values.dtype.kind == "c" else {"": values}
    for word, part in parts.items():
        rows = part.reshape(-1, part.shape[-1])
        for number, row in enumerate(rows):
            member = f" of member {number // components}" if len(rows) > components else ""
            ax.plot(t, row, label=f"{word}y[{number % components}]{member}", **style)
    lines = len(parts) * len(rows)
    ax.set_xlabel("t")
    if lines == 1:
        ax.set_ylabel("y")
    elif lines <= MAX_NAMED:
        ax.legend()
    return ax


def _read_phase(phase: Sequence[int], components: int) -> tuple[int, ...]:
    """The components to draw, counted from 0."""
    wanted = f"phase={phase!r}: give two or three components of {components}, such as (0, 1)"
    chosen = [whole("phase", each, least=-components, most=components - 1) for each in listed("phase", phase, wanted)]
    if len(chosen) not in (2, 3):
        raise InvalidInputError(wanted)
    return tuple(each % components for each in chosen)


def _portrait(ax: Any, values: np.ndarray[Any, Any], phase: tuple[int, ...], style: dict[str, Any]) -> Any:
    if len(phase) == 3 and not hasattr(ax, "set_zlabel"):
        raise InvalidInputError(f"phase={phase} is in 3D and ax has two; omit ax, or use plt.subplot(projection='3d')")
    for member in values.reshape(-1, *values.shape[-2:]):
        ax.plot(*(member[each] for each in phase), **style)
    for name, each in zip("xyz", phase, strict=False):
        getattr(ax, f"set_{name}label")(f"y[{each}]")
    return ax
