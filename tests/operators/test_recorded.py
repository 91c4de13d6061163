"""Differences with a derivative of their own are those that slices would give, twice over."""

from __future__ import annotations

import pytest

from hpfracc.operators._recorded import differences, recorded_differences

torch = pytest.importorskip("torch")


def _plain(x):
    row = torch.cat([x[..., :1] - x[..., :1], x[..., 1:] - x[..., :-1]], -1)
    return row, row[..., 1:2]


@pytest.mark.parametrize("shape", [(1,), (2,), (7,), (3, 5)])
def test_values_and_slopes_are_those_of_slices(shape: tuple[int, ...]) -> None:
    """The row, the second point, and the gradient through both."""
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    found, expected = recorded_differences(x), _plain(x)
    slopes = [torch.randn_like(part) for part in expected]
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0)
    one, two = (torch.autograd.grad(parts, x, slopes)[0] for parts in (found, expected))
    torch.testing.assert_close(one, two, rtol=0, atol=1e-15)
    torch.testing.assert_close(differences(x.detach()), expected[0].detach(), rtol=0, atol=0)


def test_second_derivatives_go_through() -> None:
    """Of something that is not linear in the differences."""
    x = torch.randn(6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda v: sum((part**3).sum() for part in recorded_differences(v)), (x,))


def test_a_bad_sample_is_seen_in_its_own_differences_alone() -> None:
    """Also as the first one, whose difference from itself would otherwise be 0."""
    x = torch.tensor([torch.nan, 1.0, 2.0], dtype=torch.float64)
    assert torch.isnan(differences(x)).tolist() == [True, True, False]
