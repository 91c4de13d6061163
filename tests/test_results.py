"""Results as tables, files and in notebooks: one mechanism for all of them."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import control, pde
from hpfracc._results import Result, SmallCurve, as_html
from hpfracc.errors import InvalidInputError

pandas = pytest.importorskip("pandas")
xarray = pytest.importorskip("xarray")

T = np.linspace(0.0, 2.0, 9)
X = np.linspace(0.0, 2 * np.pi, 8, endpoint=False)
S = control.s


def relax(t: Any, y: Any) -> Any:
    return -y


def diffused(**options: Any) -> hf.FPDEResult:
    start = np.sin(X) if "save" not in options else np.sin(X) + 1.0
    return hf.solve_fpde(
        None, (0.0, 1.0), start, x=X, space=pde.Diffusion(1.0), boundary="periodic", t_eval=[0.0, 0.5, 1.0], **options
    )


def plane() -> hf.FPDEResult:
    u = np.sin(X)[:, None] * np.cos(X)
    return hf.solve_fpde(
        None, (0.0, 1.0), u, x=(X, X), space=pde.Diffusion(1.0), boundary="periodic", t_eval=[0.0, 1.0]
    )


def simulated(**options: Any) -> hf.FSDEResult:
    return hf.solve_fsde(relax, 0.1, (0.0, 1.0), [1.0, 2.0], step=0.25, paths=3, rng=0, **options)


def settled(dimensions: int = 1) -> hf.SteadyState:
    x = np.linspace(0.0, 1.0, 9)
    grid = x if dimensions == 1 else (x,) * dimensions
    return hf.steady_state(x=grid, space=pde.Diffusion(1.0), boundary="dirichlet", source=2.0)


def fitted() -> hf.FODEFit:
    data = hf.mittag_leffler(-(T**0.6), 0.6) + 0.01 * np.cos(40.0 * T)
    return hf.fit_fode(lambda t, y, k: -k * y, T, data, parameters={"k": 0.8}, alpha=0.6, y0=[1.0])


def identified() -> control.SystemFit:
    w = np.geomspace(0.01, 100.0, 30)
    return control.fit_frequency(w, (3 / (2 * S**0.7 + 1))(1j * w), 1 / (S**0.7 + 1), orders="fixed")


#: Each kind of result, with the dimensions of its arrays and the shape of its table.
CASES: dict[str, tuple[Callable[[], Any], dict[str, int], tuple[int, int]]] = {
    "ode": (
        lambda: hf.solve_fode(relax, (0.0, 1.0), [1.0, 2.0], 0.5, step=0.25),
        {"component": 2, "t": 5},
        (5, 2),
    ),
    "ode batch": (
        lambda: hf.solve_fode(relax, (0.0, 1.0), np.ones((3, 2)), 0.5, step=0.25),
        {"member": 3, "component": 2, "t": 5},
        (5, 6),
    ),
    "pde": (diffused, {"t": 3, "x": 8}, (3, 8)),
    "pde plane": (plane, {"t": 2, "x": 8, "y": 8}, (2, 64)),
    "pde functional": (lambda: diffused(save=lambda t, u: u.mean()), {"t": 3}, (3, 1)),
    "sde": (simulated, {"path": 3, "component": 2, "t": 5, "noise_component": 2}, (5, 6)),
    "sde last": (lambda: simulated(save="last"), {"path": 3, "component": 2}, (3, 2)),
    "sde moments": (lambda: simulated(keep="moments"), {"component": 2, "t": 5}, (5, 4)),
    "fit": (fitted, {"unknown": 1, "other_unknown": 1}, (1, 4)),
    "operator": (lambda: hf.caputo(T**2, T, 0.5, full_output=True), {"t": 9}, (9, 2)),
    "operator along 0": (
        lambda: hf.caputo(np.stack([T, T**2]).T, step=0.25, alpha=0.5, axis=0, full_output=True),
        {"t": 9, "axis_1": 2},
        (9, 4),
    ),
    "operator at a point": (lambda: hf.caputo(np.sin, 1.0, 0.5, full_output=True), {"t": 1}, (1, 2)),
    "steady": (settled, {"x": 9}, (9, 1)),
    "steady plane": (lambda: settled(2), {"x": 9, "y": 9}, (9, 9)),
    "response": (lambda: control.step_response(1 / (S**0.5 + 1), T), {"t": 9}, (9, 1)),
    "frequency": (lambda: control.bode(1 / (S**0.5 + 1), [0.1, 1.0, 10.0]), {"w": 3}, (3, 3)),
    "nyquist": (lambda: control.nyquist(1 / (S**0.5 + 1), [0.1, 1.0, 10.0]), {"w": 3}, (3, 3)),
    "system": (identified, {"parameter": 2, "other_parameter": 2}, (2, 2)),
}


@pytest.fixture(params=CASES, scope="module")
def case(request: pytest.FixtureRequest) -> tuple[Any, dict[str, int], tuple[int, int]]:
    make, sizes, shape = CASES[request.param]
    return make(), sizes, shape


def assert_same(one: Any, other: Any) -> None:
    """Equal to the bit, through dataclasses, containers and arrays."""
    if dataclasses.is_dataclass(one):
        assert type(one) is type(other)
        for each in dataclasses.fields(one):
            assert_same(getattr(one, each.name), getattr(other, each.name))
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for name in one:
            assert_same(one[name], other[name])
    elif isinstance(one, list | tuple):
        assert type(one) is type(other) and len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    elif isinstance(one, np.ndarray) and one.dtype.kind == "O":
        assert one.shape == other.shape and list(map(str, one.flat)) == list(map(str, other.flat))
    elif isinstance(one, control.TransferFunction):
        assert (one.numerator, one.denominator) == (other.numerator, other.denominator)
    else:
        np.testing.assert_array_equal(one, other, strict=isinstance(one, np.ndarray))


def test_a_file_gives_the_result_back(case, tmp_path: Path):
    """All fields to the bit, except functions and the engine's decision; the header is JSON and nothing is pickled."""
    result = case[0]
    path = result.save(tmp_path / "result.npz")
    assert path == tmp_path / "result.npz"
    loaded = type(result).load(path)
    if isinstance(result, hf.OperatorResult):
        result = dataclasses.replace(result, decision=None)
    for each in dataclasses.fields(result):
        if each.name not in ("_model", "_tools"):
            assert_same(getattr(result, each.name), getattr(loaded, each.name))
    assert repr(loaded) == repr(result)
    with np.load(path, allow_pickle=False) as file:
        assert json.loads(file["header"].tobytes())["kind"] == type(result).__name__
        assert all(file[name].dtype.kind != "O" for name in file.files)


