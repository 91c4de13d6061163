"""Partial equations in time: sines, whose grid has no error, with sources and reactions that have closed solutions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import hpfracc as hf
from benchmarks._trust.campaign import Outcome, Trial
from hpfracc.errors import AccuracyWarning
from hpfracc.pde import CorrectedQuadrature, Diffusion, DiffusionL1, DiffusionL2Sigma, Dirichlet, FractionalDiffusion
from hpfracc.special import mittag_leffler as ml

Array = np.ndarray[Any, Any]
X = np.linspace(0.0, math.pi, 9)
#: Frames that are compared: all early ones, and some later ones.
_EARLY, _LATER = 60, 200
#: A solve that needs more steps fails, and says so.
_STEPS = 1 << 12


class Sines:
    r"""A few sines with :math:`D^\alpha u_k = -\lambda_k u_k + \sum_i a_i g_i(t)` and their solution.

    Each :math:`g_i` is a power of time after a switch, :math:`(t - s)_+^p`, whose response is
    :math:`\Gamma(p+1) (t-s)^{p+\alpha} E_{\alpha,p+\alpha+1}(-\lambda (t-s)^\alpha)`.
    """

    def __init__(self, rng: np.random.Generator, alpha: float, powers: list[tuple[float, float]], end: float) -> None:
        self.alpha, self.end = alpha, end
        self.modes = np.unique(rng.integers(1, 6, size=2))
        self.coefficient = 10.0 ** rng.uniform(-1.0, 0.7)
        self.order = float(rng.choice([2.0, 1.5]))
        self.rates = self.coefficient * self.modes**self.order
        self.start = rng.normal(size=self.modes.size)
        self.velocity = rng.normal(size=self.modes.size) if alpha > 1.0 else None
        self.shapes = np.sin(self.modes[:, None] * X)
        #: (switch, power, amplitude for each mode)
        self.forcing = [(s, p, rng.normal(size=self.modes.size)) for s, p in powers]

    @property
    def space(self) -> Any:
        """The term in space."""
        if self.order == 2.0:
            return Diffusion(self.coefficient)
        return FractionalDiffusion(self.order, "spectral", self.coefficient)

    def amplitude(self, t: float) -> Array:
        """The source's coefficient for each mode."""
        total = np.zeros(self.modes.size)
        for switch, power, sizes in self.forcing:
            if t > switch:
                total = total + sizes * (t - switch) ** power
        return total

    def source(self, t: float, x: Array) -> Array:
        """The source at the unknown points."""
        return np.asarray(self.amplitude(t) @ np.sin(self.modes[:, None] * x))

    def __call__(self, t: Array) -> Array:
        """The solution on the grid at the times, of shape (times, points)."""
        t, alpha = np.asarray(t)[:, None], self.alpha
        z = -self.rates * t**alpha
        total = ml(z, alpha) * self.start
        if self.velocity is not None:
            total = total + t * ml(z, alpha, 2.0) * self.velocity
        for switch, power, sizes in self.forcing:
            gone = np.maximum(t - switch, 0.0)
            response = gone ** (power + alpha) * ml(-self.rates * gone**alpha, alpha, power + alpha + 1.0)
            total = total + math.gamma(power + 1.0) * response * sizes
        return np.asarray(total @ self.shapes)

    def solve(self, method: Any, *, reaction: Any = None, **more: Any) -> Any:
        """Solve it; a part of the diffusion may be given as a reaction."""
        given: dict[str, Any] = {"x": X, "space": self.space, "boundary": "dirichlet", "alpha": self.alpha}
        given["max_steps"] = _STEPS
        if self.velocity is not None:
            given["du0"] = self.velocity @ self.shapes
        if self.forcing:
            given["source"] = self.source
        with warnings.catch_warnings():  # that the grid is too coarse: it has no error for sines
            warnings.simplefilter("ignore", AccuracyWarning)
            return hf.solve_fpde(
                reaction, (0.0, self.end), self.start @ self.shapes, method=method, **{**given, **more}
            )


def outcome(found: Any, exact: Callable[[Array], Array], words: str, rtol: float | None, atol: float = 1e-9) -> Outcome:
    """Compare all early frames and some later ones with the truth."""
    some = np.unique(
        np.concatenate([np.arange(min(_EARLY, len(found.t))), np.linspace(0, len(found.t) - 1, _LATER).astype(int)])
    )
    truth = exact(found.t[some])
    # Where u0 does not have the boundary values, the first frame has its own.
    error, size = float(np.abs(found.u[some] - truth)[..., 1:-1].max()), float(np.abs(truth).max())
    if any("estimate=True refines to rtol" in note for note in found.decision.notes):
        rtol = None  # the grid counts as coarse, and the answer says so: only the estimate is tried
    return Outcome(
        f"{words}, {found.decision.method}, {found.stats['steps']} steps",
        error,
        found.error_estimate.time,
        1e-12 * max(1.0, size),
        None if rtol is None else atol + rtol * size,
        found.success,
        "; ".join([*found.decision.notes, found.message if not found.success else ""]),
    )


