"""The results of a sweep's calls, as named arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hpfracc._arrays import to_host
from hpfracc.errors import InvalidInputError, ShapeError, SolveError, UnsupportedDtypeError

#: The name of a single result.
VALUE = "value"

Output = None | str | tuple[str, ...] | Callable[[Any], Any]


def check_output(output: Any) -> Output:
    """What to keep of each result: a name, several, a function, or None."""
    if output is None or isinstance(output, str):
        return output
    if callable(output):
        return output
    names = tuple(output) if isinstance(output, list | tuple) else ()
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise InvalidInputError(
            f"output={output!r} does not say what to keep; use the name of a field such as 'y', several, or a function"
        )
    return names


def read_outputs(result: Any, output: Output) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of one result by name. A solution that did not reach its end raises :class:`SolveError`."""
    if getattr(result, "success", True) is False:
        raise SolveError(f"the solver stopped: {getattr(result, 'message', 'no message')}")
    if callable(output):
        result = output(result)
    elif isinstance(output, str):
        return {output: _array(output, _field(result, output))}
    elif output is not None:
        return {name: _array(name, _field(result, name)) for name in output}
    elif not hasattr(type(result), "__array__") and hasattr(result, "t"):  # a solution; an array may have a label "t"
        for name in ("y", "u"):
            if hasattr(result, name):
                result = {name: getattr(result, name)}
                break
    if isinstance(result, Mapping):
        if not result:
            raise InvalidInputError("the function returned an empty mapping; return at least one array")
        return {str(name): _array(str(name), value) for name, value in result.items()}
    return {VALUE: _array("the result", result)}


def _field(result: Any, name: str) -> Any:
    try:
        return result[name] if isinstance(result, Mapping) else getattr(result, name)
    except (KeyError, AttributeError):
        known = sorted(result) if isinstance(result, Mapping) else [each for each in dir(result) if each[0] != "_"]
        raise InvalidInputError(
            f"output={name!r} is not a field of a {type(result).__name__}, which has {', '.join(map(str, known[:20]))}"
        ) from None


def _array(name: str, value: Any) -> np.ndarray[Any, Any]:
    array = host_array(name, value)
    if array.dtype.kind not in "biufc":
        raise UnsupportedDtypeError(
            f"{name} is a {type(value).__name__} and not numeric; return a number, an array or a dict of them, or say "
            "with output= what to keep"
        )
    return array


def host_array(name: str, value: Any) -> np.ndarray[Any, Any]:
    """``value`` as a NumPy array. Masked values and parts of unequal shapes are refused."""
    if np.ma.is_masked(value):
        raise UnsupportedDtypeError(f"{name} has masked values; replace them, as in values.filled(np.nan)")
    try:
        return to_host(value)
    except ValueError:  # ragged
        raise ShapeError(f"{name} is a {type(value).__name__} of unequal parts; give an array of one shape") from None


class ItemArrays:
    """The results of items ``begin`` to ``end`` by name, with the items along the first axis; some may be missing.

    The dtype grows with the results. Integers are not rounded: beside floats they must be representable. Without
    ``keep`` only names and shapes are compared.
    """

    def __init__(self, begin: int, end: int, *, keep: bool = True) -> None:
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self.present = np.zeros(end - begin, bool)
        self._begin = begin
        self._keep = keep
        self._first = 0

    def add(self, indices: Sequence[int], rows: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Keep the rows of these items, which must have the names and shapes of the first ones."""
        if not len(indices):
            return
        if not self.arrays:
            self._first = indices[0]
            length = len(self.present) if self._keep else 0
            self.arrays = {name: np.empty((length, *row.shape[1:]), row.dtype) for name, row in rows.items()}
        if rows.keys() != self.arrays.keys():
            raise ShapeError(
                f"item {indices[0]} returned {', '.join(rows)} and item {self._first} {', '.join(self.arrays)}; return "
                "the same names for all items"
            )
        places = np.asarray(indices) - self._begin
        for name, row in rows.items():
            kept = self.arrays[name]
            if row.shape[1:] != kept.shape[1:]:
                raise ShapeError(
                    f"item {indices[0]} returned {name} of shape {row.shape[1:]} and item {self._first} of shape "
                    f"{kept.shape[1:]}; return one shape for all items, such as the values at t_eval= or the last one"
                )
            if not self._keep:
                continue
            common = np.result_type(kept.dtype, row.dtype)
            _require_exact(name, row, common)
            if common != kept.dtype:
                _require_exact(name, kept[self.present], common)
                self.arrays[name] = kept = kept.astype(common)
            kept[places] = row
        self.present[places] = True

    def rows(self) -> dict[str, np.ndarray[Any, Any]]:
        """The rows of the items that are present."""
        return {name: array[self.present] for name, array in self.arrays.items()}

    def with_gaps(self) -> dict[str, np.ndarray[Any, Any]]:
        """All arrays, with nan for the items that are missing; integers and bools are then converted to float."""
        missing = ~self.present
        if not missing.any():
            return self.arrays
        found = {}
        for name, array in self.arrays.items():
            dtype = array.dtype if array.dtype.kind in "fc" else np.dtype(np.float64)
            _require_exact(name, array[self.present], dtype)
            found[name] = array.astype(dtype)
            found[name][missing] = np.nan
        return found


def _require_exact(name: str, values: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> None:
    """Raise an error if integers would be rounded as floats."""
    if values.dtype.kind not in "iu" or dtype.kind not in "fc" or not values.size:
        return
    limit = 2 ** (np.finfo(dtype).nmant + 1)
    if int(values.max()) > limit or int(values.min()) < -limit:
        raise UnsupportedDtypeError(
            f"{name} has integers beyond {limit:,}, which would be rounded beside floats or nan; return one dtype for "
            "all items, such as two integers instead of a large one"
        )
