"""Random problems for operators: samples and callables with closed forms, smooth and singular, on any grid."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import digamma, gamma, hyp2f1, rgamma

import hpfracc as hf
from benchmarks._trust.campaign import Outcome, Trial

__all__ = ["FAMILIES"]

Array = np.ndarray[Any, Any]
EPS = float(np.finfo(np.float64).eps)


def outcome(problem: str, result: Any, truth: Array, *, size: float = 0.0) -> Outcome:
    """Worst point of a result: errors over estimates where there is one, all of it if there is none.

    Points at which the truth is infinite or has no estimate are left out; ``size`` is that of the summands. An estimate
    must hold where the tolerance is missed too, so that every result with one counts as a success.
    """
    value, truth = np.atleast_1d(np.asarray(result.value)), np.atleast_1d(truth)
    estimate = np.broadcast_to(np.asarray(result.error_estimate), value.shape)
    error = np.abs(value - truth)
    floor = 64.0 * EPS * max(float(np.max(np.abs(truth[np.isfinite(truth)]), initial=0.0)), size)
    known = np.isfinite(estimate) & np.isfinite(truth)
    if not known.any():
        return Outcome(problem, float(np.nanmax(error)), math.nan, floor, reason=str(result.message))
    worst = np.argmax(np.where(known, error, 0.0) / np.maximum(np.where(known, estimate, 1.0), floor))
    return Outcome(problem, float(error[worst]), float(estimate[worst]), floor)


def full(operator: Any, f: Any, t: Any, **options: Any) -> Any:
    """The full output, without warnings: it says the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return operator(f, t, full_output=True, **options)


class Powers:
    """A sum of powers ``c t^p``, whose fractional derivatives are known."""

    def __init__(self, coefficients: Array, exponents: Array) -> None:
        self.terms = list(zip(coefficients, exponents, strict=True))

    def __call__(self, t: Array) -> Array:
        return np.asarray(sum(c * np.where(t > 0.0, t, 0.0) ** p if p else c + 0.0 * t for c, p in self.terms))

    def absolute(self) -> Powers:
        """The same with positive coefficients: its values are the sizes of what is added up."""
        return Powers(np.array([abs(c) for c, _ in self.terms]), np.array([p for _, p in self.terms]))

    def derivative(self, t: Array, alpha: float, *, lowest: int = 0) -> Array:
        """Of order alpha (an integral if negative), without whole powers below ``lowest``; at t > 0."""
        safe = np.where(t > 0.0, t, 1.0)
        total = np.zeros_like(safe)
        for c, p in self.terms:
            if not (float(p).is_integer() and p < lowest):
                total = total + c * gamma(p + 1.0) * rgamma(p + 1.0 - alpha) * safe ** (p - alpha)
        return np.where(t > 0.0, total, np.nan)


def grid_of(rng: np.random.Generator, kind: str, low: int = 40, high: int = 800) -> Array:
    """From 0 to some end: uniform, graded to the origin, logarithmic after a first step, or with random steps."""
    n, end = int(np.exp(rng.uniform(math.log(low), math.log(high)))), rng.uniform(0.5, 4.0)
    if kind == "uniform":
        return np.linspace(0.0, end, n)
    if kind == "graded":
        return end * np.linspace(0.0, 1.0, n) ** rng.uniform(1.2, 2.5)
    if kind == "logarithmic":
        return np.concatenate([[0.0], np.geomspace(end * 10.0 ** rng.uniform(-3.0, -1.0), end, n)])
    steps = rng.uniform(0.5, 1.5, n - 1)
    return np.concatenate([[0.0], np.cumsum(steps) / steps.sum() * end])


def order_of(rng: np.random.Generator, most: float = 3.0) -> float:
    """An order in (0, most), not next to a whole one."""
    return float(rng.integers(0, int(most)) + rng.uniform(0.05, 0.95))


def order_beside_whole(rng: np.random.Generator, most: float = 3.0) -> float:
    """An order in (0, most), 1e-5 beside a whole one."""
    return float(rng.integers(0, int(most)) + rng.choice([1e-5, 1.0 - 1e-5]))


def offset(make: Callable[..., Any]) -> Callable[..., Any]:
    """An operator that kills constants, of the samples and a constant of 1e2 to 1e8, which they determine."""

    def made(*parameters: Any) -> Any:
        return lambda f, t, **options: make(*parameters)(
            f + 10.0 ** (2.0 + 6.0 * (1e3 * abs(f).sum() % 1.0)), t, **options
        )

    return made


