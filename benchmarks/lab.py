"""How often intervals of the laboratory bench cover, and its times: python benchmarks/lab.py [part ...] [--draws N]."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import hpfracc as hf


def tracks(draws: int) -> Iterator[str]:
    """Intervals of ``fit_tracks`` at 95 %: single tracks in one dimension; noise in standard deviations of a step."""
    yield " alpha  points  noise  draws  alpha      K  sigma  (share of intervals that cover, %)"
    grid = itertools.product((30, 200, 1000, 3000), (0.2, 0.6, 1.0, 1.4, 1.8), (0.0, 0.5, 2.0))
    for points, alpha, noise in grid:
        count = max(10, int(draws * min(1.0, 200 / points)))
        paths = hf.fbm(points - 1, 0.5 * alpha, T=points - 1.0, size=count, rng=points)
        paths += noise * np.random.default_rng(points).normal(size=paths.shape)
        fits = hf.transport.fit_tracks(paths, 1.0, each=True)
        truths = {"alpha": alpha, "K": 0.5, "sigma": noise}
        shares = [np.mean([_covers(getattr(fit, name), truth) for fit in fits]) for name, truth in truths.items()]
        yield f"{alpha:>6} {points:>7} {noise:>6} {count:>6}  " + "  ".join(f"{100 * s:5.1f}" for s in shares)


def _covers(estimate: hf.transport.Estimate, truth: float) -> bool:
    low, high = estimate.interval(0.95)
    return bool(low <= truth <= high)


def times(draws: int) -> Iterator[str]:
    """Processor times."""
    del draws
    paths = hf.fbm(199, 0.3, T=199.0, size=(1000, 2), rng=1)
    paths += np.random.default_rng(1).normal(size=paths.shape)
    for name, run in {
        "1,000 tracks of 200 points in two dimensions": lambda: hf.transport.fit_tracks(paths, 1.0)
    }.items():
        begin = time.process_time()
        run()
        yield f"{name}: {time.process_time() - begin:.2f} s"


PARTS: dict[str, Callable[[int], Iterator[str]]] = {"tracks": tracks, "times": times}


def main() -> None:
    """Run the parts that are named, all by default, and write their tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results") / "lab.txt")
    given = parser.parse_args()
    with given.out.open("a", encoding="utf-8") as file:
        for name in given.parts or PARTS:
            for line in itertools.chain([f"\n{PARTS[name].__doc__}\n"], PARTS[name](given.draws)):
                print(line, file=file, flush=True)
                print(line, file=sys.stdout, flush=True)


if __name__ == "__main__":
    main()
