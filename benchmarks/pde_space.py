"""Discretisations in space and methods of order 1 of partial equations, against the bare transforms they take.

Run with ``python benchmarks/pde_space.py [--seconds 1] [--only krylov|steps]``.

``krylov``: one linear system of an implicit step by LU, new and kept, and by the preconditioned Krylov method, with its
iterations: where they cross gives ``DENSE`` and ``DENSE_KEPT`` of ``solvers/pde/space/grunwald.py``; at large sizes
against the FFTs alone. ``steps``: a step of each method against its pairs of transforms.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np
from _common import heading, print_table, timed_in_rounds, write_json
from scipy import fft, linalg

from hpfracc.solvers.pde.boundary import read_boundary
from hpfracc.solvers.pde.method import find_evolution_method
from hpfracc.solvers.pde.problem import EvolutionProblem
from hpfracc.solvers.pde.space import grunwald
from hpfracc.solvers.pde.space.base import SpaceSetting
from hpfracc.solvers.pde.space.components import discretise
from hpfracc.solvers.pde.space.grunwald import ShiftedGrunwald
from hpfracc.solvers.pde.terms import FractionalDiffusion, OneSided

TERMS = {
    "one-sided": OneSided(1.5),
    "one-sided, d(x)": OneSided(1.5, "left", lambda x: 0.01 + x**2),
    "riesz": FractionalDiffusion(1.5, "riesz"),
}
SIZES = (63, 127, 255, 511, 1023, 8191, 65_535)
_MAX_DENSE = 1100


def krylov(seconds: float) -> list[dict[str, Any]]:
    """One system of each kind and size."""
    grunwald.DENSE = grunwald.DENSE_KEPT = 0
    return [_system(name, n, seconds) for name in TERMS for n in SIZES]


def _system(name: str, n: int, seconds: float) -> dict[str, Any]:
    x = np.linspace(0.0, 1.0, n + 2)
    space = ShiftedGrunwald(SpaceSetting((TERMS[name],), (x,), read_boundary("dirichlet", 1)))
    rhs = np.random.default_rng(0).standard_normal(n)
    shift = float(n)
    space.solve(shift, rhs)
    iterations, levels = space.iterations, len(space.preconditioner.levels)
    padded = np.zeros(fft.next_fast_len(2 * n, real=True))

    def transforms() -> None:
        for _ in range(iterations):
            fft.irfft(fft.rfft(padded), padded.size)
            if name == "riesz":
                fft.idst(fft.dst(rhs, 1), 1)
                continue
            c = fft.rfft(rhs)
            for _ in range(levels):
                fft.irfft(c, n)

    contestants: dict[str, Any] = {"krylov": lambda: space.solve(shift, rhs), "transforms": transforms}
    if n <= _MAX_DENSE:
        matrix = shift * np.eye(n) - space.matrix
        factors = linalg.lu_factor(matrix)
        contestants["lu"] = lambda: linalg.lu_solve(linalg.lu_factor(matrix, check_finite=False), rhs)
        contestants["lu kept"] = lambda: linalg.lu_solve(factors, rhs, check_finite=False)
    taken = timed_in_rounds(contestants, seconds)
    return {
        "operator": name,
        "points": n,
        "iterations": iterations,
        "krylov ms": 1e3 * taken["krylov"],
        "over transforms": taken["krylov"] / taken["transforms"],
        "over lu": taken["krylov"] / taken.get("lu", math.nan),
        "over kept lu": taken["krylov"] / taken.get("lu kept", math.nan),
    }


def steps(seconds: float) -> list[dict[str, Any]]:
    """A step of each method on 256^2 points, in pairs of transforms."""
    pairs = {"etdrk4": 4, "imex_bdf2": 1, "crank_nicolson": 2, "strang": 2, "yoshida4": 4}
    return [_step(name, count, seconds) for name, count in pairs.items()]


def _step(name: str, pairs: int, seconds: float) -> dict[str, Any]:
    n, count = 256, 8
    x = 2.0 * math.pi / n * np.arange(n)
    quantum = name in ("strang", "yoshida4")
    state = np.random.default_rng(0).standard_normal((n, n)) * (1.0 + 0.0j if quantum else 1.0)
    setting = SpaceSetting(
        (FractionalDiffusion(1.5, coefficient=1j if quantum else 0.01),),
        (x, x),
        read_boundary("periodic", 2),
        complex_state=quantum,
    )
    reaction = _turn if quantum else _double_well
    problem = EvolutionProblem(discretise(setting), ((1.0, 1.0),), 0.0, 1.0, state, reaction=reaction)
    mesh = np.linspace(0.0, 0.08, count + 1)
    method = find_evolution_method(name)

    def run() -> None:
        for _ in method.advance(problem, mesh):
            pass

    def bare() -> None:
        for _ in range(count * pairs):
            if quantum:
                fft.ifft2(fft.fft2(state))
            else:
                fft.irfft2(fft.rfft2(state), state.shape)

    taken = timed_in_rounds({"method": run, "transforms": bare}, seconds)
    return {
        "method": name,
        "ms a step": 1e3 * taken["method"] / count,
        "pairs a step": pairs,
        "over its transforms": taken["method"] / taken["transforms"],
    }


def _double_well(t: float, u: Any) -> Any:
    return u * (1.0 - u * u)


def _turn(t: float, u: Any) -> Any:
    return -1j * (u.real**2 + u.imag**2) * u


def _shown(value: Any) -> str:
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return "" if math.isnan(value) else f"{value:.3g}"


def main() -> None:
    """Print the tables and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", choices=("krylov", "steps"))
    arguments = parser.parse_args()
    print(heading("Partial equations: space, and methods of order 1"))
    found = {}
    for name, measure in (("krylov", krylov), ("steps", steps)):
        if arguments.only in (None, name):
            found[name] = measure(arguments.seconds)
            if found[name]:
                print(f"\n{name}")
                head = list(found[name][0])
                print_table(head, [[_shown(row[key]) for key in head] for row in found[name]])
    plain = {
        name: [
            {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in row.items()}
            for row in rows
        ]
        for name, rows in found.items()
    }
    write_json("pde_space", plain)


if __name__ == "__main__":
    main()
