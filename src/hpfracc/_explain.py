"""``hf.explain``: explains engine operations, operators by name, and solvers."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any, overload

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import is_chunked
from hpfracc._lazy import homes
from hpfracc._plugs import cluster_support
from hpfracc.engine.execution import api
from hpfracc.engine.execution.operation import all_operations
from hpfracc.engine.selection.decision import Explanation
from hpfracc.engine.workload import WorkloadCharacteristics, as_shape
from hpfracc.errors import InvalidInputError, UnknownOperationError
from hpfracc.operators._fractional_difference import fractional_difference
from hpfracc.operators._frft import fractional_fft, frft
from hpfracc.operators.core.registry import all_operators
from hpfracc.solvers.ode import solve_fode
from hpfracc.solvers.ode.solve import explain_solve
from hpfracc.solvers.pde.explain import explain_evolution
from hpfracc.solvers.pde.solve import solve_fpde
from hpfracc.solvers.sde.solve import explain_simulation, solve_fsde

#: Functions that take samples and an order, and no grid.
_WITHOUT_GRID: dict[str, Callable[..., Any]] = {
    "fractional_difference": fractional_difference,
    "fractional_fft": fractional_fft,
    "frft": frft,
}
#: Arguments of the solvers, for the error if one is named without them.
_EQUATIONS = {
    "solve_fode": "fun, t_span, y0, alpha",
    "solve_fsde": "drift, diffusion, t_span, y0, step=0.01",
    "solve_fpde": "reaction, t_span, u0, x=x, space=space, boundary=boundary",
}


@overload
def explain(what: str | WorkloadCharacteristics | api.Operation, *args: Any, **kwargs: Any) -> Explanation: ...
@overload
def explain(what: Any, *args: Any, **kwargs: Any) -> Any: ...
def explain(what: Any, *args: Any, **kwargs: Any) -> Any:
    """Explain what a call would do and why, without running it.

    Parameters
    ----------
    what : WorkloadCharacteristics, Operation, str or callable
        One of

        - a workload;
        - an operation, followed by its operands;
        - the name of an operation or operator, with ``shape=`` and optionally ``dtype=``, ``gradient=``, ``on=``,
          ``backend=``; for an operator also ``alpha=`` (0.5 by default) and its own options;
        - :func:`hpfracc.solve_fode`, :func:`hpfracc.solve_fsde` or :func:`hpfracc.solve_fpde`, followed by its
          arguments;
        - an operator or operation, followed by Dask arrays: the possible plans over their chunks, with tasks and bytes;
        - any function that makes engine calls, followed by its arguments. It is called with the engine's results
          replaced by zeros.

    Returns
    -------
    Explanation, SolveExplanation, SimulationExplanation or EvolutionExplanation
        Print it, or use ``to_dict()``.

    See Also
    --------
    last_decision, use_backend, config

    Examples
    --------
    >>> import hpfracc as hf
    >>> hf.explain("causal_convolution", shape=(1000,)).decision.operation
    'causal_convolution'
    >>> hf.explain("caputo", shape=(1000,), alpha=0.3).decision.operation
    'causal_convolution'
    >>> print(hf.explain(hf.solve_fode, lambda t, y: -y, (0.0, 1.0), [1.0], 0.5, step=0.01).method)
    pece
    """
    if callable(what) and any(_is_lazy(each) for each in (*args, *kwargs.values())):
        return cluster_support().explain_chunked(what, args, kwargs)
    if what is solve_fode:
        return explain_solve(*args, **kwargs)
    if what is solve_fsde:
        return explain_simulation(*args, **kwargs)
    if what is solve_fpde:
        return explain_evolution(*args, **kwargs)
    if isinstance(what, str) and what not in all_operations():
        function = named_operators().get(what)
        if function is not None:
            return _explain_operator(what, function, *args, **kwargs)
        if what in _EQUATIONS:
            raise InvalidInputError(f"{what} needs its equation: hf.explain(hf.{what}, {_EQUATIONS[what]})")
        raise _unknown(what)
    return api.explain(what, *args, **kwargs)


def _is_lazy(value: Any) -> bool:
    """Whether ``value`` is a Dask array, or labelled samples that wrap one."""
    return is_chunked(value) or is_chunked(getattr(value, "data", None))


def named_operators() -> dict[str, Callable[..., Any]]:
    """Functions that apply an operator to samples, by name."""
    found = dict(_WITHOUT_GRID)
    modules = {operator.__module__ for operator in all_operators()}
    for name, home in homes("hpfracc").items():
        if home in modules and name.islower():
            function = getattr(importlib.import_module(home), name)
            found |= {name: function} if "f" in inspect.signature(function).parameters else {}
    return dict(sorted(found.items()))


def _unknown(name: str) -> UnknownOperationError:
    operations, operators = sorted(all_operations()), list(named_operators())
    hint = _reading.hint(name, [*operations, *operators])
    return UnknownOperationError(
        f"unknown operation or operator {name!r}; {hint} the operations {', '.join(operations)}, and the operators "
        f"{', '.join(operators)}"
    )


def _explain_operator(
    name: str,
    function: Callable[..., Any],
    shape: Any = None,
    dtype: str = "float64",
    *,
    alpha: Any = 0.5,
    gradient: bool = False,
    on: str | None = None,
    backend: Any = None,
    **options: Any,
) -> Explanation:
    if shape is None:
        raise InvalidInputError(f"explain({name!r}) needs the shape of the samples; add shape=(1000,)")
    if gradient or on not in (None, "cpu", "host"):
        raise InvalidInputError(
            f"explain({name!r}) describes host samples without a gradient; for other samples pass the function and the "
            f"arrays: hf.explain(hf.{name}, samples, ...)"
        )
    samples = np.zeros(as_shape(shape), dtype)
    if name in _WITHOUT_GRID:
        return api.explain(function, samples, alpha, backend=backend, **options)
    return api.explain(function, samples, step=1.0, alpha=alpha, backend=backend, **options)
