"""Neural fractional equations in JAX: the gradient of PyTorch, three adjoints that are one, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hpfracc.errors import InvalidInputError, PinnedBackendError, ShapeError

jax = pytest.importorskip("jax")
from hpfracc.ml.jax import NeuralFODE  # noqa: E402

START = np.array([[0.3, -0.2], [1.0, 0.1]])
MATRIX = np.array([[0.4, -0.7], [0.6, 0.2]])
TIMES = np.linspace(0.0, 1.5, 4)
Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def func(t: Any, y: Any, p: Any) -> Any:
    return jax.numpy.tanh(y @ p["w"]) * p["s"] + jax.numpy.sin(t)


def gradients(adjoint: str, method: str, alpha: Any, steps: int, above: bool = False) -> list[Any]:
    def loss(y0: Any, alpha: Any, p: Any, slope: Any) -> Any:
        model = NeuralFODE(func, alpha, method, 1.5 / steps, adjoint)
        y = model(y0, TIMES, args=(p,), dy0=[slope] if above else None)
        return (y**2 * jax.numpy.arange(1, 5).reshape(4, 1, 1)).sum()

    p = {"w": jax.numpy.asarray(MATRIX), "s": jax.numpy.asarray(0.7)}
    given = (jax.numpy.asarray(START), jax.numpy.asarray(alpha), p, jax.numpy.full((2, 2), 0.2))
    return [np.asarray(each) for each in jax.tree.leaves(jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)))(*given))]


def test_the_gradient_is_that_of_torch():
    """In initial values, order and parameters, to 1e-11; the step sizes and the network are the same."""
    torch = pytest.importorskip("torch")
    from hpfracc.ml import NeuralFODE as OfTorch

    found = gradients("stored", "pece", 0.6, 30)
    y0, w = (torch.tensor(each, requires_grad=True) for each in (START, MATRIX))
    s, order = (torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in (0.7, 0.6))
    model = OfTorch(
        lambda t, y, w, s: torch.tanh(y @ w) * s + torch.sin(torch.as_tensor(t, dtype=torch.float64)),
        torch.nn.Parameter(order.detach()), step=0.05,
    )  # fmt: skip
    y = model(y0, TIMES, args=(w, s))
    loss = (y**2 * torch.arange(1, 5).reshape(4, 1, 1)).sum()
    wanted = torch.autograd.grad(loss, [y0, model.alpha, s, w])
    for one, other in zip(found, wanted, strict=False):  # the last is that of the initial slope, which is not used
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-11, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["pece", "explicit_rectangle", "implicit_trapezoid", "implicit_rectangle"])
@pytest.mark.parametrize(("alpha", "above"), [(0.6, False), ([0.5, 0.9], False), (1.5, True)])
def test_three_adjoints_are_one(method: str, alpha: Any, above: bool):
    """Stored, recomputed and plain automatic differentiation to 1e-10, over more steps than a block has."""
    steps = 90 if alpha == 0.6 else 20
    found = {each: gradients(each, method, alpha, steps, above) for each in ("direct", "recomputed", "stored")}
    for each in ("recomputed", "stored"):
        for one, other in zip(found["direct"], found[each], strict=True):
            assert np.abs(one - other).max() <= 1e-10 * max(1.0, np.abs(one).max()), each


def test_it_is_a_pytree():
    """Arrays of a function that is a pytree, and the order, are leaves; the rest is static."""

    @jax.tree_util.register_pytree_node_class
    class Scale:
        def __init__(self, value: Any) -> None:
            self.value = value

        def __call__(self, t: Any, y: Any) -> Any:
            return self.value * y

        def tree_flatten(self) -> Any:
            return (self.value,), None

        @classmethod
        def tree_unflatten(cls, _: Any, children: Any) -> Any:
            return cls(*children)

    model = NeuralFODE(Scale(-1.0), 0.6, step=0.1)
    leaves, tree = jax.tree_util.tree_flatten(model)
    assert leaves == [-1.0, 0.6]
    assert jax.tree_util.tree_unflatten(tree, leaves).step == 0.1
    plain = NeuralFODE(func, 0.6, step=0.1)
    assert jax.tree_util.tree_leaves(plain) == [0.6]


def test_bad_input():
    """Typed errors with the remedy."""
    y0 = jax.numpy.ones(1)
    cases: list[tuple[type[Exception], str, Any]] = [
        (InvalidInputError, "adjoint", lambda: NeuralFODE(func, 0.5, step=0.1, adjoint="continuous")),
        (InvalidInputError, "give step", lambda: NeuralFODE(func, 0.5, "implicit_trapezoid")),
        (InvalidInputError, "cannot be called", lambda: NeuralFODE(3, 0.5)),  # type: ignore[arg-type]
        (InvalidInputError, "not a JAX array", lambda: NeuralFODE(func, 0.5, step=0.1)([1.0], [0.0, 1.0])),
        (ShapeError, "must agree", lambda: NeuralFODE(func, 0.5, step=0.1)((jax.numpy.ones((2, 1)), y0), [0.0, 1.0])),
        (ShapeError, "orders", lambda: NeuralFODE(func, (0.5, 0.6), step=0.1)(y0, [0.0, 1.0])),
    ]
    for error, says, call in cases:
        with pytest.raises(error, match=says):
            call()
    torch = pytest.importorskip("torch")
    with pytest.raises(PinnedBackendError, match="PyTorch"):
        NeuralFODE(func, 0.5, step=0.1)(torch.ones(1), [0.0, 1.0])


def test_a_captured_parameter_says_what_to_do():
    """With the stored adjoint; the recomputed one reaches it, and both agree on an argument."""
    t, y0 = jax.numpy.linspace(0.0, 1.0, 3), jax.numpy.ones((2, 1))

    def captured(p, adjoint):
        return NeuralFODE(lambda t, y: -p * y, 0.6, step=0.1, adjoint=adjoint)(y0, t).sum()

    def given(p):
        return NeuralFODE(lambda t, y, p: -p * y, 0.6, step=0.1)(y0, t, (p,)).sum()

    with pytest.raises(InvalidInputError, match="func captures a value.*args.*adjoint='recomputed'"):
        jax.grad(captured)(1.5, "stored")
    assert float(jax.grad(captured)(1.5, "recomputed")) == pytest.approx(float(jax.grad(given)(1.5)), rel=1e-5)
