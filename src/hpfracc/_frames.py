"""Labelled samples: pandas and xarray objects are taken apart where they come in and put together where they go out.

Operators work on plain arrays. :func:`open_samples` gives the array, the axis and the points of a ``Series``, a
``DataFrame`` or a ``DataArray``; :meth:`Opened.close` puts the labels back. Neither library is imported: an object of
a library that was never imported cannot exist.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc._arrays import library_of
from hpfracc.errors import InvalidInputError, ShapeError, UnsupportedDtypeError

__all__ = ["TIME_UNITS", "Opened", "has_labels", "open_samples", "refuse_dates", "refuse_tables"]

#: Units that dates can be counted in, as seconds.
TIME_UNITS: dict[str, float] = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "D": 86400.0,
    "W": 604800.0,
}

#: What kind of labelled object a type is, None for everything else; subclasses are looked up once.
_KINDS: dict[type, str | None] = dict.fromkeys((np.ndarray, float, int, complex, list, tuple, type(None)))
_PANDAS = {"Series": "series", "DataFrame": "frame", "Index": "index"}
_XARRAY = {"DataArray": "dataarray", "Variable": "variable", "Dataset": "dataset"}


def _kind_of(value: Any) -> str | None:
    kind = type(value)
    try:
        return _KINDS[kind]
    except KeyError:
        found = _KINDS[kind] = _find_kind(kind)
        return found


def _find_kind(kind: type) -> str | None:
    for base in kind.__mro__:
        root = base.__module__.partition(".")[0]
        names = _PANDAS if root == "pandas" else _XARRAY if root == "xarray" else {}
        if base.__name__ in names:
            return names[base.__name__]
    if hasattr(kind, "__dask_graph__"):
        return "chunked"
    # Tables of other libraries (Polars, Arrow) would become arrays whose last axis is the columns.
    return "table" if hasattr(kind, "__dataframe__") else None


def has_labels(f: Any, t: Any = None) -> bool:
    """Whether samples or points carry labels, or points are dates: then they are to be opened first."""
    return _kind_of(f) is not None or _kind_of(t) is not None or (type(t) is np.ndarray and t.dtype.kind in "mM")


def refuse_dates(name: str, times: Any) -> None:
    """Refuse dates where plain numbers are needed: as numbers they would be counts of some unit since 1970."""
    dtype = getattr(times, "dtype", None)
    if getattr(dtype, "kind", "") in ("m", "M") or str(dtype).startswith("period"):
        raise InvalidInputError(
            f"{name} holds dates or time differences; give numbers, such as (dates - dates[0]) / np.timedelta64(1, 's')"
        )


def refuse_tables(name: str, array: Any) -> None:
    """Refuse labelled arrays of several axes where only the position of an axis can be meant."""
    kind = _kind_of(array)
    if kind in ("chunked", "dataset", "table") or (kind in ("frame", "dataarray", "variable") and array.ndim > 1):
        raise InvalidInputError(
            f"{name} takes plain arrays and works along their last axis, and {type(array).__name__} has labels; "
            "give its values with that axis last, such as frame.to_numpy().T"
        )


@dataclass(frozen=True, slots=True)
class Opened:
    """Labelled samples, taken apart.

    Attributes
    ----------
    values : array
        The samples without labels.
    axis : int or tuple of int
        Along which their points lie.
    t : array, sequence of arrays, or None
        The points, from the caller or from the labels; None where neither has them.
    note : str
        Where the points come from, in words; empty where the caller gave them as numbers.
    """

    values: Any
    axis: Any
    t: Any
    note: str
    _given: Any
    _kind: str | None

    def close(self, value: Any, *, points: bool = True, attributes: bool = False) -> Any:
        """``value``, shaped like the samples, with their labels.

        ``points=False`` drops the labels along the axis of the samples, where ``value`` may have another length.
        ``attributes`` keeps those of xarray, such as units, which a derivative does not share.
        """
        if self._kind is None or self._kind == "index":
            return value
        if library_of(value) not in ("numpy", "cupy"):
            raise InvalidInputError(
                f"labelled samples with an order or a step of {library_of(value)}: the result is a tensor, which has "
                "no labels; give f.to_numpy()"
            )
        given = self._given
        if self._kind == "series":
            made = sys.modules["pandas"].Series(value, index=given.index if points else None, name=given.name)
        elif self._kind == "frame":
            along = (self.axis,) if isinstance(self.axis, int) else self.axis
            rows, columns = (None if not points and at in along else labels for at, labels in enumerate(given.axes))
            made = sys.modules["pandas"].DataFrame(value, index=rows, columns=columns)
        else:
            return self._data_array(value, points, attributes)
        made.attrs = dict(given.attrs)
        return made

    def _data_array(self, value: Any, points: bool, attributes: bool) -> Any:
        given = self._given
        along = (self.axis,) if isinstance(self.axis, int) else self.axis
        dropped = set() if points else {given.dims[axis] for axis in along}
        coords = {name: coord for name, coord in given.coords.items() if not dropped & set(coord.dims)}
        attrs = given.attrs if attributes else None
        return sys.modules["xarray"].DataArray(value, coords, given.dims, given.name, attrs)


def open_samples(
    f: Any,
    t: Any = None,
    *,
    step: Any = None,
    axis: Any = None,
    dim: Any = None,
    time_unit: str | None = None,
    by_row: bool = False,
) -> Opened:
    """Take samples apart, with the points that the caller or the labels give.

    Parameters
    ----------
    f : array_like or labelled
        The samples.
    t, step : optional
        What the caller says of the points; labels along the axis give them where neither is there. ``t`` may be dates.
    axis : int, sequence of int or None
        None for the index of a frame and the last axis of an array.
    dim : hashable, sequence or None
        The dimension of a ``DataArray``, instead of ``axis``.
    time_unit : str or None
        What dates are counted in: one of :data:`TIME_UNITS`, seconds by default.
    by_row : bool
        Points are not used: rows count, whatever their labels, which only have to be in order.
    """
    if callable(f) and not hasattr(f, "dtype"):
        raise InvalidInputError(
            "dim= and time_unit= are for samples, and f is a callable; give the points t as numbers"
        )
    kind = _kind_of(f)
    _refuse(f, kind)
    if kind == "dataarray":
        axis = _axis_of_dim(f, axis, dim, t)
    elif dim is not None:
        raise InvalidInputError(f"dim={dim!r} is for xarray's DataArray, and f is {type(f).__name__}; use axis=")
    elif axis is None:
        axis = 0 if kind in ("series", "frame") else -1
    values = _values_of(f, kind)
    if kind in ("series", "frame", "dataarray"):
        axes = [_check_axis(one, values.ndim) for one in (axis if isinstance(axis, Sequence) else (axis,))]
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
        found = [_labels_along(f, kind, one).points(scale) for one in axes]
        points = found if isinstance(axis, tuple) else found[0]
    else:
        points = None
    scale.require_use()
    return Opened(values, axis, points, scale.note, f, kind)


def _refuse(f: Any, kind: str | None) -> None:
    if kind == "chunked" or (kind == "dataarray" and f.chunks is not None):
        raise InvalidInputError(
            f"{type(f).__name__} is chunked (dask), and chunked samples are not served yet; load them with f.compute()"
        )
    if kind == "dataset":
        raise InvalidInputError("f is a Dataset of several variables; give one of them, f['name'], or use f.map(...)")
    if kind == "table":
        raise InvalidInputError(
            f"f is a {type(f).__name__}, whose columns cannot be told from its rows here; give f.to_pandas(), or the "
            "values with time along the last axis"
        )
    if kind == "variable":
        raise InvalidInputError("f is xarray's Variable, which has no coordinates; give a DataArray, or f.to_numpy()")


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
        if library_of(data) == "python":
            raise UnsupportedDtypeError(f"the DataArray holds {type(data).__name__}; give one that holds NumPy arrays")
        return data
    return np.asarray(f) if kind == "index" else f


def _column(series: Any, what: str) -> np.ndarray[Any, Any]:
    """The numbers of a series; those of pandas' own types with nan where they are missing."""
    dtype = series.dtype
    if dtype.kind not in "fiubc":
        raise UnsupportedDtypeError(
            f"{what} has dtype {dtype}, which are no numbers; select others, as frame.select_dtypes('number') does, "
            "or make it the index"
        )
    if isinstance(dtype, np.dtype):
        return np.asarray(series.to_numpy())
    single = dtype.kind == "f" and dtype.itemsize == 4
    return np.asarray(series.to_numpy(dtype="float32" if single else "float64", na_value=np.nan))


