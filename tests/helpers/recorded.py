"""What PyTorch does in a call: the steps that autograd records, and the operations that are dispatched."""

from __future__ import annotations

from typing import Any

#: Operations that move no data.
VIEWS = ("view", "slice", "select", "detach", "transpose", "aten.t.", "expand", "squeeze", "alias", "as_strided")


def steps(value: Any) -> list[str]:
    """The steps that autograd recorded, leaves left out."""
    seen: set[Any] = set()
    waiting = [value.grad_fn]
    while waiting:
        step = waiting.pop()
        if step is not None and step not in seen:
            seen.add(step)
            waiting += [before for before, _ in step.next_functions]
    return sorted(type(step).__name__ for step in seen if "AccumulateGrad" not in type(step).__name__)


def operations(run: Any) -> list[str]:
    """What PyTorch dispatches in the second of two calls, views left out."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Count(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if not any(view in str(function) for view in VIEWS):
                seen.append(str(function))
            return function(*args, **(kwargs or {}))

    run()
    with Count():
        run()
    return seen
