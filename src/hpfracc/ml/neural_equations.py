"""Neural fractional equations for both PyTorch and JAX: paths of stochastic ones, and methods and states of others."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import is_tracer, library_of, to_host
from hpfracc._xp import array_namespace
from hpfracc.errors import InvalidInputError, ShapeError, SolveError
from hpfracc.ml.config import refuse_foreign
from hpfracc.solvers.ode._fdeint import fdeint
from hpfracc.solvers.ode.method import Method, find_method
from hpfracc.solvers.ode.methods.explicit_rectangle import ExplicitRectangle
from hpfracc.solvers.ode.methods.implicit_rectangle import ImplicitRectangle
from hpfracc.solvers.ode.methods.implicit_trapezoid import ImplicitTrapezoid
from hpfracc.solvers.ode.methods.pece import PECE
from hpfracc.solvers.sde.methods.markov_euler import Controlled, MarkovEuler
from hpfracc.solvers.sde.noise.fractional_brownian import Brownian, FractionalBrownian
from hpfracc.solvers.sde.noise.process import plain_number
from hpfracc.solvers.sde.simulation import Simulation
from hpfracc.solvers.sde.solve import read_simulation
from hpfracc.solvers.sde.stepping import Steps, increments_of, prepare, step_along
from hpfracc.solvers.sde.stiffness import refuse_infinite
from hpfracc.solvers.stepping.options import CommonOptions

__all__ = ["Along", "NeuralOptions", "PathLayer", "PathModel", "along_noise", "read_method", "simulate", "solve_states"]


#: ``along(draw, steps, key)`` returns the paths along the noise ``draw(key)``, of shape (steps, paths, noises).
Along = Callable[[Callable[[Any], Any], Steps, Any], Any]


@dataclass(frozen=True)
class PathModel:
    """A neural stochastic equation without its functions and its order.

    Attributes
    ----------
    model, noise : str
        The driving noise, and the shape of the diffusion.
    interpretation : str or None
        Interpretation of the integral, for Brownian noise.
    method : str or None
        Method of :func:`hpfracc.solve_fsde`; None for Euler's method, or the one that the Stratonovich integral needs.
    step : float
        Length of a step.
    factors : int
        Number of exponentials of the Markov model.
    """

    model: str
    noise: str
    interpretation: str | None
    method: str | None
    step: float
    factors: int


class PathLayer:
    """A neural stochastic equation of either library: its arguments, its paths, and a lower bound of likelihoods.

    The library's class has ``_assign(**fields)``, ``_as_order(given)``, and ``_recomputed(functions, args)``: the
    functions, and how paths follow the noise, for ``adjoint="stored"``.
    """

    library: ClassVar[str]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init__(
        self,
        drift: Callable[..., Any],
        diffusion: Any,
        model: str = "volterra",
        *,
        alpha: Any = None,
        H: Any = None,
        noise: str = "diagonal",
        step: float,
        interpretation: str | None = None,
        method: str | None = None,
        factors: int = 8,
        adjoint: str = "direct",
    ) -> None:
        _reading.choice("model", model, ("volterra", "fbm", "markov"))
        _reading.choice("noise", noise, ("additive", "diagonal", "general"))
        _reading.choice("adjoint", adjoint, ("direct", "stored"))
        if not callable(drift):
            raise InvalidInputError(f"drift={drift!r} cannot be called; give a module or a function drift(t, y)")
        wanted, other = ("alpha", "H") if model == "volterra" else ("H", "alpha")
        if {"alpha": alpha is not None, "H": H is not None} != {wanted: True, other: False}:
            raise InvalidInputError(f"model={model!r} takes {wanted}=, such as 0.75, and no {other}=")
        if interpretation is not None:
            _reading.choice("interpretation", interpretation, ("ito", "stratonovich"))
        if model != "fbm" and (interpretation == "stratonovich" or method not in (None, "euler")):
            raise InvalidInputError(
                f"model={model!r} uses Euler's method with the Ito integral; leave method= and interpretation= out"
            )
        length = _reading.number("step", step, above=0)
        count = _reading.whole("factors", factors, least=2, most=16)
        if noise == "additive" and not callable(diffusion):
            refuse_foreign(self.library, "neural_fsde", "diffusion", diffusion)
        given = alpha if H is None else H
        refuse_foreign(self.library, "neural_fsde", "the order", given)
        order = self._as_order(given)
        if order.channels is not None:
            raise ShapeError(f"{wanted} has {order.channels} values; give one")
        spec = PathModel(model, noise, interpretation, method, length, count)
        self._assign(drift=drift, diffusion=diffusion, order=order, spec=spec, adjoint=adjoint)

    def _paths(self, y0: Any, t: Any, control: Any, samples: Any, args: Any, **random: Any) -> tuple[Any, Any]:
        """Paths of shape (N, [samples,] ..., d), and for each half the integral of its squared control.

        The functions get the paths along one axis, samples first.
        """
        _read_state(self.library, "neural_fsde", "y0", y0)
        if y0.ndim < 1 or "float" not in str(y0.dtype):
            raise InvalidInputError(f"y0={y0!r} is not real, or a single number; give an array of shape (..., d)")
        shape = tuple(y0.shape[:-1])
        rows = y0.reshape(-1, y0.shape[-1])
        if samples is not None:
            count = _reading.whole("samples", samples, least=1)
            rows, shape = array_namespace(rows).concatenate([rows] * count), (count, *shape)
        diffusion = self.diffusion
        if self.spec.noise == "additive" and callable(diffusion):
            diffusion = diffusion()
        functions, along = (self.drift, diffusion, control), along_noise
        if self.adjoint == "stored":
            functions, along = self._recomputed(functions, args)
        found, spent = simulate(self.spec, functions, rows, t, self.order(), tuple(args), along, **random)
        found = found.reshape(found.shape[0], *shape, rows.shape[1])
        return found, None if spent is None else spent.reshape(shape)

    def _lower_bound(
        self, y0: Any, t: Any, data: Any, control: Any, scale: Any, log_prob: Any, *rest: Any, **random: Any
    ) -> Any:
        """The ELBO of each series, from controlled paths and half the integral of their squared control."""
        if (scale is None) == (log_prob is None):
            raise InvalidInputError("give either scale=, the standard deviation of the data, or log_prob=")
        if tuple(data.shape[:-1]) != (len(t), *y0.shape[:-1]):
            raise ShapeError(f"data has shape {tuple(data.shape)}; give (N, ..., k), {(len(t), *y0.shape[:-1])} and k")
        x, spent = self._paths(y0, t, control, *rest, **random)
        target = data[:, None]
        likelihood = log_prob(x, target) if log_prob is not None else _normal(x, target, scale)
        if tuple(likelihood.shape) != tuple(x.shape[:-1]):
            raise ShapeError(
                f"log_prob returned shape {tuple(likelihood.shape)}; return (N, samples, ...), {tuple(x.shape[:-1])}"
            )
        return (likelihood.sum(0) - spent).mean(0)


def _read_state(library: str, module: str, name: str, value: Any) -> None:
    """Refuse a state that is not an array of the library."""
    refuse_foreign(library, module, name, value)
    if library_of(value) != library:
        what = "PyTorch tensor" if library == "torch" else "JAX array"
        raise InvalidInputError(f"{name} is not a {what}; give one of shape (..., d)")


def read_times(t: Any, step: float) -> tuple[tuple[float, float], np.ndarray]:
    """The start and end, and the indices of the steps at which values are needed."""
    if is_tracer(t):
        raise InvalidInputError("t is being traced; the times must be known: make them outside the traced function")
    given = to_host(t)
    times = np.asarray(given, np.float64)
    if times.ndim != 1 or times.size < 2:
        raise ShapeError(f"t has shape {times.shape}; give the start and one or more later times along one axis")
    if not np.all(np.isfinite(times)) or np.any(np.diff(times) <= 0):
        raise InvalidInputError("t must be finite and increasing, the start first")
    places = (times - times[0]) / step
    numbers = np.rint(places).astype(int)
    digits = float(np.finfo(np.result_type(given, np.float32)).eps)  # to which the times are rounded
    off = np.abs(places - numbers) > 1e-6 + 4.0 * digits * np.abs(times) / step
    if np.any(off) or np.any(np.diff(numbers) == 0):
        which = int(np.argmax(off))
        raise InvalidInputError(
            f"t[{which}]={times[which]:.9g} is not a whole number of steps={step:g} after t[0]={times[0]:.9g}; paths "
            "are rough and are not interpolated: choose a step that divides the times"
        )
    begin = float(times[0])
    return (begin, begin + int(numbers[-1]) * step), numbers


def _normal(x: Any, data: Any, scale: Any) -> Any:
    if data.shape[-1] != x.shape[-1]:
        raise ShapeError(f"data has {data.shape[-1]} components and the state {x.shape[-1]}; give log_prob= instead")
    if not is_tracer(scale) and bool((to_host(scale) <= 0).any()):
        raise InvalidInputError(f"scale={scale!r} is not positive; give the standard deviation of the data")
    xp = array_namespace(x)
    spread = xp.astype(xp.asarray(scale, x), x.dtype)
    return (-0.5 * ((x - data) / spread) ** 2 - xp.log(spread) - 0.5 * math.log(2.0 * math.pi)).sum(-1)


def along_noise(draw: Callable[[Any], Any], steps: Steps, key: Any) -> Any:
    """The paths along the noise, which is stored for the backward pass."""
    return step_along(steps, draw(key))


def simulate(
    spec: PathModel,
    functions: tuple[Any, ...],
    y0: Any,
    t: Any,
    order: Any,
    args: tuple[Any, ...] = (),
    along: Along = along_noise,
    *,
    rng: Any = None,
    key: Any = None,
    first_path: int = 0,
) -> tuple[Any, Any]:
    """Paths at the times ``t``, shape (N, paths, d), and for each path half the integral of the squared control.

    Parameters
    ----------
    functions : (drift, diffusion, control)
        The diffusion is an array if the noise is additive; the control may be None.
    y0 : array, shape (paths, d)
        Initial values.
    order : float or scalar array
        The order of the Volterra equation, or H.
    along : callable, optional
        How the noise is kept for the backward pass; by default it is stored.
    """
    drift, diffusion, control = functions
    additive = spec.noise == "additive"
    if callable(diffusion) == additive:
        what = "numbers or a tensor" if additive else "a function diffusion(t, y)"
        raise InvalidInputError(f"noise={spec.noise!r} takes {what} as the diffusion; got {diffusion!r}")
    if not callable(control) and control is not None:
        raise InvalidInputError(f"control={control!r} cannot be called; give a function control(t, y)")
    span, numbers = read_times(t, spec.step)
    options: dict[str, Any] = {"alpha": order, "interpretation": "ito", "method": "euler"}
    H = None if spec.model == "volterra" or is_tracer(order) else plain_number(order)
    if H is not None and not 0.0 < H < 1.0:
        raise InvalidInputError(f"H={H}: the Hurst index lies strictly between 0 and 1; 0.5 is Brownian motion")
    if H is not None and H < 0.5 and not additive:
        raise InvalidInputError(
            f"H={H} with multiplicative noise: below 1/2 the squares of the increments add up to infinity, and "
            "the integral needs more than the path; use noise='additive', or H=0.5 and above"
        )
    if spec.model == "markov":
        del options["alpha"]
    if spec.model == "fbm":
        meaning = spec.interpretation if H == 0.5 else None
        process = Brownian() if H == 0.5 and library_of(order) == "python" else FractionalBrownian(order)
        method = spec.method or ("auto" if meaning == "stratonovich" else "euler")
        options = {"noise": process, "interpretation": meaning, "method": method}
    # JAX: arrays inside the functions become arguments of one compiled program; everything else is static.
    given = (drift, None if additive else diffusion, control, *args)
    options |= {"args": given, "rng": rng, "key": key, "first_path": first_path}
    step = (span[1] - span[0]) / int(numbers[-1])
    strength = diffusion if additive else _diffusion
    simulation = read_simulation(_drift, strength, span, y0, step=step, paths=y0.shape[0], **options)
    if not additive and simulation.problem.traits.general != (spec.noise == "general"):
        shape = "(paths, d, m)" if spec.noise == "general" else "(paths, d)"
        raise ShapeError(f"noise={spec.noise!r} takes a diffusion of shape {shape}; it returned another number of axes")
    found, spent = _integrated(simulation, spec, order, control, along)
    if spec.model != "volterra" and H is None and not additive:
        # H was traced: return nan if its value is too rough for multiplicative noise.
        found = simulation.source.xp.where(order >= 0.5, found, float("nan"))
    return simulation.source.xp.moveaxis(found, -1, 0)[numbers], spent


def _integrated(simulation: Simulation, spec: PathModel, order: Any, control: Any, along: Along) -> tuple[Any, Any]:
    """All steps, shape (paths, d, n), and the relative entropy of each path."""
    simulation.check_memory(simulation.forecast(), simulation.forecast().kept_bytes)
    method, driving, alpha = simulation.method, simulation.driving, simulation.alpha
    source, start, markov = simulation.source, simulation.start, spec.model == "markov"
    if markov:
        method, alpha = MarkovEuler(spec.factors), order
        driving = dataclasses.replace(driving, sets=method.sets(simulation.problem.traits))
    if control is not None:
        if isinstance(driving.noise, FractionalBrownian) or method.name not in ("euler", "markov"):
            raise InvalidInputError(
                "a control needs noise driven by a Brownian motion and Euler's method; use model='markov' or "
                "'volterra', or model='fbm' with the plain number H=0.5"
            )
        method = Controlled(method, _control_with_factors if markov else _control)
        start = source.xp.concatenate([start, source.xp.zeros_like(start[:, :1])], -1)

    def draw(key: Any) -> Any:
        paths = driving.paths(dataclasses.replace(source, key=key), 0, simulation.count)
        return increments_of(source.xp, paths)

    y = along(draw, prepare(simulation.problem, method, alpha, simulation.begins, simulation.h, start), source.key)
    try:
        refuse_infinite(simulation.t, y)
    except SolveError as error:
        raise SolveError(f"{error}. {_culprit(simulation, y)}") from None
    return (y, None) if control is None else (y[:, :-1], y[:, -1, -1])


def _drift(t: Any, y: Any, drift: Any, diffusion: Any, control: Any, *args: Any) -> Any:
    return drift(t, y, *args)


def _diffusion(t: Any, y: Any, drift: Any, diffusion: Any, control: Any, *args: Any) -> Any:
    return diffusion(t, y, *args)


def _control(t: Any, y: Any, drift: Any, diffusion: Any, control: Any, *args: Any) -> Any:
    return control(t, y, *args)


def _control_with_factors(t: Any, y: Any, factors: Any, drift: Any, diffusion: Any, control: Any, *args: Any) -> Any:
    return control(t, y, factors, *args)


def _culprit(simulation: Simulation, y: Any) -> str:
    """The first function that returned values that are not finite, and the step."""
    problem = simulation.problem
    host = to_host(y)
    bad = ~np.isfinite(host).all(1)
    path = int(np.argmax(bad[:, -1]))
    step = int(np.argmax(bad[path])) - 1
    time = float(simulation.t[step])
    state = array_namespace(y).stop_gradient(y)[path : path + 1, : problem.traits.dimension, step]
    for name, function in (("drift", problem.drift), ("diffusion", problem.diffusion)):
        found = to_host(function(time, state))
        if not np.all(np.isfinite(found)):
            at = np.array2string(host[path, : problem.traits.dimension, step], precision=4)
            why = ": a square root of a negative number? Give it max(y, 0) or |y|" if np.isnan(found).any() else ""
            return f"The {name} of path {path} is {found.ravel()[0]:g} at step {step}, t={time:.6g}, y={at}{why}"
    return f"Drift and diffusion are finite at step {step}, t={time:.6g}; the values grow beyond all bounds"


# -- ordinary equations ------------------------------------------------------------------------------------------------


class NeuralOptions(CommonOptions, total=False):
    """The options of ``fdeint`` that a ``NeuralFODE`` stores, for type checkers; ``args`` belong to each call."""

    derivative: str


#: Methods with a choice of adjoints.
_TRANSPOSED: dict[str, Any] = {
    each.name: each for each in (PECE, ExplicitRectangle, ImplicitTrapezoid, ImplicitRectangle)
}


def read_method(method: Any, step: float | None, adjoint: str | None) -> str | Method:
    """Combine a method with its adjoint, for ``fdeint``.

    Parameters
    ----------
    method : str or Method
        A name, or a method, which is returned unchanged.
    step : float or None
        Without a step, the step size adapts: ``"pece"``, the default name, becomes ``"adaptive"``.
    adjoint : str or None
        Defaults to ``"stored"`` if the method has a choice.
    """
    if isinstance(method, Method):
        if adjoint is not None:
            raise InvalidInputError(f"adjoint={adjoint!r} with {method!r}: give the adjoint to the method itself")
        return method
    name = find_method(method).name
    if step is None and name == "pece":
        name = "adaptive"
    if name in _TRANSPOSED:
        if step is None:
            raise InvalidInputError(f"method={name!r} takes steps of one size; give step=")
        found: Method = _TRANSPOSED[name](adjoint="stored" if adjoint is None else adjoint)
        return found
    if adjoint is not None:
        raise InvalidInputError(
            f"adjoint={adjoint!r} is a choice for {', '.join(_TRANSPOSED)} with a step; method={name!r} has its own"
        )
    return name


def solve_states(
    library: str, func: Callable[..., Any], y0: Any, t: Any, order: Any, dy0: Any, rest: dict[str, Any]
) -> Any:
    """``fdeint`` with the options ``rest`` for one state, or for a tuple of states joined along their last axis."""
    states = y0 if isinstance(y0, tuple) else (y0,)
    for place, each in enumerate(states):
        name = f"y0[{place}]" if isinstance(y0, tuple) else "y0"
        _read_state(library, "neural_fode", name, each)
        if isinstance(y0, tuple) and (each.ndim < 1 or each.shape[:-1] != states[0].shape[:-1]):
            shapes = f"{name} has shape {tuple(each.shape)} and y0[0] {tuple(states[0].shape)}"
            raise ShapeError(f"{shapes}: all axes but the last must agree")
    if not isinstance(y0, tuple):
        if isinstance(order, tuple):
            raise ShapeError(f"alpha has {len(order)} orders for a tuple of states, and y0 is one array")
        return fdeint(func, y0, t, order, **rest, **({} if dy0 is None else {"dy0": dy0}))
    xp = array_namespace(y0[0])
    ends = list(accumulate(each.shape[-1] for each in y0))
    split = getattr(xp.module, "tensor_split", xp.module.split)  # PyTorch's, by the ends of parts
    if isinstance(order, tuple):
        if len(order) != len(y0):
            raise ShapeError(f"alpha has {len(order)} orders and y0 {len(y0)} states")
        pairs = zip(order, y0, strict=True)
        order = xp.concatenate([xp.module.broadcast_to(xp.asarray(a), (each.shape[-1],)) for a, each in pairs])
    if dy0 is not None:
        rest["dy0"] = [xp.concatenate(tuple(each), -1) for each in dy0]

    def joined(time: Any, y: Any, *given: Any) -> Any:
        values = func(time, tuple(split(y, ends[:-1], -1)), *given)
        if not isinstance(values, tuple) or len(values) != len(ends):
            raise ShapeError(f"func(t, y) has to return a tuple of {len(ends)} arrays, like y0")
        return xp.concatenate(values, -1)

    found = fdeint(joined, xp.concatenate(y0, -1), t, order, **rest)
    return tuple(split(found, ends[:-1], -1))
