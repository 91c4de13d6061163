"""Grünwald-Letnikov: the difference quotient at a finite step."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, final

from hpfracc._xp import Namespace
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.sequences import Lags, binomials, previous
from hpfracc.operators.core.values import Samples
from hpfracc.operators.rules.increments import convolve_by_parts

__all__ = ["Grunwald", "WeightedGrunwald"]


class GrunwaldSum(Rule):
    """A causal sum of the samples with the coefficients of a power series."""

    one_call = True

    @staticmethod
    @abstractmethod
    def make(xp: Namespace, alpha: Any, n: Any, m: int) -> Any:
        """N coefficients of the series over ``(1 - z)^m``."""

    def apply(self, samples: Samples, order: Order) -> Any:
        """One causal convolution."""
        return convolve_by_parts(samples, order, self.name, self.make)


@final
class Grunwald(GrunwaldSum):
    r"""The Grünwald-Letnikov sum.

    .. math:: D^\alpha f(t_k) \approx h^{-\alpha} \sum_{j=0}^{k} (-1)^j \binom{\alpha}{j} f_{k-j}.

    Order 1 at a fixed t beyond the origin, for smooth f with any value at the origin. The backward
    difference quotient for integer alpha, an integral for negative alpha.

    References
    ----------
    I. Podlubny, *Fractional Differential Equations*, 1999, section 2.2.
    """

    usual_accuracy = 1.0
    name = "gl"

    def magnification(self, alpha: float) -> float:
        """The generating function at -1."""
        return 2.0**alpha if alpha > 0.0 else 0.0

    @staticmethod
    def make(xp: Namespace, alpha: Any, n: int | Lags, m: int) -> Any:
        """The weights."""
        return binomials(xp, alpha - m, n)


@final
class WeightedGrunwald(GrunwaldSum):
    r"""The weighted shifted Grünwald-Letnikov sum with shifts 0 and -1, which needs no later sample.

    .. math:: D^\alpha f(t_k) \approx h^{-\alpha} \sum_{j=0}^{k} \Big[ \big(1 + \tfrac{\alpha}{2}\big) g_j
        - \tfrac{\alpha}{2} g_{j-1} \Big] f_{k-j}, \quad g_j = (-1)^j \binom{\alpha}{j}.

    Order 2 at a fixed t if f vanishes at the origin and continues smoothly by zero to order 1 there (f(0) = 0 is enough
    at a fixed t); order 1 otherwise.

    References
    ----------
    W. Tian, H. Zhou, W. Deng, Math. Comp. 84 (2015) 1703-1727.
    """

    usual_accuracy = 2.0
    name = "wsgl"
    companion = Grunwald()

    def magnification(self, alpha: float) -> float:
        """The generating function at -1."""
        return (1.0 + alpha) * 2.0**alpha if alpha > 0.0 else 0.0

    @staticmethod
    def make(xp: Namespace, alpha: Any, n: int | Lags, m: int) -> Any:
        """The weights."""
        g = binomials(xp, alpha - m, n)
        before = g[:-1] if isinstance(n, int) else binomials(xp, alpha - m, previous(n))
        return (1.0 + 0.5 * alpha) * g - 0.5 * alpha * xp.concatenate([xp.array([0.0]), before])
