"""Lattices on a card: what lies there stays there, with the answers of the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpfracc._arrays import device_of
from hpfracc.lattice import Lattice, UnifiedCatalyticLattice
from hpfracc.lattice._costs import to_host

pytestmark = pytest.mark.gpu


def on_card(library: str, array: np.ndarray) -> Any:
    module = pytest.importorskip(library)
    if library == "torch":
        if not module.cuda.is_available():
            pytest.skip("PyTorch sees no CUDA device")
        return module.as_tensor(array, device="cuda")
    return module.asarray(array)


@pytest.mark.parametrize("library", ["torch", "cupy"])
@pytest.mark.parametrize(("neighbourhood", "periodic"), [("von_neumann", False), ("moore", True)])
def test_maps_of_weights_on_the_card(library: str, neighbourhood: str, periodic: bool):
    """The map of the host, on the card."""
    generator = np.random.default_rng(0)
    weights, closed = generator.uniform(0.1, 5, (150, 170)), generator.random((150, 170)) < 0.3
    closed[0] = False
    truth = Lattice((150, 170), periodic, weights, closed, neighbourhood).distance_map((0, 0), backend="numpy")
    found = Lattice((150, 170), periodic, on_card(library, weights), closed, neighbourhood).distance_map((0, 0))
    assert device_of(found).startswith("cuda")
    np.testing.assert_allclose(to_host(found), truth, rtol=1e-12)


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_data_and_fields_on_the_card(library: str):
    """Exclusive or with a key made there, and the fractional Laplacian of both kinds of axes."""
    data = np.arange(12, dtype=np.int16).reshape(3, 4)
    lattice = UnifiedCatalyticLattice(2, 8)
    hidden, key = lattice.xor_transform(on_card(library, data), return_key=True)
    assert device_of(hidden).startswith("cuda") and device_of(key).startswith("cuda")
    np.testing.assert_array_equal(to_host(lattice.xor_transform(hidden, key)), data)
    fractional = Lattice((16, 18), periodic=(True, False)).fractional(1.3)
    field = np.random.default_rng(1).standard_normal((16, 18))
    found = fractional.apply(on_card(library, field))
    assert device_of(found).startswith("cuda")
    np.testing.assert_allclose(to_host(found), fractional.apply(field), atol=1e-12)
