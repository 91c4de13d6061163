"""Repeated work on a GPU, recorded once as CUDA graphs and replayed with one launch.

Up to a few million samples the GPU waits for the host: a derivative with a learned order takes about 25 launches
forward and backward, each of which costs the host more time than the GPU. Replayed, the same work costs the host a copy
of each operand, one launch and a copy of the result. On an H200 that makes the forward and backward pass of
``hf.caputo`` with a learned order 2 to 6 times faster at 1e5 to 1e6 points (``benchmarks/learning.py``; ``--ordinary``
measures without replay). Functions are not replayed in their first calls, inside :func:`disabled`, while the caller
records a graph of its own, or on another stream or device than that of the recording.

While a graph is recorded, generating random numbers on the GPU with PyTorch raises errors in all other threads. So
recordings are made only in the main thread, and only if no other thread of the process could generate them.

Memory that a recording reads must not be freed before the recording: the function holds its constants, operands and
results are copied, and a recording is not used after PyTorch has evicted FFT plans, which own memory on the GPU.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from hpfracc._torch_transforms import is_batched
from hpfracc.engine.backends.torch.tracking import is_only_recorded

__all__ = ["CALLS", "Replays", "disabled", "replays"]

logger = logging.getLogger("hpfracc.engine")

#: Number of calls of a kind before it is recorded. Recording takes the time of about ten calls.
CALLS = 16
#: Maximum number of kinds that are counted, and maximum fraction of a GPU's memory for recordings.
_MAX_KINDS, _SHARE = 512, 1.0 / 32.0
#: Expected memory of a recording in units of its operands: transforms of twice the length, forward and backward.
_EXPECTED = 20

#: Threads that generate no random numbers with PyTorch: of this library, data loaders, notebooks and progress bars.
_QUIET_NAMES = ("hpfracc", "pin_memory", "watch_pipe_fd", "IOPub", "Heartbeat", "Control")
_QUIET_PACKAGES = ("ipykernel", "IPython", "tqdm", "zmq")

Function = Callable[..., Any]


class _Switch:
    off = 0


_switch = _Switch()


@contextlib.contextmanager
def disabled() -> Iterator[None]:
    """Replay nothing within the block, in all threads, because PyTorch differentiates in threads of its own."""
    _switch.off += 1
    try:
        yield
    finally:
        _switch.off -= 1


def _is_alone() -> bool:
    """Whether this is the main thread and no other thread could generate random numbers during a recording."""
    here = threading.current_thread()
    return here is threading.main_thread() and all(each is here or _is_quiet(each) for each in threading.enumerate())


def _is_quiet(thread: Any) -> bool:
    package = type(thread).__module__.partition(".")[0]
    return package in _QUIET_PACKAGES or any(name in thread.name for name in _QUIET_NAMES)


class Recording:
    """A function of tensors for operands of one kind, recorded on one device.

    The recording has its own buffers for operands and results. ``turn`` counts replays of the forward pass, because the
    stored intermediate results are those of the last replay.
    """

    def __init__(self, function: Function, operands: Sequence[Tensor], tracked: bool) -> None:
        self.function = function
        self.turn = 0
        self.lock = threading.Lock()
        with torch.inference_mode(False):
            self.operands = [each.detach().clone().requires_grad_(tracked and each.requires_grad) for each in operands]
        self.results: tuple[Tensor, ...] = ()
        self.slope: Tensor | None = None
        self.gradients: list[Tensor | None] = []
        self.graphs: list[Any] = []
        self.bytes = 0
        device = operands[0].device
        with torch.inference_mode(False), torch.set_grad_enabled(tracked):
            self._warm_up(device, tracked)
            before = torch.cuda.memory_reserved(device)
            self._record(tracked)
            self.bytes = max(0, torch.cuda.memory_reserved(device) - before)
        self.plans = _plan_count(device)

    def _run(self) -> tuple[Tensor, ...]:
        found = self.function(*self.operands)
        return found if isinstance(found, tuple) else (found,)

    def _differentiate(self, results: tuple[Tensor, ...]) -> list[Tensor | None]:
        # Intermediate results are kept, because a caller may differentiate twice.
        wanted = [each for each in self.operands if each.requires_grad]
        found = iter(torch.autograd.grad(results, wanted, [self.slope], retain_graph=True, allow_unused=True))
        return [next(found) if each.requires_grad else None for each in self.operands]

    def _warm_up(self, device: torch.device, tracked: bool) -> None:
        """Run once on another stream, because the first run allocates and compiles."""
        current, beside = torch.cuda.current_stream(device), torch.cuda.Stream(device)
        beside.wait_stream(current)
        with torch.cuda.stream(beside):
            results = self._run()
            if tracked:
                self.slope = torch.zeros_like(results[0])
                self._differentiate(results)
            del results
        current.wait_stream(beside)
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()  # as recording does, so that its bytes can be measured

    def _record(self, tracked: bool) -> None:
        forward = torch.cuda.CUDAGraph()
        with torch.cuda.graph(forward, capture_error_mode="thread_local"):
            self.results = self._run()
        self.graphs = [forward]
        if tracked:
            backward = torch.cuda.CUDAGraph()
            with torch.cuda.graph(backward, pool=forward.pool(), capture_error_mode="thread_local"):
                self.gradients = self._differentiate(self.results)
            self.graphs.append(backward)

    def forward(self, operands: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], int]:
        """The results for these operands, as new tensors, and the turn."""
        with self.lock, torch.no_grad():
            for own, given in zip(self.operands, operands, strict=True):
                own.copy_(given)
            self.graphs[0].replay()
            self.turn += 1
            return tuple([each.detach().clone() for each in self.results]), self.turn

    def backward(self, slope: Tensor, turn: int) -> list[Tensor | None] | None:
        """The gradients of the operands; None if another turn has overwritten the intermediate results."""
        assert self.slope is not None
        with self.lock, torch.no_grad():
            if turn != self.turn:
                return None
            self.slope.copy_(slope)
            self.graphs[1].replay()
            return [None if each is None else each.clone() for each in self.gradients]


def _plan_count(device: torch.device) -> int:
    """Number of FFT plans that PyTorch caches for a device; -1 if the cache is full and evicts them."""
    cache = torch.backends.cuda.cufft_plan_cache[device.index]
    size = int(cache.size)
    return size if size < int(cache.max_size) else -1


class Replays:
    """The recordings of this process, least recently used first, bounded in bytes; thread-safe."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, int | Recording | None] = OrderedDict()
        self._lock = threading.Lock()

    def run(self, key: Hashable, function: Function, operands: Sequence[Tensor]) -> tuple[Tensor, ...] | None:
        """``function(*operands)``, a tuple of tensors without gradients; None if the caller has to run it.

        ``key`` identifies the function, which holds all other tensors that it reads. Operands and results are on one
        GPU.
        """
        found = self._find(key, function, operands, False)
        return None if found is None else found.forward(operands)[0]

    def run_tracked(self, key: Hashable, function: Function, operands: Sequence[Tensor]) -> Tensor | None:
        """The same for a differentiable function that returns one tensor. Higher derivatives are not replayed."""
        found = self._find(key, function, operands, True)
        if found is None:
            return None
        result: Tensor = _Replayed.apply(found, *operands)
        return result

    def is_recorded(self, key: Hashable, operands: Sequence[Tensor], tracked: bool) -> bool:
        """Whether such a call would be replayed."""
        return isinstance(self._known.get(_kind(key, operands, tracked)), Recording)

    def forget(self, key: Hashable) -> None:
        """Drop what is known of a function."""
        with self._lock:
            for kind in [kind for kind in self._known if isinstance(kind, tuple) and kind[0] == key]:
                del self._known[kind]

    def clear(self) -> int:
        """Drop everything; returns the bytes of recordings."""
        with self._lock:
            freed = sum(each.bytes for each in self._known.values() if isinstance(each, Recording))
            self._known.clear()
            return freed

    def renew_lock(self) -> None:
        """Create a new lock, because a forked child must not wait for one that a thread of its parent held."""
        self._lock = threading.Lock()

    def _find(self, key: Hashable, function: Function, operands: Sequence[Tensor], tracked: bool) -> Recording | None:
        device = operands[0].device
        if (
            _switch.off
            or (tracked and not (torch.is_grad_enabled() and is_only_recorded(*operands)))
            or torch.is_autocast_enabled("cuda")
            or torch.cuda.current_device() != device.index
            or torch.cuda.is_current_stream_capturing()
        ):
            return None
        kind = _kind(key, operands, tracked)
        known = self._known.get(kind, 0)
        if known is None:
            return None
        if not isinstance(known, int):
            if known.plans <= _plan_count(device):
                with self._lock:
                    self._known[kind] = known
                    self._known.move_to_end(kind)
                return known
            self.clear()
            return None
        due = known >= CALLS
        if due and not _is_alone():
            due, known = False, -1  # retried later
        with self._lock:
            # Only one attempt is made.
            self._known[kind] = None if due else known + 1
            self._known.move_to_end(kind)
            while len(self._known) > _MAX_KINDS:
                self._known.popitem(last=False)
        if not due:
            return None
        made = self._make(function, operands, tracked)
        if made is not None:
            with self._lock:
                self._known[kind] = made
                self._shrink(device, keep=kind)
        return made

    def _make(self, function: Function, operands: Sequence[Tensor], tracked: bool) -> Recording | None:
        device = operands[0].device
        expected = _EXPECTED * sum(each.nbytes for each in operands)
        free, total = torch.cuda.mem_get_info(device)
        if expected > min(_SHARE * total, 0.5 * free) or _plan_count(device) < 0:
            return None
        try:
            return Recording(function, operands, tracked)
        except Exception as error:  # cannot be recorded; if the call is wrong, running it raises the error
            logger.debug("not recorded as a CUDA graph: %s: %s", type(error).__name__, error)
            return None

    def _shrink(self, device: torch.device, keep: Hashable) -> None:
        """Drop the least recently used recordings of a device until the rest fits into its share.

        They are not recorded again, because calls of alternating kinds would keep replacing each other.
        """
        most = _SHARE * torch.cuda.get_device_properties(device).total_memory
        own = [
            (kind, each.bytes)
            for kind, each in self._known.items()
            if isinstance(each, Recording) and each.operands[0].device == device
        ]
        total = sum(size for _, size in own)
        for kind, size in own:
            if total <= most or kind == keep:
                return
            self._known[kind] = None
            total -= size


