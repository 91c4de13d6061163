"""The errors hpfracc raises.

Every message says what was wrong, shows the value, and ends with what to do. Each class also derives from the
built-in exception a caller would expect, so ``except ValueError`` keeps working.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "AllBackendsFailedError",
    "BackendError",
    "BackendUnavailableError",
    "BatchItemError",
    "ConfigurationError",
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
    """Base of every error that hpfracc raises on purpose."""


class InvalidInputError(HpfraccError, ValueError):
    """A value outside what the function is defined for."""


class ShapeError(InvalidInputError):
    """Arrays whose shapes do not fit each other or the function."""


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

    def __reduce__(self) -> tuple[type[BatchItemError], tuple[str, int]]:
        return type(self), (str(self), self.index)


class WisdomError(HpfraccError, ValueError):
    """A wisdom file that cannot be imported."""


class RecompilationWarning(UserWarning):
    """A function is compiled again at every call, and how that is avoided."""


class WisdomWarning(UserWarning):
    """A damaged wisdom file was set aside, or wisdom cannot be kept here."""
