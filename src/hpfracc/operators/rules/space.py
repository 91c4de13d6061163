"""Rules in space: the Riesz derivative by centred differences; the Laplacian by eigenfunctions or by all neighbours."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar, final

import numpy as np

from hpfracc._xp import Namespace
from hpfracc.engine.execution.api import toeplitz_apply
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.sequences import Lags, centred_binomials
from hpfracc.operators.core.values import Samples
from hpfracc.operators.core.weights import scaled_weights
from hpfracc.operators.rules.lattice_power import lattice_power_weights
from hpfracc.operators.rules.periodic import LaplacianRule, Ratios, WaveRule


@final
class Integral(LaplacianRule):
    r"""The integral definition, of a function that is zero outside its samples, by powers of the second difference.

    .. math:: (-\Delta)^{\alpha/2} f(x) = C_{d,\alpha} \,\mathrm{p.v.}\!\int_{\mathbb{R}^d}
        \frac{f(x) - f(y)}{|x-y|^{d+\alpha}}\,dy \approx \sum_j w_{j-k} f_j, \quad
        \sum_j w_j e^{ij\theta} = \Big(\sum_a \tfrac{4}{h_a^2} \sin^2 \tfrac{\theta_a}{2}\Big)^{\alpha/2}.

    In one dimension these are the fractional centred differences. Order 2 at interior points if f extended by zero
    is smooth. If f starts like :math:`\rho^p` in the distance from the edge of its support, the order is
    :math:`\min(2, 1 + p)`, so :math:`1 + \alpha/2` for the solutions of :math:`(-\Delta)^{\alpha/2} u = 1`.
    :math:`0 < \alpha \le 2`; at 2 the usual second differences.

    References
    ----------
    Y. Huang, A. Oberman, SIAM J. Numer. Anal. 52 (2014) 3056-3084 (on this and other discretisations);
    Ó. Ciaurri et al., Adv. Math. 330 (2018) 688-738.
    """

    usual_accuracy = 2.0
    name = "integral"

    def over(self, samples: Samples, ratios: Ratios, order: Order) -> Any:
        """One Toeplitz product over all axes."""
        values = samples.values
        axes = tuple(range(-len(ratios), 0))
        shape = tuple(values.shape[axis] for axis in axes)
        scheme = (self.name, shape, ratios)

        def make(xp: Namespace, alpha: Any, n: int) -> tuple[Any]:
            if len(shape) == 1:
                return (centred_binomials(xp, alpha, shape[0]),)
            return (lattice_power_weights(xp, alpha, shape, ratios),)

        (weights,), key, left = scaled_weights(scheme, make, order, samples, -1)
        if order.known is None:
            with order.xp.scope():
                inside = (order.value > 0.0) & (order.value <= 2.0)
                weights = order.xp.where(inside, weights, math.nan)
        product = toeplitz_apply(weights, values, axes=axes, backend=samples.backend, weights_key=key)
        return product if left is None else product * left


@final
class PeriodicWaves(WaveRule):
    r"""Periodic in every axis: :math:`|\kappa|^\alpha` for each wave. The mean is dropped unless alpha is 0.

    The samples cover a period, whose end is not among them: ``np.linspace(0, period, n, endpoint=False)``.
    """

    name = "periodic"


@final
class DirichletWaves(WaveRule):
    r"""The spectral power with f zero on the boundary: :math:`\kappa^\alpha` for each sine.

    Not the integral definition.

    The samples are at the interior points: f vanishes one step before the first and after the last,
    ``np.linspace(a, b, n + 2)[1:-1]``.
    """

    name = "dirichlet"
    kind = "dst1"

    def numbers(self, n: int, half: bool) -> np.ndarray[Any, Any]:
        """``pi k / (n + 1)``."""
        return np.asarray(math.pi / (n + 1) * np.arange(1, n + 1))


@final
class NeumannWaves(WaveRule):
    r"""The spectral power with zero normal derivative: :math:`\kappa^\alpha` for each cosine.

    The mean is dropped unless alpha is 0.

    The samples are at the midpoints of n equal cells: the ends are half a step before the first and after the last.
    """

    name = "neumann"
    kind = "dct2"

    def numbers(self, n: int, half: bool) -> np.ndarray[Any, Any]:
        """``pi k / n``."""
        return np.asarray(math.pi / n * np.arange(n))


def _product(samples: Samples, order: Order, scheme: str, make: Any, few: bool = False) -> Any:
    (weights,), key, left = scaled_weights(scheme, make, order, samples, -1, few=few)
    with order.xp.scope():
        weights = order.guard_integral(weights)
    product = toeplitz_apply(weights, samples.values, backend=samples.backend, weights_key=key)
    return product if left is None else product * left


class CentredSum(Rule):
    """A two-sided sum of the samples."""

    one_call = True
    halves = False
    #: Whether the weights are smooth enough to be interpolated from a few.
    few: ClassVar[bool] = False

    @staticmethod
    @abstractmethod
    def make(xp: Namespace, alpha: Any, n: Any) -> tuple[Any, ...]:
        """The weights."""

    @property
    def companion(self) -> Rule | None:  # type: ignore[override]
        """The same with twice the step."""
        return _Coarse(self)

    def apply(self, samples: Samples, order: Order) -> Any:
        """One Toeplitz product."""
        return _product(samples, order, self.name, self.make, few=self.few)


@final
class _Coarse(Rule):
    r"""A centred rule with twice the step: at each point, of the samples at even distances from it.

    It has :math:`2^p` times the error if the rule has order p, also where that is low because f is not smooth at the
    ends, so its distance from the rule is an error estimate.
    """

    halves = False

    def __init__(self, rule: CentredSum) -> None:
        self.rule = rule
        self.name = rule.name  # type: ignore[misc]

    def accuracy(self, alpha: float) -> float:
        """That of the rule."""
        return self.rule.accuracy(alpha)

    def apply(self, samples: Samples, order: Order) -> Any:
        """One Toeplitz product, with weights of 0 at odd distances."""

        def make(xp: Namespace, alpha: Any, n: int) -> tuple[Any]:
            weights = self.rule.make(xp, alpha, n // 2 + 1)[0] * xp.exp(-math.log(2.0) * alpha)
            return (xp.stack([weights, 0.0 * weights], -1).reshape(-1)[:n],)

        return _product(samples, order, f"{self.name}, twice the step", make)


@final
class Centred4(CentredSum):
    r"""The centred sum with its leading error term removed.

    .. math:: \frac{d^\alpha f}{d|x|^\alpha}(x_k) \approx -h^{-\alpha} \sum_j
        \Big[ g_{|k-j|} - \tfrac{\alpha}{24} \delta^2 g_{|k-j|} \Big] f_j,

    with the weights g of :class:`Centred` and their second central difference. Order 4 if f, extended by zero, has more
    than :math:`4 + \alpha` derivatives; a kink at an end reduces it as for :class:`Centred`.

    References
    ----------
    X. Zhao, Z.-Z. Sun, Z.-P. Hao, SIAM J. Sci. Comput. 36 (2014) A2865-A2886.
    """

    usual_accuracy = 4.0
    name = "centred4"

    @staticmethod
    def make(xp: Namespace, alpha: Any, n: int) -> tuple[Any]:
        """The weights."""
        g = centred_binomials(xp, alpha, n + 1)
        before = xp.concatenate([g[1:2], g[: n - 1]])
        return (alpha / 24.0 * (g[1:] - 2.0 * g[:n] + before) - g[:n],)


@final
class Centred(CentredSum):
    r"""The fractional centred difference.

    .. math:: \frac{d^\alpha f}{d|x|^\alpha}(x_k) \approx -h^{-\alpha} \sum_j g_{|k-j|} f_j, \quad
        g_k = \frac{(-1)^k\,\Gamma(\alpha+1)}{\Gamma(\alpha/2-k+1)\,\Gamma(\alpha/2+k+1)},

    for every :math:`\alpha > 0`; at 2 the usual second difference. Order 2 if f, extended by zero outside the samples,
    has more than :math:`2 + \alpha` derivatives. If f starts like :math:`x^p` at an end, the order is :math:`\min(2, 1
    + p)` at a fixed interior point, and there is no convergence next to that end unless :math:`p > \alpha`.

    References
    ----------
    M. D. Ortigueira, Int. J. Math. Math. Sci. 2006, 48391; C. Çelik, M. Duman, J. Comput. Phys. 231 (2012) 1743-1750.
    """

    usual_accuracy = 2.0
    name = "centred"
    few = True

    @staticmethod
    def make(xp: Namespace, alpha: Any, n: int | Lags) -> tuple[Any]:
        """The weights."""
        return (-centred_binomials(xp, alpha, n),)
