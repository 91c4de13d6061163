"""The errors hpfracc raises.

Every message says what was wrong, shows the value, and ends with what to do. Each class also derives from the
built-in exception a caller would expect, so ``except ValueError`` keeps working.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, cast

__all__ = [
    "AccuracyWarning",
    "AllBackendsFailedError",
    "BackendError",
    "BackendUnavailableError",
    "BatchItemError",
    "ConfigurationError",
    "DiskFullError",
    "DivergenceError",
    "HpfraccError",
    "InvalidInputError",
    "MissingDependencyError",
    "NoPathError",
    "OutOfMemoryError",
    "PinnedBackendError",
    "RecompilationWarning",
    "ShapeError",
    "SolveError",
    "UnknownOperationError",
    "UnsupportedDtypeError",
    "WisdomError",
    "WisdomWarning",
]


class HpfraccError(Exception):
    """Base of every error that hpfracc raises on purpose.

    All of them can be pickled and copied, with their attributes and their cause, so that they reach the caller from
    another process. What another library raised and cannot be pickled arrives as its text.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        made = cast(tuple[Any, ...], super().__reduce__())
        state = {name: _portable(value) for name, value in (made[2] if len(made) > 2 else {}).items()}
        if self.__cause__ is not None:
            state["__cause__"] = _portable(self.__cause__)
        return _rebuild, (type(self), self.args), state


def _rebuild(kind: type[HpfraccError], args: tuple[Any, ...]) -> HpfraccError:
    """An error without its own ``__init__``, whose parameters need not be ``args``; the state follows."""
    builtin: Any = kind
    while builtin.__module__ != "builtins":  # the one whose memory layout it has, which alone may make it
        builtin = builtin.__base__
    error: HpfraccError = builtin.__new__(kind, *args)
    super(HpfraccError, error).__init__(*args)
    return error


def _portable(value: Any) -> Any:
    """Errors that cannot be pickled, alone or in a mapping, by their text."""
    if isinstance(value, Mapping):
        return {name: _portable(each) for name, each in value.items()}
    if not isinstance(value, BaseException):
        return value
    if isinstance(value, BaseExceptionGroup):
        return value.derive([_portable(each) for each in value.exceptions])
    try:
        pickle.loads(pickle.dumps(value))
    except Exception:  # whatever somebody's class raises where it is taken apart or made again
        return RuntimeError(f"{type(value).__qualname__}: {value}")
    return value


class InvalidInputError(HpfraccError, ValueError):
    """A value outside what the function is defined for."""


class ShapeError(InvalidInputError):
    """Arrays whose shapes do not fit each other or the function."""


class DivergenceError(InvalidInputError, ArithmeticError):
    """An operator of a function for which its integral does not exist."""


class UnsupportedDtypeError(HpfraccError, TypeError):
    """A dtype that no kernel of the operation can serve."""


class ConfigurationError(HpfraccError, ValueError):
    """A setting or an environment variable that cannot be obeyed."""


class UnknownOperationError(HpfraccError, LookupError):
    """An operation or primitive that nobody registered."""


class MissingDependencyError(HpfraccError, ImportError):
    """An optional library that is not installed, with the extra that brings it."""


class OutOfMemoryError(HpfraccError, MemoryError):
    """No arm fits into the memory that is free: names need, have and advice."""


class DiskFullError(HpfraccError, OSError):
    """A file for which the disk has no room: names need, have, the folder and advice."""


class SolveError(HpfraccError, RuntimeError):
    """An equation could not be solved to the end: where it stopped, why, and what to do."""


class NoPathError(HpfraccError, LookupError):
    """Two points of a lattice that no path joins, because of the obstacles between them."""


class BackendError(HpfraccError, RuntimeError):
    """A backend could not do what was asked of it."""


class BackendUnavailableError(BackendError):
    """The backend that was asked for cannot serve this call, and why."""


class PinnedBackendError(BackendError):
    """Another backend was asked for than the one that owns the arrays."""


class AllBackendsFailedError(BackendError):
    """Every arm was tried and every one failed.

    Attributes
    ----------
    failures : dict[str, BaseException]
        What each arm raised, in the order they were tried; also the exceptions of ``__cause__``, an
        :class:`ExceptionGroup`.
    """

    def __init__(self, message: str, failures: Mapping[str, BaseException]) -> None:
        super().__init__(message)
        self.failures: dict[str, BaseException] = dict(failures)


class BatchItemError(HpfraccError, RuntimeError):
    """A call for one item of a batch failed; its cause is what the call raised.

    Attributes
    ----------
    index : int
        The item's place in the batch, from 0.
    """

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


class WisdomError(HpfraccError, ValueError):
    """A wisdom file that cannot be imported."""


class RecompilationWarning(UserWarning):
    """A function is compiled again at every call, and how that is avoided."""


class AccuracyWarning(UserWarning):
    """An answer that may be off by more than the tolerance; the message has the estimate of its error."""


class WisdomWarning(UserWarning):
    """A damaged wisdom file was set aside, or wisdom cannot be kept here."""