def _differences(modes: Array) -> Array:
    """Eigenvalues of three-point differences, which serve boundary data that are functions of time."""
    h = X[1] - X[0]
    return np.asarray((2.0 * np.sin(0.5 * modes * h) / h) ** 2)


def _tolerance(rng: np.random.Generator, low: float = -4.0) -> float:
    return float(10.0 ** rng.uniform(low, -2.5))


def _powers(rng: np.random.Generator, alpha: float) -> list[tuple[float, float]]:
    """Sources that start smoothly, with a kink, or from infinity."""
    kinds = [[(0.0, 0.0)], [(0.0, 1.0), (0.0, 2.0)], [(0.0, 0.5)], [(0.0, -0.7 * min(alpha, 0.6))], []]
    return list(kinds[rng.integers(len(kinds))])


def _forced(method: Callable[[float], Any], low: float, high: float) -> Trial:
    """Random orders, rates, ends and sources, solved to a tolerance."""

    def trial(rng: np.random.Generator) -> Outcome:
        alpha, end = float(rng.uniform(low, high)), float(10.0 ** rng.uniform(-2.0, 1.0))
        case = Sines(rng, alpha, _powers(rng, alpha), end)
        rtol = _tolerance(rng)
        found = case.solve(method(alpha), rtol=rtol, atol=rtol * 1e-3)
        words = f"alpha={alpha:.3f}, end={end:.3g}, rates={case.rates}, forcing={case.forcing}, rtol={rtol:.2g}"
        return outcome(found, case, words, rtol, rtol * 1e-3)

    return trial


def _fixed(rng: np.random.Generator) -> Outcome:
    """A given step, with every method that takes the equation."""
    alpha, end = float(rng.uniform(0.2, 0.95)), float(10.0 ** rng.uniform(-2.0, 1.0))
    methods: list[Any] = [DiffusionL1(), DiffusionL2Sigma(), CorrectedQuadrature(2), DiffusionL1(grading=1.0)]
    method = methods[rng.integers(len(methods))]
    switch = [(float(rng.uniform(0.1, 0.9)) * end, 0.0)] if rng.uniform() < 0.5 else [(0.0, 1.0)]
    case = Sines(rng, alpha, switch, end)
    steps = int(rng.choice([48, 64, 96, 128, 200, 256]))
    found = case.solve(method, step=end / steps, estimate=True)
    words = f"alpha={alpha:.3f}, end={end:.3g}, rates={case.rates}, forcing={case.forcing}, {method}, {steps} given"
    return outcome(found, case, words, None)


def _jumps(rng: np.random.Generator) -> Outcome:
    """Sources that are switched on and off, pulses among them."""
    alpha, end = float(rng.uniform(0.3, 0.95)), float(10.0 ** rng.uniform(-1.0, 1.0))
    begin = float(rng.uniform(0.1, 0.8)) * end
    width = end * float(10.0 ** rng.uniform(-2.7, -1.0))
    case = Sines(rng, alpha, [(begin, 0.0), (begin + width, 0.0)], end)
    high = float(10.0 ** rng.uniform(0.0, 2.0))
    (one, _, sizes), (other, _, _) = case.forcing
    case.forcing = [(one, 0.0, high * sizes), (other, 0.0, -high * sizes)]
    rtol = _tolerance(rng, -3.5)
    found = case.solve(str(rng.choice(["auto", "l1"])), rtol=rtol, atol=rtol * 1e-2)
    words = f"alpha={alpha:.3f}, end={end:.3g}, rates={case.rates}, forcing={case.forcing}, rtol={rtol:.2g}"
    return outcome(found, case, words, rtol, rtol * 1e-2)


def _first_order(rng: np.random.Generator) -> Outcome:
    """Order 1, with a part of the decay as a reaction."""
    end = float(10.0 ** rng.uniform(-1.0, 1.0))
    case = Sines(rng, 1.0, [[], [(0.0, 1.0)], [(0.0, 2.0)]][rng.integers(3)], end)
    method = str(rng.choice(["etdrk4", "imex_bdf2", "crank_nicolson", "l1"]))
    extra = float(10.0 ** rng.uniform(-1.0, 1.0))
    rtol = _tolerance(rng) * (1.0 if method != "l1" else 10.0)
    found = case.solve(method, reaction=lambda t, u: -extra * u, rtol=rtol, atol=rtol * 1e-3)
    case.rates = case.rates + extra
    words = f"end={end:.3g}, rates={case.rates}, forcing={case.forcing}, reaction={extra:.3g}, rtol={rtol:.2g}"
    return outcome(found, case, words, rtol, rtol * 1e-3)


