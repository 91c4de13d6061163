"""The rule for cuFFT's work area against what cuFFT 12 said on an H200."""

from __future__ import annotations

import pytest

from hpfracc.engine.backends.cuda import work_bytes
from hpfracc.engine.primitives.base import Transform


@pytest.mark.parametrize(
    ("dtype", "inverse", "lengths", "rows", "mib"),
    [
        ("complex128", False, (1999,), 4000, 0.0),
        ("complex64", False, (4096,), 3000, 0.0),
        ("complex64", False, (30_000,), 300, 68.7),
        ("complex128", False, (1_041_666,), 3, 192.0),
        ("float64", False, (1_041_666,), 3, 119.8),
        ("float32", False, (1_048_576,), 8, 32.0),
        ("float32", False, (2048,), 6250, 0.0),
        ("float64", False, (1800,), 8750, 120.2),
        ("float32", True, (1009,), 8000, 61.6),
        ("float64", False, (2500, 2500), 1, 47.7),
        ("float64", True, (64, 64, 64), 90, 0.0),
        ("float64", True, (0,), 90, 0.0),
    ],
)
def test_the_rule(dtype: str, inverse: bool, lengths: tuple[int, ...], rows: int, mib: float) -> None:
    """What most lengths take."""
    assert work_bytes(Transform(lengths, rows, dtype, inverse)) / 2**20 == pytest.approx(mib, rel=0.01)
