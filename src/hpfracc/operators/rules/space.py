"""Rules in space: the Riesz derivative by centred differences; the Laplacian by eigenfunctions or by all neighbours."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import lru_cache
from typing import Any, ClassVar, final

import numpy as np
from scipy import special

from hpfracc._xp import Namespace
from hpfracc.engine.execution.api import toeplitz_apply
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.sequences import Lags, centred_binomials
from hpfracc.operators.core.values import Samples, scaled_weights
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


#: Step of the trapezoid rule in log t: its error is exp(-pi^2 / step).
_STEP = 0.25
#: Where the integrand, which starts like t^2 and ends like t^-1, has fallen below rounding.
_FIRST, _LAST = -42.0, 42.0
#: Bessel functions use their asymptotic expansion above this argument, if it also exceeds twice the order squared.
_FAR, _TERMS = 1000.0, 14
#: Elements of a block of products: 64 MiB of them.
_BLOCK = 1 << 23


def lattice_power_weights(xp: Namespace, alpha: Any, shape: tuple[int, ...], ratios: tuple[float, ...]) -> Any:
    r"""Weights of ``(-Laplacian_h)^(alpha/2)`` on a lattice of unit first step, for distances within ``shape``.

    The power :math:`(-\Delta_h)^s` of the lattice Laplacian has the symbol :math:`(\sum_a 4 r_a
    \sin^2(\theta_a/2))^s`, and its weights are those Fourier coefficients. In one dimension they have a closed form
    (:func:`~hpfracc.operators.core.sequences.centred_binomials`); in more they come from the heat kernel of the
    lattice, which is a product over the axes, :math:`g(t) = \prod_a e^{-2 r_a t} I_{j_a}(2 r_a t)`:

    .. math:: w_j = \frac{1}{\Gamma(-s)} \int_0^\infty g_j(t)\, t^{-1-s}\,dt \quad (j \ne 0), \qquad
        w_0 = \frac{1}{\Gamma(1-s)} \int_0^\infty -g_0'(t)\, t^{-s}\,dt.

    The trapezoid rule in :math:`\log t` converges exponentially, and its sum over t is one product of matrices. The
    part that decays slowly for small t, near :math:`s = 1`, is subtracted and integrated in closed form.

    Parameters
    ----------
    xp : Namespace
        Namespace of the weights.
    alpha : float or scalar array
        Twice the power, in (0, 2].
    shape : tuple of int
        Distances along each axis, from 0 up.
    ratios : tuple of float
        Squared ratio of the first step to that of each axis: 1 for the first.

    References
    ----------
    O. Ciaurri, L. Roncal, P. R. Stinga, J. L. Torrea, J. L. Varona, Adv. Math. 330 (2018) 688-738.
    """
    s = 0.5 * alpha
    t = _nodes(max(shape))
    tables = [_heat(n, float(ratio), max(shape)) for n, ratio in zip(shape, ratios, strict=True)]
    weights = xp.rgamma(-s) * _sum_over_time(xp, xp.power(t, -s), tables)
    total = 2.0 * sum(ratios)
    still = np.exp(-total * t)
    places = np.zeros(shape)
    places[(0,) * len(shape)] = 1.0
    # The centre has a separate formula, and its four or six neighbours a part in closed form.
    near = [_heat(2, float(ratio), max(shape)) for ratio in ratios]
    slope = np.zeros_like(t)
    for axis, ratio in enumerate(ratios):
        others = [table[:, 0] for other, table in enumerate(near) if other != axis]
        slope += 2.0 * ratio * (near[axis][:, 0] - near[axis][:, 1]) * np.prod(others, axis=0)
    rest = xp.matmul(xp.power(t, 1.0 - s).reshape(1, -1), xp.array(slope - total * still).reshape(-1, 1)).reshape(())
    centre = xp.power(np.array(total), s) + _STEP * xp.rgamma(1.0 - s) * rest
    weights = weights * xp.array(1.0 - places) + xp.array(places) * centre
    slow = _STEP * xp.rgamma(-s) * xp.matmul(xp.power(t, 1.0 - s).reshape(1, -1), xp.array(still).reshape(-1, 1))
    by_hand = -s * xp.power(np.array(total), s - 1.0) - slow.reshape(())
    for axis, ratio in enumerate(ratios):
        if shape[axis] > 1:
            places = np.zeros(shape)
            places[tuple(1 if other == axis else 0 for other in range(len(shape)))] = ratio
            weights = weights + xp.array(places) * by_hand
    return weights


def _sum_over_time(xp: Namespace, factors: Any, tables: list[np.ndarray[Any, Any]]) -> Any:
    """``sum_q factors[q] prod_a tables[a][q, j_a]``, in blocks of times."""
    times = len(tables[0])
    width = math.prod(table.shape[1] for table in tables[1:])
    block = max(1, _BLOCK // max(1, width))
    total: Any = None
    for first in range(0, times, block):
        part = slice(first, first + block)
        rest = np.ones((len(tables[0][part]), 1))
        for table in tables[1:]:
            rest = (rest[:, :, None] * table[part][:, None, :]).reshape(len(rest), -1)
        left = xp.array(np.ascontiguousarray(tables[0][part].T)) * factors[part].reshape(1, -1)
        product = xp.matmul(left, xp.array(rest))
        total = product if total is None else total + product
    return _STEP * total.reshape(tuple(table.shape[1] for table in tables))


def _nodes(points: int) -> np.ndarray[Any, Any]:
    """The quadrature times, up to the square of the largest distance, as for diffusion."""
    last = _LAST + 2.0 * math.log(max(2, points))
    return np.asarray(np.exp(np.arange(_FIRST, last + _STEP, _STEP)))


@lru_cache(maxsize=8)
def _heat(count: int, ratio: float, points: int) -> np.ndarray[Any, Any]:
    """``exp(-z) I_j(z)`` at ``z = 2 ratio t``, shape (times, count)."""
    z = (2.0 * ratio * _nodes(points))[:, None]
    j = np.arange(count, dtype=np.float64)
    far = z > np.maximum(_FAR, 2.0 * j**2)
    table = np.where(far, 0.0, special.ive(j, np.where(far, 1.0, z)))
    # exp(-z) I_j(z) sqrt(2 pi z) = 1 - (m - 1)/(8z) + (m - 1)(m - 9)/(2! (8z)^2) - ..., with m = 4 j^2.
    safe = np.where(far, z, np.maximum(_FAR, 2.0 * j**2))
    term = np.ones_like(safe)
    series = term.copy()
    for k in range(1, _TERMS + 1):
        term = term * -(4.0 * j**2 - (2 * k - 1) ** 2) / (8.0 * k * safe)
        series += term
    table = np.where(far, series / np.sqrt(2.0 * math.pi * safe), table)
    table.setflags(write=False)
    return np.asarray(table)
