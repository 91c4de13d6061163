"""Write ``tests/special/data/mittag_leffler.json``: values of E_{a,b}(z) by mpmath, to compare ours with.

hpfracc is not used. Two methods, each where it gives 30 digits:

* the power series, with enough digits to absorb its cancellation, where ``|z|^(1/a) <= 60``;
* the expansion for large z (exponential terms of the principal sheet, minus the inverse powers up to the least one),
  whose error is of the size ``exp(-|z|^(1/a)) < 1e-26``, elsewhere. Points where that is not small against the value
  are left out (only ``a = 1`` and its like has such).

Run as ``python benchmarks/make_mittag_leffler_table.py [points per pair] [file]``; some minutes on one core.
"""

from __future__ import annotations

import json
import math
import random
import sys
from functools import cache
from pathlib import Path

import mpmath as mp

TABLE = Path(__file__).parents[1] / "tests" / "special" / "data" / "mittag_leffler.json"
ALPHAS = [0.05, 0.1, 0.2, 0.25, 1 / 3, 0.5, 0.6, 0.75, 0.9, 0.95, 0.99, 0.999, 0.999999, 1.0]
ALPHAS += [1.000001, 1.001, 1.01, 1.1, 1.25, 1.5, 1.75, 1.9, 1.99, 2.0, 2.5, 3.0, 4.0, 5.5]
#: ``|z|^(1/a)`` up to which the power series is used, and the digits it is summed in.
SWITCH = 60
DIGITS = 110


def betas(alpha: float) -> list[float]:
    """The second parameters tried with ``alpha``, without repetition."""
    return list(dict.fromkeys([1.0, alpha, 2.0, alpha + 1, 0.5, 0.0, -0.7, 3.3, 6.0]))


@cache
def coefficients(alpha: float, beta: float) -> list[mp.mpf]:
    """``1/Gamma(alpha k + beta)`` until ``SWITCH**(alpha k)`` times them is below any need."""
    found: list[mp.mpf] = []
    a, b = mp.mpf(alpha), mp.mpf(beta)
    least = mp.mpf(10) ** (-DIGITS + 25) * mp.rgamma(max(b, 1))
    power, growth = mp.mpf(1), mp.mpf(SWITCH) ** a
    while True:
        value = mp.rgamma(a * len(found) + b)
        found.append(value)
        if a * len(found) > SWITCH and abs(value) * power < least:
            return found
        power *= growth


def by_series(alpha: float, beta: float, z: mp.mpc) -> tuple[mp.mpc, mp.mpc]:
    """Value and derivative by the power series."""
    total, slope, power = mp.mpc(0), mp.mpc(0), mp.mpc(1)
    for k, c in enumerate(coefficients(alpha, beta)):
        total += c * power
        slope += k * c * power
        power *= z
    return total, slope / z


def by_expansion(alpha: float, beta: float, z: mp.mpc) -> tuple[mp.mpc, mp.mpc] | None:
    """Value and derivative by the expansion for large ``|z|``, or None where it has fewer than 20 digits."""
    a, b = mp.mpf(alpha), mp.mpf(beta)
    radius, angle = abs(z) ** (1 / a), mp.arg(z)
    total, slope = mp.mpc(0), mp.mpc(0)
    for j in range(-int(alpha) - 1, int(alpha) + 2):
        turn = (angle + 2 * mp.pi * j) / a
        if abs(turn) <= mp.pi:
            weight = mp.mpf(1)
            if abs(abs(turn) - mp.pi) < mp.mpf(10) ** -60 and alpha == 1:
                weight = mp.mpf(1) / 2  # both ends of the cut, one pole
            s = radius * mp.expj(turn)
            term = weight * s ** (1 - b) * mp.exp(s) / a
            total += term
            slope += term * (s + 1 - b) / a / z
    power, before = 1 / z, mp.inf
    error = mp.mpf(0)
    for k in range(1, 20000):
        g = mp.rgamma(b - a * k)
        bound = abs(mp.gamma(1 - b + a * k) * power) if 1 - b + a * k > 0 else mp.inf
        if bound > before and a * k > radius / 2:
            error = bound
            break
        total -= g * power
        slope += k * g * power / z
        if bound < mp.mpf(10) ** -45:
            break
        before = bound
        power /= z
    if abs(total) == 0 or error * mp.mpf(10) ** 20 > abs(total):
        return None
    return total, slope


def oracle(alpha: float, beta: float, z: complex) -> tuple[mp.mpc, mp.mpc] | None:
    """E_{alpha,beta}(z) and its derivative, or None where neither way is sure."""
    with mp.workdps(DIGITS):
        point = mp.mpc(z)
        if alpha == 1 and beta == 1:
            return mp.exp(point), mp.exp(point)
        if abs(z) ** (1 / alpha) <= SWITCH:
            return by_series(alpha, beta, point)
        return by_expansion(alpha, beta, point)


def points(alpha: float, count: int, seed: random.Random) -> list[complex]:
    """Arguments to try: half of them real, the others around the lines where the behaviour changes."""
    chosen: list[complex] = []
    for i in range(count):
        kind = i % 8
        radius = 10 ** seed.uniform(-1.5, 4)
        near = seed.choice([0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 25.0, 38.0, 55.0]) * seed.uniform(0.8, 1.2)
        if kind in (0, 1):
            z: complex = -radius
        elif kind == 2:
            z = -(near**alpha)
        elif kind == 3:
            z = near**alpha
        elif kind in (4, 5):
            turn = math.pi * alpha * seed.choice([0.5, 0.9, 0.98, 0.999, 1.0, 1.001, 1.02, 1.1]) * seed.choice([-1, 1])
            turn = math.remainder(turn, 2 * math.pi)
            z = (near**alpha if kind == 4 else radius) * complex(math.cos(turn), math.sin(turn))
        else:
            turn = seed.uniform(-math.pi, math.pi)
            z = (near**alpha if kind == 6 else radius) * complex(math.cos(turn), math.sin(turn))
        if abs(z) <= 1e4:
            chosen.append(z)
    return chosen


def rows(count: int) -> list[list[float | str]]:
    """``[alpha, beta, Re z, Im z, Re E, Im E, kappa]``; the values as strings of 22 digits."""
    table: list[list[float | str]] = []
    seed = random.Random(20150713)
    for alpha in ALPHAS:
        for beta in betas(alpha):
            wanted = points(alpha, count, seed)
            if (alpha, beta) == (3.0, 1.0):
                wanted.append(-1000.0)
            for z in wanted:
                found = oracle(alpha, beta, z)
                if found is None:
                    continue
                value, slope = found
                if abs(value) == 0 or not 1e-300 < abs(value) < 1e300:
                    continue
                kappa = float(abs(z * slope / value))
                parts = [mp.nstr(value.real, 22), mp.nstr(value.imag, 22) if complex(z).imag else "0"]
                table.append([alpha, beta, complex(z).real, complex(z).imag, *parts, float(f"{kappa:.4g}")])
            coefficients.cache_clear()
    return table


def main() -> None:
    """Write the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 14
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else TABLE
    target.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(row) for row in rows(count))
    target.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
