"""Intermediate results of a formula: as many bytes as are alive at once, whatever is repeated."""

from __future__ import annotations

import pytest

from hpfracc.engine.primitives.elementwise import live_bytes

LONG, ROW = (30, 1000), (1000,)


@pytest.mark.parametrize(
    ("expression", "shapes", "dtype", "expected"),
    [
        ("x*y + sin(x)", (LONG, LONG), "float64", 3 * 240_000),
        ("sin(cos(exp(x*y)))", (LONG, LONG), "float64", 2 * 240_000),
        # What is made of the row alone is as short as the row, until it meets the long operand.
        ("x/(1 + y*y)", (LONG, ROW), "float64", 240_000 + 8_000),
        # Truth values take a byte, absolute values of complex numbers half of those.
        ("where(x > y, x, y)", (LONG, LONG), "float64", 30_000 + 240_000),
        ("abs(x)*y", (LONG, LONG), "complex64", 120_000 + 240_000),
        ("x", (LONG,), "float64", 0),
    ],
)
def test_counts_bytes_alive_at_once(
    expression: str, shapes: tuple[tuple[int, ...], ...], dtype: str, expected: int
) -> None:
    """Against sums by hand."""
    assert live_bytes(expression, ("x", "y")[: len(shapes)], shapes, dtype) == expected
