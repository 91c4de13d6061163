"""The backends, why one cannot be used, and the arms of each for an operation."""

from __future__ import annotations

import enum
import errno
import importlib
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from hpfracc import _optional
from hpfracc._config import BACKENDS, check_backend, current_backend, get_settings
from hpfracc._interrupts import Guarded, ShieldedCall, after_fork
from hpfracc._optional import EXTRAS, ImportDelayedError, count_loaded, is_installed
from hpfracc.engine import hardware
from hpfracc.engine.backends.base import Adapter, Arm, Declaration, HostAdapter, Kernel, KernelSpec
from hpfracc.engine.memory.budget import get_budget
from hpfracc.engine.workers import available_cores
from hpfracc.errors import BackendUnavailableError
from hpfracc.profiling.recorder import shared as spans

#: Backends whose library holds device memory and threads.
_OWN_MEMORY = ("torch", "jax", "cupy")


class BackendType(enum.StrEnum):
    """The backends by name; ``AUTO`` lets the engine choose."""

    AUTO = "auto"
    NUMPY = "numpy"
    NUMBA = "numba"
    TORCH = "torch"
    JAX = "jax"
    CUPY = "cupy"


class _Registry(Guarded):
    """State of the backends in this process. Reads need no lock; changes do."""

    def __init__(self) -> None:
        super().__init__()
        self.declarations: dict[str, Declaration] = {}
        self.adapters: dict[str, Adapter] = {}
        self.missing: dict[str, str] = {}
        self.broken: dict[str, str] = {}
        #: Whether a library was running when this process was forked.
        self.stopped: dict[str, bool] = {}
        #: Time until the next attempt to import a library, and the last error.
        self.delayed: dict[str, tuple[float, str]] = {}
        self.import_seconds: dict[str, float] = {}
        #: Arms by operation, and by the number of imported libraries, because each may report other devices than the
        #: machine.
        self.arms: dict[tuple[str, int, int], tuple[Arm, ...]] = {}
        self.kernels: dict[tuple[str, str, str], Kernel] = {}
        #: Users' kernels by operation, backend and algorithm.
        self.own: dict[tuple[str, str, str], tuple[KernelSpec, Kernel]] = {}
        self.hashes: dict[tuple[str, str, str], str] = {}
        self.fingerprints: dict[tuple[str, str], str] = {}


_registry = _Registry()


def declaration(name: str) -> Declaration:
    """What a backend offers; imports neither its library nor its adapter."""
    known = _registry.declarations.get(name)
    if known is None:
        known = _registry.declarations[name] = importlib.import_module(f"hpfracc.engine.backends.{name}").BACKEND
    return known


def adapter(name: str) -> Adapter:
    """The adapter of a backend; does not import its library."""
    known = _registry.adapters.get(name)
    if known is None:
        own, home = declaration(name), f"hpfracc.engine.backends.{name}.adapter"
        known = HostAdapter(own) if own.host_arrays else importlib.import_module(home).ADAPTER
        _registry.adapters[name] = known
    return known


def _free_bytes(name: str, device: str) -> int | None:
    """Bytes that the library could allocate; those of the driver if the library is not imported."""
    return adapter(name).free_bytes(device) if is_loaded(name) else hardware.driver_free_bytes(device)


for _name in _OWN_MEMORY:
    get_budget().register(_name, partial(_free_bytes, _name))


def unavailable(name: str) -> str | None:
    """Reason why a backend cannot be used, as a sentence, or None if it can. Does not import its library."""
    broken = _registry.broken.get(name)
    if broken is not None:
        return broken
    if name not in _registry.missing:
        missing = "" if is_installed(name) else f"not installed: pip install 'hpfracc[{EXTRAS[name]}]'"
        _registry.missing[name] = missing
    if _registry.missing[name]:
        return _registry.missing[name]
    if name in _forked and (why := stopped(name)) is not None:
        return why
    if not _devices(name):
        return "no supported device was found"
    return None


#: Seconds until another attempt to import a library after a temporary failure.
_RETRY_AFTER = 30.0