def test_tables_have_the_axes_of_the_result(case):
    """Dimensions of xarray and the shape of the frame; both hold the same numbers."""
    result, sizes, shape = case
    dataset, frame = result.to_xarray(), result.to_dataframe()
    assert dict(dataset.sizes) == sizes
    assert frame.shape == shape
    name = next(iter(dataset))
    array = dataset[name].transpose(frame.index.name, ...)
    block = frame[name] if frame.columns.nlevels == 1 and name in frame.columns else frame
    if frame.columns.names[0] == "variable":
        block = frame[name]
    np.testing.assert_array_equal(np.asarray(block).ravel(), array.to_numpy().ravel())
    if frame.index.name in dataset.coords:
        np.testing.assert_array_equal(frame.index.to_numpy(), dataset[frame.index.name].to_numpy())


def test_polars_has_the_numbers_of_pandas(case):
    """The index of pandas is the first column of polars; the other columns are in the same order."""
    pytest.importorskip("polars")
    found, frame = case[0].to_polars(), case[0].to_dataframe()
    assert found.columns[0] == frame.index.name
    np.testing.assert_array_equal(found[:, 0].to_numpy(), frame.index.to_numpy())
    np.testing.assert_array_equal(found[:, 1:].to_numpy(), frame.to_numpy())


