"""Stochastic equations driven by noise with memory."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Literal, cast

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import dtype_name, is_tracer, is_transformed, leaves, library_of, refuse_masked, to_host
from hpfracc._choices import ArrayOut, HasShape, Interpretation, Numbers, PathMethodName, RateFunction
from hpfracc._config import get_settings
from hpfracc._optional import import_optional
from hpfracc._results import PlainData
from hpfracc.engine.selection.request import never_reason, preference_error, read_preference
from hpfracc.errors import BackendUnavailableError, InvalidInputError, PinnedBackendError, ShapeError
from hpfracc.solvers.sde.methods import ALIASES, METHODS, PathMethod, methods_for
from hpfracc.solvers.sde.noise.fractional_brownian import Brownian, FractionalBrownian
from hpfracc.solvers.sde.noise.process import Noise, plain_number, read_grid, read_parameter, rounding_of_times
from hpfracc.solvers.sde.noise.source import RandomSource, make_source
from hpfracc.solvers.sde.noise.stable import StableLevy, TemperedStable
from hpfracc.solvers.sde.problem import Traits, read_problem, refuse_unreal
from hpfracc.solvers.sde.result import FSDEResult, read_progress
from hpfracc.solvers.sde.simulation import Driving, Simulation, read_correlation, refuse_antithetic

#: Steps are shortened at most by this factor to meet breakpoints, or until there are this many.
_REFINED, _MOST_REFINED = 8, 10_000


@_reading.corrects_keywords
def solve_fsde(
    drift: RateFunction,
    diffusion: RateFunction | Numbers | HasShape,
    t_span: tuple[float, float],
    y0: Numbers | ArrayOut,
    *,
    step: float,
    noise_step: float | None = None,
    t_eval: Any = None,
    breakpoints: Sequence[float] = (),
    alpha: Any = 1.0,
    noise: Noise | None = None,
    correlation: Any = None,
    paths: int = 1,
    args: tuple[Any, ...] = (),
    rng: Any = None,
    key: Any = None,
    first_path: int = 0,
    interpretation: Interpretation | None = None,
    method: PathMethodName = "auto",
    save: Literal["all", "last"] | Callable[[Any, Any], Any] = "all",
    keep: Literal["values", "moments"] = "values",
    antithetic: bool = False,
    backend: str = "auto",
    progress: bool | Callable[..., Any] = False,
) -> FSDEResult[ArrayOut]:
    r"""Simulate :math:`dX = f(t, X)\,dt + g(t, X)\,dZ`, driven by fractional Brownian motion or a Levy process.

    With ``alpha`` below 1 it is the Caputo equation, :math:`D^\alpha X = f(t, X) + g(t, X)\,\dot W` with white noise,
    or :math:`D^\alpha X = f(t, X) + g\,\dot Z` with additive noise of any kind.

    Parameters
    ----------
    drift : callable
        ``drift(t, y, *args)`` with y of shape ``(paths, d)``; returns ``(paths, d)``.
    diffusion : callable, float or array_like
        ``diffusion(t, y, *args)`` returns ``(paths, d)``, or a number: component i has its own noise, whose strength
        should depend on component i only (otherwise methods of higher order are refused); or ``(paths, d, m)`` for m
        noises that all components share. A number or an array,
        of shape ``(d,)`` or ``(d, m)``, is additive noise.
    t_span : (float, float)
        Start and end.
    y0 : float or array_like, shape (d,) or (paths, d)
        Initial values. With a tensor or a JAX array the simulation runs in that library, on its device and in its
        precision, with derivatives; ``drift``, ``diffusion`` and ``save`` are then written in that library.
    step : float
        Largest step; the actual steps are equal and divide the interval.
    noise_step : float, optional
        Step at which the noise is drawn, by default ``step``; a whole number of them makes one step. Solutions with the
        same ``rng`` and ``noise_step`` and different ``step`` follow the same paths of the noise, as strong errors and
        multilevel Monte Carlo need.
    t_eval : array_like, shape (k,), optional
        Times that are saved with ``save="all"``, increasing; by default those of all steps. They must be times of
        steps: a path between them is not known.
    breakpoints : sequence of float, optional
        Increasing times within ``t_span`` at which ``drift`` or ``diffusion`` jump. They become times of steps, which
        may be 8 times shorter for that, or 10,000 in all, and every step uses the values on its own side of the jump.
    alpha : float, or a scalar of PyTorch or JAX
        Order of the derivative, at most 1; the cost of the history is the same at every step. Above 1/2 for white
        noise, in the Ito sense; above 1 - H for fractional noise, and above 1 - 1/p for stable and tempered noise of
        index p, both additive. Differentiable if it is a tensor or JAX array; a traced order is not checked.
    noise : Noise, optional
        ``noise.Brownian()`` (default), ``noise.FractionalBrownian(H)``, or a Levy process. H may be a tensor or JAX
        array, and is then differentiable. If H is traced, paths are nan if the method does not converge for its value.
    correlation : array_like, shape (m, m), optional
        Correlation matrix of the driving noises: symmetric, with unit diagonal, positive definite. They are independent
        by default.
    paths : int
        Number of paths.
    args : tuple
        Further arguments of both functions. Tensors and JAX arrays among them select the library as ``y0`` does.
    rng, key, first_path
        As in :meth:`hpfracc.noise.Noise.sample`: a path depends only on the seed and its number, up to rounding.
        ``key`` is a JAX key, and may be traced.
    interpretation : {"ito", "stratonovich", "young"}, optional
        Required for multiplicative Brownian noise, which a ``diffusion`` that returns a plain number is not. For H
        above 1/2 it is the Young integral; below, it is the limit along smooth paths, here called Stratonovich. Noise
        with jumps is in the Ito sense.
    method : {"auto", "euler", "second_order", "milstein", "doss_sussmann", "implicit_euler"}
        ``"auto"`` is Euler's method for additive noise, jumps, and orders below 1; otherwise the second-order method,
        and for H below 1/2 the Doss-Sussmann method if each component has one noise. ``"milstein"`` is the
        second-order method; for orders below 1 it is a separate method. ``"implicit_euler"`` is for stiff drifts.
    save : {"all", "last"} or callable
        What is saved: all times, the last one, or ``save(t, y)``, called with all times and paths of shape ``(k, d,
        n)``, which returns an array of k rows. Paths are simulated in chunks that fit into memory, unless all of them
        are saved or differentiable.
    keep : {"values", "moments"}
        Whether to store the saved values of each path, or only their mean and standard error, whose memory does not
        depend on the number of paths.
    antithetic : bool
        Whether every second path has the negative noise of the one before.
    backend : {"auto", "numpy", "torch", "jax"}
        The library of the state. ``"auto"``: that of the given arrays, or of the generator or key; otherwise NumPy.
    progress : bool or callable
        Whether to show a progress bar with the finished paths, the mean of the first saved number with its standard
        error, and the remaining time; or ``progress(done, paths, mean, standard_error)``.

    Returns
    -------
    FSDEResult
        ``.t``, ``.y``, ``.mean()``, ``.standard_error``, ``.quantile(q)``, ``.noise``, ``.plot()``. If explicit steps
        are unstable for the drift, ``success`` is False, and ``.message`` says how many paths are affected, since when,
        and which step would be stable. Ctrl-C raises :class:`~hpfracc.errors.Interrupted` with the finished paths.

    See Also
    --------
    solve_fode, fbm, FSDEResult, hpfracc.noise.FractionalBrownian

    Notes
    -----
    Strong orders with multiplicative noise: Euler 1/2 (Ito) and :math:`2H-1` (H > 1/2); second order
    :math:`2H - 1/2`, at most 1. Euler's method with multiplicative noise does not converge for H < 1/2, nor the
    second-order method for :math:`H \le 1/4`; both raise an error. For the Caputo equation Euler :math:`\alpha - 1/2`,
    Milstein :math:`2\alpha - 1`; with additive fractional noise :math:`\alpha + H - 1`, where the noise
    integrals at all times have exactly their joint law up to 256 steps; with more steps correlations of neighbouring
    times are accurate to about 0.01.

    Derivatives are pathwise, for fixed random numbers: with respect to ``y0``, ``args``, the order, H, and everything
    that the functions capture. Time is a number in PyTorch and a traced scalar in JAX.

    References
    ----------
    1. A. Neuenkirch, I. Nourdin, "Exact rate of convergence of some approximation schemes associated to SDEs driven
       by a fractional Brownian motion", J. Theoret. Probab. 20, 2007.

    Examples
    --------
    A volatility with memory:

    >>> import hpfracc as hf
    >>> from hpfracc import noise
    >>> rough = {"noise": noise.FractionalBrownian(0.3), "paths": 5, "rng": 1}
    >>> result = hf.solve_fsde(lambda t, y: -y, lambda t, y: 0.2 * y, (0, 1), 1.0, step=0.01, **rough)
    >>> result.y.shape, result.method
    ((5, 1, 101), 'doss_sussmann')
    """
    return cast(FSDEResult[ArrayOut], read_simulation(**locals()).run())


def read_simulation(*args: Any, **kwargs: Any) -> Simulation:
    """Check the arguments of :func:`solve_fsde`, and select the method. Nothing is drawn."""
    bound = inspect.signature(solve_fsde).bind(*args, **kwargs)
    bound.apply_defaults()
    of: Any = SimpleNamespace(**bound.arguments)
    t, h, jumps = _read_times(of.t_span, of.step, of.breakpoints)
    count = _reading.whole("paths", of.paths, least=1)
    if _reading.flag("antithetic", of.antithetic) and count % 2:
        raise InvalidInputError(f"paths={count} with antithetic=True: use an even number")
    if not callable(of.save):
        _reading.choice("save", of.save, ("all", "last"))
    places = _read_places(of.t_eval, t, of.save)
    _reading.choice("keep", of.keep, ("values", "moments"))
    read_progress(of.progress)
    process = Brownian() if of.noise is None else of.noise
    owned = process._parameters() if isinstance(process, Noise) else ()
    strength = of.diffusion
    others = (of.args, () if callable(strength) else (strength,), of.correlation, of.alpha, *owned)
    source = place_state(of.backend, of.rng, of.key, of.y0, others, first_path=of.first_path, count=count)
    seen = t.astype(source.dtype) if source.library == "jax" else t  # time is a number elsewhere
    if not np.all(np.diff(seen) > 0.0):
        raise InvalidInputError(
            f"times from {t[0]:.6g} in steps of {h:.6g} coincide in {seen.dtype}; let time begin near 0, or use "
            "float64 or longer steps"
        )
    start = _read_start(of.y0, count, source)
    if not callable(strength):
        strength = _read_numbers("diffusion", strength, source, ", or a function of (t, y)")
    problem = read_problem(of.drift, strength, float(t[0]), start, process, of.interpretation, of.args)
    order = _read_order(of.alpha, process)
    ordinary = library_of(order) == "python" and order == 1.0
    chosen = choose_method(problem.traits, of.method, methods_for(problem.traits, ordinary=ordinary))
    if of.antithetic:
        refuse_antithetic(process)
    noises, sets = problem.traits.noises, chosen.sets(problem.traits)
    factor = read_correlation(of.correlation, process, noises, source)
    every = _read_noise_step(of.noise_step, h)
    fine = (t.size - 1) * chosen.parts(problem.traits, t.size - 1) * every
    times = np.linspace(0.0, float(t[-1] - t[0]), fine + 1)
    # The remainder of fractional noise is drawn as plain normal numbers.
    apart = sets > 1 and problem.traits.hurst != 0.5 and not problem.traits.jumps
    if isinstance(process, FractionalBrownian) and library_of(process.H) == "torch":
        process = replace(process, H=process.H.to(source.device))
    driving = Driving(process, times, noises, sets, factor, bool(of.antithetic), apart, every)
    kept = of.save, of.keep == "moments", of.progress, places, jumps
    return Simulation(problem, chosen, order, t, h, start, driving, source, count, *kept)


def place_state(
    backend: Any, rng: Any, key: Any, y0: Any, others: tuple[Any, ...], *, first_path: int, count: int
) -> RandomSource:
    """Determine the library of the arrays; ``y0`` determines device and precision if it is an array.

    Raises
    ------
    PinnedBackendError
        If arrays are of another library than ``backend=``, or of two libraries.
    """
    arrays = [value for value in leaves((*others, y0)) if library_of(value) in ("torch", "jax", "cupy")]
    owners = {library_of(value) for value in arrays}
    if len(owners) > 1:
        raise PinnedBackendError(f"arguments are arrays of {' and '.join(sorted(owners))}; give arrays of one library")
    if "cupy" in owners:
        raise BackendUnavailableError("solve_fsde runs on NumPy, PyTorch and JAX; give the arrays as tensors of torch")
    if backend is not None and (not isinstance(backend, str) or backend not in ("auto", "numpy", "torch", "jax")):
        raise BackendUnavailableError(f"backend={backend!r}: solve_fsde runs on 'numpy', 'torch' and 'jax', or 'auto'")
    preference = read_preference("solve_fsde", backend)
    if preference is not None and preference.general and not owners:
        preference = None  # the functions are the user's: host arrays stay in NumPy for settings of all operations
    wish = "auto" if preference is None else preference.backend
    asked = "" if preference is None else f"backend {wish!r} was requested by {preference.source}"
    if preference is not None and wish not in ("numpy", "torch", "jax"):
        raise preference_error("solve_fsde", preference, "it runs on 'numpy', 'torch' and 'jax'")
    if owners and wish not in ("auto", *owners):
        (owner,) = owners
        raise PinnedBackendError(f"{asked}, and there are arrays of {owner}; omit it, or convert them")
    own = [value for value in leaves(y0) if library_of(value) in ("torch", "jax")]
    like = own or [value for value in arrays if np.ndim(value)] or arrays
    if wish in ("torch", "jax") and not owners:
        module = import_optional("torch" if wish == "torch" else "jax.numpy")
        dtype = getattr(module, "float32" if dtype_name(y0) == "float32" else "float64")
        where = {"dtype": dtype, "device": getattr(rng, "device", "cpu")} if wish == "torch" else {}
        like = [module.zeros((), **where)]
    source = make_source(rng, key, *like, first_path=first_path, count=count)
    if wish == "numpy" and source.library != "numpy":
        raise PinnedBackendError(f"{asked}, but the random numbers are of {source.library}")
    never = never_reason("solve_fsde", source.library, get_settings())
    if never is not None:
        raise BackendUnavailableError(
            f"solve_fsde: the state is of {source.library}, and {never}; give backend=, or arrays of another library"
        )
    return source


def choose_method(traits: Traits, name: str, methods: dict[str, PathMethod]) -> PathMethod:
    """The method of that name, or the first that supports the equation.

    Raises
    ------
    InvalidInputError
        With the reason, or the reasons of all methods.
    """
    caputo, name = methods is not METHODS, _reading.text("method", name)
    if name == "auto":
        names = ["euler"]
        if not caputo:
            further = ["second_order", "doss_sussmann"]
            if traits.roughness_up_to(0.5) and traits.hurst != 0.5:
                further.reverse()  # the order 2H - 1/2 of the second is too low to be of use
            names = [*names, *further] if traits.additive or traits.jumps else [*further, *names]
        reasons = {each: methods[each].refuses(traits) for each in names}
        for each, reason in reasons.items():
            if reason is None:
                return methods[each]
        raise InvalidInputError(f"no method supports this equation: {'; '.join(str(why) for why in reasons.values())}")
    found = methods.get(name if caputo else ALIASES.get(name, name))
    if found is None:
        known = ", ".join(map(repr, methods))
        order = " with alpha below 1 and this noise" if caputo else ""
        raise InvalidInputError(f"method={name!r}{order}: use 'auto', {known}")
    reason = found.refuses(traits)
    if reason is not None:
        raise InvalidInputError(reason)
    return found


def _read_order(alpha: Any, process: Noise) -> Any:
    """Check the order of the derivative; a plain 1 is an ordinary equation."""
    order, value = (alpha, None) if is_transformed(alpha) else read_parameter("alpha", alpha)
    least, why = 0.5, "white noise the order must be above 1/2, for the kernel to be square integrable"
    if isinstance(process, FractionalBrownian) and is_tracer(process.H):
        least, why = 0.0, "fractional noise the order must be above 0"  # paths are nan if that is not enough
    elif isinstance(process, FractionalBrownian) and (hurst := plain_number(process.H)) != 0.5:
        least = 1.0 - hurst
        why = (
            f"H={hurst:.6g} the order must be above 1 - H, {least:.6g}, for the noise to have an integral against the "
            "kernel"
        )
    elif isinstance(process, StableLevy | TemperedStable):
        least = max(0.0, 1.0 - 1.0 / process.alpha)
        why = (
            f"the stable index p={process.alpha:.6g} of the noise the order must be above {least:.6g}, for the power p "
            "of the kernel to be integrable"
        )
    if value is not None and not least < value <= 1.0:
        raise InvalidInputError(f"alpha={value}: with {why}, and at most 1")
    return order


def _read_times(t_span: Any, step: Any, breakpoints: Any) -> tuple[np.ndarray, float, dict[int, float]]:
    """The times of the steps, their length, and the breakpoints by their step."""
    begin, end = _reading.pair("t_span", t_span)
    rounding = rounding_of_times(t_span, step, breakpoints)
    length = _reading.number("step", step, above=0, most=(end - begin) * (1.0 + rounding))
    steps = max(1, math.ceil((end - begin) / length * (1.0 - rounding)))
    times = _reading.times_between("breakpoints", breakpoints, begin, end)
    jumps: dict[int, float] = {}
    if times:
        shares = (np.array(times) - begin) / (end - begin)
        counts = np.arange(steps, (most := max(_REFINED * steps, _MOST_REFINED)) + 1)
        for share in shares:
            counts = counts[np.abs(np.rint(share * counts) - share * counts) <= rounding * counts]
        # Two steps between two of them: a step has a jump at one of its ends at most.
        counts = counts[np.diff(np.rint(np.outer(counts, shares)), prepend=0.0).min(1) >= 2]
        if not counts.size:
            lengths = f"{(end - begin) / most:.6g} to {length:.6g}"
            raise InvalidInputError(
                f"breakpoints={_reading.shown(breakpoints)}: no equal steps from {lengths} end at all of them and at "
                f"t={end:g}; round them to multiples of a common step, or give a shorter step"
            )
        steps = int(counts[0])
        jumps = dict(zip(np.rint(shares * steps).astype(int).tolist(), times, strict=True))
    _reading.require_room(f"{steps:,} steps", steps)
    return np.linspace(begin, end, steps + 1), (end - begin) / steps, jumps


def _read_noise_step(noise_step: Any, h: float) -> int:
    """Number of steps of the noise in one step."""
    if noise_step is None:
        return 1
    ratio = h / _reading.number("noise_step", noise_step, above=0)
    if round(ratio) < 1 or abs(ratio - round(ratio)) > max(1e-9, rounding_of_times(noise_step)) * ratio:
        raise InvalidInputError(
            f"noise_step={noise_step!r} does not divide the step {h:.12g} into a whole number of parts; use "
            f"{h:.12g} / {max(1, round(ratio))}"
        )
    return round(ratio)


def _read_places(t_eval: Any, t: np.ndarray, save: Any) -> np.ndarray | None:
    """Indices of the times that are saved."""
    if t_eval is None:
        return None
    if not isinstance(save, str) or save != "all":
        raise InvalidInputError(f"t_eval= with save={save!r}; it selects the times of save='all'")
    times = read_grid(t_eval, "t_eval", first=float(t[0])).times
    places: np.ndarray = np.searchsorted(t, times - 0.5 * (t[1] - t[0]))
    near = places < t.size
    near[near] = np.abs(t[places[near]] - times[near]) <= max(1e-9, rounding_of_times(t_eval)) * (t[-1] - t[0])
    if not near.all():
        raise InvalidInputError(
            f"t_eval has {times[~near][0]:.12g}, which is not the time of a step from {t[0]:.12g} to {t[-1]:.12g} in "
            f"steps of {t[1] - t[0]:.12g}; use a step that divides it"
        )
    return places


def _read_numbers(name: str, value: Any, source: RandomSource, other: str = "") -> Any:
    refuse_masked(value, name)
    try:
        refuse_unreal(name, value)
        return source.array(value)
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"{name}={value!r}: give numbers{other}") from None


def _read_start(y0: Any, count: int, source: RandomSource) -> Any:
    start = _read_numbers("y0", y0, source)
    shape = tuple(start.shape)
    if start.ndim < 2:
        start = start.reshape(1, -1)
    if start.ndim != 2 or start.shape[0] not in (1, count) or not start.shape[1]:
        raise ShapeError(f"y0 has shape {shape}; give (d,), or (paths, d) with {count:,} paths")
    # On the host: under jit an operation on known values gives a traced one.
    if not is_transformed(start) and not np.isfinite(to_host(start)).all():
        raise InvalidInputError("y0 has values that are not finite; give finite numbers")
    return start


@dataclass(frozen=True, slots=True)
class SimulationExplanation(PlainData):
    """How an equation would be simulated, and why.

    Attributes
    ----------
    method : str
        Name of the method.
    reason : str
        Why this method is used.
    order : str
        Its strong order, and where that holds.
    refused : dict
        The methods that do not support this equation, each with its reason.
    library, device, dtype : str
        Library, device and dtype of the state.
    steps : int
        Number of steps.
    step : float
        Length of a step.
    paths : int
        Number of paths.
    chunks, rows : int
        Number of chunks of paths, and paths per chunk.
    kept_bytes, chunk_bytes : int
        Memory of the result, as far as it is known in advance (0 for a function of the paths), and of a chunk.
    """

    method: str
    reason: str
    order: str
    refused: dict[str, str]
    library: str
    device: str
    dtype: str
    steps: int
    step: float
    paths: int
    chunks: int
    rows: int
    kept_bytes: int
    chunk_bytes: int

    def __str__(self) -> str:
        lines = [
            f"solve_fsde: method {self.method!r}, because {self.reason}",
            f"  strong order: {self.order}",
            f"  steps: {self.steps:,} of {self.step:.6g}, on {self.library} ({self.device}, {self.dtype})",
            f"  paths: {self.paths:,} in {self.chunks:,} chunks of {self.rows:,}",
            f"  memory: {self.kept_bytes:,} bytes kept, {self.chunk_bytes:,} for a chunk",
        ]
        lines += [f"  not {name!r}: {reason}" for name, reason in self.refused.items()]
        return "\n".join(lines)


def explain_simulation(*args: Any, **kwargs: Any) -> SimulationExplanation:
    """What this call of ``solve_fsde`` would do; its arguments are checked, and both functions called at the start."""
    simulation = read_simulation(*args, **kwargs)
    method, traits = simulation.method, simulation.problem.traits
    ordinary = library_of(simulation.alpha) == "python" and simulation.alpha == 1.0
    reasons = {name: each.refuses(traits) for name, each in methods_for(traits, ordinary=ordinary).items()}
    refused = {name: why for name, why in reasons.items() if why is not None}
    reason = "it is the most accurate that converges for this noise"
    if kwargs.get("method", "auto") != "auto":
        reason = "it was asked for by its name"
    elif not ordinary:
        reason = "the order is below 1, or differentiable"
    elif traits.additive or traits.jumps:
        reason = "the noise is additive" if traits.additive else "the noise jumps"
    source = simulation.source
    told = {"method": method.name, "reason": reason, "order": method.order, "refused": refused}
    where = {"library": source.library, "device": source.device, "dtype": source.dtype}
    work = {"steps": simulation.t.size - 1, "step": simulation.h, "paths": simulation.count}
    return SimulationExplanation(**told, **where, **work, **simulation.forecast()._asdict())  # type: ignore[arg-type]
