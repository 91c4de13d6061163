"""PECE for tensors and JAX arrays: ensembles on their own device, with derivatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode._method import register_method
from hpfracc.solvers.ode.tensors.method import TensorMethod
from hpfracc.solvers.ode.tensors.rule import Rule

__all__ = ["TensorPECE"]


@register_method
@final
@dataclass(frozen=True, slots=True)
class TensorPECE(TensorMethod):
    r"""The predictor-corrector method of :class:`PECE`, for PyTorch and JAX.

    ``fun(t, y)`` takes and returns tensors of shape (..., d): an ensemble is one call. The order may be a tensor that
    broadcasts to the state, one for each member. Steps go in blocks; what a block adds to the later ones is one product
    with a Toeplitz matrix (or transforms), so a GPU is busy with large products. Derivatives with respect to ``y0``,
    ``dy0``, the order, and whatever ``fun`` depends on are those of the discrete solution; blocks are run again in the
    backward pass, so that memory stays O(N d).

    Order :math:`\min(2, 1+\alpha)` with one correction, as there.

    For JAX the solve is one compiled program, kept for a function as long as what it sees around it is the same. Of an
    object or a dictionary that cannot be told: such a function is compiled at each call, unless the caller's own
    ``jax.jit`` goes around it. Parameters given as ``args`` cost no compilation.

    Parameters
    ----------
    corrections : int, default 1
        How often the corrector is applied.
    """

    corrections: int = 1

    name: ClassVar[str] = "pece"
    aliases: ClassVar[tuple[str, ...]] = ("predictor_corrector", "adams", "abm")
    order: ClassVar[str] = "min(2, 1 + corrections alpha)"

    def __post_init__(self) -> None:
        if isinstance(self.corrections, bool) or not isinstance(self.corrections, int) or self.corrections < 1:
            raise InvalidInputError(f"corrections={self.corrections!r} has to be a whole number of 1 or more")

    def _rule(self) -> Rule:
        return Rule(self.name, self.corrections)
