"""Sweeps: the same values wherever they run, failures by number and parameters, refusals in words."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.distributed import SweepProgress
from hpfracc.errors import BatchItemError, ClusterError, InvalidInputError, ShapeError, UnsupportedDtypeError
from tests.distributed import work
from tests.distributed.conftest import fork_server

GRID = hf.grid(alpha=[0.3, 0.5, 0.7, 0.9], rate=[0.5, 1.0, 2.0])


@pytest.fixture(scope="module")
def serial() -> np.ndarray:
    return np.array([work.relax(**GRID[i]) for i in range(len(GRID))]).reshape(4, 3)


def test_items_are_computed_from_their_number():
    """A product of a million items and their order, without a list."""
    items = hf.grid(a=np.arange(1000), b=np.arange(2000), c=["x", "y"])
    assert len(items) == 4_000_000
    assert items[0] == {"a": 0, "b": 0, "c": "x"}
    assert items[4_000_000 - 1] == {"a": 999, "b": 1999, "c": "y"}
    assert items[-2] == {"a": 999, "b": 1999, "c": "x"}
    assert items[4001] == {"a": 1, "b": 0, "c": "y"}
    columns = items.columns([0, 4001])
    assert columns["a"].tolist() == [0, 1] and columns["c"].tolist() == ["x", "y"]
    with pytest.raises(IndexError):
        items[4_000_000]
    pairs = hf.points(y0=np.eye(3), rate=[1, 2, 3])
    assert pairs[1]["y0"].tolist() == [0.0, 1.0, 0.0] and pairs[1]["rate"] == 2


def test_serial_is_the_plain_loop(serial: np.ndarray):
    """Without an executor the values are those of a loop, to the bit, in the shape of the grid."""
    result = hf.sweep(work.relax, GRID)
    assert np.array_equal(result.values, serial)
    assert result.failed == [] and result.complete
    assert "12 of 12 done, 0 failed" in str(result)


@pytest.mark.parametrize("batch", ["auto", 1, 5])
def test_a_cluster_gives_the_serial_bits(client: Any, serial: np.ndarray, batch: Any):
    """Two worker processes: equal to the serial loop to the bit, whatever the batches."""
    result = hf.sweep(work.relax, GRID, executor=client, batch=batch)
    assert np.array_equal(result.values, serial)


def test_an_address_serves_too(client: Any, serial: np.ndarray):
    """The address of a scheduler instead of a client."""
    address = client.scheduler.address
    assert np.array_equal(hf.sweep(work.relax, GRID, executor=address).values, serial)


def test_executors_of_the_standard_library(serial: np.ndarray):
    """A pool of threads runs a lambda, which only cloudpickle can send."""
    with ThreadPoolExecutor(2) as pool:
        assert np.array_equal(hf.sweep(lambda alpha, rate: work.relax(alpha, rate), GRID, executor=pool).values, serial)


def test_a_pool_that_was_shut_down_is_refused():
    """With a typed error."""
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(ClusterError, match="takes no tasks"):
        hf.sweep(work.square, hf.grid(x=[1.0]), executor=pool)


def test_a_pool_of_processes():
    """Processes: results, a lambda, and a process that dies is told with what to do."""
    with ProcessPoolExecutor(1) as pool:
        assert hf.sweep(lambda x: x + 1, hf.grid(x=[1, 2]), executor=pool).values.tolist() == [2, 3]
    with ProcessPoolExecutor(1) as pool, pytest.raises(ClusterError, match="process of the executor died"):
        hf.sweep(work.end_worker, hf.grid(x=[5.0]), executor=pool)


def test_stacked_functions_get_many_items(client: Any):
    """One call for each stack; with the same stack size the bits are the same everywhere."""
    serial = hf.sweep(work.relax_stack, GRID, batch=4)
    assert np.allclose(serial.values, hf.sweep(work.relax, GRID).values, rtol=1e-12)
    assert np.array_equal(hf.sweep(work.relax_stack, GRID, batch=4, executor=client).values, serial.values)
    with hf.config(deterministic=True):
        assert np.array_equal(
            hf.sweep(work.relax_stack, GRID).values, hf.sweep(work.relax_stack, GRID, executor=client).values
        )


def test_a_bad_item_leaves_its_stack_as_it_was():
    """An item that raises is named; the others keep the bits they have in a stack of that size."""
    good = hf.points(alpha=[0.3, 0.5, 0.7, 0.9], rate=[1.0, 1.0, 2.0, 3.0])
    bad = hf.points(alpha=[0.3, 0.5, 0.7, 0.9], rate=[1.0, -1.0, 2.0, 3.0])
    result = hf.sweep(work.relax_stack, bad, batch=4, on_error="keep")
    assert [(each.index, each.parameters["rate"]) for each in result.failed] == [(1, -1.0)]
    keep = [0, 2, 3]
    assert np.array_equal(result.values[keep], hf.sweep(work.relax_stack, good, batch=4).values[keep])
    assert np.isnan(result.values[1])


def test_random_numbers_belong_to_items(client: Any):
    """Item i draws from SeedSequence(seed, spawn_key=(i,)), wherever it runs."""
    items = hf.points(x=np.zeros(7))
    expected = [np.random.default_rng(np.random.SeedSequence(11, spawn_key=(i,))).standard_normal(3) for i in range(7)]
    for options in ({}, {"executor": client, "batch": 2}):
        assert np.array_equal(hf.sweep(work.draw, items, seed=11, **options).values, expected)


def test_blocks_of_paths_are_those_of_one_ensemble():
    """Paths of a stochastic equation are keyed by seed and number, so an ensemble can be swept in blocks."""

    def block(first: int) -> Any:
        options = {"step": 0.1, "rng": 5, "paths": 3, "first_path": first}
        return hf.solve_fsde(lambda t, y: -y, 0.2, (0.0, 1.0), [1.0], **options).y

    whole = hf.solve_fsde(lambda t, y: -y, 0.2, (0.0, 1.0), [1.0], step=0.1, rng=5, paths=6).y
    assert np.array_equal(np.concatenate(list(hf.sweep(block, hf.grid(first=[0, 3])).values)), whole)


@pytest.mark.parametrize("remote", [False, True])
def test_failures_are_kept_or_raised(client: Any, remote: bool):
    """An item that raises is named with its parameters; others have their values."""
    items, options = hf.grid(x=np.arange(10.0)), {"executor": client if remote else None, "batch": 3}
    result = hf.sweep(work.refuse_seven, items, on_error="keep", **options)
    (failure,) = result.failed
    assert (failure.index, failure.parameters, failure.error) == (7, {"x": 7.0}, "ValueError: seven")
    assert failure.worker
    assert np.array_equal(np.isnan(result.values), np.arange(10) == 7)
    with pytest.raises(BatchItemError, match=r"item 7 of 10 \(x=7.0\): ValueError: seven") as caught:
        hf.sweep(work.refuse_seven, items, **options)
    assert caught.value.index == 7
    assert isinstance(caught.value.__cause__, ValueError)


def test_errors_that_cannot_be_pickled_are_told(client: Any):
    """The text of an exception that cannot travel arrives; the sweep goes on."""
    (failure,) = hf.sweep(work.stubborn, hf.grid(x=[1.0]), executor=client, on_error="keep").failed
    assert failure.error == "StubbornError: gone"


def test_integers_get_gaps():
    """Whole numbers stay so unless an item failed; then they are floats with nan."""

    def count(x: int) -> int:
        if x == 2:
            raise ValueError("two")
        return 10 * x

    assert hf.sweep(count, hf.grid(x=[0, 1])).values.dtype.kind == "i"
    values = hf.sweep(count, hf.grid(x=[1, 2]), on_error="keep").values
    assert values[0] == 10.0 and np.isnan(values[1])


def test_outputs_by_name():
    """Fields, functions and dicts; a solution gives y; one that stopped early is a failure."""

    def solution(alpha: float) -> Any:
        return hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0, 2.0], alpha, step=0.25)

    items = hf.grid(alpha=[0.5, 0.8])
    assert hf.sweep(solution, items).values.shape == (2, 2, 5)
    both = hf.sweep(solution, items, output=("t", "y")).values
    assert both["t"].shape == (2, 5) and both["y"].shape == (2, 2, 5)
    assert hf.sweep(solution, items, output=lambda found: found.y[0, -1]).values.shape == (2,)
    table = hf.sweep(lambda alpha: {"a": alpha, "b": [1, 2]}, items).to_xarray()
    assert dict(table.sizes) == {"alpha": 2, "b_0": 2}

    def stops(alpha: float) -> Any:
        return hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], alpha, rtol=1e-8, max_steps=5)

    def diffuse(alpha: float) -> Any:
        x = np.linspace(0.0, 1.0, 8, endpoint=False)
        options = {"space": hf.pde.Diffusion(1.0), "boundary": "periodic", "step": 0.05}
        return hf.solve_fpde(None, (0.0, 0.1), np.sin(2.0 * np.pi * x), x=x, alpha=alpha, **options)

    assert hf.sweep(diffuse, items).values.shape == (2, 3, 8)
    with pytest.raises(BatchItemError, match="SolveError"):
        hf.sweep(stops, items)
    with pytest.raises(BatchItemError, match="'z' is not a field"):
        hf.sweep(solution, items, output="z")


def test_arrays_with_labels_are_arrays():
    """A DataArray with coordinates ``t`` and ``y``, or a frame with such columns, is not a solution."""
    xarray = pytest.importorskip("xarray")
    pandas = pytest.importorskip("pandas")

    def labelled(x: float) -> Any:
        return xarray.DataArray(np.full((2, 3), x), {"t": [0.0, 1.0], "y": [5.0, 6.0, 7.0]}, ("t", "y"))

    items = hf.grid(x=[1.0, 2.0])
    assert np.array_equal(hf.sweep(labelled, items).values, np.broadcast_to([[[1.0]], [[2.0]]], (2, 2, 3)))
    frame = hf.sweep(lambda x: pandas.DataFrame({"t": [0.0, 1.0], "y": [x, x]}), items)
    assert frame.values.tolist() == [[[0.0, 1.0], [1.0, 1.0]], [[0.0, 2.0], [1.0, 2.0]]]
    table = hf.sweep(lambda x: xarray.Dataset({"t": x, "y": 2 * x}), items).values
    assert table["t"].tolist() == [1.0, 2.0] and table["y"].tolist() == [2.0, 4.0]


@pytest.mark.parametrize("error", [GeneratorExit, asyncio.CancelledError, SystemExit, KeyboardInterrupt, StopIteration])
def test_any_exception_is_a_failure_of_its_item(error: type[BaseException], client: Any):
    """Workers take some of them for their own, and would wait forever."""

    def fails(x: float) -> float:
        if x == 1.0:
            raise error("poison")
        return x

    result = hf.sweep(fails, hf.grid(x=[0.0, 1.0, 2.0]), executor=client, batch=3, on_error="keep")
    assert [(each.index, each.error) for each in result.failed] == [(1, f"{error.__name__}: poison")]
    assert result.values[[0, 2]].tolist() == [0.0, 2.0]
    with pytest.raises((BatchItemError, RuntimeError), match=error.__name__):
        hf.distributed.mapper(client)(fails, [0.0, 1.0])


def test_labels_in_xarray():
    """The parameters of a grid are dimensions, those of points coordinates of the items."""
    found = hf.sweep(work.square, hf.grid(x=[1.0, 2.0])).to_xarray()
    assert found.dims == ("x",) and found.sel(x=2.0).item() == 4.0 and found.name == "square"
    found = hf.sweep(lambda x, y: x * y, hf.points(x=[1.0, 2.0], y=[3.0, 4.0])).to_xarray()
    assert found.dims == ("item",) and found.y.values.tolist() == [3.0, 4.0]


def test_settings_and_limits_travel(client: Any):
    """In a worker the engine has one core, below 600 MiB, and the settings of the caller."""
    with hf.config(deterministic=True), hf.use_backend("numpy"):
        found = hf.sweep(work.seen_by_engine, hf.grid(x=[0.0, 1.0, 2.0, 3.0]), executor=client, batch=1).values
    assert found["cores"].tolist() == [1, 1, 1, 1]
    assert (found["free"] <= 600 * 2**20).all() and (found["free"] > 2**20).all()
    assert found["deterministic"].all() and found["numpy"].all()
    assert not hf.sweep(work.seen_by_engine, hf.grid(x=[0.0]), executor=client).values["deterministic"].any()


def test_progress_tells_throughput_and_failures():
    """A function is told of each task; at the end all items are done."""
    told: list[SweepProgress] = []
    hf.sweep(work.refuse_seven, hf.grid(x=np.arange(10.0)), batch=2, on_error="keep", progress=told.append)
    assert [each.done for each in told] == [2, 4, 6, 8, 10]
    assert told[-1].failed == 1 and told[-1].remaining == 0.0 and told[-1].rate > 0.0
    hf.sweep(work.square, hf.grid(x=[1.0]), progress=True)


def test_an_item_that_takes_too_long_is_a_failure():
    """In a process of a pool Python code is interrupted; other items have their values."""
    items = hf.grid(x=[0.0, 1.0, 2.0])
    with ProcessPoolExecutor(1, mp_context=fork_server()) as pool:
        result = hf.sweep(work.wait_long, items, executor=pool, timeout=1.5, on_error="keep", batch=3)
    assert [each.index for each in result.failed] == [1]
    assert "longer than timeout=1.5 s" in result.failed[0].error
    assert result.values[[0, 2]].tolist() == [0.0, 2.0]


def test_a_time_limit_without_processes_is_refused():
    """In the calling process and in threads nothing can end a call; of Dask's workers only those with a nanny."""
    items = hf.grid(x=[0.0, 1.0])
    with ThreadPoolExecutor(1) as pool:
        for executor in (None, pool):
            with pytest.raises(InvalidInputError, match="timeout= holds in processes"):
                hf.sweep(work.square, items, executor=executor, timeout=1.5)
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(1, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
        pytest.raises(InvalidInputError, match="whose workers have nannies"),
    ):
        hf.sweep(work.square, items, executor=client, timeout=1.5)


