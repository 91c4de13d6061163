"""Plots of a solution. Matplotlib (extra ``plot``) is imported on first use."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpfracc._arrays import to_host
from hpfracc._optional import import_optional
from hpfracc.errors import InvalidInputError

__all__ = ["plot_fit", "plot_solution"]

#: Maximum number of lines with a legend.
_MAX_NAMED = 12


def plot_solution(t: Any, y: Any, *, phase: Sequence[int] | None, ax: Any, style: dict[str, Any]) -> Any:
    """Draw ``y`` over ``t``, or two or three components against each other; see :meth:`FODEResult.plot`."""
    pyplot = import_optional("matplotlib.pyplot")
    values = to_host(y)
    parts = {"Re ": values.real, "Im ": values.imag} if values.dtype.kind == "c" else {"": values}
    if phase is not None:
        chosen = _read_phase(phase, values.shape[-2])
        if ax is None:
            _, ax = pyplot.subplots(subplot_kw={"projection": "3d"} if len(chosen) == 3 else None)
        return _portrait(ax, values.real, chosen, style)
    if ax is None:
        _, ax = pyplot.subplots()
    t = to_host(t)
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
    elif lines <= _MAX_NAMED:
        ax.legend()
    return ax


def plot_fit(sets: Sequence[Any], axes: Any) -> Any:
    """Data and prediction above, residuals below; see :meth:`FODEFit.plot`."""
    pyplot = import_optional("matplotlib.pyplot")
    if axes is None:
        _, axes = pyplot.subplots(2, 1, sharex=True, height_ratios=(3, 1), layout="constrained")
    if np.size(axes) != 2:
        raise InvalidInputError(f"ax has {np.size(axes)} elements; give two, for the fit and for the residuals")
    above, below = np.ravel(axes)
    rows = sum(len(each.data) for each in sets)
    number = 0
    for place, each in enumerate(sets):
        for row in range(len(each.data)):
            colour = f"C{number % 10}"
            member = f" of set {place}" if len(sets) > 1 else ""
            name = f"observed {row}{member}" if rows > 1 else "data"
            above.plot(each.t, each.data[row], "o", color=colour, markersize=4, alpha=0.6, label=name)
            above.plot(each.curve_t, each.curve[row], color=colour, label="fit" if rows == 1 else None)
            below.plot(each.t, each.residuals[row], "o", color=colour, markersize=3)
            number += 1
    below.axhline(0.0, color="0.5", linewidth=0.8)
    below.set_xlabel("t")
    below.set_ylabel("residual")
    if rows <= _MAX_NAMED:
        above.legend()
    return above, below


def _read_phase(phase: Sequence[int], components: int) -> tuple[int, ...]:
    """The components to draw, counted from 0."""
    try:
        chosen = tuple(operator.index(each) for each in phase)
    except TypeError:
        chosen = ()
    if len(chosen) not in (2, 3):
        raise InvalidInputError(f"phase={phase!r} has to name two or three components, such as (0, 1) or (0, 1, 2)")
    if not all(-components <= each < components for each in chosen):
        raise InvalidInputError(f"phase={phase!r} names a missing component; the solution has {components}")
    return tuple(each % components for each in chosen)


def _portrait(ax: Any, values: np.ndarray[Any, Any], phase: tuple[int, ...], style: dict[str, Any]) -> Any:
    if len(phase) == 3 and not hasattr(ax, "set_zlabel"):
        raise InvalidInputError(
            f"phase={phase} is drawn in three dimensions and ax has two; omit ax, or create it with "
            "plt.subplot(projection='3d')"
        )
    for member in values.reshape(-1, *values.shape[-2:]):
        ax.plot(*(member[each] for each in phase), **style)
    for name, each in zip("xyz", phase, strict=False):
        getattr(ax, f"set_{name}label")(f"y[{each}]")
    return ax
