"""Every layer of PyTorch in use: replicas in threads, compiled, and given arrays of another library."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import hpfracc.ml as ml
from hpfracc.errors import InvalidInputError
from tests.ml.test_layers import LAYERS, learned, made, output

torch = pytest.importorskip("torch")


def replica(module: Any) -> Any:
    """A replica as ``DataParallel`` makes it: parameters are attributes, tensors with the graph of a copy."""
    found = module._replicate_for_data_parallel()
    for name, child in module.named_children():
        found._modules[name] = replica(child)
    for name, each in module._parameters.items():
        if each is None:  # such as no bias
            found._parameters[name] = None
        else:
            setattr(found, name, each.clone())
    for name, each in module._buffers.items():
        found._buffers[name] = None if each is None else each.clone()
    return found


@pytest.mark.parametrize("name", LAYERS)
def test_replicas_in_threads(name: str):
    """Answers and gradients of two replicas are those of the layer."""
    layer, x = made(name, learned(0.4))
    found: dict[int, Any] = {}

    def run(number: int, own: Any) -> None:
        found[number] = output(own, (number + 1.0) * x)

    threads = [threading.Thread(target=run, args=(number, replica(layer))) for number in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    parameters = list(layer.parameters())
    right = [output(layer, (number + 1.0) * x) for number in range(2)]
    slopes = torch.autograd.grad(sum((each.abs() ** 2).sum() for each in right), parameters)
    own = torch.autograd.grad(sum((found[number].abs() ** 2).sum() for number in range(2)), parameters)
    for number in range(2):
        torch.testing.assert_close(found[number], right[number], rtol=1e-11, atol=1e-11)
    for one, other in zip(own, slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", LAYERS)
def test_arrays_of_another_library_are_refused(name: str):
    """By a sentence that says what to do."""
    layer, x = made(name, 0.4)
    with pytest.raises(InvalidInputError, match=r"takes a torch tensor, not ndarray.*hpfracc\.ml\.jax"):
        layer(np.asarray(x))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_compiles(name: str):
    """``torch.compile`` gives the same answers and the same gradient in the order."""
    torch.compiler.reset()
    layer, x = made(name, learned(0.4))
    compiled = torch.compile(layer, backend="eager")
    found, right = output(compiled, x), output(layer, x)
    torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-12)
    rho = next(value for key, value in layer.named_parameters() if key.endswith("rho"))
    one, other = (torch.autograd.grad((each.abs() ** 2).sum(), rho)[0] for each in (found, right))
    torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)


def test_deterministic_algorithms_of_torch_fix_the_choices():
    """The engine tries no other arm while ``torch.use_deterministic_algorithms`` is on: one result to the bit."""
    torch.manual_seed(0)
    x = torch.randn(3, 64)
    layer = ml.FractionalDerivative(0.4)
    torch.use_deterministic_algorithms(True)
    try:
        results = {layer(x).numpy().tobytes() for _ in range(120)}
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(results) == 1