def test_temporary_errors_are_retried():
    """OSError and MemoryError are tried up to ``retries`` times more, other errors once."""
    calls: list[str] = []

    def fails(kind: str, until: int) -> int:
        calls.append(kind)
        if calls.count(kind) < until:
            raise {"os": OSError, "value": ValueError}[kind]("not now")
        return len(calls)

    result = hf.sweep(fails, hf.points(kind=["os", "value"], until=[3, 3]), on_error="keep", batch=2)
    assert [each.parameters["kind"] for each in result.failed] == ["value"]
    assert calls.count("os") == 3 and calls.count("value") == 1


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: hf.grid(), InvalidInputError, "no parameters"),
        (lambda: hf.grid(a=1.0), ShapeError, "single value"),
        (lambda: hf.grid(a=[]), InvalidInputError, "no values"),
        (lambda: hf.grid(a=[object()]), UnsupportedDtypeError, "numbers, bools or strings"),
        (lambda: hf.points(a=[1, 2], b=[1]), ShapeError, "a has 2, b has 1"),
        (lambda: hf.sweep(work.square, [{"x": 1}, {"x": "abc"}]), UnsupportedDtypeError, "x' has 1 beside"),
        (lambda: hf.points(x=[2**53 + 1, 0.5]), UnsupportedDtypeError, "large integers not beside floats"),
        (lambda: hf.grid(x=[True, 2]), UnsupportedDtypeError, "has True beside"),
        (lambda: hf.grid(x=np.ma.masked_array([1, 2], [0, 1])), UnsupportedDtypeError, "masked"),
        (lambda: hf.grid(**{n: range(10**5) for n in "abcd"}), InvalidInputError, "too many to count"),
        (lambda: hf.sweep(work.square, {"x": [1]}), InvalidInputError, "hf.grid"),
        (lambda: hf.sweep(work.square, 3), InvalidInputError, "not parameters"),
        (lambda: hf.sweep("square", hf.grid(x=[1])), InvalidInputError, "is not a function"),
        (lambda: hf.sweep(work.square, hf.grid(x=[1]), executor=3), InvalidInputError, "cannot run tasks"),
        (lambda: hf.sweep(work.square, hf.grid(x=[1]), on_error="skip"), InvalidInputError, "use 'raise', 'keep'"),
        (lambda: hf.sweep(work.square, hf.grid(x=[1]), retries=-1), InvalidInputError, "retries=-1"),
        (lambda: hf.sweep(work.square, hf.grid(x=[1]), timeout=0), InvalidInputError, "timeout=0"),
        (lambda: hf.sweep(work.square, hf.grid(x=[1]), timeout=True), InvalidInputError, "timeout=True"),
        (lambda: hf.sweep(work.square, hf.grid(x=[1]), batch=0), InvalidInputError, "batch=0"),
        (lambda: hf.sweep(work.square, hf.grid(x=[1]), store=3), InvalidInputError, "store=3"),
        (lambda: hf.sweep(work.square, hf.grid(x=[1]), resources={"GPU": 1}), InvalidInputError, "of Dask workers"),
        (lambda: hf.sweep(work.square, hf.grid(x=[1]), resources={"GPU": 0}), InvalidInputError, "above 0"),
        (lambda: hf.points(a=[[1], [2, 3]]), ShapeError, "unequal parts"),
        (lambda: hf.sweep(work.square, hf.grid(x=[1]), output=3), InvalidInputError, "output=3"),
        (lambda: hf.sweep(work.square, hf.grid(x=[1]), seed=-1), InvalidInputError, "seed=-1"),
        (lambda: hf.sweep(lambda x: "text", hf.grid(x=[1])), BatchItemError, "not numeric"),
        (lambda: hf.sweep(lambda x: np.zeros(x), hf.grid(x=[1, 2])), ShapeError, "item 1 returned value"),
        (lambda: hf.sweep(lambda x: np.zeros(x), hf.grid(x=[1, 2]), batch=2), ShapeError, "item 1 returned value"),
    ],
)
def test_bad_input_is_refused_in_words(call: Any, error: type[Exception], words: str):
    """Each with a typed error that says what to do."""
    with pytest.raises(error, match=words):
        call()