def start_of(rng: np.random.Generator, alpha: float, kind: str) -> Powers:
    """A function that starts as told: with whole powers, as a solution of an equation of order alpha, or like t^p."""
    n = math.ceil(alpha)
    if kind == "smooth":
        exponents = np.arange(7.0)
    elif kind == "solution":
        exponents = np.array([*range(n), alpha, alpha + 1.0, 2.0 * alpha, n, n + 1.0])
    else:
        exponents = np.array([*range(n), rng.uniform(max(alpha, 0.3), n + 1.5), n + 2.0])
    return Powers(rng.normal(size=exponents.size), exponents)


def exponential(rng: np.random.Generator) -> tuple[complex, Callable[[Array], Array]]:
    """``Re exp(z t)``, growing, falling or turning."""
    z = complex(rng.uniform(-3.0, 1.0), rng.choice([0.0, 1.0]) * rng.uniform(0.5, 12.0))
    return z, lambda t: np.exp(z * t).real


def of_exponential(z: complex, alpha: float, t: Array, lowest: int) -> Array:
    """The derivative of ``Re exp(z t)`` of order alpha, without the Taylor polynomial below ``lowest``."""
    safe = np.where(t > 0.0, t, 1.0)
    value = z**lowest * safe ** (lowest - alpha) * np.asarray(hf.mittag_leffler(z * safe, 1.0, lowest + 1.0 - alpha))
    return np.where(t > 0.0, value.real, np.nan)


def causal(
    grid: str,
    start: str,
    make: Callable[[float], Any],
    lowest: Callable[[float], int],
    most: float,
    orders: Callable[[np.random.Generator, float], float] = order_of,
) -> Trial:
    """A family of derivatives of samples: of exponentials for ``start="wave"``, else of powers."""

    def trial(rng: np.random.Generator) -> Outcome:
        alpha, t = orders(rng, most), grid_of(rng, grid)
        if start == "wave":
            z, f = exponential(rng)
            truth = of_exponential(z, alpha, t, lowest(alpha))
            words = f"z={z:.3g}"
        else:
            powers = start_of(rng, alpha, start)
            f, truth = powers, powers.derivative(t, alpha, lowest=lowest(alpha))
            words = f"terms={[(round(float(c), 3), round(float(p), 3)) for c, p in powers.terms]}"
        words = f"alpha={alpha:.4g}, n={t.size}, end={t[-1]:.3g}, {words}"
        return outcome(words, full(make(alpha), f(t), t), truth)

    return trial


def integral(grid: str, start: str) -> Trial:
    """Riemann-Liouville integrals of samples."""

    def trial(rng: np.random.Generator) -> Outcome:
        alpha, t = order_of(rng, 3.0), grid_of(rng, grid)
        if start == "wave":
            z, f = exponential(rng)
            truth, words = of_exponential(z, -alpha, t, 0), f"z={z:.3g}"
        else:
            p = rng.uniform(0.1, 2.0)
            f = Powers(rng.normal(size=3), np.array([0.0, p, p + 1.0]))
            truth, words = f.derivative(t, -alpha), f"p={p:.3g}"
        return outcome(
            f"alpha={alpha:.4g}, n={t.size}, {words}", full(hf.RiemannLiouvilleIntegral(alpha), f(t), t), truth
        )

    return trial


def integral_of_logarithms(rng: np.random.Generator) -> Outcome:
    """Samples of ``t^p log t`` with random steps."""
    alpha, t, p = order_of(rng, 3.0), grid_of(rng, "random"), rng.uniform(0.05, 2.0)
    later = np.where(t > 0.0, t, 1.0)
    bend = np.log(later) + digamma(p + 1.0) - digamma(p + 1.0 + alpha)
    truth = gamma(p + 1.0) * rgamma(p + 1.0 + alpha) * later ** (p + alpha) * bend * (t > 0.0)
    result = full(hf.RiemannLiouvilleIntegral(alpha), later**p * np.log(later), t)
    return outcome(f"alpha={alpha:.4g}, n={t.size}, p={p:.3g}", result, truth)


def unresolved(rng: np.random.Generator) -> Outcome:
    """Caputo above order 3 of an exponential that falls within one step to a tenth, or to far less."""
    alpha, t = 2.0 + order_of(rng, 3.0), grid_of(rng, "uniform", 40, 400)
    alpha, z = alpha + (alpha < 3.0), complex(-rng.uniform(2.0, 20.0) / t[1])
    truth = of_exponential(z, alpha, t, math.ceil(alpha))
    return outcome(f"alpha={alpha:.4g}, n={t.size}, z={z:.3g}", full(hf.Caputo(alpha), np.exp(z.real * t), t), truth)


