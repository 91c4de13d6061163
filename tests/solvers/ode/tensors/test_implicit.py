"""Implicit and explicit steps on tensors and JAX arrays: NumPy's answers, stiff ensembles, derivatives; and t_eval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.solvers.ode import all_methods
from hpfracc.solvers.ode.fixed.solve import StepMethod
from hpfracc.special import mittag_leffler
from tests.helpers.thinned import thinned

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
jnp = jax.numpy

METHODS = {
    each.name: each.implicit
    for each in all_methods()
    if issubclass(each, StepMethod) and "torch" in each.libraries and not each().corrections
}
IMPLICIT = [name for name, implicit in METHODS.items() if implicit]


@pytest.fixture(autouse=True)
def _wide():
    with jax.enable_x64(True):
        yield


def pair(library: Any) -> Any:
    """Two species that decay at rates p apart, and feed one another."""

    def fun(t: Any, y: Any, p: Any) -> Any:
        x, z = y[..., 0], y[..., 1]
        return library.stack([-p[..., 0] * (x - z * z), x - p[..., 1] * z], -1)

    return fun


FUNCTIONS = {"numpy": pair(np), "torch": pair(torch), "jax": pair(jnp)}
ARRAYS = {
    "torch": lambda values: torch.tensor(values, dtype=torch.float64),
    "jax": lambda values: jnp.asarray(values, dtype="float64"),
}
LIBRARIES = sorted(ARRAYS)


def jacobian(library: Any) -> Any:
    def jac(t: Any, y: Any, p: Any) -> Any:
        one = library.ones_like(y[..., 0])
        first = library.stack([-p[..., 0] * one, 2.0 * p[..., 0] * y[..., 1]], -1)
        return library.stack([first, library.stack([one, -p[..., 1] * one], -1)], -2)

    return jac


@pytest.mark.parametrize(
    ("method", "library"),
    [
        *((method, "torch") for method in METHODS),
        *((method, "jax") for method in IMPLICIT),
    ],
)
@thinned(lambda method, library: library == "torch" or method == "implicit_trapezoid")
@thinned(lambda method, library: library == "torch" or method == "implicit_trapezoid")
def test_the_answer_is_that_of_numpy(library: str, method: str):
    """For an ensemble in which each member has its own start, rates and order; over several blocks of tensors.

    Blocks are scans of their own, which JAX takes seconds to compile: ``test_tensors.py`` has several in one case.
    """
    array, steps = ARRAYS[library], 90 if library == "torch" else 60
    y0, p = np.array([[1.0, 0.5], [0.3, 1.0]]), np.array([[3.0, 1.0], [2.0, 0.5]])
    orders = np.array([[0.5], [0.8]])
    found = hf.solve_fode(
        FUNCTIONS[library], (0.0, 1.0), array(y0), array(orders), step=1.0 / steps, method=method, args=(array(p),)
    )
    assert found.success and found.decision.method == method
    for member in range(2):
        alone = hf.solve_fode(
            FUNCTIONS["numpy"],
            (0.0, 1.0),
            y0[member],
            float(orders[member, 0]),
            step=1.0 / steps,
            method=method,
            args=(p[member],),
        )
        assert np.asarray(found.y[member]) == pytest.approx(alone.y, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("library", LIBRARIES)
@thinned(lambda library: library == "torch")
def test_a_stiff_ensemble(library: str):
    """Rates up to 1e6 at a step of 0.02, where explicit steps explode; with a given Jacobian the same."""
    array = ARRAYS[library]
    rates = np.array([[1.0, 1.0], [1e3, 1.0], [1e6, 1.0]])
    start = np.array([[0.5, 1.0]] * 3)
    solve = lambda method, **more: hf.solve_fode(  # noqa: E731
        FUNCTIONS[library], (0.0, 1.0), array(start), 0.7, step=0.02, method=method, args=(array(rates),), **more
    )
    assert not np.all(np.abs(np.asarray(solve("pece").y[..., -1])) < 1e3)
    found = solve("implicit_trapezoid")
    assert found.success
    for member in range(3):
        exact = hf.solve_fode(
            FUNCTIONS["numpy"], (0.0, 1.0), start[member], 0.7, rtol=1e-6, atol=1e-9, args=(rates[member],),
            backend="numpy",
        )  # fmt: skip
        assert np.asarray(found.y[member, :, -1]) == pytest.approx(exact.y[:, -1], rel=2e-3)
    given = solve("implicit_trapezoid", jac=jacobian({"torch": torch, "jax": jnp}[library]))
    assert np.asarray(given.y) == pytest.approx(np.asarray(found.y), rel=1e-9)


def torch_end(alpha: Any, y0: Any, p: Any, method: str) -> Any:
    return hf.solve_fode(FUNCTIONS["torch"], (0.0, 1.0), y0, alpha, step=1.0 / 8, method=method, args=(p,)).y[..., -1]


TENSORS = ([0.7], [1.0, 0.5], [20.0, 1.0])


@pytest.mark.parametrize("method", METHODS)
@thinned(lambda method: method != "explicit_rectangle")
def test_derivatives_of_torch(method: str):
    """gradcheck in the order, the start and the rates."""
    arguments = [torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in TENSORS]
    assert torch.autograd.gradcheck(
        lambda *given: torch_end(*given, method), arguments, atol=1e-6, rtol=1e-5, fast_mode=True
    )


@pytest.mark.slow
def test_second_derivatives_of_torch():
    """Right under torch.func, and refused by autograd, which would have them wrong."""
    alpha, y0, rate = (torch.tensor(each, dtype=torch.float64) for each in TENSORS)
    run = lambda p: torch_end(alpha, y0, p, "implicit_trapezoid").sum()  # noqa: E731
    found = torch.func.hessian(run)(rate)
    change = 1e-4
    for index in range(2):
        moved = change * torch.eye(2, dtype=torch.float64)[index]
        central = (torch.func.grad(run)(rate + moved) - torch.func.grad(run)(rate - moved)) / (2.0 * change)
        assert found[index].tolist() == pytest.approx(central.tolist(), rel=1e-5, abs=1e-9)
    asked = rate.clone().requires_grad_()
    (first,) = torch.autograd.grad(run(asked), asked, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiated twice"):
        first.sum().backward()


def test_what_torch_keeps_for_an_implicit_backward_pass_grows_with_the_steps():
    """Checkpointed as the explicit ones are: O(N d)."""
    sizes = []
    for steps in (128, 256):
        rate = torch.tensor([20.0, 1.0], dtype=torch.float64, requires_grad=True)
        kept: dict[int, int] = {}

        def pack(tensor: Any, kept: dict[int, int] = kept) -> Any:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            y = hf.solve_fode(
                FUNCTIONS["torch"], (0.0, 1.0), torch.ones(10, 2, dtype=torch.float64), 0.7, step=1.0 / steps,
                method="implicit_rectangle", args=(rate,),
            ).y  # fmt: skip
        sizes.append(sum(kept.values()))
        assert y.requires_grad
    assert sizes[1] < 2.5 * sizes[0]


def jax_end(alpha: Any, y0: Any, p: Any, method: str) -> Any:
    return hf.solve_fode(FUNCTIONS["jax"], (0.0, 1.0), y0, alpha, step=1.0 / 8, method=method, args=(p,)).y[..., -1]


@pytest.mark.slow
@pytest.mark.parametrize("method", IMPLICIT)
def test_derivatives_of_jax_are_those_of_differences_and_of_torch(method: str):
    """grad under jit."""
    arguments = [jnp.asarray(each, dtype="float64") for each in TENSORS]
    total = lambda *given: jax_end(*given, method).sum()  # noqa: E731
    found = jax.jit(jax.grad(total, argnums=(0, 1, 2)))(*arguments)
    tensors = [torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in TENSORS]
    torch_end(*tensors, method).sum().backward()
    for ours, theirs in zip(found, tensors, strict=True):
        assert np.asarray(ours) == pytest.approx(theirs.grad.numpy(), rel=1e-8)
    change = 1e-6
    sides = [float(total(arguments[0] + sign * change, *arguments[1:])) for sign in (1.0, -1.0)]
    assert float(found[0][0]) == pytest.approx((sides[0] - sides[1]) / (2 * change), rel=1e-6)


@pytest.mark.parametrize("library", LIBRARIES)
def test_members_that_do_not_converge_are_told(library: str):
    """The equation of a step without a solution: NaN from there on for that member, and a message; others go on."""
    array = ARRAYS[library]

    def fun(t: Any, y: Any) -> Any:
        return y * y  # y = known + w y^2 has no root where 4 w known > 1

    found = hf.solve_fode(fun, (0.0, 1.0), array([[100.0], [-1.0]]), 0.7, step=0.1, method="implicit_rectangle")
    assert not found.success and "Newton's method did not converge" in found.message
    y = np.asarray(found.y)
    assert np.isnan(y[0, 0, -1]) and np.all(np.isfinite(y[1]))
    with pytest.raises(ShapeError, match="a row for each component"):
        hf.solve_fode(
            fun, (0.0, 1.0), array([1.0]), 0.7, step=0.1, method="implicit_rectangle", jac=lambda t, y: 2.0 * y
        )
    with pytest.raises(InvalidInputError, match="give step="):
        hf.solve_fode(fun, (0.0, 1.0), array([1.0]), 0.7, method="implicit_rectangle")


def test_the_implicit_rectangle_does_not_look_at_the_start():
    """A right-hand side that is infinite at t0 is no obstacle."""
    fun = lambda t, y: (t - 0.0) ** -0.2 - y if t > 0.0 else y * torch.nan  # noqa: E731
    y = hf.solve_fode(fun, (0.0, 1.0), torch.ones(1, dtype=torch.float64), 0.8, step=0.01, method="backward_euler").y
    assert bool(torch.isfinite(y).all())


@pytest.mark.parametrize(
    ("alpha", "library"), [(0.3, "torch"), (0.6, "torch"), (1.0, "torch"), (1.5, "torch"), (0.6, "jax")]
)
@thinned(lambda library: library == "torch")
def test_between_the_first_steps_the_solution_is_as_good_as_at_them(library: str, alpha: float):
    """``t_eval`` near t0 knows how a solution begins: no worse than a few times the error at the steps."""
    array = ARRAYS[library]
    further = {"dy0": [array([0.5])]} if alpha > 1.0 else {}
    times, steps = np.array([0.0025, 0.004, 0.0055, 0.013, 0.5033]), np.array([0.01, 0.02, 0.5])
    solve = lambda at: np.asarray(  # noqa: E731
        hf.solve_fode(lambda t, y: -y, (0.0, 1.0), array([1.0]), alpha, step=0.01, t_eval=at, **further).y[0]
    )

    def exact(t: Any) -> Any:
        whole = mittag_leffler(-(t**alpha), alpha)
        return whole + (0.5 * t * mittag_leffler(-(t**alpha), alpha, 2.0) if alpha > 1.0 else 0.0)

    at_steps = np.max(np.abs(solve(steps) - exact(steps)))
    assert np.max(np.abs(solve(times) - exact(times))) < 4.0 * at_steps + 1e-6


def test_between_steps_there_is_a_derivative_in_the_order():
    """Interpolation depends on the order, and its derivative does."""
    alpha = torch.tensor([0.4, 0.9], dtype=torch.float64, requires_grad=True)
    y0 = torch.ones(3, 2, dtype=torch.float64)

    def run(order: Any) -> Any:
        return hf.solve_fode(lambda t, y: -y, (0.0, 1.0), y0, order, step=0.1, t_eval=[0.02, 0.33]).y

    assert torch.autograd.gradcheck(run, (alpha,), atol=1e-7)
    traced = jax.jit(
        lambda order: (
            hf.solve_fode(lambda t, y: -y, (0.0, 1.0), jnp.ones((3, 2)), order, step=0.1, t_eval=[0.02, 0.33]).y
        )
    )(jnp.asarray([0.4, 0.9]))
    assert np.asarray(traced) == pytest.approx(run(alpha).detach().numpy(), rel=1e-11)
