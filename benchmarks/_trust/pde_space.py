"""Partial differential equations: the estimate of the error due to the grid, ``errors.space``.

Truth: a solution in closed form at the points of the grid (Getoor's functions, series of eigenfunctions), or, where
there are steps in time, the same equation with the same steps on an eight times finer grid (four times in two
dimensions and with reactions), so that the error of the steps is not counted.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import hpfracc as hf
from benchmarks._trust.campaign import Outcome, Trial
from hpfracc.pde import (
    Advection,
    Diffusion,
    Dirichlet,
    Exterior,
    FractionalDiffusion,
    Neumann,
    OneSided,
    Region,
    Robin,
    jacobi_grid,
)
from hpfracc.solvers.pde.space.jacobi import _basis

#: Steps in time where there are any.
_STEPS = 64
#: How much finer the grid of a numerical truth is, along each axis.
_FINER = 8
#: Modes in a series.
_MODES = 4000


def _solve(reaction: Any, t1: float, u0: Any, x: Any, *, estimate: bool | str = "auto", **given: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hf.errors.AccuracyWarning)
        return hf.solve_fpde(reaction, (0.0, t1), u0, x=x, save="last", estimate=estimate, **given)


def _outcome(problem: str, found: Any, exact: np.ndarray, time_error: float = 0.0) -> Outcome:
    error = float(np.abs(found.u[-1] - exact).max())
    reason = " ".join([found.message, *found.decision.notes])
    size = max(1.0, float(np.abs(exact).max()))
    return Outcome(
        problem, error, float(found.errors.space[-1]), 1e-11 * size + time_error, None, found.success, reason
    )


def _against_finer(
    problem: str,
    t1: float,
    start: Callable[..., Any],
    axes: tuple[np.ndarray, ...],
    *,
    reaction: Any = None,
    finer: int = _FINER,
    **given: Any,
) -> Outcome:
    """Compare with the same steps of the same method on a finer grid, at the common points."""
    fine = tuple(np.linspace(one[0], one[-1], finer * (one.size - 1) + 1) for one in axes)
    truth = _solve(reaction, t1, start, fine if len(axes) > 1 else fine[0], estimate=False, **given)
    # Left to itself, a coarse grid may have the exact solution in time, and the fine one not.
    method = truth.decision.method
    found = _solve(reaction, t1, start, axes if len(axes) > 1 else axes[0], method=method, **given)
    return _outcome(problem, found, truth.u[-1][(slice(None, None, finer),) * len(axes)])


def _order(rng: np.random.Generator) -> float:
    return float(rng.choice([rng.uniform(0.2, 0.95), 1.0], p=[0.75, 0.25]))


def _time(rng: np.random.Generator) -> float:
    """Early and late times."""
    return float(10.0 ** rng.uniform(-3.0, 1.0))


def _points(rng: np.random.Generator, low: int = 17, high: int = 65) -> np.ndarray:
    return np.linspace(0.0, 1.0, int(rng.integers(low, high)))


def _shape(rng: np.random.Generator) -> tuple[str, Callable[[np.ndarray], np.ndarray]]:
    """A function of x with zeros at 0 and 1: smooth, with a kink, or narrow."""
    a, b, c = rng.uniform(0.5, 3.0), rng.uniform(0.2, 0.8), rng.uniform(0.03, 0.3)
    kinds: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        f"sine mix {a:.3f}": lambda x: np.sin(math.pi * x) + a * np.sin(3.0 * math.pi * x),
        f"parabola {a:.3f}": lambda x: x * (1.0 - x) * (1.0 + a * x),
        f"hat at {b:.3f}": lambda x: np.minimum(x / b, (1.0 - x) / (1.0 - b)),
        f"bump at {b:.3f} of {c:.3f}": lambda x: x * (1.0 - x) * np.exp(-(((x - b) / c) ** 2)),
    }
    name = list(kinds)[int(rng.integers(len(kinds)))]
    return name, kinds[name]


def _manufactured(alpha: float, rng: np.random.Generator) -> tuple[str, Any, Any]:
    """``g(t) = c + t^p`` and its derivative of order alpha."""
    p, c = float(rng.uniform(1.0, 3.0)), float(rng.choice([0.0, 1.0]))

    def value(t: float) -> float:
        return c + t**p

    def rate(t: float) -> float:
        return math.gamma(p + 1.0) / math.gamma(p + 1.0 - alpha) * t ** (p - alpha)

    return f"g = {c:g} + t^{p:.3f}", value, rate


def diffusion_series(rng: np.random.Generator) -> Outcome:
    """Diffusion of a box, a hat or a parabola without time steps; truth: the series of sines or cosines."""
    alpha, t1, x = _order(rng), _time(rng), _points(rng)
    a, b = np.sort(rng.uniform(0.05, 0.95, 2))
    k = np.arange(1, _MODES)
    kind = str(rng.choice(["dirichlet", "neumann"]))
    shape = str(rng.choice(["box", "hat", "parabola"]))
    if b - a < 0.1:
        a, b = 0.25, 0.75
    w = math.pi * k
    if kind == "dirichlet":
        c = {
            "box": 2.0 * (np.cos(w * a) - np.cos(w * b)) / w,
            "hat": 2.0 * np.sin(w * a) / (a * (1.0 - a) * w**2),
            "parabola": 4.0 * (1.0 - (-1.0) ** k) / w**3,
        }[shape]
        mean, waves = 0.0, np.sin(w[:, None] * x)
    else:
        c = {
            "box": 2.0 * (np.sin(w * b) - np.sin(w * a)) / w,
            "hat": 2.0 * (np.cos(w * a) - a * (-1.0) ** k - (1.0 - a)) / (a * (1.0 - a) * w**2),
            "parabola": -2.0 * (1.0 + (-1.0) ** k) / w**2,
        }[shape]
        mean, waves = {"box": b - a, "hat": 0.5, "parabola": 1.0 / 6.0}[shape], np.cos(w[:, None] * x)
    start = {
        "box": lambda x: ((x >= a) & (x <= b)) * 1.0,
        "hat": lambda x: np.minimum(x / a, (1.0 - x) / (1.0 - a)),
        "parabola": lambda x: x * (1.0 - x),
    }[shape]
    decay = np.exp(-(w**2) * t1) if alpha == 1.0 else hf.mittag_leffler(-(w**2) * t1**alpha, alpha)
    found = _solve(None, t1, start(x), x, space=Diffusion(1.0), boundary=kind, alpha=alpha)
    problem = f"{kind} {shape} a={a:.4f} b={b:.4f} alpha={alpha:.3f} t={t1:.3g} n={x.size}"
    return _outcome(problem, found, mean + (c * decay) @ waves, 1e-7)


def boundary_data(rng: np.random.Generator) -> Outcome:
    """Data at the ends that change in time, of all kinds, ``u = g(t) exp(k x)``; truth: a finer grid."""
    alpha, t1, x = _order(rng), _time(rng), _points(rng)
    k, d = float(rng.uniform(-3.0, 3.0)), float(rng.uniform(0.2, 3.0))
    words, g, rate = _manufactured(alpha, rng)

    def end(place: float) -> Any:
        outward = (k if place else -k) * math.exp(k * place)
        kind = int(rng.integers(3))
        if kind == 0:
            return Dirichlet(lambda t: g(t) * math.exp(k * place))
        if kind == 1:
            return Neumann(lambda t: g(t) * outward)
        a = float(rng.uniform(0.1, 3.0))
        return Robin(a, 1.0, lambda t: g(t) * (a * math.exp(k * place) + outward))

    ends = end(0.0), end(1.0)
    kinds = "/".join(type(one).__name__ for one in ends)
    problem = f"{kinds} {words} k={k:.3f} D={d:.3f} alpha={alpha:.3f} t={t1:.3g} n={x.size}"
    return _against_finer(
        problem,
        t1,
        lambda x: g(0.0) * np.exp(k * x),
        (x,),
        space=Diffusion(d),
        boundary=ends,
        alpha=alpha,
        source=lambda t, x: (rate(t) - d * k * k * g(t)) * np.exp(k * x),
        step=t1 / _STEPS,
    )


def time_and_space(rng: np.random.Generator) -> Outcome:
    """Errors in time and space together, ``u = g(t) (exp(k x) + cos(w x))``, ends of all kinds; truth: closed form."""
    alpha, t1, x = _order(rng), _time(rng), _points(rng)
    k, w, d, r = (float(rng.uniform(*one)) for one in ((-3.0, 3.0), (0.0, 8.0), (0.2, 3.0), (0.0, 2.0)))
    words, g, rate = _manufactured(alpha, rng)
    fall = bool(rng.integers(2))

    def shape(x: Any, power: int = 0) -> Any:
        """The function of x, or its first or second derivative."""
        wave = (np.cos(w * x), -w * np.sin(w * x), -w * w * np.cos(w * x))[power]
        return k**power * np.exp(k * x) + wave

    def end(place: float) -> Any:
        outward = shape(place, 1) * (1.0 if place else -1.0)
        kind = int(rng.integers(3))
        if kind == 0:
            return Dirichlet(lambda t: g(t) * shape(place))
        if kind == 1:
            return Neumann(lambda t: g(t) * outward)
        a = float(rng.uniform(0.1, 3.0))
        return Robin(a, 1.0, lambda t: g(t) * (a * shape(place) + outward))

    ends, rtol = (end(0.0), end(1.0)), float(10.0 ** rng.uniform(-6.0, -2.5))
    found = _solve(
        (lambda t, u: -r * u) if fall else None,
        t1,
        lambda x: g(0.0) * shape(x),
        x,
        space=Diffusion(d),
        boundary=ends,
        alpha=alpha,
        source=lambda t, x: rate(t) * shape(x) - g(t) * (d * shape(x, 2) - (r * shape(x) if fall else 0.0)),
        rtol=rtol,
    )
    kinds = "/".join(type(one).__name__ for one in ends)
    problem = (
        f"{kinds} {words} k={k:.3f} w={w:.3f} D={d:.3f} r={r if fall else 0:.3f} alpha={alpha:.3f} t={t1:.3g} "
        f"n={x.size} rtol={rtol:.2g}"
    )
    part = _outcome(problem, found, g(t1) * shape(x))
    return dataclasses.replace(part, estimate=float(found.errors.time[-1] + found.errors.space[-1]))


def nonlinear_diffusion(rng: np.random.Generator) -> Outcome:
    """``D(x, u) = d + u^2 + x``, both errors together; truth: ``u = g(t) s(x)`` with s from sine and parabola."""
    alpha, end = _order(rng), float(10.0 ** rng.uniform(-1.0, 0.3))
    name, value, rate = _manufactured(alpha, rng)
    d, w, x = float(rng.uniform(0.05, 2.0)), math.pi * int(rng.integers(1, 3)), _points(rng, 9, 34)
    c = float(rng.uniform(0.2, 1.0)) / max(1.0, value(end))

    def source(t: float, x: np.ndarray) -> np.ndarray:
        g = c * value(t)
        s, ds, dds = np.sin(w * x) + x * x, w * np.cos(w * x) + 2.0 * x, 2.0 - w * w * np.sin(w * x)
        flux = (2.0 * g * g * s * ds + 1.0) * g * ds + (d + (g * s) ** 2 + x) * g * dds
        return np.asarray(c * rate(t) * s - flux)

    found = hf.solve_fpde(
        None,
        (0.0, end),
        c * value(0.0) * (np.sin(w * x) + x * x),
        x=x,
        space=Diffusion(lambda x, u: d + u * u + x),
        boundary={"left": 0.0, "right": lambda t: c * value(t)},
        source=source,
        alpha=alpha,
        rtol=1e-4,
        save="last",
    )
    problem = f"alpha={alpha:.3f}, {name}, end={end:.3g}, d={d:.3g}, w={w:.3g}, c={c:.3g}, n={x.size}"
    exact = c * value(end) * (np.sin(w * x) + x * x)
    error, estimate = float(np.abs(found.u[-1] - exact).max()), sum(found.error_estimate)
    return Outcome(problem, error, estimate, 1e-11, None, found.success, found.message)


def variable_coefficients(rng: np.random.Generator) -> Outcome:
    """``k(x)`` that varies, with and without a jump, Dirichlet, Neumann or no flux; truth: a finer grid."""
    alpha, t1, x = _order(rng), _time(rng), _points(rng, 17, 49)
    a, b, jump = float(rng.uniform(0.1, 0.9)), float(rng.uniform(1.0, 6.0)), float(rng.uniform(0.2, 0.8))
    which = int(rng.integers(3))
    functions = [
        lambda x: 1.0 + a * np.sin(b * x),
        lambda x: np.exp(b * (x - 0.5)),
        lambda x: np.where(x < jump, 1.0, a),
    ]
    name, start = _shape(rng)
    kind = str(rng.choice(["dirichlet", "neumann", "no_flux"]))
    problem = f"k{which} a={a:.3f} b={b:.3f} jump={jump:.3f} {kind} {name} alpha={alpha:.3f} t={t1:.3g} n={x.size}"
    given = {"space": Diffusion(functions[which]), "boundary": kind, "alpha": alpha, "step": t1 / _STEPS}
    return _against_finer(problem, t1, start, (x,), **given)


def advection(rng: np.random.Generator) -> Outcome:
    """Transport with diffusion at cell Peclet numbers up to 2, all ends; truth: a finer grid."""
    alpha, x = _order(rng), _points(rng, 33, 65)
    t1 = float(10.0 ** rng.uniform(-2.0, 0.5))
    d = float(10.0 ** rng.uniform(-1.5, 0.0))
    v = float(rng.uniform(-1.8, 1.8)) * d * (x.size - 1)
    v = math.copysign(min(abs(v), 8.0), v)
    kind = str(rng.choice(["dirichlet", "neumann", "no_flux"]))
    name, start = _shape(rng)
    problem = f"{kind} D={d:.4f} v={v:.4f} {name} alpha={alpha:.3f} t={t1:.3g} n={x.size}"
    space = Diffusion(d) + Advection(v)
    return _against_finer(problem, t1, start, (x,), space=space, boundary=kind, alpha=alpha, step=t1 / _STEPS)


def riesz(rng: np.random.Generator) -> Outcome:
    """Riesz terms with and without a coefficient that varies, from smooth and rough data; truth: a finer grid."""
    alpha, t1, x = _order(rng), _time(rng), _points(rng, 17, 49)
    order = float(rng.uniform(0.4, 1.95))
    a = float(rng.uniform(0.0, 0.9))
    varies = bool(rng.integers(2))
    name, start = _shape(rng)
    problem = f"order={order:.3f} a={a:.3f} varies={varies} {name} alpha={alpha:.3f} t={t1:.3g} n={x.size}"
    coefficient = (lambda x: 1.0 + a * np.cos(3.0 * x)) if varies else 1.0
    space = FractionalDiffusion(order, "riesz", coefficient)
    return _against_finer(problem, t1, start, (x,), space=space, boundary="dirichlet", alpha=alpha)


def one_sided(rng: np.random.Generator) -> Outcome:
    """Riemann-Liouville terms from one or both sides, with zero data or no flux; truth: a finer grid."""
    alpha, t1, x = _order(rng), _time(rng), _points(rng, 17, 41)
    order = float(rng.uniform(1.1, 1.95))
    share = float(rng.choice([0.0, 0.3, 0.5]))
    name, start = _shape(rng)
    space: Any = OneSided(order, "left", 1.0 - share)
    if share:
        space = space + OneSided(order, "right", share)
    problem = f"order={order:.3f} share={share:g} {name} alpha={alpha:.3f} t={t1:.3g} n={x.size}"
    return _against_finer(problem, t1, start, (x,), space=space, boundary="dirichlet", alpha=alpha, step=t1 / _STEPS)


def integral_laplacian(rng: np.random.Generator) -> Outcome:
    """The integral Laplacian of a steady state of Getoor, reached from zero, on an interval; truth: closed form.

    By differences, beside a coefficient that is written as a sum of two terms, which the Jacobi method does not take.
    """
    s = float(rng.uniform(0.2, 0.95))
    n = int(rng.integers(17, 65))
    x = np.linspace(-1.0, 1.0, n)
    share = float(rng.uniform(0.2, 0.8))
    space = FractionalDiffusion(2.0 * s, "integral", share) + FractionalDiffusion(2.0 * s, "integral", 1.0 - share)
    t1 = float(rng.uniform(30.0, 60.0))
    found = _solve(None, t1, np.zeros(n), x, space=space, boundary=Exterior(0.0), alpha=1.0, source=np.ones(n))
    exact = np.clip(1.0 - x**2, 0.0, None) ** s / math.gamma(1.0 + 2.0 * s)
    return _outcome(f"s={s:.3f} n={n} t={t1:.1f}", found, exact, 1e-9)


def jacobi(rng: np.random.Generator) -> Outcome:
    """The integral Laplacian of an interval by Jacobi polynomials; truth: a finer grid."""
    alpha, t1 = _order(rng), _time(rng)
    order = float(rng.uniform(0.3, 1.9))
    n = int(rng.integers(17, 42))
    name, start = _shape(rng)
    box = bool(rng.integers(4) == 0)
    a, b = np.sort(rng.uniform(-0.9, 0.9, 2))
    a, b = (a, b) if b - a > 0.3 else (-0.5, 0.5)

    def begin(x: np.ndarray) -> np.ndarray:
        return ((x >= a) & (x <= b)) * 1.0 if box else start(0.5 * (1.0 + x))

    space = FractionalDiffusion(order, "integral")
    x = np.linspace(-1.0, 1.0, n)
    problem = f"{f'box {a:.3f} {b:.3f}' if box else name} order={order:.3f} alpha={alpha:.3f} t={t1:.3g} n={n}"
    return _against_finer(problem, t1, begin, (x,), space=space, boundary=Exterior(0.0), alpha=alpha)


def jacobi_nodes(rng: np.random.Generator) -> Outcome:
    """The same on the zeros of the polynomials, from data like those of the solution at the ends; truth: more of them.

    The truth is compared at the points of the coarser grid, by its own polynomials.
    """
    alpha, t1 = _order(rng), _time(rng)
    order = float(rng.uniform(0.3, 1.9))
    n, b = int(rng.integers(8, 33)), float(rng.uniform(-4.0, 4.0))
    kink = float(rng.uniform(-0.5, 0.5))
    which = int(rng.integers(3))

    def begin(x: np.ndarray) -> np.ndarray:
        shape = (np.exp(b * x), 1.0 / (1.0 + b * b * x * x), np.abs(x - kink))[which]
        return np.clip(1.0 - x * x, 0.0, None) ** (0.5 * order) * shape

    given = {"space": FractionalDiffusion(order, "integral"), "boundary": Exterior(0.0), "alpha": alpha}
    x, fine = jacobi_grid(n, order), jacobi_grid(200, order)
    found = _solve(None, t1, begin(x), x, **given)
    truth = _solve(None, t1, begin(fine), fine, **given)
    exact = _basis(200, 0.5 * order).evaluation(x) @ truth.u[-1][1:-1]
    problem = f"kind {which} b={b:.3f} kink={kink:.3f} order={order:.3f} alpha={alpha:.3f} t={t1:.3g} n={n}"
    return _outcome(problem, found, exact, 1e-10)


def incompatible(rng: np.random.Generator) -> Outcome:
    """Values at t0 that do not fit the ends, ``u0 = c`` with zero ends, early and late; truth: the series of sines."""
    alpha, t1, x = _order(rng), _time(rng), _points(rng)
    c = float(rng.uniform(0.5, 2.0))
    w = math.pi * np.arange(1, _MODES)
    decay = np.exp(-(w**2) * t1) if alpha == 1.0 else hf.mittag_leffler(-(w**2) * t1**alpha, alpha)
    series = (2.0 * c * (1.0 - np.cos(w)) / w * decay) @ np.sin(w[:, None] * x)
    space = Diffusion(1.0 if rng.integers(2) else (lambda x: 1.0 + 0.0 * x))
    start = np.full(x.size, c)
    with_steps = {} if not callable(space.coefficient) else {"step": t1 / 256}
    found = _solve(None, t1, start, x, space=space, boundary="dirichlet", alpha=alpha, **with_steps)
    problem = f"c={c:.3f} alpha={alpha:.3f} t={t1:.3g} n={x.size} varies={callable(space.coefficient)}"
    told = found.error_estimate.time
    return _outcome(problem, found, series, 1e-6 + (0.0 if math.isnan(told) else 3.0 * told))


def periodic(rng: np.random.Generator) -> Outcome:
    """Waves, bumps and boxes on a circle, of fractional order, with transport; truth: the Fourier series."""
    alpha, t1 = _order(rng), _time(rng)
    n = int(rng.integers(16, 80))
    order, v = float(rng.uniform(0.5, 2.0)), float(rng.choice([0.0, rng.uniform(-2.0, 2.0)]))
    shape = str(rng.choice(["box", "bump", "cosine"]))
    x = np.arange(n) / n
    if shape == "box":
        a, b = np.sort(rng.uniform(0.0, 1.0, 2))
        a, b = (a, b) if b - a > 0.15 else (0.2, 0.7)
        start = ((x >= a) & (x < b)) * 1.0
        k = np.arange(-_MODES, _MODES + 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            c = np.where(k == 0, b - a, (np.exp(-2j * np.pi * k * a) - np.exp(-2j * np.pi * k * b)) / (2j * np.pi * k))
    else:
        a, b = 0.0, float(rng.uniform(1.0, 12.0))
        many = np.arange(1024) / 1024

        def wave(x: np.ndarray) -> np.ndarray:
            return (
                np.exp(b * (np.cos(2.0 * np.pi * x) - 1.0)) if shape == "bump" else 1.0 / (1.1 + np.cos(2 * np.pi * x))
            )

        start, k = wave(x), np.arange(-512, 512)
        c = np.fft.fft(wave(many))[k] / 1024
    symbol = -(np.abs(2.0 * np.pi * k) ** order) - 2j * np.pi * k * v
    decay = np.exp(symbol * t1) if alpha == 1.0 else hf.mittag_leffler(symbol * t1**alpha, alpha)
    space: Any = FractionalDiffusion(order)
    if v:
        space = space + Advection(v)
    found = _solve(None, t1, start, x, space=space, boundary="periodic", alpha=alpha)
    exact = ((c * decay) @ np.exp(2j * np.pi * k[:, None] * x)).real
    problem = f"{shape} a={a:.4f} b={b:.4f} order={order:.3f} v={v:.3f} alpha={alpha:.3f} t={t1:.3g} n={n}"
    return _outcome(problem, found, exact, 1e-6 if shape == "box" else 0.0)


def two_dimensions(rng: np.random.Generator) -> Outcome:
    """A square: k(x, y), boxes and bumps, or an integral Laplacian; truth: a finer grid."""
    alpha = _order(rng)
    t1 = float(10.0 ** rng.uniform(-2.0, 0.5))
    n = int(rng.integers(13, 19))
    x = np.linspace(0.0, 1.0, n)
    a, b, c = rng.uniform(0.2, 0.8), rng.uniform(0.2, 0.8), rng.uniform(0.15, 0.4)
    shapes = {
        "bump": lambda x, y: np.exp(-((x - a) ** 2 + (y - b) ** 2) / c**2) * x * (1 - x) * y * (1 - y) * 16.0,
        "sines": lambda x, y: np.sin(np.pi * x) * np.sin(2.0 * np.pi * y),
    }
    shape = str(rng.choice(list(shapes)))
    kind = str(rng.choice(["dirichlet", "neumann"]))
    problem = f"{kind} {shape} a={a:.3f} b={b:.3f} c={c:.3f} alpha={alpha:.3f} t={t1:.3g} n={n}"
    space = Diffusion(lambda x, y: 1.0 + a * np.sin(3.0 * x) * np.cos(2.0 * y))
    given = {"space": space, "boundary": kind, "alpha": alpha, "step": t1 / 16}
    return _against_finer(problem, t1, shapes[shape], (x, x), finer=4, **given)


def reactions(rng: np.random.Generator) -> Outcome:
    """Logistic growth with diffusion, closed or held at zero; truth: a finer grid."""
    alpha, x = _order(rng), _points(rng, 17, 41)
    t1 = float(10.0 ** rng.uniform(-1.0, 1.0))
    d, r = float(10.0 ** rng.uniform(-2.5, -0.5)), float(rng.uniform(0.5, 4.0))
    kind = str(rng.choice(["dirichlet", "neumann"]))
    name, start = _shape(rng)
    problem = f"{kind} D={d:.4f} r={r:.3f} {name} alpha={alpha:.3f} t={t1:.3g} n={x.size}"
    given = {"space": Diffusion(lambda x: d * (1.0 + 0.3 * x)), "boundary": kind, "alpha": alpha, "step": t1 / 32}
    return _against_finer(
        problem, t1, lambda x: 0.3 * np.abs(start(x)), (x,), reaction=lambda t, u: r * u * (1.0 - u), finer=4, **given
    )


def waves(rng: np.random.Generator) -> Outcome:
    """Orders in (1, 2) and 2: hats and parabolas, at rest; truth: the series of sines."""
    alpha = float(rng.choice([rng.uniform(1.1, 1.9), 2.0], p=[0.8, 0.2]))
    t1, x = float(rng.uniform(0.05, 2.0)), _points(rng)
    a = float(rng.uniform(0.2, 0.8))
    w = math.pi * np.arange(1, _MODES)
    hat = bool(rng.integers(2))
    c = 2.0 * np.sin(w * a) / (a * (1.0 - a) * w**2) if hat else 4.0 * (1.0 - np.cos(w)) / w**3
    start = np.minimum(x / a, (1.0 - x) / (1.0 - a)) if hat else x * (1.0 - x)
    decay = np.cos(w * t1) if alpha == 2.0 else hf.mittag_leffler(-(w**2) * t1**alpha, alpha)
    found = _solve(None, t1, start, x, space=Diffusion(1.0), boundary="dirichlet", alpha=alpha, du0=0.0)
    problem = f"{'hat' if hat else 'parabola'} a={a:.3f} alpha={alpha:.3f} t={t1:.3g} n={x.size}"
    return _outcome(problem, found, (c * decay) @ np.sin(w[:, None] * x), 2e-4 if hat else 1e-7)


def regions(rng: np.random.Generator) -> Outcome:
    """A sine or cosine of two to five unit squares of a block of six, a mode of each; truth: closed form."""
    alpha, t1, per = _order(rng), float(10.0 ** rng.uniform(-3.0, -0.5)), 2 * int(rng.integers(3, 7))
    squares = np.zeros(6, bool)
    squares[rng.permutation(6)[: int(rng.integers(2, 6))]] = True
    squares = squares.reshape(2, 3)
    axes = np.linspace(0.0, 2.0, 2 * per + 1), np.linspace(0.0, 3.0, 3 * per + 1)
    m, k, power = int(rng.integers(1, 3)), int(rng.integers(1, 3)), float(rng.choice([1.0, rng.uniform(0.3, 0.9)]))
    kind = str(rng.choice(["dirichlet", "neumann"]))
    wave = np.sin if kind == "dirichlet" else np.cos
    decay = float(np.real(hf.mittag_leffler(-((math.pi**2 * (m * m + k * k)) ** power) * t1**alpha, alpha)))
    shape = Region(axes, lambda x, y: squares[x.astype(int), y.astype(int)])
    found = _solve(
        None,
        t1,
        lambda x, y: wave(m * math.pi * x) * wave(k * math.pi * y),
        shape,
        space=Diffusion(1.0) if power == 1.0 else FractionalDiffusion(2.0 * power, "spectral"),
        boundary=kind,
        alpha=alpha,
    )
    exact = decay * wave(m * math.pi * axes[0][:, None]) * wave(k * math.pi * axes[1])
    found.u = np.where(np.isnan(found.u), exact, found.u)
    problem = f"{kind} {squares.astype(int).tolist()} m={m} k={k} p={power:.3f} alpha={alpha:.3f} t={t1:.3g} n={per}"
    return _outcome(problem, found, exact)


FAMILIES: dict[str, Trial] = {
    "pde space: diffusion, series": diffusion_series,
    "pde space: boundary data": boundary_data,
    "pde: time and space together": time_and_space,
    "pde: nonlinear diffusion": nonlinear_diffusion,
    "pde space: k(x)": variable_coefficients,
    "pde space: advection": advection,
    "pde space: riesz": riesz,
    "pde space: one-sided": one_sided,
    "pde space: integral laplacian": integral_laplacian,
    "pde space: jacobi": jacobi,
    "pde space: jacobi, its own nodes": jacobi_nodes,
    "pde space: incompatible data": incompatible,
    "pde space: periodic": periodic,
    "pde space: two dimensions": two_dimensions,
    "pde space: regions": regions,
    "pde space: reactions": reactions,
    "pde space: diffusion-wave": waves,
}
