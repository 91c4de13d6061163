"""History sums of fixed-step solvers: their own cyclic transforms beside operations of the engine.

Run with ``python benchmarks/history_sums.py``. The first table has one contribution of a block of values to the next
block of the same length, the second one whole solves with PECE; the last line has the time that the engine's first
call takes in a new process. All ways take turns, and ratios are medians over the rounds. Times are processor times, so
that a busy machine affects them little. ``--seconds`` is the time for each row, ``--most`` the maximum number of steps
of a solve.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from _common import heading, print_table, quarter, show
from scipy.fft import next_fast_len

import hpfracc as hf
from hpfracc.history.blocks import History
from hpfracc.solvers.ode.fixed import stepping

Array = np.ndarray[Any, Any]

LENGTHS = (512, 4_096, 32_768, 262_144, 1_048_576)
ROWS = (1, 8)
STEPS = (20_000, 100_000, 1_000_000, 2_500_000)
KINDS = 2
#: First rounds, in which the engine learns, and which are not counted; least number of those that are.
WARM, ROUNDS = 2, 5
#: Prints the processor time of the engine's first call.
FIRST_CALL = """
import time
import numpy as np
import hpfracc as hf
hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], 0.5, method="pece", step=0.01)
begin = time.process_time()
hf.spectral_multiply(np.ones(5, complex), np.ones(8), real=True)
print(time.process_time() - begin)
"""
_numbers = itertools.count()


class Own(History):
    """Its own transforms at every length."""

    def __init__(self, *arguments: Any, engine: bool = False) -> None:
        super().__init__(*arguments, engine=False)


class Engine(History):
    """A history whose contributions are computed by the engine."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.number = next(_numbers)

    def complete(self, known: int) -> None:
        """As in the base class."""
        count = known // self.block
        length = (count & -count) * self.block
        reach = min(length, self.sums.shape[-1] - known)
        if reach > 0:
            past = self.values[:, known - length : known]
            self.sums[:, :, known : known + reach] += self.contribution(past, length, reach)

    def contribution(self, past: Array, length: int, reach: int) -> Array:
        """Sums over ``past`` at the next ``reach`` points."""
        raise NotImplementedError


class CausalConvolution(Engine):
    """One call for both kinds of weights; the transform of the weights is kept by the engine."""

    def contribution(self, past: Array, length: int, reach: int) -> Array:
        signal = np.zeros((past.shape[0], length + reach), past.dtype)
        signal[:, :length] = past
        weights = self.weights[:, :, : length + reach]
        if self.which is not None:
            weights = weights[:, self.which]
        found = hf.causal_convolution(weights, signal, weights_key=(self.number, length, reach))
        return np.asarray(found[:, :, length:])


class Transforms(Engine):
    """The same transforms as its own, each of them a call of the engine."""

    def contribution(self, past: Array, length: int, reach: int) -> Array:
        size = next_fast_len(length + reach, real=True)
        spectrum = self._spectrum(length, reach, size)
        found = hf.fft(spectrum * hf.fft(past, kind="rfft", n=size)[None], kind="irfft", n=size)
        return np.asarray(found[:, :, length : length + reach])


class SpectralMultiply(Engine):
    """Transforms and product in one call, with the kept spectrum of the weights as symbol."""

    def contribution(self, past: Array, length: int, reach: int) -> Array:
        size = next_fast_len(length + reach, real=True)
        spectrum = self._spectrum(length, reach, size)
        signal = np.zeros((past.shape[0], size), past.dtype)
        signal[:, :length] = past
        found = hf.spectral_multiply(spectrum, signal, real=True)
        return np.asarray(found[:, :, length : length + reach])


WAYS: dict[str, type[History]] = {
    "causal_convolution": CausalConvolution,
    "fft": Transforms,
    "spectral_multiply": SpectralMultiply,
}
#: Of whole solves, that of the library too: long contributions by spectral_multiply, the others by its own transforms.
SOLVES = {**WAYS, "the library": History}


