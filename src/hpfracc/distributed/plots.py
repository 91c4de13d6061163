"""Plots of sweeps."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc._optional import import_optional
from hpfracc.distributed.parameters import ParameterGrid
from hpfracc.errors import InvalidInputError

__all__ = ["plot_sweep"]


_KINDS = ("auto", "line", "map", "surface", "scatter")
#: Ratio of the ends of a geometric range from which a logarithmic axis is used.
_WIDE = 20.0


def plot_sweep(result: Any, output: str | None, *, kind: str, ax: Any) -> Any:
    """Draw one number per item over one or two parameters; see :meth:`SweepResult.plot`."""
    if kind not in _KINDS:
        raise InvalidInputError(f"kind={kind!r}: use {', '.join(map(repr, _KINDS))}")
    name, values = _chosen(result, output)
    varied = {key: axis for key, axis in result.params.values.items() if len(np.unique(axis)) > 1}
    if any(axis.ndim > 1 or axis.dtype.kind not in "biuf" for axis in varied.values()):
        raise InvalidInputError("only parameters that are real numbers can be drawn; draw result.values yourself")
    is_grid = isinstance(result.params, ParameterGrid)
    if kind == "auto":
        kind = "line" if len(varied) == 1 else "map" if is_grid else "scatter"
    wanted = 1 if kind == "line" else 2
    if len(varied) != wanted or (kind != "line" and is_grid != (kind != "scatter")):
        items = "" if kind == "line" else " of a grid" if kind != "scatter" else " of points"
        raise InvalidInputError(
            f"kind={kind!r} needs {wanted} parameter{'s' if wanted > 1 else ''}{items} with several values, and there "
            f"are {len(varied)}: {', '.join(varied) or 'none'}; draw result.values yourself"
        )
    pyplot = import_optional("matplotlib.pyplot")
    if ax is None:
        ax = pyplot.figure().add_subplot(projection="3d" if kind == "surface" else None)
    if kind == "line":
        along, points = next(iter(varied.items()))
        order = np.argsort(points, kind="stable")
        ax.plot(points[order], values[order])
        ax.set(xlabel=along, ylabel=name, xscale=_scale(points))
        return ax
    (first, rows), (second, columns) = varied.items()
    if kind == "scatter":
        drawn = ax.scatter(rows, columns, c=values)
        ax.figure.colorbar(drawn, ax=ax, label=name)
        ax.set(xlabel=first, ylabel=second, xscale=_scale(rows), yscale=_scale(columns))
        return ax
    surface = values.reshape(len(rows), len(columns))
    if kind == "surface":
        x, y = np.meshgrid(rows, columns, indexing="ij")
        ax.plot_surface(x, y, surface, cmap="viridis")
        ax.set(xlabel=first, ylabel=second, zlabel=name)
    else:
        drawn = ax.pcolormesh(columns, rows, surface, shading="nearest")
        ax.figure.colorbar(drawn, ax=ax, label=name)
        ax.set(xlabel=second, ylabel=first, xscale=_scale(columns), yscale=_scale(rows))
    return ax


def _scale(points: Any) -> str:
    """``"log"`` for values that grow by equal factors over a wide range."""
    found = np.unique(points).astype(np.float64)
    if len(found) < 3 or found[0] <= 0.0 or found[-1] < _WIDE * found[0]:
        return "linear"
    ratios = np.diff(np.log(found))
    return "log" if np.ptp(ratios) < 1e-6 * ratios.max() else "linear"


def _chosen(result: Any, output: str | None) -> tuple[str, Any]:
    found = result.arrays()
    name = next(iter(found)) if output is None and len(found) == 1 else output
    if name not in found:
        raise InvalidInputError(f"output={output!r}: the results are {', '.join(found)}; name one of them")
    values = found[name]
    if values.size != len(result.params) or values.dtype.kind == "c":
        raise InvalidInputError(
            f"{name} has shape {values.shape[1:]} per item; only one real number per item can be drawn"
        )
    return str(result.label if name == "value" else name), values.reshape(-1)
