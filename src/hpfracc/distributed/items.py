"""The items of a sweep: their parameters, and their results as named arrays.

Item i of a product or a list of parameter values is computed from i; no list is stored.
"""

from __future__ import annotations

import hashlib
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import to_host
from hpfracc.errors import BatchItemError, InvalidInputError, ShapeError, SolveError, UnsupportedDtypeError

#: The name of a single result.
VALUE = "value"

Output = None | str | tuple[str, ...] | Callable[[Any], Any]


def host_array(name: str, value: Any) -> np.ndarray[Any, Any]:
    """``value`` as a NumPy array. Masked values and parts of unequal shapes are refused."""
    if np.ma.is_masked(value):
        raise UnsupportedDtypeError(f"{name} has masked values; replace them, as in values.filled(np.nan)")
    try:
        return to_host(value)
    except ValueError:  # ragged
        raise ShapeError(f"{name} is a {type(value).__name__} of unequal parts; give an array of one shape") from None


class SweepParameters(ABC, Sequence[dict[str, Any]]):
    """Named parameters of many calls. ``parameters[i]`` contains the keyword arguments of call i.

    Attributes
    ----------
    values : dict of str to ndarray
        Values of each parameter along the first axis.
    shape : tuple of int
        Shape of the sweep: one length per parameter of a grid, or the number of points.
    """

    kind: str

    def __init__(self, values: Mapping[str, Any]) -> None:
        _reading.instance("values", values, Mapping, "{'alpha': [0.5, 0.9]}")
        if not values:
            raise InvalidInputError(f"{self.kind}() has no parameters; name at least one, as in {self.kind}(alpha=...)")
        self.values: dict[str, np.ndarray[Any, Any]] = {name: _read(name, given) for name, given in values.items()}
        if math.prod(self.shape) > sys.maxsize:
            raise InvalidInputError(f"{self.kind}() has {math.prod(self.shape):,} items, too many to count; give fewer")

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the sweep."""

    @abstractmethod
    def _positions(self, indices: Any) -> dict[str, Any]:
        """Positions along the values of each parameter."""

    def __len__(self) -> int:
        return math.prod(self.shape)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            raise InvalidInputError("the items of a sweep cannot be sliced; use columns(range(a, b)) for several")
        index = int(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"item {index} of a sweep of {len(self)} items")
        at = self._positions(index % len(self))
        chosen = {name: values[at[name]] for name, values in self.values.items()}
        return {name: value if np.ndim(value) else value.item() for name, value in chosen.items()}

    def columns(self, indices: Sequence[int]) -> dict[str, np.ndarray[Any, Any]]:
        """The values of several items, one array for each parameter with the items along the first axis."""
        at = self._positions(np.asarray(indices, dtype=np.intp))
        return {name: values[at[name]] for name, values in self.values.items()}

    def digest(self) -> str:
        """A hash of names, order and values."""
        found = hashlib.sha256(self.kind.encode())
        for name, values in self.values.items():
            found.update(f"|{name}|{values.dtype.str}|{values.shape}|".encode())
            found.update(np.ascontiguousarray(values).tobytes())
        return found.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SweepParameters) and self.digest() == other.digest()

    def __hash__(self) -> int:
        return hash(self.digest())

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}: {len(values)} values" for name, values in self.values.items())
        return f"{self.kind}({inside}; {len(self)} items)"


@final
class ParameterGrid(SweepParameters):
    """Every combination of the values; created by :func:`grid`."""

    kind = "grid"

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values of each parameter."""
        return tuple(len(values) for values in self.values.values())

    def _positions(self, indices: Any) -> dict[str, Any]:
        return dict(zip(self.values, np.unravel_index(indices, self.shape), strict=True))


