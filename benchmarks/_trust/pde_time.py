"""Partial equations with other memories in time: sources outside, several orders, variable ones, delays, integrals."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gamma

import hpfracc as hf
from benchmarks._trust.campaign import Outcome, Trial
from benchmarks._trust.pde import Sines, X, outcome
from hpfracc.pde import Diffusion, Dirichlet
from hpfracc.special import mittag_leffler as ml


def _outside(rng: np.random.Generator) -> Outcome:
    """The Fokker-Planck form: powers of time outside the memory, whose responses have the order 1."""
    alpha, end = float(rng.uniform(0.3, 0.95)), float(10.0 ** rng.uniform(-1.0, 1.0))
    case = Sines(rng, alpha, [], end)
    powers = [[0.0], [1.0, 2.0], [0.5]][rng.integers(3)]
    switch = 0.0 if rng.uniform() < 0.6 else float(rng.uniform(0.2, 0.8)) * end
    sizes = rng.normal(size=(len(powers), case.modes.size))
    case.forcing = [(switch, power, size) for power, size in zip(powers, sizes, strict=True)]

    def exact(t: np.ndarray) -> np.ndarray:
        gone = np.maximum(np.asarray(t)[:, None] - switch, 0.0)
        total = ml(-case.rates * np.asarray(t)[:, None] ** alpha, alpha) * case.start
        for power, size in zip(powers, sizes, strict=True):
            response = gone ** (power + 1.0) * ml(-case.rates * gone**alpha, alpha, power + 2.0)
            total = total + math.gamma(power + 1.0) * response * size
        return np.asarray(total @ case.shapes)

    rtol = float(10.0 ** rng.uniform(-3.7, -2.5))
    method = str(rng.choice(["auto", "l1"]))
    found = case.solve(method, form="fokker_planck", rtol=rtol, atol=rtol * 1e-3)
    words = f"alpha={alpha:.3f}, end={end:.3g}, rates={case.rates}, forcing={case.forcing}, rtol={rtol:.2g}"
    return outcome(found, exact, words, rtol, rtol * 1e-3)


def _components(rng: np.random.Generator) -> Outcome:
    """An order for each of two components that do not meet."""
    orders = rng.uniform(0.25, 0.95, size=2)
    end, rates = float(10.0 ** rng.uniform(-1.0, 1.0)), 10.0 ** rng.uniform(-1.0, 1.0, size=2)
    rtol = float(10.0 ** rng.uniform(-3.5, -2.5))
    found = hf.solve_fpde(
        None,
        (0.0, end),
        np.stack([np.sin(X), np.sin(2.0 * X)]),
        x=X,
        space=[Diffusion(rates[0]), Diffusion(rates[1])],
        boundary="dirichlet",
        alpha=orders.tolist(),
        method=str(rng.choice(["auto", "l1"])),
        rtol=rtol,
        atol=rtol * 1e-3,
        max_steps=1 << 12,
    )

    def exact(t: np.ndarray) -> np.ndarray:
        parts = zip(orders.tolist(), rates * [1.0, 4.0], (np.sin(X), np.sin(2.0 * X)), strict=True)
        return np.stack([ml(-rate * t**alpha, alpha)[:, None] * shape for alpha, rate, shape in parts], axis=1)

    return outcome(found, exact, f"orders={orders}, end={end:.3g}, rates={rates}, rtol={rtol:.2g}", rtol, rtol * 1e-3)


def _variable(rng: np.random.Generator) -> Outcome:
    """An order that varies in time or space, and u = (1 + a t + b t^2) sin x by a source."""
    end = float(10.0 ** rng.uniform(-1.0, 0.5))
    low, high = np.sort(rng.uniform(0.3, 0.9, size=2))
    a, b = rng.normal(size=2) / np.array([1.0, max(1.0, end)])
    in_space = bool(rng.uniform() < 0.5)
    rate = (2.0 * math.sin(X[1] / 2.0) / X[1]) ** 2 if in_space else 1.0

    def order(t: float, x: np.ndarray) -> np.ndarray:
        return low + (high - low) * (np.sin(x) if in_space else 0.5 - 0.5 * math.cos(t) + 0.0 * x)

    def source(t: float, x: np.ndarray) -> np.ndarray:
        alpha = order(t, x)
        slope = a * t ** (1.0 - alpha) / gamma(2.0 - alpha) + 2.0 * b * t ** (2.0 - alpha) / gamma(3.0 - alpha)
        return np.asarray((slope + rate * (1.0 + a * t + b * t**2)) * np.sin(x))

    rtol = float(10.0 ** rng.uniform(-3.5, -2.5))
    found = hf.solve_fpde(
        None,
        (0.0, end),
        np.sin(X),
        x=X,
        space=Diffusion(1.0),
        boundary="dirichlet",
        alpha=(lambda x: order(0.0, x)) if in_space else (lambda t: float(order(t, np.zeros(1))[0])),
        source=source,
        rtol=rtol,
        atol=rtol * 1e-3,
        max_steps=1 << 12,
        estimate=True,
    )
    words = f"orders {low:.3f} to {high:.3f}, {in_space=}, end={end:.3g}, a={a:.3g}, b={b:.3g}, rtol={rtol:.2g}"
    return outcome(found, lambda t: (1.0 + a * t + b * t**2)[:, None] * np.sin(X), words, rtol, rtol * 1e-3)


def _delays(rng: np.random.Generator) -> Outcome:
    """``D^alpha u = -k u(t - d)``, the same everywhere, by the method of steps; the history may jump to u0."""
    alpha = float(rng.choice([float(rng.uniform(0.3, 0.95)), 1.0, float(rng.uniform(1.1, 1.8))], p=[0.7, 0.15, 0.15]))
    delay, end = float(rng.uniform(0.3, 1.0)), float(rng.uniform(1.0, 2.0))
    rate = float(rng.uniform(0.3, 1.5))
    before = 1.0 if alpha >= 1.0 or rng.uniform() < 0.5 else float(rng.uniform(-1.0, 1.0))

    def exact(t: np.ndarray) -> np.ndarray:
        total = 1.0 + 0.0 * t
        for j in range(8):
            gone, power = np.maximum(t - j * delay, 0.0), j * alpha
            if j:
                total = total + (-rate) ** j * gone**power / math.gamma(1.0 + power)
            part = (-rate) ** (j + 1) * before / math.gamma(1.0 + power + alpha)
            total = total + part * (gone ** (power + alpha) - np.maximum(gone - delay, 0.0) ** (power + alpha))
        return np.asarray(total[:, None] * np.ones_like(X))

    rtol = float(10.0 ** rng.uniform(-3.5, -2.5))
    found = hf.solve_fpde(
        lambda t, u, then: -rate * then[0],
        (0.0, end),
        np.ones_like(X),
        x=X,
        space=Diffusion(1.0),
        boundary="neumann",
        alpha=alpha,
        du0=0.0 if alpha > 1.0 else None,
        delays=[delay],
        history=before,
        rtol=rtol,
        atol=rtol * 1e-3,
        max_steps=1 << 12,
    )
    words = f"{alpha=:.3f}, {delay=:.3g}, {end=:.3g}, {rate=:.3g}, {before=:.3g}, {rtol=:.2g}"
    return outcome(found, exact, words, rtol, rtol * 1e-3)


def _integrals(rng: np.random.Generator) -> Outcome:
    """``D^alpha u + c I^beta u = 0``, the same everywhere."""
    alpha = float(rng.choice([float(rng.uniform(0.3, 0.95)), 1.0, float(rng.uniform(1.1, 1.6))]))
    beta = float(rng.uniform(0.2, min(1.2, 1.95 - alpha) if alpha < 1.7 else 0.3))
    end, rate = float(10.0 ** rng.uniform(-0.5, 0.7)), float(rng.uniform(0.2, 2.0))
    velocity = float(rng.normal()) if alpha > 1.0 else 0.0
    rtol = float(10.0 ** rng.uniform(-4.0, -2.5))
    found = hf.solve_fpde(
        None,
        (0.0, end),
        np.ones_like(X),
        x=X,
        space=Diffusion(1.0),
        boundary="neumann",
        alpha=alpha,
        du0=velocity if alpha > 1.0 else None,
        terms=[(rate, -beta)],
        method="l1" if alpha < 1.0 and rng.uniform() < 0.4 else "auto",
        rtol=rtol,
        atol=rtol * 1e-3,
        max_steps=1 << 12,
    )

    def exact(t: np.ndarray) -> np.ndarray:
        z = -rate * t ** (alpha + beta)
        total = ml(z, alpha + beta) + velocity * t * ml(z, alpha + beta, 2.0)
        return np.asarray(total[:, None] * np.ones_like(X))

    words = f"{alpha=:.3f}, {beta=:.3f}, {end=:.3g}, {rate=:.3g}, {velocity=:.3g}, {rtol=:.2g}"
    return outcome(found, exact, words, rtol, rtol * 1e-3)


def _steady(rng: np.random.Generator) -> Outcome:
    """Steady states u = sin(k pi x) + a x + b of diffusion with a coefficient and a reaction, made so by a source."""
    x = np.linspace(0.0, 1.0, int(rng.choice([33, 48, 65, 128])))
    a, b, k = float(rng.normal()), float(rng.normal()), float(rng.uniform(0.5, 3.0)) * math.pi
    slope, rate = float(rng.uniform(-0.8, 2.0)), float(rng.choice([0.0, 1.0]))

    def exact(x: np.ndarray) -> np.ndarray:
        return np.asarray(np.sin(k * x) + a * x + b)

    def source(t: float, x: np.ndarray) -> np.ndarray:
        u = exact(x)
        return np.asarray((1.0 + slope * x) * k * k * np.sin(k * x) - slope * (k * np.cos(k * x) + a) + rate * u**3)

    found = hf.steady_state(
        (lambda t, u: -(u**3)) if rate else None,
        x=x,
        space=Diffusion((lambda x: 1.0 + slope * x) if slope else 1.0),
        boundary=(Dirichlet(b), Dirichlet(float(exact(x[-1:])[0]))),
        source=source,
    )
    error = float(np.abs(found.u - exact(x)).max())
    words = f"{a=:.3g}, {b=:.3g}, {k=:.3g}, {slope=:.3g}, {rate=}, {x.size} points"
    return Outcome(words, error, found.error_estimate, 1e-11, None, True, "; ".join(found.notes))


FAMILIES: dict[str, Trial] = {
    "pde: sources outside the memory": _outside,
    "pde: an order for each component": _components,
    "pde: orders of time and place": _variable,
    "pde: delays": _delays,
    "pde: integrals on the left": _integrals,
    "pde: steady states": _steady,
}
