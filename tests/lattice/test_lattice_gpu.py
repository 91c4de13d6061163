"""Lattices on a GPU: what lies there stays there, with the answers of the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpfracc._arrays import device_of, to_host
from hpfracc.lattice import Lattice, UnifiedCatalyticLattice

pytestmark = pytest.mark.gpu


def on_gpu(library: str, array: np.ndarray) -> Any:
    module = pytest.importorskip(library)
    if library == "torch":
        if not module.cuda.is_available():
            pytest.skip("PyTorch sees no CUDA device")
        return module.as_tensor(array, device="cuda")
    return module.asarray(array)


@pytest.mark.parametrize("library", ["torch", "cupy"])
@pytest.mark.parametrize(("neighbourhood", "periodic"), [("von_neumann", False), ("moore", True)])
def test_maps_of_weights_on_the_gpu(library: str, neighbourhood: str, periodic: bool):
    """Maps on the GPU equal those on the host."""
    generator = np.random.default_rng(0)
    weights, closed = generator.uniform(0.1, 5, (150, 170)), generator.random((150, 170)) < 0.3
    closed[0] = False
    truth = Lattice((150, 170), periodic, weights, closed, neighbourhood).distance_map((0, 0), backend="numpy")
    found = Lattice((150, 170), periodic, on_gpu(library, weights), closed, neighbourhood).distance_map((0, 0))
    assert device_of(found).startswith("cuda")
    np.testing.assert_allclose(to_host(found), truth, rtol=1e-12)


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_data_and_fields_on_the_gpu(library: str):
    """xor with a generated key, and the fractional Laplacian with bounded and periodic axes, stay on the GPU."""
    data = np.arange(12, dtype=np.int16).reshape(3, 4)
    lattice = UnifiedCatalyticLattice(2, 8)
    hidden, key = lattice.xor_transform(on_gpu(library, data), return_key=True)
    assert device_of(hidden).startswith("cuda") and device_of(key).startswith("cuda")
    np.testing.assert_array_equal(to_host(lattice.xor_transform(hidden, key)), data)
    fractional = Lattice((16, 18), periodic=(True, False)).fractional(1.3)
    field = np.random.default_rng(1).standard_normal((16, 18))
    found = fractional.apply(on_gpu(library, field))
    assert device_of(found).startswith("cuda")
    np.testing.assert_allclose(to_host(found), fractional.apply(field), atol=1e-12)
