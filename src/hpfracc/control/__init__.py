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

from hpfracc import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__)
