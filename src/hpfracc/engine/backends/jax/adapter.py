"""JAX as a backend, on the host and on CUDA devices."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from hpfracc._arrays import is_tracer
from hpfracc._optional import import_optional
from hpfracc.engine.backends.base import Adapter, KernelSpec, MemoryModel
from hpfracc.engine.hardware import driver_free_bytes
from hpfracc.engine.primitives.base import FLOATS, INEXACT, INTEGERS, Call, several_axes
from hpfracc.errors import BackendUnavailableError
from hpfracc.profiling.clocks import DeviceClock

__all__ = ["ADAPTER", "JaxAdapter"]

#: Elements of the matrices of the direct sum, n x n for each row of weights: 8 MiB in float64.
_MAX_ELEMENTS = 1024 * 1024

#: The same for a causal convolution. A traced call makes its matrix anew: at 1,000 points and 3 rows a gradient took 60
#: times as long as with transforms, at 256 about 3 times, and a call with a cached matrix half as long
#: (benchmarks/jax_layer.py).
_MAX_CAUSAL_ELEMENTS = 256 * 256

#: Below this size the overhead of a copy dominates.
_SMALL_BYTES = 2**16

#: dtypes that JAX halves by default.
_WIDE = frozenset({"float64", "complex128", "int64", "uint64"})


#: A kernel that reads its operands and writes its result.
_IN_PLACE = MemoryModel(0.0)


def _too_long(call: Call) -> str | None:
    rows = max(1, call.facts.get("weight_rows", 1))
    most = _MAX_CAUSAL_ELEMENTS if call.operation == "causal_convolution" else _MAX_ELEMENTS
    if rows * call.length**2 > most:
        return f"{call.length:,} points: its direct sum is a product with a matrix, for short signals"
    return None


def _too_long_or_wide(call: Call) -> str | None:
    return several_axes(call) or _too_long(call)


def _too_many_taps(call: Call) -> str | None:
    taps = call.facts.get("taps", call.length)
    if 4 * taps > call.length:
        return f"{taps:,} weights for {call.length:,} points: blocks pay off if the weights are at most a quarter"
    return None


def _spec(
    primitive: str, algorithm: str, dtypes: frozenset[str], memory: MemoryModel = _IN_PLACE, **more: Any
) -> KernelSpec:
    return KernelSpec(primitive, algorithm, dtypes, compiles="shape", memory=memory, **{"differentiable": True, **more})


class JaxAdapter(Adapter):
    """JAX. Double precision is enabled in a separate scope; the user's ``jax_enable_x64`` is not changed."""

    name: ClassVar[str] = "jax"
    module: ClassVar[str] = "jax"
    import_seconds: ClassVar[float] = 1.0
    import_bytes: ClassVar[int] = 230 << 20
    own_threads: ClassVar[bool] = True
    specs: ClassVar[Mapping[str, tuple[KernelSpec, ...]]] = {
        "causal_convolution": (
            _spec(
                "causal_convolution", "direct", INEXACT, MemoryModel(1.0, _MAX_CAUSAL_ELEMENTS, 16), refuses=_too_long
            ),
            _spec("causal_convolution", "fft", INEXACT, MemoryModel(2.0)),
            _spec("causal_convolution", "blocked", INEXACT, MemoryModel(2.0), refuses=_too_many_taps),
        ),
        "matmul": (_spec("matmul", "default", INEXACT),),
        "fft": (_spec("fft", "default", INEXACT, MemoryModel(1.0)),),
        "elementwise": (_spec("elementwise", "fused", INEXACT),),
        "reduction": (_spec("reduction", "default", INEXACT | INTEGERS, MemoryModel(0.3)),),
        "bitwise_xor": (_spec("bitwise_xor", "default", INTEGERS, differentiable=False),),
        "mittag_leffler": (_spec("mittag_leffler", "contour", INEXACT, MemoryModel(12.0)),),
        "spectral_multiply": (_spec("spectral_multiply", "fft", INEXACT, MemoryModel(1.2)),),
        "toeplitz_apply": (
            _spec("toeplitz_apply", "direct", INEXACT, MemoryModel(0.0, _MAX_ELEMENTS, 8), refuses=_too_long_or_wide),
            _spec("toeplitz_apply", "fft", INEXACT, MemoryModel(2.3)),
        ),
        "stencil_relax": (_spec("stencil_relax", "relax", FLOATS, MemoryModel(2.5), differentiable=False),),
        "history_sum": (_spec("history_sum", "direct", INEXACT, MemoryModel(2.2, 1 << 20, 16)),),
        "exponential_recurrence": (_spec("exponential_recurrence", "blocked", INEXACT, MemoryModel(3.0)),),
        "chirp_transform": (_spec("chirp_transform", "fft", INEXACT, MemoryModel(1.8)),),
        "tridiagonal_solve": (_spec("tridiagonal_solve", "reduction", INEXACT, MemoryModel(2.0)),),
        # Its operands are integers, so derivatives are not affected.
        "random": (_spec("random", "arithmetic", FLOATS, MemoryModel(1.0, 1 << 62, 32), own_arrays=True),),
    }

    def __init__(self) -> None:
        self._known: dict[str, Any] | None = None

    def before_import(self) -> None:
        """Prevent JAX from allocating most of the GPU at its first use, unless the user configured that."""
        if "jax" not in sys.modules:
            os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

    def is_running(self) -> bool:
        """Whether JAX is running, from a setting in its ``config`` that cannot be changed from then on."""
        config = self._jax().config
        set_now = config.jax_num_cpu_devices
        other = 1 if set_now != 1 else -1  # both mean one device
        try:
            config.update("jax_num_cpu_devices", other)
        except RuntimeError:
            return True
        config.update("jax_num_cpu_devices", set_now)
        return False

    def _jax(self) -> Any:
        self.before_import()
        return import_optional("jax")

    def _devices(self) -> dict[str, Any]:
        """JAX's devices by our names; respects JAX_PLATFORMS, JAX_PLATFORM_NAME and CUDA_VISIBLE_DEVICES."""
        if self._known is None:
            jax = self._jax()
            known: dict[str, Any] = {}
            for platform in ("cpu", "cuda"):
                try:
                    found = jax.local_devices(backend=platform)
                except RuntimeError:  # no such platform here, or the user disabled it
                    continue
                if platform == "cpu":
                    known["cpu"] = found[0]
                else:
                    known.update({f"cuda:{device.id}": device for device in found})
            self._known = known
        return self._known

    def _device(self, name: str) -> Any:
        device = self._devices().get(name)
        if device is None:
            known = ", ".join(self._devices()) or "none"
            raise BackendUnavailableError(f"JAX has no device {name!r}; it has {known}: choose one of those")
        return device

    def devices(self) -> tuple[str, ...]:
        """The host and every CUDA device that JAX finds."""
        return tuple(self._devices())

    def from_host(self, array: np.ndarray, device: str) -> Any:
        """An array committed to ``device``, in the dtype of the input."""
        target = self._device(device)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        jax = self._jax()
        with self._x64(str(array.dtype)):
            if array.nbytes < _SMALL_BYTES and len(jax.local_devices()) == 1:
                return jax.numpy.asarray(array)  # half the overhead, and there is no other device
            # A view, because JAX caches arrays that a live trace captured by identity, in the precision of that trace.
            return jax.device_put(array.view(), target)

    def to_host(self, array: Any) -> np.ndarray:
        """A writable NumPy array with memory of its own.

        JAX exports its memory read-only. So the copy costs one pass over the result, and its memory a second time.
        """
        host = np.asarray(array)
        return host if host.flags.writeable else host.copy()

    def read(self, array: Any) -> np.ndarray:
        """A read-only NumPy array; on the host it shares the memory of ``array``."""
        return np.asarray(array)

    def cast(self, array: Any, dtype: str) -> Any:
        """``array`` in ``dtype``; under a trace limited by the user's precision setting."""
        if str(array.dtype) == dtype:
            return array
        if is_tracer(array):
            return array.astype(self._jax().dtypes.canonicalize_dtype(dtype))
        with self._x64(dtype):
            return array.astype(dtype)

    def is_asynchronous(self, device: str) -> bool:
        """JAX returns before the work is done, on the host too."""
        return True

    def synchronize(self, device: str) -> None:
        """Wait for every array on ``device``, because JAX has no accessible queue."""
        target = self._device(device)
        for array in self._jax().live_arrays(target.platform):
            if not array.is_deleted() and target in array.devices():
                array.block_until_ready()

    def clock(self) -> DeviceClock:
        """A clock for the profiler, without marks, because JAX hides its queues."""
        from hpfracc.engine.backends.jax.clock import CLOCK

        return CLOCK

    def free_bytes(self, device: str) -> int | None:
        """Bytes that JAX may still allocate of its share of the GPU and that are free; None if it does not count.

        Its share is not preallocated unless the user allows it, so others may have taken memory of that share.
        """
        if device == "cpu":
            return None
        counts = self._device(device).memory_stats() or {}
        if "bytes_limit" not in counts:
            return None
        used = int(counts.get("bytes_in_use", 0))
        free = int(counts["bytes_limit"]) - used
        driver = driver_free_bytes(device)
        if driver is not None:
            free = min(free, driver + max(0, int(counts.get("pool_bytes", used)) - used))
        return max(0, free)

    def peak_bytes(self, device: str) -> tuple[int, int] | None:
        """Bytes of arrays on a CUDA device, and their peak."""
        if device == "cpu":
            return None
        counts = self._device(device).memory_stats() or {}
        if "peak_bytes_in_use" not in counts:
            return None
        return int(counts["bytes_in_use"]), int(counts["peak_bytes_in_use"])

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Any:
        """Zeros, because JAX has no uninitialised arrays."""
        jax = self._jax()
        with self._x64(dtype):
            return jax.device_put(jax.numpy.zeros(shape, dtype), self._device(device))

    def stack(self, arrays: Sequence[Any]) -> Any:
        """By JAX; can be traced and differentiated."""
        jax = self._jax()
        with self._x64(str(arrays[0].dtype)):
            return jax.numpy.stack(arrays)

    def concatenate(self, parts: Sequence[Any], axis: int) -> Any:
        """The parts as one array."""
        jax = self._jax()
        with self._x64(str(parts[0].dtype)):
            return jax.numpy.concatenate(parts, axis)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """XLA's RESOURCE_EXHAUSTED."""
        if isinstance(error, MemoryError):
            return True
        return isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" in str(error)

    def scope(self, call: Call) -> contextlib.AbstractContextManager[Any] | None:
        """Double precision for calls that need it, if the user has not enabled it globally."""
        if call.dtype not in _WIDE or self._jax().config.jax_enable_x64:
            return None
        return self._x64(call.dtype)

    def works_without_scope(self, call: Call) -> Callable[[], bool] | None:
        """Whether double precision is enabled; None in single precision."""
        # Called at every call, as one Python function: ``partial`` and ``getattr`` are none.
        return partial(getattr, self._jax().config, "jax_enable_x64") if call.dtype in _WIDE else None

    def _x64(self, dtype: str) -> contextlib.AbstractContextManager[Any]:
        jax = self._jax()
        if dtype not in _WIDE or jax.config.jax_enable_x64:
            return contextlib.nullcontext()
        # Its location and form since JAX 0.8; the experimental one was removed in 0.10.
        scope: contextlib.AbstractContextManager[Any] = jax.enable_x64(True)
        return scope


ADAPTER = JaxAdapter()
