"""Non-finite samples through NumPy's transforms affect the outputs whose sum includes them, and no others."""

from __future__ import annotations

import numpy as np

from hpfracc.engine.backends.numpy.kernels.causal_convolution import KERNELS


def test_half_the_samples_missing_is_no_harder_than_one() -> None:
    """30,000 bad samples take no 30,000 sums."""
    n = 60_000
    signal = np.ones(n)
    signal[1::2] = np.nan
    result = KERNELS["fft"].run(np.array([2.0]), signal)
    np.testing.assert_allclose(result[::2], 2.0, rtol=1e-12)
    assert np.isnan(result[1::2]).all()
