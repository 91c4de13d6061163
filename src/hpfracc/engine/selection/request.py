"""A request: the work, where its operands are, and which backend the user prefers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import device_of, is_dense, is_traced, is_tracer, library_of, tracks_gradient
from hpfracc._config import BACKENDS, Settings, check_backend, current_context
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.primitives import OWN_PRIMITIVES, PRIMITIVES
from hpfracc.engine.primitives.base import Call, Primitive
from hpfracc.engine.workload import OPERATION_PRIMITIVES
from hpfracc.errors import BackendUnavailableError, InvalidInputError, warn

#: The operations given to :func:`read_preference`: functions that choose a backend by themselves.
_FUNCTIONS = ("shortest_path", "solve_fode", "solve_fpde", "solve_fsde")


@dataclass(frozen=True, slots=True)
class Placement:
    """The library and device of the operands, and so of the result.

    Attributes
    ----------
    library : str
        Library of the operands; NumPy for lists and numbers.
    device : str
        Where the operands are, ``"cpu"`` or ``"cuda:<index>"``.
    gradient, traced : bool
        Whether a derivative is tracked, and whether the operands are tracers of JAX or fake tensors of PyTorch.
    """

    library: str = "numpy"
    device: str = "cpu"
    gradient: bool = False
    traced: bool = False

    @property
    def start(self) -> str:
        """``"host"`` or ``"device"``. Their times are separate: those from the host include transfers."""
        return "host" if self.device == "cpu" else "device"

    @property
    def pinned(self) -> str | None:
        """Reason why only the caller's library can run the call, or None if any can."""
        if self.traced:
            return f"the operands are being traced by {self.library}"
        if self.gradient:
            return f"the operands carry a {self.library} gradient"
        if self.device != "cpu":
            return f"the operands live on {self.device} and belong to {self.library}"
        return None


HOST_PLACEMENT = Placement()


def place(arrays: Sequence[Any]) -> Placement:
    """The placement of ``arrays``; raises an error if they cannot be used in one call."""
    library, device, gradient, traced = "numpy", "cpu", False, False
    for array in arrays:
        owner = library_of(array)
        if owner in ("numpy", "python"):
            if isinstance(array, np.ma.MaskedArray):
                raise InvalidInputError("a masked array: its mask would be lost; use array.filled(value) first")
            if hasattr(array, "toarray"):  # NumPy would make one Python object of it
                raise InvalidInputError(f"a sparse {type(array).__name__}; use .toarray() first")
            continue
        if library not in ("numpy", owner):
            raise InvalidInputError(f"operands of {library} and {owner} in one call; convert them to one library first")
        library = owner
        if owner == "torch" and not is_dense(array):
            raise InvalidInputError(f"a tensor of layout {array.layout}, sparse or packed; use .to_dense() first")
        gradient = gradient or tracks_gradient(array)
        traced = traced or is_traced(array)
        where = device_of(array)
        if where != "cpu":
            if device not in ("cpu", where):
                raise InvalidInputError(f"operands on {device} and {where} in one call; move them to one device first")
            device = where
    for array in arrays if device != "cpu" else ():
        # NumPy operands (such as weights) are moved; a tensor left on the host is treated as a mistake.
        if library_of(array) == library and not is_tracer(array) and array.ndim and device_of(array) == "cpu":
            raise InvalidInputError(f"{library} operands on the host and on {device}; move both to one device first")
    return Placement(library, device, gradient, traced)


@dataclass(frozen=True, slots=True)
class Preference:
    """A backend that must be used, and the source of that request.

    ``general`` requests are for all operations: ``use_backend`` and ``HPFRACC_FORCE_*``.
    """

    backend: str
    source: str
    general: bool = False


