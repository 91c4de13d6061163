"""A line chart as SVG, with logarithmic or linear axes, labels at the ends of lines, and tooltips on points."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hpfracc.cli.demo.blocks import escape

__all__ = ["Chart", "ChartLine", "Mark"]


@dataclass(frozen=True)
class ChartLine:
    """A line: its name, its CSS class, and its points (x, y, tooltip)."""

    name: str
    kind: str
    points: Sequence[tuple[float, float, str]]


@dataclass(frozen=True)
class Mark:
    """An annotation at a position on the x axis."""

    x: float
    text: str


@dataclass(frozen=True)
class _Frame:
    """Size of the chart and its margins."""

    name: str
    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    font: int


#: The chart is drawn twice, for wide and for narrow pages. Scaled down, its text could not be read.
_WIDE = _Frame("wide", 960, 500, 64, 128, 44, 46, 13)
_NARROW = _Frame("narrow", 360, 440, 46, 62, 40, 42, 11)


@dataclass(frozen=True)
class Chart:
    """A line chart.

    Attributes
    ----------
    title, description : str
        Texts for screen readers.
    x_name, y_name : str
        Names of the axes.
    lines : sequence of ChartLine
        The last one is drawn on top.
    x_ticks, y_ticks : sequence of (value, label)
        Positions and labels of grid lines.
    marks : sequence of Mark
        Annotations above the chart.
    linear : bool
        Whether the axes are linear instead of logarithmic.
    dots : bool
        Whether points are drawn as dots with tooltips. Not for curves of hundreds of points.
    """

    title: str
    description: str
    x_name: str
    y_name: str
    lines: Sequence[ChartLine]
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    marks: Sequence[Mark] = ()
    linear: bool = False
    dots: bool = True

    def to_html(self) -> str:
        """Both versions; the style sheet shows the one for the page's width."""
        drawings = "".join(self._draw(frame) for frame in (_WIDE, _NARROW))
        return f'<figure class="chart">{drawings}</figure>'

    def _draw(self, frame: _Frame) -> str:
        scale = _Scale(frame, [x for x, _ in self.x_ticks], [y for y, _ in self.y_ticks], linear=self.linear)
        # Derived from the title, because ids must be unique within a page.
        title = f"{frame.name}-{hashlib.sha256(self.title.encode()).hexdigest()[:8]}"
        parts = [
            f'<svg class="{frame.name}" viewBox="0 0 {frame.width} {frame.height}" font-size="{frame.font}" role="img" '
            f'aria-labelledby="{title}"><title id="{title}">{escape(self.title)}</title>'
            f"<desc>{escape(self.description)}</desc>",
            *self._grid(frame, scale),
            *self._marks(frame, scale),
            *(self._line(line, scale) for line in self.lines),
            *self._names(frame, scale),
            "</svg>",
        ]
        return "".join(parts)

    def _grid(self, frame: _Frame, scale: _Scale) -> list[str]:
        right, bottom = frame.width - frame.right, frame.height - frame.bottom
        parts = []
        for value, label in self.y_ticks:
            y = scale.y(value)
            parts.append(f'<line class="grid" x1="{frame.left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(
                f'<text class="tick" x="{frame.left - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>'
            )
        for value, label in self.x_ticks:
            x = scale.x(value)
            parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{frame.top}" y2="{bottom}"/>')
            y = bottom + frame.font + 6
            parts.append(f'<text class="tick" x="{x:.1f}" y="{y}" text-anchor="middle">{escape(label)}</text>')
        x, y = (frame.left + right) / 2, frame.height - 4
        parts.append(f'<text class="axis" x="{x:.0f}" y="{y}" text-anchor="middle">{escape(self.x_name)}</text>')
        parts.append(f'<text class="axis" x="2" y="{frame.font}">{escape(self.y_name)}</text>')
        return parts

    def _marks(self, frame: _Frame, scale: _Scale) -> list[str]:
        parts = []
        bottom, right = frame.height - frame.bottom, frame.width - frame.right
        ends = [-math.inf, -math.inf]  # right ends of the texts so far, in two rows
        for mark in self.marks:
            x = scale.x(mark.x)
            width = 0.58 * frame.font * len(mark.text)
            start = min(max(x - width / 2, frame.left), right - width)
            parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{frame.top}" y2="{bottom}"/>')
            row = next((row for row, end in enumerate(ends) if end < start), None)
            if row is None:  # no room for the text, which the table has too
                continue
            ends[row] = start + width + 6
            y = frame.top - 6 - row * (frame.font + 2)
            parts.append(f'<text class="mark" x="{start:.1f}" y="{y:.1f}">{escape(mark.text)}</text>')
        return parts

    def _line(self, line: ChartLine, scale: _Scale) -> str:
        points = [(scale.x(x), scale.y(y), tooltip) for x, y, tooltip in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
        dots = "".join(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5"><title>{escape(tooltip)}</title></circle>'
            for x, y, tooltip in (points if self.dots else ())
        )
        halo = f'<polyline class="halo" points="{path}"/>' if line.kind.startswith("auto") else ""
        return f'<g class="line {escape(line.kind)}">{halo}<polyline points="{path}"/>{dots}</g>'

    def _names(self, frame: _Frame, scale: _Scale) -> list[str]:
        """Names of the lines above their last points, or at the right edge with a connecting line, without overlaps."""
        every = [(scale.x(line.points[-1][0]), scale.y(line.points[-1][1]), line) for line in self.lines if line.points]
        edge = frame.width - frame.right
        parts, ends = [], []
        written: list[tuple[float, float, float]] = []
        for x, y, line in sorted(every, key=lambda end: -end[1]):
            width = 0.6 * frame.font * len(line.name)
            if x >= edge - width - 12:
                ends.append((x, y, line))
                continue
            top = y - 9
            for other, height, taken in written:  # from the lowest; later names move up
                if abs(x - other) < (width + taken) / 2 and abs(top - height) < frame.font + 1.0:
                    top = height - frame.font - 1.0
            written.append((x, top, width))
            above = f'x="{x:.1f}" y="{top:.1f}" text-anchor="middle"'
            parts.append(f'<text class="name {escape(line.kind)}" {above}>{escape(line.name)}</text>')
        ends.sort(key=lambda end: end[1])
        heights = spread([y for _, y, _ in ends], frame.font + 3.0, frame.top + 6.0, frame.height - frame.bottom)
        column = edge + 14
        for (x, y, line), height in zip(ends, heights, strict=True):
            kind = escape(line.kind)
            parts.append(
                f'<path class="thread {kind}" d="M{x + 5:.1f} {y:.1f} L{column - 4} {height:.1f}"/>'
                f'<text class="name {kind}" x="{column}" y="{height + 4:.1f}">{escape(line.name)}</text>'
            )
        return parts


class _Scale:
    """Maps values to positions in the chart."""

    def __init__(self, frame: _Frame, xs: Sequence[float], ys: Sequence[float], *, linear: bool = False) -> None:
        self._frame = frame
        self._transform: Callable[[float], float] = float if linear else math.log
        self._x0, self._x1 = self._transform(min(xs)), self._transform(max(xs))
        self._y0, self._y1 = self._transform(min(ys)), self._transform(max(ys))

    def x(self, value: float) -> float:
        """Horizontal position."""
        fraction = (self._transform(value) - self._x0) / (self._x1 - self._x0)
        return self._frame.left + fraction * (self._frame.width - self._frame.left - self._frame.right)

    def y(self, value: float) -> float:
        """Vertical position, counted downwards."""
        fraction = (self._transform(value) - self._y0) / (self._y1 - self._y0)
        low, high = self._frame.height - self._frame.bottom, self._frame.top
        return low - fraction * (low - high)


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move ascending positions apart to at least ``gap``, as little as possible, between ``low`` and ``high``."""
    # Overlapping neighbours form a block, which is centred on the mean of its members' positions.
    blocks: list[tuple[float, list[float]]] = []
    for position in positions:
        block = (position, [position])
        while blocks:
            centre, members = blocks[-1]
            reach = (len(members) + len(block[1])) * gap / 2
            if block[0] - centre >= reach:
                break
            blocks.pop()
            together = members + block[1]
            block = (sum(together) / len(together), together)
        blocks.append(block)
    found: list[float] = []
    for centre, members in blocks:
        first = centre - (len(members) - 1) * gap / 2
        found += [first + number * gap for number in range(len(members))]
    for index in range(len(found) - 1, -1, -1):
        limit = high - (len(found) - 1 - index) * gap
        found[index] = min(found[index], limit)
    for index in range(len(found)):
        found[index] = max(found[index], low + index * gap)
    return found
