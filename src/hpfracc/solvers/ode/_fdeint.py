"""``fdeint``: ``solve_fode`` with the interface of torchdiffeq's ``odeint``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack, cast

import numpy as np

from hpfracc._arrays import library_of, refuse_masked, tracks_gradient
from hpfracc._choices import MethodName, RateFunction, names_options_of
from hpfracc._reading import numbers
from hpfracc._xp import array_namespace, convert_like
from hpfracc.errors import Interrupted, InvalidInputError, SolveError
from hpfracc.solvers.ode.method import Method
from hpfracc.solvers.ode.result import FODEResult
from hpfracc.solvers.ode.solve import solve_fode
from hpfracc.solvers.stepping.options import TRACED_TIMES, SolveOptions, known_times

#: Options of ``solve_fode`` that do not apply if the result is an array at given times.
_ABSENT = ("t_eval", "events", "dense_output")
_FRACTIONS = " (Times are fractions of the interval, because they carry a gradient.)"


@names_options_of(solve_fode, leave_out=_ABSENT)
def fdeint(
    func: RateFunction,
    y0: Any,
    t: Any,
    alpha: Any,
    *,
    method: MethodName | Method = "auto",
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
        Increasing times, at least two. If they carry a gradient, as tensors or under ``jax.grad``, so does the solution
        in them: in ``t[0]``, where the memory begins, too.
    alpha : float or array
        The order or orders.
    method, step
        As in :func:`solve_fode`. Without ``step`` the steps adapt to ``rtol`` and ``atol``; at times within a step its
        polynomial is integrated. For tensors and JAX arrays whose times carry a gradient, steps end at each of them.
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

    See Also
    --------
    solve_fode, hpfracc.ml.NeuralFODE

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
    refuse_masked(t, "t")
    known = known_times(t)
    if known is not None:
        times = numbers("t", known, ndim=1)
        if len(times) < 2 or np.any(np.diff(times) <= 0.0):
            raise InvalidInputError(f"t has to be at least two strictly increasing times, and has shape {times.shape}")
    if tracks_gradient(t) and library_of(y0) == library_of(t):
        result = _solve_moving(func, y0, t, known, alpha, method, step, cast(dict[str, Any], {**options}))
    elif known is None:
        raise InvalidInputError("t is traced, and y0 is not of its library; give both in the same one")
    else:
        span = (float(times[0]), float(times[-1]))
        result = solve_fode(func, span, y0, alpha, method=method, step=step, t_eval=times, **options)
    if not result.success:
        raise SolveError(result.message)
    y: Any = result.y
    if library_of(y) == "torch":
        return y.movedim(-1, 0)
    return y.transpose((y.ndim - 1, *range(y.ndim - 1)))


def _solve_moving(
    func: Callable[..., Any], y0: Any, t: Any, known: Any, alpha: Any, method: Any, step: Any, options: dict[str, Any]
) -> FODEResult:
    r"""Solve for times that carry a gradient.

    With :math:`t = t_0 + L s` the equation is :math:`D^\alpha_s y = L^\alpha f(t_0 + L s, y)` on [0, 1]. The start
    and the length L are arguments of its right-hand side, so that they have derivatives as other arguments do; those
    with respect to the times between are those of the interpolated solution.
    """
    if known is None and step is not None:
        raise InvalidInputError(TRACED_TIMES)
    given = options.pop("args", ())
    args = given if isinstance(given, tuple) else (given,)
    xp = array_namespace(t)
    begin, length = t[0], t[-1] - t[0]
    order = alpha if library_of(alpha) == library_of(t) else convert_like(np.asarray(alpha), y0)
    scale = convert_like(xp.exp(order * xp.log(length)), y0)
    begin, length = convert_like(begin, y0), convert_like(length, y0)

    def scaled(s: Any, y: Any, begin: Any, length: Any, scale: Any, *rest: Any) -> Any:
        return scale * func(begin + length * s, y, *rest)

    def slopes(s: Any, y: Any, begin: Any, length: Any, scale: Any, *rest: Any) -> Any:
        return (scale[..., None] if scale.ndim else scale) * jac(begin + length * s, y, *rest)

    jac: Any = options.get("jac")
    options["jac"] = None if jac is None else slopes
    if options.get("dy0") is not None:
        options["dy0"] = [each * length**number for number, each in enumerate(options["dy0"], start=1)]
    if known is not None:
        start, whole = float(known[0]), float(known[-1]) - float(known[0])
        step = None if step is None else step / whole
        for name in ("first_step", "max_step"):
            if options.get(name) is not None:
                options[name] = options[name] / whole
        if options.get("breakpoints"):
            options["breakpoints"] = [(each - start) / whole for each in options["breakpoints"]]
        progress = options.get("progress", False)
        if callable(progress):
            options["progress"] = lambda s, y: progress(start + whole * s, y)
    elif any(options.get(name) for name in ("first_step", "max_step", "breakpoints")):
        raise InvalidInputError("first_step, max_step and breakpoints need times that are not traced; leave them out")
    try:
        result = solve_fode(
            scaled, (0.0, 1.0), y0, alpha, method=method, step=step, t_eval=(t - t[0]) / (t[-1] - t[0]),
            args=(begin, length, scale, *args), **options,
        )  # fmt: skip
    except Interrupted as stop:
        stop.solution.message += _FRACTIONS
        raise
    if not result.success:
        result.message += _FRACTIONS
    return result
