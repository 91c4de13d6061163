"""The types of operators and of their calls, for type checkers: array in, array of the same library out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, overload

from numpy.typing import NDArray

from hpfracc._choices import ArraySamples as ArraySamples
from hpfracc._choices import L1Name, RuleName, SideName
from hpfracc._choices import OrderNumber as OrderNumber
from hpfracc._choices import SameArray as SameArray
from hpfracc.operators.core.reporting import OperatorResult

P = ParamSpec("P")
#: The methods of an operator.
Rule = TypeVar("Rule")


#: The default of an order, None: it is required, and comes after ``t``, which is not.
MISSING: Any = None
#: The order of any operator: a function of time for :func:`variable_order`.
OrderOrFunction = OrderNumber | Callable[[Any], Any]


class CallParameters(TypedDict, total=False):
    """The options of a call of an operator without ``full_output``; see :meth:`FractionalOperator.__call__`."""

    step: Any
    axis: Any
    dim: Any
    time_unit: str | None
    origin: float | None
    factor: float | None
    rtol: float | None
    backend: Any
    noise: float | None


class CallOptions(CallParameters, total=False):
    """The options of a call of an operator; see :meth:`FractionalOperator.__call__`."""

    full_output: bool


class MethodOptions(CallOptions, Generic[Rule], total=False):
    """The options of a function of an operator that has no other field than ``method``."""

    method: Rule


class NormalisedOptions(MethodOptions[Rule], total=False):
    """With the normalisation of a bounded kernel."""

    normalisation: Any


class PeriodOptions(MethodOptions[Rule], total=False):
    """With the period of a function."""

    period: Any


class SideOptions(MethodOptions[Rule], total=False):
    """With a side."""

    side: SideName


class CeilingOptions(MethodOptions[Rule], total=False):
    """With the integer above a traced order."""

    ceiling: int | None


class OneSidedOptions(SideOptions[Rule], CeilingOptions[Rule], total=False):
    """With a side, and the integer above a traced order."""


class InitialOptions(CeilingOptions[Rule], total=False):
    """With derivatives at the origin."""

    initial: Any


class CaputoOptions(OneSidedOptions[L1Name], InitialOptions[L1Name], total=False):
    """Those of the Caputo derivative."""


class _IntegralParameters(TypedDict, total=False):
    side: SideName
    rate: Any
    rho: float
    eta: float
    sigma: float
    gamma: float
    omega: float
    normalisation: Any
    period: Any


class DerivativeParameters(_IntegralParameters, total=False):
    """The options of derivatives without ``method``; each accepts those that its class has."""

    ceiling: int | None
    initial: Any
    before: Any
    beta: float
    theta: float
    low: float
    high: float
    nodes: int
    psi: Any
    inverse: Callable[[Any], Any] | None
    centred: bool
    at: str


class IntegralOptions(_IntegralParameters, total=False):
    """Further options of integrals; each accepts those that its class has."""

    method: RuleName


class DerivativeOptions(DerivativeParameters, total=False):
    """Further options of derivatives; each accepts those that its class has."""

    method: RuleName


class _AllOptions(DerivativeOptions, CallParameters, total=False):
    pass


class OperatorFunction(Protocol[P]):
    """The function of an operator, which has the parameters P after ``f``.

    Parameters cannot be added to P, so the calls with ``full_output`` accept the options of all operators. Orders are
    taken for numbers: NumPy samples with an order that is a tensor or a JAX array give an array of that library.
    """

    @overload
    def __call__(
        self,
        f: Any,
        t: Any = None,
        alpha: OrderOrFunction = MISSING,
        *fields: Any,
        full_output: Literal[True],
        **options: Unpack[_AllOptions],
    ) -> OperatorResult: ...
    @overload
    def __call__(
        self,
        f: Any,
        t: Any = None,
        alpha: OrderOrFunction = MISSING,
        *fields: Any,
        full_output: bool,
        **options: Unpack[_AllOptions],
    ) -> Any: ...
    @overload
    def __call__(self, f: ArraySamples, *args: P.args, **options: P.kwargs) -> NDArray[Any]: ...
    @overload
    def __call__(self, f: SameArray, *args: P.args, **options: P.kwargs) -> SameArray: ...
    @overload
    def __call__(self, f: Callable[[Any], Any], *args: P.args, **options: P.kwargs) -> Any: ...
