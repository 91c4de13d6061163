"""Ordinary equations: solutions known through Mittag-Leffler functions, powers, and the method of steps for delays."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy.special import gamma, rgamma

import hpfracc as hf
from benchmarks._trust.campaign import Outcome, Trial

Array = np.ndarray[Any, Any]

#: Methods with a fixed step that estimate their error.
STEPPED = (
    "auto",
    "explicit_rectangle",
    "implicit_rectangle",
    "implicit_trapezoid",
    "pece",
    "bdf2",
    "newton_gregory",
    "multistep_trapezoid",
)
#: Methods whose error is known only by halving the step.
HALVED = ("pece", "bdf2", "l1", "l2_1sigma", "mittag_leffler", "variable_order")
#: Methods that have no estimate with a given step, and say so.
UNESTIMATED = ("l1", "l2_1sigma", "mittag_leffler", "variable_order")


@dataclass(frozen=True)
class Equation:
    """A problem with its solution: ``truth(t)`` of shape (d, N) for t of shape (N,)."""

    words: str
    fun: Callable[..., Any]
    y0: Array
    alpha: Any
    end: float
    truth: Callable[[Array], Array]
    more: dict[str, Any] = field(default_factory=dict)
    start: float = 0.0


def _order(rng: np.random.Generator, low: float = 0.2, high: float = 2.0) -> float:
    """An order, one in eight an integer if there is one."""
    if low < 1.0 < high and rng.random() < 0.125:
        return 1.0
    return float(rng.uniform(low, high))


def _response(rate: complex, alpha: float, power: float, tau: Array) -> Array:
    """Solution of ``D^alpha y = rate y + tau^power`` from zero, for tau >= 0."""
    tau = np.maximum(tau, 0.0)
    with np.errstate(divide="ignore"):
        factor = np.where(tau > 0.0, tau ** (power + alpha), 0.0)
    return np.asarray(
        math.gamma(power + 1.0) * factor * hf.mittag_leffler(rate * tau**alpha, alpha, power + alpha + 1.0)
    )


def linear(
    rng: np.random.Generator,
    *,
    orders: tuple[float, float] = (0.2, 2.0),
    stiff: float = 1.0,
    rotating: bool = False,
    jumps: int = 0,
    powers: int = 0,
    end: float | None = None,
) -> Equation:
    """``D^alpha y = A y + g(t)`` with known eigenvalues: rates up to ``10^stiff``, rotations, jumps, powers of t."""
    alpha = _order(rng, *orders)
    d = 2 if rotating else int(rng.integers(1, 4))
    end = float(10.0 ** rng.uniform(-0.5, 1.0)) if end is None else end
    sizes = 10.0 ** rng.uniform(-1.0, stiff, d)
    if rotating:  # a pair in the sector where solutions decay
        angle = rng.uniform(0.5 * math.pi * min(alpha, 1.9), math.pi)
        rates = sizes[0] * np.exp(1j * np.array([angle, -angle]))
        basis = np.array([[1.0, 1.0], [1j, -1j]]) * np.exp(0.3 * rng.normal(size=(2, 1)))
    else:
        rates = -sizes + 0j
        basis = np.eye(d) + 0.3 * rng.normal(size=(d, d)) + 0j
    inverse = np.linalg.inv(basis)
    matrix = np.real(basis @ np.diag(rates) @ inverse)
    y0, dy0 = rng.normal(size=d), rng.normal(size=d) / end
    heights, places = rng.normal(size=(jumps, d)), np.sort(rng.uniform(0.0, 0.9, jumps)) * end
    tops = rng.normal(size=(powers, d))
    exponents = rng.choice([-0.3, -0.2, 0.5, 1.0, 2.5], powers) if powers else np.empty(0)

    def source(t: float) -> Array:
        total = np.zeros(d)
        for height, place in zip(heights, places, strict=True):
            total = total + (height if t >= place else 0.0)
        for top, exponent in zip(tops, exponents, strict=True):
            with np.errstate(divide="ignore"):
                total = total + top * np.float64(t) ** exponent
        return total

    def truth(t: Array) -> Array:
        modes = []
        for k in range(d):
            z = rates[k] * t**alpha
            mode = (inverse[k] @ y0) * hf.mittag_leffler(z, alpha)
            if alpha > 1.0:
                mode = mode + (inverse[k] @ dy0) * t * hf.mittag_leffler(z, alpha, 2.0)
            for height, place in zip(heights, places, strict=True):
                mode = mode + (inverse[k] @ height) * _response(rates[k], alpha, 0.0, t - place)
            for top, exponent in zip(tops, exponents, strict=True):
                mode = mode + (inverse[k] @ top) * _response(rates[k], alpha, float(exponent), t)
            modes.append(mode)
        return np.real(basis @ np.array(modes))

    words = f"linear alpha={alpha:.4g} T={end:.3g} rates={np.round(rates, 3).tolist()}"
    words += f" jumps={np.round(places, 4).tolist()}" * bool(jumps) + f" t^{exponents.tolist()}" * bool(powers)
    more = {"dy0": [dy0]} if alpha > 1.0 else {}
    return Equation(words, lambda t, y: matrix @ y + source(t), y0, alpha, end, truth, more)


def _power_sum(rng: np.random.Generator, alpha: float, d: int) -> tuple[Array, Array]:
    """Coefficients (d, n) and exponents (n,) of a solution that starts like those of the equation."""
    exponents = np.array([0.0, *([1.0] if alpha > 1.0 else []), alpha, 2.0 * alpha, alpha + 1.0, 3.0])
    return rng.normal(size=(d, exponents.size)) / gamma(exponents + 1.0), exponents


def _derivative(coefficients: Array, exponents: Array, order: float, t: float) -> Array:
    """Caputo's derivative of a sum of powers; 0 for the initial values."""
    n = math.ceil(order)
    total = np.zeros(len(coefficients))
    for column, p in zip(coefficients.T, exponents, strict=True):
        if p >= n or p != round(p):
            total = total + column * (gamma(p + 1.0) * rgamma(p + 1.0 - order) * t ** (p - order))
    return total