def broken(make: Callable[[float], Any], power: int, grid: str = "uniform", sign: float = 1.0, most: int = 1) -> Trial:
    """Samples of a line with a jump (power 0), a kink (1) or a jump of the second derivative (2) inside.

    Where the result is infinite there, it is in the middle between two points: samples do not tell where.
    """

    def trial(rng: np.random.Generator) -> Outcome:
        order, t = rng.integers(0, most) + rng.uniform(0.05, 0.95), grid_of(rng, grid)
        at, sizes, alpha = rng.uniform(0.2, 0.8) * t[-1], rng.normal(size=2), sign * float(order)
        if alpha > power:
            cell = np.searchsorted(t, at)
            at = 0.5 * (t[cell - 1] + t[cell])
        later, slope = np.maximum(t - at, 0.0), Powers(sizes[:1], np.array([1.0]))
        f = slope(t) + sizes[1] * np.where(t > at, later**power, 0.0)
        rest = sizes[1] * gamma(power + 1.0) * rgamma(power + 1.0 - alpha)
        truth = slope.derivative(t, alpha, lowest=math.ceil(alpha) if make is hf.Caputo else 0)
        truth = truth + rest * np.where(t > at, np.where(t > at, later, 1.0) ** (power - alpha), 0.0)
        return outcome(
            f"alpha={order:.4g}, n={t.size}, at={at:.4g}, sizes={sizes}", full(make(float(order)), f, t), truth
        )

    return trial


def hadamard(make: Callable[[float], Any], lowest: Callable[[float], int], most: float, sign: float = 1.0) -> Trial:
    """Operators in log t, of powers of log t, on points that are uniform there."""

    def trial(rng: np.random.Generator) -> Outcome:
        alpha, x = order_of(rng, most), grid_of(rng, "uniform", 40, 400)
        powers = start_of(rng, alpha, str(rng.choice(["smooth", "solution"])))
        truth = powers.derivative(x, sign * alpha, lowest=lowest(alpha))
        return outcome(f"alpha={alpha:.4g}, n={x.size}", full(make(alpha), powers(x), np.exp(x)), truth)

    return trial


def psi_caputo(rng: np.random.Generator) -> Outcome:
    """Points whose squares are psi."""
    alpha, t = order_of(rng, 3.0), grid_of(rng, "uniform", 40, 400)
    powers = start_of(rng, alpha, str(rng.choice(["smooth", "solution"])))
    truth = powers.derivative(t**2, alpha, lowest=math.ceil(alpha))
    return outcome(f"alpha={alpha:.4g}, n={t.size}", full(hf.PsiCaputo(alpha, np.square), powers(t**2), t), truth)


def katugampola(make: Callable[[float, float], Any], lowest: Callable[[float], int], sign: float = 1.0) -> Trial:
    """Operators in t^rho / rho, of powers of it, on points uniform in it or in t."""

    def trial(rng: np.random.Generator) -> Outcome:
        alpha, rho, t = order_of(rng, 2.0), rng.uniform(0.5, 2.5), grid_of(rng, "uniform", 40, 300)
        if rng.random() < 0.5:
            t = t ** (1.0 / rho)
        x = t**rho / rho
        powers = start_of(rng, alpha, str(rng.choice(["smooth", "solution"])))
        truth = powers.derivative(x, sign * alpha, lowest=lowest(alpha))
        words = f"alpha={alpha:.4g}, rho={rho:.3g}, n={t.size}, end={t[-1]:.3g}"
        return outcome(words, full(make(alpha, rho), powers(x), t), truth)

    return trial


