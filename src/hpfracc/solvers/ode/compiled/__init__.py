"""The stepping compiled with Numba: read when a solve is long enough for it, for Numba takes long to load."""

from __future__ import annotations

from hpfracc._optional import import_optional

__all__ = ["NotCompiledError", "require"]


class NotCompiledError(Exception):
    """A function is not compiled; the message says why, in one line."""


def require() -> None:
    """Load Numba, or raise the error that names its extra."""
    import_optional("numba")
