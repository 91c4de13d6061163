"""The Marchaud derivative."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Unpack, final

import numpy as np

from hpfracc._arrays import is_array
from hpfracc._choices import RuleName
from hpfracc._reading import number
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.operators._riemann_liouville import RiemannLiouville
from hpfracc.operators.core.base import FractionalOperator, function_of
from hpfracc.operators.core.call_types import MISSING, CeilingOptions, OrderNumber
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.values import Samples


@final
@dataclass(frozen=True, slots=True)
class Marchaud(FractionalOperator):
    r"""Marchaud derivative on the whole line, for f that is a known constant c before the origin.

    .. math::
        D^\alpha f(t) = \frac{\alpha}{\Gamma(1-\alpha)} \int_{0}^{\infty} \frac{f(t)-f(t-u)}{u^{1+\alpha}}\,du
        = \frac{f(t)-c}{\Gamma(1-\alpha)\,(t-t_0)^{\alpha}}
        + \frac{\alpha}{\Gamma(1-\alpha)} \int_{t_0}^{t} \frac{f(t)-f(s)}{(t-s)^{1+\alpha}}\,ds,
        \quad f(s) = c \text{ for } s < t_0,

    for 0 < alpha < 1; for larger alpha the same operator is applied to an integer-order derivative. With c = 0
    (``before=0``) it is the Marchaud derivative on an interval, which equals the Riemann-Liouville derivative. With
    c = f(t0) (``before="first"``) it is zero on constants and equals the Caputo derivative for alpha < 1. For any c it
    is the Riemann-Liouville derivative of f - c, and is computed by its rules, with their orders. For a *periodic* f
    use the Weyl derivative.

    Parameters
    ----------
    alpha : float or scalar array
        The order, positive; differentiable if it is a tensor or JAX array. Integer orders are ordinary derivatives.
    before : float, array or "first"
        The value c of f before the origin: a number, an array that broadcasts against f with its points as the last
        axis, or ``"first"`` for the first sample (for a callable, its value at the origin).
    method : str
        As for :class:`RiemannLiouville`: ``"l1-2"`` (order n + 2 - alpha; used by ``"auto"``), ``"l1"``
        (n + 1 - alpha), ``"cq2"`` to ``"cq6"``; on any other grid ``"l1"`` or ``"fast"``; for callables
        ``"spectral"`` or ``"graded"``.
    ceiling : int, optional
        The integer n, needed only if ``alpha`` is traced and above 1.

    References
    ----------
    S. G. Samko, A. A. Kilbas, O. I. Marichev, *Fractional Integrals and Derivatives*, 1993, sections 5.4 and 13.1.
    """

    alpha: OrderNumber
    before: Any = 0.0
    method: RuleName = "auto"
    ceiling: int | None = None

    definition = "marchaud"
    scales = True
    who = "the Marchaud derivative"
    instead = "for an integral use riemann_liouville_integral"
    inner = RiemannLiouville

    def _of_samples(self, samples: Samples) -> Outcome:
        self._order()
        first = self._first(samples.values[..., :1])
        outcome = self._inner().applied(replace(samples, values=samples.values - first), self.who)
        return replace(outcome, reusable=None)

    def _of_function(self, function: Function) -> Outcome:
        self._order()
        if isinstance(self.before, str) and function.factor < 0.0:
            raise InvalidInputError(
                f"before='first' with factor={function.factor:g}: f is infinite at the origin; give before= a number"
            )
        if not isinstance(self.before, str) and not is_array(self.before) and number("before", self.before) == 0.0:
            return self._inner()._of_function(function)
        if function.factor != 0.0:
            raise InvalidInputError(
                f"factor={function.factor:g} with before={self.before!r}: f - c is not a power times a smooth "
                "function; give before=0, or omit the factor"
            )
        first = self._first(function.at(np.array([function.origin])))

        return self._inner()._of_function(function.changed(lambda t, values: values - first))

    def _first(self, first: Any) -> Any:
        """The value c of f before the origin."""
        if isinstance(self.before, str):
            if self.before != "first":
                raise InvalidInputError(f"before={self.before!r} is not known; use a number, an array or 'first'")
            return first
        if not is_array(self.before):
            return number("before", self.before)
        shape, room = tuple(self.before.shape), tuple(first.shape)
        if shape and (
            shape[-1] != 1 or any(a != b and 1 not in (a, b) for a, b in zip(shape[::-1], room[::-1], strict=False))
        ):
            raise ShapeError(
                f"before has shape {shape}, but f without its points {room}; give one number, or an array that "
                "broadcasts against that"
            )
        return self.before


class MarchaudOptions(CeilingOptions, total=False):
    """The options of :func:`marchaud`."""

    before: Any


@function_of(Marchaud, see_also="caputo, riemann_liouville, weyl")
def marchaud(f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[MarchaudOptions]) -> Any:
    """Marchaud derivative of samples or of a callable, constant before the origin.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 5)
    >>> hf.marchaud(np.ones(5), t, 0.5)[1:].round(4)  # zero before the origin: a jump, 1 / sqrt(pi t)
    array([1.1284, 0.7979, 0.6515, 0.5642])
    >>> bool(hf.marchaud(np.ones(5), t, 0.5, before="first").any())
    False
    """
