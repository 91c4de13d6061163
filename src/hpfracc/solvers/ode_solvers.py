"""Keeps an old import path alive: equations are solved by :func:`hpfracc.solve_fode`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hpfracc.errors import InvalidInputError, SolveError
from hpfracc.solvers.ode.fixed.grid import make_grid
from hpfracc.solvers.ode.solve import solve_fode

__all__ = ["FixedStepODESolver"]


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
        self, derivative_type: str = "caputo", method: str = "predictor_corrector", adaptive: bool = False
    ) -> None:
        self.derivative_type = derivative_type
        self.method = method
        self.adaptive = adaptive

    def solve(
        self, f: Callable[[float, Any], Any], t_span: Sequence[float], y0: Any, alpha: Any, h: float, **options: Any
    ) -> tuple[Any, Any]:
        """Return the times, and the solution of shape ``(N, *y0.shape)``.

        Raises
        ------
        SolveError
            If the end is not reached.
        """
        if not (isinstance(h, int | float | np.number) and h > 0.0):
            raise InvalidInputError(f"h={h!r} is not a step; use a number above 0")
        shape = np.shape(y0)
        fun = f if shape else (lambda t, y: np.reshape(f(t, y[0]), (1,)))
        if self.adaptive:
            times = make_grid(float(t_span[0]), float(t_span[1]), float(h)).times()
            options = {"t_eval": times, **options}
        else:
            options = {"step": h, "method": self.method, **options}
        result = solve_fode(fun, t_span, y0, alpha, derivative=self.derivative_type, **options)
        if not result.success:
            raise SolveError(result.message)
        y = np.moveaxis(result.y, -1, 0)
        return result.t, y if shape else y[:, 0]