def find_preference(
    operation: str,
    settings: Settings,
    *,
    argument: Any = None,
    context: str | None = None,
    preferred: Any = None,
) -> Preference | None:
    """The effective preference, or None if the engine may choose.

    In this order: the ``backend=`` argument, the innermost ``use_backend`` block, a selector's ``preferred_backend``,
    ``config(pin=...)``, ``HPFRACC_FORCE_*``.
    """
    asked = (argument, "the backend= argument", False), (context, "use_backend", True)
    for value, source, general in (*asked, (preferred, "preferred_backend", False)):
        name = "auto" if value is None else check_backend(value, auto=True)
        if name != "auto":
            return Preference(name, source, general)
    pinned = _named_for(operation, settings.pin)
    if pinned is not None:
        return Preference(pinned, f"config(pin={{{operation!r}: {pinned!r}}})")
    if settings.force is not None:
        return Preference(settings.force, f"HPFRACC_FORCE_{settings.force.upper()}", general=True)
    return None


def read_preference(operation: str, argument: Any = None) -> Preference | None:
    """The effective preference of the caller for work that the engine does not run, such as a solve.

    Raises
    ------
    BackendUnavailableError
        If ``config(never=...)`` or ``HPFRACC_DISABLE_*`` rules that backend out.
    """
    context = current_context()
    settings = context.settings()
    found = find_preference(operation, settings, argument=argument, context=context.backend)
    why = None if found is None else refusal_reason(operation, found.backend, settings)
    if found is not None and why is not None:
        raise preference_error(operation, found, why)
    return found


def numba_wish(
    operation: str, preference: Preference | None, runs_on: str, *, compile: Any = "auto", strict: bool = False
) -> str:
    """``"numpy"`` or ``"numba"`` where the caller and the settings leave no choice, otherwise ``"auto"``.

    Parameters
    ----------
    runs_on : str
        What work in NumPy runs on, for the error if another backend is asked for.
    compile : bool or "auto"
        The argument of this name: True needs Numba.
    strict : bool
        Whether that is an error for requests of all operations too, which are left out of account otherwise.
    """
    settings = current_context().settings()
    if preference is not None and preference.backend not in ("numpy", "numba"):
        if strict or not preference.general:
            raise preference_error(operation, preference, runs_on)
        preference = None
    without_numba = refusal_reason(operation, "numba", settings)
    without_numpy = never_reason(operation, "numpy", settings)
    if without_numba is not None:
        if compile is True:
            raise preference_error(operation, Preference("numba", "compile=True"), without_numba)
        if without_numpy is not None:
            raise BackendUnavailableError(
                f"{operation}: no backend can serve it (numpy: {without_numpy}; numba: {without_numba}); allow one"
            )
        return "numpy"
    if without_numpy is not None:
        return "numba"
    if preference is None:
        return "auto"
    if preference.backend == "numpy" and compile is True:
        raise InvalidInputError(f"compile=True needs Numba, and {preference.source} forbids it; omit one of them")
    return preference.backend


def refusal_reason(operation: str, backend: str, settings: Settings) -> str | None:
    """Why the settings rule ``backend`` out for ``operation``; None if they do not."""
    return disabled_reason(backend, settings) or never_reason(operation, backend, settings)


def disabled_reason(backend: str, settings: Settings) -> str | None:
    """Why ``HPFRACC_DISABLE_*`` rules ``backend`` out; None if it does not."""
    return f"disabled by HPFRACC_DISABLE_{backend.upper()}" if backend in settings.disabled else None


def never_reason(operation: str, backend: str, settings: Settings) -> str | None:
    """Why ``config(never=...)`` rules ``backend`` out for ``operation``; None if it does not."""
    ruled_out = _named_for(operation, settings.never) or ()
    return f"config(never=...) rules it out for {operation}" if backend in ruled_out else None


def _named_for(operation: str, settings: Mapping[str, Any]) -> Any:
    """The setting for ``operation``, by its name or by an operation type that it implements."""
    if operation in settings:
        return settings[operation]
    names = {*OPERATION_PRIMITIVES, *PRIMITIVES, *OWN_PRIMITIVES, *_FUNCTIONS} if settings else set()
    for name in settings.keys() - names:  # a warning, because a user may register it later, or in another process
        known = f"{_reading.hint(name, names)}: {', '.join(sorted(names))}"
        warn(
            f"config(pin=, never=) names {name!r}, which is no operation so far, and has no effect; {known}",
            UserWarning,
        )
    return next((value for name, value in settings.items() if OPERATION_PRIMITIVES.get(name) == operation), None)


