"""Partial equations with other memories in time: outside sources, several orders, orders that vary, delays, integrals."""

from __future__ import annotations

import math

import numpy as np

import hpfracc as hf
from benchmarks._trust.campaign import Outcome, Trial
from benchmarks._trust.pde import Sines, X, outcome
from hpfracc.special import mittag_leffler as ml


def _outside(rng: np.random.Generator) -> Outcome:
    """The Fokker-Planck form: powers of time outside the memory, whose responses have the order 1."""
    alpha, end = float(rng.uniform(0.3, 0.95)), float(10.0 ** rng.uniform(-1.0, 1.0))
    case = Sines(rng, alpha, [], end)
    powers = [[0.0], [1.0, 2.0], [0.5]][rng.integers(3)]
    switch = 0.0 if rng.uniform() < 0.6 else float(rng.uniform(0.2, 0.8)) * end
    sizes = rng.normal(size=(len(powers), case.modes.size))
    case.forcing = [(switch, power, size) for power, size in zip(powers, sizes, strict=True)]

    def exact(t: np.ndarray) -> np.ndarray:
        gone = np.maximum(np.asarray(t)[:, None] - switch, 0.0)
        total = ml(-case.rates * np.asarray(t)[:, None] ** alpha, alpha) * case.start
        for power, size in zip(powers, sizes, strict=True):
            response = gone ** (power + 1.0) * ml(-case.rates * gone**alpha, alpha, power + 2.0)
            total = total + math.gamma(power + 1.0) * response * size
        return np.asarray(total @ case.shapes)

    rtol = float(10.0 ** rng.uniform(-3.7, -2.5))
    method = str(rng.choice(["auto", "l1"]))
    found = case.solve(method, form="fokker_planck", rtol=rtol, atol=rtol * 1e-3)
    words = f"alpha={alpha:.3f}, end={end:.3g}, rates={case.rates}, forcing={case.forcing}, rtol={rtol:.2g}"
    return outcome(found, exact, words, rtol, rtol * 1e-3)


FAMILIES: dict[str, Trial] = {
    "pde: sources outside the memory": _outside,
}
__all__ = ["FAMILIES"]
