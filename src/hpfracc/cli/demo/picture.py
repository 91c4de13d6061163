"""Pictures made without a plotting library: a raster as an embedded PNG, and a walk as SVG lines."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc.cli.demo.blocks import escape, inline_html

__all__ = ["Picture", "coloured", "png", "trail_svg"]

Array = np.ndarray[Any, Any]

#: Colour map with about equal steps in lightness, readable without colours.
_RAMP = np.array([[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]], float)


def coloured(values: Array, blocked: Array, path: Sequence[tuple[int, int]] = ()) -> Array:
    """RGB image of values from dark to light; blocked points are grey, unreachable ones white, the path red."""
    finite = np.isfinite(values)
    top = float(values[finite].max(initial=0.0)) or 1.0
    position = np.where(finite, values, 0.0) / top * (len(_RAMP) - 1)
    low = np.minimum(position.astype(int), len(_RAMP) - 2)
    weight = (position - low)[..., None]
    image = (1 - weight) * _RAMP[low] + weight * _RAMP[low + 1]
    image[~finite] = 255
    image[blocked] = (70, 70, 70)
    for row, column in path:
        image[row, column] = (230, 60, 50)
    return np.asarray(np.round(image).astype(np.uint8))


def png(image: Array, scale: int = 1) -> bytes:
    """PNG file of an image of shape (height, width, 3), with ``scale`` by ``scale`` pixels per point."""
    large = image.repeat(scale, 0).repeat(scale, 1)
    height, width, _ = large.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), large.reshape(height, -1)], axis=1)

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def trail_svg(trails: Sequence[tuple[str, Array]], side: int, title: str, size: int = 320) -> str:
    """SVG of walks on a square lattice, one panel each. A trail is an array of rows and columns.

    Jumps over the edge of a periodic lattice are not drawn.
    """
    gap, step = 24, size / side
    width = len(trails) * size + (len(trails) - 1) * gap
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {size + 24}" width="{width}" role="img" '
        f'font-family="sans-serif" font-size="14"><title>{escape(title)}</title>'
    ]
    for panel, (name, trail) in enumerate(trails):
        left = panel * (size + gap)
        parts.append(f'<rect x="{left}" y="24" width="{size}" height="{size}" fill="#8881" stroke="#888"/>')
        parts.append(f'<text x="{left}" y="15" fill="currentColor">{escape(name)}</text>')
        pieces = np.split(trail, 1 + np.flatnonzero(np.abs(np.diff(trail, axis=0)).max(-1) > side / 2))
        for piece in pieces:
            points = " ".join(f"{left + (c + 0.5) * step:.1f},{24 + (r + 0.5) * step:.1f}" for r, c in piece.tolist())
            parts.append(f'<polyline points="{points}" fill="none" stroke="#2a6fb0" stroke-width="1"/>')
    return "".join([*parts, "</svg>"])


@dataclass(frozen=True)
class Picture:
    """A picture embedded in the page: a PNG file, or the text of an SVG."""

    data: bytes | str
    description: str

    def to_html(self) -> str:
        """A figure with a caption."""
        if isinstance(self.data, str):
            image = self.data
        else:
            code = base64.b64encode(self.data).decode()
            image = f'<img src="data:image/png;base64,{code}" alt="{escape(self.description)}"/>'
        return f'<figure class="picture">{image}<figcaption>{inline_html(self.description)}</figcaption></figure>'
