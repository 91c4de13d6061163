"""The progress bar of solvers and batches, in terminals and notebooks."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["live_bar"]


def live_bar(*columns: Any) -> Progress:
    """A bar on the standard error, gone when it ends; in a file, its last state.

    In a notebook it is a widget. Without ipywidgets, where rich would warn and show nothing, it is text.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    text = console.is_jupyter and find_spec("ipywidgets") is None
    if text:  # notebooks draw a line again after a carriage return, and ignore the codes that erase one
        console = Console(stderr=True, force_jupyter=False, force_terminal=True, width=100)
    return Progress(*columns, console=console, transient=console.is_terminal and not text)
