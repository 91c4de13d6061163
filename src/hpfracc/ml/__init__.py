"""Machine learning with fractional calculus: layers, optimisers, neural equations, and their older import paths.

PyTorch layers are available here under their own names, JAX layers in :mod:`hpfracc.ml.jax`. Importing this package
imports no array library: a name is loaded when it is first used.
"""

from __future__ import annotations

from hpfracc import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__)
