"""What adaptive solves of partial equations keep of their tolerance: ``python benchmarks/pde_tolerance.py``.

Each equation of the library is solved without a step, and again with eight times as many steps on the same grid in
space, which stands for the exact solution in time; where the start is solved apart, the exact solution itself, a sine
in space, is taken. The ratio is the largest error at any time that is kept over ``atol + rtol U``, with U the largest
``|u(s)| s / t`` for s up to that time t (the size of u, but where it passes through zero); the bar is 10. Beside it the
same with the largest ``|u|`` of the whole run for U, and with ``|u(t)|`` alone: a standing wave is zero everywhere at
some times, when its error in phase is not, and no tolerance relative to ``|u(t)|`` is meant there. The estimate is
``error_estimate.time`` over the largest error.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hpfracc.pde import ModelEquation, problems

#: Steps of the solution that stands for the exact one, over those of the one that is looked at.
FINER = 8


def library() -> Iterator[tuple[str, Callable[[], ModelEquation], dict[str, Any]]]:
    """Names, equations and what else they are solved with; small, so that all of them take a minute."""
    for alpha in (0.3, 0.6, 0.9):
        yield f"subdiffusion {alpha}, l1", lambda a=alpha: problems.subdiffusion(a), {"method": "l1"}
        yield f"subdiffusion {alpha}, l2_1sigma", lambda a=alpha: problems.subdiffusion(a), {"method": "l2_1sigma"}
    for alpha in (1.2, 1.6):
        quadrature = {"method": "convolution_quadrature"}
        yield f"diffusion_wave {alpha}", lambda a=alpha: problems.diffusion_wave(a), quadrature
    yield "distributed_order", problems.distributed_order, {}
    yield "column", lambda: problems.column(points=101, t_end=2.0), {}
    yield "gray_scott 1.5", lambda: problems.gray_scott(order=1.5, points=32, t_end=100.0), {}
    yield "fitzhugh_nagumo", lambda: problems.fitzhugh_nagumo(points=32, t_end=100.0), {}
    yield "allen_cahn", lambda: problems.allen_cahn(points=64, t_end=5.0), {}
    yield "allen_cahn, alpha 0.6", lambda: problems.allen_cahn(points=64, alpha=0.6, t_end=5.0), {}
    yield "peierls_nabarro", lambda: problems.peierls_nabarro(points=30), {}
    yield "schroedinger, cubic", lambda: problems.schroedinger(points=64, cubic=1.0, t_end=2.0), {}
    yield "plane_wave", problems.plane_wave, {}
    yield "burgers", lambda: problems.burgers(points=64), {}


def looked_at(make: Callable[[], ModelEquation], options: dict[str, Any], rtol: float) -> dict[str, Any]:
    """One row of the table."""
    equation = make()
    atol = 1e-3 * rtol
    found = equation.solve(rtol=rtol, atol=atol, **options)
    if found.decision.method == "exact_modes":
        raise AssertionError("an exact method has no steps to look at")
    steps = found.stats["steps"]
    t0, t1 = equation.t_span
    if "start_steps" in found.stats:
        reference = np.stack([equation.solution(float(t), equation.x) for t in found.t])
    else:
        step = (t1 - t0) / (FINER * steps)
        reference = equation.solve(step=step, save=FINER, estimate=False, rtol=1e-10, **options).u
    axes = tuple(range(1, found.u.ndim))
    errors, sizes = np.abs(found.u - reference).max(axis=axes), np.abs(reference).max(axis=axes)
    gone = np.maximum(found.t - t0, 1e-300)
    carried = np.maximum.accumulate(sizes * gone) / gone
    return {
        "method": found.decision.method,
        "steps": steps,
        "start": found.stats.get("start_steps", 0),
        "ratio": float((errors / (atol + rtol * carried)).max()),
        "whole": float((errors / (atol + rtol * sizes.max())).max()),
        "pointwise": float((errors / (atol + rtol * sizes)).max()),
        "estimate": float(found.error_estimate.time / errors.max()),
    }


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    columns = ("error/tol", "by max |u|", "by |u(t)|", "estimate")
    heads = f"{'rtol':>8s} {'steps':>8s} {'start':>8s} " + " ".join(f"{one:>10s}" for one in columns)
    print(f"{'':28s} {'method':24s} {heads}")
    worst = 0.0
    started = time.process_time()
    for name, make, options in library():
        # L1 is of order 2 - alpha: many digits take it tens of thousands of steps.
        for rtol in (1e-3,) if options.get("method") == "l1" else (1e-3, 1e-5):
            row = looked_at(make, options, rtol)
            worst = max(worst, row["ratio"])
            counts = f"{rtol:8.0e} {row['steps']:8,d} {row['start']:8,d}"
            figures = " ".join(f"{row[key]:10.2f}" for key in ("ratio", "whole", "pointwise", "estimate"))
            print(f"{name:28s} {row['method']:24s} {counts} {figures}", flush=True)
    print(f"largest error over tolerance {worst:.2f}, bar 10; {time.process_time() - started:.0f} s")


if __name__ == "__main__":
    main()