def erdelyi_kober(make: Callable[[float, float, float], Any], sign: float, callables: bool) -> Trial:
    """Sums of powers, each of which is multiplied by a quotient of Gamma functions."""

    def trial(rng: np.random.Generator) -> Outcome:
        alpha, eta, sigma = order_of(rng, 2.0), rng.uniform(-0.9, 2.0), rng.uniform(0.5, 2.5)
        x = grid_of(rng, "uniform", 40, 300)
        t = x ** (1.0 / sigma) if rng.random() < 0.5 or callables else x
        powers = Powers(rng.normal(size=3), sigma * np.array([0.0, 1.0, rng.uniform(1.2, 3.0)]))
        low = [eta + 1.0 + p / sigma for _, p in powers.terms]
        sizes = [gamma(b + alpha) / gamma(b) if sign > 0.0 else gamma(b) / gamma(b + alpha) for b in low]
        truth = np.asarray(sum(c * size * t**p for (c, p), size in zip(powers.terms, sizes, strict=True)))
        size = float(sum(abs(c) * one * t[-1] ** p for (c, p), one in zip(powers.terms, sizes, strict=True)))
        words = f"alpha={alpha:.4g}, eta={eta:.3g}, sigma={sigma:.3g}, n={t.size}, terms={powers.terms}"
        if callables:
            return outcome(words, full(make(alpha, eta, sigma), powers, t[1::20]), truth[1::20], size=size)
        return outcome(words, full(make(alpha, eta, sigma), powers(t), t), truth)

    return trial


def prabhakar(make: Callable[..., Any], sign: float) -> Trial:
    """Samples of powers, whose results are Mittag-Leffler functions of three parameters."""

    def trial(rng: np.random.Generator) -> Outcome:
        alpha, rho, t = order_of(rng, 1.0), rng.uniform(0.5, 1.0), grid_of(rng, "uniform", 40, 100)
        shape, omega, p = float(rng.choice([0.5, 1.0, 2.0])), rng.uniform(-2.0, 0.0), rng.uniform(1.0, 3.0)
        size, order = gamma(p + 1.0) * rng.normal(), sign * alpha
        bent = np.asarray(hf.mittag_leffler(omega * t**rho, rho, p + 1.0 - order, -sign * shape))
        truth = size * np.where(t > 0.0, t, 1.0) ** (p - order) * bent * (t > 0.0)
        words = f"alpha={alpha:.4g}, rho={rho:.4g}, gamma={shape:.4g}, omega={omega:.4g}, p={p:.3g}, n={t.size}"
        return outcome(words, full(make(alpha, rho, shape, omega), size / gamma(p + 1.0) * t**p, t), truth)

    return trial


def sonine(rng: np.random.Generator) -> Outcome:
    """Samples of powers with a sum of two power laws as kernel, and the integral with its associated kernel."""
    (a, b), t = np.sort(rng.uniform(0.1, 0.9, 2)), grid_of(rng, "uniform", 40, 200)
    p, size = rng.uniform(1.0, 3.0), rng.uniform(0.2, 3.0)

    def kernel(u: Array) -> Array:
        return np.asarray(u**-b * rgamma(1.0 - b) + size * u**-a * rgamma(1.0 - a))

    words = f"{a:.4g}, {b:.4g}, size={size:.3g}, p={p:.3g}, n={t.size}, end={t[-1]:.3g}"
    if rng.random() < 0.5:
        truth = sum(c * gamma(p + 1.0) * rgamma(p + 1.0 - q) * t ** (p - q) for c, q in ((1.0, b), (size, a)))
        return outcome(words, full(hf.SonineDerivative(kernel), t**p, t), np.asarray(truth))
    bent = np.asarray(hf.mittag_leffler(-size * t ** (b - a), b - a, p + 1.0 + b))
    return outcome(words, full(hf.SonineIntegral(kernel), t**p, t), gamma(p + 1.0) * t ** (p + b) * bent)


def hilfer(rng: np.random.Generator) -> Outcome:
    """A callable that starts with the power that is mapped to 0, or with a higher one."""
    alpha, beta, end = order_of(rng, 1.0), float(rng.choice([0.0, rng.uniform(0.0, 1.0)])), rng.uniform(0.3, 4.0)
    low, t = (1.0 - beta) * (alpha - 1.0), np.sort(rng.uniform(0.05, 1.0, 5)) * end
    start = float(rng.choice([low, rng.uniform(0.9 * low, 0.0)]))
    powers = Powers(rng.normal(size=4), start + np.arange(4.0))
    rest = Powers(*(np.array(each) for each in zip(*powers.terms[start == low :], strict=True)))
    size = float(powers.absolute().derivative(t, alpha).max())
    result = full(hf.Hilfer(alpha, beta), powers, t, factor=start)
    words = f"alpha={alpha:.4g}, beta={beta:.3g}, start={start:.4g}, end={end:.3g}"
    return outcome(words, result, rest.derivative(t, alpha), size=size)


