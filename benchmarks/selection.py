"""Quality of the engine's choices: measured tables replayed with its actual policy on a simulated clock.

Run with ``python benchmarks/selection.py``; ``--table FILE ...`` replays other tables of the same form, ``--live`` a
table measured on this machine.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

from _common import heading, machine_line, print_table, write_json
from replay.report import WORKLOADS, Replay, replay
from replay.tables import Table, read_table

DATA = Path(__file__).parent / "data"
LEGEND = """\
regret: time over the oracle's, in the first 1,000 calls of each operation, after them, and in all; held out: the
settled calls of sizes that were not calibrated; slow calls: over 10 % slower than the oracle's, after 50 of that size
"""


def main() -> int:
    """Replay and print; with ``--check``, fail if a target is missed."""
    arguments = _parser().parse_args()
    try:
        tables = [read_table(path) for path in arguments.table or sorted(DATA.glob("timings-*.json"))]
        if arguments.live:
            tables.append(_measured())
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


def _measured() -> Table:
    from replay.engine_arms import SIZES, contestants
    from replay.live import measure_table

    return measure_table("this machine", {"machine": machine_line()}, contestants(), SIZES)[0]


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