def test_a_function_that_cannot_be_pickled_is_named(client: Any):
    """The error names the captured variable."""
    lock = threading.Lock()

    def locked(x: float) -> float:
        with lock:
            return x

    with pytest.raises(InvalidInputError, match=r"'locked' cannot be sent .*lock \(lock\)"):
        hf.sweep(locked, hf.grid(x=[1.0]), executor=client)


def test_executors_are_not_nested(client: Any):
    """A sweep with an executor inside a task is refused; without one it runs."""
    with pytest.raises(BatchItemError, match="inside a task"):
        hf.sweep(work.nested, hf.grid(x=[2.0]), executor=client)


def test_no_scheduler_at_the_address(monkeypatch: pytest.MonkeyPatch):
    """An address without a scheduler gives a typed error soon."""
    monkeypatch.setattr("hpfracc.distributed.dask_runner._CONNECT_TIMEOUT", 0.5)
    with pytest.raises(ClusterError, match="no scheduler answers"):
        hf.sweep(work.square, hf.grid(x=[1.0]), executor="tcp://127.0.0.1:9")


def test_other_versions_are_refused(client: Any, monkeypatch: pytest.MonkeyPatch):
    """A worker with another version of a library is named."""
    real = hf.distributed.worker.versions()
    monkeypatch.setattr("hpfracc.distributed.worker.versions", lambda: {**real, "numpy": "1.0"})
    with pytest.raises(ClusterError, match=r"numpy .* instead of 1\.0"):
        hf.sweep(work.square, hf.grid(x=[1.0]), executor=client)


