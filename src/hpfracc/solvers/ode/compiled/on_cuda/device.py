"""Numba's CUDA target: whether it is available, and the memory of its GPU.

Numba allocates and frees each array through the driver, and the solver asks the driver for the free memory. That takes
longer than the kernel of a short solve. So all arrays of a solve are views of two buffers, one of floats and one of
integers, which are kept for the next solve unless they are large.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from hpfracc._config import get_settings
from hpfracc._interrupts import run_shielded
from hpfracc._optional import package_version
from hpfracc.engine.backends.registry import describe_failure
from hpfracc.engine.execution.pressure.ladder import ladder
from hpfracc.engine.memory.budget import get_budget
from hpfracc.engine.selection.request import Preference, preference_error, refusal_reason
from hpfracc.errors import BackendUnavailableError, HpfraccError, OutOfMemoryError
from hpfracc.solvers.ode import compiled
from hpfracc.solvers.ode.compilation import OPERATION

#: Alignment of arrays in elements: one or two cache lines of 128 bytes, so that threads read whole lines.
_ALIGNMENT = 32
#: Maximum bytes of a workspace that is kept.
_MAX_KEPT = 256 << 20
#: Maximum number of layouts whose views are cached.
_MAX_LAYOUTS = 8

_INSTALL = "install it with: pip install 'hpfracc[numba-cuda]'"
_kept: list[Any] = []


def load_cuda() -> Any:
    """``numba.cuda``, if it finds a GPU.

    Raises
    ------
    MissingDependencyError
        If Numba is not installed.
    BackendUnavailableError
        If it is forbidden, does not start, or finds no GPU; the message says why.
    """
    ruled_out = refusal_reason(OPERATION, "numba", get_settings())
    if ruled_out is not None:
        raise preference_error(OPERATION, Preference("numba-cuda", "the backend= argument"), ruled_out)
    if _kept:
        return _kept[0]
    compiled.require()
    try:
        cuda: Any = run_shielded(lambda: importlib.import_module("numba.cuda"))
        there, why = bool(cuda.is_available()), cuda.cuda_error()
    except Exception as error:  # incompatible versions of NumPy, CUDA or the driver may raise anything
        raise BackendUnavailableError(
            f"backend='numba-cuda': Numba's CUDA target does not start ({_versions()}: {describe_failure(error)}); "
            f"{_INSTALL}, which brings versions that fit each other"
        ) from error
    if not there:
        reason = f" ({str(why).strip().splitlines()[0]})" if why else ""
        raise BackendUnavailableError(
            f"backend='numba-cuda': numba.cuda finds no GPU{reason}; on a machine with one {_INSTALL}. Here leave the "
            "backend out"
        )
    _kept.append(cuda)
    return cuda


def device_name(cuda: Any) -> str:
    """Name of the current GPU, for reports."""
    device = getattr(cuda.current_context().device, "name", b"simulator")
    return device.decode() if isinstance(device, bytes) else str(device)


def _device_number(cuda: Any) -> int:
    """Number of the current GPU."""
    return int(getattr(cuda.current_context().device, "id", 0))  # the simulator has none


def allowed_bytes(cuda: Any, held: int = 0) -> int:
    """Bytes that a solve may use on the current GPU, including the ``held`` bytes that it has already."""
    free = float(cuda.current_context().get_memory_info().free) + held
    cap = get_budget().caps().get(f"cuda:{_device_number(cuda)}", math.inf)
    return int(get_settings().gpu_memory_limit * min(free, cap, 2.0**48))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the driver had no memory left."""
    return isinstance(error, MemoryError) or "OUT_OF_MEMORY" in str(error)


def run_on_device(work: Any) -> Any:
    """``work()``; errors of Numba or the driver are raised as errors of this library."""
    try:
        return work()
    except (HpfraccError, KeyboardInterrupt):
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise OutOfMemoryError(
                f"solve_fode: the GPU is out of memory ({describe_failure(error)}); free memory there, or lower "
                "gpu_memory_limit in hf.config"
            ) from error
        raise BackendUnavailableError(
            f"backend='numba-cuda' failed ({_versions()}: {describe_failure(error)}); {_INSTALL}, "
            "which brings versions that fit each other, or leave the backend out"
        ) from error