def mark_broken(name: str, error: BaseException) -> None:
    """Record that a library is installed but cannot be imported, so that it is not tried at every call.

    Temporary failures, such as out of memory, expire after a while.
    """
    with _registry._lock:
        if isinstance(error, ImportDelayedError):
            _registry.delayed[name] = time.monotonic() + _RETRY_AFTER, f"not imported yet: {describe_failure(error)}"
            return
        _registry.broken[name] = f"cannot be imported: {describe_failure(error)}"
        _registry.arms.clear()


def message_of(error: BaseException) -> str:
    """The message of an error, whose ``__str__`` may itself raise."""
    try:
        return str(error).strip()
    except Exception as second:  # a user's class may raise anything here
        return f"(no message: its __str__ raised {type(second).__name__})"


def describe_failure(error: BaseException) -> str:
    """One-line description of an error."""
    text = message_of(error).split("\n", 1)[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def is_loaded(name: str) -> bool:
    """Whether the backend's library is fully imported."""
    return _optional.is_loaded(name)


def delayed(name: str) -> str | None:
    """Reason why a backend is not selected automatically now, or None: its import is in progress, or just failed."""
    known = _registry.delayed.get(name)
    if known is not None:
        if time.monotonic() < known[0]:
            return known[1]
        _registry.delayed.pop(name, None)
    return "its import is under way" if _optional.is_importing(name) else None


def device_clocks() -> list[Adapter]:
    """The imported libraries, as clocks for the profiler; none that is unusable in this process."""
    return [adapter(name) for name in _OWN_MEMORY if is_loaded(name) and name not in _forked]


def forked(name: str) -> str | None:
    """Reason why a backend is not selected automatically in a forked child, or None.

    A library with its own threads (OpenMP, XLA, CUDA) may wait forever for those of its parent.
    """
    return "imported before this process was forked, so its threads are not here" if name in _forked else None


#: Seconds to wait for a library to report whether it was running; one that was just starting never does.
_ANSWER = 1.0


def stopped(name: str) -> str | None:
    """Reason why a backend cannot be used in this process at all, not even on request, or None.

    If JAX was running when the process was forked, it would wait forever for the threads of the parent.
    """
    if name not in _forked:
        return None
    known = _registry.stopped.get(name)
    if known is None:
        known = _registry.stopped[name] = is_loaded(name) and _was_running(adapter(name))
    if not known:
        return None
    return f"{name} was running when this process was forked and cannot run here: start processes by 'spawn'"


def _was_running(of: Adapter) -> bool:
    try:
        asked = ShieldedCall(of.is_running, awaited=False)
    except RuntimeError:  # no thread can be started
        return of.is_running()
    return not asked.wait(_ANSWER) or bool(asked.result())


def import_cost(name: str) -> float:
    """Expected seconds of importing the library; 0 once it is imported."""
    if is_loaded(name):
        return 0.0
    return _registry.import_seconds.get(name, declaration(name).import_seconds)


def _devices(name: str) -> tuple[str, ...]:
    if is_loaded(name):
        try:
            return adapter(name).devices()
        except Exception as error:  # any failure here means that it cannot be used
            mark_broken(name, error)
            return ()
    # Not imported: importing torch to count its devices takes seconds, so the machine is queried instead.
    gpus = tuple(f"cuda:{index}" for index in range(len(hardware.machine().gpus)))
    if name in ("torch", "jax"):
        return ("cpu", *gpus)
    return gpus if name == "cupy" else ("cpu",)


def arms(operation: str) -> tuple[Arm, ...]:
    """Every arm of ``operation`` on every backend that can be used, NumPy's first."""
    key = operation, count_loaded(), available_cores()
    known = _registry.arms.get(key)
    if known is None:
        with _registry._lock:
            known = tuple(
                Arm(name, spec, device, workers)
                for name in BACKENDS
                if unavailable(name) is None
                for spec in specs(operation, name)
                for device in _devices(name)
                for workers in _worker_counts(spec, device)
            )
            _registry.arms[key] = known
    return known


def specs(operation: str, backend: str) -> tuple[KernelSpec, ...]:
    """The kernels of a backend for an operation, its own and those registered by users."""
    built_in = declaration(backend).specs.get(operation, ())
    own = [spec for key, (spec, _) in _registry.own.items() if key[:2] == (operation, backend)]
    return (*built_in, *own)


def _worker_counts(spec: KernelSpec, device: str) -> tuple[int, ...]:
    quota = hardware.machine().cpu.quota
    cores = available_cores() if quota is None else max(1, min(available_cores(), int(quota)))
    return (1, cores) if spec.threads and device == "cpu" and cores > 1 else (1,)


def kernel(operation: str, backend: str, algorithm: str) -> Kernel:
    """The loaded kernel; the first call imports the backend's library."""
    key = operation, backend, algorithm
    known = _registry.kernels.get(key)
    if known is not None:
        return known
    if key in _registry.own:
        loaded = _registry.own[key][1]
    else:
        try:
            _import_library(backend)
            found = load_kernels(operation, backend)
            if backend in _forked:
                adapter(backend).begin_in_child()
        except ImportError:
            raise
        except Exception as error:  # shared objects and version checks may raise anything
            passing = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _PASSING)
            kind = ImportDelayedError if passing else ImportError
            raise kind(f"{backend}: {describe_failure(error)}", name=backend) from error
        loaded = found[algorithm]
    return _registry.kernels.setdefault(key, loaded)