def test_facts_fit_into_a_netcdf_file(case):
    """Attributes are text and numbers, by identifiers."""
    attributes = case[0].to_xarray().attrs
    assert attributes
    assert all(name.isidentifier() and type(value) in (str, int, float) for name, value in attributes.items())


def test_a_notebook_shows_a_short_table_and_a_picture(case):
    """Well-formed, short, without scripts; and repr is one short line."""
    result = case[0]
    text = result._repr_html_()
    assert len(text) < 8000
    root = ElementTree.fromstring(text)
    assert root.find("table") is not None
    assert (root.find("svg") is None) == isinstance(result, control.SystemFit)
    assert len(repr(result)) < 300 and "\n" not in repr(result) and "array(" not in repr(result)


def test_values_of_the_tables_are_those_of_the_solution():
    """Columns by component, rows by time."""
    result = hf.solve_fode(relax, (0.0, 1.0), [1.0, 2.0], 0.5, step=0.25)
    np.testing.assert_array_equal(result.to_dataframe()[1], result.y[1])
    np.testing.assert_array_equal(result.to_xarray().y.sel(t=0.5), result.y[:, 2])
    assert result.to_xarray().attrs["method"] == "pece"


def test_the_table_of_a_fit_has_its_intervals():
    fit = fitted()
    row = fit.to_dataframe().loc["k"]
    assert (row["low"], row["high"]) == pytest.approx(fit.confidence_intervals()["k"])
    assert row["estimate"] == fit.estimates[0]
    assert "k=" in repr(fit)
    assert "<td>k</td>" in fit._repr_html_()


def test_a_loaded_fit_says_that_it_cannot_predict(tmp_path: Path):
    fit = hf.FODEFit.load(fitted().save(tmp_path / "fit"))
    with pytest.raises(InvalidInputError, match="loaded"):
        fit.predict([3.0])


def test_a_loaded_evolution_keeps_its_mass(tmp_path: Path):
    result = plane()
    assert_same(hf.FPDEResult.load(result.save(tmp_path / "u.npz")).mass, result.mass)


def test_events_and_a_dense_solution(tmp_path: Path):
    """Events are kept, the function ``sol`` is not."""
    result = hf.solve_fode(relax, (0.0, 1.0), [1.0], 0.5, step=0.125, dense_output=True, events=lambda t, y: y[0] - 0.6)
    loaded = hf.FODEResult.load(result.save(tmp_path / "a.npz"))
    assert loaded.sol is None
    assert len(loaded.t_events[0]) == 1
    assert_same(loaded.y_events, result.y_events)


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_the_result_of_an_operator_is_an_array(library: str):
    """NumPy takes it as its value, with dtype and copy of the array protocol; the value of t^2 at order 1/2."""
    samples = np.linspace(0.0, 1.0, 65, dtype=np.float32) ** 2
    if library != "numpy":
        samples = pytest.importorskip("torch" if library == "torch" else "jax.numpy").asarray(samples)
    found = hf.caputo(samples, step=1 / 64, alpha=0.5, full_output=True)
    exact = 8 / (3 * np.sqrt(np.pi)) * np.linspace(0.0, 1.0, 65) ** 1.5
    np.testing.assert_allclose(np.asarray(found), exact, atol=2e-3)
    assert np.asarray(found).dtype == np.float32 and np.asarray(found, dtype=np.float64).dtype == np.float64
    assert not np.shares_memory(np.array(found, copy=True), np.asarray(found))
    if library == "numpy":
        assert np.array(found, copy=False) is not None and np.shares_memory(np.asarray(found), found.value)
        with pytest.raises(ValueError, match="copy"):
            np.array(found, dtype=np.float64, copy=False)
    np.testing.assert_array_equal(np.sqrt(np.asarray(found)), np.sqrt(np.asarray(found.value)))


