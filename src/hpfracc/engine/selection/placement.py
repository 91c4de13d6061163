"""Where the operands of a call are, whose they are, and what that fixes before anything is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc._arrays import device_of, is_dense, is_tracer, library_of, tracks_gradient
from hpfracc.errors import InvalidInputError

__all__ = ["HOST", "Placement", "place"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Whose arrays come in, and so whose go out.

    Attributes
    ----------
    library : str
        The caller's library; NumPy for lists and numbers.
    device : str
        Where the operands are, ``"cpu"`` or ``"cuda:<index>"``.
    gradient, traced : bool
        Whether a derivative is tracked, and whether the operands only stand for arrays while JAX traces.
    """

    library: str = "numpy"
    device: str = "cpu"
    gradient: bool = False
    traced: bool = False

    @property
    def start(self) -> str:
        """``"host"`` or ``"device"``: times are kept apart by it, for one includes the transfers."""
        return "host" if self.device == "cpu" else "device"

    @property
    def pinned(self) -> str | None:
        """Why only the caller's own library can do the work, or None if any can."""
        if self.traced:
            return f"the operands are being traced by {self.library}"
        if self.gradient:
            return f"the operands carry a {self.library} gradient"
        if self.device != "cpu":
            return f"the operands live on {self.device} and belong to {self.library}"
        return None


HOST = Placement()


def place(arrays: Sequence[Any]) -> Placement:
    """The placement of a call with these operands, or an error if they cannot be used together."""
    library, device, gradient, traced = "numpy", "cpu", False, False
    for array in arrays:
        owner = library_of(array)
        if owner in ("numpy", "python"):
            if isinstance(array, np.ma.MaskedArray):
                raise InvalidInputError(
                    "a masked array was given: its mask would be lost; use array.filled(value) first"
                )
            continue
        if library not in ("numpy", owner):
            raise InvalidInputError(f"operands of {library} and {owner} in one call; convert them to one library first")
        library = owner
        if owner == "torch" and not is_dense(array):
            raise InvalidInputError(
                f"a tensor of layout {array.layout} was given, sparse or packed; use .to_dense() first"
            )
        gradient = gradient or tracks_gradient(array)
        traced = traced or is_tracer(array)
        where = device_of(array)
        if where != "cpu":
            if device not in ("cpu", where):
                raise InvalidInputError(f"operands on {device} and {where} in one call; move them to one device first")
            device = where
    if device != "cpu":
        _refuse_host_operands(arrays, library, device)
    return Placement(library, device, gradient, traced)


def _refuse_host_operands(arrays: Sequence[Any], library: str, device: str) -> None:
    for array in arrays:
        # NumPy operands (weights, say) are moved along; a tensor that its owner left on the host is an oversight.
        if library_of(array) == library and not is_tracer(array) and array.ndim and device_of(array) == "cpu":
            raise InvalidInputError(
                f"one {library} operand is on the host and another on {device}; move both to one device first"
            )
