"""CuPy for generic kernels: the transforms of ``cupyx``, which its namespace uses once imported, save a copy."""

from __future__ import annotations

import cupyx.scipy.fft  # noqa: F401

from hpfracc.engine.backends.generic.library import Library

LIBRARY = Library("cupy")
