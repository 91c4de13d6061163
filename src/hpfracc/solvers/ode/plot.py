"""Plots of a solution. Matplotlib (extra ``plot``) is imported on first use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hpfracc._arrays import to_host
from hpfracc._optional import import_optional
from hpfracc._reading import listed, whole
from hpfracc.errors import InvalidInputError

__all__ = ["plot_fit", "plot_solution"]

#: Maximum number of lines with a legend.
_MAX_NAMED = 12


def plot_solution(t: Any, y: Any, *, phase: Sequence[int] | None, ax: Any, style: dict[str, Any]) -> Any:
    """Draw ``y`` over ``t``, or two or three components against each other; see :meth:`FODEResult.plot`."""
    pyplot = import_optional("matplotlib.pyplot")
    values = to_host(y)
    chosen = () if phase is None else _read_phase(phase, values.shape[-2])
    if ax is None:
        _, ax = pyplot.subplots(subplot_kw={"projection": "3d"} if len(chosen) == 3 else None)
    if chosen:
        return _portrait(ax, values.real, chosen, style)
    t, components = to_host(t), values.shape[-2]
    parts = {"Re ": values.real, "Im ": values.imag} if values.dtype.kind == "c" else {"": values}
    for word, part in parts.items():
        rows = part.reshape(-1, part.shape[-1])
        for number, row in enumerate(rows):
            member = f" of member {number // components}" if len(rows) > components else ""
            ax.plot(t, row, label=f"{word}y[{number % components}]{member}", **style)
    lines = len(parts) * len(rows)
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
    rows = [(place, each, row) for place, each in enumerate(sets) for row in range(len(each.data))]
    for number, (place, each, row) in enumerate(rows):
        colour, member = f"C{number % 10}", f" of set {place}" if len(sets) > 1 else ""
        name = f"observed {row}{member}" if len(rows) > 1 else "data"
        above.plot(each.t, each.data[row], "o", color=colour, markersize=4, alpha=0.6, label=name)
        above.plot(each.curve_t, each.curve[row], color=colour, label="fit" if len(rows) == 1 else None)
        below.plot(each.t, each.residuals[row], "o", color=colour, markersize=3)
    below.axhline(0.0, color="0.5", linewidth=0.8)
    below.set_xlabel("t")
    below.set_ylabel("residual")
    if len(rows) <= _MAX_NAMED:
        above.legend()
    return above, below


def _read_phase(phase: Sequence[int], components: int) -> tuple[int, ...]:
    """The components to draw, counted from 0."""
    wanted = f"phase={phase!r}: give two or three components of {components}, such as (0, 1)"
    chosen = [whole("phase", each, least=-components, most=components - 1) for each in listed("phase", phase, wanted)]
    if len(chosen) not in (2, 3):
        raise InvalidInputError(wanted)
    return tuple(each % components for each in chosen)


def _portrait(ax: Any, values: np.ndarray[Any, Any], phase: tuple[int, ...], style: dict[str, Any]) -> Any:
    if len(phase) == 3 and not hasattr(ax, "set_zlabel"):
        raise InvalidInputError(
            f"phase={phase} needs three dimensions and ax has two; omit ax, or use plt.subplot(projection='3d')"
        )
    for member in values.reshape(-1, *values.shape[-2:]):
        ax.plot(*(member[each] for each in phase), **style)
    for name, each in zip("xyz", phase, strict=False):
        getattr(ax, f"set_{name}label")(f"y[{each}]")
    return ax