def riesz_feller(rng: np.random.Generator) -> Outcome:
    """A Gaussian with its wave, on the line, by its Fourier integral."""
    alpha, n = rng.uniform(0.1, 1.9), int(np.exp(rng.uniform(math.log(161), math.log(801))))
    theta, wave = rng.uniform(-1.0, 1.0) * min(alpha, 2.0 - alpha), rng.uniform(0.0, 3.0)
    x = np.linspace(-6.0, 6.0, n)
    k, weights = np.polynomial.legendre.leggauss(300)
    k, weights = 7.5 * k + 7.5, 7.5 * weights
    size = -(k**alpha) * weights * (np.exp(-((k - wave) ** 2) / 4.0) + np.exp(-((k + wave) ** 2) / 4.0))
    inside = np.abs(x) < 3.0
    truth = np.full(n, np.nan)
    truth[inside] = np.cos(np.multiply.outer(x[inside], k) - 0.5 * math.pi * theta) @ size / (2.0 * math.sqrt(math.pi))
    result = full(hf.RieszFeller(alpha, theta), np.exp(-(x**2)) * np.cos(wave * x), x)
    return outcome(f"alpha={alpha:.4g}, theta={theta:.4g}, wave={wave:.3g}, n={n}", result, truth)


def distributed(rng: np.random.Generator) -> Outcome:
    """The weight Gamma(p + 1 - beta) of samples of t^p: Gamma(p + 1) (t^(p - a) - t^(p - b)) / log t."""
    above = int(rng.integers(0, 2))
    low, high = np.sort(above + rng.uniform(0.02, 1.0, 2))
    t, p = grid_of(rng, str(rng.choice(["uniform", "random"])), 40, 300), rng.uniform(above + 1.0, 4.0)
    safe = np.where(np.abs(t - 1.0) < 1e-6, 1.0 + 1e-6, np.where(t > 0.0, t, 2.0))
    truth = gamma(p + 1.0) * (safe ** (p - low) - safe ** (p - high)) / np.log(safe)
    operator = hf.DistributedOrder(lambda beta: math.gamma(p + 1.0 - beta), float(low), float(high), 10)
    words = f"{low:.3g} to {high:.3g}, p={p:.3g}, n={t.size}"
    return outcome(words, full(operator, t**p, t), np.where(t > 0.0, truth, np.nan))


def tempered(kind: Any, initial: bool, most: float, orders: Callable[..., float] = order_of) -> Trial:
    """``exp(-rate t)`` times powers."""

    def trial(rng: np.random.Generator) -> Outcome:
        alpha, t, rate = orders(rng, most), grid_of(rng, "uniform", 40, 400), rng.uniform(0.0, 4.0)
        powers = start_of(rng, alpha, str(rng.choice(["smooth", "solution"])))
        fall = np.exp(-rate * t)
        truth = fall * powers.derivative(t, alpha, lowest=0 if initial else math.ceil(alpha))
        words = f"alpha={alpha:.4g}, rate={rate:.3g}, n={t.size}"
        return outcome(words, full(kind(alpha, rate), fall * powers(t), t), truth)

    return trial


def variable(rng: np.random.Generator) -> Outcome:
    """An order that rises or falls within one interval."""
    n = int(rng.integers(1, 3))
    t = grid_of(rng, "uniform", 40, 200)
    low, high = n - 1.0 + rng.uniform(0.1, 0.9, 2)
    alpha = low + (high - low) * t / t[-1]
    powers = start_of(rng, float(low), str(rng.choice(["smooth", "solution"])))
    truth = np.array([float(powers.derivative(t[i : i + 1], a, lowest=n)[0]) for i, a in enumerate(alpha)])
    return outcome(f"{low:.4g} to {high:.4g}, n={t.size}", full(hf.VariableOrder(alpha), powers(t), t), truth)


def of_callable(make: Callable[[float], Any], start: str, sign: float, lowest: Callable[[float], int]) -> Trial:
    """Callables: exponentials, and powers with and without ``factor=``."""

    def trial(rng: np.random.Generator) -> Outcome:
        alpha, end = order_of(rng, 3.0), 10.0 ** rng.uniform(-1.0, 1.0)
        t = np.sort(rng.uniform(0.05, 1.0, 5)) * end
        options: dict[str, Any] = {}
        size = 0.0
        if start == "wave":
            z, f = exponential(rng)
            truth, words = of_exponential(z, sign * alpha, t, lowest(alpha)), f"z={z:.3g}"
        else:
            p = rng.uniform(max(sign * alpha, 0.1), 4.0)
            f = Powers(rng.normal(size=2), np.array([p, p + 1.0]))
            truth, words = f.derivative(t, sign * alpha, lowest=lowest(alpha)), f"p={p:.4g}"
            size = float(f.absolute().derivative(t, sign * alpha, lowest=lowest(alpha)).max())
            if start == "factor":
                options["factor"] = p
        words = f"alpha={alpha:.4g}, end={end:.3g}, {words}"
        return outcome(words, full(make(alpha), f, t, **options), truth, size=size)

    return trial


