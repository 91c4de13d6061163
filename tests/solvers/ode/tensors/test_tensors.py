"""Solves on tensors and JAX arrays: the answers of NumPy's PECE, ensembles in one call, and derivatives."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.solvers.ode import problems
from hpfracc.special import mittag_leffler
from tests.helpers.interrupts import part_of
from tests.helpers.thinned import thinned

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
jnp = jax.numpy


@pytest.fixture(autouse=True)
def _wide():
    with jax.enable_x64(True):
        yield


def brusselator(library: Any) -> Any:
    """The right-hand side with parameters a, mu in the last axis of ``p``."""

    def fun(t: Any, y: Any, p: Any) -> Any:
        x, z = y[..., 0], y[..., 1]
        product = x * x * z
        return library.stack([p[..., 0] - (p[..., 1] + 1.0) * x + product, p[..., 1] * x - product], -1)

    return fun


ON_TORCH, ON_JAX = brusselator(torch), brusselator(jnp)
LIBRARIES = {
    "torch": (ON_TORCH, lambda values: torch.tensor(values, dtype=torch.float64)),
    "jax": (ON_JAX, lambda values: jnp.asarray(values, dtype="float64")),
}


@pytest.mark.parametrize("library", sorted(LIBRARIES))
@pytest.mark.parametrize(("alpha", "steps"), [(0.6, 300), (1.0, 37), (1.5, 37)])
@thinned(lambda alpha, library: library == "torch" or alpha == 0.6)
def test_the_answer_is_that_of_numpy(library: str, alpha: float, steps: int):
    """To rounding, within a block and over several, for orders below, at and above 1."""
    fun, array = LIBRARIES[library]
    p, y0 = np.array([1.0, 2.0]), np.array([1.2, 2.8])
    further = [np.array([0.1, -0.1])] if alpha > 1 else []
    plain = problems.brusselator(alpha, mu=2.0)
    expected = hf.solve_fode(plain.fun, (0.0, 2.0), y0, alpha, step=2.0 / steps, method="pece", dy0=further or None)
    found = hf.solve_fode(
        fun, (0.0, 2.0), array(y0), alpha, step=2.0 / steps, args=(array(p),), dy0=[array(v) for v in further] or None
    )
    assert found.success and found.decision.method == "pece"
    assert np.asarray(found.y) == pytest.approx(expected.y, rel=1e-12, abs=1e-13)
    assert found.t == pytest.approx(expected.t)


@pytest.mark.parametrize("library", sorted(LIBRARIES))
@thinned(lambda library: library == "torch")
def test_an_ensemble_of_values_parameters_and_orders_is_one_call(library: str):
    """Each member has its own start, parameters and order, and the answer it has alone."""
    fun, array = LIBRARIES[library]
    generator = np.random.default_rng(1)
    y0 = np.array([1.2, 2.8]) + 0.1 * generator.standard_normal((3, 2))
    p = np.stack([np.ones(3), 2.0 + generator.random(3)], axis=-1)
    orders = np.array([[0.5], [0.7], [0.9]])
    whole = hf.solve_fode(fun, (0.0, 1.0), array(y0), array(orders), step=0.02, args=(array(p),))
    assert whole.y.shape == (3, 2, 51)
    for index in range(3):
        alone = hf.solve_fode(
            problems.brusselator(mu=p[index, 1]).fun,
            (0.0, 1.0),
            y0[index],
            float(orders[index, 0]),
            step=0.02,
            method="pece",
        )
        assert np.asarray(whole.y[index]) == pytest.approx(alone.y, rel=1e-11)


def torch_solution(alpha: Any, y0: Any, p: Any, steps: int = 70) -> Any:
    return hf.solve_fode(ON_TORCH, (0.0, 1.0), y0, alpha, step=1.0 / steps, args=(p,)).y[..., steps // 2 :: steps // 2]


@pytest.mark.parametrize("orders", [0.7, [0.7, 0.8]])
def test_derivatives_of_torch_are_those_of_differences(orders: Any):
    """gradcheck in the order (shared and per component), the start and the parameters, over two blocks."""
    alpha = torch.tensor(orders, dtype=torch.float64, requires_grad=True)
    y0 = torch.tensor([1.2, 2.8], dtype=torch.float64, requires_grad=True)
    p = torch.tensor([1.0, 3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(torch_solution, (alpha, y0, p), atol=1e-6, rtol=1e-5, fast_mode=True)


def jax_solution(alpha: Any, y0: Any, p: Any) -> Any:
    return hf.solve_fode(ON_JAX, (0.0, 1.0), y0, alpha, step=1.0 / 70, args=(p,)).y[..., 35::35].sum()


@pytest.mark.slow
def test_derivatives_of_jax_are_those_of_differences_and_of_torch():
    """grad, mapped over orders, under jit, in order, start and parameters: that of differences and of PyTorch."""
    rest = ([1.2, 2.8], [1.0, 3.0])
    change = 1e-6
    orders = (0.7, 0.7 + change, 0.7 - change, 0.9)
    # One program for all: compiling is what takes time.
    solve = jax.jit(jax.vmap(jax.value_and_grad(jax_solution, argnums=(0, 1, 2)), in_axes=(0, None, None)))
    values, found = solve(jnp.asarray(orders), *map(jnp.asarray, rest))
    for member in (0, 3):
        tensors = [torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in (orders[member], *rest)]
        value = torch_solution(*tensors).sum()
        value.backward()
        assert float(values[member]) == pytest.approx(float(value.detach()), rel=1e-11)
        for ours, theirs in zip(found, tensors, strict=True):
            assert np.asarray(ours[member]) == pytest.approx(theirs.grad.numpy(), rel=1e-9)
    assert float(found[0][0]) == pytest.approx(float(values[1] - values[2]) / (2 * change), rel=1e-7)


def test_what_torch_keeps_for_the_backward_pass_grows_with_the_steps():
    """Bytes saved for the derivative, counted as autograd saves them, double when the steps do: O(N d)."""
    sizes = []
    for steps in (256, 512):
        alpha = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
        y0 = torch.ones(50, 2, dtype=torch.float64, requires_grad=True)
        kept: dict[int, int] = {}

        def pack(tensor: Any, kept: dict[int, int] = kept) -> Any:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            y = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), y0, alpha, step=1.0 / steps).y
        sizes.append(sum(kept.values()))
        y[..., -1].sum().backward()
        assert bool(torch.isfinite(alpha.grad))
    assert sizes[1] < 2.5 * sizes[0]


def test_fdeint_trains_an_order():
    """In torchdiffeq's shape, with a derivative in the order, for times on the grid and between."""
    t = torch.linspace(0.0, 1.0, 6, dtype=torch.float64)
    alpha = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
    y = hf.fdeint(lambda t, y: -y, torch.ones(2, dtype=torch.float64), t, alpha, step=0.01)
    assert y.shape == (6, 2)
    (slope,) = torch.autograd.grad(y[-1, 0], alpha)
    sides = [
        hf.fdeint(lambda t, y: -y, torch.ones(2, dtype=torch.float64), t, 0.6 + sign * 1e-6, step=0.01)[-1, 0]
        for sign in (1.0, -1.0)
    ]
    assert float(slope) == pytest.approx(float(sides[0] - sides[1]) / 2e-6, rel=1e-6)
    odd = hf.fdeint(lambda t, y: -y, torch.ones(2, dtype=torch.float64), [0.0, 0.505, 1.0], 0.6, step=0.01)
    assert float(odd[1, 0]) == pytest.approx(float(hf.special.mittag_leffler(-(0.505**0.6), 0.6)), abs=1e-3)


