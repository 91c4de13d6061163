"""Numba's loops where their own blocking shows: long sums, parts of rows."""

from __future__ import annotations

import numpy as np
import pytest

from hpfracc._optional import is_installed

if not is_installed("numba"):
    pytest.skip("needs Numba", allow_module_level=True)

from hpfracc.engine.backends.numba.kernels.causal_convolution import convolve_direct


def test_layouts_and_read_only_arrays_do_not_recompile() -> None:
    """Strided, reversed and read-only arrays are served by the code that was compiled for plain ones."""
    from hpfracc.engine.backends.numba.kernels.causal_convolution import _convolve, _convolve_row

    x = np.arange(12.0)
    convolve_direct(x, x)
    convolve_direct(x, np.stack([x, x]))
    compiled = len(_convolve.signatures), len(_convolve_row.signatures)
    frozen = x.copy()
    frozen.flags.writeable = False
    for signal in (x[::2], x[::-1], frozen, np.broadcast_to(x, (3, 12)), np.asfortranarray(np.stack([x, x]))):
        convolve_direct(frozen, signal)
    assert (len(_convolve.signatures), len(_convolve_row.signatures)) == compiled
