"""The public profiler: record, read, print, export and show spans."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from hpfracc import _reading
from hpfracc.errors import InvalidInputError
from hpfracc.profiling import recorder as recording
from hpfracc.profiling.document import Document, write_text
from hpfracc.profiling.exports import bottleneck_table, chrome_trace, render_page, speedscope, summary_table
from hpfracc.profiling.formats import make_console
from hpfracc.profiling.recorder import CAPACITY, MemoryMode, NullSpan, Recorder
from hpfracc.profiling.spans import Span

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class Profiler:
    """Records spans; reads, prints, exports and shows them.

    Parameters
    ----------
    enabled : bool
        Whether to record from the start.
    capacity : int
        Maximum number of spans. Older ones are dropped, and every export has their number.
    memory : bool or "device"
        What is read before and after each span: nothing (False); the bytes allocated on the span's device
        (``"device"``); also, for spans without a device, the memory of the process, as counted by tracemalloc while it
        traces, otherwise the resident set (True; a span then costs several microseconds more).
    energy : bool
        Whether the energy counters of this machine are read, ten times a second. Spans of at least a second then have
        ``joules``: those of all readable devices, including other processes.

    Notes
    -----
    Spans nest by thread and by asyncio task, and may be created in any of them. The engine reports its calls, copies,
    compilations and fallbacks to the profiler of :func:`get_profiler`; any other profiler has only its own spans.

    Examples
    --------
    >>> from hpfracc.profiling import Profiler
    >>> profiler = Profiler()
    >>> @profiler.profile_function(operation="square")
    ... def square(x):
    ...     return x * x
    >>> with profiler.profile("outer", size=3):
    ...     _ = [square(x) for x in range(3)]
    >>> [(span.name, span.parent == 1) for span in profiler.get_entries()][:2]
    [('outer', False), ('square', True)]
    """

    def __init__(
        self, enabled: bool = True, *, capacity: int = CAPACITY, memory: bool | str = False, energy: bool = False
    ) -> None:
        self._recorder = Recorder(capacity, _memory(memory))
        self._recorder.watch_energy(_reading.flag("energy", energy))
        if _reading.flag("enabled", enabled):
            self._recorder.enable()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Profiler belongs to its process; send profiler.document().to_dict(), or its spans")

    @property
    def enabled(self) -> bool:
        """Whether spans are recorded."""
        return self._recorder.on

    def enable(self) -> None:
        """Record from now on."""
        self._recorder.enable()

    def disable(self) -> None:
        """Stop recording; recorded spans stay."""
        self._recorder.disable()

    def reset(self) -> None:
        """Discard everything recorded."""
        self._recorder.reset()

    def configure(
        self, *, capacity: int | None = None, memory: bool | str | None = None, energy: bool | None = None
    ) -> None:
        """Change the capacity (which discards recorded spans), the memory to read, or the reading of energy."""
        if energy is not None:
            self._recorder.watch_energy(energy)
        if memory is not None:
            self._recorder.memory = _memory(memory)
        if capacity is not None:
            self._recorder.reset(capacity)

    def profile(self, name: str, device: str | None = None, **metadata: Any) -> Span | NullSpan:
        """A span for a ``with`` block.

        Parameters
        ----------
        name : str
            Name of the span.
        device : str, optional
            A device whose clock also times the span: ``"gpu"``, ``"cuda:1"``, or with the library whose queue to use,
            ``"cupy:cuda:0"``. ``"cpu"`` is the host.
        **metadata
            Stored with the span.
        """
        return self._recorder.span(name, "span", device, metadata)

    def profile_function(
        self, operation: str | Callable[..., Any] | None = None, device: str | None = None, **metadata: Any
    ) -> Any:
        """Decorator: every call of the function or coroutine is a span while profiling is on.

        Parameters
        ----------
        operation : str, optional
            The span's name; the function's own by default.
        device : str, optional
            As for :meth:`profile`.
        **metadata
            As for :meth:`profile`.
        """
        if callable(operation):
            return self._recorder.decorate(operation, _name_of(operation), device, metadata)

        def wrap(function: Decorated) -> Decorated:
            return self._recorder.decorate(function, operation or _name_of(function), device, metadata)

        return wrap

    def document(self) -> Document:
        """Everything recorded so far, analysed; waits for devices that are still working."""
        return Document(self._recorder)

    def get_entries(self) -> list[Span]:
        """The finished spans, in the order of their start."""
        self._recorder.session.settle()
        return sorted(self._recorder.session.snapshot()[0], key=lambda span: (span.start, span.id))

    def get_summary(self) -> dict[str, dict[str, Any]]:
        """Statistics of each name, largest self time first.

        Each has ``count``, ``total``, ``self``, ``mean``, ``p50``, ``p95``, ``min``, ``max`` and ``device`` in seconds,
        ``transfer`` and ``compile``, ``memory_growth`` and ``memory_peak`` in bytes, ``errors``. Values that were not
        measured are None.
        """
        return self.document().summary

    def get_breakdown(self) -> dict[str, Any]:
        """Where the time went, in nanoseconds: host, copies, compilation, idle, the profiler itself, each device."""
        return self.document().breakdown

    def get_bottlenecks(self, top_n: int = 5) -> list[dict[str, Any]]:
        """The ``top_n`` names with the largest self time, each with advice."""
        return self.document().bottlenecks(_reading.whole("top_n", top_n, least=1))

    def print_summary(self) -> None:
        """Print the summary as a table."""
        make_console().print(summary_table(self.document()))

    def print_bottlenecks(self, top_n: int = 5) -> None:
        """Print the bottlenecks as a table, with advice."""
        make_console().print(bottleneck_table(self.document(), top_n))

    def export_json(self, path: str | os.PathLike[str]) -> Path:
        """Write everything as JSON, in the documented format that ``hpfracc profile`` reads."""
        return write_text(path, self.document().text())

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> Path:
        """Write Chrome's trace events, which Perfetto opens."""
        return write_text(path, chrome_trace(self.document()))

    def export_speedscope(self, path: str | os.PathLike[str]) -> Path:
        """Write the format of speedscope."""
        return write_text(path, speedscope(self.document()))

    def report(self, path: str | os.PathLike[str], title: str = "") -> Path:
        """Write an HTML page that shows everything: a single file that works offline."""
        return write_text(path, iter((render_page(self.document().to_dict(), title),)))


def _name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or repr(function))


def _memory(memory: bool | str) -> MemoryMode:
    if isinstance(memory, str) and memory == "device":
        return "device"
    if isinstance(memory, bool):
        return "all" if memory else ""
    raise InvalidInputError(f"memory={memory!r} is not known; use True, False or 'device'")


_shared = Profiler.__new__(Profiler)
_shared._recorder = recording.shared


def get_profiler(enabled: bool = True) -> Profiler:
    """The profiler of the process, to which the engine reports; switched on, or off with ``enabled=False``.

    Examples
    --------
    >>> from hpfracc.profiling import get_profiler
    >>> profiler = get_profiler(enabled=True)
    >>> with profiler.profile("work", device="gpu", batch=8):
    ...     pass
    >>> len(profiler.get_entries())
    1
    >>> get_profiler(enabled=False).reset()
    """
    if _reading.flag("enabled", enabled):
        _shared.enable()
    else:
        _shared.disable()
    return _shared