@final
class ParameterPoints(SweepParameters):
    """One item for each position along the values; created by :func:`points`."""

    kind = "points"

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        lengths = {name: len(each) for name, each in self.values.items()}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise ShapeError(f"the parameters of points() differ in length: {told}; use grid() for all combinations")

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points."""
        return (len(next(iter(self.values.values()))),)

    def _positions(self, indices: Any) -> dict[str, Any]:
        return dict.fromkeys(self.values, indices)


def grid(**values: Any) -> ParameterGrid:
    """Every combination of parameter values, for :func:`hpfracc.sweep`.

    Parameters
    ----------
    **values : array_like
        The values of each parameter along their first axis. The last parameter changes fastest.

    Returns
    -------
    ParameterGrid
        A sequence of dicts, computed on demand.

    See Also
    --------
    points, sweep

    Examples
    --------
    >>> import hpfracc as hf
    >>> items = hf.grid(alpha=[0.3, 0.5, 0.7], rate=[1.0, 2.0])
    >>> len(items), items[3]
    (6, {'alpha': 0.5, 'rate': 2.0})
    """
    return ParameterGrid(values)


def points(**values: Any) -> ParameterPoints:
    """Parameter values in parallel, for :func:`hpfracc.sweep`: item i has the i-th value of each.

    Parameters
    ----------
    **values : array_like
        The values of each parameter along their first axis, all of one length.

    Returns
    -------
    ParameterPoints
        A sequence of dicts, computed on demand.

    See Also
    --------
    grid, sweep

    Examples
    --------
    >>> import hpfracc as hf
    >>> hf.points(alpha=[0.3, 0.5], rate=[1.0, 2.0])[1]
    {'alpha': 0.5, 'rate': 2.0}
    """
    return ParameterPoints(values)


def read_parameters(given: Any) -> SweepParameters:
    """Read parameters created by :func:`grid` or :func:`points`, or a list of dicts with the same names."""
    if isinstance(given, SweepParameters):
        return given
    if isinstance(given, Mapping):
        raise InvalidInputError("params is a mapping; use hf.grid(**params) or hf.points(**params)")
    bare = not isinstance(given, Iterable) or (isinstance(given, np.ndarray) and given.ndim == 0)
    items = [] if bare else list(given)
    if not items or not all(isinstance(item, Mapping) and set(item) == set(items[0]) for item in items):
        raise InvalidInputError(
            f"params={type(given).__name__} are not parameters; use hf.grid(...), hf.points(...), or a list of dicts "
            "with the same names"
        )
    return ParameterPoints({name: [item[name] for item in items] for name in items[0]})


def _read(name: str, given: Any) -> np.ndarray[Any, Any]:
    values = host_array(f"parameter {name!r}", given)
    if values.dtype.kind not in "biufcU":
        raise UnsupportedDtypeError(
            f"parameter {name!r} has dtype {values.dtype}; use numbers, bools or strings, and look other objects up by "
            "their number inside the function"
        )
    if values.ndim == 0:
        raise ShapeError(f"parameter {name!r}={given!r} is a single value; give a sequence, such as [{given!r}]")
    if not len(values):
        raise InvalidInputError(f"parameter {name!r} has no values; give at least one")
    if not hasattr(given, "dtype"):
        _require_unchanged(name, given, values)
    return values.copy() if values is given else values


def _require_unchanged(name: str, given: Any, values: np.ndarray[Any, Any]) -> None:
    """Raise an error if NumPy's common dtype changed a value of a list: 1 beside "abc" is "1", True beside 2 is 1."""
    leaves = np.array(given, dtype=object)
    if leaves.shape != values.shape:  # of arrays, which have their own dtypes
        return
    for before, after in zip(leaves.flat, values.flat, strict=True):
        same_kind = isinstance(before, str) == (values.dtype.kind == "U") and (
            isinstance(before, bool | np.bool_) == (values.dtype.kind == "b")
        )
        if not same_kind or (before != after.item() and before == before):
            raise UnsupportedDtypeError(
                f"parameter {name!r} has {before!r} beside values of another kind, which would make it "
                f"{after.item()!r}; give numbers, bools or strings alone, and large integers not beside floats"
            )


# Results.


def check_output(output: Any) -> Output:
    """What to keep of each result: a name, several, a function, or None."""
    if output is None or isinstance(output, str) or callable(output):
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


@dataclass(frozen=True, slots=True)
class ItemFailure:
    """An item without a result.

    Attributes
    ----------
    index : int
        Index of the item.
    parameters : dict
        Its parameters.
    error : str
        Class and message of the error.
    worker : str
        The worker on which it failed.
    exception : BatchItemError or None
        The error with its cause; None for items of a sweep that was read from a store.
    transient : bool
        Whether another attempt may succeed.
    """

    index: int
    parameters: Mapping[str, Any] = field(compare=False)  # those of the index; arrays have no single truth value
    error: str
    worker: str
    exception: BatchItemError | None = field(default=None, compare=False, repr=False)
    transient: bool = field(default=False, compare=False, repr=False)


@dataclass(slots=True)
class TaskReport:
    """What a worker returns: the completed items, their arrays along the first axis, and the failed items."""

    indices: list[int]
    arrays: dict[str, np.ndarray[Any, Any]]
    failures: list[ItemFailure]
    seconds: float
    worker: str


class SweepOutcome:
    """What is known of the items ``begin`` to ``end``: their results by name, failures, and the work they took.

    The arrays have the items along the first axis; some may be missing. The dtype grows with the results. Integers are
    not rounded: beside floats they must be representable. Without ``keep`` only names and shapes are compared: the
    results stay in a store.
    """

    def __init__(self, begin: int, end: int, *, keep: bool = True) -> None:
        _reading.require_room(f"a sweep over {end - begin:,} items", end - begin, 1)
        self.begin, self.end = begin, end
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self.present = np.zeros(end - begin, bool)
        self.failures: dict[int, ItemFailure] = {}
        self.workers: set[str] = set()
        self.seconds = 0.0
        #: Items of tasks whose files in the store are damaged.
        self.damaged: list[tuple[int, int]] = []
        self._keep, self._first = keep, 0

    def write(self, report: TaskReport) -> None:
        """Add the report of a task."""
        self.add(report.indices, report.arrays)
        for index in report.indices:
            self.failures.pop(index, None)
        self.failures |= {each.index: each for each in report.failures if not self.present[each.index - self.begin]}
        self.workers.add(report.worker)
        self.seconds += report.seconds

    def report(self) -> TaskReport:
        """All of it as one report, with the items in order."""
        indices = [self.begin + int(place) for place in np.flatnonzero(self.present)]
        failures = [self.failures[index] for index in sorted(self.failures)]
        rows = {name: array[self.present] for name, array in self.arrays.items()}
        return TaskReport(indices, rows, failures, self.seconds, max(self.workers, default=""))

    @property
    def ended(self) -> int:
        """Number of items that have a result or failed."""
        return int(self.present.sum()) + len(self.failures)

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
        places = np.asarray(indices) - self.begin
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
