"""hpfracc."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import hpfracc as hf
from hpfracc import control, models, noise, pde, rough
from testset.data import Answer, NotExpressible, Problem
from testset.expressions import ARRAYS, NUMBERS, evaluate, function

#: Paths of a process whose law is not at hand, and steps of its equation.
PATHS, STEPS = 20_000, 256


def solve(problem: Problem, tolerance: float) -> Answer:
    """The answer with this relative tolerance."""
    return _KINDS[problem.kind](problem, tolerance)


def _operator(problem: Problem, tolerance: float) -> Answer:
    given, parameters, t = problem.given, problem.parameters, problem.at[:, 0]
    calls = 0

    def f(x: Any) -> Any:
        nonlocal calls
        calls += np.size(x)
        return of(np.asarray(x, dtype=float))[0]

    of = function([given["function"]], "t", parameters, ARRAYS)
    name = given["operator"]
    extra = {key: problem.number(key) for key in given if key in ("rho", "eta", "sigma", "rate", "gamma", "omega")}
    if name == "fractional_laplacian":
        raise NotExpressible("the Laplacian of a function on the whole line; hpfracc has intervals and periods")
    if name == "weyl":
        period = 2.0 * np.pi / parameters["k"]
        samples = np.arange(64) * period / 64
        whole = np.asarray(hf.weyl(f(samples), samples, parameters["alpha"], period=period))
        waves = np.fft.rfft(whole) / 64
        return Answer(np.array([[2.0 * (waves[1] * np.exp(1j * parameters["k"] * x)).real for x in t]]), calls)
    if name == "hilfer":
        return Answer(np.asarray(hf.hilfer(f, t, parameters["alpha"], parameters["type"]))[None], calls)
    if name == "distributed_order":
        return Answer(np.asarray(hf.distributed_order(f, t))[None], calls)
    if name == "variable_order":
        order = function([given["order"]], "t", parameters, ARRAYS)
        return Answer(np.asarray(hf.variable_order(f, t, lambda x: order(x)[0]))[None], calls)
    found = getattr(hf, name)(f, t, parameters["alpha"], origin=problem.number("origin"), **extra)
    return Answer(np.asarray(found)[None], calls)


def _function(problem: Problem, tolerance: float) -> Answer:
    given, z = problem.given, problem.at
    a, b = given.get("alpha", 1.0), given.get("beta", 1.0)
    forms: dict[str, Callable[[], Any]] = {
        "mittag_leffler": lambda: hf.mittag_leffler(z[:, 0], a, b),
        "mittag_leffler_complex": lambda: hf.mittag_leffler(z[:, 0] + 1j * z[:, 1], a, b),
        "prabhakar": lambda: hf.mittag_leffler(z[:, 0], a, b, given["gamma"]),
        "mittag_leffler_derivative": lambda: hf.mittag_leffler_derivative(z[:, 0], a, b),
        "mittag_leffler_matrix": lambda: hf.mittag_leffler_matrix(np.array(given["matrix"]), a)[0],
        "m_wright": lambda: hf.m_wright(z[:, 0], problem.number("nu")),
        "wright": lambda: hf.wright(z[:, 0], given["lam"], given["mu"]),
        "subdiffusion_propagator": lambda: 0.5 * hf.m_wright(z[:, 0], a / 2.0),
        "half_line": lambda: hf.wright(-z[:, 0], -a / 2.0, 1.0),
    }
    if given["function"] not in forms:
        raise NotExpressible(f"no function {given['function']!r}")
    return Answer(np.asarray(forms[given["function"]]())[None])


def _ode(problem: Problem, tolerance: float) -> Answer:
    given, parameters = problem.given, problem.parameters
    if "implicit" in given:
        raise NotExpressible("the highest derivative has to stand alone on the left, and no other on the right")
    arguments = "t, y, past" if "delays" in given else "t, y"
    rhs = function(given["rhs"], arguments, parameters)
    start = [np.array(problem.numbers(row)) for row in given["start"]]
    orders = problem.numbers(given["order"])
    options: dict[str, Any] = {"derivative": given.get("derivative", "caputo")}
    if "terms" in given:
        options["terms"] = [tuple(term) for term in problem.numbers(given["terms"])]
    if "delays" in given:
        history = function(given["history"], "t", parameters)
        options |= {"delays": given["delays"], "history": lambda t: np.array(history(t))}
    found = hf.solve_fode(
        lambda *state: np.array(rhs(*state)),
        (0.0, problem.number("end")),
        start[0],
        orders[0] if len(set(orders)) == 1 else orders,
        dy0=start[1:] or None,
        rtol=tolerance,
        atol=1e-3 * tolerance,
        t_eval=problem.at[:, 0],
        breakpoints=given.get("breakpoints", ()),
        **options,
    )
    if not found.success:
        raise RuntimeError(found.message)
    return Answer(found.y, found.nfev)


def _terms(problem: Problem) -> Any:
    total = None
    for each in problem.given["space"]:
        size = (
            evaluate(each.get("coefficient", 1.0), NUMBERS | problem.parameters | {"I": 1j, "x": None})
            if "x" not in str(each.get("coefficient", ""))
            else function([each["coefficient"]], "x", problem.parameters, ARRAYS)
        )
        if callable(size):
            size = (lambda of: lambda x: of(x)[0])(size)
        order = problem.numbers(each["order"]) if "order" in each else None
        kind = each.get("definition")
        term = {
            "diffusion": lambda size=size: pde.Diffusion(size),
            "advection": lambda each=each: pde.Advection(each["velocity"]),
            "one_sided": lambda order=order, size=size: pde.OneSided(order, "left", size),
            "fractional_diffusion": lambda o=order, k=kind, s=size: pde.FractionalDiffusion(
                o, None if k == "periodic" else k, s
            ),
        }[each["term"]]()
        total = term if total is None else total + term
    return total


def _pde(problem: Problem, tolerance: float) -> Answer:
    given, parameters, at = problem.given, problem.parameters, problem.at
    if given.get("eigenvalues"):
        count = {s: pde.interval_eigenvalues(2, 2.0 * s) for s in set(at[:, 0])}
        return Answer(np.array([[count[s][int(n) - 1] for s, n in at]]))
    space = _terms(problem)
    if given.get("steady"):
        order = problem.numbers(given["space"][0]["order"])
        x = pde.jacobi_grid(40, order)
        found = hf.steady_state(None, np.zeros_like(x), x=x, space=space, boundary=pde.Exterior(0.0), source=1.0)
        weight = (1.0 - x[1:-1] ** 2) ** (order / 2.0)
        smooth = np.polynomial.polynomial.polyfit(x[1:-1], found.u[1:-1] / weight, 8)
        return Answer(
            (np.polynomial.polynomial.polyval(at[:, 0], smooth) * (1.0 - at[:, 0] ** 2) ** (order / 2.0))[None]
        )
    periodic = given["boundary"] == "periodic"
    smooth = all(each["term"] == "fractional_diffusion" for each in given["space"])
    intervals = (
        64
        if smooth
        else int(2 ** np.clip(np.ceil(-0.5 * np.log2(tolerance)), 5, 9 if len(given["domain"]) == 1 else 7))
    )
    axes = [
        low + (high - low) * np.arange(intervals + (not periodic)) / intervals
        for low, high in problem.numbers(given["domain"])
    ]
    names = ", ".join("xy"[: len(axes)])
    mesh = np.meshgrid(*axes, indexing="ij")

    def initial(key: str, row: int) -> Any:
        return np.vectorize(lambda *x: function([given[key][row]], names, parameters)(*x)[0], otypes=[float])(*mesh)

    u0 = initial("initial", 0)
    if "initial_imaginary" in given:
        u0 = u0 + 1j * initial("initial_imaginary", 0)
    options: dict[str, Any] = {}
    if len(given["initial"]) > 1:
        options["du0"] = initial("initial", 1)
    if "source" in given:
        source = function([given["source"]], f"t, {names}", parameters, ARRAYS)
        options["source"] = lambda t, x: source(t, x)[0]
    if "terms" in given:
        options["terms"] = [tuple(term) for term in problem.numbers(given["terms"])]
    reaction = None
    if "reaction" in given:
        react = function([given["reaction"]], "u", parameters | {"I": 1j}, ARRAYS)
        reaction = lambda t, u: react(u)[0]  # noqa: E731
    boundary: Any = given["boundary"]
    if "boundary_values" in given:
        ends = [function([text], "t", parameters) for text in given["boundary_values"]]
        boundary = tuple(pde.Dirichlet(lambda t, end=end: end(t)[0]) for end in ends)
    t = sorted(set(at[:, 0]))
    found = hf.solve_fpde(
        reaction, (0.0, problem.number("end")), u0, x=axes[0] if len(axes) == 1 else tuple(axes), space=space,
        boundary=boundary, alpha=problem.number("alpha"), rtol=tolerance, atol=1e-3 * tolerance, t_eval=t, **options,
    )  # fmt: skip
    if not found.success:
        raise RuntimeError(found.message)
    places = [
        (t.index(row[0]), *(int(np.argmin(np.abs(axis - x))) for axis, x in zip(axes, row[1:], strict=True)))
        for row in at
    ]
    return Answer(np.array([[np.real(found.u[place]) for place in places]]), int(found.stats.get("nfev", 0) or 0))


def _process(problem: Problem, tolerance: float) -> Answer:
    given, parameters, at = problem.given, problem.parameters, problem.at
    if given["quantity"] == "covariance":
        process: Any = {
            "fbm": lambda: noise.FractionalBrownian(parameters["H"]),
            "volterra_fbm": lambda: noise.FractionalBrownian(parameters["H"], kind="volterra"),
            "fractional_ou": lambda: noise.FractionalOU(parameters["H"]),
        }[given["process"]]()
        times = np.unique(at)
        drawn = process.covariance(times[:, None], times[None, :])
        index = np.searchsorted(times, at)
        return Answer(np.array([[drawn[i, j] for i, j in index]]))
    if given["process"] in ("stable", "inverse_subordinator"):
        alpha = parameters["alpha"]
        law = noise.StableLevy(alpha) if given["process"] == "stable" else noise.InverseSubordinator(alpha)
        drawn = np.abs(law.sample(np.array([0.0, 1.0]), PATHS, rng=1)[..., -1]).ravel()
        powers = drawn ** at[:, :1]
    else:
        s = problem.number("multiplicative", 0.0)
        diffusion = (lambda t, y: s * y) if s else problem.number("noise")
        options = {"interpretation": "ito"} if s else {}
        drift = problem.number("drift")
        end = float(at[:, 0].max())
        found = hf.solve_fsde(
            lambda t, y: drift * y, diffusion, (0.0, end), [problem.number("start")], alpha=parameters["alpha"],
            step=end / STEPS, paths=PATHS, t_eval=at[:, 0], rng=1, **options,
        )  # fmt: skip
        powers = np.moveaxis(np.asarray(found.y), 0, -1).reshape(len(at), -1) ** 2
    return Answer(powers.mean(axis=1)[None], 0, float(np.max(powers.std(axis=1)) / np.sqrt(PATHS)))


def _price(problem: Problem, tolerance: float) -> Answer:
    parameters = {key: value for key, value in problem.parameters.items() if key != "T"}
    model = rough.Heston(**parameters)
    return Answer(
        np.asarray(model.price(problem.at[:, 0], problem.number("maturity"), rtol=max(1e-2 * tolerance, 1e-9)).value)[
            None
        ]
    )


def _transfer(problem: Problem, tolerance: float) -> Answer:
    given, at = problem.given, problem.at[:, 0]
    parts = ({power: size for size, power in problem.numbers(given[key])} for key in ("numerator", "denominator"))
    system = control.TransferFunction(*parts)
    quantities: dict[str, Callable[[], Any]] = {
        "step": lambda: control.step_response(system, at).y,
        "impulse": lambda: control.impulse_response(system, at).y,
        "frequency": lambda: system(1j * at),
        "phase margin": lambda: [np.degrees(control.margins(system).phase)],
        "gain margin": lambda: [control.margins(system).gain],
    }
    return Answer(np.atleast_1d(quantities[given["quantity"]]())[None])


def _material(problem: Problem, tolerance: float) -> Answer:
    model = getattr(models, problem.given["model"])(**problem.parameters)
    return Answer(np.asarray(model.simulate(problem.at[:, 0], problem.given["quantity"]))[None])


_KINDS: dict[str, Callable[[Problem, float], Answer]] = {
    "operator": _operator, "function": _function, "ode": _ode, "pde": _pde, "process": _process, "price": _price,
    "transfer": _transfer, "material": _material,
}  # fmt: skip
