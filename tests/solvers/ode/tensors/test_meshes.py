"""Graded meshes and adaptive steps on tensors and JAX arrays: NumPy's answers, derivatives, and what fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode import L1, L2Sigma
from hpfracc.special import mittag_leffler
from tests.helpers.convergence import observed_order
from tests.helpers.thinned import thinned

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
jnp = jax.numpy

START = np.array([1.2, 2.8])


@pytest.fixture(autouse=True)
def _wide():
    with jax.enable_x64(True):
        yield


def brusselator(t: Any, y: Any, p: Any) -> Any:
    """Of any library: x, z in the last axis."""
    x, z = y[..., :1], y[..., 1:]
    product = x * x * z
    parts = [p[..., :1] - (p[..., 1:] + 1.0) * x + product, p[..., 1:] * x - product]
    if isinstance(y, torch.Tensor):
        return torch.cat(parts, -1)
    return (jnp if isinstance(y, jax.Array) else np).concatenate(parts, -1)


def torch_array(values: Any) -> Any:
    return torch.tensor(np.asarray(values), dtype=torch.float64)


ARRAYS = {"torch": torch_array, "jax": jnp.asarray}


def solve(array: Any, alpha: Any, y0: Any = START, p: Any = (1.0, 2.0), **options: Any) -> Any:
    given = {"t_eval": [0.0, 0.3, 1.0], **options}
    if array is np.asarray:
        given["backend"] = "numpy"  # or steps are compiled, where the machine is slow
    return hf.solve_fode(brusselator, (0.0, 1.0), array(y0), alpha, args=(array(p),), **given)


@pytest.mark.parametrize("library", sorted(ARRAYS))
@pytest.mark.parametrize("method", ["l1", "l2_1sigma"])
@thinned(lambda method, library: library == "torch" or method == "l2_1sigma")
def test_a_graded_mesh_gives_the_answer_of_numpy(library: str, method: str):
    """At the steps and between them, with and without a Jacobian of one's own."""
    for options in ({"t_eval": None}, {}):
        expected = solve(np.asarray, 0.6, method=method, step=0.02, **options)
        found = solve(ARRAYS[library], 0.6, method=method, step=0.02, **options)
        assert found.success and found.decision.method == method
        assert np.asarray(found.y) == pytest.approx(expected.y, rel=1e-10)
        assert found.t == pytest.approx(expected.t, rel=1e-14)


@pytest.mark.parametrize(("method", "order"), [("l1", 1.5), ("l2_1sigma", 2.0)])
def test_a_graded_mesh_keeps_the_order_on_tensors(method: str, order: float):
    """The largest error over the mesh for E_alpha(-t^alpha), alpha = 1/2."""
    errors = []
    for n in (64, 128):
        result = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), torch_array([1.0]), 0.5, step=1.0 / n, method=method)
        errors.append(float(np.abs(result.y[0].numpy() - mittag_leffler(-np.sqrt(result.t), 0.5)).max()))
    assert observed_order([1 / 64, 1 / 128], errors) == pytest.approx(order, abs=0.2)


@pytest.mark.parametrize("library", sorted(ARRAYS))
@pytest.mark.parametrize("alpha", [0.3, 1.0, 1.6])
@thinned(lambda library: library == "torch")
def test_adaptive_steps_meet_the_tolerance(library: str, alpha: float):
    """E_alpha(-t^alpha) for orders below, at and above 1; few steps, and an estimate that is not below the error."""
    t = np.array([0.0, 1e-6, 0.1, 2.0])
    array = ARRAYS[library]
    further = {"dy0": [array([0.0])]} if alpha > 1.0 else {}
    result = hf.solve_fode(lambda t, y: -y, (0.0, 2.0), array([1.0]), alpha, t_eval=t, rtol=1e-6, atol=1e-8, **further)
    error = np.abs(np.asarray(result.y)[0] - mittag_leffler(-(t**alpha), alpha)).max()
    assert result.success and result.decision.method == "adaptive"
    assert error < 1e-6 and error < 3.0 * result.error_estimate
    assert result.stats["steps"] < 400


