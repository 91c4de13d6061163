"""Errors and warnings.

Every message says what is wrong, shows the value, and ends with what to do. Each class also derives from the built-in
exception that a caller would expect, so ``except ValueError`` works.
"""

from __future__ import annotations

import pickle
import sys
import warnings
from collections.abc import Mapping
from typing import Any, cast

__all__ = [
    "AccuracyWarning", "AllBackendsFailedError", "BackendError", "BackendUnavailableError", "BatchItemError",
    "ClusterError", "ConfigurationError", "DiskFullError", "DivergenceError", "HpfraccError", "Interrupted",
    "InvalidInputError", "MissingDependencyError", "NoPathError", "OutOfMemoryError", "PinnedBackendError",
    "RecompilationWarning", "ShapeError", "SolveError", "StoreError", "UnknownOperationError",
    "UnsupportedDtypeError", "WisdomError", "WisdomWarning",
]  # fmt: skip


class HpfraccError(Exception):
    """Base class of all errors that hpfracc raises deliberately.

    They can be pickled and copied, with their attributes and cause, so that they can be raised across processes. An
    exception of another library that cannot be pickled is replaced by its text.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        reduced = cast(tuple[Any, ...], super().__reduce__())
        state = {name: _portable(value) for name, value in (reduced[2] if len(reduced) > 2 else {}).items()}
        if self.__cause__ is not None:
            state["__cause__"] = _portable(self.__cause__)
        return _rebuild, (type(self), self.args), state


def _rebuild(kind: type[HpfraccError], args: tuple[Any, ...]) -> HpfraccError:
    """Create an error without calling its ``__init__``, whose parameters may differ from ``args``."""
    builtin: Any = kind
    while builtin.__module__ != "builtins":  # the base that defines the memory layout; only its __new__ works
        builtin = builtin.__base__
    error: HpfraccError = builtin.__new__(kind, *args)
    super(HpfraccError, error).__init__(*args)
    return error


def _portable(value: Any) -> Any:
    """Replace exceptions that cannot be pickled, alone or in a mapping, by their text."""
    if isinstance(value, Mapping):
        return {name: _portable(each) for name, each in value.items()}
    if not isinstance(value, BaseException):
        return value
    if isinstance(value, BaseExceptionGroup):
        return value.derive([_portable(each) for each in value.exceptions])
    if isinstance(value, HpfraccError):  # does the same for what it has; a trial here would try its causes again
        return value
    try:
        pickle.loads(pickle.dumps(value))
    except Exception:  # a foreign class may raise anything here
        return RuntimeError(f"{type(value).__qualname__}: {value}")
    return value


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended a solve, a fit, a sweep or a batch. :func:`hpfracc.interrupted` returns the part of the last one.

    Attributes
    ----------
    solution : object
        What was done up to then: the usual result, with ``success=False``; None if there is nothing yet.
    """

    def __init__(self, message: str = "", solution: Any = None) -> None:
        super().__init__(message)
        self.solution = solution


class InvalidInputError(HpfraccError, ValueError):
    """A value for which the function is not defined."""


class ShapeError(InvalidInputError):
    """Array shapes that do not match each other or the function."""


class DivergenceError(InvalidInputError, ArithmeticError):
    """The operator's integral diverges for this function."""


class UnsupportedDtypeError(HpfraccError, TypeError):
    """A dtype that no kernel of the operation supports."""


class ConfigurationError(HpfraccError, ValueError):
    """An invalid setting or environment variable."""


class UnknownOperationError(HpfraccError, LookupError):
    """An operation or primitive that is not registered."""


class MissingDependencyError(HpfraccError, ImportError):
    """An optional library is not installed. The message names the extra that installs it."""


class OutOfMemoryError(HpfraccError, MemoryError):
    """No arm fits into free memory. The message has the required and free bytes, and advice."""


class DiskFullError(HpfraccError, OSError):
    """A file does not fit on the disk. The message has the required and free bytes, the folder, and advice."""


class SolveError(HpfraccError, RuntimeError):
    """The solver stopped before the end. The message says where, why, and what to do."""


class NoPathError(HpfraccError, LookupError):
    """No path connects two points of a lattice, because of obstacles."""


class BackendError(HpfraccError, RuntimeError):
    """A backend failed or cannot be used."""


class BackendUnavailableError(BackendError):
    """The requested backend cannot run this call. The message says why."""


class PinnedBackendError(BackendError):
    """The requested backend is not the one that owns the arrays."""


class AllBackendsFailedError(BackendError):
    """Every arm was tried, and all of them failed.

    Attributes
    ----------
    failures : dict[str, BaseException]
        The exception of each arm, in the order of the attempts. ``__cause__`` is an :class:`ExceptionGroup` of them.
    """

    def __init__(self, message: str, failures: Mapping[str, BaseException]) -> None:
        super().__init__(message)
        self.failures: dict[str, BaseException] = dict(failures)


class BatchItemError(HpfraccError, RuntimeError):
    """The call for one item of a batch failed. ``__cause__`` is the original exception.

    Attributes
    ----------
    index : int
        Position of the item in the batch, from 0.
    """

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


class ClusterError(HpfraccError, RuntimeError):
    """A cluster cannot be used, or was lost. The message says how to go on."""


class StoreError(HpfraccError, ValueError):
    """A store that belongs to another sweep, or is damaged."""


class WisdomError(HpfraccError, ValueError):
    """A wisdom file that cannot be imported."""


class RecompilationWarning(UserWarning):
    """A function is recompiled at every call. The message says how to avoid it."""


class AccuracyWarning(UserWarning):
    """A result may miss its tolerance. The message has the estimated error."""


def warn(message: str, category: type[Warning] = AccuracyWarning) -> None:
    """Warn at the line that called hpfracc, however deep in it."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("hpfracc."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


class WisdomWarning(UserWarning):
    """A damaged wisdom file was set aside, or wisdom cannot be stored."""
