"""Settings of the engine: process-wide, or for a ``with`` block.

Precedence, lowest first: defaults, the environment, ``config(...)`` calls, ``with config(...)`` blocks. ``use_backend``
is separate from the settings: it is a choice for the calls inside its block.

The ``HPFRACC_*`` variables are read strictly. A flag is ``1``, ``0``, ``true`` or ``false``; anything else raises an
error that names the variable, because a misread flag would go unnoticed.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import Enum
from os import PathLike, fspath
from typing import Any, Literal, TypedDict, Unpack, get_type_hints

from hpfracc import _reading
from hpfracc._interrupts import after_fork
from hpfracc._optional import EXTRAS, is_installed
from hpfracc.errors import ConfigurationError, InvalidInputError

#: All backends, in the order in which ties are broken.
BACKENDS: tuple[str, ...] = ("numpy", "numba", "torch", "jax", "cupy")
#: Their names as arguments, for type checkers.
BackendName = Literal["auto", "numpy", "numba", "torch", "jax", "cupy"]

_VARIABLES = {"HPFRACC_GPU_MEMORY_LIMIT", "HPFRACC_ENABLE_LEARNING", "HPFRACC_WISDOM"}
_FLAGS = {"1": True, "true": True, "0": False, "false": False}


def read_environment(variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The settings that variables give, by default ``os.environ``; raises :class:`ConfigurationError`.

    Warns about other variables that begin with ``HPFRACC_``.
    """
    source = os.environ if variables is None else variables
    forced = [name for name in BACKENDS if _flag(source, f"HPFRACC_FORCE_{name.upper()}")]
    disabled = frozenset(name for name in BACKENDS if _flag(source, f"HPFRACC_DISABLE_{name.upper()}"))
    if len(forced) > 1:
        names = " and ".join(f"HPFRACC_FORCE_{name.upper()}" for name in forced)
        raise ConfigurationError(f"{names} are all set, but only one backend can be forced; unset the others")
    force = forced[0] if forced else None
    if force in disabled:
        upper = str(force).upper()
        raise ConfigurationError(
            f"HPFRACC_FORCE_{upper} and HPFRACC_DISABLE_{upper} are both set, but {force!r} cannot be both forced and "
            "disabled; unset one of them"
        )
    if force is not None and not is_installed(force):
        raise ConfigurationError(
            f"HPFRACC_FORCE_{force.upper()} is set but {force!r} is not installed; "
            f"install it with: pip install 'hpfracc[{EXTRAS.get(force, force)}]', or unset the variable"
        )
    if "numpy" in disabled and len(disabled) == len(BACKENDS):
        raise ConfigurationError("every backend is disabled by HPFRACC_DISABLE_*; leave at least one enabled")
    known = {f"HPFRACC_{verb}_{name.upper()}" for verb in ("FORCE", "DISABLE") for name in BACKENDS} | _VARIABLES
    for name in source:
        if name.startswith("HPFRACC_") and name not in known:
            words = f"{name}={source[name]!r} is no setting of hpfracc and has no effect; {_reading.hint(name, known)}"
            warnings.warn(f"{words} {', '.join(sorted(known))}; unset it", stacklevel=2)
    limit = source.get("HPFRACC_GPU_MEMORY_LIMIT")
    found = {
        "force": force,
        "disabled": disabled,
        "gpu_memory_limit": check_fraction("HPFRACC_GPU_MEMORY_LIMIT", limit) if limit else None,
        "enable_learning": _flag(source, "HPFRACC_ENABLE_LEARNING"),
        "wisdom": source.get("HPFRACC_WISDOM") or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _flag(source: Mapping[str, str], name: str) -> bool | None:
    text = source.get(name)
    if not text:
        return None
    if text.strip().lower() not in _FLAGS:
        raise ConfigurationError(f"{name}={text!r} is not a flag; use 1, 0, true or false")
    return _FLAGS[text.strip().lower()]


def check_fraction(name: str, given: float | str) -> float:
    """The number ``given`` if it lies in (0, 1]; raises :class:`ConfigurationError` otherwise."""
    with suppress(ValueError):
        value = float(given)
        if 0.0 < value <= 1.0:  # nan fails too
            return value
    raise ConfigurationError(f"{name}={given!r} is not a fraction; use a number above 0 and at most 1")


@dataclass(frozen=True, slots=True)
class Settings:
    """The engine's settings; see :func:`hpfracc.config` for what each one does."""

    gpu_memory_limit: float = 0.8
    performance_threshold: float = 0.1
    enable_learning: bool = True
    exploration_budget: float = 0.01
    deterministic: bool = False
    allow_slow: bool = False
    objective: str = "time"
    wisdom: str | None = None
    pin: Mapping[str, str] = field(default_factory=dict)
    never: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    force: str | None = None
    disabled: frozenset[str] = frozenset()
    #: Version of the process-wide settings that these were derived from.
    version: int = field(default=0, compare=False, repr=False)

    @property
    def explores(self) -> bool:
        """Whether alternatives may be tried. False if decisions must be reproducible or learning is off."""
        learns = self.enable_learning and not self.deterministic
        return learns and self.exploration_budget > 0.0 and self.objective == "time"


class SettingsOptions(TypedDict, total=False):
    """The settings that :class:`config` takes, for type checkers and editors."""

    gpu_memory_limit: float
    performance_threshold: float
    enable_learning: bool
    exploration_budget: float
    deterministic: bool
    allow_slow: bool
    objective: Literal["time", "energy"]
    wisdom: str | PathLike[str] | None
    pin: Mapping[str, str]
    never: Mapping[str, str | Sequence[str]]


_SETTABLE = frozenset(SettingsOptions.__annotations__)


def _check(name: str, value: Any) -> Any:
    if name == "wisdom":
        if not isinstance(value, str | PathLike | None):
            raise ConfigurationError(f"wisdom={value!r} is neither a path nor 'off'")
        return None if value is None else str(fspath(value))
    if name == "pin":
        return {str(op): check_backend(backend) for op, backend in _mapping(name, value).items()}
    if name == "never":
        return {str(op): _backends(op, backends) for op, backends in _mapping(name, value).items()}
    try:
        if name == "objective":
            return _reading.choice(name, value, ("time", "energy"))
        if name in ("enable_learning", "deterministic", "allow_slow"):
            return _reading.flag(name, value)
        if name == "gpu_memory_limit":
            return _reading.number(name, value, above=0, most=1)
        return _reading.number(name, value, least=0, below=1)
    except InvalidInputError as error:
        raise ConfigurationError(str(error)) from None


def _mapping(name: str, value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        example = '{"fft": "numpy"}' if name == "pin" else '{"fft": ["jax"]}'
        raise ConfigurationError(f"{name}={value!r} is not a mapping; write it as {name}={example}")
    return value


def _backends(operation: Any, backends: str | Sequence[str]) -> tuple[str, ...]:
    if not isinstance(backends, str | list | tuple | set | frozenset):
        raise ConfigurationError(f"never={{{operation!r}: {backends!r}}} names no backends; write ['jax']")
    names = (backends,) if isinstance(backends, str) else tuple(backends)
    checked = tuple(check_backend(name) for name in names)
    if set(checked) == set(BACKENDS):
        raise ConfigurationError(f"never={{{operation!r}: ...}} leaves no backend; allow at least one")
    return checked


def check_backend(name: Any, *, auto: bool = False) -> str:
    """Lower-case name of a backend, given as a string or ``BackendType``; raises :class:`ConfigurationError`."""
    text = getattr(name, "value", name)
    text = text.lower() if isinstance(text, str) else text
    allowed = (*BACKENDS, "auto") if auto else BACKENDS
    if not isinstance(text, str) or text not in allowed:
        raise ConfigurationError(f"unknown backend {name!r}; the backends are {', '.join(allowed)}")
    return str(text)


class _State:
    """The process-wide settings. Every change assigns a new ``version``, which invalidates cached decisions."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.layers: list[tuple[object, dict[str, Any]]] = []
        self.environment: dict[str, Any] | None = None
        self.base: Settings | None = None
        self.version = 0
        self.resets = 0
        self._issued = 0

    def renew(self) -> int:
        """Assign a version that was never used before, and return it."""
        self._issued += 1
        self.version = self._issued
        return self.version

    def rebuild(self) -> Settings:
        with self.lock:
            if self.environment is None:
                self.environment = read_environment()
            given = dict(self.environment)
            for _, layer in self.layers:
                given |= layer
            self.base = Settings(**given, version=self.renew())
            return self.base


#: Maximum number of nested contexts cached by one context. Bounds the memory of programs that keep entering blocks with
#: new settings.
_MAX_CHILDREN = 256


@dataclass(slots=True, eq=False)
class Context:
    """Combined settings of the surrounding ``with`` blocks. Equal blocks share one object, so identity compares them.

    ``banned`` are backends that failed in the surrounding call. They are not used even if requested explicitly.
    """

    layers: tuple[dict[str, Any], ...] = ()
    backend: str | None = None
    banned: frozenset[str] = frozenset()
    #: A ``config(...)`` object that may still be entered as a block, and the context without it.
    outer: Context | None = None
    waiting: weakref.ref[config] | None = None
    _settings: Settings | None = None
    _children: dict[Hashable, Context] = field(default_factory=dict)

    def with_backend(self, backend: str | None, banned: frozenset[str] = frozenset()) -> Context:
        """Context with another backend. Returns the same object every time, as a key for cached decisions."""
        banned = self.banned | banned
        if backend == self.backend and banned == self.banned:
            return self
        return self._child((backend, banned), Context(self.layers, backend, banned))

    def with_layer(self, layer: dict[str, Any]) -> Context:
        """Context with further settings. Returns the same object for equal settings."""
        return self._child(_frozen(layer), Context((*self.layers, layer), self.backend, self.banned))

    def _child(self, key: Hashable, context: Context) -> Context:
        if len(self._children) >= _MAX_CHILDREN:
            self._children.clear()
        return self._children.setdefault(key, context)

    def settings(self) -> Settings:
        """The current settings, recomputed when the process-wide settings change."""
        if self.outer is not None:
            return _settled(self).settings()
        known = self._settings
        if known is not None and known.version == state.version:
            return known
        with state.lock:
            found = state.base or state.rebuild()
        for layer in self.layers:
            found = replace(found, **layer)
        self._settings = found
        return found


def _frozen(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return tuple((name, _frozen(entry)) for name, entry in value.items())
    return type(value), value


state = _State()
_root = Context()
_context: ContextVar[Context] = ContextVar("hpfracc_context", default=_root)
#: Stack of contexts to restore. Not stored in the blocks, because several threads may enter the same one.
_outer: ContextVar[tuple[Context, ...]] = ContextVar("hpfracc_outer", default=())

#: The caller's context. A cached decision depends on it and on ``state.version`` only.
current_context = _context.get


def _settled(context: Context) -> Context:
    """Apply a pending ``config(...)`` to the whole process, and return the context without it."""
    if context.outer is None or context.waiting is None:
        return context
    waiting = context.waiting()
    if waiting is not None:
        waiting._apply()
    if _context.get() is context:
        _context.set(context.outer)
    return context.outer


def _open(context: Context) -> None:
    _outer.set((*_outer.get(), _context.get()))
    _context.set(context)


def _close() -> None:
    outer = _outer.get()
    if outer:  # empty if the block was entered in another task
        _outer.set(outer[:-1])
        _context.set(outer[-1])


def adopt(context: Context) -> None:
    """Use the settings of another thread or task; to be called in a copy of the ``contextvars`` context."""
    _context.set(context)


def get_settings() -> Settings:
    """The current settings: process-wide ones, overridden by the surrounding ``with config`` blocks."""
    return _context.get().settings()


def refresh_environment() -> None:
    """Read the ``HPFRACC_*`` variables again, as every new selector does."""
    environment = read_environment()
    with state.lock:
        if environment != state.environment:
            state.environment = environment
            state.rebuild()


def reset() -> None:
    """Discard all ``config(...)`` calls and the cached environment."""
    with state.lock:
        state.layers.clear()
        state.environment = None
        state.base = None
        state.resets += 1
        state.renew()
    _context.set(_root)


class config:
    """Change settings for the whole process, or for a ``with`` block.

    ``hf.config(deterministic=True)`` applies from then on. ``with hf.config(deterministic=True): ...`` applies inside
    the block only, to this thread or task and to hpfracc's own workers started from it. An object that is assigned to a
    variable takes effect in other threads at the next engine call of the thread that created it.

    Parameters
    ----------
    gpu_memory_limit : float
        Fraction of a device's free memory that one call may use, above 0 and at most 1 (default 0.8).
    performance_threshold : float
        Speed-up that another arm must promise before the engine switches to it (default 0.1, that is 10 %).
    enable_learning : bool
        Whether measured times influence later choices (default True).
    exploration_budget : float
        Fraction of the total run time that may be spent on trying alternatives (default 0.01).
    deterministic : bool
        Whether decisions must be reproducible: no exploration, no updates (default False). Results of a repeated run
        are then the same to the bit with the same number of threads, and up to rounding with another.
    allow_slow : bool
        Whether to run a call for which memory leaves only an algorithm that is predicted to take more than a minute and
        ten times as long as with enough memory. Otherwise it raises :class:`~hpfracc.errors.OutOfMemoryError` (default
        False). A call with an explicit backend always runs.
    objective : {"time", "energy"}
        What the engine minimises: seconds (default), or joules, seconds times the power of each arm's device as
        ``hpfracc calibrate --energy`` measured it. Without such measurements calls raise
        :class:`~hpfracc.errors.ConfigurationError`. Alternatives are then not tried.
    wisdom : path, "off" or None
        Folder in which measurements are stored. None is the user's cache folder.
    pin : dict of str to str
        Operations mapped to the one backend they must run on.
    never : dict of str to list of str
        Operations mapped to backends they must not run on.

    See Also
    --------
    use_backend, explain, hpfracc.memory.limit

    Examples
    --------
    >>> import hpfracc as hf
    >>> with hf.config(deterministic=True, never={"fft": ["jax"]}):
    ...     pass
    """

    def __init__(self, **settings: Unpack[SettingsOptions]) -> None:
        self._layer = self.check(settings)
        self._key = object()  # not self: a reference to self would prevent __del__
        self._resets = state.resets
        # It may still become a ``with`` block, so other threads must not see it yet. This thread applies it at its next
        # engine call.
        context = _settled(_context.get())
        context.settings()  # reports an invalid environment here and not in __del__
        self._waiting = True
        _context.set(Context(context.layers, context.backend, context.banned, context, weakref.ref(self)))

    def __del__(self) -> None:
        if getattr(self, "_waiting", False) and not sys.is_finalizing():
            self._apply()  # it can no longer be entered as a block
            _settled(_context.get())

    def _apply(self) -> None:
        with state.lock:
            if self._waiting and self._resets == state.resets:
                state.layers.append((self._key, self._layer))
                state.rebuild()
            self._waiting = False

    @staticmethod
    def check(settings: Mapping[str, Any]) -> dict[str, Any]:
        """Check settings without applying them, and return them in normalised form."""
        unknown = sorted(set(settings) - _SETTABLE)
        if unknown:
            raise ConfigurationError(f"unknown setting {unknown[0]!r}; the settings are {', '.join(sorted(_SETTABLE))}")
        return {name: _check(name, value) for name, value in settings.items()}

    def _withdraw(self) -> None:
        with state.lock:
            self._waiting = False
            kept = [entry for entry in state.layers if entry[0] is not self._key]
            if len(state.layers) != len(kept):
                state.layers[:] = kept
                state.rebuild()

    def __enter__(self) -> config:
        self._withdraw()
        _open(_settled(_context.get()).with_layer(self._layer))
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        _close()


# Shown by help() and notebooks: each setting by name, with its default.
_PARAMETERS = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=getattr(Settings(), name), annotation=type_)
    for name, type_ in get_type_hints(SettingsOptions).items()
]
config.__init__.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *_PARAMETERS], return_annotation=None
)


class use_backend:
    """Run every engine call inside the block on one backend. A call that the backend cannot run raises an error.

    ``"auto"`` cancels an outer choice. The choice applies to this thread or task and to hpfracc's own workers started
    inside the block.

    See Also
    --------
    config, explain, last_decision

    Examples
    --------
    >>> import hpfracc as hf
    >>> with hf.use_backend("numpy"):
    ...     pass
    """

    def __init__(self, backend: BackendName | Enum, *, _banned: frozenset[str] = frozenset()) -> None:
        self._name = check_backend(backend, auto=True)
        self._banned = _banned

    def __enter__(self) -> use_backend:
        backend = None if self._name == "auto" else self._name
        _open(_settled(_context.get()).with_backend(backend, self._banned))
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        _close()


def current_backend() -> str | None:
    """The backend of the innermost ``use_backend`` block, or None."""
    return _context.get().backend


after_fork(lambda: setattr(state, "lock", threading.RLock()))