def contributions(rows: int, length: int) -> dict[str, Callable[[], Any]]:
    """One contribution in each way; all are checked to be the same."""
    rng = np.random.default_rng(0)
    weights = np.arange(1.0, 2 * length + 1.0) ** -0.4 * np.array([[[1.0]], [[0.5]]])
    values = rng.standard_normal((rows, 2 * length))
    found: dict[str, Callable[[], Any]] = {}
    expected: Array | None = None
    for name, kind in {"own": Own, **WAYS}.items():
        history = kind(weights, None, values, np.zeros((KINDS, rows, 2 * length)), length)
        history.complete(length)
        if expected is None:
            expected = np.array(history.sums)
        assert np.abs(history.sums - expected).max() < 1e-10 * np.abs(expected).max(), name
        found[name] = lambda history=history, length=length: history.complete(length)
    return found


@contextmanager
def solved_with(kind: type[History]) -> Iterator[None]:
    """Solvers use this class of histories."""
    before = stepping.History
    stepping.History = kind
    try:
        yield
    finally:
        stepping.History = before


def solves(steps: int) -> dict[str, Callable[[], Any]]:
    """A whole solve in each way, with compiled steps; compiled before."""

    def solve(kind: type[History]) -> Array:
        with solved_with(kind):
            result = hf.solve_fode(
                lambda t, y: -y, (0.0, 10.0), [1.0], 0.6, method="pece", step=10.0 / steps, compile=True
            )
        return np.asarray(result.y)

    expected = solve(Own)
    found: dict[str, Callable[[], Any]] = {}
    for name, kind in {"own": Own, **SOLVES}.items():
        assert np.abs(solve(kind) - expected).max() < 1e-11, name
        found[name] = lambda kind=kind: solve(kind)
    return found


def compare(ways: dict[str, Callable[[], Any]], seconds: float) -> list[str]:
    """Processor time of its own way, and the ratio of each other one to it: medians over the rounds."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    repeats = max(1, int(4e-3 / timed(ways["own"], 1)))
    deadline = time.perf_counter() + seconds
    for turn in itertools.count():
        if turn >= WARM + ROUNDS and time.perf_counter() > deadline:
            break
        for name, way in ways.items():
            seconds_each = timed(way, repeats)
            if turn >= WARM:
                taken[name].append(seconds_each)
    ratios = [np.median(np.divide(taken[name], taken["own"])) for name in ways if name != "own"]
    return [show(quarter(taken["own"])), *(f"{ratio:.2f}" for ratio in ratios)]


def timed(way: Callable[[], Any], times: int) -> float:
    """Processor time of a call."""
    begin = time.process_time()
    for _ in range(times):
        way()
    return (time.process_time() - begin) / times


def first_call() -> float:
    """Processor time of the engine's first call in a process, after a solve: the median of five."""
    surroundings = {**os.environ, "HPFRACC_WISDOM": "off"}
    command = [sys.executable, "-c", FIRST_CALL]
    found = [
        float(subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True).stdout)
        for _ in range(5)
    ]
    return float(np.median(found))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--most", type=int, default=STEPS[-1], metavar="STEPS")
    arguments = parser.parse_args()
    print(heading("history sums of fixed-step solvers: times of operations of the engine, over that of its own"))
    print(f"\n## one contribution, {KINDS} kinds of weights\n")
    table = [
        [rows, f"{length:,}", *compare(contributions(rows, length), arguments.seconds)]
        for rows in ROWS
        for length in LENGTHS
    ]
    print_table(("rows", "length", "own", *WAYS), table)
    print("\n## a whole solve: PECE, relaxation, compiled steps\n")
    table = [[f"{steps:,}", *compare(solves(steps), arguments.seconds)] for steps in STEPS if steps <= arguments.most]
    print_table(("steps", "own", *SOLVES), table)
    print(f"\nfirst call of the engine in a process, without measurements of an earlier one: {show(first_call())}")


if __name__ == "__main__":
    main()
