"""Measures the prior that is packaged with the library: predictions for machines that are not calibrated.

Runs a thorough calibration without earlier measurements and merges the result into
``src/hpfracc/engine/selection/prior.json``. Times of other arms from other machines are kept, so the CPU part and the
GPU part can come from two machines: ``--only cpu`` or ``--only gpus`` selects the part.

    python benchmarks/make_prior.py [--budget SECONDS] [--passes N] [--only cpu|gpus] [--operation NAME] [--out FILE]
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import hpfracc as hf
from hpfracc.engine import hardware
from hpfracc.engine.backends import registry
from hpfracc.engine.execution.calibration.report import CalibrationReport
from hpfracc.engine.execution.calibration.runner import Step, calibrate
from hpfracc.engine.execution.calibration.trial import Series
from hpfracc.engine.selection import knowledge
from hpfracc.engine.selection.knowledge import general_name

PACKAGED = Path(knowledge.__file__).with_name("prior.json")
#: Knots per arm: those whose interpolation is closest to all measurements.
MAX_KNOTS = 10
#: Knots that change the curve by less than this ratio are dropped.
NEGLIGIBLE = 1.03
#: First calls shorter than this are not recorded.
MIN_COMPILE = 0.01
#: Backends with kernels that compile. Long first calls of other backends have other causes.
COMPILERS = ("numba", "jax", "cupy")
DIGITS = 3

Knots = dict[str, dict[str, dict[str, dict[str, list[list[float]]]]]]


def main() -> None:
    arguments = parse()
    with tempfile.TemporaryDirectory() as folder, hf.config(wisdom=folder):
        # Ignore existing compilation caches, which another machine does not have.
        os.environ["NUMBA_CACHE_DIR"] = folder
        measure = partial(calibrate, arguments.operation, thorough=True, budget_seconds=arguments.budget, progress=show)
        report = measure()
        for _ in range(arguments.passes - 1):
            take_better(report, measure())
    print(file=sys.stderr)
    found = {
        "version": 1,
        "made": [describe(report, arguments.only, arguments.operation)],
        "knots": collect_knots(report, arguments.only),
        "compile": collect_compiles(report, arguments.only),
        "transfers": collect_transfers(report) if arguments.only != "cpu" else {},
    }
    known = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.exists() else {}
    merged = merge(known, found)
    arguments.out.write_text(dump(merged), encoding="utf-8")
    print(
        f"# {report.measurements} timings in {report.spent:.0f} s, {report.compiling:.0f} s of first calls beside them"
    )
    for series in report.timings:
        if series.placement.device == "cpu" or arguments.only != "cpu":
            steps = ", ".join(f"from {'x'.join(map(str, step.shape))} {step.arm}" for step in report.crossovers(series))
            print(f"{series.name} {series.dtype}, {series.where}: {steps}")
    print(f"wrote {arguments.out}: {arguments.out.stat().st_size / 1024:.0f} KiB")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--budget", type=float, default=75.0, metavar="SECONDS", help="budget of one pass (default: 75)"
    )
    parser.add_argument("--passes", type=int, default=2, help="number of passes; the best times count (default: 2)")
    parser.add_argument("--only", choices=("cpu", "gpus"), help="the part of the prior that this machine measures")
    parser.add_argument("--operation", action="append", metavar="NAME", help="only this one (may be repeated)")
    parser.add_argument("--out", type=Path, default=PACKAGED)
    return parser.parse_args()


def show(step: Step) -> None:
    line = f"{step.spent:6.1f} s of {step.budget:.0f}: {step.what} {step.subject} {step.arm}"
    print(f"\r{line:<110.110}", end="", file=sys.stderr, flush=True)


def take_better(report: CalibrationReport, other: CalibrationReport) -> None:
    """Take the better time of two passes; a disturbance rarely affects the same measurement twice."""
    for series, sizes in other.timings.items():
        for shape, row in sizes.items():
            for timing in row.values():
                report.add(series, shape, timing)
    report.spent += other.spent
    report.compiling += other.compiling
    report.transfers += other.transfers


def describe(report: CalibrationReport, only: str | None, operations: Sequence[str] | None) -> dict[str, Any]:
    machine = hardware.machine()
    part = only or "all"
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "part": f"{part}: {', '.join(operations)}" if operations else part,
        "processor": f"{machine.cpu.model}, {len(machine.cpu.affinity)} threads",
        "gpus": [gpu.name for gpu in machine.gpus],
        "libraries": {name: version for name, version in machine.libraries.items() if version},
        "timings": report.measurements,
    }


def collect_knots(report: CalibrationReport, only: str | None) -> Knots:
    """Operation to arm to start to dtype to [[work, seconds], ...], thinned and rounded."""
    found: Knots = {}
    for series, arm, start, points in curves(report):
        on_gpu = "@cpu" not in arm
        if (only == "cpu" and on_gpu) or (only == "gpus" and not on_gpu):
            continue
        kept = f"{series.operation}+prepared" if series.variant == "prepared" else series.operation
        row = found.setdefault(kept, {}).setdefault(arm, {}).setdefault(start, {})
        row[series.dtype] = [[rounded(x), rounded(seconds)] for x, seconds in thinned(undisturbed(points))]
    return found


def curves(report: CalibrationReport) -> Iterator[tuple[Series, str, str, list[tuple[float, float]]]]:
    """Times of each arm by work. An arm on a GPU is timed with operands on the GPU: copies are predicted separately."""
    for series, sizes in report.timings.items():
        points: dict[str, dict[float, float]] = {}
        for row in sizes.values():
            for timing in row.values():
                known = points.setdefault(timing.arm, {})
                known[timing.x] = min(timing.seconds, known.get(timing.x, math.inf))
        arms = {arm.name: arm for arm in registry.arms(series.operation)}
        for name, times in points.items():
            arm = arms[name]
            if arm.on_host or series.placement.start == "device":
                yield series, general_name(arm), series.placement.start, sorted(times.items())


def undisturbed(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Make the times monotonic: a time above that of a larger call was disturbed."""
    found: list[tuple[float, float]] = []
    least = math.inf
    for x, seconds in reversed(points):
        least = min(least, seconds)
        found.append((x, least))
    return found[::-1]


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Drop knots that log-log interpolation between the others reproduces."""
    kept = [(math.log(max(x, 1.0)), math.log(seconds), x, seconds) for x, seconds in points]
    while len(kept) > 2:
        errors = []
        for before, here, after in zip(kept, kept[1:], kept[2:], strict=False):
            share = (here[0] - before[0]) / (after[0] - before[0]) if after[0] > before[0] else 0.0
            errors.append(abs(before[1] + share * (after[1] - before[1]) - here[1]))
        least = min(errors)
        if len(kept) <= MAX_KNOTS and least > math.log(NEGLIGIBLE):
            break
        del kept[errors.index(least) + 1]
    return [(x, seconds) for _, _, x, seconds in kept]


def collect_compiles(report: CalibrationReport, only: str | None) -> dict[str, float]:
    """Expected first-call times by pattern of arm names: medians by algorithm, then by backend."""
    exact: dict[str, list[float]] = {}
    general: dict[str, list[float]] = {}
    for series, _, timing in report.compiles():
        if series.variant == "prepared" or timing.first is None or timing.first < MIN_COMPILE:
            continue
        kernel, _, device = timing.arm.partition("@")
        on_gpu = not device.startswith("cpu")
        if (only == "cpu" and on_gpu) or (only == "gpus" and not on_gpu):
            continue
        place = "cuda*" if on_gpu else "cpu*"
        exact.setdefault(f"{kernel}@{place}", []).append(timing.first)
        backend = kernel.partition(":")[0]
        if backend in COMPILERS:
            general.setdefault(f"{backend}:*@{place}", []).append(timing.first)
    found = {pattern: rounded(statistics.median(seconds)) for pattern, seconds in {**exact, **general}.items()}
    return by_precision(found)


def collect_transfers(report: CalibrationReport) -> dict[str, list[float]]:
    """Latency and bandwidth of each kind of transfer, from the smallest and the largest copy."""
    found: dict[str, list[float]] = {}
    routes: dict[str, list[tuple[int, float]]] = {}
    for route, size, seconds in report.transfers:
        source, _, target = (end.partition(":")[0] for end in route.partition("->"))
        routes.setdefault(f"{source}->{target}", []).append((size, seconds))
    for route, copies in routes.items():
        latency = min(copies)[1]
        size, seconds = max(copies)
        found[route] = [rounded(latency), rounded(size / max(seconds - latency, 1e-9))]
    return found


def merge(known: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """``known`` updated with the new measurements."""
    part = found["made"][0]["part"]
    made = [entry for entry in known.get("made", []) if entry.get("part") != part] + found["made"]
    knots: Knots = {**known.get("knots", {})}
    for operation, arms in found["knots"].items():
        for arm, starts in arms.items():
            for start, dtypes in starts.items():
                row = knots.setdefault(operation, {}).setdefault(arm, {}).setdefault(start, {})
                row.update(dtypes)
    return {
        "version": 1,
        "made": made,
        "knots": {operation: dict(sorted(arms.items())) for operation, arms in sorted(knots.items())},
        # First calls are stored by kernel, not by operation, so new ones are added to the known ones.
        "compile": by_precision(
            {**found["compile"], **known.get("compile", {})}
            if ":" in part
            else {**known.get("compile", {}), **found["compile"]}
        ),
        "transfers": {**known.get("transfers", {}), **found["transfers"]},
    }


def by_precision(patterns: dict[str, float]) -> dict[str, float]:
    """Sort patterns of one algorithm before those of a whole backend: the first match counts."""
    return dict(sorted(patterns.items(), key=lambda item: (":*" in item[0], item[0])))


def dump(data: dict[str, Any]) -> str:
    """JSON with one line for each row of knots, which is small and gives readable diffs."""
    rows: list[str] = []

    def mark(value: Any) -> Any:
        if isinstance(value, list) and all(isinstance(item, list) for item in value):
            rows.append(json.dumps(value, separators=(",", ":")))
            return f"@@{len(rows) - 1}@@"
        return {key: mark(item) for key, item in value.items()} if isinstance(value, dict) else value

    text = json.dumps({**data, "knots": mark(data["knots"])}, indent=1)
    for number, row in enumerate(rows):
        text = text.replace(f'"@@{number}@@"', row)
    return f"{text}\n"


def rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


if __name__ == "__main__":
    main()
