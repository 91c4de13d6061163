"""The other kernels in PyTorch: derivatives, and where PyTorch is not NumPy."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from hpfracc.engine.backends import registry  # noqa: E402
from hpfracc.engine.backends.torch.adapter import ADAPTER  # noqa: E402


def kernel(primitive: str) -> object:
    return registry.load_kernels(primitive, "torch")["default"].run


def test_formula_of_nan_is_numpys():
    """sign, minimum and maximum hand nan on."""
    x = np.array([np.nan, -2.0, 0.0, 3.0])
    for expression in ("sign(x)", "minimum(x, 1)", "maximum(0.5, x)"):
        result = kernel("elementwise")(torch.from_numpy(x), expression=expression, names=("x",))
        expected = {"sign(x)": np.sign(x), "minimum(x, 1)": np.minimum(x, 1), "maximum(0.5, x)": np.maximum(0.5, x)}
        np.testing.assert_array_equal(result.numpy(), expected[expression])


def test_single_precision_stays_single():
    """A number in a formula does not widen the array beside it."""
    x = torch.ones(3, dtype=torch.float32)
    for expression in ("x + 0.1", "maximum(x, 0.5)", "where(x > 0, x, 2)", "power(2, x)", "x // 0.3", "0.7 % x"):
        assert kernel("elementwise")(x, expression=expression, names=("x",)).dtype == torch.float32, expression


@pytest.mark.parametrize("dtype", sorted(ADAPTER.declaration.specs["bitwise_xor"][0].dtypes - {"bool"}))
def test_xor_keeps_every_bit(dtype: str):
    """The highest bit of unsigned numbers, which PyTorch takes for a sign underneath, comes through."""
    limits = np.iinfo(dtype)
    a, b = (
        np.array([limits.min, limits.max, 1, limits.max], dtype),
        np.array([limits.max, 0, limits.max, limits.max], dtype),
    )
    result = ADAPTER.to_host(kernel("bitwise_xor")(ADAPTER.from_host(a, "cpu"), ADAPTER.from_host(b, "cpu")))
    assert result.dtype == a.dtype
    np.testing.assert_array_equal(result, a ^ b)
