"""Functions sent to other processes: pickled, hashed, and described if that fails."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import pickle
import textwrap
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from hpfracc._arrays import library_of
from hpfracc._optional import is_installed
from hpfracc.errors import ClusterError, InvalidInputError

__all__ = ["digest_of", "dump", "load", "portable"]

#: Modules whose functions are known by name and version: their source is not hashed.
_LIBRARIES = ("numpy", "scipy", "hpfracc", "builtins", "math", "cmath", "torch", "jax", "cupy", "numba", "pandas")
_MAX_DEPTH = 12


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
        return RuntimeError(f"{type(error).__qualname__}: {error}")
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
    """Everything pickled with a function: captured variables, defaults, globals of ``__main__``, fields of objects."""
    if isinstance(value, functools.partial):
        yield from _captured(value.func)
        yield from ((f"argument {number}", each) for number, each in enumerate(value.args))
        yield from value.keywords.items()
    elif isinstance(value, types.MethodType):
        yield from _captured(value.__self__)
    elif isinstance(value, types.FunctionType):
        yield from ((name, each) for name, each in _variables(value))
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            each = getattr(value, name)
            yield from _captured(each) if callable(each) else ((name, each),)
    elif hasattr(value, "__dict__") and not isinstance(value, type | types.ModuleType):
        yield from vars(value).items()


def _variables(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name, each in zip(_defaulted(function), function.__defaults__ or (), strict=False):
        yield name, each
    yield from (function.__kwdefaults__ or {}).items()
    for name in sorted(_global_names(code)):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _defaulted(function: types.FunctionType) -> list[str]:
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    return list(names[len(names) - len(function.__defaults__ or ()) :])


def _global_names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            names |= _global_names(const)
    return names


def digest_of(value: Any) -> str:
    """A hash of a function's source and of the values it captures, the same in every process."""
    found = hashlib.sha256()
    _feed(found, value, set(), 0)
    return found.hexdigest()


def _feed(found: Any, value: Any, seen: set[int], depth: int) -> None:
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, types.FunctionType | types.MethodType | functools.partial | type):
        if id(value) in seen:
            return
        seen.add(id(value))
        _feed_callable(found, value, seen, depth)
    elif isinstance(value, types.BuiltinFunctionType | np.ufunc | types.ModuleType):
        found.update(f"name {getattr(value, '__module__', '')}.{getattr(value, '__name__', repr(value))}".encode())
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
        found.update(f"{type(value).__name__} {value!r}".encode())
    elif isinstance(value, Mapping):
        found.update(f"mapping {len(value)}".encode())
        for key in value:
            _feed(found, key, seen, depth + 1)
            _feed(found, value[key], seen, depth + 1)
    elif isinstance(value, list | tuple):
        found.update(f"{type(value).__name__} {len(value)}".encode())
        for each in value:
            _feed(found, each, seen, depth + 1)
    elif isinstance(value, set | frozenset):
        found.update(f"set {sorted(map(repr, value))}".encode())
    elif library_of(value) != "python":
        array = value.detach().cpu().numpy() if library_of(value) == "torch" else np.asarray(value)
        found.update(f"array {array.dtype.str} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    elif id(value) not in seen:
        seen.add(id(value))
        found.update(f"object {type(value).__module__}.{type(value).__qualname__}".encode())
        _feed(found, type(value), seen, depth + 1)
        for name, each in sorted(_captured(value), key=lambda pair: pair[0]):
            found.update(name.encode())
            _feed(found, each, seen, depth + 1)


def _feed_callable(found: Any, value: Any, seen: set[int], depth: int) -> None:
    if isinstance(value, functools.partial):
        found.update(b"partial")
        for each in (value.func, value.args, value.keywords):
            _feed(found, each, seen, depth + 1)
        return
    if isinstance(value, types.MethodType):
        _feed(found, value.__func__, seen, depth + 1)
        _feed(found, value.__self__, seen, depth + 1)
        return
    if str(value.__module__).partition(".")[0] in _LIBRARIES:
        found.update(f"name {value.__module__}.{value.__qualname__}".encode())
        return
    found.update(_source(value).encode())
    if isinstance(value, types.FunctionType):
        if value.__name__ == "<lambda>":  # its source is the whole surrounding statement
            found.update(_compiled(value.__code__).encode())
        for name, each in _variables(value):
            found.update(name.encode())
            _feed(found, each, seen, depth + 1)


def _source(value: Any) -> str:
    """The source without comments and layout, or the compiled code if there is none."""
    try:
        text = textwrap.dedent(inspect.getsource(value))
        return ast.dump(ast.parse(text))
    except (OSError, TypeError, SyntaxError, ValueError):  # typed at a prompt, or part of an expression
        code = getattr(value, "__code__", None)
        return str(value.__qualname__) if code is None else _compiled(code)


def _compiled(code: types.CodeType) -> str:
    consts = [_compiled(each) if isinstance(each, types.CodeType) else repr(each) for each in code.co_consts]
    return f"{code.co_code.hex()} {consts} {code.co_names} {code.co_varnames}"
