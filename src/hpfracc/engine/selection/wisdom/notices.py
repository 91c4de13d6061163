"""Warnings that are given once a process, not once a call."""

from __future__ import annotations

import warnings

from hpfracc.errors import WisdomWarning

__all__ = ["reset_warnings", "warn_once"]

_given: set[tuple[str, str]] = set()


def warn_once(what: str, where: str, message: str) -> None:
    """Warn of ``what`` at ``where``, unless that was done before."""
    if (what, where) not in _given:
        _given.add((what, where))
        warnings.warn(message, WisdomWarning, stacklevel=4)


def reset_warnings() -> None:
    """Let warnings that were given be given again."""
    _given.clear()
