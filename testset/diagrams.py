"""Work-precision diagrams, and the table of libraries, from the files that ``python -m testset --json`` saves.

python -m testset.diagrams --to FOLDER FILE...     # an SVG for each problem that was run at several tolerances
python -m testset.diagrams --page PAGE FILE...     # writes into the page what each library can say, and what is right
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

PLACE = re.compile(r"(<!-- measured -->\n).*?(<!-- end of measured -->)", re.DOTALL)
Rows = dict[str, list[dict[str, Any]]]


def diagram(problem: str, results: Rows, path: Path) -> None:
    """Error against processor time and against evaluations, a line for each library."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "testset", "svg.fonttype": "none"})
    from matplotlib import pyplot, ticker

    figure, axes = pyplot.subplots(1, 2, figsize=(9.0, 3.6), sharey=True, layout="constrained")
    for library, rows in results.items():
        found = [row for row in rows if row["problem"] == problem and row["error"] is not None and row["error"] < 1.0]
        for ax, key in zip(axes, ("seconds", "evaluations"), strict=True):
            ax.loglog([row[key] for row in found], [max(row["error"], 1e-16) for row in found], "o-", label=library)
    for ax in axes:
        ax.xaxis.set_minor_formatter(ticker.NullFormatter())
    axes[0].set(xlabel="processor time / s", ylabel="largest error / largest value")
    axes[1].set(xlabel="evaluations of the right-hand side")
    axes[1].legend()
    figure.suptitle(problem)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def table(results: Rows) -> str:
    """A row for each family, a column for each library: right / expressible, of all."""
    families = sorted({row["problem"].split("/")[0] for rows in results.values() for row in rows})
    lines = ["| family | problems | " + " | ".join(results) + " |", "| --- |" + " ---: |" * (1 + len(results))]
    for family in [*families, ""]:
        cells = []
        for rows in results.values():
            mine = [row for row in rows if row["problem"].startswith(f"{family}/" if family else "")]
            count = Counter(row["verdict"] for row in mine)
            said = len(mine) - count["not expressible"]
            cells.append(f"{count['right']} of {said}" if said else "not expressible")
        lines.append(f"| {family or 'all'} | {len(mine)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Draw, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--to", type=Path)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args(arguments)
    results: Rows = {}
    for path in filter(Path.exists, options.files):  # a library that is not installed left none
        saved = json.loads(path.read_text(encoding="utf-8"))
        results.setdefault(saved["library"], []).extend(saved["rows"])
    if options.page:
        text = options.page.read_text(encoding="utf-8")
        options.page.write_text(PLACE.sub(lambda m: f"{m[1]}\n{table(results)}\n\n{m[2]}", text), encoding="utf-8")
    if options.to:
        options.to.mkdir(parents=True, exist_ok=True)
        for problem in sorted({row["problem"] for rows in results.values() for row in rows}):
            diagram(problem, results, options.to / f"{problem.replace('/', '-')}.svg")


if __name__ == "__main__":
    main()
