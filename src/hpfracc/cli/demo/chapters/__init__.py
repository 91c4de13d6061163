"""The chapters of the demo. A chapter is a module of this package with ``build(context) -> Chapter``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from hpfracc.cli.demo.blocks import Chapter

__all__ = ["CHAPTERS", "DemoContext", "build"]

#: The chapters in order. A new chapter is one module and one entry here.
CHAPTERS: tuple[str, ...] = (
    "equations",
    "fitting",
    "plumes",
    "patterns",
    "convolution",
    "derivatives",
    "noise",
    "lattice",
    "profiling",
)


@dataclass(frozen=True)
class DemoContext:
    """Options of a chapter: whether to be quick, and ``report(fraction done, current step)`` for the progress bar."""

    quick: bool
    report: Callable[[float, str], None]


def build(name: str, context: DemoContext) -> Chapter:
    """Run one chapter."""
    chapter: Chapter = import_module(f"{__name__}.{name}").build(context)
    return chapter
