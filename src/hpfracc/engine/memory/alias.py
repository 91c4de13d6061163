"""A second look at an array's memory, without the flag that says it is read-only."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["unlocked"]


class _Description:
    """Memory as NumPy's array interface describes it, and the array that keeps it alive."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.owner = array
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


def unlocked(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same memory as a writable array.

    For memory that is read-only by convention alone: to hand to a reader that insists on writable memory, or to give
    away a result that nobody else holds. Writing to memory that *is* read-only ends the process.
    """
    return array if array.flags.writeable else np.asarray(_Description(array))
