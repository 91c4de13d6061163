"""Ordinary differential equations of fractional order.

The methods are classes, so that their parameters can be set: ``from hpfracc.solvers.ode import PECE``.
"""

from __future__ import annotations

from hpfracc import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__)
