"""Measures the prior that is packaged with the library: predictions for machines that are not calibrated.

Calibrates at many sizes without earlier measurements and merges the result into
``src/hpfracc/engine/selection/prior.json``. Times of other arms from other machines are kept, so the CPU part and the
GPU part can come from two machines: ``--only cpu`` or ``--only gpus`` selects the part.

    python benchmarks/make_prior.py [--passes N] [--only cpu|gpus] [--operation NAME] [--out FILE]
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
from hpfracc.engine.execution.calibration import MachineCalibration, Series, calibrate, show_shape
from hpfracc.engine.selection import knowledge
from hpfracc.engine.selection.knowledge import general_name

PACKAGED = Path(knowledge.__file__).with_name("prior.json")
#: Exponents of the numbers of elements.
SIZES = range(4, 25)
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
        measure = partial(calibrate, arguments.operation, progress=show, sizes=SIZES, precisions=2)
        report = measure()
        for _ in range(arguments.passes - 1):
            add_pass(report, measure())
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
    print(f"# {len(report.timings)} timings in {report.seconds:.0f} s")
    for each in report.fastest():
        print(f"{each.series.name} {each.series.dtype}, {each.series.where}, {show_shape(each.shape)}: {each.arm}")
    print(f"wrote {arguments.out}: {arguments.out.stat().st_size / 1024:.0f} KiB")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=2, help="number of passes; the best times count (default: 2)")
    parser.add_argument("--only", choices=("cpu", "gpus"), help="the part of the prior that this machine measures")
    parser.add_argument("--operation", action="append", metavar="NAME", help="only this one (may be repeated)")
    parser.add_argument("--out", type=Path, default=PACKAGED)
    return parser.parse_args()


def show(share: float, text: str) -> None:
    line = f"{share:4.0%} {text}"
    print(f"\r{line:<110.110}", end="", file=sys.stderr, flush=True)


def add_pass(report: MachineCalibration, other: MachineCalibration) -> None:
    """Add another pass, of which the better times count: a disturbance rarely affects the same measurement twice."""
    report.timings += other.timings
    report.seconds += other.seconds
    report.transfers += other.transfers


def describe(report: MachineCalibration, only: str | None, operations: Sequence[str] | None) -> dict[str, Any]:
    machine = hardware.machine()
    part = only or "all"
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "part": f"{part}: {', '.join(operations)}" if operations else part,
        "processor": f"{machine.cpu.model}, {len(machine.cpu.affinity)} threads",
        "gpus": [gpu.name for gpu in machine.gpus],
        "libraries": {name: version for name, version in machine.libraries.items() if version},
        "timings": len(report.timings),
    }


def collect_knots(report: MachineCalibration, only: str | None) -> Knots:
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


def curves(report: MachineCalibration) -> Iterator[tuple[Series, str, str, list[tuple[float, float]]]]:
    """Times of each arm by work. An arm on a GPU is timed with operands on the GPU: copies are predicted separately."""
    found: dict[Series, dict[str, dict[float, float]]] = {}
    for timing in report.timings:
        known = found.setdefault(timing.series, {}).setdefault(timing.arm, {})
        known[timing.x] = min(timing.seconds, known.get(timing.x, math.inf))
    for series, points in found.items():
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


def collect_compiles(report: MachineCalibration, only: str | None) -> dict[str, float]:
    """Expected first-call times by pattern of arm names: medians by algorithm, then by backend."""
    exact: dict[str, list[float]] = {}
    general: dict[str, list[float]] = {}
    for timing in report.timings:
        if timing.series.variant == "prepared" or timing.first is None or timing.first < MIN_COMPILE:
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


def collect_transfers(report: MachineCalibration) -> dict[str, list[float]]:
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