def tempered_integral(rng: np.random.Generator) -> Outcome:
    """``exp(-rate t)`` times powers, integrated."""
    alpha, t, rate = order_of(rng, 2.0), grid_of(rng, "uniform", 40, 400), rng.uniform(0.0, 4.0)
    p = rng.uniform(0.2, 2.0)
    powers, fall = Powers(rng.normal(size=3), np.array([0.0, p, p + 1.0])), np.exp(-rate * t)
    result = full(hf.TemperedIntegral(alpha, rate), fall * powers(t), t)
    return outcome(f"alpha={alpha:.4g}, p={p:.3g}, n={t.size}", result, fall * powers.derivative(t, -alpha))


def weyl(rng: np.random.Generator) -> Outcome:
    """A periodic callable: Poisson's kernel, of any sharpness."""
    alpha, r = order_of(rng, 3.0), rng.uniform(0.05, 0.95)
    x, k = np.sort(rng.uniform(0.0, 6.0, 7)), np.arange(1.0, 1200.0)[:, None]
    truth = (k**alpha * r**k * np.cos(k * x + alpha * np.pi / 2.0)).sum(axis=0)
    result = full(
        hf.Weyl(alpha, period=2.0 * np.pi), lambda s: (r * np.cos(s) - r * r) / (1 - 2 * r * np.cos(s) + r * r), x
    )
    return outcome(f"alpha={alpha:.4g}, r={r:.4g}", result, truth)


def exponential_kernel(make: Callable[[float], Any], *grids: str) -> Trial:
    """Caputo-Fabrizio of samples of an exponential."""

    def trial(rng: np.random.Generator) -> Outcome:
        alpha, t = order_of(rng, 1.0), grid_of(rng, str(rng.choice(grids)))
        z, f = exponential(rng)
        rate = alpha / (1.0 - alpha)
        truth = (z * (np.exp(z * t) - np.exp(-rate * t)) / (z + rate)).real / (1.0 - alpha)
        return outcome(f"alpha={alpha:.4g}, n={t.size}, z={z:.3g}", full(make(alpha), f(t), t), truth)

    return trial


def mittag_leffler_kernel(make: Callable[[float], Any], constant: float) -> Trial:
    """Atangana-Baleanu of samples of powers (whole, or one below 1), in Riemann's sense with a constant."""

    def trial(rng: np.random.Generator) -> Outcome:
        alpha, t = order_of(rng, 1.0), grid_of(rng, "uniform", 40, 300)
        p = float(rng.choice([1.0, 2.0, rng.uniform(0.4, 1.0)]))
        decay, first = -alpha / (1.0 - alpha) * t**alpha, constant * rng.normal()
        truth = gamma(p + 1.0) * t**p * np.asarray(hf.mittag_leffler(decay, alpha, p + 1.0))
        truth = (truth + first * np.asarray(hf.mittag_leffler(decay, alpha))) / (1.0 - alpha)
        return outcome(f"alpha={alpha:.4g}, p={p:.3g}, n={t.size}", full(make(alpha), first + t**p, t), truth)

    return trial


def marchaud(rng: np.random.Generator) -> Outcome:
    """Samples of an exponential that was some other constant before."""
    alpha, t, before = order_of(rng, 2.0), grid_of(rng, "uniform"), rng.normal()
    z, f = exponential(rng)
    truth = of_exponential(z, alpha, t, 0) - Powers(np.array([before]), np.array([0.0])).derivative(t, alpha)
    words = f"alpha={alpha:.4g}, n={t.size}, z={z:.3g}, before={before:.3g}"
    return outcome(words, full(hf.Marchaud(alpha, before), f(t), t), truth)


