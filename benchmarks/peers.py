"""The same problems by hpfracc and by other libraries: errors and processor time, our losses included.

``make peers`` installs the other libraries into an environment of their own and writes the tables into
``docs/explanation/peers.md``; ``python benchmarks/peers.py`` prints them. A library that is not installed is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import integrate, special

import hpfracc as hf
from benchmarks._common import heading

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "peers.md"
PLACE = re.compile(r"(<!-- measured -->\n).*?(<!-- end of measured -->)", re.DOTALL)

#: A contestant: its library, what it does, the call, and the error of what the call returns.
Contestant = tuple[str, str, Callable[[], Any], Callable[[Any], float]]


def largest(exact: Any) -> Callable[[Any], float]:
    """The largest error."""
    return lambda found: float(np.max(np.abs(np.asarray(found, dtype=float) - exact)))


def derivatives() -> Iterator[Contestant]:
    """Derivative of order 1/2 of sin t on [0, 10], from 2,000 and 10,000 samples."""
    for n in (2_000, 10_000):
        t = np.linspace(0.0, 10.0, n)
        exact = (1j * t**0.5 * hf.mittag_leffler(1j * t, 1.0, 1.5)).imag
        error = lambda found, exact=exact: float(np.max(np.abs(np.asarray(found)[1:] - exact[1:])))  # noqa: E731
        samples = np.sin(t)
        yield "hpfracc", f"`caputo`, {n:,}", lambda t=t, samples=samples: hf.caputo(samples, t, 0.5), error
        with contextlib.suppress(ImportError):
            from pycaputo.differentiation import caputo, diff
            from pycaputo.grid import make_uniform_points

            points = make_uniform_points(n, 0.0, 10.0)
            rule = caputo.L1(0.5)
            yield "pycaputo", f"`diff(L1(0.5), ...)`, {n:,}", lambda r=rule, s=samples, p=points: diff(r, s, p), error
        with contextlib.suppress(ImportError):
            from differint import differint

            yield "differint", f"`GL`, {n:,}", lambda s=samples, n=n: differint.GL(0.5, s, 0.0, 10.0, n), error
            if n <= 2_000:
                yield "differint", f"`RL`, {n:,}", lambda s=samples, n=n: differint.RL(0.5, s, 0.0, 10.0, n), error


def mittag_leffler() -> Iterator[Contestant]:
    """Mittag-Leffler function of order 1/2 at 1,000 points of [-10, 0] (exact: `scipy.special.erfcx`)."""
    x = np.linspace(-10.0, 0.0, 1_000)
    exact = special.erfcx(-x)
    error = lambda found: float(np.max(np.abs(np.asarray(found).real / exact - 1.0)))  # noqa: E731
    yield "hpfracc", "`mittag_leffler`", lambda: hf.mittag_leffler(x, 0.5), error
    with contextlib.suppress(ImportError):
        from pymittagleffler import mittag_leffler as theirs

        yield "pymittagleffler", "`mittag_leffler`", lambda: theirs(x.astype(complex), 0.5, 1.0), error
    with contextlib.suppress(ImportError):
        import numfracpy

        yield "numfracpy", "`Mittag_Leffler_one`", lambda: [numfracpy.Mittag_Leffler_one(z, 0.5) for z in x], error


def relaxation() -> Iterator[Contestant]:
    """Relaxation of order 0.6, D^0.6 y = -y, to t = 10: error at the end."""
    exact = hf.mittag_leffler(-(10.0**0.6), 0.6)
    error = lambda found: abs(float(found) - exact)  # noqa: E731
    for rtol in (1e-3, 1e-6, 1e-9):
        yield (
            "hpfracc",
            f"`solve_fode`, `rtol={rtol:g}`",
            lambda rtol=rtol: hf.solve_fode(_decay, (0.0, 10.0), [1.0], 0.6, rtol=rtol, atol=rtol).y[0, -1],
            error,
        )
    yield (
        "hpfracc",
        "`solve_fode`, `step=0.01`",
        lambda: hf.solve_fode(_decay, (0.0, 10.0), [1.0], 0.6, step=0.01).y[0, -1],
        error,
    )
    with contextlib.suppress(ImportError):
        from pycaputo.controller import make_fixed_controller
        from pycaputo.derivatives import CaputoDerivative
        from pycaputo.fode.caputo import PECE
        from pycaputo.stepping import evolve

        def by_pycaputo(steps: int) -> float:
            control = make_fixed_controller(10.0 / steps, tstart=0.0, tfinal=10.0)
            start = (np.array([1.0]),)
            method = PECE((CaputoDerivative(0.6),), control, _decay, start, corrector_iterations=1)
            *_, last = evolve(method, dtinit=10.0 / steps)
            return float(last.y[0])

        for steps in (100, 1_000):
            yield "pycaputo", f"`PECE`, {steps:,} steps", lambda steps=steps: by_pycaputo(steps), error
    with contextlib.suppress(ImportError):
        import numfracpy

        yield (
            "numfracpy",
            "`FODE`, 1,000 steps",
            lambda: numfracpy.FODE(_decay, [1.0], [0.0, 10.0], 0.01, 0.6)[1][-1],
            error,
        )


def _decay(t: float, y: Any) -> Any:
    return -y


def brownian() -> Iterator[Contestant]:
    """One path of fractional Brownian motion, H = 0.3, 10,000 points (all are exact in law)."""
    none = lambda found: 0.0  # noqa: E731
    yield "hpfracc", "`fbm`", lambda: hf.fbm(10_000, 0.3, rng=1), none
    with contextlib.suppress(ImportError):
        from fbm import FBM

        process = FBM(10_000, 0.3, 1.0, method="daviesharte")
        yield "fbm", "`FBM(...).fbm()`", process.fbm, none
    with contextlib.suppress(ImportError):
        from stochastic.processes.continuous import FractionalBrownianMotion

        other = FractionalBrownianMotion(0.3, 1.0)
        yield "stochastic", "`FractionalBrownianMotion(...).sample`", lambda: other.sample(10_000), none


def reaction_diffusion() -> Iterator[Contestant]:
    """Allen-Cahn equation of order 1 in time, 256 periodic points, to t = 2."""
    equation = hf.pde.problems.allen_cahn(2.0, points=256, thickness=0.1, t_end=2.0)
    reference = equation.solve(rtol=1e-10, save="last").u[-1]
    error = largest(reference)
    yield "hpfracc", "`solve_fpde`, `rtol=1e-6`", lambda: equation.solve(rtol=1e-6, save="last").u[-1], error
    with contextlib.suppress(ImportError):
        import pde as py_pde

        grid = py_pde.CartesianGrid([(0.0, 2.0 * math.pi)], 256, periodic=True)
        start = py_pde.ScalarField(grid, equation.u0)
        theirs = py_pde.PDE({"u": "0.01 * laplace(u) + u - u**3"})
        yield (
            "py-pde",
            "explicit, step 0.001",
            lambda: theirs.solve(start, t_range=2.0, dt=1e-3, tracker=None, backend="numba").data,
            error,
        )


def integer_order() -> Iterator[Contestant]:
    """An ordinary equation of order 1: Lotka and Volterra's, to t = 20, rtol 1e-6."""
    span, start = (0.0, 20.0), [1.0, 1.0]
    tight = integrate.solve_ivp(_hunt, span, start, rtol=1e-12, atol=1e-12, method="DOP853").y[:, -1]
    error = largest(tight)
    options: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-6}
    yield "hpfracc", "`solve_fode`, order 1", lambda: hf.solve_fode(_hunt, span, start, 1.0, **options).y[:, -1], error
    yield "SciPy", "`solve_ivp`", lambda: integrate.solve_ivp(_hunt, span, start, **options).y[:, -1], error
    with contextlib.suppress(ImportError):
        import torch
        from torchdiffeq import odeint

        def on_tensors(t: Any, y: Any) -> Any:
            x, z = y[0], y[1]
            return torch.stack([1.5 * x - x * z, x * z - 3.0 * z])

        times, state = torch.tensor(span, dtype=torch.float64), torch.tensor(start, dtype=torch.float64)
        yield "torchdiffeq", "`odeint`", lambda: odeint(on_tensors, state, times, **options)[-1].numpy(), error
        yield (
            "hpfracc",
            "`fdeint`, order 1",
            lambda: hf.fdeint(on_tensors, state, times, 1.0, **options)[-1].detach().numpy(),
            error,
        )
    with contextlib.suppress(ImportError):
        import diffrax
        import jax
        import jax.numpy as jnp

        with jax.enable_x64():

            @jax.jit
            def by_diffrax(y0: Any) -> Any:
                field = diffrax.ODETerm(
                    lambda t, y, args: jnp.stack([1.5 * y[0] - y[0] * y[1], y[0] * y[1] - 3 * y[1]])
                )
                control = diffrax.PIDController(rtol=1e-6, atol=1e-6)
                return diffrax.diffeqsolve(
                    field, diffrax.Tsit5(), 0.0, 20.0, None, y0, stepsize_controller=control, max_steps=10_000
                ).ys[-1]

        def compiled() -> Any:
            with jax.enable_x64():
                return np.asarray(by_diffrax(jnp.asarray(start)))

        yield "diffrax", "`diffeqsolve`, Tsit5, compiled", compiled, error


