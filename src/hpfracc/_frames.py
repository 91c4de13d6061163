"""Labelled samples of pandas and xarray, and quantities: labels and units are removed on input and restored on output.

Operators work on plain arrays. :func:`open_samples` returns the array, the axis and the points of a ``Series``,
``DataFrame`` or ``DataArray``; :meth:`Opened.close` restores the labels. Neither library is imported here.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import has_unit, is_chunked, library_of, refuse_units
from hpfracc.errors import InvalidInputError, UnsupportedDtypeError

#: Time units in seconds.
TIME_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "D": 86400.0, "W": 604800.0}

#: Kind of labelled object by type, None for plain types. Filled as types are seen.
_KINDS: dict[type, str | None] = dict.fromkeys((np.ndarray, float, int, complex, list, tuple, type(None)))
#: Attributes of the CF conventions that no longer hold for a derivative or integral.
_OF_THE_QUANTITY = frozenset(
    {"units", "standard_name", "long_name", "valid_min", "valid_max", "valid_range", "actual_range", "cell_methods"}
)
_PANDAS = {"Series": "series", "DataFrame": "frame", "Index": "index"}
_XARRAY = {"DataArray": "dataarray", "Variable": "variable", "Dataset": "dataset"}


def _kind_of(value: Any) -> str | None:
    kind = type(value)
    try:
        return _KINDS[kind]
    except KeyError:
        found = _KINDS[kind] = None if has_unit(value) else _find_kind(kind)
        return found


def _find_kind(kind: type) -> str | None:
    for base in kind.__mro__:
        root = base.__module__.partition(".")[0]
        names = _PANDAS if root == "pandas" else _XARRAY if root == "xarray" else {}
        if base.__name__ in names:
            return names[base.__name__]
    if hasattr(kind, "__dask_graph__"):
        return "chunked"
    # NumPy would convert tables of other libraries (Polars, Arrow) to arrays whose last axis is the columns.
    return "table" if hasattr(kind, "__dataframe__") else None


def has_labels(f: Any, t: Any = None) -> bool:
    """Whether samples or points are labelled, or points are dates, so that :func:`open_samples` is needed."""
    return _kind_of(f) is not None or _kind_of(t) is not None or (type(t) is np.ndarray and t.dtype.kind in "mM")


def refuse_tables(name: str, array: Any) -> None:
    """Raise an error for labelled arrays of several axes in functions that work along the last axis."""
    kind = _kind_of(array)
    if kind == "dataarray" and array.chunks is not None:
        raise InvalidInputError(
            f"{name} takes plain arrays; got a DataArray that wraps a Dask array, which would be computed in this "
            "process: pass its .data with that axis last"
        )
    if kind in ("chunked", "dataset", "table") or (kind in ("frame", "dataarray", "variable") and array.ndim > 1):
        raise InvalidInputError(
            f"{name} takes plain arrays and works along their last axis; got a labelled {type(array).__name__}: "
            "pass its values with that axis last, such as frame.to_numpy().T"
        )


@dataclass(frozen=True, slots=True)
class Opened:
    """Samples separated from their labels.

    Attributes
    ----------
    values : array
        The samples without labels.
    axis : int or tuple of int
        Axis of the points.
    t : array, sequence of arrays, or None
        The points, from the caller or the labels. None if there are none.
    note : str
        Unit and start of the points if they came from dates, as a sentence; otherwise empty.
    """

    values: Any
    axis: Any
    t: Any
    note: str
    _given: Any
    _kind: str | None

    def close(self, value: Any, *, points: bool = True, attributes: bool = False) -> Any:
        """Return ``value``, which has the shape of the samples, with their labels.

        ``points=False`` drops the labels along the axis, where ``value`` may have another length. ``attributes`` keeps
        all of xarray's attributes; by default those that say which quantity it is, such as its units, are dropped: a
        derivative has others.
        """
        if self._kind is None or self._kind == "index":
            return value
        if library_of(value) not in ("numpy", "cupy") and not is_chunked(value):
            raise InvalidInputError(
                f"f is labelled, and an order or step of {library_of(value)} makes the result a tensor, which cannot "
                "have labels; pass f.to_numpy()"
            )
        given = self._given
        along = (self.axis,) if isinstance(self.axis, int) else self.axis
        kept = [points or axis not in along for axis in range(given.ndim)]
        if self._kind == "dataarray":
            return _data_array(given, value, given.dims, set(itertools.compress(given.dims, kept)), attributes)
        labels = [labels if keep else None for labels, keep in zip(given.axes, kept, strict=True)]
        if self._kind == "series":
            labelled = sys.modules["pandas"].Series(value, index=labels[0], name=given.name)
        else:
            labelled = sys.modules["pandas"].DataFrame(value, index=labels[0], columns=labels[1])
        labelled.attrs = dict(given.attrs)
        return labelled


def _data_array(given: Any, value: Any, dims: Sequence[str], kept: set[str], attributes: bool = False) -> Any:
    """``value`` with the coordinates of ``given`` along the dimensions ``kept``."""
    coords = {name: coord for name, coord in given.coords.items() if set(coord.dims) <= kept}
    attrs = {name: each for name, each in given.attrs.items() if attributes or name not in _OF_THE_QUANTITY}
    return sys.modules["xarray"].DataArray(value, coords, dims, given.name, attrs)


def label_rows(given: Any, value: Any) -> Any:
    """``value``, with a result for each row of the ``DataArray`` ``given``, as a ``DataArray``.

    The dimension of the rows keeps its coordinates; the others keep theirs if results have the shape of the rows.
    """
    kept = given.dims if value.shape == given.shape else given.dims[:1]
    dims = (*kept, *(f"result_{axis}" for axis in range(value.ndim - len(kept))))
    return _data_array(given, value, dims, set(kept))


def open_samples(
    f: Any,
    t: Any = None,
    *,
    step: Any = None,
    axis: Any = None,
    dim: Any = None,
    time_unit: str | None = None,
    by_row: bool = False,
    chunked: bool = False,
) -> Opened:
    """Separate samples from their labels, and determine their points.

    Parameters
    ----------
    f : array_like or labelled
        The samples.
    t, step : optional
        The caller's points or step. If both are None, the points come from the labels. ``t`` may be dates.
    axis : int, sequence of int or None
        None for the index of a frame and the last axis of an array.
    dim : hashable, sequence or None
        The dimension of a ``DataArray``, instead of ``axis``.
    time_unit : str or None
        Unit of the points if they are dates: one of :data:`TIME_UNITS`, seconds by default.
    by_row : bool
        Whether only the order of the rows matters. Labels must then be sorted, and no points are returned.
    chunked : bool
        Whether values that are a Dask array are accepted; they stay one.
    """
    if callable(f) and not hasattr(f, "dtype"):
        raise InvalidInputError(
            "dim= and time_unit= apply to samples, and f is a callable; omit them and give the points t as numbers"
        )
    refuse_units(f, "f")
    kind = _kind_of(f)
    if not (chunked and kind == "dataarray"):
        _refuse(f, kind)
    if kind == "dataarray":
        axis = _axis_of_dim(f, axis, dim, t)
    elif dim is not None:
        raise InvalidInputError(f"dim={dim!r} applies to an xarray DataArray, and f is {type(f).__name__}; use axis=")
    elif axis is None:
        axis = 0 if kind in ("series", "frame") else -1
    values = _values_of(f, kind)
    if kind in ("series", "frame", "dataarray"):
        axes = [_reading.axis(one, values.ndim) for one in (axis if isinstance(axis, Sequence) else (axis,))]
        axis = tuple(axes) if isinstance(axis, Sequence) else axes[0]
    else:
        axes = [-1]
    scale = _Unit(time_unit)
    if by_row:
        _require_order(f, kind, axes)
        return Opened(values, axis, None, "", f, kind)
    if t is not None:
        several = isinstance(axis, tuple) and isinstance(t, list | tuple)
        points: Any = [_given_points(one, f, kind, scale) for one in t] if several else _given_points(t, f, kind, scale)
    elif step is None and kind in ("series", "frame", "dataarray"):
        found = [_points_of_labels(_labels_along(f, kind, one), scale) for one in axes]
        points = found if isinstance(axis, tuple) else found[0]
    else:
        points = None
    scale.require_use()
    return Opened(values, axis, points, scale.note, f, kind)


#: Kinds that have no points along an axis, and what to do.
_REFUSED = {
    "chunked": "{} is chunked (dask), and chunked samples are not supported; load them with f.compute()",
    "dataset": "f is a {} of several variables; pass one of them, f['name'], or use f.map(...)",
    "table": "f is a {}, which is not supported; pass f.to_pandas(), or the values with time along the last axis",
    "variable": "f is an xarray {}, which has no coordinates; pass a DataArray, or f.to_numpy()",
}


def _refuse(f: Any, kind: str | None) -> None:
    message = _REFUSED.get("chunked" if kind == "dataarray" and f.chunks is not None else str(kind))
    if message is not None:
        raise InvalidInputError(message.format(type(f).__name__))


def _values_of(f: Any, kind: str | None) -> Any:
    if kind == "series":
        return _column(f, f"the series {f.name!r}" if f.name is not None else "the series")
    if kind == "frame":
        if all(isinstance(dtype, np.dtype) and dtype.kind in "fiuc" for dtype in f.dtypes):
            return f.to_numpy()
        columns = [_column(f.iloc[:, j], f"column {f.columns[j]!r}") for j in range(f.shape[1])]
        return np.stack(columns, axis=1) if columns else np.zeros(f.shape)
    if kind == "dataarray":
        data = f.data
        if library_of(data) == "python" and not is_chunked(data):
            raise UnsupportedDtypeError(
                f"the DataArray wraps a {type(data).__name__}; use one that wraps a NumPy array"
            )
        return data
    return np.asarray(f) if kind == "index" else f


def _column(series: Any, what: str) -> np.ndarray[Any, Any]:
    """The values of a series as numbers. Missing values of pandas' own dtypes become nan."""
    dtype = series.dtype
    if dtype.kind not in "fiubc":
        raise UnsupportedDtypeError(
            f"{what} has dtype {dtype}, which is not numeric; select the numeric columns, as in "
            "frame.select_dtypes('number'), or make it the index"
        )
    if isinstance(dtype, np.dtype):
        return np.asarray(series.to_numpy())
    single = dtype.kind == "f" and dtype.itemsize == 4
    return np.asarray(series.to_numpy(dtype="float32" if single else "float64", na_value=np.nan))


