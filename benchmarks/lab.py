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


def spectra(draws: int) -> Iterator[str]:
    """Two arcs, 60 frequencies: peaks at 95 %, pointwise bands within the data, and the test of Kramers and Kronig."""
    yield " noise  draws  two peaks  resistance  tau   band  passes the test  (%)"
    arcs, w = ((100.0, 1e-4, 0.9), (50.0, 2e-2, 0.85)), np.geomspace(1e-2, 1e5, 60)
    clean, count = 10.0 + sum(r / (1.0 + r * q * (1j * w) ** a) for r, q, a in arcs), max(10, draws // 5)
    for share in (0.001, 0.003, 0.01):
        rows, bands = [], []
        for rng in range(count):
            parts = np.random.default_rng(rng).normal(size=(2, 60))
            data = clean + share * np.abs(clean) * (parts[0] + 1j * parts[1])
            found, whole = hf.lab.relaxation_times(w, data), hf.lab.kramers_kronig(w, data).ok
            tau = found.tau[(found.tau > 1e-4) & (found.tau < 1e2)]
            true = sum(_arc(tau, *each) for each in arcs)
            low, high = (each[np.isin(found.tau, tau)] for each in (found.low, found.high))
            bands.append(np.mean((low <= true) & (true <= high)))
            ok = len(found.peaks) == 2
            hits = [
                (_covers(peak.resistance, r), _covers(peak.tau, (r * q) ** (1.0 / a)))
                for peak, (r, q, a) in zip(found.peaks, arcs, strict=False)
            ]
            rows.append((ok, *(np.mean(hits, axis=0) if ok else (np.nan, np.nan)), whole))
        two, areas, places, passed = 100.0 * np.nanmean(np.array(rows, float), axis=0)
        band = 100.0 * np.mean(bands)
        yield f"{share:>6} {count:>6} {two:>10.1f} {areas:>11.1f} {places:>5.1f} {band:>6.1f} {passed:>9.1f}"


def _arc(tau: np.ndarray, r: float, q: float, a: float) -> np.ndarray:
    """Distribution of relaxation times of a resistor beside a constant-phase element."""
    apart = np.cosh(a * np.log(tau / (r * q) ** (1.0 / a))) - np.cos((1.0 - a) * np.pi)
    return r / (2.0 * np.pi) * np.sin((1.0 - a) * np.pi) / apart


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


PARTS: dict[str, Callable[[int], Iterator[str]]] = {"tracks": tracks, "spectra": spectra, "times": times}


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
