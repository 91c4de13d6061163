"""Control: how long responses, controllers and tuning take, beside their targets.

Run with ``python benchmarks/control.py [--rounds 7]``. The shortest of several runs counts, in processor time, because
other work on the machine only adds to it. The Mittag-Leffler evaluations that a step response needs are those of its
partial fractions: one function at each time for each root of the denominator. The input of ``lsim`` has a million
samples; its responses to hats are computed anew in each call.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _common import heading, print_table, show

import hpfracc as hf
from hpfracc import control

s = control.s


def shortest(run: Callable[[], Any], rounds: int) -> float:
    """The shortest processor time of some runs."""
    run()
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        run()
        times.append(time.process_time() - begin)
    return min(times)


def pushes(count: int, before: int = 0, error: float = 0.5, compile: bool = False) -> Callable[[], None]:
    """Samples through a controller that has had ``before`` samples, the last ones equal to those that follow."""
    law = control.FOPID(2.0, 1.0, 0.7, 0.5, 0.4, 0.01)
    controller = law.controller(0.01, limits=(-5.0, 5.0), compile=compile)
    for k in range(before):
        controller.push(1.0 if k < 10 else error)

    def run() -> None:
        for _ in range(count):
            controller.push(error)

    return run


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    plant = (s**0.5 + 2) / (s**1.5 + 0.3 * s**0.7 + 1) * control.delay(0.1)
    w, t = np.geomspace(1e-3, 1e3, 10_000), np.linspace(0.002, 20.0, 10_000)
    roots = 4  # of 1/((w + 1)(w + 2)(w + 3)(w + 4)) with w = s^0.5
    several = 1 / ((s**0.5 + 1) * (s**0.5 + 2) * (s**0.5 + 3) * (s**0.5 + 4))
    n = 1_000_000
    long, weights = np.linspace(0.0, 100.0, n), np.random.default_rng(0).standard_normal(n)
    delayed = control.delay(0.2) / (s + 1)
    bode = shortest(lambda: control.bode(plant, w), rounds)
    step = shortest(lambda: control.step_response(several, t), rounds)
    functions = roots * shortest(lambda: hf.mittag_leffler(-(t**0.5), 0.5), rounds)
    lsim = shortest(lambda: control.lsim(1 / (s**0.5 + 1), weights, long), min(rounds, 3))
    convolution = shortest(lambda: hf.causal_convolution(weights, weights), min(rounds, 3))
    kinds: tuple[tuple[Any, ...], ...] = ((), (1_000_000,), (100_000, 0.0), (0, 0.5, True), (1_000_000, 0.5, True))
    push, late, zeros, fast, fast_late = (shortest(pushes(1000, *more), rounds) / 1000 for more in kinds)
    tuning = shortest(lambda: control.tune(delayed, "itae", horizon=5.0), 1)
    error = control.step_response(several, t).error_estimate
    print(heading("hf.control: processor time, the shortest run"))
    print_table(
        ["what", "time", "target"],
        [
            ["bode at 1e4 frequencies", show(bode), "5 ms"],
            [f"step response at 1e4 times, error {error:.0e}", show(step), ""],
            ["  over its Mittag-Leffler evaluations", f"{step / functions:.2f}", "20"],
            ["lsim of 1e6 samples", show(lsim), ""],
            ["  over causal_convolution", f"{lsim / convolution:.2f}", "1.5"],
            ["push of a FOPID controller", show(push), "60 us"],
            ["  after a million samples", show(late), ""],
            ["  after 100,000 errors of 0", show(zeros), ""],
            ["  compiled", show(fast), "10 us"],
            ["  compiled, after a million samples", show(fast_late), ""],
            ["tune a FOPID for exp(-0.2 s)/(s + 1)", show(tuning), "5 s"],
        ],
    )


if __name__ == "__main__":
    main()