def manufactured(rng: np.random.Generator, *, terms: bool = False) -> Equation:
    """A nonlinear equation for a given sum of powers, stiff or not; with several derivatives on request."""
    alpha = _order(rng)
    d = int(rng.integers(1, 4))
    end = float(rng.uniform(0.5, 2.0))
    coefficients, exponents = _power_sum(rng, alpha, d)
    rate = 10.0 ** rng.uniform(-1.0, 2.0)
    mixing = np.eye(d) + 0.3 * rng.normal(size=(d, d)) / d
    lower = [(float(rng.uniform(0.1, 2.0)), float(alpha * rng.uniform(0.2, 0.8)))] if terms else []

    def solution(t: Any) -> Array:
        return np.asarray(coefficients @ np.asarray(t) ** exponents.reshape(-1, *(1,) * np.ndim(t)))

    def fun(t: float, y: Array) -> Array:
        exact = solution(t)
        total = _derivative(coefficients, exponents, alpha, t)
        for factor, order in lower:
            total = total + factor * _derivative(coefficients, exponents, order, t)
        apart = y - exact
        return np.asarray(total - rate * (mixing @ apart + np.sin(apart) * apart))

    more: dict[str, Any] = {"dy0": [coefficients[:, 1]]} if alpha > 1.0 else {}
    if lower:
        more["terms"] = lower
    words = f"powers alpha={alpha:.4g} T={end:.3g} rate={rate:.3g} d={d}" + f" terms={lower}" * bool(lower)
    return Equation(words, fun, solution(0.0), alpha, end, solution, more)


def delayed(rng: np.random.Generator) -> Equation:
    """``D^alpha y = -p y(t - tau)`` with y = 1 before 0, by the method of steps."""
    alpha = _order(rng, 0.2, 1.0)
    rate, lag = float(rng.uniform(0.2, 2.0)), float(rng.uniform(0.2, 2.0))
    end = lag * float(rng.uniform(1.5, 6.0))

    def truth(t: Array) -> Array:
        total = np.ones((1, t.size))
        for k in range(1, int(end / lag) + 2):
            total[0] += (-rate) ** k * np.maximum(t - (k - 1) * lag, 0.0) ** (k * alpha) * rgamma(k * alpha + 1.0)
        return total

    words = f"delay alpha={alpha:.4g} p={rate:.3g} lag={lag:.4g} T={end:.4g}"
    more = {"delays": [lag], "history": 1.0}
    return Equation(words, lambda t, y, past: -rate * past[0], np.ones(1), alpha, end, truth, more)