def _axis_of_dim(f: Any, axis: Any, dim: Any, t: Any) -> Any:
    """Position of the dimension ``dim``, or of the only one."""
    if dim is not None and axis is not None:
        raise InvalidInputError(f"dim={dim!r} and axis={axis!r} both name an axis; give one of them")
    if axis is not None:
        return axis
    if dim is None:
        if f.ndim == 1:
            return 0
        if _kind_of(t) != "dataarray" or t.ndim != 1:
            raise InvalidInputError(
                f"the DataArray has dimensions {tuple(f.dims)}; name the dimension of its points: "
                f"dim={' or '.join(map(repr, f.dims))}"
            )
        dim = t.dims[0]
    several = isinstance(dim, Sequence) and not isinstance(dim, str)
    names = tuple(dim) if several else (dim,)
    for name in names:
        if name not in f.dims:
            raise InvalidInputError(f"dim={name!r} is not among the dimensions {tuple(f.dims)} of f; use one of them")
    positions = tuple(f.dims.index(name) for name in names)
    return positions if several else positions[0]


class _Unit:
    """Converts time differences to numbers of a unit, and remembers a note about the last conversion."""

    def __init__(self, name: str | None) -> None:
        self._requested = None if name is None else _reading.choice("time_unit", name, TIME_UNITS)
        self.name = name or "s"
        self.note = ""

    def count(self, spans: Any, since: Any = None) -> np.ndarray[Any, Any]:
        """Convert time differences to numbers of this unit."""
        start = "" if since is None else f" since {since}"
        self.note = f"the times are in units of {self.name}{start}"
        # Exact for whole nanoseconds and seconds; the unit adds one rounding.
        return np.asarray(spans / np.timedelta64(1, "s"), dtype=np.float64) / TIME_UNITS[self.name]

    def require_use(self) -> None:
        if self._requested is not None and not self.note:
            raise InvalidInputError(
                f"time_unit={self._requested!r} applies to dates and time differences, and the points are numbers; "
                "omit it"
            )


