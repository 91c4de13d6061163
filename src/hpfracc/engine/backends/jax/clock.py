"""JAX's clock for the profiler: it has no marks, so its spans are "enqueued" unless they wait for their work."""

from __future__ import annotations

from typing import Any

import jax


class JaxClock:
    """JAX's devices, including the host, where calls are asynchronous too."""

    name = "jax"
    marks = False

    def in_use(self) -> bool:
        """False, so that it is tried last: it has no marks, and checking whether it is running would start it."""
        return False

    def resolve(self, device: str) -> str | None:
        """``"gpu"`` and ``"cuda"`` are the first GPU; ``"cpu"`` only if JAX was named with it."""
        kind, _, index = device.partition(":")
        platform = {"gpu": "cuda", "cuda": "cuda", "cpu": "cpu"}.get(kind)
        if platform is None or (index and not index.isdigit()):
            return None
        try:
            count = len(jax.local_devices(backend=platform))
        except RuntimeError:  # no such platform here, or the user disabled it
            return None
        number = int(index or 0)
        return None if number >= count else "cpu" if platform == "cpu" else f"cuda:{number}"

    def mark(self, device: str) -> None:
        """None: XLA hides its queues."""
        return None

    def mark_end(self, device: str) -> tuple[bool, None]:
        """Never idle, because that is unknown."""
        return False, None

    def has_passed(self, mark: Any) -> bool:
        """No mark was ever set."""
        raise NotImplementedError("JAX has no marks")

    def seconds(self, first: Any, second: Any) -> float:
        """No mark was ever set."""
        raise NotImplementedError("JAX has no marks")

    def release(self, device: str, mark: Any) -> None:
        """Nothing was taken."""
        return None

    def synchronize(self, device: str) -> None:
        """Wait for every array on the device, because JAX has no accessible queue."""
        platform = "cpu" if device == "cpu" else "cuda"
        for array in jax.live_arrays(platform):
            if not array.is_deleted():
                array.block_until_ready()

    def wait(self, value: Any) -> bool:
        """Wait for an array, or for all arrays of a structure."""
        if not any(isinstance(leaf, jax.Array) for leaf in jax.tree_util.tree_leaves(value)):
            return False
        jax.block_until_ready(value)
        return True

    def memory(self, device: str) -> tuple[int, int | None] | None:
        """Bytes in use of XLA's allocator, if it counts them."""
        platform = "cpu" if device == "cpu" else "cuda"
        number = int(device.rpartition(":")[2]) if ":" in device else 0
        counts = jax.local_devices(backend=platform)[number].memory_stats() or {}
        if "bytes_in_use" not in counts:
            return None
        peak = counts.get("peak_bytes_in_use")
        return int(counts["bytes_in_use"]), None if peak is None else int(peak)


CLOCK = JaxClock()