def _versions() -> str:
    """The versions that have to be compatible."""
    target = package_version("numba-cuda")
    target = f"numba-cuda {target}" if target else "without numba-cuda"
    return f"NumPy {np.__version__}, Numba {package_version('numba')}, {target}"


class MemoryLayout:
    """Positions of groups of arrays of given shapes in one buffer; ``ends`` are those of the groups, in elements."""

    def __init__(self, *groups: Sequence[tuple[int, ...]]) -> None:
        end, ends, places = 0, [], []
        for shapes in groups:
            first = []
            for shape in shapes:
                first.append((end, shape))
                end += -(-math.prod(shape) // _ALIGNMENT) * _ALIGNMENT
            places.append(tuple(first))
            ends.append(end)
        self.places, self.ends = tuple(places), tuple(ends)

    def cut(self, memory: Any) -> list[tuple[Any, list[Any]]]:
        """For each group its part of ``memory``, and a view for each shape."""
        begins = (0, *self.ends)
        return [
            (memory[begin:end], [memory[n : n + math.prod(shape)].reshape(shape) for n, shape in group])
            for begin, end, group in zip(begins, self.ends, self.places, strict=False)
        ]


class Workspace:
    """Two buffers on one GPU, of floats of a ``precision`` and of integers; ``cuda`` is ``numba.cuda``."""

    def __init__(self, cuda: Any, precision: str) -> None:
        self._cuda = cuda
        self._kinds = (precision, "int32")
        self._memory: list[Any] = [None, None]
        self._views: dict[Any, Any] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of both buffers."""
        return sum(int(each.nbytes) for each in self._memory if each is not None)

    def fits(self, *layouts: MemoryLayout) -> bool:
        """Whether the buffers have room for these layouts of floats and of integers."""
        pairs = zip(self._memory, layouts, strict=True)
        return all(memory is not None and memory.size >= layout.ends[-1] for memory, layout in pairs)

    def cut(self, *layouts: MemoryLayout) -> Any:
        """The views of these layouts of floats and of integers; the previous contents may be lost."""
        for n, layout in enumerate(layouts):
            if self._memory[n] is None or self._memory[n].size < layout.ends[-1]:
                self._memory[n] = None  # freed before the new one is allocated
                self._views.clear()
                self._memory[n] = self._cuda.device_array(layout.ends[-1], self._kinds[n])
        key = tuple(layout.places for layout in layouts)
        found = self._views.get(key)
        if found is None:
            if len(self._views) >= _MAX_LAYOUTS:
                self._views.clear()
            pairs = zip(self._memory, layouts, strict=True)
            found = self._views[key] = [layout.cut(memory) for memory, layout in pairs]
        return found


#: Idle workspaces by precision, with the CUDA context and the memory limit under which they were made.
_idle: dict[str, tuple[Any, float, Workspace]] = {}


@contextmanager
def borrow_workspace(cuda: Any, precision: str) -> Iterator[Workspace]:
    """A workspace that only this thread uses within the block. It is dropped if the block raises an error."""
    context, limit = cuda.current_context(), get_settings().gpu_memory_limit
    kept = _idle.pop(precision, None)
    capped = f"cuda:{_device_number(cuda)}" in get_budget().caps()
    usable = kept is not None and kept[0] is context and kept[1] == limit and not capped
    workspace = kept[2] if kept is not None and usable else Workspace(cuda, precision)
    del kept
    yield workspace
    if workspace.nbytes <= _MAX_KEPT and not capped:
        _idle[precision] = (context, limit, workspace)


def release_workspaces() -> int:
    """Drop all idle workspaces; returns their bytes. Numba returns memory to the driver when it needs some."""
    dropped = [_idle.pop(precision, None) for precision in tuple(_idle)]
    return sum(each[2].nbytes for each in dropped if each is not None)


ladder.register(release_workspaces)