def _semilinear(rng: np.random.Generator) -> Outcome:
    """U = (1 + a t^alpha + b t^2) sin(k x) with u - u^3, -u^2 or a saturating reaction, made so by a source."""
    alpha, end = float(rng.uniform(0.3, 0.95)), float(10.0 ** rng.uniform(-1.0, 0.3))
    a, b, k = rng.normal(), rng.normal() / max(1.0, end**2), int(rng.integers(1, 4))
    reactions: list[Callable[[Array], Array]] = [lambda u: u - u**3, lambda u: -(u**2), lambda u: u / (1.0 + u**2)]
    which = int(rng.integers(3))
    rate = 10.0 ** rng.uniform(-1.0, 0.5)

    def size(t: Any) -> Any:
        return 1.0 + a * t**alpha + b * t**2

    def source(t: float, x: Array) -> Array:
        u = size(t) * np.sin(k * x)
        slope = a * math.gamma(1.0 + alpha) + 2.0 * b * t ** (2.0 - alpha) / math.gamma(3.0 - alpha)
        return np.asarray(slope * np.sin(k * x) + rate * k * k * u - reactions[which](u))

    rtol = _tolerance(rng)
    given: dict[str, Any] = {"x": X, "space": Diffusion(rate), "boundary": "dirichlet", "alpha": alpha}
    method = ["auto", "l1", DiffusionL2Sigma(reaction="imex")][rng.integers(3)]
    found = hf.solve_fpde(
        lambda t, u: reactions[which](u),
        (0.0, end),
        np.sin(k * X),
        source=source,
        method=method,
        rtol=rtol,
        atol=rtol * 1e-3,
        max_steps=_STEPS,
        **given,
    )
    words = f"alpha={alpha:.3f}, end={end:.3g}, a={a:.3g}, b={b:.3g}, k={k}, {which}, rate={rate:.3g}, rtol={rtol:.2g}"
    return outcome(found, lambda t: size(t)[:, None] * np.sin(k * X), words, rtol, rtol * 1e-3)


