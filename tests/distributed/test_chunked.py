"""Dask arrays: lazy in, lazy out, the values of one call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.distributed.chunked.planning import Resources, rechunk_method
from hpfracc.errors import HpfraccError, InvalidInputError, OutOfMemoryError, ShapeError, UnsupportedDtypeError

da = pytest.importorskip("dask.array")

N = 96
T = np.linspace(0.0, 2.0, N)
DATA = np.random.default_rng(0).standard_normal((6, N))


@pytest.fixture(autouse=True)
def one_arm() -> Any:
    """One arm for all shapes, so that results agree to the last digits, and tasks in this thread."""
    import dask

    with hf.config(deterministic=True), hf.use_backend("numpy"), dask.config.set(scheduler="synchronous"):
        yield


def never(block: Any) -> Any:
    raise AssertionError("computed while the graph is built")


def lazy(data: np.ndarray, chunks: Any) -> Any:
    return da.from_array(data, chunks=chunks)


OPERATORS = {
    "caputo": lambda f, **k: hf.caputo(f, T, 0.5, **k),
    "riemann_liouville": lambda f, **k: hf.riemann_liouville(f, T, 0.7, **k),
    "riemann_liouville_integral": lambda f, **k: hf.riemann_liouville_integral(f, T, 0.4, **k),
    "grunwald_letnikov": lambda f, **k: hf.grunwald_letnikov(f, T, 1.3, **k),
    "caputo_fabrizio": lambda f, **k: hf.caputo_fabrizio(f, T, 0.5, **k),
    "atangana_baleanu": lambda f, **k: hf.atangana_baleanu(f, T, 0.5, **k),
    "hadamard": lambda f, **k: hf.hadamard(f, T + 1.0, 0.5, **k),
    "tempered": lambda f, **k: hf.tempered(f, T, 0.5, rate=1.0, **k),
    "weyl": lambda f, **k: hf.weyl(f, T, 0.5, **k),
    "riesz": lambda f, **k: hf.riesz(f, T, 0.5, **k),
    "fractional_laplacian": lambda f, **k: hf.fractional_laplacian(f, T, 1.5, **k),
    "variable_order": lambda f, **k: hf.variable_order(f, T, np.full(N, 0.5), **k),
    "psi_caputo": lambda f, **k: hf.psi_caputo(f, T + 1.0, 0.5, psi=np.log, **k),
    "fractional_difference": lambda f, **k: hf.fractional_difference(f, 0.4, **k),
    "frft": lambda f, **k: hf.frft(f, 0.3, **k),
    "fractional_fft": lambda f, **k: hf.fractional_fft(f, 0.01, **k),
}


@pytest.mark.usefixtures("rounding_as_on_arm")
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_give_the_values_of_one_call(name: str):
    """Chunks of rows, and chunks of time: equal up to rounding, with the chunks of the samples, along any axis."""
    call = OPERATORS[name]
    expected = call(DATA)
    for chunks in ((2, N), (2, 40)):
        found = call(lazy(DATA, chunks))
        assert found.shape == DATA.shape and found.dtype == expected.dtype
        assert found.chunks == lazy(DATA, chunks).chunks
        np.testing.assert_allclose(found.compute(), expected, rtol=1e-12, atol=1e-12)
    turned = call(lazy(DATA.T.copy(), (40, 3)), axis=0).compute()
    assert np.allclose(turned, expected.T, rtol=1e-12, atol=1e-12)


def test_nothing_is_computed_while_the_graph_is_built():
    """Blocks that raise when they are computed are not."""
    for chunks in ((2, N), (2, 40)):
        array = lazy(DATA, chunks).map_blocks(never, dtype=float, meta=np.empty((0, 0)))
        for call in OPERATORS.values():
            call(array)
        hf.causal_convolution(np.ones(N), array)
        hf.distributed.convolve(np.ones(N), array, way="spectrum" if chunks[1] == 40 else "auto")
        hf.batch.run(hf.causal_convolution, array, common=(np.ones(N),))
        hf.explain(hf.caputo, array, T, 0.5)
        with pytest.raises(AssertionError, match="while the graph"):
            hf.caputo(array, T, 0.5).compute()


@pytest.mark.parametrize("count", [1, 7, 33, N])
@pytest.mark.parametrize("way", ["overlap", "rechunk", "spectrum"])
def test_ways_of_a_convolution_agree(way: str, count: int):
    """Rows and single series; a few eps of sum|w| max|x|."""
    weights = np.random.default_rng(1).standard_normal(count)
    for data in (DATA, DATA[0]):
        expected = hf.causal_convolution(weights, data)
        signal = lazy(data, 33)
        for given in (weights, da.from_array(weights, chunks=10)):
            if way == "overlap" and count > 30:
                with pytest.raises(InvalidInputError, match="not possible"):
                    hf.distributed.convolve(given, signal, way=way)
                continue
            found = hf.distributed.convolve(given, signal, way=way)
            assert found.chunks == signal.chunks and found.dtype == np.float64
            bound = 8 * np.finfo(float).eps * np.abs(weights).sum() * np.abs(data).max()
            assert np.abs(found.compute() - expected).max() <= bound


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_the_spectrum_keeps_the_dtype(dtype: str):
    """Single precision stays so, complex series are not halved."""
    data = (DATA[0] + (1j * DATA[1] if dtype == "complex128" else 0.0)).astype(dtype)
    weights = DATA[2].astype("float32")
    found = hf.distributed.convolve(weights, lazy(data, 40), way="spectrum")
    expected = np.convolve(weights.astype(complex), data.astype(complex))[:N]
    assert found.dtype == dtype and found.compute().dtype == dtype
    assert (
        np.abs(found.compute() - expected).max() <= 8 * np.finfo(dtype).eps * np.abs(weights).sum() * np.abs(data).max()
    )


@pytest.mark.parametrize("way", ["rechunk", "spectrum"])
def test_a_nan_reaches_nothing_before_its_time(way: str):
    """All values before it are finite and right; all after it, with whole weights, are not finite."""
    data = DATA[0].copy()
    data[50] = np.nan
    weights = 1.0 / np.arange(1.0, N + 1)
    found = hf.distributed.convolve(weights, lazy(data, 16), way=way).compute()
    assert np.allclose(found[:50], np.convolve(weights, DATA[0])[:50])
    assert np.isnan(found[50:]).all()


def test_the_rule_of_ways(monkeypatch: pytest.MonkeyPatch):
    """Blockwise where time is whole, the neighbour for short weights, rechunking with rows, spectrum for one series."""

    def chosen(signal: Any, count: int) -> str:
        (plan,) = hf.explain(hf.causal_convolution, np.ones(count), signal).plans
        return plan.chosen

    monkeypatch.setattr(Resources, "known", classmethod(lambda cls: cls(4, 1 << 34)))
    assert chosen(da.zeros((8, 1000), chunks=(2, 1000)), 1000) == "blockwise"
    assert chosen(da.zeros((8, 1000), chunks=(2, 100)), 50) == "overlap"
    assert chosen(da.zeros((8, 1 << 22), chunks=(2, 1 << 19)), 1 << 22) == "rechunk"
    assert chosen(da.zeros(1 << 22, chunks=1 << 19), 1 << 22) == "spectrum"
    monkeypatch.setattr(Resources, "known", classmethod(lambda cls: cls(4, 100 << 20)))
    text = str(hf.explain(hf.causal_convolution, np.ones(1 << 22), da.zeros((8, 1 << 22), chunks=(2, 1 << 16))))
    assert "one row of 33,554,432 bytes" in text and "-> spectrum" in text


@pytest.mark.parametrize("way", ["blockwise", "rechunk", "overlap", "spectrum"])
@pytest.mark.parametrize(("dtype", "kind"), [("float32", "float64"), ("float32", "complex128"), ("int16", "float32")])
def test_convolutions_have_the_dtype_that_they_declare(way: str, dtype: str, kind: str):
    """That of one call, in the precision of the signal: the dtype of the weights makes it complex at most."""
    weights, data = np.array([1.0, -0.5, 0.25]).astype(kind), (10 * DATA).astype(dtype)
    whole = hf.causal_convolution(weights, data)
    found = hf.distributed.convolve(weights, da.from_array(data, chunks=(2, N if way == "blockwise" else 24)), way=way)
    assert found.dtype == whole.dtype
    np.testing.assert_allclose(found.compute(), whole, rtol=1e-4, atol=1e-5, strict=True)


def test_what_cannot_fit_is_refused_before_the_start(monkeypatch: pytest.MonkeyPatch):
    """An operator that needs a whole row in a worker, whose memory is too small."""
    monkeypatch.setattr(Resources, "known", classmethod(lambda cls: cls(2, 100 << 20)))
    with pytest.raises(OutOfMemoryError, match="one row of 33,554,432 bytes"):
        hf.caputo_fabrizio(da.zeros(1 << 22, chunks=1 << 20), step=0.1, alpha=0.5)
    with pytest.raises(OutOfMemoryError, match="a chunk of 2,097,152 points"):
        hf.caputo(da.zeros(1 << 22, chunks=1 << 21), step=0.1, alpha=0.5)
    # Nor are rows brought together by p2p, whose buffers would not fit; tasks can spill.
    assert rechunk_method(Resources(2, 600 << 20)) == "tasks" and rechunk_method(Resources(2, 16 << 30)) is None
    # Smaller chunks can be carried.
    assert hf.explain(hf.caputo, da.zeros(1 << 22, chunks=1 << 16), step=0.1, alpha=0.5).plans[0].chosen == "carry"


def test_laplacians_over_chunked_axes():
    """Slabs of a periodic field, blocks of rows, and rechunking for the other kinds."""
    x, y = np.linspace(0.0, 2 * np.pi, 12, endpoint=False), np.linspace(0.0, 2 * np.pi, 18, endpoint=False)
    field = np.random.default_rng(2).standard_normal((12, 18))
    expected = hf.fractional_laplacian(field, (x, y), 1.5, method="periodic", axis=(0, 1))
    for chunks in ((5, 18), (5, 7), (12, 18)):
        found = hf.fractional_laplacian(lazy(field, chunks), (x, y), 1.5, method="periodic", axis=(0, 1))
        assert found.chunks == lazy(field, chunks).chunks and found.dtype == float
        assert np.allclose(found.compute(), expected, rtol=1e-12, atol=1e-12)
    line, operator = lazy(field[0], 5), hf.FractionalLaplacian(1.5, method="periodic")
    for way in ("rechunk", "slabs"):
        found = hf.distributed.apply(operator, line, y, way=way).compute()
        assert np.allclose(found, hf.fractional_laplacian(field[0], y, 1.5, method="periodic"), rtol=1e-12, atol=1e-12)
    for method in ("dirichlet", "neumann", "integral"):
        expected = hf.fractional_laplacian(field, step=(0.1, 0.2), alpha=1.2, method=method, axis=(0, 1))
        found = hf.fractional_laplacian(lazy(field, (5, 7)), step=(0.1, 0.2), alpha=1.2, method=method, axis=(0, 1))
        assert np.array_equal(found.compute(), expected)
    mean = hf.fractional_laplacian(lazy(field, (5, 7)), step=0.1, alpha=0.0, method="periodic", axis=(0, 1)).compute()
    assert np.allclose(mean, field)


def test_batches_of_rows():
    """Lazy in, lazy out; random numbers belong to rows; shapes come from a row of zeros."""
    rows = lazy(DATA, (4, 50))
    found = hf.batch.run(hf.causal_convolution, rows, common=(np.ones(N),))
    assert np.allclose(found.compute(), np.cumsum(DATA, axis=1))
    spread = hf.batch.run(lambda row: row.max() - row.min(), rows)
    assert spread.shape == (6,) and np.array_equal(spread.compute(), np.ptp(DATA, axis=1))

    def noisy(row: Any, rng: Any) -> Any:
        return row[:2] + rng.standard_normal(2)

    assert np.array_equal(hf.batch.run(noisy, rows, seed=3).compute(), hf.batch.run(noisy, DATA, seed=3))


def test_labelled_samples_stay_chunked_and_labelled():
    """A DataArray that wraps a Dask array: the dimension by name, coordinates kept, nothing computed."""
    xarray = pytest.importorskip("xarray")
    field = xarray.DataArray(lazy(DATA, (2, 40)), {"row": np.arange(6), "t": T}, ("row", "t"), "signal", {"units": "m"})
    found = hf.caputo(field, alpha=0.5, dim="t")
    assert found.chunks == field.chunks and found.dims == ("row", "t") and found.name == "signal"
    assert np.array_equal(found.t, T)
    assert np.array_equal(found.values, hf.caputo(DATA, T, 0.5))
    difference = hf.fractional_difference(field, 0.4, dim="t")
    assert difference.attrs == {"units": "m"} and difference.chunks == field.chunks
    assert np.array_equal(difference.values, hf.fractional_difference(DATA, 0.4))
    both = xarray.DataArray(lazy(DATA[:, :6], (3, 3)), {"x": np.arange(6.0), "y": np.arange(6.0)}, ("x", "y"))
    found = hf.fractional_laplacian(both, alpha=1.0, dim=("x", "y"))
    axes = (np.arange(6.0), np.arange(6.0))
    assert np.array_equal(found.values, hf.fractional_laplacian(DATA[:, :6], axes, 1.0, axis=(0, 1)))
    assert "rechunk" in str(hf.explain(hf.caputo, field, alpha=0.5, dim="t"))


def test_labels_stay_in_convolutions_and_batches():
    """Along any dimension; attributes stay, less those of the quantity; what would be computed here is refused."""
    xarray = pytest.importorskip("xarray")
    labels = {"row": np.arange(len(DATA)), "t": T}
    field = xarray.DataArray(lazy(DATA, (2, 40)), labels, ("row", "t"), attrs={"units": "m", "site": "A"})
    weights = np.arange(1.0, len(DATA) + 1.0)
    found = hf.distributed.convolve(weights, field, dim="row")
    assert found.chunks == field.chunks and found.dims == field.dims and found.attrs == {"site": "A"}
    assert np.allclose(found.values, hf.causal_convolution(weights, DATA.T).T, rtol=1e-13)
    rows = hf.batch.run(hf.causal_convolution, field, common=(np.ones(N),))
    assert rows.dims == field.dims and rows.chunks[0] == field.chunks[0] and np.array_equal(rows.t, T)
    assert np.array_equal(rows.values, hf.causal_convolution(np.ones(N), DATA))
    means = hf.batch.run(np.mean, field)
    assert means.dims == ("row",) and np.array_equal(means.values, DATA.mean(axis=1))
    one = field[0].copy(data=field[0].data.map_blocks(never, dtype=float, meta=np.empty(0)))
    assert hf.causal_convolution(np.ones(3), one).chunks == one.chunks
    same = hf.causal_convolution(weights, field, dim="row")
    assert same.chunks == field.chunks and np.array_equal(same.values, found.values)
    with pytest.raises(InvalidInputError, match="name the dimension of its points"):
        hf.causal_convolution(weights, field)
    with pytest.raises(InvalidInputError, match="matmul does not take Dask arrays"):
        hf.matmul(field, field)
    with pytest.raises(InvalidInputError, match="^z is a Dask array"):
        hf.special.gamma(one)
    with pytest.raises(InvalidInputError, match="^y0 is a Dask array"):
        hf.solve_fode(lambda t, y: -y, (0.0, 1.0), one, 0.5, step=0.1)
    with pytest.raises(InvalidInputError, match="move the points"):
        hf.distributed.convolve(weights, field.data, dim="row")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alpha": "x"}, "is not a number"),
        ({"alpha": float("nan")}, "alpha=nan: give a finite number"),
        ({"alpha": lazy(np.ones(1), 1)}, "alpha is a Dask array"),
        ({"step": -0.1}, "step=-0.1: give a finite number above 0"),
        ({"backend": "nosuch"}, "unknown backend"),
    ],
)
def test_what_workers_would_refuse_is_refused_here(options: dict[str, Any], words: str):
    """While the graph is built, with the words of a plain call."""
    with pytest.raises(HpfraccError, match=words):
        hf.caputo(lazy(DATA, (2, 40)), **{"step": 0.1, "alpha": 0.5, **options})


def test_bad_chunks_and_operands_are_refused():
    """Unknown and empty chunks, lazy points, shapes that do not match: before anything is computed."""
    samples = lazy(DATA, (2, 40))
    unknown = samples[samples[:, 0] > 0.0]
    with pytest.raises(InvalidInputError, match="compute_chunk_sizes"):
        hf.caputo(unknown, T, 0.5)
    with pytest.raises(InvalidInputError, match="compute_chunk_sizes"):
        hf.causal_convolution(np.ones(3), unknown.T)
    with pytest.raises(ShapeError, match="length 0"):
        hf.caputo(da.zeros((2, 0), chunks=(1, 1)), step=0.1, alpha=0.5)
    with pytest.raises(InvalidInputError, match="points t are a Dask array"):
        hf.caputo(samples, da.from_array(T), 0.5)
    with pytest.raises(ShapeError, match="t has shape"):
        hf.caputo(samples, T[:-1], 0.5)
    with pytest.raises(InvalidInputError, match="neither t nor step"):
        hf.caputo(samples, alpha=0.5)
    with pytest.raises(InvalidInputError, match="full_output"):
        hf.caputo(samples, T, 0.5, full_output=True)
    with pytest.raises(InvalidInputError, match="use axis="):
        hf.caputo(samples, T, 0.5, dim="t")
    with pytest.raises(ShapeError, match="axis=5"):
        hf.caputo(samples, T, 0.5, axis=5)
    with pytest.raises(InvalidInputError, match="matmul does not take Dask arrays"):
        hf.matmul(samples, samples.T)
    with pytest.raises(ShapeError, match="one row of weights"):
        hf.causal_convolution(np.ones((2, 3)), samples)
    with pytest.raises(InvalidInputError, match="way='fast'"):
        hf.distributed.convolve(np.ones(3), samples, way="fast")
    with pytest.raises(UnsupportedDtypeError, match="dtype object"):
        hf.caputo(samples.astype(object), T, 0.5)
    with pytest.raises(InvalidInputError, match="mask would be lost"):
        hf.caputo(da.ma.masked_greater(samples, 1.0), T, 0.5)
    with pytest.raises(InvalidInputError, match="d='x' is not a number"):
        hf.fractional_difference(samples, "x")


def test_special_functions_are_lazy():
    """Element by element, broadcast against arrays and numbers, with the values of one call."""
    special, z = hf.special, DATA[:2, :6]
    lazily = lazy(z, (1, 4))
    for call in (
        lambda z: special.mittag_leffler(-abs(z), 0.5),
        lambda z: special.gamma(z=z),
        lambda z: special.beta(abs(z) + 1.0, np.arange(1.0, 7.0)),
        lambda z: special.m_wright(abs(z), 0.25),
        lambda z: special.generalized_binomial(z, 3),
    ):
        found = call(lazily)
        assert found.chunks == lazily.chunks and found.dtype == float
        assert np.allclose(found.compute(), call(z), rtol=1e-14)


def test_solvers_refuse_what_they_would_compute():
    """A Dask array where numbers are needed is an error that says what to do, and is not computed."""
    numbers = lazy(np.ones(3), 2).map_blocks(never, dtype=float, meta=np.empty(0))
    x, fall = np.linspace(0.0, 1.0, 3), lambda t, y: -y
    space = {"space": hf.pde.Diffusion(1.0), "boundary": "periodic", "step": 0.1}
    for name, call in {
        "y0": lambda: hf.solve_fode(fall, (0.0, 1.0), numbers, 0.5, step=0.1),
        "alpha": lambda: hf.solve_fode(fall, (0.0, 1.0), np.ones(3), numbers, step=0.1),
        "t_eval": lambda: hf.solve_fode(fall, (0.0, 1.0), np.ones(3), 0.5, step=0.1, t_eval=numbers),
        "y0 ": lambda: hf.solve_fsde(fall, 0.1, (0.0, 1.0), numbers, step=0.1, rng=1),
        "diffusion": lambda: hf.solve_fsde(fall, numbers, (0.0, 1.0), np.ones(3), step=0.1, rng=1),
        "u0": lambda: hf.solve_fpde(None, (0.0, 1.0), numbers, x=x, **space),
        "source": lambda: hf.solve_fpde(None, (0.0, 1.0), np.ones(3), x=x, source=numbers, **space),
        "data": lambda: hf.fit_fode(lambda t, y, k: -k * y, x, numbers, parameters={"k": 1.0}, y0=[1.0], alpha=0.5),
        "path": lambda: hf.hurst(numbers),
        "alpha ": lambda: hf.caputo(np.ones(9), step=0.1, alpha=numbers),
        "a": lambda: hf.special.mittag_leffler_matrix(numbers, 0.5),
    }.items():
        with pytest.raises(InvalidInputError, match=f"^{name.strip()} is a Dask array.*compute"):
            call()


def test_the_cluster_gives_the_same_bits(client: Any):
    """Blockwise and rechunked through two workers, with one arm; a few eps of sum|w| max|x| by spectra."""
    for chunks in ((2, N), (2, 40)):
        found = hf.caputo(lazy(DATA, chunks), T, 0.5)
        assert np.array_equal(client.compute(found).result(), hf.caputo(DATA, T, 0.5))
    weights = 1.0 / np.arange(1.0, N + 1.0)
    found = client.compute(hf.distributed.convolve(weights, lazy(DATA, (6, 40)), way="spectrum")).result()
    bound = 8 * np.finfo(float).eps * weights.sum() * np.abs(DATA).max()
    assert np.abs(found - hf.causal_convolution(weights, DATA)).max() <= bound
