"""Backends: their declarations, and the arms that they offer.

A backend is one folder: ``__init__.py`` declares the kernels, which is all that selection needs; ``adapter.py`` handles
the library, its memory and the conversion of arrays, and is loaded with the first call on the library;
``kernels/<primitive>.py`` has pure functions. Only adapters synchronise a device.
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from hpfracc._optional import EXTRAS, package_version
from hpfracc.engine.primitives.base import Call, several_axes
from hpfracc.errors import MissingDependencyError

#: When a kernel compiles: never, once per dtypes and ranks, or once per shape.
Compiles = Literal["never", "signature", "shape"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A loaded kernel: ``run(*arrays, **params)`` on arrays of its own library, all on one device.

    If a transform of one operand can be cached, ``prepare(operand, call)`` computes it and
    ``apply(prepared, *other_arrays, **params)`` uses it; ``run`` does both.
    """

    run: Callable[..., Any]
    prepare: Callable[[Any, Call], Any] | None = None
    apply: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True)
class MemoryModel:
    """The memory of a kernel in addition to operands and result, in a few numbers that can be maintained by hand.

    ``copies`` of the primitive's workspace at the peak, and for each worker a block of at most ``block`` elements with
    ``each`` bytes per element. It should be accurate within a factor of 2; the first measured peak corrects it.
    ``benchmarks/memory.py`` prints measurements.
    """

    copies: float = 1.0
    block: int = 0
    each: int = 0

    def bytes(self, workspace: int, elements: int, workers: int = 1) -> int:
        """Bytes for a call with that ``workspace`` and that number of ``elements`` to process in blocks."""
        return int(self.copies * workspace) + workers * min(elements, self.block) * self.each


#: A kernel that reads its operands and writes its result.
IN_PLACE = MemoryModel(0.0)


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """Description of a kernel before it is loaded, sufficient for selection.

    Attributes
    ----------
    primitive, algorithm : str
        Primitive and algorithm (``"direct"``, ``"fft"``, ``"default"``).
    dtypes : frozenset of str
        Supported values of ``Call.dtype``.
    compiles : {"never", "signature", "shape"}
        What a new compilation is needed for.
    differentiable : bool
        Whether the library can differentiate it.
    threads : bool
        Whether it takes ``workers=`` and uses that number of the engine's threads; such a kernel is offered with one
        worker and with all.
    refuses : callable or None
        ``refuses(call)`` returns a sentence why this call is not supported, or None.
    own_arrays : bool
        Whether it is selected only for arrays of its own library, because its last digits differ while others agree to
        the bit.
    memory, gpu_memory : MemoryModel
        Its memory in addition to operands and result, on the host and on a GPU; the same on both if only one is given.
    """

    primitive: str
    algorithm: str
    dtypes: frozenset[str]
    compiles: Compiles = "never"
    differentiable: bool = False
    threads: bool = False
    own_arrays: bool = False
    refuses: Callable[[Call], str | None] | None = None
    memory: MemoryModel = MemoryModel()
    gpu_memory: MemoryModel | None = None


@dataclass(frozen=True, slots=True)
class Arm:
    """An arm: a kernel of a backend, on a device, with a number of workers."""

    backend: str
    spec: KernelSpec = field(compare=False)
    device: str = "cpu"
    workers: int = 1
    name: str = field(init=False)

    def __post_init__(self) -> None:
        workers = f"x{self.workers}" if self.workers > 1 else ""
        object.__setattr__(self, "name", f"{self.backend}:{self.spec.algorithm}@{self.device}{workers}")

    @property
    def algorithm(self) -> str:
        """The algorithm of its kernel."""
        return self.spec.algorithm

    @property
    def on_host(self) -> bool:
        """Whether it works on host memory."""
        return self.device == "cpu"

    def __str__(self) -> str:
        return self.name


class DeviceTimer:
    """Two marks of an adapter in a device's queue; :meth:`seconds` checks whether the device has passed the second."""

    __slots__ = ("_clock", "_device", "_marks")

    def __init__(self, clock: Adapter, device: str) -> None:
        self._clock = clock
        self._device = device
        self._marks: list[Any] = []

    def start(self) -> None:
        """Mark the beginning."""
        self._marks = [self._clock.mark(self._device)]

    def stop(self) -> None:
        """Mark the end."""
        self._marks.append(self._clock.mark(self._device))

    def seconds(self) -> float | None:
        """Time between the marks, once: None until the device has passed both. Reading never waits."""
        if len(self._marks) < 2 or not self._clock.has_passed(self._marks[1]):
            return None
        seconds = self._clock.seconds(*self._marks)
        while self._marks:
            self._clock.release(self._device, self._marks.pop())
        return seconds


