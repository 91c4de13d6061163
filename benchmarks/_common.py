"""Shared by the benchmarks: description of the machine, timing in rounds, tables and JSON files."""

from __future__ import annotations

import datetime
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpfracc._files import write_whole
from hpfracc.engine import hardware

RESULTS = Path(__file__).parent / "results"


def machine_line() -> str:
    """Processor, cores, GPUs and library versions, in one line."""
    machine = hardware.machine()
    gpus = ", ".join(gpu.name for gpu in machine.gpus) or "no GPU"
    libraries = ", ".join(f"{name} {version}" for name, version in machine.libraries.items() if version)
    return f"{machine.cpu.model} ({machine.cpu.allotment}), {gpus}; Python {machine.python}; {libraries}"


def heading(title: str) -> str:
    """Title, date and machine."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return f"# {title}\n# {today}; {machine_line()}"


def quarter(values: Sequence[float]) -> float:
    """The 25th percentile, an estimate of undisturbed runs on a shared machine."""
    return sorted(values)[len(values) // 4]


def timed_in_rounds(
    contestants: Mapping[str, Callable[[], Any]], seconds: float, synchronize: Callable[[], None] | None = None
) -> dict[str, float]:
    """Seconds per call of each contestant. They take turns, so that a disturbance affects all of them.

    A turn starts with a call that is not counted, because the previous turn leaves cold caches and a low GPU clock.
    Contestants more than ten times slower than the fastest get one turn, because they would only cool the caches.
    """
    found: dict[str, list[float]] = {}
    for name, run in contestants.items():
        run()
        found[name] = [min(_run(run, 1, synchronize) for _ in range(2))]
    quickest = min(values[0] for values in found.values())
    racing = [name for name in contestants if found[name][0] <= 10.0 * quickest or name == "auto"]
    batch = {name: max(3, min(1000, int(4e-3 / max(found[name][0], 1e-9)))) for name in racing}
    for name in racing:
        found[name] = []
    deadline = time.perf_counter() + seconds
    rounds = 0
    while rounds < 5 or (time.perf_counter() < deadline and rounds < 200):
        for name in racing:
            _run(contestants[name], 1, synchronize)
            found[name].append(_run(contestants[name], batch[name], synchronize))
        rounds += 1
    return {name: quarter(values) for name, values in found.items()}


def ratio_in_rounds(
    one: Callable[[], Any], other: Callable[[], Any], seconds: float, synchronize: Callable[[], None] | None = None
) -> tuple[float, float, float]:
    """Seconds per call of both, and the median ratio of adjacent turns.

    A disturbance that lasts longer than a turn affects both of a pair and cancels in their ratio. The order alternates
    from pair to pair.
    """
    pair = (one, other)
    quickest = [min(_run(run, 3, synchronize) for _ in range(2)) for run in pair]
    batch = [max(3, min(1000, int(4e-3 / max(taken, 1e-9)))) for taken in quickest]
    taken: tuple[list[float], list[float]] = [], []
    deadline = time.perf_counter() + seconds
    while len(taken[0]) < 10 or (time.perf_counter() < deadline and len(taken[0]) < 400):
        for turn in (0, 1) if len(taken[0]) % 2 else (1, 0):
            _run(pair[turn], 1, synchronize)
            taken[turn].append(_run(pair[turn], batch[turn], synchronize))
    ratios = sorted(a / b for a, b in zip(*taken, strict=True))
    return quarter(taken[0]), quarter(taken[1]), ratios[len(ratios) // 2]


def _run(run: Callable[[], Any], times: int, synchronize: Callable[[], None] | None) -> float:
    begin = time.perf_counter()
    for _ in range(times):
        run()
    if synchronize is not None:
        synchronize()
    return (time.perf_counter() - begin) / times


def show(seconds: float) -> str:
    """Format a time with a suitable unit."""
    if not math.isfinite(seconds):
        return "-"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def print_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table with aligned columns."""
    text = [list(map(str, head)), *[list(map(str, row)) for row in rows]]
    widths = [max(len(row[column]) for row in text) for column in range(len(head))]
    for number, row in enumerate(text):
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))


def write_json(name: str, data: Mapping[str, Any]) -> None:
    """Write figures to ``benchmarks/results/<name>.json``."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    write_whole(path, [(json.dumps(data, indent=1) + "\n").encode()])
