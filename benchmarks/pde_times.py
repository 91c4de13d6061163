"""Partial equations in time beside ordinary ones: ``python benchmarks/pde_times.py``.

Cases that were slow when the mesh in time was refined as a whole, with the seconds of that time beside them, the same
equation of one mode by ``solve_fode`` where there is one, and the steps of ``"adaptive"`` beside as many fixed ones.
"""

from __future__ import annotations

import functools
import math
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


def beside_modes(name: str, source: Callable[[float], float], rtol: float, breaks: tuple[float, ...]) -> None:
    """A source that is one sine in space, beside ``solve_fode`` of all modes (the bar is twice its time) and of one."""
    x = np.linspace(0.0, np.pi, 65)
    squares = np.arange(1.0, 64.0) ** 2
    options = {"rtol": rtol, "atol": 1e-3 * rtol}
    first = np.eye(63)[0]

    def partial() -> Any:
        return hf.solve_fpde(
            None, (0.0, 1.0), np.zeros_like(x), x=x, space=Diffusion(1.0), boundary="dirichlet",
            alpha=ALPHA, source=lambda t, x: source(t) * np.sin(x), breakpoints=breaks, estimate=False, **options,
        )  # fmt: skip

    def ordinary(modes: int) -> Any:
        return hf.solve_fode(
            lambda t, y: source(t) * first[:modes] - squares[:modes] * y, (0.0, 1.0), np.zeros(modes), ALPHA,
            breakpoints=breaks, compile=False, **options,
        )  # fmt: skip

    ours, found = best(partial)
    for modes, bar in ((63, 2.0), (1, math.nan)):
        theirs, mode = best(functools.partial(ordinary, modes))
        last = float(np.reshape(mode.y, (modes, -1))[0, -1])
        apart = abs(float(found.u[-1, 32]) - last) / abs(last)
        said = f"{found.stats['steps']:,} steps by {found.decision.method}; {mode.stats['steps']:,}; {apart:.0e} apart"
        row(f"{name}, over {modes} modes", ours, theirs, bar, said)


def adaptive_beside_fixed() -> None:
    """Seconds a step of ``"adaptive"``, which also carries its error, and of fixed steps of one kind or the other."""
    for points in (127, 255):
        x = np.linspace(0.0, np.pi, points + 2)
        start = np.sin(x)[:, None] * np.sin(3.0 * x)
        equation = {
            "x": (x, x), "space": Diffusion(0.1), "boundary": "dirichlet", "alpha": ALPHA, "estimate": False,
            "save": "last", "reaction": lambda t, u: u - u**3, "t_span": (0.0, 1.0), "u0": start,
        }  # fmt: skip
        ways: dict[str, dict[str, Any]] = {"adaptive": {"rtol": 1e-4, "atol": 1e-6}}
        seconds, steps = dict.fromkeys(("adaptive", "l1", "l2_1sigma"), math.inf), 0
        for _ in range(3):  # in turn, so that all see the same machine
            for method in seconds:
                once, found = best(lambda: hf.solve_fpde(method=method, **ways[method], **equation), 1)  # noqa: B023
                seconds[method] = min(seconds[method], once)
                steps = steps or found.stats["steps_in_all"]
                ways |= {fixed: {"step": 1.0 / steps} for fixed in ("l1", "l2_1sigma")}
        for method in ("l1", "l2_1sigma"):
            said = f"{steps:,} steps; {1e3 * seconds['adaptive'] / steps:.2f} ms a step"
            name = f"{points} x {points} with a reaction, a step of adaptive over {method}"
            row(name, seconds["adaptive"] / steps, seconds[method] / steps, 1.5, said)


def newton_on(name: str, **equation: Any) -> None:
    """Linear solves a step of a diffusion coefficient that depends on u; at most 3 is the bar."""
    seconds, found = best(lambda: hf.solve_fpde(rtol=1e-4, atol=1e-7, estimate=False, **equation), 1)
    stats = found.stats
    solves, steps = stats["solves"] - stats["error_solves"], stats["steps_in_all"]
    said = f"{steps} steps, {stats['error_solves'] / steps:.2f} solves each for the error; {seconds:.1f} s"
    row(f"{name}: linear solves a step", solves / steps, 1.0, 3.0, said)


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
    row(
        "integral Laplacian, 33 x 33, rtol 1e-6, over 5 s",
        seconds,
        5.0,
        1.0,
        f"{found.stats['steps']} steps, {found.message}",
    )
    x = np.linspace(-1.0, 1.0, 257)
    seconds, found = best(
        lambda: hf.solve_fpde(
            lambda t, u: u * (1.0 - u), (0.0, 1.0), np.maximum(1.0 - x**2, 0.0), x=x,
            space=FractionalDiffusion(1.5, "riesz", coefficient=lambda x: 1.0 + 0.5 * x),
            boundary=Dirichlet(0.0), alpha=ALPHA, rtol=1e-6,
        ),
        1,
    )  # fmt: skip
    row("Riesz, 257 points, rtol 1e-6, over 10 s", seconds, 10.0, 1.0, f"{found.stats['steps']} steps, {found.message}")


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    print(f"{'':60s} {'ours':>10s} {'other':>10s} {'ratio':>8s} {'bar':>6s}")
    for rtol in (1e-5, 1e-6):
        for breaks in ((), (0.3, 0.6)):
            beside_modes(
                f"source on from 0.3 to 0.6, rtol {rtol:g}, {'announced' if breaks else 'not announced'}",
                lambda t: 1.0 if 0.3 <= t < 0.6 else 0.0, rtol, breaks,
            )  # fmt: skip
    for rtol in (1e-5, 1e-6):
        beside_modes(f"source sin(50 t), rtol {rtol:g}", lambda t: float(np.sin(50.0 * t)), rtol, ())
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
