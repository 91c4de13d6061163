"""Functions sent to other processes: pickled, and described if that fails."""

from __future__ import annotations

import functools
import pickle
import types
from collections.abc import Iterator
from typing import Any

from hpfracc._optional import is_installed
from hpfracc.distributed.fingerprints import variables_of
from hpfracc.engine.execution.batch.items import message_of
from hpfracc.errors import ClusterError, InvalidInputError

__all__ = ["dump", "load", "portable"]


def dump(value: Any, what: str) -> bytes:
    """Pickle ``value``, with cloudpickle if installed; the error names what cannot be pickled."""
    try:
        return _dumps(value)
    except Exception as error:
        culprits = [f"{where} ({type(each).__name__})" for where, each in _captured(value) if not _can_be_pickled(each)]
        named = f": {', '.join(culprits[:3])}" if culprits else ""
        advice = "create it inside the function, or pass it as a parameter"
        if not is_installed("cloudpickle") and not culprits:
            advice = "define the function in a module, or install cloudpickle"
        raise InvalidInputError(
            f"{what} cannot be sent to another process{named} ({type(error).__name__}: {error}); {advice}"
        ) from error


def _dumps(value: Any) -> bytes:
    if is_installed("cloudpickle"):
        import cloudpickle  # type: ignore[import-not-found, unused-ignore]

        return bytes(cloudpickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def portable(error: BaseException) -> BaseException:
    """The error itself, or its text if it, its cause or its context cannot be pickled and read back."""
    try:
        pickle.loads(_dumps(error))
    except Exception:  # a user's class may raise anything here
        return RuntimeError(f"{type(error).__qualname__}: {message_of(error)}")
    return error


def _can_be_pickled(value: Any) -> bool:
    try:
        _dumps(value)
    except Exception:  # a user's class may raise anything here
        return False
    return True


def load(payload: bytes, where: str) -> Any:
    """Unpickle the output of :func:`dump`; the error names a module that is missing here."""
    try:
        return pickle.loads(payload)
    except ModuleNotFoundError as error:
        raise ClusterError(
            f"worker {where} has no module {error.name!r}, which the function needs; install it there, or send it: "
            f"client.upload_file('{error.name}.py')"
        ) from error


def _captured(value: Any) -> Iterator[tuple[str, Any]]:
    """Everything pickled with a function: variables that it reads, arguments, fields of objects."""
    if isinstance(value, functools.partial):
        yield from _captured(value.func)
        yield from ((f"argument {number}", each) for number, each in enumerate(value.args))
        yield from value.keywords.items()
    elif isinstance(value, types.MethodType):
        yield from _captured(value.__self__)
    elif isinstance(value, types.FunctionType):
        yield from variables_of(value)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            each = getattr(value, name)
            yield from _captured(each) if callable(each) else ((name, each),)
    elif hasattr(value, "__dict__") and not isinstance(value, type | types.ModuleType):
        yield from vars(value).items()
