"""The names under which choices and costs are remembered."""

from __future__ import annotations

from collections.abc import Hashable

from hpfracc.engine.backends.base import Arm
from hpfracc.engine.selection.candidates import Request

__all__ = ["CostKey", "compile_key", "cost_key", "slot_of"]

#: (operation, arm, where the operands start, dtype): what a time in the cost model is a time of.
CostKey = tuple[str, str, str, str]


def cost_key(request: Request, arm: Arm) -> CostKey:
    """What the arm's times are kept under; work that builds a gradient's graph is another work."""
    start = request.placement.start
    if request.placement.gradient or request.needs_gradient:
        start += "+gradient"
    return request.operation, arm.name, start, request.call.dtype


def slot_of(request: Request) -> tuple[Hashable, ...]:
    """What choices are remembered under: requests in one slot see the same arms."""
    placement = request.placement
    wish = None if request.wish is None else request.wish.backend
    gradient = placement.gradient or request.needs_gradient
    return request.operation, request.call.dtype, placement.start, placement.library, gradient, wish


def compile_key(request: Request, arm: Arm) -> tuple[Hashable, ...]:
    """What a first call of this arm is first for.

    Arms that compile nothing have first calls too (a module is loaded, a plan is made): once per operation.
    """
    arm_of = (arm.backend, arm.algorithm, arm.device)
    compiles = arm.spec.compiles
    if compiles == "shape":  # with a kept transform another function is traced
        return (request.operation, *arm_of, request.shapes)
    if compiles == "signature":
        return (request.call.operation, *arm_of, request.call.dtype, request.signature)
    return (request.call.operation, *arm_of)
