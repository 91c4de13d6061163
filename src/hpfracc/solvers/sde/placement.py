"""Library, device and precision of a simulation, from the arguments and ``backend=``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc._arrays import dtype_name, library_of
from hpfracc._config import get_settings
from hpfracc._optional import import_optional
from hpfracc.engine.selection.request import never_reason, preference_error, read_preference
from hpfracc.errors import BackendUnavailableError, InvalidInputError, PinnedBackendError
from hpfracc.solvers.sde.noise.fractional_brownian import FractionalBrownian
from hpfracc.solvers.sde.noise.process import Noise
from hpfracc.solvers.sde.noise.source import RandomSource, make_source

#: The name of a simulation in ``config(pin=..., never=...)``.
_OPERATION = "solve_fsde"
_LIBRARIES = ("numpy", "torch", "jax")


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


def place_state(
    backend: Any, rng: Any, key: Any, y0: Any, others: tuple[Any, ...], *, first_path: int, count: int
) -> RandomSource:
    """Determine the library of the arrays; ``y0`` determines device and precision if it is an array.

    Raises
    ------
    PinnedBackendError
        If arrays are of another library than ``backend=``, or of two libraries.
    """
    arrays = [value for value in _leaves((*others, y0)) if library_of(value) in ("torch", "jax", "cupy")]
    owners = {library_of(value) for value in arrays}
    if len(owners) > 1:
        raise PinnedBackendError(f"arguments are arrays of {' and '.join(sorted(owners))}; give arrays of one library")
    if "cupy" in owners:
        raise BackendUnavailableError("solve_fsde runs on NumPy, PyTorch and JAX; give the arrays as tensors of torch")
    if backend is not None and (not isinstance(backend, str) or backend not in ("auto", *_LIBRARIES)):
        raise BackendUnavailableError(f"backend={backend!r}: solve_fsde runs on 'numpy', 'torch' and 'jax', or 'auto'")
    preference = read_preference(_OPERATION, backend)
    if preference is not None and preference.general and not owners:
        preference = None  # the functions are the user's: host arrays stay in NumPy for settings of all operations
    wish = "auto" if preference is None else preference.backend
    asked = "" if preference is None else f"backend {wish!r} was requested by {preference.source}"
    if preference is not None and wish not in _LIBRARIES:
        raise preference_error(_OPERATION, preference, "it runs on 'numpy', 'torch' and 'jax'")
    if owners and wish not in ("auto", *owners):
        (owner,) = owners
        raise PinnedBackendError(f"{asked}, and there are arrays of {owner}; omit it, or convert them")
    own = [value for value in _leaves(y0) if library_of(value) in ("torch", "jax")]
    like = own or [value for value in arrays if np.ndim(value)] or arrays
    if wish in ("torch", "jax") and not owners:
        like = [_example(wish, y0, rng)]
    source = make_source(rng, key, *like, first_path=first_path, count=count)
    if wish == "numpy" and source.library != "numpy":
        raise PinnedBackendError(f"{asked}, but the random numbers are of {source.library}")
    never = never_reason(_OPERATION, source.library, get_settings())
    if never is not None:
        raise BackendUnavailableError(
            f"{_OPERATION}: the state is of {source.library}, and {never}; give backend=, or arrays of another library"
        )
    return source


def _example(library: str, y0: Any, rng: Any) -> Any:
    """An example array with the type of the state."""
    module = import_optional("torch" if library == "torch" else "jax.numpy")
    name = "float32" if dtype_name(y0) == "float32" else "float64"
    if library == "torch":
        return module.zeros((), dtype=getattr(module, name), device=getattr(rng, "device", "cpu"))
    return module.zeros(())


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


def move_noise(noise: Noise, source: RandomSource) -> Noise:
    """The process with its parameters on the device of the state."""
    if isinstance(noise, FractionalBrownian) and library_of(noise.H) == "torch":
        return dataclasses.replace(noise, H=noise.H.to(source.device))
    return noise
