r"""Models with names: materials, dielectrics, circuits, drugs, epidemics, neurons, chaos, transport.

Each is data: its equations, parameters with units in words, and a reference; with ``simulate``, ``fit`` and ``plot``.

>>> import hpfracc as hf
>>> print(hf.models.zener(e0=1.0, e1=2.0, tau=0.5, alpha=0.6))
fractional Zener
  \sigma + \tau^\alpha D^\alpha\sigma = E_0\,\varepsilon + (E_0 + E_1)\,\tau^\alpha D^\alpha\varepsilon
  e0 = 1  (pascal; modulus after long times)
  e1 = 2  (pascal; modulus that relaxes)
  tau = 0.5  (second; relaxation time)
  alpha = 0.6  (dimensionless; order of the spring-pot)
  M. Caputo, F. Mainardi, Pure Appl. Geophys. 91 (1971) 134-147
"""

from __future__ import annotations

from hpfracc import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__)