def _points_of_dates(dates: Any, what: str, unit: _Unit) -> np.ndarray[Any, Any]:
    """Points as numbers: dates count from the first one, time differences are converted as they are."""
    zoned = getattr(dates, "tz", None) is not None
    array = np.asarray(dates.tz_convert(None) if zoned else dates)
    missing = np.flatnonzero(np.isnat(array))
    if missing.size:
        raise InvalidInputError(f"{what} is NaT at position {missing[0]}; drop such rows")
    if np.datetime_data(array.dtype)[0] in ("Y", "M"):  # years and months vary in length
        array = array.astype("datetime64[D]")
    if array.dtype.kind == "m" or not array.size:
        return unit.count(array)
    return unit.count(array - array[0], np.datetime_as_string(array[0], unit="auto") + ("Z" if zoned else ""))


class _Labels(NamedTuple):
    """The labels along one axis, and whether integer ones are meaningful, rather than a default count of rows."""

    what: str
    index: Any
    chosen: bool


def _labels_along(f: Any, kind: str | None, axis: int) -> _Labels:
    if kind == "dataarray":
        name = f.dims[axis]
        # pandas names the dimension "index" when it converts a frame with a default index.
        found = _Labels(f"the coordinate {name!r}", f.indexes.get(name), name != "index")
    else:
        index = f.axes[axis]
        found = _Labels("the row of column names" if axis else "the index", index, index.name is not None)
    if found.index is not None and found.index.nlevels > 1:
        raise InvalidInputError(
            f"{found.what} has {found.index.nlevels} levels, so its rows belong to several series; unstack them into "
            "columns, or process each group: f.groupby(level=0).transform(...)"
        )
    return found