def preference_error(operation: str, preference: Preference, why: str) -> BackendUnavailableError:
    """The error for a preference that cannot be met; a library that is not installed is the first reason."""
    absent = registry.unavailable(preference.backend) if preference.backend in BACKENDS else None
    why = absent or why
    return BackendUnavailableError(
        f"{operation}: {preference.source} asks for {preference.backend!r}, which cannot serve this call ({why}); "
        "use another backend or 'auto'"
    )


#: Suffix of an operation with a cached transform, in the keys of costs.
PREPARED = "+prepared"
#: (operation, arm, where the operands start, dtype): the key of a time in the cost model.
CostKey = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Request:
    """Everything a decision depends on.

    Attributes
    ----------
    primitive, call, placement
        The work, its size, and where its operands are.
    shapes : tuple
        Dtype and shape of each operand, and the parameters: the compile key of kernels compiled per shape.
    settings, preference
        The current settings, and the requested backend, if any.
    needs_gradient : bool
        Whether a derivative is needed although no operand tracks one (yet).
    prepared : bool
        Whether the caller gave a key under which the transform of an operand is cached.
    tried : frozenset of str
        Arms that failed in this call.
    banned : frozenset of str
        Backends that failed in the call that surrounds this one.
    reserved : int
        Bytes, on the operands' device, reserved for the whole result of which this call computes a chunk.
    limit : int or None
        Maximum bytes of the call, including operands, regardless of free memory.
    kernel : str or None
        The kernel, such as ``"numpy:fft"``, or the arm that the other chunks of the same work use.
    ignore_memory : bool
        Whether to choose as if there were enough memory.
    short : bool
        Whether this is a chunk of a call that lacked memory; no further library is imported for it.
    """

    primitive: Primitive
    call: Call
    placement: Placement
    settings: Settings
    shapes: tuple[tuple[tuple[str, tuple[int, ...]], ...], tuple[Hashable, ...]] = ((), ())
    preference: Preference | None = None
    needs_gradient: bool = False
    prepared: bool = False
    tried: frozenset[str] = frozenset()
    banned: frozenset[str] = frozenset()
    reserved: int = 0
    limit: int | None = None
    kernel: str | None = None
    ignore_memory: bool = False
    short: bool = False

    @property
    def operation(self) -> str:
        """The name in the cost model. Calls with a cached transform cost less, and are separate."""
        return f"{self.call.operation}{PREPARED}" if self.prepared else self.call.operation

    def cost_key(self, arm: Arm) -> CostKey:
        """The key of the arm's times; calls that record a gradient are separate."""
        start = self.placement.start
        if self.placement.gradient or self.needs_gradient:
            start += "+gradient"
        return self.operation, arm.name, start, self.call.dtype

    @property
    def slot(self) -> tuple[Hashable, ...]:
        """The key of choices: requests in one slot have the same arms."""
        placement = self.placement
        preferred = None if self.preference is None else self.preference.backend
        gradient = placement.gradient or self.needs_gradient
        return self.operation, self.call.dtype, placement.start, placement.library, gradient, preferred

    def compile_key(self, arm: Arm) -> tuple[Hashable, ...]:
        """The key of the compilation that this call needs on ``arm``.

        Arms that compile nothing also have slower first calls (a module is loaded, an FFT plan is created), once per
        operation.
        """
        arm_of = (arm.backend, arm.algorithm, arm.device)
        compiles = arm.spec.compiles
        if compiles == "shape":  # with a cached transform another function is traced
            return (self.operation, *arm_of, self.shapes)
        if compiles == "signature":
            kinds, named = self.shapes
            axes = tuple((dtype, len(shape)) for dtype, shape in kinds)
            free = self.primitive.free_parameters
            named = tuple(each for each in named if not isinstance(each, tuple) or each[0] not in free)
            return (self.call.operation, *arm_of, self.call.dtype, axes, named)
        return (self.call.operation, *arm_of)
