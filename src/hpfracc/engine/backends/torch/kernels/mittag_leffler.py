"""``mittag_leffler`` in PyTorch."""

from __future__ import annotations

from torch import Tensor

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.torch.mittag_leffler_function import of_z


def mittag_leffler_contour(z: Tensor, *, alpha: float, beta: float = 1.0, order: int = 0) -> Tensor:
    """The ``order``-th derivative of E_{alpha,beta} at ``z``, in the dtype and on the device of ``z``."""
    return of_z(z, float(alpha), float(beta), int(order))


KERNELS: dict[str, Kernel] = {"contour": Kernel(mittag_leffler_contour)}