def test_the_default_gradient_is_stored_where_that_serves():
    """One node for all steps; recomputed for tensors from outside and for complex states, with the same gradient."""

    def gradient(kind: str) -> tuple[str, Any]:
        rate = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
        outside = 2.0 * rate
        y0 = torch.ones(2, dtype=torch.complex128 if kind == "complex" else torch.float64)
        fun = (lambda t, y: -outside * y) if kind == "outside" else (lambda t, y: -2.0 * rate * y)
        y = hf.solve_fode(fun, (0.0, 1.0), y0, 0.6, step=0.05, method="pece").y
        nodes, todo = set[str](), [y.grad_fn]
        while todo:
            node = todo.pop()
            if node is not None:
                nodes.add(node.name())
                todo += [each for each, _ in node.next_functions]
            if len(nodes) > 4:
                break
        (slope,) = torch.autograd.grad(y.real[..., -1].sum(), rate)
        return "stored" if "_StoredBackward" in nodes else "recomputed", float(slope)

    found = {kind: gradient(kind) for kind in ("plain", "outside", "complex")}
    assert [found[kind][0] for kind in found] == ["stored", "recomputed", "recomputed"]
    assert found["outside"][1] == pytest.approx(found["plain"][1], rel=1e-12)
    assert found["complex"][1] == pytest.approx(found["plain"][1], rel=1e-12)


def test_torch_func_and_forward_mode_go_through():
    """torch.func.grad, vmap over starts and a forward derivative are those of autograd."""

    def final(alpha: Any, y0: Any) -> Any:
        return torch_solution(alpha, y0, torch.tensor([1.0, 3.0], dtype=torch.float64)).sum()

    alpha, y0 = (
        torch.tensor(0.7, dtype=torch.float64, requires_grad=True),
        torch.tensor([1.2, 2.8], dtype=torch.float64),
    )
    (expected,) = torch.autograd.grad(final(alpha, y0), alpha)
    plain = alpha.detach()
    assert float(torch.func.grad(final)(plain, y0)) == pytest.approx(float(expected), rel=1e-10)
    _, forward = torch.func.jvp(lambda a: final(a, y0), (plain,), (torch.ones_like(plain),))
    assert float(forward) == pytest.approx(float(expected), rel=1e-10)
    starts = torch.stack([y0, y0 + 0.1])
    mapped = torch.func.vmap(lambda start: final(0.7, start))(starts)
    assert mapped.tolist() == pytest.approx([float(final(0.7, start)) for start in starts], rel=1e-12)


