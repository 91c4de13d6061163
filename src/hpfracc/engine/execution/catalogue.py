"""Every operation there is, by name: the built-in primitives and what users registered."""

from __future__ import annotations

import copyreg
import difflib
import os
import threading
from collections.abc import Callable

from hpfracc.engine.execution.operation import Operation
from hpfracc.engine.primitives import OWN_PRIMITIVES, PRIMITIVES
from hpfracc.errors import InvalidInputError, UnknownOperationError

__all__ = ["all_operations", "get_operation", "register", "unregister"]

_lock = threading.Lock()
_operations: dict[str, Operation] = {name: Operation(primitive) for name, primitive in PRIMITIVES.items()}


def get_operation(name: str) -> Operation:
    """The operation of that name, or :class:`UnknownOperationError` with those that come close."""
    found = _operations.get(name)
    if found is None:
        close = difflib.get_close_matches(str(name), _operations, n=2, cutoff=0.5)
        hint = f"did you mean {' or '.join(map(repr, close))}? There are" if close else "there are"
        raise UnknownOperationError(f"unknown operation {name!r}; {hint}: {', '.join(sorted(_operations))}")
    return found


def _by_name(operation: Operation) -> tuple[Callable[[str], Operation], tuple[str]]:
    return get_operation, (operation.name,)


# A built-in operation is pickled by its name: another process has its own.
copyreg.pickle(Operation, _by_name)


def all_operations() -> dict[str, Operation]:
    """Every operation by name."""
    return dict(_operations)


def register(operation: Operation) -> Operation | None:
    """Add a user's operation; gives back the one it replaces, if any.

    A built-in name cannot be taken; a user's own is replaced: notebook cells run twice.
    """
    with _lock:
        if operation.name in PRIMITIVES:
            raise InvalidInputError(f"operation name {operation.name!r} is built in; choose another")
        before = _operations.get(operation.name)
        _operations[operation.name] = operation
        OWN_PRIMITIVES[operation.name] = operation.primitive
        return before


def unregister(name: str) -> None:
    """Forget a user's operation."""
    with _lock:
        if name in PRIMITIVES:
            raise InvalidInputError(f"operation {name!r} is built in and cannot be removed")
        _operations.pop(name, None)
        OWN_PRIMITIVES.pop(name, None)


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    for operation in _operations.values():
        operation.renew_lock()
        operation.reset_plans()  # one may be bound to a library whose threads are not here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
