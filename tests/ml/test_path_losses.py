"""Losses on samples of paths: closed forms, orders of convergence, gradients, and what is refused."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import special

import hpfracc as hf
from hpfracc.errors import InvalidInputError, ShapeError, UnsupportedDtypeError

torch = pytest.importorskip("torch")
from hpfracc.ml.path_losses import energy_score, signature_kernel, signature_mmd  # noqa: E402


def test_energy_score_of_a_normal_law():
    """Within 4 standard errors of the closed form in one dimension, the continuous ranked probability score."""
    generator = torch.Generator().manual_seed(1)
    samples = torch.randn(50, 400, 1, generator=generator, dtype=torch.float64)
    for z in (0.0, 1.5):
        scores = energy_score(samples, torch.full((400, 1), z, dtype=torch.float64))
        exact = z * math.erf(z / math.sqrt(2)) + math.sqrt(2 / math.pi) * math.exp(-z * z / 2) - 1 / math.sqrt(math.pi)
        assert abs(scores.mean().item() - exact) < 4 * scores.std().item() / 20


def test_energy_score_is_the_double_sum():
    """For any power, and vectors of one and of two axes; its derivative is finite where samples coincide."""
    x = torch.randn(4, 3, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    y = torch.zeros(3, 2, dtype=torch.float64)
    pairs = [(i, j) for i in range(4) for j in range(4) if i != j]
    for event, norm in ((1, lambda v: v.norm(dim=-1)), (2, lambda v: v.norm())):
        near = sum(norm(each - y) ** 1.3 for each in x) / 4
        far = sum(norm(x[i] - x[j]) ** 1.3 for i, j in pairs) / 24
        torch.testing.assert_close(energy_score(x, y, beta=1.3, event=event), near - far, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(lambda x, y: energy_score(x, y), (x.requires_grad_(), y.requires_grad_()))
    same = torch.zeros(3, 2, requires_grad=True)
    energy_score(same, torch.zeros(2)).backward()
    assert same.grad is not None and not same.grad.any()


def test_signature_kernel_of_straight_lines():
    """I0(2 sqrt(<a, b>)) or, with opposite directions, J0: to second order in the step, at any speed along the line."""
    t = torch.linspace(0.0, 1.0, 5, dtype=torch.float64)[:, None]
    slopes = torch.tensor([[1.0, 0.5], [-0.8, 0.3]], dtype=torch.float64)
    x = torch.stack([t * slopes[0], t**2 * slopes[1]])
    y = torch.stack([t[::2] * slopes[0], t[::2] * slopes[1]])
    products = (slopes @ slopes.T).numpy()
    exact = np.where(products > 0, special.i0(2 * np.sqrt(np.abs(products))), special.j0(2 * np.sqrt(np.abs(products))))
    errors = [np.abs(signature_kernel(x, y, refinement=level).numpy() - exact).max() for level in (2, 3, 4)]
    assert errors[2] < 2e-4
    assert all(3.5 < one / two < 4.5 for one, two in itertools.pairwise(errors))


def test_signature_kernel_is_that_of_signatures():
    """The first levels of the signature of two segments, whose inner products the kernel sums."""
    x = 0.1 * torch.tensor([[[0.0, 0.0], [1.0, 0.5], [0.5, 2.0]]], dtype=torch.float64)
    y = 0.1 * torch.tensor([[[0.0, 0.0], [-0.5, 1.0], [1.0, 1.0], [2.0, -1.0]]], dtype=torch.float64)

    def levels(path):
        one, two = torch.zeros(2, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.float64)
        for step in path.diff(dim=0):
            two = two + torch.outer(one, step) + torch.outer(step, step) / 2
            one = one + step
        return one, two

    (a, aa), (b, bb) = levels(x[0]), levels(y[0])
    exact = 1.0 + (a @ b).item() + (aa * bb).sum().item()
    assert signature_kernel(x, y, refinement=5).item() == pytest.approx(exact, abs=2e-5)


def test_derivatives():
    """Of the kernel and of the discrepancy in both sets of paths, with and without a Gaussian lift."""
    generator = torch.Generator().manual_seed(3)
    x, y = (torch.randn(2, n, 2, generator=generator, dtype=torch.float64, requires_grad=True) for n in (3, 4))
    assert torch.autograd.gradcheck(lambda x, y: signature_kernel(x, y, width=1.5), (x, y))
    assert torch.autograd.gradcheck(lambda x, y: signature_mmd(x, y, refinement=0), (x, y))


def test_discrepancy_of_laws():
    """No bias where two laws are equal, within 4 standard errors of 20 repetitions; far above 0 with a trend."""

    def paths(seed: int, trend: float) -> torch.Tensor:
        time = torch.linspace(0.0, 1.0, 6, dtype=torch.float64).expand(12, -1)
        return torch.stack([time, torch.tensor(hf.fbm(5, 0.7, size=12, rng=seed)) + trend * time], -1)

    for trend in (0.0, 1.5):
        pairs = [(paths(seed, 0.0), paths(100 + seed, trend)) for seed in range(20)]
        found = np.array([signature_mmd(*pair, width=1.0, refinement=0).item() for pair in pairs])
        ratio = found.mean() / (found.std() / np.sqrt(20))
        assert ratio > 8 if trend else abs(ratio) < 4


def test_what_is_refused():
    """Powers, shapes, and too few samples."""
    x = torch.zeros(3, 4, 2)
    for options, kind in (({"beta": 2.0}, InvalidInputError), ({"event": 3}, InvalidInputError)):
        with pytest.raises(kind, match="give a"):
            energy_score(x, x[0], **options)
    with pytest.raises(ShapeError, match="two or more"):
        energy_score(x[:1], x[0])
    with pytest.raises(ShapeError, match="observation"):
        energy_score(x, x[0, 0])
    with pytest.raises(ShapeError, match="two points"):
        signature_kernel(x, x[..., :1])
    with pytest.raises(InvalidInputError, match="refinement"):
        signature_kernel(x, x, refinement=-1)
    with pytest.raises(InvalidInputError, match="width"):
        signature_kernel(x, x, width=0.0)
    with pytest.raises(ShapeError, match="two or more"):
        signature_mmd(x[:1], x)


def test_complex_paths_are_refused():
    """A square that is no norm would give a complex loss."""
    paths = np.array([[[1j], [2.0]], [[0.0], [1.0]]])
    for call in (lambda: energy_score(paths, paths[0]), lambda: signature_mmd(paths, paths.real)):
        with pytest.raises(UnsupportedDtypeError, match="is complex"):
            call()