def weighted_mean(make: Callable[[float], Any], power: Callable[[float], float]) -> Trial:
    """Integrals of bounded kernels: f and its integral of order ``power(alpha)``."""

    def trial(rng: np.random.Generator) -> Outcome:
        alpha, t = order_of(rng, 1.0), grid_of(rng, str(rng.choice(["uniform", "random"])))
        z, f = exponential(rng)
        truth = (1.0 - alpha) * f(t) + alpha * of_exponential(z, -power(alpha), t, 0)
        return outcome(f"alpha={alpha:.4g}, n={t.size}, z={z:.3g}", full(make(alpha), f(t), t), truth)

    return trial


def getoor(make: Callable[[float], Any], sign: float = 1.0) -> Trial:
    """``sign`` times Riesz's derivative of ``(1 - x^2)^p`` on [-1, 1], zero outside; Getoor's for p = alpha / 2."""

    def trial(rng: np.random.Generator) -> Outcome:
        alpha, n = rng.uniform(0.1, 1.9), int(np.exp(rng.uniform(math.log(41), math.log(801))))
        p = float(rng.choice([alpha / 2.0, rng.uniform(alpha / 2.0, 4.0)]))
        x = np.linspace(-1.0, 1.0, n)
        size = 2.0**alpha * gamma((1.0 + alpha) / 2.0) * gamma(p + 1.0) * rgamma(0.5) * rgamma(p + 1.0 - alpha / 2.0)
        inside = np.abs(x) < 0.9
        truth = np.full(n, np.nan)
        truth[inside] = -sign * size * hyp2f1((1.0 + alpha) / 2.0, alpha / 2.0 - p, 0.5, x[inside] ** 2)
        f = np.maximum(1.0 - x**2, 0.0) ** p
        return outcome(f"alpha={alpha:.4g}, p={p:.4g}, n={n}", full(make(alpha), f, x), truth)

    return trial


def first_above(alpha: float) -> int:
    """Caputo's integer n."""
    return math.ceil(alpha)


def none(alpha: float) -> int:
    """Riemann-Liouville: no Taylor polynomial is left out."""
    return 0