def _hunt(t: float, y: Any) -> Any:
    return np.array([1.5 * y[0] - y[0] * y[1], y[0] * y[1] - 3.0 * y[1]])


def product_integration() -> Iterator[Contestant]:
    """Diethelm's nonlinear equation of order 1/2 with 256 steps: Euclidean norm of all errors; MATLAB as published."""
    gamma = math.gamma
    rate = (40320.0 / gamma(8.5), 3.0 * gamma(5.25) / gamma(4.75), 2.25 * gamma(1.5))

    def source(t: float, y: Any) -> Any:
        known = rate[0] * t**7.5 - rate[1] * t**3.75 + rate[2] + (1.5 * t**0.25 - t**4) ** 3
        return known - np.abs(y) ** 1.5

    def error(found: Any) -> float:
        exact = found.t**8 - 3.0 * found.t**4.25 + 2.25 * found.t**0.5
        return float(np.linalg.norm(found.y[0] - exact))

    for method in ("explicit_rectangle", "pece", "implicit_rectangle", "implicit_trapezoid"):
        run = lambda method=method: hf.solve_fode(  # noqa: E731
            source, (0.0, 1.0), [0.0], 0.5, step=2.0**-8, method=method, estimate=False
        )
        yield "hpfracc", f"`{method}`", run, error
    run = lambda: hf.solve_fode(source, (0.0, 1.0), [0.0], 0.5, rtol=1e-6)  # noqa: E731
    yield "hpfracc", "default, `rtol=1e-6`", run, error