def test_batches_on_an_executor(client: Any):
    """``batch.run`` in pieces: the serial results, the item that fails by its number, seeds by item."""
    rows = np.random.default_rng(3).standard_normal((40, 64))
    weights = np.random.default_rng(4).standard_normal(64)
    found = hf.batch.run(hf.causal_convolution, rows, common=(weights,), executor=client)
    expected = [np.convolve(weights, row)[:64] for row in rows]
    assert np.allclose(found, expected, atol=1e-12)
    assert hf.batch.run(work.square, range(9), executor=client) == [x * x for x in range(9)]
    one = hf.batch.run(work.draw, [0.0, 1.0, 2.0], seed=5, executor=client)
    assert np.array_equal(one, hf.batch.run(work.draw, [0.0, 1.0, 2.0], seed=5))
    with pytest.raises(BatchItemError, match="item 7 of 10: ValueError: seven") as caught:
        hf.batch.run(work.refuse_seven, range(10), executor=client)
    assert caught.value.index == 7
    with pytest.raises(InvalidInputError, match="workers="):
        hf.batch.run(work.square, [1], workers=2, executor=client)


def test_scipy_optimises_on_a_cluster(client: Any):
    """``workers=`` of differential evolution: the same minimum as here."""
    from scipy.optimize import differential_evolution, rosen

    options: dict[str, Any] = {"rng": 1, "updating": "deferred", "maxiter": 3, "polish": False}
    here = differential_evolution(rosen, [(0, 2), (0, 2)], **options)
    there = differential_evolution(rosen, [(0, 2), (0, 2)], workers=hf.distributed.mapper(client), **options)
    assert np.array_equal(here.x, there.x)


