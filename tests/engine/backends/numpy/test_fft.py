"""NumPy's own transforms in the precision of what they are given, and real numbers by half of their spectrum."""

from __future__ import annotations

import numpy as np
import pytest

from hpfracc.engine.backends.numpy.kernels.fft import KERNELS

transform = KERNELS["pocketfft"].run


@pytest.mark.parametrize("kind", ["fft", "ifft"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_row_comes_out_the_same_alone_and_among_others(kind: str, dtype: str) -> None:
    """Every bit of a row of real numbers is the same however many rows are transformed with it."""
    x = np.random.default_rng(3).standard_normal((100, 101)).astype(dtype)
    together = transform(x, kind=kind)
    for row, found in zip(x, together, strict=True):
        np.testing.assert_array_equal(transform(row, kind=kind), found)


@pytest.mark.parametrize(("kind", "norm"), [("fft", "backward"), ("rfft", "backward"), ("ifft", "forward")])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_an_infinite_sample_makes_nan_of_no_part_that_it_does_not_reach(
    kind: str, norm: str, axis: int, dtype: str
) -> None:
    """An infinite first sample adds to real parts alone: imaginary ones stay zero, in single precision too."""
    if kind == "rfft" and dtype == "complex64":
        pytest.skip("rfft takes real numbers")
    x = np.ones((8, 8), dtype)
    x[0, 0] = np.inf
    found = np.moveaxis(transform(x, kind=kind, norm=norm, axis=axis), axis, -1)[0]
    assert np.all(np.isposinf(found.real))
    np.testing.assert_array_equal(found.imag, 0.0)


@pytest.mark.parametrize("kind", ["fft", "rfft"])
def test_small_numbers_keep_their_digits(kind: str) -> None:
    """Single precision loses nothing of numbers near the smallest normal one, though a factor is taken to and fro."""
    x = (1e-36 * np.random.default_rng(5).standard_normal(2**18)).astype(np.float32)
    exact = getattr(np.fft, kind)(x.astype(np.float64))
    error = np.linalg.norm(transform(x, kind=kind) - exact) / np.linalg.norm(exact)
    assert error < 2 * np.finfo(np.float32).eps
