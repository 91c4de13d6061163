"""What a solve gives back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

__all__ = ["FODEResult", "SolveDecision"]


@dataclass(frozen=True, slots=True)
class SolveDecision:
    """How it was solved, and why so.

    Attributes
    ----------
    method : str
        Name of the method that ran.
    reason : str
        Why this one, in words.
    history : str
        How the memory was summed: ``"fft"``, ``"direct"``, ``"exponentials"``, ...
    compiled : bool
        Whether the right-hand side ran compiled.
    notes : tuple of str
        What else happened: why ``fun`` was not compiled, when the method was switched.
    """

    method: str
    reason: str
    history: str = "direct"
    compiled: bool = False
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@dataclass(slots=True, eq=False)
class FODEResult:
    """The solution of an initial-value problem of fractional order.

    Attributes
    ----------
    t : array, shape (N,)
        Times: the steps, or ``t_eval``.
    y : array, shape (..., d, N)
        The solution at those times.
    success : bool
        Whether the end, or a terminal event, was reached.
    message : str
        What ended the solve, and what to do where that was not the end.
    nfev, njev : int
        Evaluations of the right-hand side (of all members of a batch at once) and of its Jacobian; ``nfev`` is None for
        implicit steps in JAX, whose iterations run on the device uncounted.
    sol : callable or None
        With ``dense_output``: ``sol(t)``, of shape (..., d) + t.shape.
    stats : dict
        Figures of the solve: steps, step, seconds, and what the method counts besides.
    error_estimate : float or array
        An estimate of the largest error of y, over all times and components, not relative to anything; nan where
        there is none. With adaptive steps the error is integrated along with the solution, and
        ``stats["error_over_tolerance"]`` is its largest ratio to ``atol + rtol Y(t)``, with ``Y(t)`` the largest
        ``|y(s)| s / t`` up to t: near a zero of y the error may be many times ``atol + rtol |y(t)|``. With a given step
        it is made from the defect of the solution (``stats["component_errors"]``: of each component) and is within a
        factor of a few of the error for product rules; for methods with starting weights and orders up to 0.5 it may
        be much larger than the error.
    decision : SolveDecision
        Which method ran, how, and why.
    t_events : list of arrays or None
        For each event the times at which it happened.
    y_events : list of arrays or None
        For each event the states then, of shape (number, ..., d).
    """

    t: Any
    y: Any
    success: bool
    message: str
    nfev: Any
    njev: int = 0
    sol: Callable[[Any], Any] | None = None
    stats: dict[str, Any] = field(default_factory=dict)
    error_estimate: Any = float("nan")
    decision: SolveDecision | None = None
    t_events: list[Any] | None = None
    y_events: list[Any] | None = None

    @property
    def status(self) -> int:
        """0: the end was reached; 1: a terminal event happened; -1: neither."""
        if not self.success:
            return -1
        return 1 if self.stats.get("terminated") else 0

    def plot(self, *, phase: Sequence[int] | None = None, ax: Any = None, **style: Any) -> Any:
        """Draw the solution over time, or its components against each other.

        Parameters
        ----------
        phase : two or three ints, optional
            Draw these components against each other instead: a phase portrait, in three dimensions for three.
        ax : matplotlib axes, optional
            Where to draw; a new figure by default. Three components need axes made with ``projection="3d"``.
        **style
            Handed to ``Axes.plot``.

        Returns
        -------
        matplotlib.axes.Axes
        """
        from hpfracc.solvers.ode.plot import plot_solution

        return plot_solution(self.t, self.y, phase=phase, ax=ax, style=style)

    def __repr__(self) -> str:
        shape = tuple(np.shape(self.y))
        name = self.decision.method if self.decision is not None else "unknown"
        state = "success" if self.success else "stopped"
        return f"FODEResult({state}: {self.message} method={name!r}, y of shape {shape}, nfev={self.nfev})"
