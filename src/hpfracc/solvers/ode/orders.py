"""The order of an equation: one number, one for each component, or a function of time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc._arrays import library_of, refuse_chunked
from hpfracc._reading import array
from hpfracc.errors import InvalidInputError, ShapeError

__all__ = ["Orders", "read_orders"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Orders:
    """The given ``alpha``, and what is known about it.

    Attributes
    ----------
    value : number, array, or callable
        As given. A tensor or JAX array stays differentiable.
    known : numpy.ndarray or None
        The numbers, float64, of shape ``()`` or one that broadcasts to that of ``y0``; None for a traced value or a
        function of t.
    function : callable or None
        ``alpha(t)``, for an order that varies with time.
    ceiling : int
        The highest order rounded up: the number of initial values that the equation needs.
    """

    value: Any
    known: Array | None
    function: Callable[[float], Any] | None
    ceiling: int

    @property
    def single(self) -> float | None:
        """The order as one number, if all components share it."""
        if self.known is None or self.known.size == 0:
            return None
        first = float(self.known.flat[0])
        return first if self.known.size == 1 or bool(np.all(self.known == first)) else None

    def ceilings(self) -> Array:
        """Number of initial values of each component, in the shape of ``known``."""
        if self.known is None:
            return np.asarray(self.ceiling)
        return np.ceil(self.known).astype(np.int64)


def read_orders(alpha: Any, shape: tuple[int, ...], t0: float, t1: float, derivatives: int) -> Orders:
    """Check ``alpha`` against the shape of ``y0``; ``derivatives`` is their given number, for a traced order."""
    if alpha is None or isinstance(alpha, bool | np.bool_ | str):
        raise InvalidInputError(f"alpha={alpha!r} is not an order; use a number such as 0.5, or one for each component")
    if callable(alpha) and library_of(alpha) == "python":
        return _read_function(alpha, shape, t0, t1)
    known = _read_values(alpha)
    if known is None:
        return Orders(alpha, None, None, derivatives + 1)
    if known.dtype.kind == "c":
        raise InvalidInputError(f"alpha has dtype {known.dtype}; give real orders")
    try:
        known = known.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(f"alpha={alpha!r} is not a number; use one such as 0.5") from None
    check_values(known, "alpha")
    if not _fits(known.shape, shape):
        raise ShapeError(
            f"alpha has shape {known.shape} and y0 has shape {shape}: give one order, or one for each of the "
            f"{shape[-1]} components. If this is the initial state, y0 and alpha are swapped: the order comes last"
        )
    return Orders(alpha, known, None, math.ceil(float(known.max(initial=1.0))))


def check_values(values: Array, name: str) -> None:
    """Raise an error for orders that are not finite or not positive."""
    good = np.isfinite(values) & (values > 0.0)
    if not good.all():
        value = float(values[~good].flat[0]) if values.ndim else float(values)
        raise InvalidInputError(f"{name} holds {value}; an equation has a finite order above 0, such as 0.5")


def _fits(shape: tuple[int, ...], state: tuple[int, ...]) -> bool:
    """Whether orders of ``shape`` broadcast to the state without making it larger."""
    if not shape:
        return True
    try:
        return np.broadcast_shapes(shape, state) == state
    except ValueError:
        return False


def _read_values(alpha: Any) -> Array | None:
    """The numbers of ``alpha``, or None if it is traced or mapped."""
    refuse_chunked(alpha, "alpha")
    library = library_of(alpha)
    if library == "torch":
        try:
            return np.asarray(alpha.detach().cpu().numpy())
        except RuntimeError:  # mapped by torch.func
            return None
    if library == "jax":
        try:
            return np.asarray(alpha)
        except Exception as error:
            if "Tracer" in type(error).__name__:
                return None
            raise
    found: Array = array("alpha", alpha)
    return found


def _read_function(alpha: Callable[[float], Any], shape: tuple[int, ...], t0: float, t1: float) -> Orders:
    """A variable order, probed at both ends and in the middle."""
    highest = 0.0
    for t in (t0, 0.5 * (t0 + t1), t1):
        try:
            values = np.asarray(alpha(t), dtype=np.float64)
        except (TypeError, ValueError):
            raise InvalidInputError(
                f"alpha({t:g}) = {alpha(t)!r} is not an order; return a number such as 0.5"
            ) from None
        check_values(values, f"alpha({t:g})")
        if np.any(values > 1.0):
            raise InvalidInputError(
                f"alpha({t:g}) = {float(values.max()):g}; an order that is a function of t may be at most 1"
            )
        if not _fits(values.shape, shape):
            raise ShapeError(
                f"alpha({t:g}) has shape {values.shape}; return one order, or one per component of {shape}"
            )
        highest = max(highest, float(values.max(initial=0.0)))
    return Orders(alpha, None, alpha, math.ceil(highest))
