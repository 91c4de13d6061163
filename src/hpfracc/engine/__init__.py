"""The engine: operations for which it chooses the fastest algorithm, backend and device, and the selector.

>>> import numpy as np
>>> from hpfracc import engine
>>> engine.causal_convolution(np.array([1.0, 0.5]), np.array([1.0, 2.0, 3.0]))
array([1. , 2.5, 4. ])

``operation`` registers your own, ``last_decision`` says what was chosen and why. Names are loaded on first use.
"""

from __future__ import annotations

from hpfracc import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__)
