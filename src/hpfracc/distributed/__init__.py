"""Beyond one process: parameter sweeps, stores from which they resume, and Dask arrays and clusters.

Names are loaded on first use: a worker that only calls a function needs few of them.
"""

from __future__ import annotations

from hpfracc import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__)
