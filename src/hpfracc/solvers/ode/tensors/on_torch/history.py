"""History sums by segments: a product with a Toeplitz matrix, or FFTs for long segments."""

from __future__ import annotations

import torch

__all__ = ["SegmentSums", "workspace"]

#: Segments longer than this are transformed; up to it a product takes less time on a GPU.
LONGEST_PRODUCT = 2048
#: The same on a core, where the matrix leaves the cache: with few columns and with many. Milliseconds of a product and
#: of transforms, in place, one thread: 0.6 and 0.6 for 256 values of 1 column, 27 and 2.7 for 2,048; 6.5 and 17 for
#: 512 values of 512 columns, 30 and 31 for 1,024, 166 and 64 for 2,048.
_LONGEST_ON_HOST, _MANY_COLUMNS = (256, 512), 256
#: Bytes that the transforms of a segment of columns may take if no gradient is needed.
WORKSPACE = 1 << 28
#: Minimum bytes; smaller groups would be dominated by call overhead.
_MIN_WORKSPACE = 1 << 24


def workspace(values: torch.Tensor) -> int:
    """Bytes for transforms of ``values``: at most the size of ``values``, within the limits."""
    return min(WORKSPACE, max(_MIN_WORKSPACE, int(values.numel()) * int(values.element_size())))


class SegmentSums:
    """Contribution of a segment of L values to later sums: ``out[i] = sum_j w[L + i - j] f[j]``.

    Parameters
    ----------
    weights : list of tensors, each of shape (N + 1, ...)
        The sequences; all sums are computed together. A sequence of shape (N + 1,) applies to all columns.
    """

    def __init__(self, weights: list[torch.Tensor]) -> None:
        self.weights = weights
        self.shared = weights[0].ndim == 1

    def __call__(self, values: torch.Tensor, reach: int) -> torch.Tensor:
        """From ``values`` of shape (L, ...) the next ``reach`` sums, of shape (len(weights), reach, ...)."""
        length = values.shape[0]
        if self._by_product(values, reach):
            matrix = torch.cat([self._rows(each, length, 0, reach) for each in self.weights]).to(values.dtype)
            return (matrix @ values.reshape(length, -1)).reshape(len(self.weights), reach, *values.shape[1:])
        return torch.stack([_transformed(self._kernel(each, length, reach), values, reach) for each in self.weights])

    def add_to(self, pieces: list[torch.Tensor], values: torch.Tensor) -> None:
        """The same, added in place to ``pieces`` of shape (len(weights), length of a piece, ...), one after the other.

        Needs little extra memory: products are added to each piece directly, and FFTs run over groups of columns.
        """
        length, reach = values.shape[0], sum(piece.shape[1] for piece in pieces)
        if self._by_product(values, reach):
            flat, first = values.reshape(length, -1), 0
            for piece in pieces:
                rows = [self._rows(each, length, first, piece.shape[1]) for each in self.weights]
                piece.view(-1, flat.shape[1]).addmm_(torch.cat(rows).to(values.dtype), flat)
                first += piece.shape[1]
            return
        # Three arrays of the padded length at a time, in complex numbers: two spectra and the sums.
        columns = values[:, :1].numel() // length
        width = max(1, workspace(values) // (3 * 8 * _padded_length(length, reach) * columns))
        for kind, weights in enumerate(self.weights):
            kernel = self._kernel(weights, length, reach)
            kernel = kernel.reshape(kernel.shape[0], *(1,) * (values.ndim - kernel.ndim), *kernel.shape[1:])
            for begin in range(0, values.shape[1], width):
                part = slice(begin, begin + width)
                own = kernel[:, part] if kernel.shape[1] > 1 else kernel
                sums, first = _transformed(own, values[:, part], reach), 0
                for piece in pieces:
                    piece[kind, :, part] += sums[first : first + piece.shape[1]]
                    first += piece.shape[1]

    def _by_product(self, values: torch.Tensor, reach: int) -> bool:
        """Few sums are a product however long the segment is."""
        length, longest = values.shape[0], LONGEST_PRODUCT
        if values.device.type == "cpu":
            longest = min(longest, _LONGEST_ON_HOST[values[0].numel() >= _MANY_COLUMNS])
        return self.shared and bool(min(length, reach) <= longest and length * reach <= longest**2)

    def _kernel(self, weights: torch.Tensor, length: int, reach: int) -> torch.Tensor:
        """``w[1] .. w[L + reach - 1]``, padded with zeros, which belong to times after the end."""
        part = weights[1 : length + reach]
        missing = length + reach - 1 - part.shape[0]
        if missing:
            part = torch.cat([part, part.new_zeros((missing, *part.shape[1:]))])
        return part

    def _rows(self, weights: torch.Tensor, length: int, first: int, count: int) -> torch.Tensor:
        """Rows ``first ..`` of a Toeplitz matrix: w[L + i - j] for j = 0 .. L - 1, the kernel reversed and shifted."""
        kernel = self._kernel(weights, length, first + count)[first:]
        return kernel.flip(0).unfold(0, length, 1).flip(0)


def _padded_length(length: int, reach: int) -> int:
    """Length of the FFT. Wrap-around affects only sums that are not needed."""
    return 1 << (length + reach - 2).bit_length()


def _transformed(kernel: torch.Tensor, values: torch.Tensor, reach: int) -> torch.Tensor:
    length = values.shape[0]
    kernel = kernel.reshape(kernel.shape[0], *(1,) * (values.ndim - kernel.ndim), *kernel.shape[1:])
    size = _padded_length(length, reach)
    if values.is_complex():
        product = torch.fft.fft(kernel, size, dim=0) * torch.fft.fft(values, size, dim=0)
        return torch.fft.ifft(product, size, dim=0)[length - 1 : length - 1 + reach]
    product = torch.fft.rfft(kernel, size, dim=0) * torch.fft.rfft(values, size, dim=0)
    return torch.fft.irfft(product, size, dim=0)[length - 1 : length - 1 + reach]
