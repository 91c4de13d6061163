"""A GPU for each worker of a machine, claimed by a lock file, which the system releases when the process ends.

Workers of one machine do not know of each other and may be restarted in any order. Each takes the first unclaimed GPU.
If there are more workers than GPUs, several share one, and each may take its part of the memory.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpfracc.engine import hardware
from hpfracc.engine.hardware import GPU
from hpfracc.engine.memory.budget import get_budget
from hpfracc.profiling.clocks import all_clocks

__all__ = ["GPUClaim", "claim_gpu", "claimed", "limit_gpu", "use_own_gpu"]

logger = logging.getLogger("hpfracc.distributed")

_VARIABLE = "CUDA_VISIBLE_DEVICES"
#: The only GPU that a worker with a claim sees.
_DEVICE = "cuda:0"
#: Largest number of workers that share one GPU.
_MAX_SHARERS = 16
_claim: GPUClaim | None = None


@dataclass(frozen=True, slots=True)
class GPUClaim:
    """A GPU that this process has claimed.

    Attributes
    ----------
    gpu : GPU
        The GPU.
    slot : int
        Index of this process among those on the GPU: 0 for the first, 1 for the second.
    folder : Path
        The folder of the lock files.
    file : int
        The descriptor that holds the lock.
    """

    gpu: GPU
    slot: int
    folder: Path
    file: int

    def sharers(self) -> int:
        """Number of processes that have claimed this GPU, including this one."""
        return 1 + sum(
            _is_held(_path(self.folder, self.gpu, slot)) for slot in range(_MAX_SHARERS) if slot != self.slot
        )

    def release(self) -> None:
        """Release the claim."""
        os.close(self.file)


def claim_gpu(gpus: Sequence[GPU], folder: Path | None = None) -> GPUClaim | None:
    """Claim an unclaimed GPU, or the one with the fewest claims; None if locks are not available."""
    place = Path(tempfile.gettempdir()) / f"hpfracc-gpus-{os.getuid()}" if folder is None else folder
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        for slot in range(_MAX_SHARERS):
            for gpu in gpus:
                file = _lock(_path(place, gpu, slot))
                if file is not None:
                    return GPUClaim(gpu, slot, place, file)
    except OSError as error:
        logger.info("no GPU could be claimed (%s); all workers of this machine see all GPUs", error)
    return None


def _path(folder: Path, gpu: GPU, slot: int) -> Path:
    return folder / f"{(gpu.uuid or gpu.bus).replace('/', '-')}-{slot}.lock"


def _lock(path: Path) -> int | None:
    """A descriptor that holds the lock of a file, or None if another process holds it."""
    import fcntl

    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def _is_held(path: Path) -> bool:
    if not path.exists():
        return False
    file = _lock(path)
    if file is not None:
        os.close(file)
    return file is None


def claimed() -> GPUClaim | None:
    """The GPU that this process has claimed."""
    return _claim


def use_own_gpu(worker: Any) -> None:
    """Give this worker process its own GPU. Without a GPU, or in the process of a client, nothing changes."""
    global _claim
    if _claim is not None or multiprocessing.parent_process() is None or sys.platform == "win32":
        return
    gpus = hardware.machine().gpus
    if not gpus:
        return
    _claim = claim_gpu(gpus)
    if _claim is None:
        return
    if len(gpus) > 1:
        if _cuda_is_used():
            logger.info("%s already uses CUDA; it keeps its current GPUs", getattr(worker, "address", "this process"))
            _claim.release()
            _claim = None
            return
        os.environ[_VARIABLE] = _claim.gpu.uuid
        hardware.reset()
    limit_gpu()


def limit_gpu() -> None:
    """Limit a call to this worker's part of its GPU's memory, minus what the worker already holds there."""
    if _claim is None:
        return
    sharers = _claim.sharers()
    memory = _claim.gpu.memory
    if memory is None:
        memory = get_budget().read(_DEVICE)
    part = None if memory is None or sharers == 1 else max(1, memory // sharers - _held())
    if get_budget().caps().get(_DEVICE) != part:
        get_budget().cap(_DEVICE, part)


def _held() -> int:
    """Bytes of this process's arrays on its GPU, over all libraries."""
    held = 0
    for clock in all_clocks():
        with contextlib.suppress(RuntimeError, IndexError):  # a library that does not use the GPU
            reading = clock.memory(_DEVICE) if clock.in_use() else None
            held += 0 if reading is None else reading[0]
    return held


def _cuda_is_used() -> bool:
    """Whether a library of this process has initialised CUDA, which reads the variable only once."""
    with contextlib.suppress(AttributeError):
        if sys.modules["torch"].cuda.is_initialized() if "torch" in sys.modules else False:
            return True
    return "cupy" in sys.modules or "jax" in sys.modules
