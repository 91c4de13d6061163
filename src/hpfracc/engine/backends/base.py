"""Backends: what each says about itself, and the arms it offers.

A backend is one folder: ``adapter.py`` says what the library is, where its memory lies and how arrays move;
``kernels/<primitive>.py`` holds pure functions. Only adapters synchronise a device.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from hpfracc._optional import EXTRAS, package_version
from hpfracc.engine.primitives.base import Call
from hpfracc.errors import MissingDependencyError
from hpfracc.profiling.clocks import DeviceClock

__all__ = ["Adapter", "Arm", "DeviceTimer", "HostAdapter", "Kernel", "KernelSpec", "MemoryModel"]

#: When a kernel compiles: never, once per dtypes and ranks, or once per shape.
Compiles = Literal["never", "signature", "shape"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A loaded kernel: ``run(*arrays, **params)`` on arrays of its own library, all on one device.

    Where a transform of one operand can be kept, ``prepare(operand, call)`` makes it and
    ``apply(prepared, *other_arrays, **params)`` uses it; ``run`` is the two together. ``plain`` is the same without the
    options of the primitive, for calls whose ``facts`` say that they have none: nothing stands in their way then.
    """

    run: Callable[..., Any]
    prepare: Callable[[Any, Call], Any] | None = None
    apply: Callable[..., Any] | None = None
    plain: Kernel | None = None


@dataclass(frozen=True, slots=True)
class MemoryModel:
    """The memory of a kernel beyond operands and result, in numbers that can be kept true by hand.

    ``copies`` of the primitive's workspace at the peak, and for each worker a block: of the elements that the kernel
    works through at most ``block`` at a time, with ``each`` bytes an element. It should hold within a factor of 2; the
    first measured peak corrects it. ``benchmarks/memory.py`` prints what is measured.
    """

    copies: float = 1.0
    block: int = 0
    each: int = 0

    def bytes(self, workspace: int, elements: int, workers: int = 1) -> int:
        """Bytes for a call with that ``workspace`` and that many ``elements`` to work through in blocks."""
        return int(self.copies * workspace) + workers * min(elements, self.block) * self.each


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """What a backend says of a kernel before loading it: enough to choose by.

    Attributes
    ----------
    primitive, algorithm : str
        What it computes, and how (``"direct"``, ``"fft"``, ``"default"``).
    dtypes : frozenset of str
        Values of ``Call.dtype`` it serves.
    compiles : {"never", "signature", "shape"}
        What a new compilation is made for.
    differentiable : bool
        Whether the library's own differentiation goes through it.
    threads : bool
        Whether it takes ``workers=`` and spreads over that many threads of ours; such a kernel is offered once with one
        worker and once with all.
    refuses : callable or None
        ``refuses(call)`` gives a sentence why this call cannot be served, or None.
    own_arrays : bool
        Whether it is chosen only for arrays of its own library: its last digits differ, where others agree to the bit.
    memory, gpu_memory : MemoryModel
        What it takes beyond operands and result, on the host and on a GPU; the same on both where only one is given.
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
    """One thing that can be chosen: a kernel of a backend, on a device, with a number of workers."""

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


class DeviceTimer(Protocol):
    """A pair of marks in a device's own queue of work; reading it never waits."""

    def start(self) -> None:
        """Mark the beginning."""

    def stop(self) -> None:
        """Mark the end."""

    def seconds(self) -> float | None:
        """Time between the marks, or None while the device has not reached the second."""