def _kind(key: Hashable, operands: Sequence[Tensor], tracked: bool) -> Hashable:
    stream = torch.cuda.current_stream(operands[0].device).cuda_stream
    return (key, tracked, stream, *[(each.shape, each.dtype, each.device, each.requires_grad) for each in operands])


class _Replayed(torch.autograd.Function):
    """A recorded function as a node of autograd."""

    @staticmethod
    def forward(ctx: Any, recording: Recording, *operands: Tensor) -> Tensor:
        ctx.save_for_backward(*operands)
        ctx.recording = recording
        (result,), ctx.turn = recording.forward(operands)
        return result

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:
        # Read first, because that may rerun a checkpointed forward pass, which increments the turn.
        operands = ctx.saved_tensors
        recording: Recording = ctx.recording
        create = torch.is_grad_enabled()
        batched = is_batched(slope)
        if not (create or batched or torch.cuda.is_current_stream_capturing()) and is_only_recorded(slope):
            found = recording.backward(slope, ctx.turn)
            if found is not None:
                return (None, *found)
        with torch.enable_grad():
            if not create:
                operands = [each.detach().requires_grad_(each.requires_grad) for each in operands]
            result = recording.function(*operands)
            wanted = [each for each in operands if each.requires_grad]
            slopes = iter(torch.autograd.grad(result, wanted, slope, create_graph=create, allow_unused=True))
        return (None, *[next(slopes) if each.requires_grad else None for each in operands])


#: The recordings of this process.
replays = Replays()
