"""JAX for the profiler: it has no marks to set, so that its spans say "enqueued" unless they wait for their work."""

from __future__ import annotations

from typing import Any

import jax

__all__ = ["CLOCK", "JaxClock"]


class JaxClock:
    """JAX's devices, the host among them: it returns before the work is done there too."""

    name = "jax"
    marks = False

    def in_use(self) -> bool:
        """Asked last: it has no marks, and to see whether it has begun would make it begin."""
        return False

    def resolve(self, device: str) -> str | None:
        """``"gpu"`` and ``"cuda"`` are the first GPU; ``"cpu"`` only where JAX was named with it."""
        kind, _, index = device.partition(":")
        platform = {"gpu": "cuda", "cuda": "cuda", "cpu": "cpu"}.get(kind)
        if platform is None or (index and not index.isdigit()):
            return None
        try:
            count = len(jax.local_devices(backend=platform))
        except RuntimeError:  # no such platform here, or the user ruled it out
            return None
        number = int(index or 0)
        return None if number >= count else "cpu" if platform == "cpu" else f"cuda:{number}"

    def mark(self, device: str) -> None:
        """None: XLA hides its queues."""
        return None

    def mark_end(self, device: str) -> tuple[bool, None]:
        """Whether it is idle is not known, so never said."""
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
        """Wait for every array on the device: JAX has no other queue to wait for."""
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
        """What XLA's allocator has handed out, where it keeps a count."""
        platform = "cpu" if device == "cpu" else "cuda"
        number = int(device.rpartition(":")[2]) if ":" in device else 0
        counts = jax.local_devices(backend=platform)[number].memory_stats() or {}
        if "bytes_in_use" not in counts:
            return None
        peak = counts.get("peak_bytes_in_use")
        return int(counts["bytes_in_use"]), None if peak is None else int(peak)


CLOCK = JaxClock()