#: Errors and milliseconds of codes that we cannot run, from the files that their measurement was published with:
#: the benchmarks of FdeSolver.jl (M. Khalighi, G. Benedetti, L. Lahti), ``BenchNonStiff.csv``, on their machine.
PUBLISHED = {
    "product_integration": [
        ("`fde_pi1_ex`", 0.049495, 3.3888),
        ("`fde_pi12_pc`", 0.0033047, 5.0408),
        ("`fde_pi1_im`", 0.045823, 4.7048),
        ("`fde_pi2_im`", 8.4355e-05, 4.3248),
    ],
}


def measured(run: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of processor time of the fastest call but the first, and the result."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = run()
        taken: list[float] = []
        while len(taken) < 3 or (sum(taken) < 1.0 and len(taken) < 200):
            begin = time.process_time()
            value = run()
            taken.append(time.process_time() - begin)
            if sum(taken) > 20.0:
                break
    return min(taken), value


def tables() -> str:
    """All tables, in Markdown."""
    parts = [heading("").removeprefix("# \n# ")]
    problems = (
        derivatives,
        mittag_leffler,
        relaxation,
        product_integration,
        brownian,
        reaction_diffusion,
        integer_order,
    )
    for problem in problems:
        rows = []
        for library, what, run, error in problem():
            print(f"{problem.__name__}: {library} {what}", file=sys.stderr)
            try:
                seconds, value = measured(run)
                shown = "-" if problem is brownian else f"{error(value):.1e}"
                rows.append(f"| {library} | {what} | {shown} | {1e3 * seconds:.3g} ms |")
            except Exception as failure:
                rows.append(f"| {library} | {what} | {type(failure).__name__} | |")
        for what, norm, taken in PUBLISHED.get(problem.__name__, ()):
            rows.append(f"| Garrappa, MATLAB | {what} | {norm:.1e} | {taken:.3g} ms, published |")
        head = "| library | call | error | processor time |\n| --- | --- | --- | --- |"
        parts.append(f"**{(problem.__doc__ or '').strip().rstrip('.')}**\n\n{head}\n" + "\n".join(rows))
    return "\n\n".join(parts)


def main() -> None:
    """Print the tables, or write them into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write the tables into {PAGE.name}")
    text = tables() if parser.parse_args().write else print(tables())
    if text:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(PLACE.sub(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", page), encoding="utf-8")


if __name__ == "__main__":
    # The folder of this file has a module with the name of py-pde's package.
    sys.path[:] = [str(Path(__file__).parents[1]), *(each for each in sys.path if Path(each).name != "benchmarks")]
    main()