def test_labels_of_samples_are_kept():
    """A series gives a frame with its index, a DataArray a Dataset with its coordinates."""
    series = pandas.Series(T**2, index=pandas.Index(T, name="time"), name="x")
    found = hf.caputo(series, alpha=0.5, full_output=True)
    assert found.to_dataframe().index.equals(series.index)
    assert "time" in found.to_xarray().coords
    frame = pandas.DataFrame({"a": T, "b": T**2}, index=series.index)
    found = hf.caputo(frame, alpha=0.5, full_output=True)
    assert list(found.to_dataframe().columns) == ["a", "b"] == list(found.to_xarray())
    array = xarray.DataArray(np.stack([T, T**2]), dims=("row", "time"), coords={"time": T})
    found = hf.caputo(array, alpha=0.5, dim="time", full_output=True)
    assert found.to_xarray()["value"].dims == ("row", "time")
    assert found.to_dataframe().shape == (18, 1)
    assert "<svg" in found._repr_html_()


def test_labels_are_not_lost_in_a_file(tmp_path: Path):
    found = hf.caputo(pandas.Series(T, index=T), alpha=0.5, full_output=True)
    with pytest.raises(InvalidInputError, match="value is a Series"):
        found.save(tmp_path / "a.npz")
    assert not list(tmp_path.iterdir())


def test_tensors_become_numpy_arrays(tmp_path: Path):
    torch = pytest.importorskip("torch")
    result = hf.solve_fode(relax, (0.0, 1.0), torch.ones(2, dtype=torch.float64, requires_grad=True), 0.5, step=0.25)
    loaded = hf.FODEResult.load(result.save(tmp_path / "a.npz"))
    np.testing.assert_array_equal(loaded.y, result.y.detach().numpy())
    assert result.to_dataframe().shape == (5, 2)
    assert "<svg" in result._repr_html_()


def test_the_wrong_class_is_named(tmp_path: Path):
    path = control.step_response(1 / (S + 1), T).save(tmp_path / "a.npz")
    with pytest.raises(InvalidInputError, match=r"holds a Response, not a FODEResult; use Response\.load"):
        hf.FODEResult.load(path)


@pytest.mark.parametrize("content", ["text", "other arrays", "pickle", "cut", "another format"])
def test_a_file_of_something_else_is_refused(content: str, tmp_path: Path):
    path = tmp_path / "a.npz"
    if content == "text":
        path.write_text("t, y\n0, 1\n")
    elif content == "other arrays":
        np.savez(path, t=T)
    elif content == "pickle":
        np.savez(path, header=np.array([{"kind": "FODEResult"}], object))
    elif content == "cut":
        control.step_response(1 / (S + 1), T).save(path)
        path.write_bytes(path.read_bytes()[:200])
    else:
        text = json.dumps({"format": 99, "kind": "Response", "fields": {}})
        np.savez(path, header=np.frombuffer(text.encode(), np.uint8))
    with pytest.raises(InvalidInputError, match="a.npz"):
        control.Response.load(path)


