"""The integrals behind the weights of L1 and L2-1sigma, against mpmath."""

from __future__ import annotations

import importlib

import mpmath
import numpy as np
import pytest

from hpfracc._optional import is_installed
from hpfracc._xp import namespace
from hpfracc.history.intervals import interval_integrals


@pytest.mark.parametrize("alpha", [1e-12, 0.5, 1 - 1e-6, 1 - 2**-53, -1 + 1e-6])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_integrals_keep_their_digits(alpha: float, library: str):
    """On meshes of any ratio of lengths, also near order 1, where the powers at both ends are almost 1."""
    if not is_installed(library):
        pytest.skip(f"{library} is not installed")
    importlib.import_module(library)
    xp, near = namespace(library), 1.7
    lengths = near * np.geomspace(1e-12, 1e12, 25)
    found = interval_integrals(xp, alpha, xp.array(np.full(25, near)), xp.array(lengths), parabola=True)
    with mpmath.workdps(90):
        order, start = mpmath.mpf(alpha), mpmath.mpf(near)
        for i, length in enumerate(map(mpmath.mpf, lengths.tolist())):
            area, lever = (
                ((start + length) ** (p - order) - start ** (p - order)) / (p - order) * mpmath.rgamma(1 - order)
                for p in (1, 2)
            )
            moment = ((start + length / 2) * area - lever) / length**2
            assert float(found[0][i]) == pytest.approx(float(area / length), rel=1e-13, abs=0)
            assert float(found[1][i]) == pytest.approx(float(moment), rel=2e-12, abs=1e-14 * float(found[0][i]))
