"""torchfde: systems of one order up to 1, with fixed steps."""

from __future__ import annotations

import numpy as np
import torch
from torchfde import fdeint

from testset.adapters.fixed import interpolated, simple_equation, steps_for
from testset.data import Answer, NotExpressible, Problem
from testset.expressions import NUMBERS


def _of_tensors(name: str, plain: object) -> object:
    """PyTorch's function for tensors, the plain one for numbers."""
    own = getattr(torch, name, None)
    return lambda x: own(x) if own is not None and torch.is_tensor(x) else plain(x)  # type: ignore[operator]


TENSORS = NUMBERS | {
    name: _of_tensors(name, NUMBERS[name]) for name in ("exp", "log", "sin", "cos", "tanh", "sqrt", "abs")
}


def solve(problem: Problem, tolerance: float) -> Answer:
    """The answer with the steps that stand for this tolerance."""
    if problem.kind != "ode":
        raise NotExpressible(f"no problems of the kind {problem.kind!r}")
    rhs, orders, start, end = simple_equation(problem, TENSORS)
    if len(set(orders)) > 1 or orders[0] > 1.0:
        raise NotExpressible("one order for all components, at most 1")
    calls = 0

    def field(t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        parts = rhs(float(t), y)
        return torch.stack([torch.as_tensor(part, dtype=torch.float64).reshape(()) for part in parts])

    steps = steps_for(problem, tolerance)
    found = fdeint(
        field, torch.tensor(start[0], dtype=torch.float64), torch.tensor(orders[0], dtype=torch.float64),
        t=torch.tensor(end, dtype=torch.float64), step_size=torch.tensor(end / steps, dtype=torch.float64),
        method="predictor", options={"return_history": True},
    )  # fmt: skip
    return Answer(interpolated(problem, np.linspace(0.0, end, len(found)), found.numpy()), calls)
