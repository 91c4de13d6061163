"""The texts that arguments take, and signatures of functions that forward ``**options``: for type checkers and help.

A type checker refuses any other text; at run time ``_reading.choice`` and the registries of the methods do. Upper case
and hyphens in the names of methods and backends are accepted at run time only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hpfracc._config import BackendName

if TYPE_CHECKING:
    import typing_extensions

#: Backends of solvers of ordinary equations.
SolverBackendName = BackendName | Literal["numba-cuda"]

#: Definitions of the derivative in an equation.
DerivativeName = Literal[
    "caputo", "riemann_liouville", "caputo_hadamard", "psi_caputo", "tempered_caputo", "caputo_fabrizio",
    "atangana_baleanu",
]  # fmt: skip

#: Methods of ``solve_fode``, with their other names.
MethodName = Literal[
    "auto", "abm", "adams", "adaptive", "adaptive_local", "alikhanov", "backward_euler", "bdf2", "euler",
    "explicit_rectangle", "exponential", "fbdf2", "flmm_bdf2", "flmm_ng2", "flmm_trapezoid", "forward_euler",
    "graded_l1", "graded_l2", "implicit_euler", "implicit_rectangle", "implicit_trapezoid", "integer_order", "l1",
    "l2_1sigma", "lsoda", "mittag_leffler", "multistep_trapezoid", "newton_gregory", "ng2", "pece",
    "predictor_corrector", "soe", "trapezoid", "trapezoidal", "tustin", "variable_order", "variable_order_graded",
    "variable_order_l1", "variable_order_l2",
]  # fmt: skip

#: Methods of ``solve_fpde``.
EvolutionMethodName = Literal[
    "auto", "adaptive", "convolution_quadrature", "crank_nicolson", "etdrk4", "exact_contour", "exact_modes",
    "imex_bdf2", "l1", "l2_1sigma", "strang", "yoshida4",
]  # fmt: skip

#: Methods of ``solve_fsde``.
PathMethodName = Literal["auto", "euler", "second_order", "milstein", "doss_sussmann", "implicit_euler"]

#: Methods of operators by the rules that they have: Caputo's kind, Riemann-Liouville's, Grünwald-Letnikov's, integrals,
#: bounded kernels, and those in space.
L1Name = Literal["auto", "fast", "graded", "l1", "l1-2", "soe", "spectral"]
CqName = Literal[L1Name, "cq2", "cq3", "cq4", "cq5", "cq6"]
GlName = Literal["auto", "gl", "graded", "spectral", "wsgl"]
IntegralName = Literal[
    "auto", "cq2", "cq3", "cq4", "cq5", "cq6", "fast", "graded", "simpson", "soe", "spectral", "trapezoid"
]  # fmt: skip
KernelName = Literal["auto", "linear", "quadratic", "quadrature"]
RieszName = Literal["auto", "centred", "centred4", "spectral"]
LaplacianName = Literal["auto", "dirichlet", "integral", "neumann", "periodic"]
#: All of them, each once, so that messages of type checkers are short.
RuleName = Literal[
    "auto", "centred", "centred4", "cq2", "cq3", "cq4", "cq5", "cq6", "dirichlet", "fast", "gl", "graded",
    "integral", "l1", "l1-2", "linear", "neumann", "periodic", "quadratic", "quadrature", "simpson", "soe",
    "spectral", "trapezoid", "wsgl",
]  # fmt: skip

#: Definitions of derivatives and integrals, with their short names.
DefinitionName = Literal[
    "AB", "ABC", "ABR", "atangana_baleanu", "atangana_baleanu_riemann", "C", "caputo", "caputo_fabrizio",
    "caputo_hadamard", "caputo_katugampola", "CF", "CH", "CK", "coimbra", "distributed_order", "DO", "EK",
    "erdelyi_kober", "feller", "FL", "fractional_laplacian", "GL", "grunwald_letnikov", "hadamard", "hilfer",
    "katugampola", "laplacian", "marchaud", "P", "prabhakar", "psi_caputo", "R", "RF", "riemann_liouville", "riesz",
    "riesz_feller", "RL", "sonine", "TC", "tempered", "tempered_caputo", "tempered_riemann_liouville", "TRL",
    "variable_order", "VO", "W", "weyl",
]  # fmt: skip

#: Sides from which an operator starts.
SideName = Literal["left", "right"]

#: Boundary conditions with data 0.
BoundaryName = Literal["periodic", "dirichlet", "neumann", "no_flux", "exterior"]

#: Meanings of a stochastic integral.
Interpretation = Literal["ito", "stratonovich", "young"]

#: Loss functions of a fit.
LossName = Literal["linear", "soft_l1", "huber", "cauchy", "arctan"]


#: Right-hand sides: functions of time, state and the ``args`` of a call. With one type for both mypy refuses lambdas.
RateFunction = Callable[[Any, Any], Any] | Callable[Concatenate[Any, Any, Any, ...], Any]


class OrderNumber(Protocol):
    """An order: a number, or a scalar array of any library."""

    def __float__(self) -> float: ...
    def __neg__(self) -> Any: ...


class HasShape(Protocol):
    """Samples whose type the result has: a tensor, an array of JAX, CuPy or Dask, or labelled data."""

    @property
    def shape(self) -> Any:
        """Its lengths."""


#: Samples that become NumPy arrays.
ArraySamples = NDArray[Any] | Sequence[float] | Sequence[Sequence[float]]
SameArray = TypeVar("SameArray", bound=HasShape)
#: Arrays of a result: of the library of the initial values, and of NumPy for numbers and lists.
if TYPE_CHECKING:
    ArrayOut = typing_extensions.TypeVar("ArrayOut", bound=HasShape, default=NDArray[Any])
else:
    ArrayOut = TypeVar("ArrayOut", bound=HasShape)
#: Numbers, and lists of them; with ``| ArrayOut`` the initial values of an equation.
Numbers = complex | NDArray[Any] | np.number[Any] | Sequence[complex | HasShape] | Sequence[Sequence[complex]]
FloatOrArray = float | NDArray[Any]
#: The orders of a system: one, one for each component, a function of time, or none.
Orders = OrderNumber | Sequence[OrderNumber] | Sequence[Sequence[OrderNumber]] | Callable[[Any], Any] | None

F = TypeVar("F", bound=Callable[..., Any])


def names_options_of(source: Callable[..., Any], leave_out: Collection[str] = ()) -> Callable[[F], F]:
    """Show the keyword-only options of ``source`` in place of the ``**options`` of the decorated function.

    Type checkers read the options from ``Unpack[...]`` of a ``TypedDict``. ``help``, notebooks and Sphinx read
    ``__signature__``, which is set here. Calls are not affected.

    Parameters
    ----------
    source : callable
        The function that receives ``**options``.
    leave_out : collection of str
        Options of ``source`` that the decorated function does not accept.
    """
    options = [
        parameter
        for parameter in inspect.signature(source).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.name not in leave_out
    ]

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        taken = {each.name for each in own}
        named = [*own, *(option for option in options if option.name not in taken)]
        function.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
        return function

    return decorate
