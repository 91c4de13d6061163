"""The items of a sweep: products and lists of parameter values. Item i is computed from i; no list is stored."""

from __future__ import annotations

import hashlib
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

import numpy as np

from hpfracc import _reading
from hpfracc.distributed.outputs import host_array
from hpfracc.errors import InvalidInputError, ShapeError, UnsupportedDtypeError


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
    items = list(given) if isinstance(given, Iterable) else []
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
