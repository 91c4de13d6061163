"""Plots of a solution: over space and time, at selected times, and as an animation."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc._optional import import_optional
from hpfracc.errors import InvalidInputError

Array = np.ndarray[Any, Any]

KINDS = ("auto", "kymograph", "profiles", "frames", "errors")


def plot_evolution(
    t: Array,
    x: Any,
    u: Array,
    kind: str,
    component: int,
    *,
    times: Any,
    ax: Any,
    path: Any,
    seconds: float,
    style: dict[str, Any],
) -> Any:
    """See :meth:`FPDEResult.plot`."""
    _reading.choice("kind", kind, KINDS)
    grid = x if isinstance(x, tuple) else (x,)
    if u.ndim == len(grid) + 2:
        if not -u.shape[1] <= component < u.shape[1]:
            raise InvalidInputError(f"component={component!r}: the solution has {u.shape[1]}")
        u = u[:, component]
    label = "u"
    if np.iscomplexobj(u):
        u, label = np.abs(u), "|u|"
    if kind == "auto":
        kind = "kymograph" if len(grid) == 1 else "frames"
    if path is not None and kind != "frames":
        raise InvalidInputError("path= is for kind='frames', an animation; save a picture with ax.figure.savefig(path)")
    if not len(t):
        raise InvalidInputError("there are no frames to draw")
    if kind == "kymograph":
        if len(grid) != 1:
            raise InvalidInputError(f"a kymograph needs one dimension, and there are {len(grid)}; use kind='frames'")
        return _kymograph(t, grid[0], u, ax, style, label)
    if kind == "profiles":
        return _profiles(t, grid, u, times, ax, style, label)
    if ax is not None:
        raise InvalidInputError("ax= is for one picture, and kind='frames' has several; omit it or use kind='profiles'")
    if path is not None:
        return _animate(t, grid, u, path, seconds, style, label)
    return _frames(t, grid, u, times, style, label)


def plot_errors(t: Array, errors: dict[str, Array], component: int, ax: Any, style: dict[str, Any]) -> Any:
    """Draw the estimated errors in time and space over t, on logarithmic axes."""
    ax = _axes(ax, "estimated error")
    for name, values in errors.items():
        shown = values[:, component] if values.ndim == 2 else values
        seen = (t > t[0]) & (shown > 0.0)
        ax.plot(t[seen], shown[seen], **{"marker": ".", "label": f"in {name}", **style})
    ax.set(xlabel="t", xscale="log" if t[0] >= 0.0 else "linear", yscale="log")
    ax.legend()
    return ax


def _kymograph(t: Array, x: Array, u: Array, ax: Any, style: dict[str, Any], label: str) -> Any:
    ax = _axes(ax, "t")
    drawn = ax.pcolormesh(x, t, u, **{"shading": "gouraud" if len(t) > 1 else "nearest", "cmap": "viridis", **style})
    ax.figure.colorbar(drawn, ax=ax, label=label)
    return ax


def _profiles(
    t: Array, grid: tuple[Array, ...], u: Array, times: Any, ax: Any, style: dict[str, Any], label: str
) -> Any:
    ax = _axes(ax, label)
    chosen = _chosen(t, times, 6, even=False)
    middle = tuple(points.size // 2 for points in grid[1:])
    colours = import_optional("matplotlib").colormaps["viridis"](np.linspace(0.0, 0.9, len(chosen)))
    for colour, number in zip(colours, chosen, strict=True):
        values = u[(number, slice(None), *middle)]
        ax.plot(grid[0], values, **{"color": colour, "label": _at(t[number]), **style})
    ax.legend()
    return ax


def _axes(ax: Any, label: str) -> Any:
    ax = import_optional("matplotlib.pyplot").subplots(layout="constrained")[1] if ax is None else ax
    ax.set(xlabel="x", ylabel=label)
    return ax


def _shown(grid: tuple[Array, ...], values: Array) -> Array:
    """What is drawn of a frame: its values in one dimension, an image in two, the middle slice in three."""
    return values if len(grid) == 1 else (values[:, :, grid[2].size // 2] if len(grid) == 3 else values).T


def _pictures(
    t: Array, grid: tuple[Array, ...], u: Array, chosen: Array, style: dict[str, Any], label: str, size: Any = None
) -> tuple[Any, list[Any]]:
    """Axes with a picture of each chosen frame, on the scale of all of ``u``; and the pictures."""
    figure, axes = import_optional("matplotlib.pyplot").subplots(
        1, len(chosen), figsize=size, layout="constrained", squeeze=False
    )
    low, high = float(np.nanmin(u)), float(np.nanmax(u))
    drawn = []
    for ax, number in zip(axes[0], chosen, strict=True):
        values = _shown(grid, u[number])
        if len(grid) == 1:
            drawn += ax.plot(grid[0], values, **style)
            span = max(high - low, 1e-12)
            ax.set_ylim(low - 0.05 * span, high + 0.05 * span)
        else:
            extent = (float(grid[0][0]), float(grid[0][-1]), float(grid[1][0]), float(grid[1][-1]))
            settings = {"origin": "lower", "extent": extent, "vmin": low, "vmax": high, "cmap": "viridis", **style}
            drawn.append(ax.imshow(values, **settings))
        ax.set(title=_at(t[number]), xlabel="x")
    axes[0, 0].set_ylabel(label if len(grid) == 1 else "y")
    if len(grid) > 1:
        figure.colorbar(drawn[-1], ax=list(axes[0]), label=label)
    return axes[0], drawn


def _frames(t: Array, grid: tuple[Array, ...], u: Array, times: Any, style: dict[str, Any], label: str) -> Any:
    chosen = _chosen(t, times, 4, even=True)
    return _pictures(t[chosen], grid, u[chosen], np.arange(len(chosen)), style, label, (3.2 * len(chosen), 3.2))[0]


def _animate(
    t: Array, grid: tuple[Array, ...], u: Array, path: Any, seconds: float, style: dict[str, Any], label: str
) -> Any:
    animation, rate = import_optional("matplotlib.animation"), 15
    if not seconds > 0.0:
        raise InvalidInputError(f"seconds={seconds!r} has to be above 0")
    numbers = _chosen(t, np.linspace(t[0], t[-1], max(2, int(rate * seconds))), 0, even=True)
    (ax,), (drawn,) = _pictures(t, grid, u, numbers[:1], style, label)

    def show(number: int) -> tuple[Any, ...]:
        (drawn.set_ydata if len(grid) == 1 else drawn.set_data)(_shown(grid, u[number]))
        ax.set_title(_at(t[number]))
        return (drawn,)

    made = animation.FuncAnimation(ax.figure, show, frames=numbers.tolist())
    writer = animation.PillowWriter(fps=rate) if str(path).lower().endswith(".gif") else None
    made.save(str(path), writer=writer, fps=None if writer else rate)
    import_optional("matplotlib.pyplot").close(ax.figure)
    return path


def _chosen(t: Array, times: Any, count: int, *, even: bool) -> Array:
    """Indices of the frames nearest to the requested times."""
    if times is None:
        span = t[-1] - t[0]
        wanted = t[0] + span * np.linspace(0.0, 1.0, count) ** (1 if even else 2)
    else:
        wanted = np.atleast_1d(np.asarray(times, dtype=np.float64))
        slack = 1e-9 * max(1.0, abs(float(t[-1])))
        if np.any(wanted < t[0] - slack) or np.any(wanted > t[-1] + slack):
            raise InvalidInputError(f"times={times!r} lie outside the solution, from {t[0]:g} to {t[-1]:g}")
    return np.unique(np.abs(t[:, None] - wanted[None, :]).argmin(axis=0))


def _at(t: float) -> str:
    return f"t = {t:,.0f}" if t >= 1000.0 else f"t = {t:.3g}"
