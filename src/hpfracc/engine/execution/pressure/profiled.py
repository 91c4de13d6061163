"""What spans of the profiler left behind, where it read memory around them: its own spans name growth as well."""

from __future__ import annotations

import time
from typing import Any

from hpfracc.profiling.recorder import shared

__all__ = ["grown_in_spans"]


def grown_in_spans(seconds: float) -> dict[str, float]:
    """Bytes a second that users' spans of the last ``seconds`` added, those inside others counted once.

    Empty unless the profiler is on and reads memory (``profiler.configure(memory=True)``).
    """
    begin = time.perf_counter_ns() - int(seconds * 1e9)
    measured: dict[int, Any] = {}
    for span in shared.session.snapshot()[0]:
        if span.kind == "span" and span.end >= begin and span.memory is not None and span.memory[2] is not None:
            measured[span.id] = span
    own = {number: span.memory[2] - span.memory[1] for number, span in measured.items()}
    for number, span in measured.items():
        if span.parent in own:
            own[span.parent] -= measured[number].memory[2] - measured[number].memory[1]
    total: dict[str, int] = {}
    for number, grown in own.items():
        name = measured[number].name
        total[name] = total.get(name, 0) + grown
    return {name: grown / seconds for name, grown in total.items() if grown > 0}