@pytest.mark.parametrize("library", sorted(ARRAYS))
@thinned(lambda library: library == "torch")
def test_adaptive_ensembles_have_the_answers_of_their_members(library: str):
    """Each member its own start, parameters and order, in one call."""
    array = ARRAYS[library]
    orders, starts = np.array([[0.5], [0.9]]), np.stack([START, START + 0.1])
    whole = solve(array, array(orders), starts, [[1.0, 2.0], [1.0, 2.5]], rtol=1e-5)
    for index, p in enumerate([(1.0, 2.0), (1.0, 2.5)]):
        alone = solve(np.asarray, float(orders[index, 0]), starts[index], p, rtol=1e-8)
        assert np.asarray(whole.y[index]) == pytest.approx(alone.y, rel=2e-5)


@pytest.mark.parametrize("options", [{"method": "l1", "step": 0.05}, {"method": "l2_1sigma", "step": 0.05}])
@thinned(one_in=2)
def test_derivatives_on_a_graded_mesh(options: dict[str, Any]):
    """gradcheck in the order, the start and the parameters; the grading is held."""
    kind = {"l1": L1, "l2_1sigma": L2Sigma}[options["method"]]
    given = {**options, "method": kind(grading=3.0)}

    def final(alpha: Any, y0: Any, p: Any) -> Any:
        return solve(lambda values: values, alpha, y0, p, **given).y

    inputs = [torch_array(each).requires_grad_() for each in (0.6, START, (1.0, 2.0))]
    assert torch.autograd.gradcheck(final, inputs, atol=1e-6, rtol=1e-5, fast_mode=True)


def torch_gradient(**options: Any) -> list[Any]:
    inputs = [torch_array(each).requires_grad_() for each in (0.6, START, (1.0, 2.0))]
    alpha, y0, p = inputs
    solve(lambda values: values, alpha, y0, p, **options).y.sum().backward()
    return [each.grad.numpy() for each in inputs]


def test_derivatives_of_adaptive_steps_on_torch():
    """In the order, the start and a parameter: differences of the NumPy solution."""
    alpha, y0, p = torch_gradient(rtol=1e-7, atol=1e-9)
    change = 1e-3
    for found, move in (
        (alpha, (change, [0.0, 0.0], [0.0, 0.0])),
        (y0[0], (0.0, [change, 0.0], [0.0, 0.0])),
        (p[1], (0.0, [0.0, 0.0], [0.0, change])),
    ):
        sides = [
            solve(
                np.asarray, 0.6 + sign * move[0], START + sign * np.array(move[1]),
                np.array([1.0, 2.0]) + sign * np.array(move[2]), rtol=1e-8,
            ).y.sum()
            for sign in (1.0, -1.0)
        ]  # fmt: skip
        assert float(found) == pytest.approx((sides[0] - sides[1]) / (2 * change), rel=1e-4)


@pytest.mark.slow
def test_derivatives_of_adaptive_steps_in_jax_are_those_of_torch():
    """Under jit, in the order, the start and the parameters."""

    def total(alpha: Any, y0: Any, p: Any) -> Any:
        return solve(jnp.asarray, alpha, y0, p, rtol=1e-5).y.sum()

    inputs = tuple(map(jnp.asarray, (0.6, START, (1.0, 2.0))))
    for one, two in zip(torch_gradient(rtol=1e-5), jax.jit(jax.grad(total, argnums=(0, 1, 2)))(*inputs), strict=True):
        assert np.asarray(two) == pytest.approx(one, rel=1e-4)


@pytest.mark.slow
def test_jax_differentiates_in_what_a_function_closes_over():
    """Without jit, a lambda that sees traced values: the derivative with them as arguments."""

    def as_arguments(alpha: Any, y0: Any, p: Any) -> Any:
        return solve(jnp.asarray, alpha, y0, p, rtol=1e-5).y.sum()

    def captured(alpha: Any, y0: Any, p: Any) -> Any:
        return hf.fdeint(lambda t, y: brusselator(t, y, p), y0, np.array([0.0, 0.3, 1.0]), alpha, rtol=1e-5).sum()

    inputs = tuple(map(jnp.asarray, (0.6, START, (1.0, 2.0))))
    expected = jax.grad(as_arguments, argnums=(0, 1, 2))(*inputs)
    for one, two in zip(expected, jax.grad(captured, argnums=(0, 1, 2))(*inputs), strict=True):
        assert np.asarray(two) == pytest.approx(np.asarray(one), rel=1e-10)