def infinite(rng: np.random.Generator) -> Equation:
    """Riemann and Liouville's derivative, with a solution that is infinite at 0."""
    alpha, end = _order(rng, 0.4, 0.95), float(rng.uniform(0.5, 4.0))
    rate, y0 = float(10.0 ** rng.uniform(-1.0, 1.0)), rng.normal(size=1)

    def truth(t: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.asarray(y0[:, None] * t ** (alpha - 1.0) * hf.mittag_leffler(-rate * t**alpha, alpha, alpha))

    more = {"derivative": "riemann_liouville"}
    words = f"Riemann-Liouville alpha={alpha:.4g} rate={rate:.3g} T={end:.3g}"
    return Equation(words, lambda t, y: -rate * y, y0, alpha, end, truth, more)


def other_derivative(rng: np.random.Generator) -> Equation:
    """Linear equations with one of the other derivatives, from a start that each of them allows."""
    kind = str(rng.choice(["caputo_hadamard", "psi_caputo", "tempered_caputo", "caputo_fabrizio", "atangana_baleanu"]))
    alpha, rate = float(rng.uniform(0.25, 0.95)), float(10.0 ** rng.uniform(-1.0, 1.5))
    start, length = float(rng.uniform(0.2, 2.0)), float(10.0 ** rng.uniform(-0.5, 1.0))
    top, power, y0 = float(rng.normal()), float(rng.choice([1.0, 1.5, 2.0])), float(rng.normal())
    more: dict[str, Any] = {"derivative": kind}
    decay, share, factor, offset = 0.0, 0.0, 1.0, 0.0
    if kind == "tempered_caputo":
        decay = more["rate"] = float(rng.uniform(0.1, 40.0) / length)
    elif kind == "psi_caputo":
        more |= {"psi": lambda t: t**2, "inverse": np.sqrt}
    elif kind != "caputo_hadamard":  # the right-hand side is 0 at the start
        share, factor, offset, y0 = 1.0 - alpha, alpha, y0, 0.0
    order = 1.0 if kind == "caputo_fabrizio" else alpha

    def place(t: Any) -> Any:
        return np.log(t / start) if kind == "caputo_hadamard" else t**2 - start**2 if "psi" in more else t - start

    def fun(t: float, y: Array) -> Array:
        return np.asarray(-rate * (y - offset) + top * place(t) ** power * math.exp(-decay * (t - start)))

    def truth(t: Array) -> Array:
        x, damped = np.maximum(place(t), 0.0), factor * rate / (1.0 + share * rate)
        part = _response(-damped, order, power, x) * factor
        if share:  # the derivative of the response is what its own order adds
            part = part + share * (x**power - damped * _response(-damped, order, power, x))
        found = y0 * hf.mittag_leffler(-damped * x**order, order) + top * part / (1.0 + share * rate)
        found = offset + found * np.exp(-decay * (t - start))
        # Next to the start, times behind it are known to few digits.
        return np.asarray(np.where((x > 0.0) & (x < 1e-8 * place(start + length)), np.nan, found))[None]

    words = f"{kind} alpha={alpha:.4g} rate={rate:.3g} from {start:.3g} over {length:.3g}, decay={decay:.3g}"
    return Equation(words, fun, np.array([y0 + offset]), alpha, start + length, truth, more, start)


def _solve(equation: Equation, floor: float = 1e-12, **options: Any) -> Outcome:
    """Solve an equation and compare at all times of the result."""
    shown = ", ".join(f"{name}={value}" for name, value in options.items())
    with np.errstate(all="ignore"):
        result = hf.solve_fode(
            equation.fun, (equation.start, equation.end), equation.y0, equation.alpha, **equation.more, **options
        )
        truth = equation.truth(result.t)
    usable = np.isfinite(truth)
    size = float(np.abs(truth[usable]).max(initial=0.0))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(np.where(usable, result.y - truth, 0.0))
        if equation.more.get("derivative") == "riemann_liouville":  # infinite at 0: the norm of the estimate
            apart = apart * (result.t / equation.end) ** (1.0 - equation.alpha)
            size = float(np.abs(truth[:, -1]).max())
        error = float(apart.max())
    tolerance = None
    if "rtol" in options:
        tolerance = float(options["atol"] + options["rtol"] * size)
    return Outcome(
        f"{equation.words} | {shown} ({result.decision.method if result.decision else '?'})",
        error,
        float(result.error_estimate),
        floor * max(size, 1.0),
        tolerance,
        bool(result.success),
        result.message
        if result.success is False
        else result.message.replace("The end of the interval was reached.", ""),
    )


def _adaptive(make: Callable[[np.random.Generator], Equation], rng: np.random.Generator) -> Outcome:
    equation = make(rng)
    rtol = float(10.0 ** rng.uniform(-8.0, -3.0))
    return _solve(equation, rtol=rtol, atol=1e-3 * rtol)


def _any_linear(rng: np.random.Generator, highest: float = 2.0) -> Equation:
    """One of the kinds of linear problems."""
    kind = rng.integers(5)
    orders = (0.25, highest)
    if kind == 0:
        return linear(rng, orders=orders)
    if kind == 1:
        return linear(rng, orders=orders, stiff=4.0)
    if kind == 2:
        return linear(rng, orders=orders, stiff=2.0, rotating=True)
    if kind == 3:
        return linear(rng, orders=orders, jumps=int(rng.integers(1, 3)))
    return linear(rng, orders=orders, powers=2)


def _stepped(method: str, rng: np.random.Generator) -> Outcome:
    """A problem of any kind with a step that need not be small enough."""
    highest = 1.9 if method == "newton_gregory" else _highest(method)
    kinds: list[Callable[[np.random.Generator], Equation]] = [partial(_any_linear, highest=highest)] * 4
    kinds += [manufactured, partial(manufactured, terms=True), delayed]
    equation = kinds[int(rng.integers(len(kinds)))](rng)
    steps = int(10.0 ** rng.uniform(1.6, 2.6))
    options: dict[str, Any] = {"step": equation.end / steps, "method": method, "estimate": True}
    try:
        return _solve(equation, **options)
    except hf.errors.InvalidInputError as error:  # a method that does not take this kind of problem says so
        return Outcome(equation.words, 0.0, math.nan, 1e-12, None, False, str(error))


def _halved(method: str, rng: np.random.Generator) -> Outcome:
    """Steps are halved until two solutions agree."""
    equation = _any_linear(rng, _highest(method))
    rtol = float(10.0 ** rng.uniform(-4.0, -2.0))
    # Relative to |y(t)| alone, equal steps would have to resolve the smallest values of a decay.
    return _solve(equation, method=method, rtol=rtol, atol=rtol, max_steps=4096)


def _highest(method: str) -> float:
    """The highest order that a method takes."""
    return 0.99 if method in UNESTIMATED else 2.0


FAMILIES: dict[str, Trial] = {
    "ode adaptive: systems": partial(_adaptive, linear),
    "ode adaptive: stiff": partial(_adaptive, partial(linear, stiff=5.0)),
    "ode adaptive: rotations": partial(_adaptive, partial(linear, stiff=2.5, rotating=True)),
    "ode adaptive: jumps": partial(_adaptive, partial(linear, jumps=2)),
    "ode adaptive: singular sources": partial(_adaptive, partial(linear, powers=2)),
    "ode adaptive: nonlinear": partial(_adaptive, manufactured),
    "ode adaptive: several derivatives": partial(_adaptive, partial(manufactured, terms=True)),
    "ode adaptive: delays": partial(_adaptive, delayed),
    "ode adaptive: Riemann-Liouville": partial(_adaptive, infinite),
    "ode adaptive: other derivatives": partial(_adaptive, other_derivative),
    **{f"ode step: {method}": partial(_stepped, method) for method in (*STEPPED, *UNESTIMATED)},
    **{f"ode halved steps: {method}": partial(_halved, method) for method in HALVED},
}
