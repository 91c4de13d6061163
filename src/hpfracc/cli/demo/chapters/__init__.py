"""The chapters of the demo, in their order. A chapter is a module here with ``build(context) -> Chapter``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from hpfracc.cli.demo.blocks import Chapter

__all__ = ["CHAPTERS", "Context", "build"]

#: Modules of this folder; a new chapter is one file and one entry here.
CHAPTERS: tuple[str, ...] = ("equations", "convolution", "derivatives", "lattice", "profiling")


@dataclass(frozen=True)
class Context:
    """What a chapter is told: whether to be quick, and how to say how far it is (a share of 1) and what it does."""

    quick: bool
    report: Callable[[float, str], None]


def build(name: str, context: Context) -> Chapter:
    """Run one chapter."""
    chapter: Chapter = import_module(f"{__name__}.{name}").build(context)
    return chapter
