"""Non-finite samples stay causal: spreading by transforms and matrix products is repaired.

One non-finite sample makes every output of a Fourier transform non-finite, and a Toeplitz product multiplies it by the
zeros above its diagonal. So the result is computed with non-finite samples set to 0, and every point whose sum includes
one is then set to nan.

On the host it is cheap to check whether that is needed: a non-finite sample affects the first output of its row. On an
accelerator reading a value would make the host wait for the device, so there the repair is always made, by operations
without a branch or a scan: for 1e7 points in float64 they move 0.38 GB, and save 0.08 GB of the padding,
where the two transforms read and write 0.16 GB in each of their several passes. The same applies inside ``torch.func``
transforms and ``torch.compile``, where values cannot be read.

The gradient of a non-finite sample, and that of a point that depends on one, is 0. If a *weight* is not finite, the
whole row may be nan.
"""

from __future__ import annotations

import cmath
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from hpfracc._torch_transforms import is_wrapped
from hpfracc.engine.backends.torch.tracking import is_eager, is_readable

__all__ = ["apply_causally", "clean", "mark_reached"]


def apply_causally(
    product: Callable[[Tensor], Tensor], signal: Tensor, taps: int, witness: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """``product(signal)`` for a product that spreads non-finite samples, repaired.

    Parameters
    ----------
    product : callable
        Linear in the signal.
    signal : Tensor
        Samples along the last axis.
    taps : int
        Number of outputs that depend on one sample.
    witness : callable, optional
        Returns elements of the output of which one is non-finite if any sample is; by default the first of each row.
    """
    if is_readable(signal):
        result = product(signal)
        if is_wrapped(result):
            # Only the weights are mapped or differentiated, so the samples can be read.
            return result if bool(torch.isfinite(signal).all()) else mark_reached(product(clean(signal)), signal, taps)
        seen = result.select(-1, 0) if witness is None else witness(result)
        # An overflowing sum only causes an unnecessary repair.
        if cmath.isfinite(seen.item() if seen.ndim == 0 else seen.sum().item()):
            return result
    return mark_reached(product(clean(signal)), signal, taps)


def clean(signal: Tensor) -> Tensor:
    """``signal`` with 0 for non-finite samples."""
    if signal.is_complex():
        return torch.where(torch.isfinite(signal), signal, torch.zeros_like(signal))
    return torch.nan_to_num(signal, nan=0.0, posinf=0.0, neginf=0.0)


def mark_reached(result: Tensor, signal: Tensor, taps: int) -> Tensor:
    """``result`` with nan at every point for which one of the last ``taps`` samples is not finite."""
    marks = _marks(signal.detach())
    n = signal.shape[-1]
    if taps >= n:
        worst, index = torch.max(marks, -1, keepdim=True)  # nan counts as the largest, so the first one is found
        first = index.masked_fill(~torch.isnan(worst), n)
        reached = torch.arange(n, dtype=torch.int32, device=signal.device) >= first
    else:
        reached = _reach(marks != 0, taps)
    # On the device, so that no number has to be copied there.
    missing = torch.full((), torch.nan, dtype=result.dtype, device=result.device)
    return torch.where(reached, missing, result)


def _marks(signal: Tensor) -> Tensor:
    """0 for a finite sample, nan for any other."""
    if signal.is_complex():
        return signal.real * 0 + signal.imag * 0
    if signal.is_cpu or not is_eager(signal):
        return signal * 0
    # Half precision suffices, at a quarter of the memory traffic of float64.
    return torch.mul(signal, 0, out=torch.empty(signal.shape, dtype=torch.half, device=signal.device))


def _reach(bad: Tensor, taps: int) -> Tensor:
    """Whether one of the last ``taps`` samples is non-finite, by doubling windows."""
    width = 1
    while width < taps:
        shift = min(width, taps - width)
        bad = bad | functional.pad(bad[..., :-shift], (shift, 0))
        width += shift
    return bad
