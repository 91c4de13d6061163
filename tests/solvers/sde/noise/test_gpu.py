"""Paths on a GPU are those of the host."""

from __future__ import annotations

import numpy as np
import pytest

import hpfracc as hf

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("n", [1, 7, 1024, 1500, 9001])
@pytest.mark.parametrize("draw", [hf.fbm, hf.fgn])
def test_single_precision(n: int, draw: object) -> None:
    """By fused kernels, against double precision on the host, from the same seed."""
    index = torch.tensor(0.3, dtype=torch.float32, device="cuda")
    found = draw(n, index, size=50, rng=1, first_path=3, dtype="float32")  # type: ignore[operator]
    host = draw(n, 0.3, size=50, rng=1, first_path=3)  # type: ignore[operator]
    assert found.is_cuda and found.dtype == torch.float32
    np.testing.assert_allclose(found.cpu().numpy(), host, atol=2e-5 * max(1.0, np.abs(host).max()))


def test_a_generator_on_the_gpu() -> None:
    """Many paths in several chunks: variance t^(2H), and the first value is 0."""
    generator = torch.Generator("cuda").manual_seed(1)
    paths = hf.fbm(256, 0.3, size=400_000, rng=generator, dtype="float32")
    assert float(paths[:, 0].abs().max()) == 0.0
    variance = paths.double().var(0).cpu().numpy()
    np.testing.assert_allclose(variance[1:], (np.arange(1, 257) / 256) ** 0.6, rtol=0.015)


def test_double_precision() -> None:
    """To rounding."""
    index = torch.tensor(0.3, dtype=torch.float64, device="cuda")
    found = hf.fbm(500, index, size=20, rng=2)
    np.testing.assert_allclose(found.cpu().numpy(), hf.fbm(500, 0.3, size=20, rng=2), atol=1e-12)
