"""Figures for pages that are light or dark: the same drawing in two sets of colours."""

from __future__ import annotations

import colorsys
from typing import Any

__all__ = ["darken", "image"]

#: The background of the dark pages, and the lightest colour on them.
_GROUND, _LIGHTEST = 0.08, 0.92
#: Colours of less saturation than that are greys, which are inverted; others only become lighter where they are dark.
_GREY, _DARK = 0.3, 0.55
_NAMES = ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor")


def darken(figure: Any) -> None:
    """Change the colours of a drawn figure for a dark page. Pictures and colour maps stay."""
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.colors import to_rgba_array
    from matplotlib.figure import FigureBase
    from matplotlib.text import Text

    mpl.rcParams["savefig.facecolor"] = "auto"  # that of the figure
    boxes = [box for text in figure.findobj(Text) if (box := text.get_bbox_patch()) is not None]
    changes = []
    for artist in [*figure.findobj(), *boxes]:
        # Those of figures and axes are the colours of their patches, which are found too.
        mapped = getattr(artist, "get_array", lambda: None)() is not None
        for name in () if mapped or isinstance(artist, FigureBase | Axes) else _NAMES:
            read, write = getattr(artist, f"get_{name}", None), getattr(artist, f"set_{name}", None)
            value = None if read is None or write is None else read()
            if value is not None and not (isinstance(value, str) and value == "auto"):
                changes.append((write, [_dark(*map(float, each)) for each in to_rgba_array(value)]))  # none of "none"
    for write, colours in changes:  # when all are read, because a marker has the colour of its line
        if colours:
            write(colours[0] if len(colours) == 1 else colours)


def _dark(red: float, green: float, blue: float, alpha: float) -> tuple[float, float, float, float]:
    hue, light, _ = colorsys.rgb_to_hls(red, green, blue)
    spread = max(red, green, blue) - min(red, green, blue)
    if spread < _GREY:
        light = _LIGHTEST - light * (_LIGHTEST - _GROUND)
    elif light < _DARK:
        light = _DARK
    saturation = 0.0 if spread < 0.02 else spread / max(1.0 - abs(2.0 * light - 1.0), spread)
    return (*colorsys.hls_to_rgb(hue, light, min(saturation, 1.0)), alpha)


def image(words: str, path: str) -> str:
    """The two pictures of a figure in Markdown, of which a page shows one."""
    dark = path.replace(".png", "-dark.png")
    return f"![{words}]({path}){{.only-light}}![{words}]({dark}){{.only-dark}}"