def _points_of_labels(labels: _Labels, unit: _Unit) -> np.ndarray[Any, Any]:
    """The labels as points; raises an error that says why if they cannot be."""
    what, index, chosen = labels
    if hasattr(index, "to_timestamp"):  # a period counts from its start
        index = index.to_timestamp()
    kind = "" if index is None else index.dtype.kind
    if index is not None and kind in "mM":
        return _points_of_dates(index, what, unit)
    if kind == "f" or (index is not None and kind in "iu" and chosen):
        return np.asarray(index, dtype=np.float64)
    if index is None:
        why = f"{what} has no coordinate"
    elif kind in "iu":
        why = f"{what} is an unnamed integer index, which may only count rows"
    else:
        why = f"{what} has dtype {index.dtype}, which is not numeric and not a date"
    raise InvalidInputError(f"neither t nor step is given, and {why}; give step=, or the points t= (such as t=f.index)")


def _require_order(f: Any, kind: str | None, axes: Sequence[int]) -> None:
    """Raise an error if numeric or date labels along an axis are not sorted."""
    if kind not in ("series", "frame", "dataarray"):
        return
    for axis in axes:
        what, index, _ = _labels_along(f, kind, axis)
        if index is not None and index.dtype.kind in "iufmM" and not index.is_monotonic_increasing:
            raise InvalidInputError(
                f"{what} is not sorted, and rows must run from the oldest to the newest; sort them "
                "(sort_index(), or sortby() in xarray), or drop the labels"
            )


def _given_points(t: Any, f: Any, kind: str | None, unit: _Unit) -> Any:
    """The caller's points without labels, with dates converted to numbers."""
    what = _kind_of(t)
    if what in ("chunked", "frame", "dataset", "table"):
        raise InvalidInputError(f"t is a {type(t).__name__}; pass the points along one axis, such as frame['t']")
    if what == "series" and kind in ("series", "frame") and not t.index.equals(f.axes[0]):
        raise InvalidInputError("t and f have different indexes, and they are not aligned; give both the same index")
    if what in ("series", "index"):
        t = sys.modules["pandas"].Index(t)  # keeps the time zone, which an array would lose
        t = t.to_timestamp() if hasattr(t, "to_timestamp") else t
    elif what in ("dataarray", "variable"):
        t = t.data
    if what is not None or type(t) is np.ndarray:
        return _points_of_dates(t, "t", unit) if t.dtype.kind in "mM" else np.asarray(t)
    return t


def with_units(apply: Callable[..., Any], f: Any, t: Any, step: Any, power: float) -> Any:
    """``apply(f, t, step)`` of plain numbers, in the unit of ``f`` times that of the points to the ``power``.

    Points keep the unit in which they are given. A plain number or array has no unit.
    """
    (f, of_f), (t, of_t), (step, of_step) = (_split_unit(each) for each in (f, t, step))
    try:
        unit = of_f * (of_step if t is None else of_t) ** power
    except (TypeError, ValueError) as error:  # such as degrees Celsius, whose zero is not 0
        raise UnsupportedDtypeError(
            f"the unit of the result is not defined ({error}); convert f and t first"
        ) from error
    return apply(f, t, step) * unit


def _split_unit(value: Any) -> tuple[Any, Any]:
    """The numbers of a quantity, and one of its unit."""
    if not has_unit(value):
        if _kind_of(value) is not None:
            raise UnsupportedDtypeError(
                f"a labelled {type(value).__name__} beside a quantity with a unit; give both as quantities, or neither"
            )
        return value, 1.0
    plain = value.magnitude if hasattr(value, "magnitude") else value.value
    if not isinstance(plain, float | int | np.generic) and type(plain) is not np.ndarray:
        raise UnsupportedDtypeError(
            f"the numbers of a {type(value).__name__} are a {type(plain).__name__}; use a NumPy array, or drop the unit"
        )
    return plain, 1.0 * (value.units if hasattr(value, "units") else value.unit)
