"""Fractional diffusion against functions of dense matrices, chances that add up, walks that follow them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg

import hpfracc as hf
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.lattice import Lattice
from tests.helpers.thinned import thinned

LATTICES = [
    Lattice((7,)),
    Lattice((8,), periodic=True),
    Lattice((4, 5)),
    Lattice((4, 3), periodic=(True, False)),
    Lattice((2, 3, 4), periodic=True),
    Lattice((4, 5), periodic=True, neighbourhood="moore"),
    Lattice((2, 4), periodic=True, neighbourhood="moore"),
]
EACH = pytest.mark.parametrize("lattice", LATTICES, ids=lambda lattice: f"{lattice.shape}{lattice.periodic}")
ALPHAS = [0.5, 1.0, 1.7, 2.0]


def power(lattice: Lattice, alpha: float) -> np.ndarray:
    """``L ** (alpha/2)`` from the eigenvectors of the dense matrix."""
    matrix = lattice.to_csr().toarray()
    values, vectors = np.linalg.eigh(np.diag(matrix.sum(0)) - matrix)
    values[0] = 0.0  # exactly: a small power makes much of a rounding
    return (vectors * values ** (alpha / 2)) @ vectors.T


@EACH
@pytest.mark.parametrize("alpha", ALPHAS)
@thinned(lambda alpha: alpha in (0.5, 1.7))
def test_powers_and_heat_kernel_agree_with_the_matrix(lattice, alpha):
    """Holds for fields with leading axes; degrees are the diagonal; the heat kernel is the matrix exponential."""
    dense, fractional = power(lattice, alpha), lattice.fractional(alpha)
    field = np.random.default_rng(1).standard_normal((2, *lattice.shape))
    truth = field.reshape(2, -1) @ dense
    np.testing.assert_allclose(fractional.apply(field).reshape(2, -1), truth, atol=1e-12)
    np.testing.assert_allclose(fractional.degrees().reshape(-1), np.diag(dense), atol=1e-12)
    heat = linalg.expm(-0.7 * dense)
    np.testing.assert_allclose(fractional.heat_kernel(1, 0.7).reshape(-1), heat[1], atol=1e-12)
    assert fractional.return_probability(0.7) == pytest.approx(np.trace(heat) / lattice.size)


@EACH
@pytest.mark.parametrize("alpha", ALPHAS)
@thinned(lambda alpha: alpha in (0.5, 1.7))
def test_walks_follow_the_rows(lattice, alpha):
    """Rows are the transition probabilities of Riascos and Mateos; steps and returns are products with them."""
    dense, fractional = power(lattice, alpha), lattice.fractional(alpha)
    chances = np.eye(lattice.size) - dense / np.diag(dense)[:, None]
    row = fractional.transition_row(2).reshape(-1)
    np.testing.assert_allclose(row, chances[2], atol=1e-12)
    assert row.sum() == pytest.approx(1.0) and row.min() > -1e-12
    after = np.linalg.matrix_power(chances, 3)
    np.testing.assert_allclose(fractional.walk_distribution(2, 3).reshape(-1), after[2], atol=1e-12)
    np.testing.assert_allclose(fractional.step(row.reshape(lattice.shape)).reshape(-1), row @ chances, atol=1e-12)
    assert fractional.return_probabilities(2, 3)[3] == pytest.approx(after[2, 2])


def test_walks_can_be_repeated_and_jump_far():
    """The same seed gives the same walk, and a Lévy flight makes longer jumps than an ordinary walk."""
    lattice = Lattice((64, 64), periodic=True)
    walks = lattice.fractional(0.8).sample((0, 0), 300, rng=1)
    np.testing.assert_array_equal(walks, lattice.fractional(0.8).sample((0, 0), 300, rng=1))
    far = lattice.distance(walks[0, :-1], walks[0, 1:])
    assert far.max() > 8
    plain = lattice.fractional(2.0).sample((0, 0), 300, rng=1)[0]
    assert (lattice.distance(plain[:-1], plain[1:]) == 1).all()


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_differentiable_in_the_order_and_in_the_field(library):
    """Gradients agree with finite differences; the result is of the caller's library."""
    lattice = Lattice((4, 5), periodic=(True, False))
    field = np.random.default_rng(2).standard_normal((4, 5))
    row = lambda a: float((np.asarray(lattice.fractional(a).transition_row((1, 2))) * field).sum())  # noqa: E731
    apply = lambda a: float((lattice.fractional(a).apply(field) * field).sum())  # noqa: E731
    slopes = [(f(1.3 + 1e-5) - f(1.3 - 1e-5)) / 2e-5 for f in (apply, row)]
    if library == "torch":
        torch = pytest.importorskip("torch")
        alpha, values = torch.tensor(1.3, dtype=torch.float64, requires_grad=True), torch.as_tensor(field)
        values.requires_grad_(True)
        found = lattice.fractional(alpha).apply(values)
        assert isinstance(found, torch.Tensor)
        in_alpha, in_field = torch.autograd.grad((found * torch.as_tensor(field)).sum(), (alpha, values))
        in_row = torch.autograd.grad(
            (lattice.fractional(alpha).transition_row((1, 2)) * torch.as_tensor(field)).sum(), alpha
        )[0]
    else:
        jax = pytest.importorskip("jax")
        with jax.enable_x64(True):
            total = lambda a, x: (lattice.fractional(a).apply(x) * field).sum()  # noqa: E731
            in_alpha, in_field = jax.grad(total, (0, 1))(1.3, jax.numpy.asarray(field))
            in_row = jax.jit(jax.grad(lambda a: (lattice.fractional(a).transition_row((1, 2)) * field).sum()))(1.3)
    assert float(in_alpha) == pytest.approx(slopes[0], rel=1e-7)
    assert float(in_row) == pytest.approx(slopes[1], rel=1e-7)
    np.testing.assert_allclose(np.asarray(in_field), lattice.fractional(1.3).apply(field), atol=1e-12)


def test_goes_through_the_engine():
    """One spectral multiplication with a cached symbol; complex and single-precision fields keep their dtype."""
    fractional = Lattice((6, 6)).fractional(1.1)
    field = np.ones((6, 6), np.float32)
    assert fractional.apply(field).dtype == np.float32
    assert hf.last_decision().operation == "spectral_multiply"
    assert fractional.apply(field * 1j).dtype == np.complex64


def test_bad_orders_and_fields_are_refused():
    """Invalid orders, shapes and times, and lattices without a closed spectrum, raise errors."""
    lattice = Lattice((4, 4))
    for alpha in (0.0, -1.0, float("nan"), "x"):
        with pytest.raises(InvalidInputError):
            lattice.fractional(alpha)
    with pytest.raises(ShapeError):
        lattice.fractional(1.0).apply(np.ones(4))
    with pytest.raises(InvalidInputError):
        lattice.fractional(1.0).diffuse(np.ones((4, 4)), -1.0)
    with pytest.raises(InvalidInputError, match="at most 2"):
        lattice.fractional(2.5).transition_row(0)
    with pytest.raises(InvalidInputError, match="no closed spectrum"):
        Lattice((4, 4), neighbourhood="moore").fractional(1.0)
    with pytest.raises(InvalidInputError, match="nowhere"):
        Lattice((1,)).fractional(1.0).transition_row(0)