def test_costs_say_when_fewer_machines_would_do():
    """The load of the scheduler is workers times its cost by the time of a task."""
    result = hf.sweep(work.square, hf.grid(x=np.arange(8.0)), batch=2)
    result._run = replace(result._run, workers=1000, overhead=1.6e-3, work=4 * 1.0, seconds=10.0)
    cost = result.cost()
    assert cost.scheduler_load == pytest.approx(1.6)
    assert "312 workers would be as fast, or batch=7" in cost.advice
    assert cost.core_hours == pytest.approx(4.0 / 3600.0) and np.isnan(cost.joules)
    result._run = replace(result._run, workers=8, overhead=1e-3, ran=10_000, work=100.0)
    assert "an item takes 10 ms; a function declared by hf.distributed.stacked" in result.cost().advice
    result._run = replace(result._run, stacked=True)
    assert result.cost().advice == ""


def test_pictures():
    """A line over one parameter, a map or a surface over two; what cannot be drawn is refused."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    result = hf.sweep(work.relax, GRID)
    axes = result.plot()
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("rate", "alpha")
    assert result.plot(kind="surface").get_zlabel() == "relax"
    line = hf.sweep(work.square, hf.grid(x=[2.0, 1.0])).plot().lines[0]
    assert line.get_xdata().tolist() == [1.0, 2.0] and line.get_ydata().tolist() == [1.0, 4.0]
    rates = hf.grid(alpha=[0.5, 0.7], rate=np.geomspace(0.1, 10.0, 3))
    assert hf.sweep(lambda alpha, rate: alpha * rate, rates).plot().get_xscale() == "log"
    both = hf.sweep(lambda a, b: a + b, hf.points(a=[1.0, 2.0, 3.0], b=[3.0, 1.0, 2.0]))
    drawn = both.plot()
    assert drawn.collections[0].get_offsets().tolist() == [[1.0, 3.0], [2.0, 1.0], [3.0, 2.0]]
    assert drawn.figure.axes[1].get_ylabel() == "value"
    with pytest.raises(InvalidInputError, match="kind='line' needs 1 parameter with several values, and there are 2"):
        both.plot(kind="line")
    with pytest.raises(InvalidInputError, match="one real number per item"):
        hf.sweep(lambda x: [x, x], hf.grid(x=[1.0, 2.0])).plot()
    pyplot.close("all")
