"""Quality of the engine's choices: measured tables replayed with its actual policy on a simulated clock.

Run with ``python benchmarks/selection.py``; ``--table FILE ...`` replays other tables of the same form, ``--live`` a
table measured on this machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from _common import heading, machine_line, print_table, write_json
from replay.report import WORKLOADS, Replay, replay
from replay.tables import Table, read_table

from hpfracc.engine.backends import registry

DATA = Path(__file__).parent / "data"
#: One process: from the start of its imports to the end of 60 calls, of which slow ones are extrapolated; and the arms.
FRESH = """
import sys, time
begin = time.perf_counter()
import numpy as np, hpfracc as hf
n, backend = int(sys.argv[1]), sys.argv[2]
samples, weights = np.sin(np.linspace(0.0, 3.0, n)), 1.0 / (1.0 + np.arange(n))
arms, last = [], 0.0
with hf.use_backend(backend):
    for done in range(1, 61):
        start = time.perf_counter()
        hf.causal_convolution(weights, samples)
        last = time.perf_counter() - start
        arms.append((hf.last_decision().arm, last))
        if backend != "auto" and done >= 4 and last > 0.5:
            break
names = list(dict.fromkeys(name for name, _ in arms))
text = ", ".join(f"{name} {sum(t for arm, t in arms if arm == name):.2f} s" for name in names)
print(time.perf_counter() - begin + (60 - done) * last, text, sep=": ")
"""
FRESH_SIZES = (100_000, 1_000_000, 10_000_000)
LEGEND = """\
regret: time over the oracle's, in the first 1,000 calls of each operation, after them, and in all; held out: the
settled calls of sizes that were not calibrated; slow calls: over 10 % slower than the oracle's, after 50 of that size
"""


def main() -> int:
    """Replay and print; with ``--check``, fail if a target is missed."""
    arguments = _parser().parse_args()
    if arguments.fresh:
        print(heading("60 causal convolutions in a process that knows nothing"))
        fresh()
        return 0
    try:
        tables = [read_table(path) for path in arguments.table or sorted(DATA.glob("timings-*.json"))]
        if arguments.live or arguments.save:
            tables.append(_measured(arguments.save))
        results = [
            replay(
                table,
                arguments.knots,
                calls=arguments.calls,
                repeats=arguments.repeats,
                workloads=tuple(arguments.workloads.split(",")),
                first_seed=arguments.seed,
            )
            for table in tables
        ]
    except (OSError, ValueError, KeyError) as error:
        print(f"selection.py: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    passed = all(result.passed for result in results)
    data = {
        "calls": arguments.calls,
        "repeats": arguments.repeats,
        "knots": arguments.knots,
        "tables": [result.to_dict() for result in results],
        "passed": passed,
    }
    if arguments.json:
        print(json.dumps(data, indent=1))
    else:
        print(heading("Selection replayed on measured tables"))
        for result in results:
            _show(result, arguments)
        write_json("selection", data)
    return 1 if arguments.check and not passed else 0


def fresh() -> None:
    """60 calls of a process without wisdom, and of processes with one library."""
    for n in FRESH_SIZES:
        rows = []
        for name in ("numpy", "torch", "jax", "cupy", "auto"):
            if name != "auto" and registry.unavailable(name) is not None:
                continue
            command, alone = [sys.executable, "-c", FRESH, str(n), name], os.environ | {"HPFRACC_WISDOM": "off"}
            found = subprocess.run(command, env=alone, capture_output=True, text=True)
            seconds, _, arms = found.stdout.strip().partition(": ")
            rows.append((name, float(seconds) if seconds else math.inf, arms or found.stderr.strip()[-200:]))
        least = min(seconds for name, seconds, _ in rows if name != "auto")
        print(f"\n{n:,} points")
        print_table(["backend", "seconds", "ratio", ""], [[a, f"{b:.2f}", f"{b / least:.2f}", c] for a, b, c in rows])


def _measured(file: Path | None) -> Table:
    from replay.engine_arms import SIZES, contestants
    from replay.live import measure_table

    meta = {"machine": machine_line(), "note": "float64 (int64 for xor); seconds; n = number of elements"}
    table, rows = measure_table("this machine", meta, contestants(), SIZES)
    if file is not None:
        lines = ",\n".join(json.dumps(_rounded(row)) for row in rows)
        file.write_text(f'{{"meta": {json.dumps(meta)},\n"rows": [\n{lines}]}}\n', encoding="utf-8")
    return table


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "first": float(f"{row['first']:.4g}"), "samples": [float(f"{t:.4g}") for t in row["samples"]]}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--table", nargs="+", type=Path, metavar="FILE", help="tables to replay (default: the stored ones)"
    )
    parser.add_argument(
        "--knots",
        default="every-other",
        help="sizes calibrated beforehand, such as 16,256; or every-other, all, none, half (default: %(default)s)",
    )
    parser.add_argument("--calls", type=_count, default=2000, help="calls per operation (default: %(default)s)")
    parser.add_argument("--repeats", type=_count, default=5, help="replays that are pooled (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first replay (default: %(default)s)")
    parser.add_argument(
        "--workloads",
        default=",".join(WORKLOADS),
        type=_workloads,
        help="which of %(default)s to replay (default: all)",
    )
    parser.add_argument("--live", action="store_true", help="measure a table of this machine and replay that too")
    parser.add_argument("--save", type=Path, metavar="FILE", help="the same, and write the table to FILE")
    parser.add_argument("--fresh", action="store_true", help="measure new processes that know nothing, instead")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--check", action="store_true", help="exit with status 1 if a target is missed")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a count; use at least 1")
    return number


def _workloads(text: str) -> str:
    unknown = set(text.split(",")) - set(WORKLOADS)
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown workload {sorted(unknown)[0]!r}; there are {', '.join(WORKLOADS)}")
    return text


def _show(result: Replay, arguments: argparse.Namespace) -> None:
    table = result.table
    print(f"\n== {table.name}: {table.meta.get('machine', 'machine unknown')}")
    print(f"{arguments.calls:,} calls an operation, {arguments.repeats} replays pooled, compiling charged to all")
    _show_knots(result, arguments.knots)
    print()
    print_table(
        [
            *("workload", "regret first", "settled", "held out", "all"),
            *("slow calls", "held out", "exploring", "decisions/call", "worst total/NumPy"),
        ],
        [
            [
                name,
                *map(_percent, (verdict.first.regret, verdict.settled.regret, verdict.held_out.regret)),
                *map(_percent, (verdict.total.regret, verdict.wrong_share, verdict.wrong_share_held_out)),
                _percent(verdict.exploring_share),
                f"{verdict.decisions / verdict.calls:.2f}",
                f"{verdict.worst_total:.2f}",
            ]
            for name, verdict in result.verdicts.items()
        ],
    )
    print(LEGEND)
    print_table(
        ["bar", "workload", "value", "at most", ""],
        [
            [bar.metric, bar.workload, *map(bar.show, (bar.value, bar.most)), "pass" if bar.passed else "FAIL"]
            for bar in result.bars
        ],
    )
    for name, verdict in result.verdicts.items():
        for line in dict.fromkeys(verdict.slower_than_numpy):
            print(f"{name}: settled slower than NumPy: {line}")
        for line in dict.fromkeys(verdict.over_twice_numpy):
            print(f"{name}: over twice NumPy's total: {line}")
    if result.baselines:
        rule = result.verdicts.get("mixed")
        rows = [["this rule", _percent(rule.total.regret)]] if rule is not None else []
        rows += [[name, _percent(pair.regret)] for name, pair in result.baselines.items()]
        print("\nregret of all calls, mixed sizes")
        print_table(["policy", "regret"], rows)
    print(f"\n{table.name}: {'PASS' if result.passed else 'FAIL'}")


def _show_knots(result: Replay, spec: str) -> None:
    if spec == "half":
        print("knots: a random half of the sizes, another one in each replay; in the first:")
    lines: dict[str, list[str]] = {}
    for name, knots in result.knots.items():
        text = f"knots {_sizes(knots)}; held out {_sizes(result.held_out[name])}"
        lines.setdefault(text, []).append(name)
    for text, names in lines.items():
        print(f"{text}  ({', '.join(names)})")


def _sizes(sizes: list[int]) -> str:
    return " ".join(map(str, sizes)) or "none"


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100.0 * share:.1f} %"


if __name__ == "__main__":
    sys.exit(main())
