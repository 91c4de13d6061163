"""Drawing a solution; Matplotlib comes with the extra ``plot`` and is imported when something is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc._optional import import_optional
from hpfracc.errors import InvalidInputError

__all__ = ["plot_solution"]

#: More lines than this are drawn without a legend.
_MOST_NAMED = 12


def plot_solution(t: Any, y: Any, *, phase: tuple[int, int] | None, ax: Any, style: dict[str, Any]) -> Any:
    """Draw ``y`` over ``t``, or one component over another; see :meth:`FODEResult.plot`."""
    pyplot = import_optional("matplotlib.pyplot")
    values = _on_host(y)
    parts = {"Re ": values.real, "Im ": values.imag} if values.dtype.kind == "c" else {"": values}
    if ax is None:
        _, ax = pyplot.subplots()
    if phase is not None:
        return _portrait(ax, values.real, phase, style)
    t = _on_host(t)
    lines = 0
    for word, part in parts.items():
        rows = part.reshape(-1, part.shape[-1])
        components = part.shape[-2]
        for number, row in enumerate(rows):
            member = f" of member {number // components}" if len(rows) > components else ""
            ax.plot(t, row, label=f"{word}y[{number % components}]{member}", **style)
            lines += 1
    ax.set_xlabel("t")
    if lines == 1:
        ax.set_ylabel("y")
    elif lines <= _MOST_NAMED:
        ax.legend()
    return ax


def _portrait(ax: Any, values: np.ndarray[Any, Any], phase: tuple[int, int], style: dict[str, Any]) -> Any:
    components = values.shape[-2]
    first, second = phase
    if not all(-components <= each < components for each in phase):
        raise InvalidInputError(f"phase={phase} names a component that is not there: the solution has {components}")
    for member in values.reshape(-1, *values.shape[-2:]):
        ax.plot(member[first], member[second], **style)
    ax.set_xlabel(f"y[{first % components}]")
    ax.set_ylabel(f"y[{second % components}]")
    return ax


def _on_host(values: Any) -> np.ndarray[Any, Any]:
    detach = getattr(values, "detach", None)
    return np.asarray(detach().cpu() if detach is not None else values)
