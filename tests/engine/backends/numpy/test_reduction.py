"""NumPy's sums keep their digits along every axis."""

from __future__ import annotations

import numpy as np
import pytest

from hpfracc.engine.backends.numpy.kernels.reduction import KERNELS


@pytest.mark.parametrize("axis", [0, 1])
def test_long_sums_of_single_precision_keep_their_digits(axis: int) -> None:
    """300,000 tenths: row after row float32 loses 4 digits, in blocks it keeps almost all."""
    x = np.full((300_000, 2), 0.1, np.float32)
    x = x if axis == 0 else np.ascontiguousarray(x.T)
    exact = 300_000 * float(np.float32(0.1))
    plain = np.add.reduce(np.full((300_000, 2), 0.1, np.float32), axis=0)[0]
    assert abs(plain - exact) > 1e-4 * exact
    np.testing.assert_allclose(KERNELS["default"].run(x, kind="sum", axis=axis), exact, rtol=1e-6)
    np.testing.assert_allclose(KERNELS["default"].run(x, kind="mean", axis=axis), exact / 300_000, rtol=1e-6)
