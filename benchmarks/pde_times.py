"""Partial equations in time beside ordinary ones: ``python benchmarks/pde_times.py``.

Cases that were slow when the mesh in time was refined as a whole, with the seconds of that time beside them, the same
equation of one mode by ``solve_fode`` where there is one, and the steps of ``"adaptive"`` beside as many fixed ones.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import hpfracc as hf
from hpfracc.pde import Diffusion, Dirichlet, Exterior, FractionalDiffusion

ALPHA = 0.6


def best(call: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """Smallest time of several calls, and the result of the last."""
    seconds, found = [], None
    for _ in range(repeats):
        started = time.perf_counter()
        found = call()
        seconds.append(time.perf_counter() - started)
    return min(seconds), found


def row(name: str, seconds: float, other: float, bar: float, said: str) -> None:
    """One line: our seconds, those of the comparison, their ratio and its bar."""
    print(f"{name:60s} {seconds:10.3f} {other:10.3f} {seconds / other:8.2f} {bar:6.2f}  {said}", flush=True)


def beside_one_mode(name: str, source: Callable[[float], float], rtol: float, breaks: tuple[float, ...]) -> None:
    """A source that is one sine in space, beside ``solve_fode`` of its mode; at most twice as long is the bar."""
    x = np.linspace(0.0, np.pi, 65)
    options = {"rtol": rtol, "atol": 1e-3 * rtol}

    def partial() -> Any:
        return hf.solve_fpde(
            None, (0.0, 1.0), np.zeros_like(x), x=x, space=Diffusion(1.0), boundary="dirichlet",
            alpha=ALPHA, source=lambda t, x: source(t) * np.sin(x), breakpoints=breaks, estimate=False, **options,
        )  # fmt: skip

    def ordinary() -> Any:
        return hf.solve_fode(
            lambda t, y: source(t) - y, (0.0, 1.0), [0.0], ALPHA, breakpoints=breaks, compile=False, **options
        )

    ours, found = best(partial)
    theirs, mode = best(ordinary)
    last = float(np.ravel(mode.y)[-1])
    apart = abs(float(found.u[-1, 32]) - last) / abs(last)
    said = f"{found.stats['steps']:,} steps by {found.decision.method}; {mode.stats['steps']:,}; {apart:.1e} apart"
    row(name, ours, theirs, 2.0, said)


def adaptive_beside_fixed() -> None:
    """Seconds a step of ``"adaptive"`` and of as many fixed steps of ``"l1"`` and ``"l2_1sigma"``."""
    x = np.linspace(0.0, np.pi, 257)
    equation = {
        "x": x, "space": Diffusion(lambda x: 1.0 + 0.1 * np.cos(x)), "boundary": "dirichlet", "alpha": ALPHA,
        "source": lambda t, x: np.cos(20.0 * t) * np.sin(x), "estimate": False, "save": "last",
    }  # fmt: skip
    ours, found = best(
        lambda: hf.solve_fpde(None, (0.0, 1.0), np.sin(x), method="adaptive", rtol=1e-6, atol=1e-9, **equation)
    )
    steps = found.stats["steps"]
    for method in ("l1", "l2_1sigma"):
        theirs, fixed = best(
            lambda m=method: hf.solve_fpde(None, (0.0, 1.0), np.sin(x), method=m, step=1.0 / steps, **equation)
        )
        said = f"{steps:,} and {fixed.stats['steps']:,} steps; {found.stats}"
        row(f"a step of adaptive over one of {method}", ours / steps, theirs / fixed.stats["steps"], 1.5, said)


def newton_on(name: str, **equation: Any) -> None:
    """Linear solves a step of a diffusion coefficient that depends on u; at most 3 is the bar."""
    seconds, found = best(lambda: hf.solve_fpde(rtol=1e-4, atol=1e-7, estimate=False, **equation), 1)
    solves = found.stats.get("solves", 0)
    row(name, solves / found.stats["steps"], 1.0, 3.0, f"solves a step; {found.stats}; {seconds:.1f} s")


def integral_laplacian() -> None:
    """33 x 33 points, 76 s before; 257 points of Riesz's operator with k(x), 336 s before."""
    x = np.linspace(-1.0, 1.0, 33)
    bump = np.maximum(1.0 - x**2, 0.0)
    seconds, found = best(
        lambda: hf.solve_fpde(
            None, (0.0, 1.0), bump[:, None] * bump, x=(x, x), space=FractionalDiffusion(1.5, "integral"),
            boundary=Exterior(0.0), alpha=ALPHA, rtol=1e-6,
        ),
        1,
    )  # fmt: skip
    row("integral Laplacian, 33 x 33, rtol 1e-6, over 5 s", seconds, 5.0, 1.0, f"{found.message}; {found.stats}")
    x = np.linspace(-1.0, 1.0, 257)
    seconds, found = best(
        lambda: hf.solve_fpde(
            lambda t, u: u * (1.0 - u), (0.0, 1.0), np.maximum(1.0 - x**2, 0.0), x=x,
            space=FractionalDiffusion(1.5, "riesz", coefficient=lambda x: 1.0 + 0.5 * x),
            boundary=Dirichlet(0.0), alpha=ALPHA, rtol=1e-6,
        ),
        1,
    )  # fmt: skip
    row("Riesz, 257 points, rtol 1e-6, over 10 s", seconds, 10.0, 1.0, f"{found.message}; {found.stats}")


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    print(f"{'':60s} {'ours':>10s} {'other':>10s} {'ratio':>8s} {'bar':>6s}")
    for rtol in (1e-5, 1e-6):
        for breaks in ((), (0.3, 0.6)):
            beside_one_mode(
                f"source on from 0.3 to 0.6, rtol {rtol:g}, {'announced' if breaks else 'not announced'}",
                lambda t: 1.0 if 0.3 <= t < 0.6 else 0.0, rtol, breaks,
            )  # fmt: skip
    for rtol in (1e-5, 1e-6):
        beside_one_mode(f"source sin(50 t), rtol {rtol:g}", lambda t: float(np.sin(50.0 * t)), rtol, ())
    adaptive_beside_fixed()
    x = np.linspace(0.0, 20.0, 201)
    newton_on(
        "Fisher-KPP with D(u), 201 points",
        reaction=lambda t, u: u * (1.0 - u), t_span=(0.0, 5.0), u0=1.0 / (1.0 + np.exp(2.0 * (x - 5.0))), x=x,
        space=Diffusion(lambda x, u: 0.1 + u), boundary="neumann", alpha=0.9,
    )  # fmt: skip
    x = np.linspace(-4.0, 4.0, 201)
    newton_on(
        "porous medium D = u, 201 points",
        reaction=None, t_span=(0.0, 1.0), u0=np.maximum(1.0 - x**2, 0.0), x=x, space=Diffusion(lambda x, u: u),
        boundary="dirichlet", alpha=0.8,
    )  # fmt: skip
    integral_laplacian()


if __name__ == "__main__":
    main()
