"""PyTorch and JAX: the same numbers, and derivatives in the initial state, a coefficient and the order."""

from __future__ import annotations

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.pde import (
    Advection,
    CorrectedQuadrature,
    Diffusion,
    DiffusionL1,
    DiffusionL2Sigma,
    Disc,
    ExactModes,
    FractionalDiffusion,
    OneSided,
)
from tests.helpers.thinned import thinned

X = np.linspace(0.0, np.pi, 9)
# The grading is given: it would otherwise follow the order, and so would differences.
METHODS = [
    ExactModes(),
    DiffusionL1(grading=2.0, memory="direct"),
    DiffusionL2Sigma(grading=3.0, memory="exponentials"),
    DiffusionL2Sigma(grading=3.0, reaction="imex"),
    CorrectedQuadrature(2),
]


def last(u0, k, alpha, method):
    reaction = (lambda t, u: -(u**3)) if getattr(method, "reaction", "") == "imex" else None
    given = {"x": X, "space": Diffusion(k), "boundary": "dirichlet", "alpha": alpha, "method": method}
    return hf.solve_fpde(reaction, (0.0, 1.0), u0, step=1.0 / 8, **given).u[-1]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@thinned(one_in=2)
def test_torch(method):
    """Values as NumPy's, derivatives as gradcheck has them."""
    torch = pytest.importorskip("torch")
    numbers = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (np.sin(X), 1.3, 0.6)]
    value = last(*numbers, method)
    assert np.allclose(value.detach().numpy(), last(np.sin(X), 1.3, 0.6, method), rtol=0, atol=1e-11)
    inner = torch.tensor(np.sin(X)[1:-1], dtype=torch.float64, requires_grad=True)
    edge = torch.zeros(1, dtype=torch.float64)

    def function(inside, k, alpha):
        return last(torch.cat([edge, inside, edge]), k, alpha, method)[1:-1]

    assert torch.autograd.gradcheck(function, (inner, *numbers[1:]), atol=1e-6, rtol=1e-4, nondet_tol=1e-9)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@thinned(one_in=2)
def test_torch_with_plain_numbers(method):
    """Order and coefficients as Python numbers, a periodic plane, several derivatives: NumPy's values."""
    torch = pytest.importorskip("torch")
    x = np.linspace(0.0, 2.0 * np.pi, 8, endpoint=False)
    u0 = np.exp(np.sin(x))[:, None] * np.cos(x)
    given = {"x": (x, x), "space": Diffusion(0.7), "boundary": "periodic", "alpha": 0.6, "step": 0.1, "method": method}
    reaction = (lambda t, u: -u) if getattr(method, "reaction", "") == "imex" else None
    if isinstance(method, DiffusionL1 | CorrectedQuadrature):
        given["terms"] = [(0.5, 0.3)]
    plain = hf.solve_fpde(reaction, (0.0, 1.0), u0, **given)
    found = hf.solve_fpde(reaction, (0.0, 1.0), torch.as_tensor(u0), **given)
    assert np.allclose(found.u.numpy(), plain.u, rtol=0, atol=1e-10)
    assert np.allclose(found.mass.numpy(), plain.mass, rtol=0, atol=1e-10)
    single = hf.solve_fpde(reaction, (0.0, 1.0), torch.as_tensor(u0, dtype=torch.float32), **given)
    assert single.u.dtype == torch.float32


SPACES = {
    "one-sided, order": lambda value: OneSided(value),
    "one-sided, coefficient": lambda value: OneSided(1.4, "right", value) + Advection(0.3 * value),
    "riesz, order": lambda value: FractionalDiffusion(value, "riesz"),
    "integral, order": lambda value: FractionalDiffusion(value, "integral"),
}


@pytest.mark.filterwarnings("ignore::hpfracc.errors.AccuracyWarning")
@pytest.mark.parametrize("name", SPACES)
@thinned(one_in=2)
def test_terms_whose_systems_are_solved_by_iterations(name):
    """Derivatives in the order in space, a coefficient, alpha and the state, through conjugate gradients and GMRES."""
    torch = pytest.importorskip("torch")
    boundary = "exterior" if name.startswith("integral") else "dirichlet"
    given = {"x": X, "boundary": boundary, "method": DiffusionL1(grading=2.0), "step": 0.5}
    sine = np.sin(X)
    sine[-1] = 0.0

    def function(value, alpha, size):
        u0 = size * torch.tensor(sine)
        return hf.solve_fpde(None, (0.0, 1.0), u0, space=SPACES[name](value), alpha=alpha, **given).u[-1, 3]

    start = [torch.tensor(one, dtype=torch.float64, requires_grad=True) for one in (1.5, 0.6, 1.0)]
    assert torch.autograd.gradcheck(function, start, atol=1e-6, rtol=1e-4, nondet_tol=1e-9)
    if name != "integral, order":  # which takes polynomials for plain orders
        plain = hf.solve_fpde(None, (0.0, 1.0), sine, space=SPACES[name](1.5), alpha=0.6, **given).u[-1, 3]
        assert float(function(*start).detach()) == pytest.approx(plain, abs=1e-9)


def test_orders_that_carry_no_derivative_say_which_do():
    """A disc, and an integral Laplacian in several dimensions."""
    torch = pytest.importorskip("torch")
    order = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    term = FractionalDiffusion(order, "integral")
    for x, shape in ((Disc(1.0, 5, 8), (6, 8)), ((X, X), (9, 9))):
        u0 = torch.zeros(shape, dtype=torch.float64)
        with pytest.raises(hf.errors.InvalidInputError, match=r"'spectral'.*whose orders can"):
            hf.solve_fpde(None, (0.0, 1.0), u0, x=x, space=term, boundary="exterior", step=0.5)


