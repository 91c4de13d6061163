"""Pictures of sweeps."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc._optional import import_optional
from hpfracc.distributed.parameters import ParameterGrid
from hpfracc.errors import InvalidInputError

__all__ = ["plot_sweep"]


def plot_sweep(result: Any, output: str | None, *, kind: str, ax: Any) -> Any:
    """Draw one number an item over one or two parameters; see :meth:`SweepResult.plot`."""
    if kind not in ("auto", "line", "map", "surface"):
        raise InvalidInputError(f"kind={kind!r}: use 'auto', 'line', 'map' or 'surface'")
    name, values = _chosen(result, output)
    varied = {key: axis for key, axis in result.params.values.items() if len(axis) > 1}
    flat = isinstance(result.params, ParameterGrid) and len(varied) == 2
    if any(axis.ndim > 1 or axis.dtype.kind not in "biuf" for axis in varied.values()):
        raise InvalidInputError("only parameters that are real numbers can be drawn; draw result.values yourself")
    if kind == "auto":
        kind = "map" if flat else "line"
    if kind != "line" and not flat:
        raise InvalidInputError(f"kind={kind!r} needs a grid of two parameters with several values; use kind='line'")
    if kind == "line" and len(varied) != 1 and isinstance(result.params, ParameterGrid):
        raise InvalidInputError(
            f"a line needs one parameter with several values, not {len(varied)}: {', '.join(varied)}"
        )
    pyplot = import_optional("matplotlib.pyplot")
    if ax is None:
        ax = pyplot.figure().add_subplot(projection="3d" if kind == "surface" else None)
    if kind == "line":
        along, points = next(iter(varied.items()))
        order = np.argsort(points, kind="stable")
        ax.plot(points[order], values[order])
        ax.set(xlabel=along, ylabel=name)
        return ax
    (first, rows), (second, columns) = varied.items()
    surface = values.reshape(len(rows), len(columns))
    if kind == "surface":
        x, y = np.meshgrid(rows, columns, indexing="ij")
        ax.plot_surface(x, y, surface, cmap="viridis")
        ax.set(xlabel=first, ylabel=second, zlabel=name)
    else:
        drawn = ax.pcolormesh(columns, rows, surface, shading="nearest")
        ax.figure.colorbar(drawn, ax=ax, label=name)
        ax.set(xlabel=second, ylabel=first)
    return ax


def _chosen(result: Any, output: str | None) -> tuple[str, Any]:
    found = result.arrays()
    name = next(iter(found)) if output is None and len(found) == 1 else output
    if name not in found:
        raise InvalidInputError(f"output={output!r}: the results are {', '.join(found)}; name one of them")
    values = found[name]
    if values.size != len(result.params) or values.dtype.kind == "c":
        raise InvalidInputError(
            f"{name} has shape {values.shape[1:]} an item; only one real number an item can be drawn"
        )
    return str(result.name if name == "value" else name), values.reshape(-1)
