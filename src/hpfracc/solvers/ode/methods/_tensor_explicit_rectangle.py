"""The explicit product rectangle for tensors and JAX arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from hpfracc.solvers.ode._method import register_method
from hpfracc.solvers.ode.tensors.method import TensorMethod

__all__ = ["TensorExplicitRectangle"]


@register_method
@final
@dataclass(frozen=True, slots=True)
class TensorExplicitRectangle(TensorMethod):
    """The method of :class:`ExplicitRectangle` for PyTorch and JAX: order 1, one evaluation a step.

    In blocks, with derivatives, as :class:`TensorPECE`.
    """

    name: ClassVar[str] = "explicit_rectangle"
    aliases: ClassVar[tuple[str, ...]] = ("euler", "forward_euler")
    order: ClassVar[str] = "1"
