"""Rows from their values at even and at odd places, as one step of autograd."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")


def parts_of(n: int, evens: int = 2, rows: int = 4) -> Any:
    generator = torch.Generator().manual_seed(n)
    return torch.randn((evens + rows, (n + 1) // 2), dtype=torch.float64, generator=generator).requires_grad_()


@pytest.mark.parametrize("n", [2, 9, 12])
@pytest.mark.parametrize("evens", [1, 2, 4])
def test_each_value_is_at_its_place(n: int, evens: int):
    """Rows without values at even places are 0 there; the first row comes alone."""
    from hpfracc.engine.backends.torch.tracking import interleaved

    parts = parts_of(n, evens)
    first, others = (rows.detach() for rows in interleaved(parts, evens, n))
    parts = parts.detach()
    assert first.shape == (n,) and others.shape == (3, n) and others.is_contiguous()
    for i, row in enumerate([first, *others]):
        for k in range(n):
            even = float(parts[i, k // 2]) if i < evens else 0.0
            assert float(row[k]) == (float(parts[evens + i, k // 2]) if k % 2 else even)


@pytest.mark.parametrize("n", [7, 10])
def test_derivatives(n: int):
    """Gradients, second derivatives, slopes by the dozen, and the transforms of ``torch.func``."""
    from hpfracc.engine.backends.torch.tracking import interleaved

    parts = parts_of(n)

    def product(parts: Any) -> Any:
        first, others = interleaved(parts, 2, n)
        return first * others

    assert torch.autograd.gradcheck(product, [parts], check_batched_grad=True)
    assert torch.autograd.gradgradcheck(product, [parts])
    plain = parts.detach()
    found = torch.func.grad(lambda parts: product(parts).sum())(plain)
    torch.testing.assert_close(found, torch.autograd.grad(product(parts).sum(), parts)[0])
    mapped = torch.func.vmap(product)(torch.stack([plain, 2.0 * plain]))
    torch.testing.assert_close(mapped[1], 4.0 * product(plain))


def test_one_of_the_rows_is_enough():
    """What depends on the first row alone has a gradient."""
    from hpfracc.engine.backends.torch.tracking import interleaved

    parts = parts_of(9)
    (found,) = torch.autograd.grad(interleaved(parts, 2, 9)[0].sum(), parts)
    right = torch.zeros_like(parts)
    right[0], right[2, :4] = 1.0, 1.0
    torch.testing.assert_close(found, right)
