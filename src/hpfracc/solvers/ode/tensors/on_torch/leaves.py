"""The tensors that a right-hand side depends on besides the state, found in its graph.

The transposed steps evaluate the function again and accumulate gradients with respect to these tensors. So it must
return the same values at each call, and must not use a tensor that was computed outside it, because that graph would be
freed after the first step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hpfracc.errors import InvalidInputError

__all__ = ["find_leaves"]

Function = Callable[[Any, torch.Tensor], torch.Tensor]


def find_leaves(fun: Function, t0: float, y0: torch.Tensor, known: list[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors besides y with a gradient from ``fun``: ``known``, and captured parameters.

    Raises
    ------
    InvalidInputError
        If it uses a tensor that was computed outside it, or random numbers.
    """
    generator = torch.get_rng_state()
    with torch.enable_grad():
        place = y0.detach().requires_grad_()
        values = [fun(t0, place) for _ in range(2)]
    if not torch.equal(generator, torch.get_rng_state()) or not _same(values):
        raise InvalidInputError(
            "func returns other values when called again (Dropout?), and adjoint='stored' evaluates it in "
            "the backward pass too; use adjoint='recomputed', or func.eval()"
        )
    ends = [each.grad_fn for each in known if each.grad_fn is not None]  # keeps them alive, so that ids stay valid
    stops = {id(each) for each in ends}
    found: list[torch.Tensor] = [each for each in known if each.requires_grad]
    graphs = [_graph(value, stops) for value in values]
    shared = {id(node): node for node in graphs[0]}.keys() & {id(node) for node in graphs[1]}
    for node in graphs[0]:
        variable = getattr(node, "variable", None)
        if variable is not None:
            if variable is not place and not any(variable is each for each in found):
                found.append(variable)
        elif id(node) in shared and id(node) not in stops:
            raise InvalidInputError(
                f"func uses a tensor that was computed outside it ({type(node).__name__}); pass it in args, or "
                "use adjoint='recomputed'"
            )
    return found


def _same(values: list[torch.Tensor]) -> bool:
    one, two = (each.detach() for each in values)
    return bool(torch.allclose(one, two, rtol=1e-6, atol=1e-6 * float(one.abs().max() + 1e-30), equal_nan=True))


def _graph(value: torch.Tensor, stops: set[int]) -> list[Any]:
    """The nodes of the graph of a value, up to ``stops``."""
    todo, seen, nodes = [value.grad_fn], set[int](), list[Any]()
    while todo:
        node = todo.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        nodes.append(node)
        if id(node) not in stops:
            todo += [each for each, _ in node.next_functions]
    return nodes
