"""``fdeint``: ``solve_fode`` with the interface of torchdiffeq's ``odeint``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from hpfracc._arrays import library_of, refuse_masked
from hpfracc._frames import refuse_dates
from hpfracc._interrupts import interrupt_scope
from hpfracc._signatures import names_options_of
from hpfracc.errors import InvalidInputError, ShapeError, SolveError
from hpfracc.solvers.ode.method import Method
from hpfracc.solvers.ode.options import SolveOptions
from hpfracc.solvers.ode.solve import solve_fode

__all__ = ["fdeint"]

#: Options of ``solve_fode`` that do not apply if the result is an array at given times.
_ABSENT = ("t_eval", "events", "dense_output")


@names_options_of(solve_fode, leave_out=_ABSENT)
def fdeint(
    func: Callable[..., Any],
    y0: Any,
    t: Any,
    alpha: Any,
    *,
    method: str | Method = "auto",
    step: float | None = None,
    **options: Unpack[SolveOptions],
) -> Any:
    """Integrate ``D^alpha y = func(t, y)`` and return the solution at the times ``t``.

    Parameters
    ----------
    func : callable
        ``func(t, y)``, which returns an array in the shape of y.
    y0 : array, shape (..., d)
        Initial value at ``t[0]``; NumPy, PyTorch or JAX.
    t : array, shape (N,)
        Increasing times, at least two.
    alpha : float or array
        The order or orders.
    method, step
        As in :func:`solve_fode`. Without ``step`` the steps adapt to ``rtol`` and ``atol`` and, for tensors and JAX
        arrays, end at each of the times. For many equally spaced times a ``step`` is faster.
    **options
        Further options of :func:`solve_fode`.

    Returns
    -------
    array, shape (N, ..., d)
        In the library of ``y0``.

    Raises
    ------
    SolveError
        If the solve does not reach the last time.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> hf.fdeint(lambda t, y: -y, np.array([1.0]), np.linspace(0.0, 1.0, 5), 0.5, step=0.01).shape
    (5, 1)
    """
    for name in _ABSENT:
        if name in options:
            raise InvalidInputError(f"fdeint returns an array and does not take {name}; use solve_fode")
    refuse_dates("t", t)
    refuse_masked(t, "t")
    detach = getattr(t, "detach", None)
    times = np.asarray(detach().cpu() if detach is not None else t, dtype=np.float64)
    if times.ndim != 1 or len(times) < 2:
        raise ShapeError(f"t has shape {times.shape}; give at least two times along one axis")
    if not np.all(np.isfinite(times)) or np.any(np.diff(times) <= 0.0):
        raise InvalidInputError("t has to be finite and strictly increasing")
    span = (float(times[0]), float(times[-1]))
    with interrupt_scope():  # an array cannot be a part
        result = solve_fode(func, span, y0, alpha, method=method, step=step, t_eval=times, **options)
    if not result.success:
        raise SolveError(result.message)
    y = result.y
    if library_of(y) == "torch":
        return y.movedim(-1, 0)
    return y.transpose((y.ndim - 1, *range(y.ndim - 1)))
