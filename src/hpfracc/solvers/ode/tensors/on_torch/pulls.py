r"""Transposed derivatives of a right-hand side on tensors, for :mod:`hpfracc.solvers.ode.tensors.transpose`.

In the backward pass each step needs :math:`f_y^T` times a vector from the next step. With autograd this is an
evaluation and a backward pass per point, tens of kernel launches. For states with few components it is faster to
compute the Jacobians of all points of a block together, with one backward pass per component. A step is then two
products of small matrices. Gradients of the parameters are computed for all points of a block together too.

The Jacobians assume independent members of a batch, but a function may couple its members. So the products are checked
against the gradients of autograd once all vectors are known, in the same pass as those of the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from hpfracc.solvers.ode.tensors.blocks import BLOCK, StepGrid, Trajectory

__all__ = ["CoupledMembersError", "TensorPulls", "fit_matrices"]

Function = Callable[[Any, torch.Tensor], torch.Tensor]

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
