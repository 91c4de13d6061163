"""The arguments of ``solve_fpde``, for type checkers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from hpfracc.solvers.pde.method import EvolutionMethod

__all__ = ["EvolutionOptions"]


class EvolutionOptions(TypedDict, total=False):
    """All arguments of ``solve_fpde`` by name: those that a model equation has can be replaced."""

    reaction: Callable[..., Any] | None
    t_span: Sequence[float]
    u0: Any
    x: Any
    space: Any
    boundary: Any
    alpha: Any
    du0: Any
    source: Any
    method: str | EvolutionMethod
    rtol: float
    atol: float
    step: float | None
    t_eval: Any
    args: Any
    jac: Callable[..., Any] | None
    terms: Sequence[tuple[Any, Any]]
    events: Any
    dense_output: bool
    save: str | int | Callable[..., Any]
    max_steps: int
    backend: Any
    compile: bool | str
    progress: bool | Callable[..., Any]
    estimate: bool | str
