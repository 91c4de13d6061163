"""Control with fractional orders: transfer functions in real powers of s, their responses, controllers, identification.

>>> import hpfracc as hf
>>> s = hf.control.s
>>> G = (s**0.5 + 2) / (s**1.5 + 0.3 * s**0.7 + 1) * hf.control.delay(0.1)
>>> print(G)
(s^0.5 + 2)/(s^1.5 + 0.3 s^0.7 + 1) e^(-0.1 s)
>>> bool(hf.control.is_stable(G))
True
"""

from __future__ import annotations

from hpfracc.control.approximations import Approximation, cfe, discretize, matsuda, oustaloup, pade
from hpfracc.control.fopid import FOPID, FOPIDController, Tuning, tune
from hpfracc.control.frequency import (
    FrequencyResponse,
    Margins,
    bandwidth,
    bode,
    h2_norm,
    hinf_norm,
    margins,
    nichols,
    nyquist,
)
from hpfracc.control.identification import SystemFit, fit_frequency, fit_time
from hpfracc.control.laplace import inverse_laplace
from hpfracc.control.responses import Response, impulse_response, lsim, step_response
from hpfracc.control.stability import Stability, is_stable, poles
from hpfracc.control.transfer import StateSpace, TransferFunction, delay, feedback, parallel, s, series

__all__ = [
    "FOPID",
    "Approximation",
    "FOPIDController",
    "FrequencyResponse",
    "Margins",
    "Response",
    "Stability",
    "StateSpace",
    "SystemFit",
    "TransferFunction",
    "Tuning",
    "bandwidth",
    "bode",
    "cfe",
    "delay",
    "discretize",
    "feedback",
    "fit_frequency",
    "fit_time",
    "h2_norm",
    "hinf_norm",
    "impulse_response",
    "inverse_laplace",
    "is_stable",
    "lsim",
    "margins",
    "matsuda",
    "nichols",
    "nyquist",
    "oustaloup",
    "pade",
    "parallel",
    "poles",
    "s",
    "series",
    "step_response",
    "tune",
]