def _incompatible(rng: np.random.Generator) -> Outcome:
    """u0 without the boundary values, or a box; the truth is that of the grid's own modes."""
    alpha, end = float(rng.uniform(0.2, 0.95)), float(10.0 ** rng.uniform(-3.0, 0.0))
    box = bool(rng.uniform() < 0.5)
    u0 = np.where((X > 0.8) & (X < 2.0), 1.0, 0.0) if box else rng.uniform(0.5, 2.0) * np.ones_like(X)
    given: dict[str, Any] = {"x": X, "space": Diffusion(float(rng.uniform(0.3, 3.0))), "alpha": alpha}
    rtol = _tolerance(rng, -3.5)
    method = str(rng.choice(["auto", "l1", "convolution_quadrature"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        found = hf.solve_fpde(
            None,
            (0.0, end),
            u0,
            boundary=Dirichlet(lambda t: 0.0),
            method=method,
            rtol=rtol,
            atol=rtol * 1e-3,
            max_steps=_STEPS,
            estimate=False,
            **given,
        )
        modes = np.arange(1, X.size - 1)
        shapes = np.sin(modes[:, None] * X)
        start = np.linalg.solve(shapes[:, 1:-1].T, u0[1:-1])

        def exact(t: Array) -> Array:
            decay = ml(-given["space"].coefficient * _differences(modes) * np.asarray(t)[:, None] ** alpha, alpha)
            return np.asarray(decay * start @ shapes)

        words = f"alpha={alpha:.3f}, end={end:.3g}, box={box}, {given['space']}, rtol={rtol:.2g}"
        return outcome(found, exact, words, rtol, rtol * 1e-3)


def _moving_wall(rng: np.random.Generator) -> Outcome:
    """Boundary data that follow a power of time, or switch on: u = g(t) x / pi + a sine."""
    alpha, end = float(rng.uniform(0.3, 0.95)), float(10.0 ** rng.uniform(-1.0, 0.5))
    power = float(rng.choice([1.0, 2.0, alpha, 0.5]))
    case = Sines(rng, alpha, [], end)
    case.order, case.rates = 2.0, case.coefficient * _differences(case.modes)
    slope = math.gamma(power + 1.0) / math.gamma(power + 1.0 - alpha)
    rtol = _tolerance(rng)
    found = case.solve(
        str(rng.choice(["auto", "l1"])),
        boundary=((Dirichlet(0.0), Dirichlet(lambda t: t**power)),),
        source=lambda t, x: slope * t ** (power - alpha) * x / math.pi if t > 0.0 else 0.0 * x,
        rtol=rtol,
        atol=rtol * 1e-3,
        estimate=False,
    )
    words = f"alpha={alpha:.3f}, end={end:.3g}, rates={case.rates}, power={power:.3g}, rtol={rtol:.2g}"
    return outcome(found, lambda t: case(t) + t[:, None] ** power * X / math.pi, words, rtol, rtol * 1e-3)


def _exact_modes(rng: np.random.Generator) -> Outcome:
    """Values of ``sol`` at random times, and where an event happens."""
    alpha, end = float(rng.uniform(0.2, 2.0)), float(10.0 ** rng.uniform(-2.0, 3.0))
    case = Sines(rng, alpha, [(0.0, 0.0)] if rng.uniform() < 0.5 else [], end)
    place = int(rng.integers(1, 8))
    level = float(rng.uniform(-1.0, 1.0))
    source = case.source(1.0, X[1:-1])
    found = case.solve(
        "exact_modes", source=source, dense_output=True, events=lambda t, u: float(u[place]) - level, rtol=1e-6
    )
    times = np.sort(end * 10.0 ** rng.uniform(-6.0, 0.0, size=20))
    error = float(np.abs(found.sol(times) - case(times)).max())
    events = found.t_events[0]
    if events.size:
        error = max(error, float(np.abs(case(events)[:, place] - level).max()))
    # Every change of sign on a fine mesh is an event.
    fine = np.unique(np.concatenate([end * 10.0 ** np.linspace(-9.0, 0.0, 900), np.linspace(0.0, end, 900)]))
    sides = np.sign(case(fine)[:, place] - level)
    if np.count_nonzero(np.diff(sides)) > events.size:
        error = math.inf
    floor = 1e-10 * (1.0 + float(np.abs(case(fine)).max()))
    return Outcome(
        f"alpha={alpha:.3f}, end={end:.3g}, rates={case.rates}, level={level:.3g}, place={place}",
        error,
        found.error_estimate.time,
        floor,
        floor,
        found.success,
    )


def _events(rng: np.random.Generator) -> Outcome:
    """The solution at a terminal event of a stepped solve."""
    alpha, end = float(rng.uniform(0.3, 0.95)), float(10.0 ** rng.uniform(-1.0, 1.5))
    case = Sines(rng, alpha, [], end)
    case.start = np.abs(case.start) + 0.1
    middle = case(np.array([0.3 * end]))[0]
    place = int(np.argmax(np.abs(middle)))

    def event(t: float, u: Array) -> float:
        return float(u[place] - middle[place])

    event.terminal = True  # type: ignore[attr-defined]
    extra = float(10.0 ** rng.uniform(-1.0, 0.5))
    method = str(rng.choice(["auto", "l1"]))
    rtol = _tolerance(rng)
    found = case.solve(method, reaction=lambda t, u: -extra * u, events=event, rtol=rtol, atol=rtol * 1e-3)
    case.rates = case.rates + extra
    words = f"alpha={alpha:.3f}, end={end:.3g}, rates={case.rates}, reaction={extra:.3g}, rtol={rtol:.2g}"
    return outcome(found, case, words, rtol, rtol * 1e-3)


FAMILIES: dict[str, Trial] = {
    "pde: exact modes, sol and events": _exact_modes,
    "pde: adaptive, powers as sources": _forced(lambda alpha: "adaptive", 0.2, 1.0),
    "pde: adaptive, diffusion-waves": _forced(lambda alpha: "adaptive", 1.05, 1.95),
    "pde: L1, powers as sources": _forced(lambda alpha: "l1", 0.3, 1.0),
    "pde: L2-1sigma, powers as sources": _forced(lambda alpha: "l2_1sigma", 0.3, 0.98),
    "pde: quadrature, powers as sources": _forced(lambda alpha: CorrectedQuadrature(2), 0.2, 0.98),
    "pde: diffusion-waves": _forced(lambda alpha: "auto", 1.05, 1.95),
    "pde: given steps, jumps among the sources": _fixed,
    "pde: switched sources and pulses": _jumps,
    "pde: first order in time": _first_order,
    "pde: semilinear": _semilinear,
    "pde: incompatible data and boxes": _incompatible,
    "pde: moving walls": _moving_wall,
    "pde: terminal events": _events,
}