def load_kernels(operation: str, backend: str) -> dict[str, Kernel]:
    """Kernels from the backend's own file, or created from the generic one for its library."""
    if _kernel_file(operation, backend).exists():
        module = _optional.import_shielded(f"hpfracc.engine.backends.{backend}.kernels.{operation}")
        own: dict[str, Kernel] = module.KERNELS
        return own
    library = _optional.import_shielded(f"hpfracc.engine.backends.{backend}.library").LIBRARY
    generic = _optional.import_shielded(f"hpfracc.engine.backends.generic.{operation}")
    made: dict[str, Kernel] = generic.make_kernels(library)
    return made


#: Functions that are no primitives and exist for some libraries only: the file in a backend's folder, and the backends.
_FUNCTIONS = {
    "fused": ("torch",),
    "special_functions": ("torch", "jax"),
    "tracking": ("torch",),
}
#: Those that are imported. No ``functools.cache``, of which ``torch.compile`` warns its users.
_imported: dict[tuple[str, str], ModuleType] = {}


def library_functions(library: str, name: str) -> ModuleType:
    """The functions ``name`` of a library, such as ``("torch", "special_functions")``, imported at the first call.

    Modules above the engine get them here and never import a backend by name.

    Raises
    ------
    BackendUnavailableError
        If the library has no such functions. The message names those that have.
    """
    found = _imported.get((library, name))
    if found is not None:
        return found
    if library not in _FUNCTIONS[name]:
        raise BackendUnavailableError(
            f"{library} has no {name.replace('_', ' ')}; convert the arrays to {' or '.join(_FUNCTIONS[name])}"
        )
    # The caller has arrays of the library, so it is imported, and its functions are a file of ours: nothing to shield.
    found = importlib.import_module(f"hpfracc.engine.backends.{library}.{name}")
    return _imported.setdefault((library, name), found)


def _kernel_file(operation: str, backend: str) -> Path:
    return Path(__file__).parent / backend / "kernels" / f"{operation}.py"


#: System errors that may not recur at the next attempt.
_PASSING = frozenset({errno.EAGAIN, errno.EINTR, errno.ENOMEM, errno.EMFILE, errno.ENFILE})


def _import_library(backend: str) -> None:
    if is_loaded(backend):
        return
    begin = time.perf_counter()
    adapter(backend).before_import()
    with spans.span(f"import {backend}", "import"):
        _optional.import_optional(backend)
    with _registry._lock:
        _registry.import_seconds[backend] = time.perf_counter() - begin


def register_kernel(operation: str, backend: str, spec: KernelSpec, loaded: Kernel) -> None:
    """Add a user's kernel to an operation."""
    with _registry._lock:
        key = operation, backend, spec.algorithm
        _registry.own[key] = (spec, loaded)
        _registry.kernels.pop(key, None)
        _registry.hashes.pop(key, None)
        _registry.fingerprints.clear()
        _registry.arms.clear()


