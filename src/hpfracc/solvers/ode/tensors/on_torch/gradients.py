r"""Gradients of fixed steps on tensors by the transposed steps, from stored states.

The backward pass evaluates the right-hand side again, and adds up what each evaluation gives to the tensors that it
depends on besides the state. They are found in its graph. Nothing that it sees may have been computed outside it: that
graph would be gone after the first evaluation. What is given through ``args`` is replaced by copies that begin a graph
of their own, so that two of them may depend on each other.

Each step needs :math:`f_y^T` times a vector from the next step. With autograd this is an evaluation and a backward pass
per point, tens of kernel launches. For states with few components it is faster to compute the Jacobians of all points
of a block together, with one backward pass per component. A step is then two products of small matrices. Gradients of
the parameters are computed for all points of a block together too. The Jacobians assume independent members of a batch,
but a function may couple its members. So the products are checked against the gradients of autograd once all vectors
are known, in the same pass as those of the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from hpfracc._arrays import leaves
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode.tensors.blocks import BLOCK, StepGrid, System, Trajectory, solve_forward, transpose
from hpfracc.solvers.tensors.loops import PLAIN, Loop
from hpfracc.solvers.tensors.on_torch.buffers import Buffers

Function = Callable[[Any, torch.Tensor], torch.Tensor]
#: ``bind(tensors)`` gives the function and its Jacobian with other tensors in place of those of ``args``.
Bind = Callable[[list[torch.Tensor]], tuple[Function, Function | None]]
#: Largest state for which the gradients of the parameters are computed for all points of a block together on the host.
#: The activations of larger states do not fit into the cache. Cost over bare evaluations, together and separately: 9.6
#: and 10.3 at a batch of 64, 11.8 and 10.5 at 256, 12.4 and 9.3 at 1024 (benchmarks/results/neural_fode.txt).
_MAX_TOGETHER = 1024
#: Maximum number of components; each needs a backward pass over the points of a block.
_MAX_COMPONENTS = 16
#: Maximum bytes of the Jacobians of a block.
_MAX_BYTES = 1 << 27
#: Maximum of state size times number of parameters, about the multiplications that the Jacobians of a point need in
#: addition to an evaluation. Above it their work exceeds the saved launches. On the host an MLP 8-64-64-8 breaks even
#: at a batch of 100 (benchmarks/neural_fode.py); a GPU is more than 200 times as fast.
_MAX_WORK_ON_HOST, _MAX_WORK = 2e6, 1e9
#: Tolerance of the comparison of products and gradients, in units of rounding.
_ALIKE = 1e3


class CoupledMembersError(Exception):
    """The Jacobians of separate members are not the derivative."""


def fit_matrices(state: torch.Tensor, points: int, parameters: int) -> bool:
    """Whether it pays off to compute the Jacobians of that number of points like ``state``."""
    if not state.ndim or not 0 < state.shape[-1] <= _MAX_COMPONENTS or not state.numel():
        return False
    size = points * state.numel() * state.shape[-1] * state.element_size()
    work = state.numel() * max(parameters, state.shape[-1] ** 2)
    most = _MAX_WORK if state.is_cuda else _MAX_WORK_ON_HOST
    return bool(size <= _MAX_BYTES and work <= most)


class TensorPulls:
    """Products with transposed derivatives, and the sum of the gradients of ``leaves`` in ``totals``.

    Parameters
    ----------
    fun : callable
        ``fun(t, y)``.
    leaves : list of tensors
        What it depends on besides y.
    found : Trajectory
        The points of all steps.
    mapped : bool
        Whether ``torch.func.vmap`` evaluates ``fun`` at all points of a block.
    matrices : bool
        Whether to use Jacobians of whole blocks. Raises :class:`CoupledMembersError` where they are not the derivative.
    """

    def __init__(
        self, fun: Function, leaves: list[torch.Tensor], grid: StepGrid, found: Trajectory, mapped: bool, matrices: bool
    ) -> None:
        self.fun, self.leaves, self.grid, self.found = fun, leaves, grid, found
        self.totals: list[torch.Tensor | None] = [None] * len(leaves)
        state, parameters = found.states[0], sum(each.numel() for each in leaves)
        self.matrices = mapped and matrices and fit_matrices(state, BLOCK * (1 + len(found.points)), parameters)
        small = state.is_cuda or state.numel() <= _MAX_TOGETHER
        self.together = self.matrices or (mapped and bool(leaves) and small and state.numel() > 0)
        self._first = self._size = 0

    def prepare(self, first: int, last: int) -> Callable[[], None] | None:
        """The points of a block, and their Jacobians if they are used."""
        if not self.together:
            return None
        self._first, self._size = first, last - first + 1
        times = [self.grid.time(n, self.found.states) for n in range(first, last + 1)] * (1 + len(self.found.points))
        places = [self.found.states[first : last + 1], *(each[first - 1 : last] for each in self.found.points)]
        self._place = torch.cat(places).detach()
        self._times = self._place.new_tensor(times)
        self._bars = torch.zeros_like(self._place)
        self._bars_at = self._bars.unbind(0)
        if self.matrices:
            self._make_matrices()
        return self._settle

    def _make_matrices(self) -> None:
        place = self._place.requires_grad_()
        d = place.shape[-1]
        self._values = values = self._evaluate()
        made = place.new_zeros((*place.shape, d))  # component j of the gradient of i at [..., j, i]
        if values.requires_grad:
            for i in range(d):
                basis = torch.zeros_like(values)
                basis[..., i] = 1.0
                (row,) = torch.autograd.grad(values, [place], basis, retain_graph=True, allow_unused=True)
                if row is None:
                    break
                made[..., i] = row
        self._made = made.view(place.shape[0], -1, d, d).mT.contiguous()
        self._rows, self._at = self._made.unbind(0), values.detach().unbind(0)

    def _evaluate(self) -> torch.Tensor:
        with torch.enable_grad():
            values: torch.Tensor = torch.func.vmap(self.fun)(self._times, self._place)
        return values

    def pull(
        self, kind: int, n: int, t: float, y: torch.Tensor, bar: torch.Tensor, totals: None
    ) -> tuple[torch.Tensor, torch.Tensor, None]:
        """The value and the gradient at a point; gradients of the leaves are added now or with the block."""
        together = self.together and n > 0
        if together:
            place = kind * self._size + n - self._first
            self._bars_at[place].copy_(bar)
            if self.matrices:
                back = torch.bmm(bar.reshape(-1, 1, bar.shape[-1]), self._rows[place]).view(bar.shape)
                return self._at[place], back, None
        with torch.enable_grad():
            point = y.detach().requires_grad_()
            value = self.fun(t, point)
        if not value.requires_grad:
            return value.detach(), torch.zeros_like(bar), None
        inputs = [point] if together else [point, *self.leaves]
        back, *rest = torch.autograd.grad(value, inputs, bar, allow_unused=True)
        self._add(rest)
        return value.detach(), torch.zeros_like(bar) if back is None else back, None

    def _add(self, found: Iterable[torch.Tensor | None]) -> None:
        for place, each in enumerate(found):
            if each is not None:
                earlier = self.totals[place]
                # A clone: the gradient of a sum is the tensor that was given.
                self.totals[place] = each.clone() if earlier is None else earlier.add_(each)

    def _settle(self) -> None:
        """Gradients of the leaves for a whole block; with matrices also a comparison of the products and autograd."""
        bars, values = self._bars, self._values if self.matrices else self._evaluate()
        if not values.requires_grad:
            return
        inputs = [self._place, *self.leaves] if self.matrices else self.leaves
        found = torch.autograd.grad(values, inputs, bars, allow_unused=True)
        self._add(found[1:] if self.matrices else found)
        if not self.matrices:
            return
        products = torch.matmul(bars.reshape(*self._made.shape[:2], 1, -1), self._made).reshape(bars.shape)
        true = torch.zeros_like(products) if found[0] is None else found[0]
        unit = _ALIKE * torch.finfo(bars.dtype).eps * true.abs().amax() + torch.finfo(bars.dtype).tiny
        if not bool((products - true).abs().amax() <= unit):
            raise CoupledMembersError


def tensors_in(values: Any) -> list[torch.Tensor]:
    """Tensors in nested tuples, lists and dictionaries."""
    return [each for each in leaves(values) if isinstance(each, torch.Tensor)]


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
            states = solve_forward(
                part, functions, f0, tracked=True, loop=loop._replace(report=PLAIN.report, keeps=False)
            ).states
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
