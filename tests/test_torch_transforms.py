"""What torch.func and forward mode do to a tensor is seen, inside and outside of them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.autograd import forward_ad  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from hpfracc import _torch_transforms as transforms  # noqa: E402
from hpfracc._arrays import quick_kind  # noqa: E402


def facts(x: Any) -> tuple[bool, ...]:
    """Wrapped, inside, inactive, dual, batched; and as the probes see the first ones."""
    is_wrapped, innermost, level, deterministic = transforms.PROBES or transforms.find_probes()
    assert deterministic() == transforms.is_deterministic()
    assert bool(is_wrapped(x)) == transforms.is_wrapped(x)
    assert (innermost() is not None) == transforms.is_inside()
    assert transforms.is_inactive() == (innermost() is None and level() < 0)
    return (
        transforms.is_wrapped(x),
        transforms.is_inside(),
        transforms.is_inactive(),
        transforms.is_dual(x),
        transforms.is_batched(x),
    )


@pytest.mark.parametrize("transform", ["grad", "vmap", "jvp"])
def test_inside_of_torch_func(transform: str):
    """The operand is wrapped, another tensor is not, and the level ends with the transform."""
    seen: list[tuple[bool, ...]] = []
    other = torch.ones(3)

    def function(x: Any) -> Any:
        seen.extend([facts(x)[:3], facts(other)[:3]])
        return (x * x).sum()

    x = torch.ones(3)
    if transform == "grad":
        torch.func.grad(function)(x)
    elif transform == "vmap":
        torch.func.vmap(function)(torch.ones(2, 3))
    else:
        torch.func.jvp(function, (x,), (x,))
    assert seen == [(True, True, False), (False, True, False)]
    assert facts(x)[:3] == (False, False, True)


def test_wrappers_of_gradients_are_removed():
    """All levels of grad; one of vmap remains. While transforms are suspended, results are not wrapped."""
    seen: list[Any] = []

    def function(x: Any) -> Any:
        inner = transforms.without_gradients(x)
        assert not transforms.is_wrapped(inner)
        assert transforms.is_wrapped(torch.ones(2) * inner)
        with transforms.outside_transforms():
            assert not transforms.is_wrapped(torch.ones(2) * inner)
            seen.append(inner.detach().tolist())
        return x * x * x

    torch.func.grad(torch.func.grad(function))(torch.tensor(2.0))
    assert seen == [2.0]

    def mapped(x: Any) -> Any:
        assert transforms.is_wrapped(transforms.without_gradients(x))
        return x

    torch.func.vmap(mapped)(torch.ones(2))


def test_forward_mode():
    """A dual tensor, and a plain one beside it."""
    x = torch.ones(3)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones(3))
        assert facts(dual) == (False, False, False, True, False)
        assert facts(x) == (False, False, False, False, False)
        assert transforms.tensor_pair(x, x) is None
    assert not transforms.is_dual(x)


def test_gradients_in_batches():
    """``is_grads_batched`` wraps the slopes by the older vmap."""
    seen: list[bool] = []

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, slope: Any) -> Any:
            seen.append(transforms.is_batched(slope))
            return 2 * slope

    x = torch.ones(3, requires_grad=True)
    y = Double.apply(x)
    torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True, retain_graph=True)
    torch.autograd.grad(y, x, torch.ones(3))
    assert seen == [True, False]


def test_tensors_of_a_trace():
    """A fake tensor has no values, and lasts no longer than its mode."""
    fake = pytest.importorskip("torch._subclasses.fake_tensor")
    x = torch.ones(3)
    assert transforms.is_lasting(x)
    assert not (transforms.is_symbolic(x) or transforms.is_tracing())
    with fake.FakeTensorMode() as mode:
        assert transforms.is_tracing()
        assert transforms.is_symbolic(mode.from_tensor(x))
        assert transforms.is_symbolic(torch.ones(3))
        assert not transforms.is_lasting(mode.from_tensor(x))
    with torch.inference_mode():
        assert not transforms.is_lasting(torch.ones(3))
    assert not transforms.is_lasting(torch.ones(3, requires_grad=True))
    with FlopCounterMode(display=False):  # a mode that only looks on
        assert not transforms.is_tracing()


def test_the_deterministic_mode_is_part_of_the_kind_of_a_tensor():
    x = torch.ones(3)
    before = quick_kind(x), transforms.tensor_pair(x, x)
    torch.use_deterministic_algorithms(True)
    try:
        assert transforms.is_deterministic()
        assert quick_kind(x) != before[0]
        assert transforms.tensor_pair(x, x) != before[1]
    finally:
        torch.use_deterministic_algorithms(False)
