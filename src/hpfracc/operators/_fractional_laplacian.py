"""The fractional Laplacian, in one to three dimensions (or more)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack, final

from hpfracc._arrays import is_chunked
from hpfracc._frames import has_labels, open_samples
from hpfracc._reading import flag
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.applying import UNIFORM, apply_rule, pick_rule
from hpfracc.operators.core.base import CallOptions, FractionalOperator, function_of
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.periodic import sampled
from hpfracc.operators.core.reporting import Outcome, relabelled
from hpfracc.operators.core.rule import RuleTable, later
from hpfracc.operators.core.several_axes import call_over_axes
from hpfracc.operators.core.values import Samples
from hpfracc.operators.rules.laplacian import Integral, LaplacianRule
from hpfracc.profiling.recorder import shared as spans

__all__ = ["FractionalLaplacian", "fractional_laplacian"]


@final
@dataclass(frozen=True, slots=True)
class FractionalLaplacian(FractionalOperator):
    r"""Fractional Laplacian :math:`(-\Delta)^{\alpha/2}`: positive, of order alpha.

    .. math:: (-\Delta)^{\alpha/2} f(x) = C_{d,\alpha} \,\mathrm{p.v.}\!\int_{\mathbb{R}^d}
        \frac{f(x) - f(y)}{|x-y|^{d+\alpha}}\,dy, \quad \text{of waves } |\kappa|^\alpha e^{i\kappa\cdot x}.

    alpha = 2 is minus the Laplacian; the Riesz derivative is minus this operator. On a bounded set several different
    operators have this name; ``method`` selects one.

    Parameters
    ----------
    alpha : float or scalar array
        The order, twice the power :math:`s = \alpha/2`; differentiable if it is a tensor or JAX array.
    method : str
        - ``"integral"`` (used by ``"auto"``): the integral above over the whole space, with f zero outside its samples.
          :math:`0 < \alpha \le 2`. Order 2 if f extended by zero is smooth.
        - ``"periodic"``: by Fourier series, for samples over one period without its end. Any alpha: a negative one
          gives the Riesz potential of f minus its mean.
        - ``"dirichlet"``: the spectral power with f zero on the boundary, by sine series, for samples at the interior
          points, ``np.linspace(a, b, n + 2)[1:-1]``. Any alpha.
        - ``"neumann"``: the spectral power with zero normal derivative, by cosine series, for samples at the midpoints
          of n cells.

    Notes
    -----
    ``axis`` may be several axes; then ``t`` has a grid for each, and ``step`` is one number or one for each. The
    operator is that of the multidimensional space, not a sum over axes. A callable is sampled on the given grid:
    ``f(x)``, or ``f(x, y)`` with arrays of all points (``np.meshgrid(..., indexing="ij")``). Every value depends on
    every sample, so one non-finite sample makes the whole result of its batch non-finite.

    References
    ----------
    M. Kwaśnicki, Fract. Calc. Appl. Anal. 20 (2017) 7-51; A. Lischke et al., J. Comput. Phys. 404 (2020) 109009.
    """

    alpha: Any
    method: str = "auto"

    definition = "fractional_laplacian"
    short_names = ("laplacian", "FL")
    who = "the fractional Laplacian"
    rules = RuleTable(
        {
            "integral": later("laplacian.Integral"),
            "periodic": later("laplacian.PeriodicWaves"),
            "dirichlet": later("laplacian.DirichletWaves"),
            "neumann": later("laplacian.NeumannWaves"),
        }
    )
    grids = ("uniform",)
    unused = ("origin", "factor", "rtol")

    def __call__(
        self,
        f: Any,
        t: Any = None,
        *,
        step: Any = None,
        axis: int | Sequence[int] | None = None,
        dim: Any = None,
        time_unit: str | None = None,
        origin: Any = None,
        factor: Any = None,
        rtol: Any = None,
        backend: Any = None,
        full_output: bool = False,
    ) -> Any:
        """Apply the operator along an axis, or over several.

        Parameters
        ----------
        f : array_like or callable
            Samples, with any further axes, or a function that is sampled on the grid.
        t : array_like or sequence of array_like, optional
            The points along the axis, or those along each of the axes.
        step : float or sequence of float, optional
            The spacing instead of ``t``: one for all axes, or one for each.
        axis : int or sequence of int, optional
            The axes of space: by default the last one, or the index of a frame.
        dim : hashable or sequence, optional
            Their names instead, for a ``DataArray``, whose coordinates give the points.
        time_unit : str, optional
            Unit of dates, as for every operator.
        origin, factor, rtol : None
            Options of other operators; anything else raises an error.
        backend : str, optional
            Backend to run on; by default the engine selects it.
        full_output : bool
            Whether to return an :class:`OperatorResult` instead of the value only.
        """
        for name, option in zip(self.unused, (origin, factor, rtol), strict=True):
            if option is not None:
                raise InvalidInputError(f"{name}={option!r}: {self.who} does not take it; omit it")
        along: Any = axis
        options: dict[str, Any] = {"step": step, "backend": backend, "full_output": flag("full_output", full_output)}
        if not isinstance(axis, Sequence) and (isinstance(dim, str) or not isinstance(dim, Sequence)):
            return FractionalOperator.__call__(self, f, t, axis=along, dim=dim, time_unit=time_unit, **options)
        with spans.span(type(self).__name__):
            if dim is not None or time_unit is not None or (has_labels(f) and not is_chunked(f)):
                opened = open_samples(f, t, step=step, axis=axis, dim=dim, time_unit=time_unit, chunked=True)
                return relabelled(opened, call_over_axes(self, opened.values, opened.t, axes=opened.axis, **options))
            return call_over_axes(self, f, t, axes=along, **options)

    def _chosen(self) -> tuple[LaplacianRule, Order]:
        """The method, and the order that it must support."""
        rule = pick_rule(self, self.method, self.who, UNIFORM)
        order = read_order(self.alpha)
        assert isinstance(rule, LaplacianRule)
        if isinstance(rule, Integral) and order.known is not None and not 0.0 < order.known <= 2.0:
            raise InvalidInputError(
                f"alpha={order.known:g}: {self.who} by its integral needs an order in (0, 2]; use method='periodic' or "
                "'dirichlet' for others"
            )
        return rule, order

    def _of_samples(self, samples: Samples) -> Outcome:
        rule, order = self._chosen()
        return apply_rule(rule, samples, order, self.who)

    def _of_function(self, function: Function) -> Outcome:
        return self._of_samples(sampled(function, self.who))


@function_of(FractionalLaplacian)
def fractional_laplacian(
    f: Any, t: Any = None, alpha: Any = None, *, method: str = "auto", **options: Unpack[CallOptions]
) -> Any:
    r"""Fractional Laplacian :math:`(-\Delta)^{\alpha/2}` of samples or of a callable, over one axis or several.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> x = np.linspace(0.0, 2.0 * np.pi, 16, endpoint=False)
    >>> f = np.cos(x)[:, None] * np.cos(2 * x)
    >>> value = hf.fractional_laplacian(f, (x, x), 1.5, method="periodic", axis=(0, 1))
    >>> bool(np.allclose(value, (1 + 4) ** 0.75 * f))
    True
    """
    return FractionalLaplacian(alpha, method)(f, t, **options)
