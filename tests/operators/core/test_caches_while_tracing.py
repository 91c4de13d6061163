"""No cache keeps an array that belongs to a trace, a transform, inference mode or a graph."""

from __future__ import annotations

import functools
import gc
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc._arrays import may_be_cached
from hpfracc._config import get_settings
from hpfracc.engine.execution.prepared import prepared_operands
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.errors import AllBackendsFailedError

_LRU = type(functools.lru_cache(lambda: None))
_LEAVES = (types.ModuleType, types.CodeType, np.ndarray, str, bytes, int, float, complex, type(None))
N = 33


def _inside(value: Any) -> list[Any]:
    """What an object of this package, a container or a cache refers to."""
    if isinstance(value, type):
        return list(vars(value).values()) if value.__module__.startswith("hpfracc") else []
    if isinstance(value, types.FunctionType):
        if not (value.__module__ or "").startswith("hpfracc"):
            return []
        return [*(value.__closure__ or ()), *vars(value).values()]
    containers = (dict, list, tuple, set, frozenset, Mapping, types.CellType, functools.partial, _LRU)
    own = type(value).__module__.startswith("hpfracc")
    return gc.get_referents(value) if own or isinstance(value, containers) else []


def kept_arrays() -> Iterator[tuple[str, Any]]:
    """Arrays of PyTorch and JAX that are reachable from the modules of this package, with the name they start from."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    kinds = tuple(
        kind for kind in (getattr(torch, "Tensor", None), getattr(getattr(jax, "core", None), "Tracer", None)) if kind
    )
    waiting = [
        (f"{name}.{key}", value)
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "hpfracc"
        for key, value in list(vars(module).items())
    ]
    seen: set[int] = set()
    while waiting:
        name, value = waiting.pop()
        if id(value) in seen or isinstance(value, _LEAVES):
            continue
        seen.add(id(value))
        if isinstance(value, kinds):
            yield name, value
        else:
            waiting += [(name, each) for each in _inside(value)]


def check_caches() -> int:
    """Number of arrays kept; fails if one of them cannot be used any more."""
    arrays = list(kept_arrays())
    assert [name for name, array in arrays if not may_be_cached(array)] == []
    return len(arrays)


CALLS: dict[str, Callable[[Any], Any]] = {
    "grunwald_letnikov": lambda x: hf.grunwald_letnikov(x, step=0.5, alpha=0.4),
    "caputo": lambda x: hf.caputo(x, step=0.5, alpha=0.4),
    "riemann_liouville_integral": lambda x: hf.riemann_liouville_integral(x, step=0.5, alpha=0.4),
    "fast": lambda x: hf.caputo(x, step=0.5, alpha=0.4, method="fast"),
    "fractional_difference": lambda x: hf.fractional_difference(x, 0.4),
    "riesz": lambda x: hf.riesz(x, step=0.5, alpha=0.4),
    "frft": lambda x: hf.frft(x, 0.4),
    "frft by eigenvectors": lambda x: hf.frft(x, 0.4, method="eigen"),
}


def _learned(x: Any) -> Any:
    torch = sys.modules["torch"]
    return hf.caputo(x, step=0.5, alpha=torch.tensor(0.4, dtype=torch.float64))


def _torch_modes() -> dict[str, Callable[[Callable[[Any], Any], Any], Any]]:
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    fake = pytest.importorskip("torch._subclasses.fake_tensor")

    class Module(torch.nn.Module):
        def __init__(self, function: Callable[[Any], Any]) -> None:
            super().__init__()
            self.function = function

        def forward(self, x: Any) -> Any:
            return self.function(x)

    def in_fake_mode(function: Callable[[Any], Any], x: Any) -> None:
        with fake.FakeTensorMode() as mode:
            function(mode.from_tensor(x))

    def in_inference_mode(function: Callable[[Any], Any], x: Any) -> None:
        with torch.inference_mode():
            function(x.clone())

    return {
        "export": lambda function, x: torch.export.export(Module(function), (x,)),
        "fake tensors": in_fake_mode,
        "inference mode": in_inference_mode,
        "make_fx": lambda function, x: make_fx(lambda y: function(y), tracing_mode="fake")(x),
        "vmap": lambda function, x: torch.func.vmap(function)(x),
        "grad": lambda function, x: torch.func.grad(lambda y: function(y).abs().sum())(x),
        "jvp": lambda function, x: torch.func.jvp(function, (x,), (x,)),
        "functionalize": lambda function, x: torch.func.functionalize(function)(x),
    }


def _check_after(modes: Mapping[str, Callable[..., Any]], name: str) -> None:
    """After each mode the eager result is that of NumPy, and all caches are sound in the end."""
    import torch

    function = CALLS.get(name, _learned)
    x = torch.tensor(np.random.default_rng(1).standard_normal((2, N)), dtype=torch.float32)
    expected = CALLS["caputo" if name == "learned order" else name](x.double().numpy())
    for mode, run in modes.items():
        run(function, x)
        np.testing.assert_allclose(function(x).numpy(), expected, rtol=0, atol=2e-5, err_msg=mode)
        prepared_operands.clear()  # the next mode is the first again
        run(function, x)
    check_caches()


@pytest.mark.parametrize("name", ["grunwald_letnikov", "learned order"])
def test_no_cache_keeps_what_torch_makes_while_it_traces(name: str) -> None:
    pytest.importorskip("torch")
    modes = _torch_modes()
    if name != "grunwald_letnikov":
        del modes["export"]  # the same tensors, in seconds
    _check_after(modes, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*CALLS, "learned order"} - {"grunwald_letnikov"}))
def test_no_cache_keeps_what_torch_makes_while_it_traces_any_operator(name: str) -> None:
    pytest.importorskip("torch")
    _check_after(_torch_modes(), name)


@pytest.mark.parametrize(
    "name",
    [each if each == "grunwald_letnikov" else pytest.param(each, marks=pytest.mark.slow) for each in CALLS],
)
def test_no_cache_keeps_a_tracer_of_jax(name: str) -> None:
    jax = pytest.importorskip("jax")
    function = CALLS[name]
    x = jax.numpy.asarray(np.random.default_rng(1).standard_normal((2, N)), dtype="float32")
    for run in (jax.jit(function), jax.vmap(function), jax.grad(lambda y: abs(function(y)).sum())):
        run(x)
    jax.eval_shape(function, x)
    check_caches()
    expected = function(np.asarray(x, np.float64))
    np.testing.assert_allclose(np.asarray(function(x)), expected, rtol=0, atol=2e-5)


def test_a_failure_while_torch_traces_is_no_failure_of_its_arm() -> None:
    """A kernel that reads values cannot be traced; eager calls still use it."""
    torch = pytest.importorskip("torch")
    fake = pytest.importorskip("torch._subclasses.fake_tensor")
    x = -torch.linspace(0.0, 3.0, 17)
    with fake.FakeTensorMode() as mode:
        for _ in range(5):
            with pytest.raises(AllBackendsFailedError, match="torch:contour"):
                hf.mittag_leffler(mode.from_tensor(x), 0.6)
    assert knowledge_for(get_settings()).breaker.allows(("mittag_leffler", "torch:contour@cpu")) is None
    hf.mittag_leffler(x.requires_grad_(), 0.6)
    assert hf.last_decision().arm == "torch:contour@cpu"
