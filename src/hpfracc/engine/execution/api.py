"""Public interface of the engine: the built-in operations, and explanations of choices."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hpfracc._config import check_backend
from hpfracc.engine.backends import registry
from hpfracc.engine.execution.decision_log import composite, dry_run, last_decision, unlogged
from hpfracc.engine.execution.operation import Operation, get_operation
from hpfracc.engine.execution.plan import as_array, make_request
from hpfracc.engine.primitives.base import ArraySpec
from hpfracc.engine.selection.decide import decide
from hpfracc.engine.selection.decision import Decision, Explanation
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.engine.selection.request import Placement
from hpfracc.engine.workload import WorkloadCharacteristics, as_shape
from hpfracc.errors import InvalidInputError

__all__ = [
    "Operation", "bitwise_xor", "causal_convolution", "composite", "elementwise", "explain", "exponential_recurrence",
    "fft", "history_sum", "last_decision", "matmul", "reduction", "spectral_multiply", "stencil_relax",
    "toeplitz_apply", "unlogged",
]  # fmt: skip

# Loaded when first used: each brings its contract.
causal_convolution: Operation
matmul: Operation
fft: Operation
history_sum: Operation
reduction: Operation
bitwise_xor: Operation
spectral_multiply: Operation
stencil_relax: Operation
toeplitz_apply: Operation

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Operation:
        if name not in __annotations__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return get_operation(name)


def elementwise(expression: str, *, backend: Any = None, **arrays: Any) -> Any:
    """Evaluate an expression element by element, in one pass if the backend can.

    Parameters
    ----------
    expression : str
        Such as ``"x*y + sin(x)"``: arithmetic, comparisons, the usual functions, ``pi`` and ``e``.
    backend : str, optional
        Backend to run on; by default the engine selects it.
    **arrays
        The variables by name; shapes broadcast.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> hf.elementwise("2*x + 1", x=np.array([0.0, 1.0]))
    array([1., 3.])
    """
    return get_operation("elementwise")(*arrays.values(), expression=expression, names=tuple(arrays), backend=backend)


def _stack_by_name(*batch: Any, **options: Any) -> Any:
    """``elementwise`` for a batch: its arrays have names, so items are mappings, which its operation stacks."""
    from hpfracc.engine.execution.batch.items import by_name

    return by_name(get_operation("elementwise"), *batch, **options)


elementwise.stacked_form = _stack_by_name  # type: ignore[attr-defined]


def exponential_recurrence(
    rates: Any,
    weights: Any,
    steps: Any,
    signal: Any,
    *,
    initial: Any = None,
    degree: int | None = None,
    lagged: bool = False,
    final: bool = False,
    backend: Any = None,
) -> Any:
    r"""Weighted sum of exponentially decaying states that are driven by a signal.

    .. math:: s_{j,n} = e^{-\lambda_j \tau_n} s_{j,n-1} + b_{j,n} x_n, \qquad y_n = \sum_j w_j s_{j,n}.

    Parameters
    ----------
    rates, weights : array_like, shape (J,)
        Decay rate of each term, and its weight in the sum.
    steps : float or array_like, shape (n,)
        One step for all, or one for each point.
    signal : array_like, shape (..., n)
        The inputs, along the last axis.
    initial : array_like, shape (..., J), optional
        The states before the first step; 0 by default.
    degree : int, optional
        How an input enters: at the end of its step (None, ``b = 1``), or distributed over it like ``u**degree``, at
        most 4.
    lagged : bool
        Whether each value excludes its newest input.
    final : bool
        Whether to return the states after the last step too, as ``initial`` of the next call.
    backend : str, optional
        Backend to run on; by default the engine selects it.

    Returns
    -------
    array, or a pair of arrays with ``final=True``
        The values, shape ``(..., n)``, and the final states, ``(..., J)``.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> y, state = hf.exponential_recurrence([np.log(2.0)], [1.0], 1.0, np.array([1.0, 0.0, 0.0]), final=True)
    >>> y, state
    (array([1.  , 0.5 , 0.25]), array([0.25]))
    """
    rates = as_array(rates)
    if initial is None:
        initial = np.zeros(rates.shape[-1:] or (1,))
    options = {"degree": degree, "lagged": lagged, "final": final}
    result = get_operation("exponential_recurrence")(rates, weights, steps, signal, initial, backend=backend, **options)
    if not final:
        return result
    n = result.shape[-1] - rates.shape[0]
    return result[..., :n], result[..., n:]


def explain(what: Any, *args: Any, **kwargs: Any) -> Explanation:
    """Explain which arm would be used and why, without running anything.

    Parameters
    ----------
    what : WorkloadCharacteristics, Operation, str or callable
        A workload; an operation with its operands following; the name of one, with ``shape=`` and optionally
        ``dtype=``, ``gradient=``, ``on=``, ``backend=``; or any function that makes engine calls, with its arguments:
        it is called with the engine's results replaced by zeros.

    Examples
    --------
    >>> import hpfracc as hf
    >>> hf.explain("causal_convolution", shape=(1000,)).decision.operation
    'causal_convolution'
    """
    if isinstance(what, WorkloadCharacteristics):
        from hpfracc.engine.selection.selector import get_shared_selector

        return get_shared_selector().explain(what, *args, **kwargs)
    if isinstance(what, str):
        return _explain_name(what, *args, **kwargs)
    if isinstance(what, Operation):
        return Explanation([what.decide(*args, **kwargs)])
    if callable(what):
        return _explain_callable(what, args, kwargs)
    raise InvalidInputError(
        f"cannot explain {what!r}; give a workload, an operation, the name of one, or a function with its arguments"
    )


def _explain_callable(function: Callable[..., Any], args: Any, kwargs: Any) -> Explanation:

    def walk() -> list[Decision]:
        with dry_run() as decisions:
            function(*args, **kwargs)
        return decisions

    # In a copy of the context, so that no interrupt can leave later calls in a dry run.
    decisions = contextvars.copy_context().run(walk)
    if not decisions:
        name = getattr(function, "__name__", repr(function))
        raise InvalidInputError(f"{name} made no engine call; give a function that does")
    return Explanation(decisions)


def _explain_name(
    name: str,
    shape: Any = None,
    dtype: str = "float64",
    *,
    gradient: bool = False,
    on: str | None = None,
    backend: Any = None,
) -> Explanation:
    found = get_operation(name)
    if shape is None:
        raise InvalidInputError(f"explain({name!r}) needs the shape of the main operand; add shape=(1000,)")
    arrays, params = found.primitive.example(as_shape(shape), ArraySpec((), dtype).dtype)
    request = make_request(found.primitive, arrays, params, backend=backend, placement=_imagined(on, gradient, backend))
    if gradient:
        request = replace(request, needs_gradient=True)
    return Explanation([decide(request, knowledge_for(request.settings), frozen=True).decision])


def _imagined(on: str | None, gradient: bool, backend: Any) -> Placement:
    """The placement of hypothetical operands; on a device they belong to the requested library, or PyTorch."""
    if on in (None, "cpu", "host"):
        return Placement()
    device = "cuda:0" if on in ("cuda", "gpu") else on
    if not isinstance(device, str) or not device.startswith("cuda:") or not device[5:].isdecimal():
        raise InvalidInputError(f"on={on!r}: describe operands on 'cpu', 'cuda' or another GPU, such as 'cuda:1'")
    owners = [name for name in ("torch", "cupy", "jax") if registry.unavailable(name) is None]
    asked = None if backend is None else check_backend(backend, auto=True)
    library = asked if asked in ("torch", "cupy", "jax") else next(iter(owners), "torch")
    return Placement(library=library, device=device, gradient=gradient)