@pytest.mark.slow
def test_jax_maps_over_orders_with_adaptive_steps():
    """Under vmap every member has a mesh of its own, and the answer it has alone."""
    orders = jnp.asarray([0.5, 0.9])
    mapped = jax.vmap(lambda alpha: solve(jnp.asarray, alpha, rtol=1e-5).y)(orders)
    for index, alpha in enumerate((0.5, 0.9)):
        assert np.asarray(mapped[index]) == pytest.approx(solve(np.asarray, alpha, rtol=1e-8).y, rel=2e-5)


def test_torch_func_differentiates_adaptive_steps_and_refuses_to_map_them():
    """grad and jvp are those of autograd; vmap would need the values, and says what to do."""

    def total(alpha: Any) -> Any:
        return solve(torch_array, alpha, rtol=1e-5).y.sum()

    alpha = torch_array(0.6)
    expected = torch.autograd.functional.jacobian(total, alpha)
    assert float(torch.func.grad(total)(alpha)) == pytest.approx(float(expected), rel=1e-10)
    _, forward = torch.func.jvp(total, (alpha,), (torch.ones_like(alpha),))
    assert float(forward) == pytest.approx(float(expected), rel=1e-10)
    with pytest.raises(InvalidInputError, match="give y0 a leading axis"):
        torch.func.vmap(lambda y0: hf.fdeint(lambda t, y: -y, y0, [0.0, 1.0], 0.5))(torch_array([[1.0], [2.0]]))


@pytest.mark.parametrize("library", sorted(ARRAYS))
@thinned(lambda library: library == "torch")
def test_log_spaced_times_take_few_evaluations(library: str):
    """fdeint over five decades of times, 30 of them: to the tolerance, and with as many steps as that needs."""
    t = np.concatenate([[0.0], np.logspace(-4, 1, 29)])
    calls = 0

    def fun(t: Any, y: Any) -> Any:
        nonlocal calls
        calls += 1
        return -y

    y = hf.fdeint(fun, ARRAYS[library]([1.0]), t, 0.6)
    assert np.asarray(y)[:, 0] == pytest.approx(mittag_leffler(-(t**0.6), 0.6), abs=1e-6)
    assert calls < 2000


@pytest.mark.slow
def test_a_solve_that_stops_says_where():
    """Blow-up, too few steps, a stiff equation: no short answer in silence, and NaN where it is traced."""
    for array in ARRAYS.values():
        blown = hf.solve_fode(lambda t, y: y * y, (0.0, 4.0), array([1.0]), 0.9, t_eval=[0.1, 4.0], rtol=1e-4)
        assert not blown.success and "cannot be reached beyond t = 0.81" in blown.message and blown.t.tolist() == [0.1]
        short = hf.solve_fode(lambda t, y: -y, (0.0, 4.0), array([1.0]), 0.5, t_eval=[4.0], max_steps=5)
        assert not short.success and "max_steps=5" in short.message and short.y.shape == (1, 0)
    traced = jax.jit(lambda y0: hf.fdeint(lambda t, y: y * y, y0, [0.0, 0.1, 4.0], 0.9, rtol=1e-4))(jnp.ones(1))
    assert float(traced[0, 0]) == 1.0 and np.isnan(np.asarray(traced)[2]).all()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"method": "adaptive", "step": 0.1}, "omit step"),
        ({"atol": 0.0}, "atol above 0"),
        ({"method": "l1", "step": 0.1, "alpha": 1.2, "dy0": [[0.0]]}, "orders below 1"),
        ({"method": "l2_1sigma", "step": 0.1, "alpha": [0.5, 0.6]}, "one order"),
        ({"method": "l1"}, "give step="),
        ({"events": lambda t, y: y[0]}, "no events"),
    ],
)
def test_what_meshes_do_not_take(options: dict[str, Any], complaint: str):
    """Each refusal is a sentence."""
    given = {"alpha": 0.5, **options}
    y0 = torch_array([1.0, 1.0]) if isinstance(given["alpha"], list) else torch_array([1.0])
    if "dy0" in given:
        given["dy0"] = [torch_array(each) for each in given["dy0"]]
    with pytest.raises(InvalidInputError, match=complaint):
        hf.solve_fode(lambda t, y: -y, (0.0, 1.0), y0, given.pop("alpha"), **given)