@dataclass(frozen=True)
class Declaration:
    """A backend as selection knows it, before its library and its adapter are loaded.

    Attributes
    ----------
    name : str
        Name of the backend, of its folder, and of the module whose presence means that it is installed.
    kernels : tuple of KernelSpec
        The kernels it offers.
    packages : tuple of str
        The packages that provide the module, if their names differ.
    import_seconds : float
        Assumed seconds of importing the library; measured once it was imported.
    import_bytes : int
        Bytes of the host that the library takes once imported, after some hundred small calls of one operation, which
        compile its kernels; 0 where not measured.
    host_arrays : bool
        Whether it works on NumPy arrays, so that it needs no adapter of its own.
    shields_compilation : bool
        Whether first calls, which compile, are shielded from interrupts, which would leave its compiler locked.
    """

    name: str
    kernels: tuple[KernelSpec, ...]
    packages: tuple[str, ...] = ()
    import_seconds: float = 0.0
    import_bytes: int = 0
    host_arrays: bool = False
    shields_compilation: bool = False

    @cached_property
    def specs(self) -> Mapping[str, tuple[KernelSpec, ...]]:
        """The kernels, per primitive."""
        found: dict[str, tuple[KernelSpec, ...]] = {}
        for spec in self.kernels:
            found[spec.primitive] = (*found.get(spec.primitive, ()), spec)
        return found

    def version(self) -> str:
        """The library's version, from its metadata; does not import it."""
        for package in self.packages or (self.name,):
            if (version := package_version(package)) is not None:
                return version
        raise MissingDependencyError(
            f"{self.name!r} is not installed; install it with: pip install 'hpfracc[{EXTRAS[self.name]}]'",
            name=self.name,
        )


