"""Differences with a derivative of their own are those that slices would give, twice over."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from hpfracc.engine.backends.torch.kernels.causal_convolution import differences  # noqa: E402


def _plain(x):
    return torch.cat([x[..., :1] - x[..., :1], x[..., 1:] - x[..., :-1]], -1)


@pytest.mark.parametrize("shape", [(0,), (1,), (2,), (7,), (3, 5)])
def test_values_and_slopes_are_those_of_slices(shape: tuple[int, ...]) -> None:
    """Recorded and not."""
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    found, expected = differences(x), _plain(x)
    slope = torch.randn_like(expected)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    one, two = (torch.autograd.grad(row, x, slope)[0] for row in (found, expected))
    torch.testing.assert_close(one, two, rtol=0, atol=1e-15)
    torch.testing.assert_close(differences(x.detach()), expected.detach(), rtol=0, atol=0)


def test_second_derivatives_go_through() -> None:
    """Of something that is not linear in the differences."""
    x = torch.randn(6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda v: (differences(v) ** 3).sum(), (x,))


def test_a_bad_sample_is_seen_in_its_own_differences_alone() -> None:
    """Also as the first one, whose difference from itself would otherwise be 0."""
    x = torch.tensor([torch.nan, 1.0, 2.0], dtype=torch.float64)
    assert torch.isnan(differences(x)).tolist() == [True, True, False]
