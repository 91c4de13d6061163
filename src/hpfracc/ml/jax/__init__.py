"""Layers, equations and optimisers for JAX. Names are loaded on first use."""

from __future__ import annotations

from hpfracc import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__)
