"""Formulae: bytes of intermediate results that are alive at once, and division by zero."""

from __future__ import annotations

import numpy as np
import pytest

from hpfracc._optional import is_installed
from hpfracc.engine import elementwise

LONG, ROW = (30, 1000), (1000,)


@pytest.mark.parametrize("backend", [name for name in ("numpy", "numba", "torch", "jax") if is_installed(name)])
@pytest.mark.parametrize("dtype", ["float64", "complex64", "complex128"])
def test_division_by_zero_is_not_an_error(backend: str, dtype: str) -> None:
    """Neither of real nor of complex numbers, by an operator or a negative power."""
    x = np.array([1.0, -2.0, 3.0], dtype)
    y = np.array([0.0, 4.0, 0.5], dtype)
    for expression in ("x / y", "x * y**-1", "x / 2 / y * 2"):
        found = elementwise(expression, x=x, y=y, backend=backend)
        assert not np.isfinite(found[0])
        np.testing.assert_allclose(found[1:], [-0.5, 6.0], rtol=1e-6)
