"""Every layer of PyTorch in use: replicas in threads, compiled, and given arrays of another library."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpfracc.ml as ml
from hpfracc.errors import InvalidInputError

torch = pytest.importorskip("torch")

from tests.ml.test_layers import LAYERS, learned, made, output  # noqa: E402  (imports PyTorch)


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


def check_compiled(name: str, order: Any) -> None:
    """One graph, with the same answers and gradients."""
    torch.compiler.reset()
    layer, x = made(name, order)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    x.requires_grad_()
    found, right = output(compiled, x), output(layer, x)
    torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-12)
    variables = [x, *layer.parameters()]
    one, other = (torch.autograd.grad((each.abs() ** 2).sum(), variables) for each in (found, right))
    torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)


def check_exported(name: str, order: Any) -> None:
    """A program that was saved and loaded gives the answers of the layer."""
    layer, x = made(name, order)
    file = io.BytesIO()
    torch.export.save(torch.export.export(layer, (x,)), file)
    file.seek(0)
    program = torch.export.load(file).module()
    torch.testing.assert_close(output(program, 2.0 * x), output(layer, 2.0 * x), rtol=1e-12, atol=1e-12)


def test_a_layer_is_one_operation_of_a_graph():
    """The engine is not traced: the graph has one node for it, which chooses when it runs."""
    check_compiled("derivative", learned(0.4))
    check_exported("derivative", 0.4)
    layer, x = made("derivative", 0.4)
    graph = torch.export.export(layer, (x,)).graph
    assert next(str(node.target) for node in graph.nodes if node.op == "call_function") == "hpfracc.apply.default"


@pytest.mark.slow
@pytest.mark.parametrize("order", ["plain", "learned"])
@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_compiles_and_exports(name: str, order: str):
    check_compiled(name, 0.4 if order == "plain" else learned(0.4))
    check_exported(name, 0.4 if order == "plain" else learned(0.4))


def test_an_exported_layer_has_further_derivatives_and_any_length():
    layer = ml.FractionalDerivative(0.4)
    sizes = ({0: torch.export.Dim("rows"), 1: torch.export.Dim("points")},)
    program = torch.export.export(layer, (torch.randn(3, 9, dtype=torch.float64),), dynamic_shapes=sizes).module()
    x = torch.randn(2, 14, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(program(x), layer(x))
    assert torch.autograd.gradgradcheck(lambda x: program(x) ** 2, (x,), fast_mode=True)


@pytest.mark.parametrize(
    "name", ["unknown_module:run", "hpfracc:grid", "hpfracc.__main__:main", "hpfracc.ml.torch.no:f"]
)
def test_a_program_names_no_code_but_ours(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A saved program cannot have a module imported that is not one of these layers."""
    (tmp_path / "unknown_module.py").write_text("from pathlib import Path\nPath(__file__).with_name('ran').touch()\n")
    monkeypatch.syspath_prepend(tmp_path)
    for operands in (torch.ones(3), torch.ones(3, device="meta")):
        with pytest.raises(InvalidInputError, match="no operation of hpfracc"):
            torch.ops.hpfracc.apply(name, [operands], "()")
    assert not (tmp_path / "ran").exists()


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
