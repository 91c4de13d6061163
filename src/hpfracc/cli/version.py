"""The version of the package that this command belongs to."""

from __future__ import annotations

import sys

__all__ = ["library_version"]


def library_version() -> str:
    """What ``hpfracc.__version__`` says; the package is loaded, or this module would not be."""
    return str(sys.modules[__name__.partition(".")[0]].__version__)
