"""Gradients of fixed steps on tensors by the transposed steps, from stored states.

The backward pass evaluates the right-hand side again, and adds up what each evaluation gives to the tensors that it
depends on besides the state. They are found in its graph. Nothing that it sees may have been computed outside it: that
graph would be gone after the first evaluation. What is given through ``args`` is replaced by copies that begin a graph
of their own, so that two of them may depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode.tensors.blocks import PLAIN, Loop, System, Trajectory, solve_forward
from hpfracc.solvers.ode.tensors.on_torch.buffers import Buffers
from hpfracc.solvers.ode.tensors.on_torch.pulls import CoupledMembersError, TensorPulls
from hpfracc.solvers.ode.tensors.transpose import transpose

__all__ = ["Bind", "Leaves", "solve_stored", "tensors_in", "with_tensors"]

Function = Callable[[Any, torch.Tensor], torch.Tensor]
#: ``bind(tensors)`` gives the function and its Jacobian with other tensors in place of those of ``args``.
Bind = Callable[[list[torch.Tensor]], tuple[Function, Function | None]]


def tensors_in(values: Any) -> list[torch.Tensor]:
    """Tensors in nested tuples, lists and dictionaries."""
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, dict):
        values = tuple(values.values())
    return [one for each in values for one in tensors_in(each)] if isinstance(values, list | tuple) else []


def with_tensors(values: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """The same nested values with other tensors, in the order of :func:`tensors_in`."""
    if isinstance(values, torch.Tensor):
        return next(tensors)
    if isinstance(values, dict):
        return type(values)((key, with_tensors(each, tensors)) for key, each in values.items())
    if isinstance(values, list | tuple):
        found = [with_tensors(each, tensors) for each in values]
        return type(values)(*found) if hasattr(values, "_fields") else type(values)(found)
    return values


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
        Another time, to see whether it can be evaluated at several points at once.

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
    mapped : bool
        Whether ``torch.func.vmap`` over times and states gives its values.
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
            self.mapped = self._can_be_mapped([t, another], torch.stack([y, y]).detach())
            # A branch that depends on t cannot be mapped over it.
            self.fun: Function = self.own if self.mapped else self._watched

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

    def _can_be_mapped(self, times: list[float], states: torch.Tensor) -> bool:
        try:
            with torch.no_grad():
                together = torch.func.vmap(self.own)(states.real.new_tensor(times), states)
                apart = torch.stack([self.own(t, y) for t, y in zip(times, states, strict=True)])
        except Exception:
            # Any error of the user's function: it works step by step.
            return False
        return _same([together, apart])


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


def solve_stored(system: System, f0: torch.Tensor, leaves: Leaves, buffers: Buffers, loop: Loop) -> torch.Tensor:
    """The states and points are kept, and the steps transposed in the backward pass."""
    _, rule, grid, initial, sums = system
    if initial[0].is_complex():
        raise InvalidInputError("adjoint='stored' takes real states; use adjoint='recomputed' for complex ones")
    leaves.check_stored()
    with torch.no_grad():
        found = solve_forward(system, (leaves.fun, leaves.jacobian), f0, keep=True, loop=loop)
    leaves.check_stored()  # of all steps now
    system = system._replace(grid=grid._replace(steps=found.states.shape[0] - 1))

    count = len(tensors_in((initial, sums)))
    changed = count + leaves.arguments

    def differentiable(own: Sequence[torch.Tensor], grad: torch.Tensor, needed: Sequence[bool]) -> list[Any]:
        """Gradients as functions of ``own``: those of the whole, run again with a graph."""
        with torch.enable_grad():
            # Views begin a graph of their own, so that two tensors may depend on each other. The tensors after them are
            # captured by the function itself.
            sources = [each.view_as(each) if each.requires_grad else each for each in own[:changed]] + [*own[changed:]]
            functions, part = leaves.rebound(sources[count:changed]), _with(system, sources[:count])
            f0 = torch.zeros_like(part.initial[0]) if rule.starts_blind else functions[0](grid.t0, part.initial[0])
            states = solve_forward(part, functions, f0, tracked=True, loop=loop._replace(report=PLAIN.report)).states
        places = [place for place, asked in enumerate(needed) if asked]
        inputs = [sources[place] for place in places]
        found = torch.autograd.grad(states, inputs, grad, create_graph=True, allow_unused=True)
        by_place = dict(zip(places, found, strict=True))
        return [by_place.get(place) for place in range(len(needed))]

    def gradients(
        own: Sequence[torch.Tensor], found: Trajectory, grad: torch.Tensor, needed: Sequence[bool]
    ) -> list[Any]:
        with buffers.unchanged():
            if torch.is_grad_enabled():
                return differentiable(own, grad, needed)
            part, wanted = _with(system, own[:count]), any(needed[len(initial) : count])
            for matrices in (not rule.implicit, False):
                pulls = TensorPulls(leaves.own, leaves.seen, system.grid, found, leaves.mapped, matrices)
                try:
                    starts, made, _ = transpose(
                        part, (leaves.own, leaves.jacobian), pulls.pull, found, grad, None, wanted, pulls.prepare
                    )
                except CoupledMembersError:
                    continue
                break
        weights = [None] * (count - len(initial)) if made is None else tensors_in(made)
        return [*starts, *weights, *pulls.totals]

    states: torch.Tensor = _Stored.apply(gradients, found, *tensors_in((initial, sums)), *leaves.given)
    return states


def _with(system: System, tensors: Sequence[torch.Tensor]) -> System:
    """The same with other tensors as initial values and weights."""
    initial, sums = with_tensors((tuple(system.initial), system.sums), iter(tensors))
    return system._replace(initial=initial, sums=sums)


class _Stored(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, gradients: Any, found: Trajectory, *given: torch.Tensor) -> torch.Tensor:
        ctx.gradients = gradients
        ctx.save_for_backward(found.states, *found.points, *given)
        return found.states

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        needed = ctx.needs_input_grad[2:]
        (states, *points), own = ctx.saved_tensors[: -len(needed)], ctx.saved_tensors[-len(needed) :]
        return None, None, *ctx.gradients(own, Trajectory(states, tuple(points)), grad, needed)
