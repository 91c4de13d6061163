"""Numba's CUDA target: whether it is available, and the free memory of its GPU."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

from hpfracc._config import get_settings
from hpfracc._optional import package_version
from hpfracc._shielded import run_shielded
from hpfracc.engine.memory.budget import allowed, get_budget
from hpfracc.engine.selection.request import Preference, preference_error, refusal_reason
from hpfracc.errors import BackendUnavailableError, HpfraccError, OutOfMemoryError
from hpfracc.solvers.ode import compiled
from hpfracc.solvers.ode.compilation import OPERATION
from hpfracc.solvers.ode.compiled.on_cuda import NAME

__all__ = ["allowed_bytes", "device_name", "device_number", "is_out_of_memory", "load_cuda", "run_on_device"]

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
        raise preference_error(OPERATION, Preference(NAME, "the backend= argument"), ruled_out)
    if _kept:
        return _kept[0]
    compiled.require()
    try:
        cuda: Any = run_shielded(lambda: importlib.import_module("numba.cuda"))
        there, why = bool(cuda.is_available()), cuda.cuda_error()
    except Exception as error:  # incompatible versions of NumPy, CUDA or the driver may raise anything
        raise BackendUnavailableError(
            f"backend='numba-cuda': Numba's CUDA target does not start ({_versions()}: {_first_line(error)}); "
            f"{_INSTALL}, which brings versions that fit each other"
        ) from error
    if not there:
        reason = f" ({_first_line(why)})" if why else ""
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


def device_number(cuda: Any) -> int:
    """Number of the current GPU."""
    return int(getattr(cuda.current_context().device, "id", 0))  # the simulator has none


def allowed_bytes(cuda: Any, held: int = 0) -> int:
    """Bytes that a solve may use on the current GPU, including the ``held`` bytes that it has already."""
    free = float(cuda.current_context().get_memory_info().free) + held
    cap = get_budget().caps().get(f"cuda:{device_number(cuda)}", math.inf)
    return allowed(int(min(free, cap, 2.0**48)), get_settings().gpu_memory_limit)


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
                f"solve_fode: the GPU is out of memory ({_first_line(error)}); free memory there, or lower "
                "gpu_memory_limit in hf.config"
            ) from error
        raise BackendUnavailableError(
            f"backend='numba-cuda' failed ({_versions()}: {type(error).__name__}: {_first_line(error)}); {_INSTALL}, "
            "which brings versions that fit each other, or leave the backend out"
        ) from error


def _versions() -> str:
    """The versions that have to be compatible."""
    target = package_version("numba-cuda")
    return f"NumPy {np.__version__}, Numba {package_version('numba')}, " + (
        f"numba-cuda {target}" if target else "without numba-cuda"
    )


def _first_line(error: Any) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__