def test_half_as_wide_numbers_stay_so():
    """float32 in, float32 out, near the float64 answer."""
    y = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), torch.ones(1), 0.5, step=0.01).y
    assert y.dtype == torch.float32
    assert float(y[0, -1]) == pytest.approx(0.4275836, abs=1e-3)


@pytest.mark.parametrize("library", sorted(LIBRARIES))
def test_faults_of_tensors(library: str):
    """NaN, too few steps, another shape, and what is not taken: in words."""
    _, array = LIBRARIES[library]
    one = array([1.0])
    blown = hf.solve_fode(lambda t, y: y * y, (0.0, 4.0), one, 0.9, step=0.01)
    assert not blown.success and "not finite at t = " in blown.message
    short = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), one, 0.5, step=0.01, max_steps=10)
    assert not short.success and "max_steps=10" in short.message
    with pytest.raises(ShapeError, match="it has to return an array of the shape of y"):
        hf.solve_fode(lambda t, y: y[..., None], (0.0, 1.0), one, 0.5, step=0.1)
    for options, complaint in (
        ({"events": lambda t, y: y[0]}, "no events"),
        ({"dense_output": True}, "no dense_output"),
        ({"backend": "numpy"}, "was requested"),
        ({"compile": True}, "is for NumPy problems"),
        ({"derivative": "riemann_liouville"}, "Caputo's derivative"),
        ({"alpha": lambda t: 0.5}, "variable_order"),
    ):
        alpha = options.pop("alpha", 0.5)
        with pytest.raises(InvalidInputError, match=complaint):
            hf.solve_fode(lambda t, y: -y, (0.0, 1.0), one, alpha, step=0.1, **options)
    with pytest.raises(InvalidInputError, match="give step="):
        hf.solve_fode(lambda t, y: -y, (0.0, 1.0), one, 0.5, method="pece")


@pytest.mark.gpu
def test_an_ensemble_on_the_gpu():
    """On a GPU the answer and the derivative in the order are those of the host."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    answers = []
    for device in ("cpu", "cuda"):
        y0 = torch.tensor([1.2, 2.8], dtype=torch.float64, device=device).repeat(64, 1)
        p = torch.tensor([1.0, 3.0], dtype=torch.float64, device=device)
        alpha = torch.tensor(0.8, dtype=torch.float64, device=device, requires_grad=True)
        y = hf.solve_fode(ON_TORCH, (0.0, 1.0), y0, alpha, step=1.0 / 200, args=(p,)).y
        assert y.device.type == device
        y[..., -1].sum().backward()
        answers.append((y.detach().cpu().numpy(), float(alpha.grad)))
    assert answers[1][0] == pytest.approx(answers[0][0], rel=1e-10)
    assert answers[1][1] == pytest.approx(answers[0][1], rel=1e-9)


def test_what_was_asked_for_is_done_or_refused_for_tensors():
    """Progress, an interruption, another backend, a function that returns no tensor or changes its argument."""
    y0 = torch.ones(1, dtype=torch.float64)
    told: list[float] = []
    solve = functools.partial(hf.solve_fode, t_span=(0.0, 1.0), y0=y0, alpha=0.5, step=1.0 / 256)
    assert solve(lambda t, y: -y, progress=lambda t, y: told.append(t)).success
    assert told[-1] == pytest.approx(1.0) and len(told) > 2

    def interrupted(t: float, y: Any) -> Any:
        if t > 0.6:
            raise KeyboardInterrupt
        return -y

    found = part_of(lambda: solve(interrupted, t_eval=[0.0, 0.25, 1.0]))
    assert not found.success and "Interrupted" in found.message and found.t.tolist() == [0.0, 0.25]
    assert found.y.shape == (1, 2)
    with hf.use_backend("numpy"), pytest.raises(InvalidInputError, match="was requested"):
        solve(lambda t, y: -y)
    with pytest.raises(ShapeError, match="no array of torch"):
        solve(lambda t, y: np.zeros(1))
    with pytest.raises(InvalidInputError, match="in place"):
        solve(lambda t, y: y.mul_(-1.0))


def test_a_default_step_is_not_the_whole_interval():
    """``fdeint`` with two times, as users of neural equations write it, takes more than one step."""
    found = hf.fdeint(lambda t, y: -y, torch.ones(1, dtype=torch.float64), torch.tensor([0.0, 1.0]), 0.5)
    assert abs(float(found[-1, 0]) - mittag_leffler(-1.0, 0.5)) < 1e-3


def test_evaluations_at_one_time_share_it():
    """Unless the function changes it, which no other evaluation sees."""
    times: list[Any] = []

    def fun(t: Any, y: Any) -> Any:
        times.append(t)
        return t - y

    def changing(t: Any, y: Any) -> Any:
        return t.add_(1.0) - 1.0 - y

    y0 = torch.ones(2, dtype=torch.float64)
    wanted, found = (hf.solve_fode(each, (0.0, 1.0), y0, 0.7, step=0.25, method="pece") for each in (fun, changing))
    assert len({id(each) for each in times}) < len(times)
    torch.testing.assert_close(found.y, wanted.y)
