"""Warnings that are given once a process, not once a call."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

from hpfracc.errors import WisdomWarning

__all__ = ["continuing", "reset_warnings", "warn_once"]

_given: set[tuple[str, str]] = set()


def warn_once(what: str, where: str, message: str) -> None:
    """Warn of ``what`` at ``where``, unless that was done before."""
    if (what, where) not in _given:
        _given.add((what, where))
        warnings.warn(message, WisdomWarning, stacklevel=4)


@contextlib.contextmanager
def continuing(where: object, consequence: str) -> Iterator[None]:
    """Let the caller's own work go on whatever goes wrong with wisdom in the block; a warning names it.

    The files are read strictly, so nothing known ends up here. But they are written by other processes, other versions
    and other machines, and a computation must not fail because of what was kept of earlier ones.
    """
    try:
        yield
    except Warning:  # whoever makes warnings errors wants them as errors
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        warn_once(
            "unexpected", str(where), f"wisdom at {where} could not be used ({reason}): {consequence}; please report it"
        )


def reset_warnings() -> None:
    """Let warnings that were given be given again."""
    _given.clear()
