"""The other kernels in JAX: derivatives, and what a compiled program may not depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed")

import jax.numpy as jnp  # noqa: E402

from hpfracc.engine.backends import registry  # noqa: E402


@pytest.fixture(autouse=True)
def _double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def kernel(primitive: str) -> Callable[..., Any]:
    (only,) = registry.load_kernels(primitive, "jax").values()
    return only.run


def test_norm_of_zero_has_a_gradient():
    """The 2-norm's derivative at 0, where it has none, is 0 rather than nan."""
    gradient = jax.grad(lambda x: kernel("reduction")(x, kind="norm"))(jnp.zeros(3))
    np.testing.assert_array_equal(gradient, np.zeros(3))
