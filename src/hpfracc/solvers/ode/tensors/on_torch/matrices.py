r"""Transposed products with :math:`f_y` for a block of steps, from Jacobians computed for all its points at once.

In the backward pass each step needs :math:`f_y^T` times a vector from the next step. With autograd this is an
evaluation and a backward pass per point, tens of kernel launches. For states with few components it is faster to
compute the Jacobians of all points of a block together, with one backward pass per component. A step is then two
products of small matrices.

The Jacobians assume independent members of a batch, but a function may couple its members. So the products are checked
against the gradients of autograd once all vectors are known, in the same pass as those of the parameters.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

__all__ = ["BlockMatrices", "fit_matrices"]

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


def fit_matrices(state: torch.Tensor, points: int, parameters: int) -> bool:
    """Whether it pays off to compute the Jacobians of that number of points like ``state``."""
    if not state.ndim or not 0 < state.shape[-1] <= _MAX_COMPONENTS or not state.numel():
        return False
    size = points * state.numel() * state.shape[-1] * state.element_size()
    work = state.numel() * max(parameters, state.shape[-1] ** 2)
    most = _MAX_WORK if state.is_cuda else _MAX_WORK_ON_HOST
    return bool(size <= _MAX_BYTES and work <= most)


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
        Values of ``fun``, recorded by autograd.
    matrices : tensor, shape (M, B, d, d)
        ``matrices[m, b, i, j]`` is the derivative of component i with respect to component j.
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
        """Gradients of the leaves, and the deviation of the products from autograd (at most 1 if they agree).

        ``bars`` are the gradients of the values, shape (M, ..., d).
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
