"""Functions that ``torch.compile`` and ``torch.export`` keep as one operation.

The engine chooses an algorithm when a call runs. So compilers must not look inside: a trace would freeze one choice.
``hpfracc::apply`` is one operation of PyTorch for all such functions, with its shapes and its derivative. A program
that was saved by ``torch.export.save`` needs ``import hpfracc.ml.torch.opaque`` before it is loaded.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from hpfracc._reading import shown
from hpfracc.errors import InvalidInputError

__all__ = ["opaque"]

#: A function of tensors and of plain values: numbers, strings, None and tuples of them.
Function = Callable[..., Sequence[Tensor]]


#: Functions and their shapes, by module and name.
_known: dict[str, tuple[Function, Function]] = {}


def opaque(shapes: Function) -> Callable[[Function], Function]:
    """Make ``function(tensors, *options)``, which returns a sequence of tensors, one operation for compilers.

    Parameters
    ----------
    shapes : callable
        Called with the same arguments while PyTorch traces; returns empty tensors like the results, contiguous.
    """

    def wrap(function: Function) -> Function:
        name = f"{function.__module__}:{function.__qualname__}"
        _known[name] = function, shapes

        @functools.wraps(function)
        def call(tensors: list[Tensor], *options: Any) -> Sequence[Tensor]:
            if torch.jit.is_tracing():
                raise InvalidInputError(
                    "torch.jit.trace would freeze the algorithm and the sizes of this call; use torch.export.export, "
                    "or torch.compile"
                )
            if torch.compiler.is_compiling():
                found: Sequence[Tensor] = torch.ops.hpfracc.apply(name, tensors, repr(options))
                return found
            return function(tensors, *options)

        return call

    return wrap


def _find(name: str) -> tuple[Function, Function]:
    """A function by its name, which a saved program contains.

    Its module is imported if it is one of this package; the file of a program must not choose what else is imported.
    """
    known: dict[str, tuple[Function, Function]] = sys.modules[__name__]._known
    module = name.partition(":")[0]
    if name not in known and module.startswith(f"{__package__}."):
        with contextlib.suppress(ImportError):  # no module of that name: refused below
            importlib.import_module(module)
    if name not in known:
        raise InvalidInputError(
            f"the program names {shown(name)}, which is no operation of hpfracc; load files that you trust, with the "
            "version that wrote them"
        )
    return known[name]


def _apply(name: str, tensors: list[Tensor], options: str) -> list[Tensor]:
    made = _find(name)[0](tensors, *ast.literal_eval(options))
    taken = {each.untyped_storage().data_ptr() for each in tensors}
    # An operation returns no view of its operands.
    return [each.clone() if each.untyped_storage().data_ptr() in taken else each.contiguous() for each in made]


def _shapes(name: str, tensors: list[Tensor], options: str) -> list[Tensor]:
    return list(_find(name)[1](tensors, *ast.literal_eval(options)))


def _derivatives(
    name: str, tensors: Sequence[Tensor], slopes: Sequence[Tensor], wanted: Sequence[int], options: str,
    graph: bool = False,
) -> list[Tensor]:  # fmt: skip
    """The gradients in the ``wanted`` tensors."""
    inputs = list(tensors) if graph else [each.detach().requires_grad_(i in wanted) for i, each in enumerate(tensors)]
    with torch.enable_grad():
        made = _find(name)[0](inputs, *ast.literal_eval(options))
    pairs = [(each, slope) for each, slope in zip(made, slopes, strict=True) if each.requires_grad]
    results, given = [each for each, _ in pairs], [slope for _, slope in pairs]
    found = torch.autograd.grad(
        results, [inputs[i] for i in wanted], given, create_graph=graph, allow_unused=True, materialize_grads=True
    )
    return [each.contiguous() for each in found]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.name, tensors, ctx.options = inputs
    ctx.wanted = [i for i, each in enumerate(tensors) if each.requires_grad]
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, slopes: list[Tensor]) -> tuple[None, list[Tensor | None], None]:
    tensors = list(ctx.saved_tensors)
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # a derivative that is differentiated again
        found = _derivatives(ctx.name, tensors, slopes, ctx.wanted, ctx.options, graph=True)
    else:
        found = torch.ops.hpfracc.apply_backward(ctx.name, tensors, list(slopes), ctx.wanted, ctx.options)
    gradients: list[Tensor | None] = [None] * len(tensors)
    for i, each in zip(ctx.wanted, found, strict=True):
        gradients[i] = each
    return None, gradients, None


def _over_batch(info: Any, in_dims: tuple[Any, ...], name: str, tensors: list[Tensor], options: str) -> Any:
    """The rule for ``vmap``: one call for each element."""
    unbound = [
        [each] * info.batch_size if dim is None else each.unbind(dim)
        for each, dim in zip(tensors, in_dims[1], strict=True)
    ]
    rows = [torch.ops.hpfracc.apply(name, list(row), options) for row in zip(*unbound, strict=True)]
    made = [torch.stack(column) for column in zip(*rows, strict=True)]
    return made, [0] * len(made)


if not hasattr(torch.ops.hpfracc, "apply"):
    torch.library.define("hpfracc::apply", "(str name, Tensor[] tensors, str options) -> Tensor[]")
    torch.library.define(
        "hpfracc::apply_backward",
        "(str name, Tensor[] tensors, Tensor[] slopes, int[] wanted, str options) -> Tensor[]",
    )
    torch.library.impl("hpfracc::apply", "CompositeExplicitAutograd")(_apply)
    torch.library.impl("hpfracc::apply_backward", "CompositeExplicitAutograd")(_derivatives)
    torch.library.register_fake("hpfracc::apply", _shapes)
    torch.library.register_fake(
        "hpfracc::apply_backward",
        lambda name, tensors, slopes, wanted, options: [
            torch.empty_like(tensors[i], memory_format=torch.contiguous_format) for i in wanted
        ],
    )
    torch.library.register_autograd("hpfracc::apply", _backward, setup_context=_keep)
    torch.library.register_vmap("hpfracc::apply", _over_batch)
