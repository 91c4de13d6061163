"""Sums over the past, a segment at a time: a product with a Toeplitz matrix, or transforms where that is long."""

from __future__ import annotations

import torch

__all__ = ["SegmentSums"]

#: Segments longer than this are transformed; up to it a product takes less time on a card and on a core alike.
LONGEST_PRODUCT = 2048


class SegmentSums:
    """What a segment of L values adds to the L values after it: ``out[i] = sum_j w[L + i - j] f[j]``.

    Parameters
    ----------
    weights : list of tensors, each of shape (N + 1, ...)
        The sequences; all sums are taken at once. One of the shape (N + 1,) serves all columns.
    """

    def __init__(self, weights: list[torch.Tensor]) -> None:
        self.weights = weights
        self.shared = weights[0].ndim == 1

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        """From ``values`` of shape (L, ...) the sums, of shape (len(weights), L, ...)."""
        length = values.shape[0]
        if self.shared and length <= LONGEST_PRODUCT:
            return self._product(values)
        return torch.stack([self._transformed(each, values) for each in self.weights])

    def _kernel(self, weights: torch.Tensor, length: int) -> torch.Tensor:
        """``w[1] .. w[2L - 1]``, with zeros beyond what is there: those go to times after the end."""
        part = weights[1 : 2 * length]
        missing = 2 * length - 1 - part.shape[0]
        if missing:
            part = torch.cat([part, part.new_zeros((missing, *part.shape[1:]))])
        return part

    def _product(self, values: torch.Tensor) -> torch.Tensor:
        length = values.shape[0]
        # Row i of a Toeplitz matrix: w[L + i - j] for j = 0 .. L - 1, the kernel reversed and shifted.
        rows = []
        for weights in self.weights:
            reversed_kernel = self._kernel(weights, length).flip(0)
            rows.append(reversed_kernel.unfold(0, length, 1).flip(0))
        matrix = torch.cat(rows)
        flat = values.reshape(length, -1)
        if flat.is_complex():
            matrix = matrix.to(flat.dtype)
        return (matrix @ flat).reshape(len(self.weights), length, *values.shape[1:])

    def _transformed(self, weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        length = values.shape[0]
        kernel = self._kernel(weights, length)
        kernel = kernel.reshape(kernel.shape[0], *(1,) * (values.ndim - kernel.ndim), *kernel.shape[1:])
        size = 1 << (3 * length - 2).bit_length()
        if values.is_complex():
            product = torch.fft.fft(kernel, size, dim=0) * torch.fft.fft(values, size, dim=0)
            return torch.fft.ifft(product, size, dim=0)[length - 1 : 2 * length - 1]
        product = torch.fft.rfft(kernel, size, dim=0) * torch.fft.rfft(values, size, dim=0)
        return torch.fft.irfft(product, size, dim=0)[length - 1 : 2 * length - 1]
