"""Samples of pandas and xarray: along the index or a dimension by name, and back with their labels."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import hpfracc as hf

pd = pytest.importorskip("pandas")
xr = pytest.importorskip("xarray")

N = 48
T = np.linspace(0.0, 2.0, N)
TABLE = np.stack([T**2, np.sin(T)], axis=1)
HOURS = pd.date_range("2024-03-30", periods=N, freq="h", tz="Europe/Berlin", name="when")  # summer time begins within


def frame(index: Any = None) -> Any:
    return pd.DataFrame(TABLE, columns=["a", "b"], index=index)


def array(**more: Any) -> Any:
    coords = {"time": T, "x": ["p", "q"]}
    return xr.DataArray(TABLE, dims=("time", "x"), coords=coords, name="u", attrs={"units": "K"}, **more)


@pytest.mark.parametrize("options", [{}, {"window": 9}, {"window": 9, "inverse": True}], ids=str)
def test_a_frame_is_differenced_down_its_index(options):
    """Each column is one series, business days or not; the labels come back."""
    days = pd.bdate_range("2024-01-01", periods=N)
    found = hf.fractional_difference(frame(days), 0.4, **options)
    pd.testing.assert_index_equal(found.index, days)
    assert list(found.columns) == ["a", "b"]
    right = hf.fractional_difference(TABLE, 0.4, axis=0, **options)
    np.testing.assert_allclose(found, right, rtol=1e-13, atol=1e-13)
    column = hf.fractional_difference(frame(days)["b"], 0.4, **options)
    assert column.name == "b" and column.index.equals(days)
    np.testing.assert_allclose(column, found["b"], rtol=1e-13, atol=1e-13)


OPERATORS = [
    hf.Caputo(0.5),
    hf.RiemannLiouville(0.5),
    hf.GrunwaldLetnikov(0.5),
    hf.RiemannLiouvilleIntegral(0.5),
    hf.CaputoFabrizio(0.5),
    hf.TemperedCaputo(0.5, 1.0),
    hf.Riesz(1.5),
    hf.Weyl(0.5),
    hf.FractionalLaplacian(1.5, "periodic"),
    hf.VariableOrder(lambda t: 0.5 + 0.1 * t),
]


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: type(operator).__name__)
def test_every_operator_takes_and_gives_labels(operator):
    """An index of numbers gives t; frames and arrays with names agree with plain samples along that axis."""
    right = operator(TABLE, T, axis=0)
    found = operator(frame(T))
    pd.testing.assert_frame_equal(found, pd.DataFrame(right, index=T, columns=["a", "b"]))
    series = operator(pd.Series(TABLE[:, 0], index=T, name="a"))
    np.testing.assert_allclose(series, right[:, 0], rtol=1e-12, atol=1e-12)
    named = operator(array().transpose("x", "time"), dim="time")
    assert named.dims == ("x", "time") and named.name == "u" and named.attrs == {}
    xr.testing.assert_allclose(named, xr.DataArray(right.T, named.coords, named.dims))


def test_dates_are_times_from_the_first_in_a_unit_of_choice():
    """Real hours, whatever the clocks did; seconds unless told; the full account says so, and keeps the labels."""
    series = pd.Series(TABLE[:, 1], index=HOURS)
    by_hour = hf.caputo(TABLE[:, 1], step=1.0, alpha=0.5)
    found = hf.caputo(series, alpha=0.5, time_unit="h", full_output=True)
    np.testing.assert_allclose(found.value, by_hour, rtol=1e-12)
    assert found.value.index.equals(HOURS)
    assert found.message.endswith("the times are in units of h since 2024-03-29T23:00Z")
    np.testing.assert_allclose(hf.caputo(series, alpha=0.5), by_hour / 60.0, rtol=1e-12)
    plain = HOURS.tz_convert(None).to_numpy()
    np.testing.assert_allclose(hf.caputo(TABLE[:, 1], plain, 0.5, time_unit="h"), by_hour, rtol=1e-12)
    np.testing.assert_allclose(hf.caputo(series.to_numpy(), HOURS, 0.5, time_unit="h"), by_hour, rtol=1e-12)
    spans = series.set_axis(HOURS - HOURS[0] + pd.Timedelta("1D"))
    assert hf.caputo(spans, alpha=0.5, time_unit="D", full_output=True).origin == 1.0
    months = pd.Series(TABLE[:, 1], index=pd.period_range("2024-01", periods=N, freq="M"))
    at = (months.index.to_timestamp() - pd.Timestamp("2024-01-01")).days
    np.testing.assert_allclose(hf.caputo(months, alpha=0.5, time_unit="D"), hf.caputo(TABLE[:, 1], at, 0.5), rtol=1e-12)


def test_whole_numbers_are_times_only_under_a_name():
    """A count of rows, also what is left of one, says nothing of the distance; what the caller says goes before."""
    years = pd.Index(np.arange(1990, 1990 + N), name="year")
    right = hf.caputo(TABLE, step=1.0, alpha=0.5, axis=0)
    np.testing.assert_allclose(hf.caputo(frame(years), alpha=0.5), right, rtol=1e-12)
    for rows in (frame(), frame()[::2], frame(np.arange(N))):
        with pytest.raises(hf.errors.InvalidInputError, match="neither t nor step is given.*unnamed integer index"):
            hf.caputo(rows, alpha=0.5)
    np.testing.assert_allclose(hf.caputo(frame(), step=1.0, alpha=0.5), right, rtol=1e-12)
    np.testing.assert_allclose(hf.caputo(frame(), pd.Series(T), 0.5), hf.caputo(TABLE, T, 0.5, axis=0), rtol=1e-12)
    np.testing.assert_allclose(hf.caputo(frame(HOURS), step=1.0, alpha=0.5), right, rtol=1e-12)
    across = hf.caputo(frame(T).T, alpha=0.5, axis=1)
    np.testing.assert_allclose(across.T, hf.caputo(frame(T), alpha=0.5))


def test_several_dimensions_by_name():
    """The Laplacian over two of three dimensions, their coordinates giving the steps."""
    data = np.random.default_rng(0).standard_normal((16, 3, 12))
    x, y = np.arange(16) * 0.1, np.arange(12) * 0.2
    cube = xr.DataArray(data, dims=("x", "k", "y"), coords={"x": x, "y": y})
    found = hf.fractional_laplacian(cube, alpha=1.5, method="periodic", dim=("y", "x"))
    right = hf.fractional_laplacian(data, (y, x), 1.5, method="periodic", axis=(2, 0))
    assert found.dims == cube.dims and set(found.coords) == {"x", "y"}
    np.testing.assert_allclose(found, right)


def test_transforms_drop_the_labels_of_their_axis():
    """What is rotated or turned into frequencies no longer stands at the old points; a difference keeps attributes."""
    turned = hf.frft(array(), 0.5, dim="time")
    assert set(turned.coords) == {"x"} and turned.dims == ("time", "x")
    spectrum = hf.fractional_fft(frame(T), 0.01, points=7)
    assert list(spectrum.index) == list(range(7)) and list(spectrum.columns) == ["a", "b"]
    np.testing.assert_allclose(spectrum, hf.fractional_fft(TABLE, 0.01, 0, points=7))
    assert hf.fractional_difference(array(), 0.4, dim="time").attrs == {"units": "K"}


def test_streams_keep_labels():
    """Chunks of a frame or an array with names come back as such, with the values of the whole signal."""
    stream = hf.Caputo(0.5).stream(T[1])
    whole = pd.concat([stream.push(chunk) for chunk in (frame(T).iloc[:20], frame(T).iloc[20:])])
    right = hf.caputo(frame(T), alpha=0.5)
    pd.testing.assert_frame_equal(whole, right, rtol=1e-5, atol=1e-5)
    assert hf.Caputo(0.5).stream(T[1], dim="time").push(array()).dims == ("time", "x")


def test_missing_numbers_are_nan_and_types_of_pandas_are_read():
    """Nullable columns; a missing value spoils what comes after it, and nothing before."""
    table = pd.DataFrame({"a": pd.array([1, 2, None, 4], dtype="Int64"), "b": np.array([True, False, True, True])})
    found = hf.fractional_difference(table, 0.5)
    assert found["a"].isna().tolist() == [False, False, True, True]
    assert not found["b"].isna().any()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: hf.caputo(array(), alpha=0.5), r"dimensions \('time', 'x'\).*dim='time' or 'x'"),
        (lambda: hf.caputo(array(), alpha=0.5, dim="z"), "dim='z' is not among"),
        (lambda: hf.caputo(array(), alpha=0.5, dim="time", axis=0), "both name an axis"),
        (lambda: hf.caputo(TABLE, T, 0.5, dim="time"), "dim='time' applies to an xarray"),
        (lambda: hf.caputo(frame(T), alpha=0.5, time_unit="h"), "time_unit='h' applies to dates"),
        (lambda: hf.caputo(frame(HOURS), alpha=0.5, time_unit="hour"), "time_unit='hour': use 'ns'"),
        (lambda: hf.caputo(np.sin, T, 0.5, time_unit="s"), "f is a callable"),
        (lambda: hf.caputo(frame(T).assign(c="text"), alpha=0.5), "column 'c' has dtype"),
        (lambda: hf.caputo(frame().set_index("a"), alpha=0.5).iloc[::-1].pipe(hf.caputo, alpha=0.5), "goes back"),
        (lambda: hf.fractional_difference(frame(HOURS[::-1]), 0.5), "the index is not sorted.*sort_index"),
        (lambda: hf.fractional_difference(pd.concat({"p": frame(), "q": frame()}), 0.5), "2 levels.*groupby"),
        (lambda: hf.caputo(frame(T), pd.Series(T), 0.5), "different indexes"),
        (lambda: hf.caputo(frame(list("ab") * (N // 2)), alpha=0.5), "not numeric and not a date"),
        (lambda: hf.caputo(array().drop_vars("time"), alpha=0.5, dim="time"), "has no coordinate"),
        (lambda: hf.caputo(array().to_dataset(), alpha=0.5), r"f\['name'\]"),
        (lambda: hf.caputo(frame(HOURS.insert(3, pd.NaT)[:N]), alpha=0.5), "NaT"),
        (lambda: hf.causal_convolution(T, frame()), "takes plain arrays.*to_numpy"),
        (lambda: hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], 0.5, t_eval=HOURS), "t_eval holds dates"),
        (lambda: hf.fdeint(lambda t, y: -y, np.ones(1), HOURS, 0.5), "t holds dates"),
    ],
)
def test_what_is_ambiguous_is_refused(call, words):
    """Ambiguous input raises an error that names what is missing and what to do."""
    with pytest.raises(hf.errors.HpfraccError, match=words):
        call()


class Chunked:
    """The part of a dask collection that identifies it."""

    def __dask_graph__(self) -> dict[str, Any]:
        return {}


def test_chunked_samples_are_refused():
    """Chunked samples raise an error; they are not loaded silently."""
    with pytest.raises(hf.errors.InvalidInputError, match="chunked.*compute"):
        hf.fractional_difference(Chunked(), 0.5)


def test_solvers_take_series():
    """Initial values and times as a series; the result is as without labels."""
    y0, times = pd.Series([1.0, 2.0], index=["u", "v"]), pd.Series([0.1, 0.5], index=[7, 3])
    found = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), y0, 0.5, step=0.01, t_eval=times)
    right = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0, 2.0], 0.5, step=0.01, t_eval=[0.1, 0.5])
    np.testing.assert_allclose(found.y, right.y, rtol=1e-13)


def test_neither_library_is_needed_nor_imported():
    """In a process that cannot import them, samples and dates of NumPy work."""
    code = (
        "import sys; sys.modules['pandas'] = sys.modules['xarray'] = None\n"
        "import numpy as np, hpfracc as hf\n"
        "days = np.datetime64('2024-01-01') + np.arange(6)\n"
        "print(hf.caputo(np.arange(6.0), days, 1.0, time_unit='D').tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([1.0] * 6)


def test_dates_of_python_are_named_in_the_error():
    """A list of datetimes is not an array of dates; the error says how it becomes one."""
    with pytest.raises(hf.errors.InvalidInputError, match=r"dates as np.array\(t, dtype='datetime64\[us\]'"):
        hf.caputo(np.arange(3.0), [dt.datetime(2024, 1, day) for day in (1, 2, 3)], 0.5)
