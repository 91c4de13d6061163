"""A stochastic equation, read and checked before anything is drawn."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import dtype_name, is_tracer, is_transformed, library_of
from hpfracc._choices import Interpretation
from hpfracc._xp import Namespace, namespace
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.solvers.sde.noise.fractional_brownian import Brownian, FractionalBrownian
from hpfracc.solvers.sde.noise.process import LevyNoise, plain_number
from hpfracc.solvers.sde.noise.stable import StableLevy

INTERPRETATIONS: tuple[str, ...] = get_args(Interpretation)

#: Functions for the drift, and for the diffusion unless it is constant.
Functions = tuple[Callable[..., Any], Callable[..., Any] | None]

#: Maximum number of noises for which ``diffusion dZ`` is summed term by term, so that no sum depends on the number of
#: paths.
_FEW_NOISES = 8


@dataclass(frozen=True, slots=True)
class Traits:
    """Properties on which the choice of a method and its program depend; hashable.

    Attributes
    ----------
    library, dtype : str
        Library and dtype of the state.
    additive, general : bool
        Whether the diffusion is constant; whether it has an axis of noises.
    noises, dimension : int
        Number of driving noises, and of components of a path.
    hurst : float or None
        1/2 for Brownian motion, nan for processes with jumps, None if H is traced.
    interpretation : str or None
        Interpretation of the integral.
    index : float
        The stable index, above 1, of stable noise; nan for all other noise.
    coupled : bool
        Whether each component has its own noise, whose strength depends on other components too.
    """

    library: str
    dtype: str
    additive: bool
    general: bool
    noises: int
    dimension: int
    hurst: float | None
    interpretation: str | None
    index: float = math.nan
    coupled: bool = False

    @property
    def scalar(self) -> bool:
        """Whether one noise drives each component: its own, with a strength of its own, or a common one."""
        return self.noises == 1 or not (self.general or self.coupled)

    @property
    def jumps(self) -> bool:
        """Whether the noise is not continuous."""
        return self.hurst is not None and math.isnan(self.hurst)

    def roughness_up_to(self, limit: float) -> bool:
        """Whether H is known, and at most ``limit``."""
        return self.hurst is not None and self.hurst <= limit


@dataclass(frozen=True, slots=True)
class NoisyProblem:
    """``dX = drift(t, X) dt + diffusion(t, X) dZ``, for many paths at once.

    Attributes
    ----------
    functions : tuple
        Drift and diffusion as given, of ``(t, y, *args)`` with y of shape ``(paths, d)``.
    constant : array or None
        The diffusion, shape ``(d,)`` or ``(d, m)``, if it is constant.
    args : tuple
        Further arguments of both functions.
    traits : Traits
        Further properties.
    """

    functions: Functions
    constant: Any
    args: tuple[Any, ...]
    traits: Traits

    @property
    def xp(self) -> Namespace:
        """The namespace of the state's library."""
        return namespace(self.traits.library)

    def drift(self, t: Any, y: Any) -> Any:
        """The drift, shape ``(paths, d)``."""
        return self._array("drift", self.functions[0](t, y, *self.args), y)

    def diffusion(self, t: Any, y: Any) -> Any:
        """The diffusion, shape ``(paths, d)`` or ``(paths, d, m)``."""
        function = self.functions[1]
        if function is None:
            return self.xp.module.broadcast_to(self.constant, (y.shape[0], *self.constant.shape))
        return self._array("diffusion", function(t, y, *self.args), y)

    def _array(self, name: str, value: Any, y: Any) -> Any:
        """A function's value in the library and dtype of the state; a single number holds for all components."""
        traits = self.traits
        refuse_unreal(f"the value of {name}", value)
        if isinstance(value, int | float):  # NumPy's numbers included
            return self.xp.full_like(y, value)
        if getattr(value, "shape", None) == () and library_of(value) in ("numpy", traits.library):
            return self.xp.zeros_like(y) + value
        if traits.library == "numpy":
            if library_of(value) in ("torch", "jax", "cupy"):
                raise InvalidInputError(
                    f"{name} returned an array of {library_of(value)} for a state of NumPy; give y0 as an array of "
                    "that library, or backend="
                )
            return _reading.numbers(f"the value of {name}", value, finite=False)
        if traits.library == "torch":
            if library_of(value) != "torch":
                raise InvalidInputError(f"{name} returned {type(value).__name__} for a tensor state; use torch")
            return self.xp.astype(value, traits.dtype)
        return self.xp.module.asarray(value, traits.dtype)

    def apply(self, strength: Any, increments: Any) -> Any:
        """``diffusion dZ``: increments of shape ``(paths, m)``."""
        if not self.traits.general:
            return strength * increments
        if self.traits.noises > _FEW_NOISES:
            return self.xp.matmul(strength, increments[..., None])[..., 0]
        total = strength[:, :, 0] * increments[:, :1]
        for index in range(1, self.traits.noises):
            total = total + strength[:, :, index] * increments[:, index : index + 1]
        return total


