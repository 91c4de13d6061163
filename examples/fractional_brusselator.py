"""The fractional Brusselator: orbits and turning points for three orders, and the time of a million steps.

Run with ``python examples/fractional_brusselator.py``; ``--plot FILE`` draws the orbits (needs the extra ``plot``),
``--long`` runs a million steps (needs the extra ``numba``).
"""

from __future__ import annotations

import argparse

import numpy as np

import hpfracc as hf


# [start]
def brusselator(t, y):
    """Right-hand side for the two concentrations."""
    return np.array([1.0 - 4.0 * y[0] + y[0] ** 2 * y[1], 3.0 * y[0] - y[0] ** 2 * y[1]])


def turn(t, y):
    """Zero where the rate of the first concentration vanishes."""
    return 1.0 - 4.0 * y[0] + y[0] ** 2 * y[1]


turn.direction = -1


def orbit(alpha, step=0.01):
    """The solution up to t = 40, with the times of its turning points."""
    return hf.solve_fode(brusselator, (0.0, 40.0), [1.2, 2.8], alpha, step=step, events=turn)


# [end]


def main() -> None:
    """Print the turning points for three orders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="FILE")
    parser.add_argument("--long", action="store_true")
    arguments = parser.parse_args()
    orbits = {alpha: orbit(alpha) for alpha in (0.7, 0.8, 1.0)}
    for alpha, solution in orbits.items():
        times = solution.t_events[0]
        print(
            f"alpha = {alpha}: {len(times)} turning points, the last at t = {times[-1]:.3f}; {solution.decision.method}"
        )
    if arguments.plot:
        axes = None
        for solution in orbits.values():
            axes = solution.plot(phase=(0, 1), ax=axes)
        axes.figure.savefig(arguments.plot)
    if arguments.long:
        solution = hf.solve_fode(brusselator, (0.0, 40.0), [1.2, 2.8], 0.8, method="pece", step=4e-5, compile=True)
        seconds = solution.stats["seconds"] - solution.stats["compile_seconds"]
        print(f"{solution.stats['steps']:,} steps in {seconds:.2f} s")


if __name__ == "__main__":
    main()
