"""The implicit product rectangle for tensors and JAX arrays: the most damped, for stiff ensembles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from hpfracc.solvers.ode._method import register_method
from hpfracc.solvers.ode.tensors.method import TensorMethod

__all__ = ["TensorImplicitRectangle"]


@register_method
@final
@dataclass(frozen=True, slots=True)
class TensorImplicitRectangle(TensorMethod):
    """The method of :class:`ImplicitRectangle` for PyTorch and JAX: order 1, the most damped, for stiff equations.

    The equations of a step, one for each member of an ensemble, are solved together: see
    :class:`TensorImplicitTrapezoid`.
    """

    name: ClassVar[str] = "implicit_rectangle"
    aliases: ClassVar[tuple[str, ...]] = ("backward_euler", "implicit_euler")
    order: ClassVar[str] = "1"
    implicit: ClassVar[bool] = True