_STARTS = ("wave", "smooth", "solution", "power")
FAMILIES: dict[str, Trial] = {
    **{f"caputo, samples, {start}": causal("uniform", start, hf.Caputo, first_above, 3.0) for start in _STARTS},
    **{
        f"caputo, {grid} samples, {start}": causal(grid, start, hf.Caputo, first_above, 2.0)
        for grid in ("graded", "random")
        for start in ("wave", "solution")
    },
    **{
        f"riemann_liouville, samples, {start}": causal("uniform", start, hf.RiemannLiouville, none, 3.0)
        for start in _STARTS
    },
    "riemann_liouville, random samples": causal("random", "wave", hf.RiemannLiouville, none, 2.0),
    **{
        f"grunwald_letnikov, samples, {start}": causal("uniform", start, hf.GrunwaldLetnikov, none, 2.0)
        for start in ("wave", "power")
    },
    **{
        f"integral, {grid} samples, {start}": integral(grid, start)
        for grid, start in (("uniform", "wave"), ("uniform", "power"), ("random", "wave"), ("graded", "power"))
    },
    **{
        f"{name}, {grid} samples, beside whole orders": causal(grid, "wave", make, lowest, 3.0, order_beside_whole)
        for name, make, lowest in (("caputo", hf.Caputo, first_above), ("riemann_liouville", hf.RiemannLiouville, none))
        for grid in ("uniform", "random")
    },
    "tempered, samples, beside whole orders": tempered(hf.TemperedRiemannLiouville, True, 3.0, order_beside_whole),
    **{
        f"{name}, logarithmic samples": causal("logarithmic", "wave", make, lowest, 2.0)
        for name, make, lowest in (("caputo", hf.Caputo, first_above), ("riemann_liouville", hf.RiemannLiouville, none))
    },
    "caputo_fabrizio, logarithmic samples": exponential_kernel(hf.CaputoFabrizio, "logarithmic"),
    "integral, logarithmic samples": integral("logarithmic", "wave"),
    "integral, random samples, logarithms": integral_of_logarithms,
    "caputo, samples that fall at once": unresolved,
    **{
        f"caputo, {grid} samples with an offset": causal(grid, "wave", offset(hf.Caputo), first_above, 2.0)
        for grid in ("uniform", "random", "logarithmic")
    },
    "caputo, samples with an offset, beside whole orders": causal(
        "random", "wave", offset(hf.Caputo), first_above, 1.0, order_beside_whole
    ),
    "caputo_fabrizio, samples with an offset": exponential_kernel(offset(hf.CaputoFabrizio), "uniform", "random"),
    "atangana_baleanu, samples with an offset": mittag_leffler_kernel(offset(hf.AtanganaBaleanu), 0.0),
    "prabhakar, samples with an offset": prabhakar(offset(hf.Prabhakar), 1.0),
    "caputo_hadamard, samples with an offset": hadamard(offset(hf.CaputoHadamard), first_above, 2.0),
    "caputo_katugampola, samples with an offset": katugampola(offset(hf.CaputoKatugampola), first_above),
    "caputo, samples with a kink": broken(hf.Caputo, 1),
    "caputo, random samples with a kink": broken(hf.Caputo, 1, "random"),
    "caputo, samples with a bend, above order 1": broken(hf.Caputo, 2, most=2),
    "caputo, samples with a jump": broken(hf.Caputo, 0),
    "riemann_liouville, samples with a jump": broken(hf.RiemannLiouville, 0),
    "riemann_liouville, samples with a kink": broken(hf.RiemannLiouville, 1, most=2),
    "grunwald_letnikov, samples with a jump": broken(hf.GrunwaldLetnikov, 0),
    "integral, samples with a jump": broken(hf.RiemannLiouvilleIntegral, 0, sign=-1.0, most=2),
    "integral, random samples with a jump": broken(hf.RiemannLiouvilleIntegral, 0, "random", sign=-1.0, most=2),
    "marchaud, samples": marchaud,
    "caputo_hadamard, samples": hadamard(hf.CaputoHadamard, first_above, 3.0),
    "hadamard, samples": hadamard(hf.Hadamard, none, 3.0),
    "hadamard_integral, samples": hadamard(hf.HadamardIntegral, none, 2.0, -1.0),
    "psi_caputo, samples": psi_caputo,
    "katugampola, samples": katugampola(hf.Katugampola, none),
    "caputo_katugampola, samples": katugampola(hf.CaputoKatugampola, first_above),
    "katugampola_integral, samples": katugampola(hf.KatugampolaIntegral, none, -1.0),
    **{
        f"erdelyi_kober{name}, {what}": erdelyi_kober(make, sign, what == "callable")
        for name, make, sign in (("", hf.ErdelyiKober, 1.0), ("_integral", hf.ErdelyiKoberIntegral, -1.0))
        for what in ("samples", "callable")
    },
    "prabhakar, samples": prabhakar(hf.Prabhakar, 1.0),
    "prabhakar_integral, samples": prabhakar(hf.PrabhakarIntegral, -1.0),
    "sonine, samples": sonine,
    "hilfer, callable": hilfer,
    "riesz_feller, samples": riesz_feller,
    "distributed_order, samples": distributed,
    "tempered_caputo, samples": tempered(hf.TemperedCaputo, False, 3.0),
    "tempered, samples": tempered(hf.TemperedRiemannLiouville, True, 2.0),
    "variable_order, samples": variable,
    "caputo_fabrizio, samples": exponential_kernel(hf.CaputoFabrizio, "uniform", "random"),
    "caputo_fabrizio_integral, samples": weighted_mean(hf.CaputoFabrizioIntegral, lambda alpha: 1.0),
    "atangana_baleanu, samples": mittag_leffler_kernel(hf.AtanganaBaleanu, 0.0),
    "atangana_baleanu_riemann, samples": mittag_leffler_kernel(hf.AtanganaBaleanuRiemann, 1.0),
    "atangana_baleanu_integral, samples": weighted_mean(hf.AtanganaBaleanuIntegral, lambda alpha: alpha),
    "tempered_integral, samples": tempered_integral,
    "weyl, callable": weyl,
    "riesz, centred": getoor(lambda alpha: hf.Riesz(alpha, "centred")),
    "riesz, centred4": getoor(lambda alpha: hf.Riesz(alpha, "centred4")),
    "fractional_laplacian, samples": getoor(hf.FractionalLaplacian, -1.0),
    **{
        f"caputo, callable, {start}": of_callable(hf.Caputo, start, 1.0, first_above)
        for start in ("wave", "factor", "power")
    },
    **{
        f"riemann_liouville, callable, {start}": of_callable(hf.RiemannLiouville, start, 1.0, none)
        for start in ("wave", "factor", "power")
    },
    **{
        f"integral, callable, {start}": of_callable(hf.RiemannLiouvilleIntegral, start, -1.0, none)
        for start in ("wave", "factor", "power")
    },
}
