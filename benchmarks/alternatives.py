"""Everyday problems by this library, and by what a user of SciPy would write instead.

    python benchmarks/alternatives.py [--only NAME ...] [--limit SECONDS] [--list]

Each row has both times, both true errors, and their ratio, measured in turns in one run, in processor time, which other
programs disturb least; set OMP_NUM_THREADS=1, or idle threads of linear algebra count. A way that takes longer than
``--limit`` is stopped, and its time shown as ``>``. The figures go to ``results/alternatives.json``, of which
``results/alternatives.txt`` is made; with ``--only`` the other rows stay as they were. A row is a function with
``@row`` in ``_alternatives/``.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from _alternatives import equations, samples
from _alternatives.row import ROWS, Pair, Row
from _common import RESULTS, machine_line, print_table, show, write_json

from hpfracc._files import write_whole

#: Modules whose rows are in the table.
MODULES = (equations, samples)
#: Seconds for the turns of a row after the first, and the most turns.
_SECONDS, _TURNS = 6.0, 9
HEAD = ("row", "ours", "alternative", "ratio", "aim", "our error", "its error", "our estimate")


class Stopped(BaseException):
    """A way took longer than the limit."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Stop what runs inside after so many seconds."""

    def stop(number: int, frame: Any) -> None:
        raise Stopped

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def once(run: Callable[[], Any], limit: float) -> tuple[float, Any]:
    """Seconds of one call, and its answer; infinite seconds if it was stopped."""
    begin = time.process_time()
    try:
        with limited(limit):
            answer = run()
    except Stopped:
        return math.inf, None
    return time.process_time() - begin, answer


def measure(row: Row, limit: float) -> dict[str, Any]:
    """The figures of a row. The first turn, in which libraries are imported, counts only where it is the only one."""
    pair: Pair = row.make()
    ways = [way for way in (pair.ours, pair.other) if way is not None]
    first, answers = zip(*(once(way, limit) for way in ways), strict=True)
    turns: list[list[float]] = [[] for _ in ways]
    deadline = time.process_time() + _SECONDS
    while math.isfinite(sum(first)) and time.process_time() + sum(first) < deadline and len(turns[0]) < _TURNS:
        for way, taken in zip(ways, turns, strict=True):
            taken.append(once(way, limit)[0])
    seconds = [statistics.median(taken) if taken else one for taken, one in zip(turns, first, strict=True)]
    errors = [math.nan if each is None or pair.error is None else float(pair.error(each)) for each in answers]
    missing = [math.nan] * (2 - len(ways))
    estimate = math.nan if pair.estimate is None or answers[0] is None else float(pair.estimate(answers[0]))
    return {
        "problem": row.problem,
        "alternative": row.alternative,
        "aim": row.aim,
        "limit": limit,
        "first": [*first, *missing],
        "seconds": [*seconds, *missing],
        "errors": [*errors, *missing],
        "estimate": estimate,
    }


def line(name: str, found: dict[str, Any]) -> list[str]:
    """A line of the table."""

    def spell(seconds: float) -> str:
        return f"> {found['limit']:g} s" if seconds == math.inf else show(seconds)

    def figure(value: float) -> str:
        return "-" if math.isnan(value) else f"{value:.1e}"

    ours, other = found["seconds"]
    ratio = "-" if not math.isfinite(ours / other) else f"{ours / other:.3g}"
    errors = map(figure, (*found["errors"], found["estimate"]))
    return [name, spell(ours), spell(other), ratio, found["aim"], *errors]


def write_text(data: dict[str, Any]) -> None:
    """``alternatives.txt``: the table, and the problems below it."""
    rows = data["rows"]
    table = [list(HEAD), *(line(name, found) for name, found in rows.items())]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [f"# Alternatives; {data['machine']}", ""]
    lines += ["  ".join(cell.ljust(w) for cell, w in zip(each, widths, strict=True)).rstrip() for each in table]
    lines.append("")
    for name, found in rows.items():
        lines.append(f"{name}: {found['problem']}; {found['alternative']}.")
    write_whole(RESULTS / "alternatives.txt", [("\n".join(lines) + "\n").encode()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which a way is stopped")
    parser.add_argument("--list", action="store_true", help="show the names of the rows")
    parser.add_argument("--dry", action="store_true", help="write no files")
    asked = parser.parse_args()
    if asked.list:
        print("\n".join(f"{each.name}: {each.problem}" for each in ROWS.values()))
        return
    path = RESULTS / "alternatives.json"
    known = json.loads(path.read_text())["rows"] if path.is_file() else {}
    for name in asked.only:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            known[name] = measure(ROWS[name], asked.limit)
        print_table(HEAD, [line(name, known[name])])
    data = {"machine": machine_line(), "rows": {name: known[name] for name in ROWS if name in known}}
    if not asked.dry:
        write_json("alternatives", data)
        write_text(data)


if __name__ == "__main__":
    main()
