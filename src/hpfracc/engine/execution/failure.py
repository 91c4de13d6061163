"""What kind of failure was that? The answer decides what is done about it."""

from __future__ import annotations

import enum

from hpfracc.engine.backends.base import Adapter
from hpfracc.errors import HpfraccError

__all__ = ["Failure", "classify", "drop_frames"]


class Failure(enum.Enum):
    """The classes of failure, each with its own cure."""

    CALLER = "the caller's mistake"
    UNSUPPORTED = "not supported"
    MEMORY = "out of memory"
    IMPORT = "cannot be imported"
    TRANSIENT = "failed"


#: Mistakes in the arguments. They would be mistakes on every backend, so they are raised unchanged.
#: Errors of our own were raised on purpose and already say what to do; warnings and floating-point errors were made
#: errors by the user.
_CALLER = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    NameError,
    AssertionError,
    ArithmeticError,
    Warning,
    HpfraccError,
)


def classify(error: BaseException, adapter: Adapter) -> Failure:
    """The class of an error that a kernel of ``adapter`` raised, or that loading it did."""
    if isinstance(error, NotImplementedError):
        return Failure.UNSUPPORTED
    if isinstance(error, MemoryError) or adapter.is_out_of_memory(error):
        return Failure.MEMORY
    if isinstance(error, ImportError):
        return Failure.IMPORT
    if isinstance(error, _CALLER):
        return Failure.CALLER
    return Failure.TRANSIENT


def drop_frames(error: BaseException) -> None:
    """Let go of the frames an error holds: they keep the very buffers alive that filled the memory."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