def read_problem(
    drift: Any, diffusion: Any, t0: float, y0: Any, noise: Any, interpretation: str | None, args: tuple[Any, ...] = ()
) -> NoisyProblem:
    """Check functions, shapes, noise and interpretation; evaluates both functions at the start.

    ``y0`` of shape ``(1, d)`` or ``(paths, d)``, and a diffusion that is an array, must be of the state's library.
    """
    hurst = _read_noise(noise)
    _reading.function("drift", drift, "(t, y)")
    _reading.instance("args", args, tuple, "(a, b), or (a,) for one")
    library = library_of(y0)
    start = y0[:2]  # BatchNorm takes no single path
    paths = int(start.shape[0])
    dimension = int(start.shape[1])
    dtype = str(y0.dtype).rpartition(".")[2]
    constant = None if callable(diffusion) else _read_constant(diffusion, dimension, y0)
    functions = (drift, None if constant is not None else diffusion)
    index = float(noise.alpha) if isinstance(noise, StableLevy) and noise.alpha > 1.0 else math.nan
    draft = Traits(library, dtype, constant is not None, False, dimension, dimension, hurst, interpretation, index)
    problem = NoisyProblem(functions, constant, args, draft)
    found = _shape_at(problem, problem.drift, t0, start)
    if found != (paths, dimension):
        raise ShapeError(
            f"drift returned shape {found} for y of shape {tuple(start.shape)}; it must be (paths, d), as y"
        )
    first = _shape_at(problem, problem.diffusion, t0, start)
    if len(first) not in (2, 3) or first[:2] != (paths, dimension):
        raise ShapeError(
            f"diffusion returned shape {first} for y of shape {tuple(start.shape)}; return (paths, d), each "
            "component with its own noise, or (paths, d, m)"
        )
    traits = replace(draft, coupled=_is_coupled(problem, t0, start))
    if interpretation is None and (hurst == 0.5 or draft.jumps) and _is_number(problem, t0, start):
        traits = replace(traits, interpretation="ito")  # as all interpretations of additive noise
    if len(first) == 3:
        traits = replace(draft, general=True, noises=first[2])
    _refuse_interpretation(traits)
    return NoisyProblem(functions, constant, args, traits)


def _read_noise(noise: Any) -> float | None:
    """The Hurst index; nan for jumps, None if it is traced."""
    if not isinstance(noise, Brownian | FractionalBrownian | LevyNoise):
        raise InvalidInputError(
            f"noise={noise!r}: equations are driven by noise.Brownian(), noise.FractionalBrownian(H), or Levy processes"
        )
    if isinstance(noise, Brownian):
        return 0.5
    if not isinstance(noise, FractionalBrownian):
        return math.nan
    if noise.kind != "fbm":
        raise InvalidInputError("noise of kind='volterra' does not drive equations here; use kind='fbm'")
    return None if is_tracer(noise.H) else plain_number(noise.H)


def _read_constant(diffusion: Any, dimension: int, y0: Any) -> Any:
    shape = tuple(np.shape(diffusion))
    if not (shape[0] == dimension if len(shape) == 2 else _reading.broadcasts(shape, (dimension,))):
        raise ShapeError(f"diffusion has shape {shape} for {dimension} components; give a number, (d,), or (d, m)")
    return diffusion if len(shape) == 2 else namespace(library_of(y0)).module.broadcast_to(diffusion, (dimension,))


def _shape_at(problem: NoisyProblem, function: Callable[[Any, Any], Any], t0: float, start: Any) -> tuple[int, ...]:
    """The shape of a function's value at the start; in JAX it is determined abstractly."""
    library = problem.traits.library
    if library == "jax":
        return tuple(sys.modules["jax"].eval_shape(lambda y: function(t0, y), start).shape)
    with _unchanged(problem):
        return tuple(function(t0, start).shape)


