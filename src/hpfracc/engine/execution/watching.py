"""What happens inside an engine call, as spans while the profiler is on: kernels, copies, first calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from hpfracc.engine.backends.base import Adapter, Arm
from hpfracc.profiling.recorder import shared as spans
from hpfracc.profiling.spans import Span

__all__ = ["queue_of", "watch_compilation", "watch_kernel", "watch_transfer"]


def queue_of(arm: Arm) -> str:
    """The queue of work that an arm's kernels go to, as the profiler names it."""
    return f"{arm.backend}:{arm.device}"


def watch_kernel(kernel: Callable[..., Any], operation: str, arm: Arm) -> Callable[..., Any]:
    """The kernel, in a span timed by the device to which its operands were brought."""

    def run(*operands: Any, **params: Any) -> Any:
        with spans.span(f"{operation} on {arm.name}", "kernel", queue_of(arm)):
            return kernel(*operands, **params)

    return run


def watch_transfer(worker: Adapter, route: str, size: int, device: str) -> contextlib.AbstractContextManager[Any]:
    """A span around a copy between host and device."""
    span = spans.span(route, "transfer", f"{worker.name}:{device}")
    if isinstance(span, Span):
        span.size = size
    return span


def watch_compilation(arm: Arm) -> contextlib.AbstractContextManager[Any]:
    """A span around the first call of a kernel that compiles; nothing for one that does not."""
    if arm.spec.compiles == "never":
        return contextlib.nullcontext()
    return spans.span(f"first call of {arm.name}", "compile")
