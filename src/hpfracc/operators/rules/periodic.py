"""Operators that multiply each wave of a periodic function by a power of its wave number and shift its phase."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, final

import numpy as np

from hpfracc._arrays import dtype_name
from hpfracc._xp import Namespace
from hpfracc.engine.execution.api import spectral_multiply
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.sequences import long_run
from hpfracc.operators.core.values import Samples
from hpfracc.operators.core.weights import scaled_weights

__all__ = ["PeriodicRule", "RieszWaves", "WeylWaves", "wave_powers"]


class PeriodicRule(Rule):
    r"""A wave :math:`e^{i\kappa x}` is multiplied by :math:`|\kappa|^\alpha (c + i\,\mathrm{sgn}(\kappa)\,s)`.

    Exact to rounding on every wave that the samples resolve (up to n/2 periods). For an analytic periodic function the
    error decreases exponentially with the number of samples. The samples cover one period without its end:
    ``np.linspace(0, period, n, endpoint=False)``.

    The mean is dropped, unless alpha is 0. For an even number of samples the highest wave is treated as a cosine.
    """

    usual_accuracy = math.inf
    needs_step = False
    halves = False
    #: Whether the phase is shifted, so that the factor is complex.
    turns: bool

    @abstractmethod
    def phase(self, xp: Namespace, alpha: Any) -> tuple[Any, Any]:
        """The factors c and s."""

    def apply(self, samples: Samples, order: Order) -> Any:
        """One spectral multiplication."""
        real = "complex" not in dtype_name(samples.values)
        scheme = (self.name, type(self).__name__, real)

        def make(xp: Namespace, alpha: Any, n: int) -> tuple[Any]:
            if real and not self.turns:
                c, _ = self.phase(xp, alpha)
                return (wave_powers(xp, alpha, 2.0 * math.pi / n * long_run(xp, 0, n // 2 + 1)) * c,)
            waves = np.arange(n // 2 + 1) if real else np.round(np.fft.fftfreq(n) * n)
            c, s = self.phase(xp, alpha)
            powers = wave_powers(xp, alpha, 2.0 * math.pi / n * np.abs(waves))
            if not self.turns:
                return (powers * c,)
            # For even n the highest wave is a cosine; the corresponding sine vanishes at the samples.
            sign = np.where(2 * np.abs(waves) == n, 0.0, np.sign(waves))
            return (xp.complex(powers * c, powers * xp.array(sign) * s),)

        (symbol,), key, left = scaled_weights(scheme, make, order, samples, -1)
        product = spectral_multiply(
            symbol,
            samples.values,
            axes=-1,
            kinds="fft",
            real=True if real else None,
            backend=samples.backend,
            weights_key=key,
        )
        return product if left is None else product * left


def wave_powers(xp: Namespace, alpha: Any, waves: Any) -> Any:
    """``waves ** alpha`` for non-negative numbers; 0 at 0, unless alpha is 0."""
    still = waves == 0.0
    on_host = isinstance(waves, np.ndarray)
    powers = xp.power(np.where(still, 1.0, waves) if on_host else xp.where(still, 1.0, waves), alpha)
    if on_host and not still.any():
        return powers
    at_rest = xp.where(alpha == 0.0, xp.array(1.0), xp.array(0.0))
    return xp.where(xp.array(still) > 0.0, at_rest, powers)


@final
class WeylWaves(PeriodicRule):
    r"""The Weyl derivative of a periodic function: :math:`(i\kappa)^\alpha`, the principal branch.

    References
    ----------
    S. G. Samko, A. A. Kilbas, O. I. Marichev, *Fractional Integrals and Derivatives*, 1993, section 19.
    """

    name = "spectral"
    turns = True

    def phase(self, xp: Namespace, alpha: Any) -> tuple[Any, Any]:
        """``exp(i pi alpha / 2)``."""
        angle = xp.array(0.5 * math.pi) * alpha
        return xp.cos(angle), xp.sin(angle)


@final
class RieszWaves(PeriodicRule):
    r"""The Riesz derivative of a periodic function: :math:`-|\kappa|^\alpha`."""

    name = "spectral"
    turns = False

    def phase(self, xp: Namespace, alpha: Any) -> tuple[Any, Any]:
        """-1."""
        return -1.0, 0.0
