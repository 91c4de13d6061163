"""What adaptive solves of partial equations keep of their tolerance: ``python benchmarks/pde_tolerance.py``.

Each equation of the library is solved without a step, and again with eight times as many steps on the same grid in
space, which stands for the exact solution in time. The ratio is the largest error over ``atol + rtol max|u|`` at its
time, at the times where the tolerance is held (the steps of the first mesh) and at any step; the bar is 10. The
estimate is ``error_estimate.time`` over the largest error at those times.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hpfracc.pde import ModelEquation, problems
from hpfracc.solvers.pde.driver import FIRST_STEPS

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
    fine = equation.solve(step=(t1 - t0) / (FINER * steps), save=FINER, estimate=False, rtol=1e-10, **options)
    axes = tuple(range(1, found.u.ndim))
    errors = np.abs(found.u - fine.u).max(axis=axes)
    ratios = errors / (atol + rtol * np.abs(fine.u).max(axis=axes))
    # The times at which solutions are compared, and all steps, of which those of uniform meshes near t0 are worse.
    held = slice(steps // FIRST_STEPS, None, steps // FIRST_STEPS)
    return {
        "method": found.decision.method,
        "steps": steps,
        "ratio": float(ratios[held].max()),
        "anywhere": float(ratios.max()),
        "estimate": float(found.error_estimate.time / errors[held].max()),
    }


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    print(f"{'':28s} {'method':24s} {'rtol':>8s} {'steps':>8s} {'error/tol':>10s} {'any step':>10s} {'estimate':>10s}")
    worst = 0.0
    started = time.process_time()
    for name, make, options in library():
        # L1 is of order 2 - alpha: many digits take it tens of thousands of steps.
        for rtol in (1e-3,) if options.get("method") == "l1" else (1e-3, 1e-5):
            row = looked_at(make, options, rtol)
            worst = max(worst, row["ratio"])
            figures = (
                f"{rtol:8.0e} {row['steps']:8,d} {row['ratio']:10.2f} {row['anywhere']:10.2f} {row['estimate']:10.2f}"
            )
            print(f"{name:28s} {row['method']:24s} {figures}", flush=True)
    print(f"largest error over tolerance {worst:.2f}, bar 10; {time.process_time() - started:.0f} s")


if __name__ == "__main__":
    main()