def test_a_missing_file_is_missing(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        control.Response.load(tmp_path / "none.npz")


def test_values_that_are_not_finite_survive(tmp_path: Path):
    """nan and infinities, complex numbers, and nested data, in the header."""
    result = hf.solve_fode(relax, (0.0, 1.0), [1.0], 0.5, step=0.5)
    result.stats |= {"a": float("inf"), "b": (1, [2 + 1j, None]), "c": {0.5: "x"}, "d": np.float32(0.5)}
    result.error_estimate = float("nan")
    loaded = hf.FODEResult.load(result.save(tmp_path / "a.npz"))
    assert_same(loaded.stats["a"], float("inf"))
    assert loaded.stats["b"] == (1, [2 + 1j, None]) and loaded.stats["c"] == {0.5: "x"}
    assert np.isnan(loaded.error_estimate)


def test_what_a_file_cannot_hold_is_named(tmp_path: Path):
    result = hf.solve_fode(relax, (0.0, 1.0), [1.0], 0.5, step=0.5)
    result.stats["place"] = {1, 2}
    with pytest.raises(InvalidInputError, match=r"stats\['place'\] is a set"):
        result.save(tmp_path / "a.npz")


@pytest.mark.parametrize(
    "y",
    [
        np.zeros(3),
        np.array([1.0, np.nan, 2.0]),
        np.array([-1e308, 0.0, 1.7e308]),
        np.array([np.nan, np.inf, np.nan]),
        np.array([5.0]),
        np.empty(0),
        np.where(np.arange(10_000) == 7_777, 50.0, np.sin(np.arange(10_000) / 500.0)),
    ],
)
def test_pictures_of_any_values_stay_inside(y: np.ndarray):
    """Coordinates are finite and in the image; a long curve is thinned and keeps its peak."""
    text = as_html("a <b>", {"x": 1.0}, [SmallCurve(np.arange(y.size), y)])
    root = ElementTree.fromstring(text)
    picture = root.find("svg")
    assert (picture is None) == (not np.isfinite(y).any())
    if picture is not None:
        places = np.array(re.findall(r"[ML](\S+) (\S+)", picture[0].get("d")), dtype=float)
        assert len(places) <= 242
        assert places.min() >= 0.0 and places[:, 0].max() <= 360.0 and places[:, 1].max() <= 140.0
        assert f"{np.max(y[np.isfinite(y)]):.4g}" in text
        if y.size > 1000:
            assert places[:, 1].min() == pytest.approx(4.0)


def test_a_sweep_gives_a_frame_and_a_picture(tmp_path: Path):
    found = hf.sweep(lambda a: a * a, hf.grid(a=np.linspace(0.0, 1.0, 5)))
    frame = found.to_dataframe()
    np.testing.assert_allclose(frame["value"], frame.index.to_numpy() ** 2)
    assert "<svg" in found._repr_html_()
    assert "<svg" not in hf.sweep(lambda a, b: a * b, hf.grid(a=[1.0, 2.0], b=[1.0, 2.0]))._repr_html_()


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (hf.Caputo(0.5), ("Caputo", r"\alpha", "0.5")),
        (2 * control.delay(0.1) / (S**0.5 + 1), ("relative degree", r"\frac{2 e^{(-0.1 s)}}{s^{0.5} + 1}")),
        (S**2, ("$s^{2}$",)),
        (hf.models.zener(), ("fractional Zener", r"\sigma", "modulus that relaxes", "Caputo")),
        (hf.models.sir(), ("SIR", "equation 3")),
    ],
)
def test_a_notebook_shows_operators_systems_and_models(shown: Any, words: tuple[str, ...]):
    """Well-formed tables with formulas; and repr is one short line."""
    text = shown._repr_html_()
    assert ElementTree.fromstring(text).find("table") is not None
    assert [each for each in words if each not in text] == []
    assert len(repr(shown)) < 150 and "\n" not in repr(shown)


def test_the_repr_of_a_model_has_its_values():
    assert repr(hf.models.zener().replace(tau=2.5)) == "Rheology('fractional Zener': e0=1, e1=1, tau=2.5, alpha=0.5)"


def test_no_result_is_left_out():
    """Every public dataclass called a result, response or fit has the shared methods."""
    names = ["FODEResult", "FPDEResult", "FSDEResult", "FODEFit", "FPDEFit", "OperatorResult", "SteadyState"]
    assert all(issubclass(getattr(hf, name), Result) for name in names)
    assert all(issubclass(each, Result) for each in (control.Response, control.FrequencyResponse, control.SystemFit))


def test_a_missing_library_is_named_and_notebooks_need_none():
    """Without pandas, xarray and Matplotlib tables name the extra, and files and the display work."""
    code = """
import sys
for name in ("pandas", "xarray", "matplotlib"):
    sys.modules[name] = None
import hpfracc as hf
result = hf.control.step_response(1 / (hf.control.s + 1), [0.0, 1.0])
assert "<svg" in result._repr_html_()
for method in (result.to_xarray, result.to_dataframe):
    try:
        method()
    except hf.errors.MissingDependencyError as error:
        assert "hpfracc[frames]" in str(error)
    else:
        raise SystemExit("no error")
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
