"""Parameters that are arrays with one element, as layers have them, and batches without rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import hpfracc as hf
from hpfracc.errors import InvalidInputError

T = np.linspace(0.0, 1.0, 33)
ROWS = torch.tensor(np.stack([T, T**2]))


@pytest.mark.parametrize("kind", [hf.TemperedCaputo, hf.TemperedIntegral, hf.TemperedRiemannLiouville])
def test_a_rate_of_one_element(kind: Any):
    """A parameter of shape (1,) is the number, with its gradient and its check."""
    rate = torch.nn.Parameter(torch.tensor([1.5], dtype=torch.float64))
    found = kind(0.5, rate)(ROWS, T)
    torch.testing.assert_close(found, kind(0.5, 1.5)(ROWS, T), rtol=1e-12, atol=1e-14)
    (slope,) = torch.autograd.grad(found.sum(), rate)
    assert slope.shape == (1,) and slope.abs() > 0
    with pytest.raises(InvalidInputError, match="rate=-1.0: give a finite number at least 0"):
        kind(0.5, torch.tensor([-1.0]))(ROWS, T)
    with pytest.raises(InvalidInputError, match=r"rate has dtype torch.complex64; use a real number"):
        kind(0.5, torch.tensor(1 + 1j))(ROWS, T)


@pytest.mark.parametrize("kind", [hf.CaputoFabrizio, hf.AtanganaBaleanu])
def test_a_normalisation_of_one_element_or_one_for_each_row(kind: Any):
    """Tensors multiply the result; every number in them has to be positive."""
    plain = kind(0.5)(ROWS, T)
    one = kind(0.5, normalisation=torch.nn.Parameter(torch.tensor([1.5], dtype=torch.float64)))(ROWS, T)
    each = kind(0.5, normalisation=torch.tensor([[1.0], [2.0]], dtype=torch.float64))(ROWS, T)
    torch.testing.assert_close(one, 1.5 * plain)
    torch.testing.assert_close(each, plain * torch.tensor([[1.0], [2.0]]))
    with pytest.raises(InvalidInputError, match="normalisation=-2.0: give a finite number above 0"):
        kind(0.5, normalisation=torch.tensor([[1.0], [-2.0]]))(ROWS, T)


@pytest.mark.parametrize("operator", [hf.Caputo(0.5), hf.GrunwaldLetnikov(0.5), hf.TemperedCaputo(0.5, 1.0)])
@pytest.mark.parametrize("make", [np.zeros, torch.zeros])
def test_no_rows(operator: Any, make: Any):
    """A batch without rows has a result without rows, and no note."""
    result = operator(make((0, 33)), T, full_output=True)
    assert tuple(result.value.shape) == (0, 33) and result.message == ""
