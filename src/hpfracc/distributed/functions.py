"""Functions sent to other processes, pickled, and identified by a hash that is the same in every process.

Functions and classes of the user are hashed by source, with the values of the variables that they read: captured
ones, defaults, globals, and attributes of modules. Objects are hashed by what pickle would store of them
(``__reduce_ex__``). Libraries are known by name and version. A value that pickle refuses cannot be compared, and is
named.
"""

from __future__ import annotations

import ast
import contextlib
import copyreg
import dis
import functools
import hashlib
import importlib.util
import inspect
import pickle
import sys
import textwrap
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hpfracc._arrays import library_of
from hpfracc._optional import is_installed
from hpfracc.distributed.items import host_array
from hpfracc.engine.backends.registry import message_of
from hpfracc.errors import ClusterError, InvalidInputError

_ATOMS = (type(None), type(...), type(NotImplemented), bool, int, float, complex, str, bytes, bytearray, range, slice)
_DTYPES = {each.__name__ for each in np.sctypeDict.values()} - {"object_", "void", "str_", "bytes_", "bfloat16"}


def digest_of(*values: Any) -> tuple[str, list[str]]:
    """A hash of functions with what they capture, and the names of captured values that could not be compared."""
    hasher = _Hasher()
    try:
        found = hasher.digest(values, "")
    except RecursionError:
        hasher.uncompared.append("values nested too deeply")
        found = b""
    return found.hex(), sorted(set(hasher.uncompared))


class _Named(NamedTuple):
    """A value that has a name of its own, for messages."""

    name: str
    value: Any


class _Hasher:
    """Hashes values recursively; equal values have equal hashes, whether or not they are the same object."""

    def __init__(self) -> None:
        self.uncompared: list[str] = []
        #: Objects that are being hashed, with their depth, and hashes of those that were; kept alive for their ids.
        self._open: dict[int, int] = {}
        self._known: dict[int, tuple[Any, bytes]] = {}

    def digest(self, value: Any, name: str) -> bytes:
        """The hash of a value; ``name`` says where it was found."""
        if isinstance(value, _Named):
            name, value = value
        if type(value) in _ATOMS:
            return _hash(type(value).__name__, value if isinstance(value, bytes) else repr(value))
        if id(value) in self._open:  # a cycle
            return _hash("cycle", len(self._open) - self._open[id(value)])
        if id(value) in self._known:
            return self._known[id(value)][1]
        self._open[id(value)] = len(self._open)
        try:
            found = _hash(*(self.digest(each, name) for each in self._parts(value, name)))
        finally:
            del self._open[id(value)]
        self._known[id(value)] = value, found
        return found

    def _parts(self, value: Any, name: str) -> Iterator[Any]:
        """A word for the kind of a value, then the values that it consists of."""
        kind = type(value)
        if kind in (list, tuple):
            yield from (kind.__name__, *value)
        elif kind is dict:
            yield "dict"
            for key, each in value.items():
                yield from (key, _Named(key if isinstance(key, str) else name, each))
        elif kind in (set, frozenset):
            yield from ("set", *sorted(self.digest(each, name) for each in value))
        elif isinstance(value, types.ModuleType) or (isinstance(value, type) and _is_library(str(value.__module__))):
            yield from ("name", getattr(value, "__module__", ""), getattr(value, "__qualname__", value.__name__))
        elif isinstance(value, type):
            yield from ("class", value.__qualname__, *value.__bases__)
            for attribute, each in sorted(vars(value).items()):
                special = attribute.startswith("__") or attribute == "_abc_impl"
                slot = isinstance(each, types.MemberDescriptorType | types.GetSetDescriptorType)
                if isinstance(each, types.FunctionType) or not (special or slot):
                    yield from (attribute, _Named(attribute, each))
        elif isinstance(value, types.FunctionType):
            if _is_library(str(value.__module__)) and "<locals>" not in value.__qualname__:
                yield from ("name", value.__module__, value.__qualname__)
                return
            yield from ("function", _source(value.__code__))
            for variable, each in _variables(value):
                yield from (variable, _Named(variable, each))
        elif isinstance(value, types.CodeType):
            yield from ("code", value.co_code, value.co_names, value.co_varnames, *value.co_consts)
        elif isinstance(value, property):
            yield from ("property", value.fget, value.fset, value.fdel)
        elif isinstance(value, functools.cached_property):
            yield from ("property", value.func)
        elif isinstance(value, types.MethodType):
            yield from ("method", value.__func__, value.__self__)
        elif isinstance(value, functools.partial):
            yield from ("partial", value.func, value.args, value.keywords)
        elif _is_library(str(kind.__module__)) and callable(getattr(value, "__wrapped__", None)):  # compiled, or cached
            yield from ("wrapped", kind.__qualname__, value.__wrapped__, getattr(value, "targetoptions", None))
        elif _is_plain_array(value):
            array = host_array(name, value)
            yield from ("array", array.dtype.str, array.shape, np.ascontiguousarray(array).tobytes())
        elif str(getattr(value, "dtype", "")) == "torch.bfloat16":  # unknown to NumPy
            yield from ("bfloat16", value.float())
        elif str(kind.__module__).startswith("xarray.") and hasattr(value, "to_dict"):  # to read it changes its state
            yield from (kind.__name__, value.to_dict(data="array"))
        else:
            yield from ("object", kind, *self._reduced(value, name))

    def _reduced(self, value: Any, name: str) -> Sequence[Any]:
        """What pickle would store of an object: a function, its arguments, a state, items; or a name."""
        try:
            reduce = copyreg.dispatch_table.get(type(value))
            reduced = value.__reduce_ex__(4) if reduce is None else reduce(value)
            if isinstance(reduced, str):
                return getattr(value, "__module__", ""), reduced
            return [list(each) if place > 2 and each is not None else each for place, each in enumerate(reduced)]
        except Exception:  # a class may raise anything here
            self.uncompared.append(f"{name or 'the function'} ({type(value).__name__})")
            return ()


