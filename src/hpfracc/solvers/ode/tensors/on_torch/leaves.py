"""The tensors that a right-hand side depends on besides the state, found in its graph.

The backward pass evaluates it again and adds up what each evaluation gives to them. Nothing that it sees may have been
computed outside it: that graph would be gone after the first evaluation. What is given through ``args`` is replaced by
copies that begin a graph of their own, so that two of them may depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hpfracc.errors import InvalidInputError

__all__ = ["Bind", "Leaves"]

Function = Callable[[Any, torch.Tensor], torch.Tensor]
#: ``bind(tensors)`` gives the function and its Jacobian with other tensors in place of those of ``args``.
Bind = Callable[[list[torch.Tensor]], tuple[Function, Function | None]]


class Leaves:
    """What the gradient of a function reaches besides y.

    Parameters
    ----------
    bind : callable
        Gives the function, and its Jacobian or None, with other tensors as ``args``.
    known : list of tensors
        Those of ``args``.
    t, y : float and tensor
        Where the function is evaluated to see its graph.
    another : float
        Another time.

    Attributes
    ----------
    own, jacobian : callables
        With copies of ``args``.
    fun : callable
        The same as ``own``; where it has branches, each evaluation without derivatives adds the tensors it depends on.
    seen : list of tensors
        Copies of ``args``, and parameters, that the function depends on.
    given : list of tensors
        The same tensors as the caller has them.
    arguments : int
        How many of them are of ``args``; they come first.
    outside : str or None
        A node of a graph that was made outside the function.
    random : bool
        Whether it gives other values when it is called a second time.
    """

    def __init__(self, bind: Bind, known: list[torch.Tensor], t: float, y: torch.Tensor, another: float) -> None:
        copies = [each.detach().requires_grad_() if each.requires_grad else each for each in known]
        self.own, self.jacobian = bind(copies)
        self._bind, self._known = bind, known
        self.given = [each for each in known if each.requires_grad]
        self.seen = [each for each in copies if each.requires_grad]
        self.arguments = len(self.seen)
        self.outside: str | None = None
        self._last: list[Any] = []
        devices = [y.device] if y.is_cuda else []
        with torch.random.fork_rng(devices=devices), torch.enable_grad():
            before = torch.get_rng_state()
            self._place = y.detach().requires_grad_()
            values = [self.own(t, self._place) for _ in range(2)]
            self.random = not torch.equal(before, torch.get_rng_state()) or not _same(values)
            for value in values:
                self._look(value)
            # A branch that depends on t cannot be mapped over it.
            self.fun: Function = self.own if self._can_be_mapped(t, another, y.detach()) else self._watched

    def rebound(self, given: list[torch.Tensor]) -> tuple[Function, Function | None]:
        """The function and its Jacobian with other tensors in place of ``given``, as far as those are of ``args``."""
        rest = iter(given)
        return self._bind([next(rest) if each.requires_grad else each for each in self._known])

    def check_stored(self) -> None:
        """Refuse what the transposed steps cannot evaluate again.

        Raises
        ------
        InvalidInputError
            Where the function sees a tensor that was computed outside it, or draws random numbers.
        """
        if self.random:
            raise InvalidInputError(
                "func returns other values when called again (Dropout?), and adjoint='stored' evaluates "
                "it in the backward pass too; use adjoint='recomputed', or func.eval()"
            )
        if self.outside is not None:
            raise InvalidInputError(
                f"func uses a tensor that was computed outside it ({self.outside}); pass it in args, or use "
                "adjoint='recomputed'"
            )

    def _watched(self, t: Any, y: torch.Tensor) -> torch.Tensor:
        """The function, whose graph is inspected in each evaluation: at another time it may depend on other tensors."""
        recorded = torch.is_grad_enabled()
        with torch.enable_grad():
            value = self.own(t, y)
        if not recorded:
            self._look(value)
            value = value.detach()
        return value

    def _look(self, value: torch.Tensor) -> None:
        nodes = _graph(value)
        before = {id(node) for node in self._last}
        for node in nodes:
            variable = getattr(node, "variable", None)
            if variable is not None:
                if variable is not self._place and not any(variable is each for each in self.seen):
                    self.seen.append(variable)
                    self.given.append(variable)
            elif id(node) in before:  # in the graphs of two evaluations
                self.outside = type(node).__name__
        self._last = nodes  # held, so that their ids stay theirs

    def _can_be_mapped(self, t: float, another: float, y: torch.Tensor) -> bool:
        try:
            with torch.no_grad():
                torch.func.vmap(self.own)(y.real.new_tensor([t, another]), torch.stack([y, y]))
        except Exception:
            # Whatever the user's function raises there.
            return False
        return True


def _same(values: list[torch.Tensor]) -> bool:
    one, two = (each.detach() for each in values)
    if not one.numel():
        return True
    tolerance = min(1e-6, 1e3 * torch.finfo(one.dtype).eps)  # sums may be taken in another order
    return bool(
        torch.allclose(one, two, rtol=tolerance, atol=tolerance * float(one.abs().max() + 1e-30), equal_nan=True)
    )


def _graph(value: torch.Tensor) -> list[Any]:
    """The nodes of the graph of a value."""
    todo, seen, nodes = [value.grad_fn], set[int](), list[Any]()
    while todo:
        node = todo.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        nodes.append(node)
        todo += [each for each, _ in node.next_functions]
    return nodes