def test_an_inverse_problem_in_torch():
    """A diffusion coefficient is found again from the last frame."""
    torch = pytest.importorskip("torch")
    method = DiffusionL2Sigma(grading=3.0)
    u0 = torch.tensor(np.sin(X))
    data = last(u0, torch.tensor(0.7, dtype=torch.float64), 0.6, method)
    k = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    for _ in range(12):  # Newton's method for the middle value
        gap = last(u0, k, 0.6, method)[4] - data[4]
        (slope,) = torch.autograd.grad(gap, k)
        k = (k - gap / slope).detach().clamp(0.05, 5.0).requires_grad_()
    assert float(k.detach()) == pytest.approx(0.7, abs=1e-9)


@pytest.mark.slow
def test_jax():
    """Values as NumPy's, and the gradient in coefficient and order against differences."""
    jax = pytest.importorskip("jax")
    method = CorrectedQuadrature(2)
    with jax.enable_x64(True):
        u0 = jax.numpy.asarray(np.sin(X))

        def middle(k, alpha):
            return last(u0, k, alpha, method)[4]

        found = jax.grad(middle, (0, 1))(jax.numpy.asarray(1.3), jax.numpy.asarray(0.6))
        assert float(middle(1.3, 0.6)) == pytest.approx(last(np.sin(X), 1.3, 0.6, method)[4], abs=1e-11)
    plain = lambda k, alpha: last(np.sin(X), k, alpha, method)[4]  # noqa: E731 - of the same name as the traced one
    step = 1e-5
    assert float(found[0]) == pytest.approx((plain(1.3 + step, 0.6) - plain(1.3 - step, 0.6)) / (2 * step), rel=1e-6)
    assert float(found[1]) == pytest.approx((plain(1.3, 0.6 + step) - plain(1.3, 0.6 - step)) / (2 * step), rel=1e-6)


@pytest.mark.slow
def test_jax_through_one_sided_terms():
    """The gradient in the order, by a factorisation; what iterations would be needed for is refused."""
    jax = pytest.importorskip("jax")
    given = {"x": X, "boundary": "dirichlet", "step": 1.0 / 3, "alpha": 0.6, "method": DiffusionL1(grading=2.0)}

    def middle(order, u0):
        return hf.solve_fpde(None, (0.0, 1.0), u0, space=OneSided(order, "left", 0.4), **given).u[-1][4]

    with jax.enable_x64(True):
        u0 = jax.numpy.asarray(np.sin(X))
        found = float(jax.grad(middle)(jax.numpy.asarray(1.5), u0))
        with pytest.raises(hf.errors.InvalidInputError, match="tensors of PyTorch"):
            jax.grad(
                lambda v: hf.solve_fpde(
                    None, (0.0, 1.0), u0, space=Diffusion(lambda x: 1.0 + v * x) + Advection(v), **given
                ).u[-1][4]
            )(0.5)
    step = 1e-5
    slope = (middle(1.5 + step, np.sin(X)) - middle(1.5 - step, np.sin(X))) / (2.0 * step)
    assert found == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("source", [None, 1.0])
def test_blocks_of_steps_of_tensors(periodic: bool, source):
    """Two blocks of direct steps in place, and a third that is not full: NumPy's values."""
    torch = pytest.importorskip("torch")
    x = X[:-1] if periodic else X
    u0 = np.exp(np.sin(2.0 * x)) if periodic else np.sin(x) ** 3
    given = {"x": x, "space": Diffusion(0.7), "boundary": "periodic" if periodic else "dirichlet", "alpha": 0.6}
    given |= {"step": 1.0 / 70, "source": source, "estimate": False}
    for method in (DiffusionL1(memory="direct"), DiffusionL2Sigma(memory="direct")):
        plain = hf.solve_fpde(None, (0.0, 1.0), u0, method=method, compile=False, **given)
        found = hf.solve_fpde(None, (0.0, 1.0), torch.as_tensor(u0), method=method, **given)
        assert np.allclose(found.u.numpy(), plain.u, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["torch", "jax"])
def test_compiled_steps_of_etdrk4(library: str):
    """Two components in a plane: NumPy's values, and as many reactions."""
    module = pytest.importorskip(library)
    x = np.linspace(0.0, 2.0 * np.pi, 16, endpoint=False)
    u0 = np.stack([np.exp(np.sin(x))[:, None] * np.cos(x), np.cos(x)[:, None] + 0.0 * x])
    given = {"x": (x, x), "space": Diffusion(0.1), "boundary": "periodic", "method": "etdrk4", "step": 0.1}
    plain = hf.solve_fpde(lambda t, u: u - u * u * u, (0.0, 0.4), u0, estimate=False, **given)

    def solved(start):
        return hf.solve_fpde(lambda t, u: u - u * u * u, (0.0, 0.4), start, compile=True, **given)

    if library == "torch":
        found = solved(module.as_tensor(u0))
    else:
        with module.enable_x64(True):
            found = solved(module.numpy.asarray(u0))
    assert np.allclose(np.asarray(found.u), plain.u, rtol=0, atol=1e-13)
    assert found.stats["compiled"] and found.stats["reactions"] == plain.stats["reactions"]


def test_methods_that_do_not_compile_tensors_say_so():
    """compile=True is refused where nothing would be compiled."""
    torch = pytest.importorskip("torch")
    with pytest.raises(hf.errors.InvalidInputError, match="etdrk4"):
        hf.solve_fpde(
            None, (0.0, 1.0), torch.as_tensor(np.sin(X)), x=X, space=Diffusion(1.0), boundary="dirichlet", compile=True
        )