def _source(code: types.CodeType) -> Any:
    """The source without comments and layout; the code itself if there is none, or only a part of a line."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError, ValueError):  # typed at a prompt, or part of an expression
        return code
    first = tree.body[0]
    whole = isinstance(first, ast.FunctionDef | ast.AsyncFunctionDef) and first.name == code.co_name
    return ast.unparse(tree) if whole else code


def _variables(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Variables that a function reads: captured ones, defaults, globals, and attributes of the user's modules."""
    code = function.__code__
    found: list[tuple[str, Any]] = []
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not assigned yet
            found.append((name, cell.cell_contents))
    names, attributes, modules = _reads(code)
    found += [(name, function.__globals__[name]) for name in sorted(names) if name in function.__globals__]
    for module in sorted(modules):
        with contextlib.suppress(Exception):  # raised again when the function is called
            if module.startswith(".") or not _is_library(module):
                found.append((module, importlib.import_module(module, function.__globals__.get("__package__"))))
    yield from found
    yield from (("a default", each) for each in function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()
    for _, each in found:
        if isinstance(each, types.ModuleType) and not _is_library(each.__name__):
            yield from _attributes(each, attributes)


def _attributes(module: types.ModuleType, names: set[str]) -> Iterator[tuple[str, Any]]:
    """The values of a module that are read by name, there and in its submodules."""
    for name in sorted(names & vars(module).keys()):
        each = vars(module)[name]
        yield f"{module.__name__}.{name}", each
        if isinstance(each, types.ModuleType) and each.__name__.startswith(f"{module.__name__}."):
            yield from _attributes(each, names)


def _reads(code: types.CodeType) -> tuple[set[str], set[str], set[str]]:
    """Names of globals, of attributes, and of modules that are imported, in a function and those inside it."""
    names, attributes, modules = set[str](), set[str](), set[str]()
    before: list[Any] = [None, None]
    for each in dis.get_instructions(code):
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names.add(each.argval)
        elif each.opname == "IMPORT_NAME":
            level = before[-2] if isinstance(before[-2], int) else 0
            modules.add("." * level + each.argval)
            if each.argval and before[-1]:  # from a import b: b may be a module too
                attributes.update(before[-1])
        elif each.opname in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"):
            attributes.add(each.argval)
        before = [before[-1], each.argval]
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            for own, inner in zip((names, attributes, modules), _reads(const), strict=True):
                own |= inner
    return names, attributes, modules


def _is_plain_array(value: Any) -> bool:
    """Whether it is an array whose content is its dtype, shape and bytes."""
    dtype = str(getattr(value, "dtype", ""))
    if not (dtype in _DTYPES or dtype.removeprefix("torch.") in _DTYPES) or np.ma.isMaskedArray(value):
        return False
    return library_of(value) in ("numpy", "torch", "jax", "cupy")


@functools.cache
def _is_library(name: str) -> bool:
    """Whether a module is part of Python or of an installed package, which is known by its name."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top == "hpfracc":
        return True
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):  # as of __main__
        return False
    return spec is not None and bool({"site-packages", "dist-packages"} & {*Path(spec.origin or "").parts})


def _hash(*parts: Any) -> bytes:
    """A hash of parts, each with its length, so that they cannot run into each other."""
    found = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode(errors="surrogatepass")
        found.update(len(data).to_bytes(8, "little") + data)
    return found.digest()


def dump(value: Any, what: str) -> bytes:
    """Pickle ``value``, with cloudpickle if installed; the error names what cannot be pickled."""
    try:
        return _dumps(value)
    except Exception as error:
        culprits = digest_of(value)[1]
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


def load(payload: bytes, where: str) -> Any:
    """Unpickle the output of :func:`dump`; the error names a module that is missing here."""
    try:
        return pickle.loads(payload)
    except ModuleNotFoundError as error:
        raise ClusterError(
            f"worker {where} has no module {error.name!r}, which the function needs; install it there, or send it: "
            f"client.upload_file('{error.name}.py')"
        ) from error
