"""Caputo derivatives of t^3 on [0, 1] by other libraries; run by ``benchmarks/operators.py`` in their own environment.

Takes a JSON list of ``[contestant, points, alpha]`` and prints one JSON line for each: the largest error over the
largest value, and the seconds of the best of a few runs. Imports nothing of hpfracc.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def _pycaputo(n: int, alpha: float, method: str) -> Callable[[], Any]:
    from pycaputo.differentiation import caputo, diff
    from pycaputo.grid import make_uniform_points

    points = make_uniform_points(n, 0.0, 1.0)
    samples = points.x**3
    return lambda: diff(getattr(caputo, method)(alpha), samples, points)


def _differint_gl(n: int, alpha: float) -> Callable[[], Any]:
    import differint.differint as df

    samples = np.linspace(0.0, 1.0, n) ** 3
    return lambda: df.GL(alpha, samples, 0.0, 1.0, n)


def _differint_rl(n: int, alpha: float) -> Callable[[], Any]:
    import differint.differint as df

    samples = np.linspace(0.0, 1.0, n) ** 3
    return lambda: df.RL(alpha, samples, 0.0, 1.0, n)


def _numfracpy(n: int, alpha: float) -> Callable[[], Any]:
    import numfracpy

    step = 1.0 / (n - 1)
    # A shade past each point: the package cuts t / dt off to an integer.
    return lambda: np.array([numfracpy.Caputo_der1(lambda t: t**3, (k + 0.01) * step, step, alpha) for k in range(n)])


CONTESTANTS: dict[str, Callable[[int, float], Callable[[], Any]]] = {
    "pycaputo L1": lambda n, alpha: _pycaputo(n, alpha, "L1"),
    "differint GL": _differint_gl,
    "differint RL": _differint_rl,
    "numfracpy L1": _numfracpy,
}


def main() -> None:
    """One line for each job that finishes."""
    for name, n, alpha in json.loads(sys.argv[1]):
        answer: dict[str, Any] = {"name": name, "n": n, "alpha": alpha}
        try:
            run = CONTESTANTS[name](n, alpha)
            t = np.linspace(0.0, 1.0, n)
            exact = math.gamma(4.0) / math.gamma(4.0 - alpha) * t ** (3.0 - alpha)
            took, value = [], None
            while len(took) < 3 and sum(took) < 5.0:
                begin = time.perf_counter()
                value = np.asarray(run())
                took.append(time.perf_counter() - begin)
            value = np.resize(value, n) if value.shape != (n,) else value
            # The first point is left out: some leave it undefined.
            error = float(np.max(np.abs(value[1:] - exact[1:])) / np.max(np.abs(exact)))
            answer |= {"seconds": min(took), "error": error}
        except Exception as failure:
            answer["failure"] = f"{type(failure).__name__}: {failure}"
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
