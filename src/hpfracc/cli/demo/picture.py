"""Pictures that need no library: a raster as a PNG within the page, and a trail as lines."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc.cli.demo.blocks import escape, inline

__all__ = ["Picture", "coloured", "png", "trail_svg"]

Array = np.ndarray[Any, Any]

#: From near to far, of about equal steps in lightness so that it can be read without colours.
_RAMP = np.array([[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]], float)


def coloured(values: Array, blocked: Array, path: Sequence[tuple[int, int]] = ()) -> Array:
    """Values as colours from dark to light, what is blocked grey, what is out of reach white, the path red."""
    finite = np.isfinite(values)
    top = float(values[finite].max(initial=0.0)) or 1.0
    place = np.where(finite, values, 0.0) / top * (len(_RAMP) - 1)
    low = np.minimum(place.astype(int), len(_RAMP) - 2)
    share = (place - low)[..., None]
    image = (1 - share) * _RAMP[low] + share * _RAMP[low + 1]
    image[~finite] = 255
    image[blocked] = (70, 70, 70)
    for row, column in path:
        image[row, column] = (230, 60, 50)
    return np.asarray(np.round(image).astype(np.uint8))


def png(image: Array, scale: int = 1) -> bytes:
    """A picture of shape (height, width, 3), each point a square of ``scale`` pixels, as a PNG file."""
    large = image.repeat(scale, 0).repeat(scale, 1)
    height, width, _ = large.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), large.reshape(height, -1)], axis=1)

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def trail_svg(trails: Sequence[tuple[str, Array]], side: int, title: str, size: int = 320) -> str:
    """Places (rows and columns) visited one after the other on a square lattice, a panel for each trail.

    A jump over the edge of a periodic lattice is not drawn.
    """
    gap, step = 24, size / side
    width = len(trails) * size + (len(trails) - 1) * gap
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {size + 24}" width="{width}" role="img" '
        f'font-family="sans-serif" font-size="14"><title>{escape(title)}</title>'
    ]
    for panel, (name, places) in enumerate(trails):
        left = panel * (size + gap)
        parts.append(f'<rect x="{left}" y="24" width="{size}" height="{size}" fill="#8881" stroke="#888"/>')
        parts.append(f'<text x="{left}" y="15" fill="currentColor">{escape(name)}</text>')
        pieces = np.split(places, 1 + np.flatnonzero(np.abs(np.diff(places, axis=0)).max(-1) > side / 2))
        for piece in pieces:
            points = " ".join(f"{left + (c + 0.5) * step:.1f},{24 + (r + 0.5) * step:.1f}" for r, c in piece.tolist())
            parts.append(f'<polyline points="{points}" fill="none" stroke="#2a6fb0" stroke-width="1"/>')
    return "".join([*parts, "</svg>"])


@dataclass(frozen=True)
class Picture:
    """A picture within the page: a PNG, or the text of an SVG made here."""

    data: bytes | str
    description: str

    def to_html(self) -> str:
        """A figure with its description below."""
        if isinstance(self.data, str):
            image = self.data
        else:
            code = base64.b64encode(self.data).decode()
            image = f'<img src="data:image/png;base64,{code}" alt="{escape(self.description)}"/>'
        return f'<figure class="picture">{image}<figcaption>{inline(self.description)}</figcaption></figure>'
