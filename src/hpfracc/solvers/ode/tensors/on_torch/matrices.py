r"""Transposed products with :math:`f_y` for a block of steps, from matrices that are made for all its points at once.

Going backwards, each step needs :math:`f_y^T` times a vector that the step after it gives. By autograd that is an
evaluation and a backward pass for each point, tens of launches. Where the state has few components it takes less time
to make the matrices of all points of a block together, one backward pass for each component: then a step is two
products of small matrices.

The matrices are those of each member of a batch by itself, and a function may couple its members. So the products are
compared with the gradients in the points that autograd gives once all vectors are known, in the same pass as those in
the parameters.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

__all__ = ["BlockMatrices", "fit_matrices"]

#: The most components, each of which takes a backward pass over the points of a block.
_MOST_COMPONENTS = 16
#: Bytes of the matrices of a block.
_MOST_BYTES = 1 << 27
#: Numbers of a state times parameters of the function, about the products that the matrices of a point take beyond its
#: evaluation: where they are more, their work counts for more than the launches that are saved. On the host an MLP
#: 8-64-64-8 takes as long with as without at a batch of 100 (benchmarks/neural_fode.py); a GPU does them 200 times as
#: fast and more.
_MOST_WORK_ON_HOST, _MOST_WORK = 2e6, 1e9
#: Products and gradients that agree to this many units of rounding are the same.
_ALIKE = 1e3


def fit_matrices(state: torch.Tensor, points: int, parameters: int) -> bool:
    """Whether it pays to make the matrices of that number of points like ``state``."""
    if not state.ndim or not 0 < state.shape[-1] <= _MOST_COMPONENTS or not state.numel():
        return False
    size = points * state.numel() * state.shape[-1] * state.element_size()
    work = state.numel() * max(parameters, state.shape[-1] ** 2)
    most = _MOST_WORK if state.is_cuda else _MOST_WORK_ON_HOST
    return bool(size <= _MOST_BYTES and work <= most)


class BlockMatrices:
    """Values and derivatives of ``fun`` at some points.

    Parameters
    ----------
    fun : callable
        ``fun(t, y)``.
    times : tensor, shape (M,)
    points : tensor, shape (M, ..., d)

    Attributes
    ----------
    values : tensor, shape (M, ..., d)
        Of ``fun``, recorded.
    matrices : tensor, shape (M, B, d, d)
        ``matrices[m, b, i, j]`` is the derivative of component i in component j.
    """

    def __init__(
        self, fun: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], times: torch.Tensor, points: torch.Tensor
    ) -> None:
        self._place = points.detach().requires_grad_()
        d = points.shape[-1]
        with torch.enable_grad():
            self.values = torch.func.vmap(fun)(times, self._place)
        matrices = points.new_zeros((*points.shape, d))  # component j of the gradient of i at [..., j, i]
        if self.values.requires_grad:
            for i in range(d):
                basis = torch.zeros_like(self.values)
                basis[..., i] = 1.0
                (row,) = torch.autograd.grad(self.values, [self._place], basis, retain_graph=True, allow_unused=True)
                if row is None:
                    break
                matrices[..., i] = row
        self.matrices = matrices.view(points.shape[0], -1, d, d).mT.contiguous()

    def settle(self, bars: torch.Tensor, leaves: list[torch.Tensor]) -> tuple[list[torch.Tensor | None], torch.Tensor]:
        """Gradients in the leaves, and how far the products are from the gradients in the points, at most 1 if alike.

        ``bars`` are the gradients in the values, shape (M, ..., d).
        """
        if not self.values.requires_grad:
            return [None] * len(leaves), bars.new_zeros(())
        true, *rest = torch.autograd.grad(self.values, [self._place, *leaves], bars, allow_unused=True)
        shape = self.matrices.shape[:2]
        products = torch.matmul(bars.reshape(*shape, 1, -1), self.matrices).reshape(bars.shape)
        if true is None:
            return rest, products.abs().amax()
        apart = (products - true).abs().amax()
        unit = _ALIKE * torch.finfo(bars.dtype).eps
        return rest, apart / (unit * true.abs().amax() + torch.finfo(bars.dtype).tiny)
