"""JAX as a backend, on the host and on CUDA devices."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from hpfracc._arrays import is_tracer
from hpfracc._optional import import_optional
from hpfracc.engine.backends.base import Adapter
from hpfracc.engine.backends.jax import BACKEND
from hpfracc.engine.hardware import driver_free_bytes
from hpfracc.engine.primitives.base import Call
from hpfracc.errors import BackendUnavailableError

#: Below this size the overhead of a copy dominates.
_SMALL_BYTES = 2**16

#: dtypes that JAX halves by default.
_WIDE = frozenset({"float64", "complex128", "int64", "uint64"})


class JaxAdapter(Adapter):
    """JAX. Double precision is enabled in a separate scope; the user's ``jax_enable_x64`` is not changed."""

    declaration = BACKEND
    out_of_memory = ("RESOURCE_EXHAUSTED",)

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

    def resolve(self, device: str) -> str | None:
        """``"gpu"`` and ``"cuda"`` are the first GPU; ``"cpu"``, where calls are asynchronous too, only with our name.

        JAX has no marks, because XLA hides its queues: its spans are "enqueued" unless they wait for their work.
        """
        kind, _, index = device.partition(":")
        if kind not in ("gpu", "cuda", "cpu") or (index and not index.isdigit()):
            return None
        full = "cpu" if kind == "cpu" else f"cuda:{index or 0}"
        return full if full in self._devices() and (kind != "cpu" or index in ("", "0")) else None

    def wait(self, value: Any) -> bool:
        """Wait for an array, or for all arrays of a structure."""
        jax = self._jax()
        if not any(isinstance(leaf, jax.Array) for leaf in jax.tree_util.tree_leaves(value)):
            return False
        jax.block_until_ready(value)
        return True

    def memory(self, device: str) -> tuple[int, int | None] | None:
        """Bytes in use of XLA's allocator, and their peak, if it counts them."""
        counts = self._device(device).memory_stats() or {}
        if "bytes_in_use" not in counts:
            return None
        peak = counts.get("peak_bytes_in_use")
        return int(counts["bytes_in_use"]), None if peak is None else int(peak)

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
        return jax.enable_x64(True)


ADAPTER = JaxAdapter()