def remove_operation(operation: str) -> None:
    """Remove the kernels that users registered for an operation."""
    with _registry._lock:
        _registry.arms.clear()
        for known in (_registry.own, _registry.kernels):
            for key in [key for key in known if key[0] == operation]:
                del known[key]


def shields_compilation(operation: str, arm: Arm) -> bool:
    """Whether the arm's first call is shielded from interrupts; a user's kernel stays in its thread."""
    own = (operation, arm.backend, arm.algorithm) in _registry.own
    return declaration(arm.backend).shields_compilation and not own


def source_hash(operation: str, backend: str, algorithm: str) -> str:
    """A short hash of the kernel's source, because timings of changed code are invalid."""
    key = operation, backend, algorithm
    known = _registry.hashes.get(key)
    if known is None:
        source: bytes | Callable[..., Any]
        if key in _registry.own:
            source = _registry.own[key][1].run
        else:
            files = (_kernel_file(operation, backend), Path(__file__).parent / "generic" / f"{operation}.py")
            source = b"".join(file.read_bytes() for file in files if file.exists())
        known = _registry.hashes[key] = hardware.source_hash(source)
    return known


def fingerprint(operation: str, arm: Arm) -> str:
    """Hash of what the arm's speed depends on: machine, library, threads, source. Times of another one are invalid."""
    key = operation, arm.name
    known = _registry.fingerprints.get(key)
    if known is None:
        version = declaration(arm.backend).version()
        source = source_hash(operation, arm.backend, arm.algorithm)
        known = hardware.fingerprint(arm.backend, arm.device, version, arm.workers, source)
        _registry.fingerprints[key] = known
    return known


_forked: frozenset[str] = frozenset()


@after_fork
def _after_fork() -> None:
    global _forked
    _forked = frozenset(name for name in _OWN_MEMORY if name in sys.modules)  # named after their modules
    _registry.stopped.clear()
    _registry.arms.clear()
    for key in [key for key in _registry.kernels if key[1] in _forked]:
        del _registry.kernels[key]


def reset() -> None:
    """Discard the state of the backends (not the kernels registered by users)."""
    with _registry._lock:
        of = _registry
        for known in (of.fingerprints, of.missing, of.broken, of.delayed, of.arms, of.kernels):
            known.clear()


class BackendManager:
    """The backends and GPUs that are available to the engine."""

    @property
    def available_backends(self) -> list[BackendType]:
        """The backends that can be used: installed, importable, not disabled."""
        disabled = get_settings().disabled
        return [BackendType(n) for n in BACKENDS if n not in disabled and unavailable(n) is None]

    @property
    def gpu_count(self) -> int:
        """Number of GPUs that this process may use."""
        return len(hardware.machine().gpus)

    def has_gpu(self) -> bool:
        """Whether there is a GPU that this process may use."""
        return self.gpu_count > 0

    def is_available(self, backend: str | BackendType) -> bool:
        """Whether one backend can be used."""
        return BackendType(check_backend(backend)) in self.available_backends

    @staticmethod
    def select_optimal_backend(config: Any, input_shape: Iterable[int]) -> BackendType:
        """The backend of a layer: the one of its ``config``, otherwise the engine's choice with gradients.

        Parameters
        ----------
        config : LayerConfig
            Or any object with a ``backend``.
        input_shape : iterable of int
            The shape of the samples.
        """
        named = BackendType(check_backend(config.backend, auto=True))
        if named is not BackendType.AUTO:
            return named
        if _selection is None:
            raise BackendUnavailableError("the selection is not loaded; import hpfracc.ml.backends first")
        return _selection("fractional_derivative", input_shape, True)


#: Selects a backend for an operation; registered by the selection layer.
_selection: Callable[[str, Iterable[int], bool], BackendType] | None = None


def plug_in_selection(choose: Callable[[str, Iterable[int], bool], BackendType]) -> None:
    """Register the function that selects a backend from an operation, a shape, and whether gradients are needed."""
    global _selection
    _selection = choose


def get_backend() -> BackendType:
    """The current backend: of ``use_backend``, otherwise ``HPFRACC_FORCE_*``, otherwise ``AUTO``."""
    return BackendType(current_backend() or get_settings().force or "auto")