def test_traced_adaptive_steps_need_times():
    """Their number is not a shape."""
    with pytest.raises(InvalidInputError, match="give t_eval"):
        jax.jit(lambda y0: hf.solve_fode(lambda t, y: -y, (0.0, 1.0), y0, 0.5).y)(jnp.ones(1))


@pytest.mark.parametrize("method", ["l1", "l2_1sigma", "adaptive"])
def test_single_precision_and_complex_numbers(method: str):
    """float32 stays so, near the answer; complex states are those of NumPy."""
    options: dict[str, Any] = {} if method == "adaptive" else {"step": 0.02}
    narrow = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), torch.ones(1), 0.5, method=method, t_eval=[1.0], **options).y
    assert narrow.dtype == torch.float32
    assert float(narrow) == pytest.approx(0.4275836, abs=1e-3)
    y0 = torch.tensor([1.0 + 1.0j], dtype=torch.complex128)
    turned = hf.solve_fode(lambda t, y: 1j * y, (0.0, 1.0), y0, 0.5, method=method, t_eval=[1.0], **options).y
    options["backend"] = "numpy"
    expected = hf.solve_fode(lambda t, y: 1j * y, (0.0, 1.0), y0.numpy(), 0.5, method=method, t_eval=[1.0], **options).y
    assert turned.numpy() == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["l1", "l2_1sigma", "adaptive"])
def test_jax_differentiates_in_the_order_in_single_precision(method: str):
    """Without x64: near the derivative of E_alpha(-1), as far as the step allows."""
    options = {} if method == "adaptive" else {"step": 0.02}
    with jax.enable_x64(False):
        y0 = jnp.ones(1)
        slope = jax.grad(
            lambda a: hf.solve_fode(lambda t, y: -y, (0.0, 1.0), y0, a, method=method, t_eval=[1.0], **options).y.sum()
        )(jnp.asarray(0.5))
    exact = (mittag_leffler(-1.0, 0.5001) - mittag_leffler(-1.0, 0.4999)) / 2e-4
    assert float(slope) == pytest.approx(float(exact), abs=1e-2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("method", ["l1", "l2_1sigma", "adaptive"])
def test_meshes_on_a_gpu(method: str):
    """The answers and the derivatives of the host, on the device, for tensors and JAX arrays."""
    options: dict[str, Any] = {"rtol": 1e-6} if method == "adaptive" else {"step": 0.05}
    host = torch_gradient(method=method, **options)
    inputs = [torch_array(each).cuda().requires_grad_() for each in (0.6, START, (1.0, 2.0))]
    alpha, y0, p = inputs
    y = solve(lambda values: values, alpha, y0, p, method=method, **options).y
    assert y.is_cuda
    y.sum().backward()
    for one, two in zip(host, inputs, strict=True):
        assert two.grad.cpu().numpy() == pytest.approx(one, rel=1e-6)
    device = jax.devices("gpu")[0]

    def total(alpha: Any, y0: Any, p: Any) -> Any:
        return solve(lambda values: values, alpha, y0, p, method=method, **options).y.sum()

    given = [jax.device_put(jnp.asarray(each), device) for each in (0.6, START, (1.0, 2.0))]
    slopes = jax.grad(total, argnums=(1, 2))(0.6, *given[1:])
    for one, two in zip(host[1:], slopes, strict=True):
        assert np.asarray(two) == pytest.approx(one, rel=1e-5)
