"""Timings and usage statistics.

Both classes record spans of the profiler. If they share a ``recorder``, the tracker's statistics include the monitor's
timings. Nothing is written to disk unless a path is given.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from hpfracc import _reading
from hpfracc._files import parse_json, read_plain
from hpfracc.errors import InvalidInputError
from hpfracc.profiling.document import write_text
from hpfracc.profiling.recorder import Recorder
from hpfracc.profiling.spans import Span

__all__ = ["PerformanceMonitor", "UsageTracker"]

#: Maximum number of spans in an own recorder.
_CAPACITY = 100_000
_FORMAT = "hpfracc-usage"
#: Maximum size of a usage file.
_MAX_BYTES = 64 << 20


class PerformanceMonitor:
    """Times sections of code by name.

    Parameters
    ----------
    recorder : Recorder, optional
        Recorder for the timings; a new one by default.

    Examples
    --------
    >>> from hpfracc.analytics import PerformanceMonitor
    >>> monitor = PerformanceMonitor()
    >>> monitor.start_timing("assemble")
    >>> seconds = monitor.end_timing("assemble")
    >>> seconds >= 0.0
    True
    """

    def __init__(self, recorder: Recorder | None = None) -> None:
        self.recorder = recorder if recorder is not None else _own_recorder()
        #: When the timings of each name began, by thread.
        self._begun = threading.local()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a PerformanceMonitor belongs to its process and cannot be pickled; send get_timings() instead")

    def start_timing(self, name: str) -> None:
        """Start timing ``name`` in this thread. Timings of the same name may be nested."""
        vars(self._begun).setdefault(name, []).append(time.perf_counter_ns())

    def end_timing(self, name: str) -> float:
        """Stop timing ``name``; returns the seconds since its last :meth:`start_timing` in this thread."""
        now = time.perf_counter_ns()
        begun = vars(self._begun).get(name)
        if not begun:
            raise InvalidInputError(f"{name!r} is not being timed in this thread; call start_timing({name!r}) first")
        start: int = begun.pop()
        _note(self.recorder, name, start, now, {})
        return (now - start) / 1e9

    def get_timings(self, name: str | None = None) -> dict[str, list[float]]:
        """All timings in seconds, by name, oldest first."""
        found: dict[str, list[float]] = {}
        for span in self.recorder.session.snapshot()[0]:
            if name is None or span.name == name:
                found.setdefault(span.name, []).append(span.duration)
        return found

    def reset(self) -> None:
        """Discard all timings."""
        self.recorder.reset()
        self._begun = threading.local()


class UsageTracker:
    """Counts uses by name, with data sizes and execution times.

    Parameters
    ----------
    path : path, optional
        File for the totals. It is read on creation, and written by :meth:`save` and at the end of a ``with`` block.
        Without it nothing is saved.
    recorder : Recorder, optional
        Recorder for the uses; a new one by default. If a :class:`PerformanceMonitor` has the same recorder, its timings
        count as execution times of that name.

    Examples
    --------
    >>> from hpfracc.analytics import UsageTracker
    >>> tracker = UsageTracker()
    >>> tracker.record_usage("caputo", data_size=1000)
    >>> tracker.record_usage("caputo", data_size=3000, execution_time=0.002)
    >>> found = tracker.get_statistics()
    >>> found["total_ops"], found["avg_time"], found["avg_data_size"]
    (2.0, 0.002, 2000.0)
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, recorder: Recorder | None = None) -> None:
        self.recorder = recorder if recorder is not None else _own_recorder()
        self.path = None if path is None else _reading.path("path", path)
        self._earlier: dict[str, dict[str, float]] = {} if self.path is None else _read(self.path)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a UsageTracker belongs to its process and cannot be pickled; send get_statistics(), or give each process "
            "its own path"
        )

    def record_usage(self, name: str, data_size: float = 0, execution_time: float | None = None) -> None:
        """Record one use of ``name`` on ``data_size`` elements, optionally with its execution time in seconds."""
        size = _reading.number("data_size", data_size, least=0)
        seconds = None if execution_time is None else _reading.number("execution_time", execution_time, least=0)
        now = time.perf_counter_ns()
        start = now if seconds is None else now - round(seconds * 1e9)
        _note(self.recorder, name, start, now, {"data_size": size, "seconds": seconds}, "usage")

    def get_statistics(self, name: str | None = None) -> dict[str, Any]:
        """Statistics of ``name``, or of all names, with a dict ``by_name``. Times are ``nan`` where nothing was timed.

        ``total_ops`` counts all uses, ``timed_ops`` those with a known time.
        """
        by_name = self._totals()
        if name is not None:
            return _statistics([by_name[name]] if name in by_name else [])
        found: dict[str, Any] = _statistics(by_name.values())
        found["by_name"] = {each: _statistics([totals]) for each, totals in sorted(by_name.items())}
        return found

    def save(self) -> Path | None:
        """Write the totals to :attr:`path` and return it. Without a path, do nothing and return None."""
        if self.path is None:
            return None
        document = {"format": _FORMAT, "version": 1, "totals": self._totals()}
        return write_text(self.path, iter((json.dumps(document, indent=1, allow_nan=False) + "\n",)))

    def reset(self) -> None:
        """Discard all statistics, including those read from the file. The file itself is unchanged."""
        self.recorder.reset()
        self._earlier = {}

    def __enter__(self) -> UsageTracker:
        return self

    def __exit__(self, *_: object) -> None:
        self.save()

    def _totals(self) -> dict[str, dict[str, float]]:
        found = {name: dict(totals) for name, totals in self._earlier.items()}
        for span in self.recorder.session.snapshot()[0]:
            totals = found.setdefault(span.name, dict.fromkeys(_TOTALS, 0.0))
            metadata = span.metadata or {}
            seconds = metadata.get("seconds", span.duration)
            # A monitor's timing belongs to a use that is recorded separately, so it adds time but not a use.
            totals["ops"] += "data_size" in metadata
            totals["data"] += metadata.get("data_size", 0.0)
            if seconds is not None:
                totals["timed"] += 1
                totals["seconds"] += seconds
        return found


_TOTALS = ("ops", "data", "timed", "seconds")


def _statistics(rows: Iterable[dict[str, float]]) -> dict[str, Any]:
    found = list(rows)
    ops, data, timed, seconds = (math.fsum(row[key] for row in found) for key in _TOTALS)
    return {
        "total_ops": ops,
        "timed_ops": timed,
        "total_time": seconds if timed else math.nan,
        "avg_time": seconds / timed if timed else math.nan,
        "total_data_size": data,
        "avg_data_size": data / ops if ops else math.nan,
    }


def _own_recorder() -> Recorder:
    recorder = Recorder(_CAPACITY)
    recorder.enable()
    return recorder


def _note(recorder: Recorder, name: str, start: int, end: int, metadata: dict[str, Any], kind: str = "span") -> None:
    """Record a span with a given start and end, without children."""
    with Span(recorder, name, kind, None, metadata) as span:
        pass
    span.start, span.end = start, end


def _read(path: Path) -> dict[str, dict[str, float]]:
    """Read the totals of an earlier process."""
    try:
        data = read_plain(path, _MAX_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidInputError(
            f"usage file {str(path)!r} cannot be read ({error.strerror or error}); name another file"
        ) from None
    try:
        found = parse_json(data)
        if found["format"] != _FORMAT or found["version"] != 1:
            raise ValueError("another format")
        return {str(name): {key: float(row[key]) for key in _TOTALS} for name, row in found["totals"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise InvalidInputError(
            f"usage file {str(path)!r} is damaged ({error}); move it away, or name another file"
        ) from None
