"""Spectral multiplication in CuPy: the generic kernels, with transforms of ``cupyx`` that overwrite their input."""

from __future__ import annotations

import cupyx.scipy.fft  # noqa: F401  (found by the namespace)

from hpfracc._xp import namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.spectral_multiply import make_kernels

__all__ = ["KERNELS"]

KERNELS: dict[str, Kernel] = make_kernels(namespace("cupy"))
