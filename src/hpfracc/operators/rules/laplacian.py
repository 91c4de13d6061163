"""The fractional Laplacian over one to three axes: by eigenfunctions, or by a sum over all neighbours."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable
from typing import Any, ClassVar, final

import numpy as np

from hpfracc._arrays import dtype_name
from hpfracc._xp import Namespace
from hpfracc.engine.execution.api import spectral_multiply, toeplitz_apply
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.sequences import centred_binomials
from hpfracc.operators.core.values import Samples
from hpfracc.operators.core.weights import scaled_weights
from hpfracc.operators.rules.lattice_power import lattice_power_weights
from hpfracc.operators.rules.periodic import wave_powers

__all__ = ["DirichletWaves", "Integral", "LaplacianRule", "NeumannWaves", "PeriodicWaves"]

Ratios = tuple[float, ...]


class LaplacianRule(Rule):
    """A method for samples on a uniform grid of one or more axes."""

    one_call = True
    halves = False

    @abstractmethod
    def over(self, samples: Samples, ratios: Ratios, order: Order) -> Any:
        """The operator along the last axes.

        Parameters
        ----------
        samples : Samples
            The values, and the grid of the first of those axes.
        ratios : tuple of float
            For each axis the squared ratio of the first step to its own.
        order : Order
            The alpha of ``(-Laplacian)^(alpha/2)``.
        """

    def apply(self, samples: Samples, order: Order) -> Any:
        """Along one axis."""
        return self.over(samples, (1.0,), order)


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


class _Waves(LaplacianRule):
    """Multiplies each wave that satisfies the boundary conditions by its wave number to the power alpha.

    Exact to rounding on those waves; exponentially convergent for functions whose periodic extension is analytic.
    """

    usual_accuracy = math.inf
    #: The transform into the waves.
    kind: ClassVar[str]

    @abstractmethod
    def numbers(self, n: int, half: bool) -> np.ndarray[Any, Any]:
        """Wave numbers times the step."""

    def over(self, samples: Samples, ratios: Ratios, order: Order) -> Any:
        """One spectral multiplication over all axes."""
        values = samples.values
        axes = tuple(range(-len(ratios), 0))
        shape = tuple(values.shape[axis] for axis in axes)
        real = "complex" not in dtype_name(values)
        scheme: Hashable = (self.name, shape, ratios, real)

        def make(xp: Namespace, alpha: Any, n: int) -> tuple[Any]:
            squares = np.zeros(())
            for axis, (points, ratio) in enumerate(zip(shape, ratios, strict=True)):
                waves = self.numbers(points, half=real and axis == len(shape) - 1)
                squares = squares[..., None] + ratio * waves**2
            return (wave_powers(xp, alpha, np.sqrt(squares)),)

        (symbol,), key, left = scaled_weights(scheme, make, order, samples, -1)
        product = spectral_multiply(
            symbol, values, axes=axes, kinds=self.kind, backend=samples.backend, weights_key=key
        )
        return product if left is None else product * left


@final
class PeriodicWaves(_Waves):
    r"""Periodic in every axis: :math:`|\kappa|^\alpha` for each wave. The mean is dropped unless alpha is 0.

    The samples cover a period, whose end is not among them: ``np.linspace(0, period, n, endpoint=False)``.
    """

    name = "periodic"
    kind = "fft"

    def numbers(self, n: int, half: bool) -> np.ndarray[Any, Any]:
        """``2 pi k / n``."""
        waves = np.arange(n // 2 + 1) if half else np.round(np.fft.fftfreq(n) * n)
        return np.asarray(2.0 * math.pi / n * np.abs(waves))


@final
class DirichletWaves(_Waves):
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
class NeumannWaves(_Waves):
    r"""The spectral power with zero normal derivative: :math:`\kappa^\alpha` for each cosine.

    The mean is dropped unless alpha is 0.

    The samples are at the midpoints of n equal cells: the ends are half a step before the first and after the last.
    """

    name = "neumann"
    kind = "dct2"

    def numbers(self, n: int, half: bool) -> np.ndarray[Any, Any]:
        """``pi k / n``."""
        return np.asarray(math.pi / n * np.arange(n))