class Adapter(ABC):
    """The engine's interface to one library. Importing an adapter's module does not import the library."""

    #: The backend that it serves.
    declaration: Declaration
    #: What its out-of-memory messages contain, if it raises a RuntimeError.
    out_of_memory: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the backend."""
        return self.declaration.name

    def before_import(self) -> None:
        """Setup before the engine imports the library for the first time."""
        return None

    @abstractmethod
    def devices(self) -> tuple[str, ...]:
        """The devices it can work on, ``"cpu"`` and ``"cuda:<index>"``; may import the library."""

    @abstractmethod
    def from_host(self, array: np.ndarray, device: str) -> Any:
        """The library's array on ``device``; shares memory on the host if possible."""

    @abstractmethod
    def to_host(self, array: Any) -> np.ndarray:
        """A writable NumPy array, complete on return; shares memory on the host if possible."""

    def read(self, array: Any) -> np.ndarray:
        """Like :meth:`to_host`, for an operand: the array may be read-only."""
        return self.to_host(array)

    @abstractmethod
    def cast(self, array: Any, dtype: str) -> Any:
        """``array`` (of this library) in ``dtype``; itself if it has that dtype."""

    def is_asynchronous(self, device: str) -> bool:
        """Whether kernels return before their work is done."""
        return device != "cpu"

    def synchronize(self, device: str) -> None:
        """Wait for all work on ``device``."""
        return None

    def timer(self, device: str) -> DeviceTimer | None:
        """A timer in the current queue of the device, by marks; None if the library has none."""
        return DeviceTimer(self, device) if self.marks and device != "cpu" else None

    # The library as a clock of the profiler (:class:`hpfracc.profiling.clocks.DeviceClock`), once it is imported.

    #: Whether a position in the queue of a device can be marked. By default not: then nothing below is ever a mark.
    marks = False

    def in_use(self) -> bool:
        """Whether the library already uses its devices."""
        return False

    def resolve(self, device: str) -> str | None:
        """The full name of a device that can be timed; None if unknown."""
        return None

    def mark(self, device: str) -> Any | None:
        """Set a mark after all work in the current queue of the device."""
        return None

    def mark_end(self, device: str) -> tuple[bool, Any | None]:
        """Whether the current queue is known to be empty, and a mark at its end."""
        return False, None

    def has_passed(self, mark: Any) -> bool:
        """Whether the device has reached a mark."""
        raise NotImplementedError(f"{self.name} has no marks")

    def seconds(self, first: Any, second: Any) -> float:
        """Time between two marks."""
        raise NotImplementedError(f"{self.name} has no marks")

    def release(self, device: str, mark: Any) -> None:
        """Return a mark for reuse."""
        return None

    def wait(self, value: Any) -> bool:
        """Wait until ``value`` is computed; False if it is not an array of this library."""
        return False

    def memory(self, device: str) -> tuple[int, int | None] | None:
        """Bytes of ``device`` in use, and the peak so far, according to the library's pool; None if it does not count.

        Reading has no side effects: a call's peak is known only if it was the highest so far.
        """
        return None

    def free_bytes(self, device: str) -> int | None:
        """Bytes available for a new allocation on ``device``, including unused pool memory; None if unknown."""
        return None

    def is_recording(self) -> bool:
        """Whether launches are being recorded now, not run: nothing may wait for the device or read its clock."""
        return False

    def release_memory(self, device: str) -> None:
        """Release cached but unused memory."""
        return None

    def reset_peak(self, device: str) -> None:
        """Reset the peak of ``device`` to the current use, if the library can."""
        return None

    def reserved_bytes(self, device: str) -> int:
        """Bytes of ``device`` that the library's pool has allocated, used or not; 0 if it has none."""
        return 0

    def pinned_bytes(self, size: int) -> np.ndarray | None:
        """``size`` bytes of page-locked host memory, or None if the library has none."""
        return None

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Any:
        """An uninitialised array on ``device`` from the library's pool."""
        raise NotImplementedError(f"{self.name} does not create arrays on {device}")

    def stack(self, arrays: Sequence[Any]) -> Any:
        """Stack arrays of one shape along a new first axis."""
        raise NotImplementedError(f"{self.name} does not stack arrays")

    def concatenate(self, parts: Sequence[Any], axis: int) -> Any:
        """The parts as one array, for a library whose arrays cannot be written into."""
        raise NotImplementedError(f"arrays of {self.name} are written into instead")

    def begin_in_child(self) -> None:
        """Setup before its first use in a forked child whose parent had imported the library."""
        return None

    def is_running(self) -> bool:
        """Whether the library has started threads without which it hangs; a forked child does not have them."""
        return False

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether ``error`` is an out-of-memory error of this library, by its class or its message."""
        if isinstance(error, MemoryError):
            return True
        return isinstance(error, RuntimeError) and any(text in str(error) for text in self.out_of_memory)

    def scope(self, call: Call) -> contextlib.AbstractContextManager[Any] | None:
        """A context in which kernels for ``call`` must run now, or None."""
        return None

    def works_without_scope(self, call: Call) -> Callable[[], bool] | None:
        """A cheap function that says whether ``scope(call)`` is None now; None if it always is."""
        return None


class HostAdapter(Adapter):
    """A library that works on NumPy arrays: nothing is copied."""

    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration

    def devices(self) -> tuple[str, ...]:
        """The host."""
        return ("cpu",)

    def from_host(self, array: np.ndarray, device: str) -> np.ndarray:
        """The array itself."""
        return array

    def to_host(self, array: Any) -> np.ndarray:
        """The array itself."""
        return np.asarray(array)

    def cast(self, array: np.ndarray, dtype: str) -> np.ndarray:
        """``array`` in ``dtype``; itself if it has that dtype."""
        return array if array.dtype == dtype else array.astype(dtype)

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> np.ndarray:
        """NumPy's own."""
        return np.empty(shape, dtype)


#: Elements of the matrices of a direct sum, n x n for each row of weights: 8 MiB in float64.
MAX_MATRIX_ELEMENTS = 1024 * 1024


def _too_long(call: Call, most: int) -> str | None:
    rows = max(1, call.facts.get("weight_rows", 1))
    if rows * call.length**2 <= most:
        return None
    longest = math.isqrt(most // rows)
    return f"{call.length:,} points: its direct sum is a product with a matrix, for at most {longest:,}"


#: Refuses a direct sum whose matrix would be too large.
too_long_for_matrix = partial(_too_long, most=MAX_MATRIX_ELEMENTS)


#: The same for a causal convolution, whose transforms are faster from there on. A traced call makes its matrix anew: at
#: 1,000 points and 3 rows a gradient took 60 times as long as with transforms, at 256 about 3 times, and a call with a
#: cached matrix half as long (benchmarks/jax_layer.py).
too_long_for_causal_matrix = partial(_too_long, most=256 * 256)


def too_long_or_wide_for_matrix(call: Call) -> str | None:
    """The same for a kernel along one axis."""
    return several_axes(call) or too_long_for_matrix(call)


def too_many_taps(call: Call) -> str | None:
    """Refuse a sum in blocks if most of the weights are not zero."""
    taps = call.facts.get("taps", call.length)
    if 4 * taps > call.length:
        return f"{taps:,} weights for {call.length:,} points: blocks pay off if the weights are at most a quarter"
    return None