class Adapter(ABC):
    """One library, as the engine sees it. Importing the module that defines one imports no such library."""

    #: Name of the backend, and of its folder.
    name: ClassVar[str]
    #: The module whose presence means that the backend is installed.
    module: ClassVar[str]
    #: The packages that may bring that module, where they are not called like it.
    packages: ClassVar[tuple[str, ...]] = ()
    #: Seconds that importing the library takes where nothing better is known; measured once it was imported.
    import_seconds: ClassVar[float] = 0.0
    #: Whether first calls, which compile, are made out of the reach of interrupts: one would leave its compiler locked.
    shields_compilation: ClassVar[bool] = False
    #: Bytes of the host that the library takes once imported, after some hundred small calls of one operation, which
    #: compile its kernels; 0 where not measured.
    import_bytes: ClassVar[int] = 0
    #: Whether the library spreads an operation over threads of its own on the host, which wait for one another.
    own_threads: ClassVar[bool] = False
    #: The kernels it offers, per primitive.
    specs: ClassVar[Mapping[str, tuple[KernelSpec, ...]]]

    def before_import(self) -> None:
        """What must be arranged before the engine itself imports the library for the first time."""
        return None

    @abstractmethod
    def devices(self) -> tuple[str, ...]:
        """The devices it can work on, ``"cpu"`` and ``"cuda:<index>"``; may import the library."""

    def version(self) -> str:
        """The library's version, from its metadata; does not import it."""
        for package in self.packages or (self.module,):
            if (version := package_version(package)) is not None:
                return version
        raise MissingDependencyError(
            f"{self.module!r} is not installed; install it with: pip install 'hpfracc[{EXTRAS[self.module]}]'",
            name=self.module,
        )

    @abstractmethod
    def from_host(self, array: np.ndarray, device: str) -> Any:
        """The library's own array on ``device``; shares memory on the host where it can."""

    @abstractmethod
    def to_host(self, array: Any) -> np.ndarray:
        """A NumPy array, complete when this returns; shares memory on the host where it can."""

    @abstractmethod
    def cast(self, array: Any, dtype: str) -> Any:
        """``array`` (of this library) in ``dtype``, itself if it is so already."""

    def is_asynchronous(self, device: str) -> bool:
        """Whether a kernel's return does not mean that its work is done."""
        return device != "cpu"

    def synchronize(self, device: str) -> None:
        """Wait for all work on ``device``."""
        return None

    def timer(self, device: str) -> DeviceTimer | None:
        """A timer in the device's own queue, or None where the library has none."""
        return None

    def clock(self) -> DeviceClock | None:
        """The library's own clock for the profiler; asked for only once the library is imported."""
        return None

    def free_bytes(self, device: str) -> int | None:
        """Bytes a new allocation on ``device`` could take, unused pool memory included; None if unknown."""
        return None

    def release_memory(self, device: str) -> None:
        """Give cached but unused memory back."""
        return None

    def peak_bytes(self, device: str) -> tuple[int, int] | None:
        """Bytes of ``device`` in use now, and the most so far, as the library's own pool counts; None if it does not.

        Looking changes nothing: a call's peak is known only where it was the highest so far.
        """
        return None

    def reset_peak(self, device: str) -> None:
        """Let the highest mark of ``device`` begin anew from what is in use now, where the library can."""
        return None

    def reserved_bytes(self, device: str) -> int:
        """Bytes of ``device`` that the library's own pool has taken, used or not; 0 where it has none."""
        return 0

    def pinned_bytes(self, size: int) -> np.ndarray | None:
        """``size`` bytes of page-locked host memory, or None where the library has none to give."""
        return None

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Any:
        """An array on ``device`` from the library's own pool, its contents undefined."""
        raise NotImplementedError(f"{self.name} makes no arrays on {device}")

    def stack(self, arrays: Sequence[Any]) -> Any:
        """Arrays of one shape side by side, along a new first axis."""
        raise NotImplementedError(f"{self.name} stacks no arrays of its own")

    def stack_on(self, arrays: Sequence[Any], buffer: np.ndarray) -> Any:
        """The same on the memory of a host buffer, for a library that can share it; no gradient goes through."""
        raise NotImplementedError(f"{self.name} does not write into buffers of the host")

    def concatenate(self, parts: Sequence[Any], axis: int) -> Any:
        """The parts as one array, for a library whose arrays cannot be written into."""
        raise NotImplementedError(f"arrays of {self.name} are written into instead")

    def begin_in_child(self) -> None:
        """What must be arranged before its first use in a forked child whose parent had imported the library."""
        return None

    def is_running(self) -> bool:
        """Whether the library has started threads without which it waits for ever; they are not in a forked child."""
        return False

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether ``error`` is this library's way of saying that memory ran out."""
        return isinstance(error, MemoryError)

    def scope(self, call: Call) -> contextlib.AbstractContextManager[Any] | None:
        """A context in which kernels for ``call`` on host operands must run, or None."""
        return None


class HostAdapter(Adapter):
    """A library that works on NumPy's own arrays: nothing moves."""

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
        """``array`` in ``dtype``, itself if it is so already."""
        return array if array.dtype == dtype else array.astype(dtype)

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> np.ndarray:
        """NumPy's own."""
        return np.empty(shape, dtype)
