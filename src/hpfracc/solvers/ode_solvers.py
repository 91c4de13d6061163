"""Keeps an old import path alive: equations are solved by :func:`hpfracc.solve_fode`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

import numpy as np

from hpfracc._arrays import library_of
from hpfracc._choices import DerivativeName, MethodName
from hpfracc._reading import number
from hpfracc.errors import SolveError
from hpfracc.solvers.ode.fixed.grid import make_grid
from hpfracc.solvers.ode.method import Method
from hpfracc.solvers.ode.solve import solve_fode
from hpfracc.solvers.stepping.options import CommonOptions

__all__ = ["FixedStepODESolver"]


class FixedStepOptions(CommonOptions, total=False):
    """The options of ``solve_fode`` that :meth:`FixedStepODESolver.solve` accepts, for type checkers."""

    args: Any
    events: Any
    method: MethodName | Method
    step: float | None
    t_eval: Any


class FixedStepODESolver:
    """Equations of fractional order on a uniform grid.

    Parameters
    ----------
    derivative_type : str
        ``"caputo"`` or ``"riemann_liouville"``.
    method : str
        A method of :func:`hpfracc.solve_fode`; ``"predictor_corrector"`` is its PECE.
    adaptive : bool
        Whether the steps adapt to the tolerance; ``h`` is then only the spacing of the output.
    """

    def __init__(
        self,
        derivative_type: DerivativeName = "caputo",
        method: MethodName = "predictor_corrector",
        adaptive: bool = False,
    ) -> None:
        self.derivative_type: DerivativeName = derivative_type
        self.method: MethodName = method
        self.adaptive = adaptive

    def solve(
        self,
        f: Callable[..., Any],
        t_span: Sequence[float],
        y0: Any,
        alpha: Any,
        h: float,
        **options: Unpack[FixedStepOptions],
    ) -> tuple[Any, Any]:
        """Return the times, and the solution of shape ``(N, *y0.shape)``.

        Parameters
        ----------
        f : callable
            ``f(t, y)``, which returns an array in the shape of y.
        t_span : pair of float
            Start and end.
        y0 : float or array_like
            Initial value.
        alpha : float or array_like
            The order or orders.
        h : float
            The step; if the steps adapt, the spacing of the output.
        **options
            Further options of :func:`hpfracc.solve_fode`. They replace those of the solver.

        Returns
        -------
        t, y : array
            The times, and the solution at each.

        Raises
        ------
        SolveError
            If the end is not reached.
        """
        number("h", h, above=0.0)
        shape = np.shape(y0)
        fun = f if shape else (lambda t, y, *more: np.reshape(f(t, y[0], *more), (1,)))
        if self.adaptive:
            times = make_grid(float(t_span[0]), float(t_span[1]), float(h)).times()
            options = {"t_eval": times, **options}
        else:
            options = {"step": h, "method": self.method, **options}
        result = solve_fode(fun, t_span, y0, alpha, derivative=self.derivative_type, **options)
        if not result.success:
            raise SolveError(result.message)
        y = result.y.movedim(-1, 0) if library_of(result.y) == "torch" else np.moveaxis(result.y, -1, 0)
        return result.t, y if shape else y[:, 0]