def _check_axis(axis: Any, ndim: int) -> int:
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer) or not -ndim <= axis < ndim:
        raise ShapeError(f"axis={axis!r} is not an axis of samples with {ndim} axes; use {-ndim} to {ndim - 1}")
    return int(axis) % ndim


def _axis_of_dim(f: Any, axis: Any, dim: Any, t: Any) -> Any:
    """The position of the dimension that is named, or of the only one there is."""
    if dim is not None and axis is not None:
        raise InvalidInputError(f"dim={dim!r} and axis={axis!r} both name an axis; give one of them")
    if axis is not None:
        return axis
    if dim is None:
        if f.ndim == 1:
            return 0
        if _kind_of(t) != "dataarray" or t.ndim != 1:
            raise InvalidInputError(
                f"the DataArray has dimensions {tuple(f.dims)}; say along which its points lie: "
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
    """The unit that dates are counted in, and what was said of them."""

    def __init__(self, name: str | None) -> None:
        if name is not None and name not in TIME_UNITS:
            raise InvalidInputError(f"time_unit={name!r} is no unit of time; use one of {', '.join(TIME_UNITS)}")
        self._asked = name
        self.name = name or "s"
        self.note = ""

    def count(self, spans: Any, since: Any = None) -> np.ndarray[Any, Any]:
        """Time differences as numbers of this unit."""
        start = "" if since is None else f" since {since}"
        self.note = f"the times are in units of {self.name}{start}"
        # Exact in whole nanoseconds and seconds; one rounding for the unit.
        return np.asarray(spans / np.timedelta64(1, "s"), dtype=np.float64) / TIME_UNITS[self.name]

    def require_use(self) -> None:
        if self._asked is not None and not self.note:
            raise InvalidInputError(
                f"time_unit={self._asked!r} is for points that are dates or time differences, and these are not; "
                "leave it out"
            )


def _points_of_dates(dates: Any, what: str, unit: _Unit) -> np.ndarray[Any, Any]:
    """Dates as the time since the first, time differences as they are."""
    zoned = getattr(dates, "tz", None) is not None
    array = np.asarray(dates.tz_convert(None) if zoned else dates)
    missing = np.flatnonzero(np.isnat(array))
    if missing.size:
        raise InvalidInputError(f"{what} has no time at position {missing[0]} (NaT); drop such rows")
    if np.datetime_data(array.dtype)[0] in ("Y", "M"):  # of different lengths
        array = array.astype("datetime64[D]")
    if array.dtype.kind == "m" or not array.size:
        return unit.count(array)
    return unit.count(array - array[0], np.datetime_as_string(array[0], unit="auto") + ("Z" if zoned else ""))


@dataclass(frozen=True, slots=True)
class _Labels:
    """The labels along one axis."""

    what: str
    index: Any
    #: Whether whole numbers were chosen by somebody, rather than being the count of rows.
    chosen: bool

    def points(self, unit: _Unit) -> np.ndarray[Any, Any]:
        """The points that the labels give, or an error that says why they give none."""
        index = self.index
        if index is not None:
            if hasattr(index, "to_timestamp"):  # periods stand for their beginning
                index = index.to_timestamp()
            kind = index.dtype.kind
            if kind in "mM":
                return _points_of_dates(index, self.what, unit)
            if kind == "f" or (kind in "iu" and self.chosen):
                return np.asarray(index, dtype=np.float64)
            if kind in "iu":
                why = f"{self.what} counts rows and has no name, so it is not taken for times"
            else:
                why = f"{self.what} has dtype {index.dtype}, which gives no times"
        else:
            why = f"{self.what} has no coordinate"
        raise InvalidInputError(
            f"neither t nor step is given, and {why}; give step=, or t= with the points (t=f.index is possible)"
        )


def _labels_along(f: Any, kind: str | None, axis: int) -> _Labels:
    if kind == "dataarray":
        name = f.dims[axis]
        index = f.indexes.get(name)
        _refuse_levels(index, f"dimension {name!r}")
        # What pandas calls "index" when it makes a DataArray of a frame without one.
        return _Labels(f"the coordinate {name!r}", index, name != "index")
    index = f.axes[axis]
    what = "the index" if axis == 0 else "the row of column names"
    _refuse_levels(index, what)
    return _Labels(what, index, index.name is not None)


def _refuse_levels(index: Any, what: str) -> None:
    if index is not None and index.nlevels > 1:
        raise InvalidInputError(
            f"{what} has {index.nlevels} levels, so that rows of several series follow one another; unstack them into "
            "columns, or go group by group: f.groupby(level=0).transform(...)"
        )


def _require_order(f: Any, kind: str | None, axes: Sequence[int]) -> None:
    """Refuse numbers or dates that go back along an axis whose rows are taken in their order."""
    if kind not in ("series", "frame", "dataarray"):
        return
    for axis in axes:
        labels = _labels_along(f, kind, axis)
        index = labels.index
        ordered = index is None or index.dtype.kind not in "iufmM" or index.is_monotonic_increasing
        if not ordered:
            raise InvalidInputError(
                f"{labels.what} goes back, and time runs with the rows, oldest first; sort them (sort_index(), or "
                "sortby() in xarray), or drop the labels"
            )


def _given_points(t: Any, f: Any, kind: str | None, unit: _Unit) -> Any:
    """The points that the caller gave, without labels; dates as numbers."""
    what = _kind_of(t)
    if what in ("chunked", "frame", "dataset", "table"):
        raise InvalidInputError(f"t is a {type(t).__name__}; give the points along one axis, such as frame['t']")
    if what == "series" and kind in ("series", "frame") and not t.index.equals(f.axes[0]):
        raise InvalidInputError("t and f have different indexes, and nothing is aligned here; give both with the same")
    if what in ("series", "index"):
        t = sys.modules["pandas"].Index(t)  # which knows of time zones, as an array does not
        t = t.to_timestamp() if hasattr(t, "to_timestamp") else t
    elif what in ("dataarray", "variable"):
        t = t.data
    if what is not None or type(t) is np.ndarray:
        return _points_of_dates(t, "t", unit) if t.dtype.kind in "mM" else np.asarray(t)
    return t