def _unchanged(problem: NoisyProblem) -> AbstractContextManager[Any]:
    """For evaluations that are not part of the simulation: without gradients, and changes of modules' buffers."""
    held = ExitStack()
    if problem.traits.library == "torch":
        from hpfracc.solvers.tensors.on_torch.buffers import Buffers

        held.enter_context(sys.modules["torch"].no_grad())
        held.enter_context(Buffers(problem.functions, problem.args).unchanged())
    return held


def _is_coupled(problem: NoisyProblem, t0: float, start: Any) -> bool:
    """Whether the strength of a component's noise changes with another component, near the start.

    Half of the components are moved at a time, such that any two are in different halves once. False for traced values.
    """
    xp, places = problem.xp, np.arange(start.shape[1])
    if problem.traits.additive or is_transformed(start) or len(places) == 1:
        return False
    with np.errstate(all="ignore"), _unchanged(problem):
        held, moved = problem.diffusion(t0, start), 1.001 * start + 1.2345e-3
        for turn in range(2 * int(places[-1]).bit_length()):
            half = xp.asarray(1.0 * ((places >> turn // 2) % 2 == turn % 2), like=start) > 0.0
            try:
                other = problem.diffusion(t0, xp.where(half, moved, start))
            except Exception:  # the moved state may be one that the caller refuses
                return False
            if is_transformed(other) or is_transformed(held) or other.ndim > 2:
                return False
            if bool((~half & (other != held) & ~(xp.isnan(other) & xp.isnan(held))).any()):
                return True
    return False


def _is_number(problem: NoisyProblem, t0: float, start: Any) -> bool:
    """Whether the diffusion is a function of time alone: it returns a plain number, and the same one elsewhere."""
    function = problem.functions[1]
    if function is None or is_transformed(start):
        return False
    with np.errstate(all="ignore"), _unchanged(problem):
        try:
            here, there = (function(t0, y, *problem.args) for y in (start, 1.001 * start + 1.2345e-3))
        except Exception:  # the moved state may be one that the caller refuses
            return False
    return isinstance(here, int | float) and isinstance(there, int | float) and here == there


def _refuse_interpretation(traits: Traits) -> None:
    meaning, hurst = traits.interpretation, traits.hurst
    if meaning is not None:
        _reading.choice("interpretation", meaning, INTERPRETATIONS)
    if traits.additive:
        return
    message = ""
    if hurst == 0.5 and meaning not in ("ito", "stratonovich"):
        message = (
            "with multiplicative Brownian noise Ito and Stratonovich equations have different solutions; give "
            "interpretation='ito' or 'stratonovich'"
        )
    elif traits.jumps and meaning != "ito":
        message = "multiplicative noise with jumps is in the Ito sense; give interpretation='ito'"
    elif hurst != 0.5 and not traits.jumps and meaning == "ito":
        message = (
            f"there is no Ito integral with H={hurst}: fractional Brownian motion is not a semimartingale; omit "
            "interpretation (a pathwise integral), or use H = 1/2"
        )
    elif meaning == "young" and hurst is not None and hurst < 0.5:
        message = (
            f"Young integrals need H > 1/2, not {hurst}; use interpretation='stratonovich', the limit of smooth paths"
        )
    if message:
        raise InvalidInputError(message)


def refuse_unreal(name: str, value: Any) -> None:
    """Raise an error unless ``value`` has real numbers of at least single precision.

    Raises
    ------
    InvalidInputError
        With the dtype and a remedy.
    """
    if isinstance(value, list | tuple) and any(library_of(each) in ("torch", "jax") for each in value):
        for each in value:
            refuse_unreal(name, each)
        return
    dtype = dtype_name(value) if library_of(value) in ("torch", "jax", "cupy") else np.asarray(value).dtype.name
    if dtype.startswith("complex"):
        raise InvalidInputError(
            f"{name} is {dtype}, and equations with noise are real; make real and imaginary parts components of y"
        )
    if dtype in ("float16", "bfloat16"):
        raise InvalidInputError(f"{name} is {dtype}, which has too few digits; give float32 or float64")
    if not dtype.startswith(("float", "int", "uint", "bool")):
        raise InvalidInputError(f"{name}={value!r} has dtype {dtype}; give real numbers")
